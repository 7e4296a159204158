//! Telling the host what happens to the profiler. Under no lock of the profiler's, so that a callback may call anything.

use std::cell::RefCell;

use crate::base::{
    ProfilingState, ProfilingStates, PsLock, SamplingState, call_host,
    is_any_lock_held_on_current_thread,
};
use crate::state::{ACTIVE_PS, ActivePs, RacyFeatures, StateCallback};

/// A callback that makes another thing happen is told of that from within; no deeper than this.
const DEEPEST: usize = 16;

/// What this thread is telling whom, outermost first. It has no destructor, so that it is there while a thread ends.
struct Telling {
    of: [(u64, Option<ProfilingState>); DEEPEST],
    depth: usize,
}

thread_local! {
    static TELLING: RefCell<Telling> = const { RefCell::new(Telling { of: [(0, None); DEEPEST], depth: 0 }) };
}

impl Telling {
    /// Notes it; false when this is being told already, or too much is.
    fn begin(&mut self, serial: u64, state: ProfilingState) -> bool {
        let this = (serial, Some(state));
        let is_news = self.depth < DEEPEST && !self.of[..self.depth].contains(&this);
        if is_news {
            self.of[self.depth] = this;
            self.depth += 1;
        }
        is_news
    }
}

fn call(callback: &StateCallback, state: ProfilingState) {
    if callback.wants(state)
        && TELLING.with(|telling| telling.borrow_mut().begin(callback.serial, state))
    {
        call_host(|| callback.call(state));
        TELLING.with(|telling| telling.borrow_mut().depth -= 1);
    }
}

/// Tells all who want to know.
#[doc(alias = "invoke_profiler_state_change_callbacks")]
pub(super) fn tell(state: ProfilingState) {
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
