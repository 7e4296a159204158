//! What the profiler knows of threads. Each answer may be out of date at once.

use crate::api::engine;
use crate::base::{ProcessId, ThreadId, ThreadProfilingFeatures};

/// Whether the calling thread is one of which the running session records any of these: false when the profiler is not
/// active or pauses, and on a thread that is not registered or that the session leaves out.
///
/// It is about the thread, as in Gecko: what the session records of no thread, without [`Features::CPU`] say, or while
/// sampling alone pauses, it does not record of this one either.
///
/// [`Features::CPU`]: crate::Features::CPU
///
/// For who would do work for it only then. Cost: a load, and where the profiler is active a look at the registration. Idea:
/// Gecko's function of the same name.
///
/// ```
/// use gekkota::thread::{ThreadProfilingFeatures, profiler_thread_is_being_profiled};
/// if profiler_thread_is_being_profiled(ThreadProfilingFeatures::MARKERS) {
///     // Put together what a marker shall say.
/// }
/// ```
pub fn profiler_thread_is_being_profiled(any_of: ThreadProfilingFeatures) -> bool {
    engine::is_thread_being_profiled(any_of)
}

/// The same, of another thread; [`ThreadId::UNSPECIFIED`] is the calling one. False for one that is not registered.
///
/// Cost: where the profiler is active, a lock and a look at each registered thread. Idea: Gecko's
/// `profiler_thread_is_being_profiled(aThreadId, …)`.
pub fn profiler_other_thread_is_being_profiled(
    thread: ThreadId,
    any_of: ThreadProfilingFeatures,
) -> bool {
    engine::is_other_thread_being_profiled(thread, any_of)
}

/// Whether the profiler is active and the calling thread is registered; whether it is profiled does not matter. Cost: a
/// load, and where the profiler is active a look at the registration.
pub fn profiler_is_active_and_thread_is_registered() -> bool {
    engine::is_active() && engine::is_thread_registered()
}

/// Whether the calling thread holds one of the profiler's own locks.
///
/// It does when the profiler's work calls the host's code: its allocator, say, or a handler of `pthread_atfork` that stands
/// between the profiler's. Markers are dropped there, and what would take a lock does nothing, or is an error. Stacks on
/// demand, and functions and code of scripts, must not be asked for: who may be there asks this first. May be called anywhere.
/// Cost: one load. Idea: Gecko's function of the same name.
pub fn profiler_is_locked_on_current_thread() -> bool {
    engine::is_locked_on_current_thread()
}

/// The kernel's id of this process. One system call.
pub fn profiler_current_process_id() -> ProcessId {
    ProcessId::from_number(i32::try_from(std::process::id()).unwrap_or_default())
}

/// The kernel's id of the thread that `main` runs on; [`ThreadId::UNSPECIFIED`] where threads have no ids. One system call.
pub fn profiler_main_thread_id() -> ThreadId {
    engine::main_thread_id()
}

/// Whether the calling thread is the one that `main` runs on. Two system calls.
pub fn profiler_is_main_thread() -> bool {
    engine::is_main_thread()
}
