//! A thread of the profiler for one task of the API.

use std::io;

use crate::platform::{
    prepare_to_wait_as_loader_call, spawn_profiler_thread, with_signals_blocked,
};

/// Runs a task on a thread of the profiler, which blocks all signals and is not sampled. No thread
/// waits for it under a lock.
///
/// # Errors
/// The error of the operating system, if it refuses the thread.
pub(crate) fn spawn_task(task: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let body = || {
        prepare_to_wait_as_loader_call();
        task();
    };
    with_signals_blocked(|| spawn_profiler_thread(c"GekkotaTask", body)).map(drop)
}
