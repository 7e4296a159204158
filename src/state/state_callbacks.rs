//! Callbacks of the application for changes of the profiling state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::types::{ProfilingState, ProfilingStates};
use crate::util::{PsCell, PsLock};

/// A registered callback.
pub(crate) struct StateCallback {
    /// Serial number of the callback in this process, in the order of registration.
    pub(crate) serial: u64,
    states: ProfilingStates,
    id: u64,
    call: Box<dyn Fn(ProfilingState) + Send + Sync>,
    is_removed: AtomicBool,
}

/// The registered callbacks, in the order of registration.
static STATE_CALLBACKS: PsCell<Vec<Arc<StateCallback>>> = PsCell::new(Vec::new());
static LAST_SERIAL: AtomicU64 = AtomicU64::new(0);

impl StateCallback {
    pub(crate) fn add(
        states: ProfilingStates,
        id: u64,
        call: Box<dyn Fn(ProfilingState) + Send + Sync>,
    ) -> Arc<Self> {
        let serial = LAST_SERIAL.fetch_add(1, Ordering::Relaxed) + 1;
        let callback = Arc::new(Self {
            serial,
            states,
            id,
            call,
            is_removed: AtomicBool::new(false),
        });
        STATE_CALLBACKS
            .get_mut(&mut PsLock::acquire())
            .push(Arc::clone(&callback));
        callback
    }

    /// Removes and returns the callbacks with this id. The caller drops them without holding a
    /// lock.
    pub(crate) fn remove(id: u64) -> Vec<Arc<Self>> {
        let mut lock = PsLock::acquire();
        let list = STATE_CALLBACKS.get_mut(&mut lock);
        let removed: Vec<_> = list.extract_if(.., |callback| callback.id == id).collect();
        removed
            .iter()
            .for_each(|callback| callback.is_removed.store(true, Ordering::Release));
        removed
    }

    pub(crate) fn all() -> Vec<Arc<Self>> {
        STATE_CALLBACKS.get(&PsLock::acquire()).clone()
    }

    /// Returns whether to call the callback for `state`. A removed callback is called only for its
    /// own removal.
    pub(crate) fn wants(&self, state: ProfilingState) -> bool {
        let is_removed = self.is_removed.load(Ordering::Acquire);
        self.states.contains(state) && (!is_removed || state == ProfilingState::RemovingCallback)
    }

    pub(crate) fn call(&self, state: ProfilingState) {
        (self.call)(state);
    }
}
