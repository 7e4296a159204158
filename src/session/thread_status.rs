//! Queries about threads.

use crate::platform::current_process_id;
use crate::session::stacks::is_current_thread;
use crate::state::RacyFeatures;
use crate::threads::{OnThreadRef, ThreadRegistry};
use crate::types::{ThreadId, ThreadProfilingFeatures};

/// See `profiler_thread_is_being_profiled`.
pub(crate) fn is_thread_being_profiled(any_of: ThreadProfilingFeatures) -> bool {
    let thread_features = || {
        OnThreadRef::with(|thread| {
            thread
                .unlocked_reader_and_atomic_rw_on_thread()
                .profiling_features()
        })
    };
    RacyFeatures::is_active_and_unpaused()
        && thread_features().is_some_and(|features| features.intersects(any_of))
}

/// See `profiler_other_thread_is_being_profiled`.
pub(crate) fn is_other_thread_being_profiled(
    thread: ThreadId,
    any_of: ThreadProfilingFeatures,
) -> bool {
    if !RacyFeatures::is_active_and_unpaused() {
        return false;
    }
    if is_current_thread(thread) {
        return is_thread_being_profiled(any_of);
    }
    ThreadRegistry::find(thread).is_some_and(|registered| {
        registered
            .unlocked_const_reader_and_atomic_rw()
            .profiling_features()
            .intersects(any_of)
    })
}

/// Returns whether the calling thread is registered.
pub(crate) fn is_thread_registered() -> bool {
    OnThreadRef::with(|_| ()).is_some()
}

/// Returns the id of the main thread, which equals the process id.
pub(crate) fn main_thread_id() -> ThreadId {
    ThreadId::from_number(current_process_id().to_number())
}
