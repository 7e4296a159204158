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

/// What the signals in use do.
#[derive(Clone, Default)]
pub(crate) struct ControlConfig {
    /// The signals that start and stop, with the folder of the profile.
    pub(crate) start_stop: Option<([ControlSignal; 2], PathBuf)>,
    /// The signal that causes dumps.
    pub(crate) dump: Option<ControlSignal>,
}

impl ControlConfig {
    /// Returns the signals that start and stop.
    pub(crate) fn start_stop_signals(&self) -> &[ControlSignal] {
        self.start_stop.as_ref().map_or(&[], |(signals, _)| signals)
    }

    /// Returns all signals in use.
    pub(crate) fn signals(&self) -> Vec<ControlSignal> {
        let start_stop = self.start_stop_signals().iter();
        start_stop.chain(&self.dump).copied().collect()
    }
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
        let signals = config.signals();
        let old = std::mem::replace(self.config.get_mut(&mut PsLock::acquire()), config);
        let is_unused = |old: &ControlSignal| signals.iter().all(|new| new.number != old.number);
        old.signals()
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
