//! Notifies the application of state changes. Callbacks run without any lock of the profiler, so
//! they may call any function.

use std::cell::RefCell;

use crate::state::{ACTIVE_PS, ActivePs, RacyFeatures, StateCallback};
use crate::types::{ProfilingState, ProfilingStates, SamplingState};
use crate::util::{PsLock, is_any_lock_held_on_current_thread, run_callback};

/// Maximum depth of nested calls: a callback may change the profiler's state, and that change calls
/// the callbacks again.
const MAX_DEPTH: usize = 16;

/// The callbacks that this thread is running, outermost first. It has no destructor, so an exiting
/// thread can use it.
struct CallsInProgress {
    calls: [(u64, Option<ProfilingState>); MAX_DEPTH],
    depth: usize,
}

thread_local! {
    static IN_PROGRESS: RefCell<CallsInProgress> = const { RefCell::new(CallsInProgress { calls: [(0, None); MAX_DEPTH], depth: 0 }) };
}

impl CallsInProgress {
    /// Records a call. Returns false if the same call is already in progress or the maximum depth
    /// is reached.
    fn begin(&mut self, serial: u64, state: ProfilingState) -> bool {
        let call = (serial, Some(state));
        let is_new = self.depth < MAX_DEPTH && !self.calls[..self.depth].contains(&call);
        if is_new {
            self.calls[self.depth] = call;
            self.depth += 1;
        }
        is_new
    }
}

fn call(callback: &StateCallback, state: ProfilingState) {
    if callback.wants(state)
        && IN_PROGRESS.with(|calls| calls.borrow_mut().begin(callback.serial, state))
    {
        run_callback(|| callback.call(state));
        IN_PROGRESS.with(|calls| calls.borrow_mut().depth -= 1);
    }
}

/// Calls all callbacks that are registered for this state.
#[doc(alias = "invoke_profiler_state_change_callbacks")]
pub(crate) fn notify(state: ProfilingState) {
    StateCallback::all()
        .iter()
        .for_each(|callback| call(callback, state));
}

/// See `profiler_add_state_change_callback`.
pub(crate) fn add_state_change_callback(
    states: ProfilingStates,
    id: u64,
    callback: Box<dyn Fn(ProfilingState) + Send + Sync>,
) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    let callback = StateCallback::add(states, id, callback);
    if RacyFeatures::is_active() {
        call(&callback, ProfilingState::AlreadyActive);
    }
}

/// See `profiler_remove_state_change_callback`.
pub(crate) fn remove_state_change_callback(id: u64) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    if id == 0 {
        return;
    }
    StateCallback::remove(id)
        .iter()
        .for_each(|callback| call(callback, ProfilingState::RemovingCallback));
}

/// See `profiler_callback_after_sampling`.
pub(crate) fn callback_after_sampling(callback: Box<dyn FnOnce(SamplingState) + Send>) -> bool {
    if is_any_lock_held_on_current_thread() {
        return false;
    }
    let session = {
        let lock = PsLock::acquire();
        ACTIVE_PS.get(&lock).as_ref().map(ActivePs::session)
    };
    session.is_some_and(|session| session.after_sampling.add(callback).is_ok())
}
