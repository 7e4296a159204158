//! How the profiler is controlled from outside the process.

use std::path::PathBuf;

/// Which signals start and stop the profiler, and where the profile goes. See
/// [`profiler_control_by_signals`](crate::profiler_control_by_signals).
///
/// The defaults: `SIGUSR1` starts, `SIGUSR2` stops, and the folder is the current one when this is handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlSignals {
    pub(crate) start_signal: Option<i32>,
    pub(crate) stop_signal: Option<i32>,
    pub(crate) folder: Option<PathBuf>,
}

impl ControlSignals {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The signal that starts the profiler, by the kernel's number; of those that
    /// [`StartParams::signal`](crate::StartParams::signal) lists.
    #[must_use]
    pub fn start_signal(mut self, signal: i32) -> Self {
        self.start_signal = Some(signal);
        self
    }

    /// The signal that saves the profile and stops the profiler; likewise.
    #[must_use]
    pub fn stop_signal(mut self, signal: i32) -> Self {
        self.stop_signal = Some(signal);
        self
    }

    /// The folder that the profile is saved to. `MOZ_UPLOAD_DIR`, if it is set and not empty, goes over it.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }
}
