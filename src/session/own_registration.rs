//! Registers a thread that has something to record and that the application has not registered: it
//! adds a marker or pushes a label during a session.

use crate::platform::{current_thread_id, is_own_thread};
use crate::session::fork::ensure_fork_handlers;
use crate::state::{REGISTRATION_HOOKS, RacyFeatures, prepare_own_lane};
use crate::threads::{may_register_itself, register_current_thread_itself};
use crate::types::Features;
use crate::util::is_any_lock_held_on_current_thread;

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
        ensure_fork_handlers();
        register_current_thread_itself(REGISTRATION_HOOKS);
        prepare_own_lane();
    }
}
