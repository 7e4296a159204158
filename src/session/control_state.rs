//! State of control by signals.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::platform::{ControlPipe, ControlSignal, ProfilerThread, release_control_signal};
use crate::types::ProcessId;
use crate::util::{PsCell, PsLock};

/// State shared by the control thread and the callers that start, change and end control by
/// signals.
pub(crate) struct ControlShared {
    pub(crate) pipe: ControlPipe,
    pub(crate) process: ProcessId,
    pub(crate) is_ending: AtomicBool,
    /// Whether the control thread is handling requests.
    pub(crate) is_busy: AtomicBool,
    pub(crate) config: PsCell<ControlConfig>,
}

/// The signals in use, and the folder of the profile.
#[derive(Clone)]
pub(crate) struct ControlConfig {
    pub(crate) signals: [ControlSignal; 2],
    pub(crate) folder: PathBuf,
}

/// The running control thread, with the state that it shares.
pub(crate) struct RunningControl {
    pub(crate) shared: Arc<ControlShared>,
    pub(crate) thread: ProfilerThread,
}

/// The current control thread. A thread that changes it also holds the life-cycle lock.
pub(crate) static CONTROL: PsCell<Option<RunningControl>> = PsCell::new(None);

impl ControlShared {
    pub(crate) fn config(&self) -> ControlConfig {
        self.config.get(&PsLock::acquire()).clone()
    }

    /// Replaces the configuration, and releases the signals that are no longer used.
    pub(crate) fn change(&self, config: ControlConfig) {
        let signals = config.signals;
        let old = std::mem::replace(self.config.get_mut(&mut PsLock::acquire()), config);
        let is_unused = |old: &ControlSignal| signals.iter().all(|new| new.number != old.number);
        old.signals
            .into_iter()
            .filter(is_unused)
            .for_each(|signal| release_control_signal(signal.number));
    }
}

/// Leaks the parent's `RunningControl` in the child of a fork, where the thread does not exist and
/// the pipe is closed.
pub(crate) fn forget_control_in_child(lock: &mut PsLock) {
    std::mem::forget(CONTROL.get_mut(lock).take());
}
