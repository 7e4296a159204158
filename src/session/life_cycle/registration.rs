//! Registers threads, also one that the application has not registered and that has something to
//! record: it adds a marker or pushes a label during a session. Answers whether a session records a
//! thread.

use crate::platform::{current_thread_id, is_own_thread};
use crate::state::{REGISTRATION_HOOKS, RacyFeatures, find_thread, prepare_own_lane};
use crate::threads::{
    OnThreadRef, may_register_itself, register_current_thread, register_current_thread_itself,
};
use crate::types::{Features, ThreadId, ThreadProfilingFeatures};
use crate::util::is_any_lock_held_on_current_thread;

/// Registers the calling thread. The caller has installed the fork handlers, and holds no lock of the
/// profiler.
pub(crate) fn register_thread(name: &str) {
    register_current_thread(name, REGISTRATION_HOOKS);
    prepare_own_lane();
}

/// Registers the calling thread under the system's name, if a session records unregistered threads
/// and the thread was never registered. Does nothing on a thread of the profiler, and when called
/// from inside the profiler's own work, for example by the application's allocator.
pub(crate) fn register_if_recorded() {
    let records_unregistered = RacyFeatures::features_if_active_and_unpaused()
        .is_some_and(|features| !features.contains(Features::NO_UNREGISTERED_SAMPLING));
    if records_unregistered
        && may_register_itself()
        && !is_any_lock_held_on_current_thread()
        && !is_own_thread(current_thread_id())
    {
        // The session's start has installed the fork handlers.
        register_current_thread_itself(REGISTRATION_HOOKS);
        prepare_own_lane();
    }
}

/// Returns whether the id refers to the calling thread: it is that thread's id, or unspecified.
pub(crate) fn is_current_thread(thread: ThreadId) -> bool {
    !thread.is_specified() || thread == current_thread_id()
}

/// See `profiler_thread_is_being_profiled`.
pub(crate) fn is_thread_being_profiled(any_of: ThreadProfilingFeatures) -> bool {
    let thread_features = || {
        OnThreadRef::with(|thread| {
            thread
                .unlocked_reader_and_atomic_rw_on_thread()
                .profiling_features()
        })
    };
    if !RacyFeatures::is_active_and_unpaused() {
        return false;
    }
    let features = thread_features().or_else(|| {
        register_if_recorded();
        thread_features()
    });
    features.is_some_and(|features| features.intersects(any_of))
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
    // Inside the profiler's own work, this thread may already hold the registry's lock.
    if is_any_lock_held_on_current_thread() {
        return false;
    }
    find_thread(thread).is_some_and(|found| {
        found
            .unlocked_const_reader_and_atomic_rw()
            .profiling_features()
            .intersects(any_of)
    })
}

/// Returns whether the calling thread is registered.
pub(crate) fn is_thread_registered() -> bool {
    OnThreadRef::with(|_| ()).is_some()
}
