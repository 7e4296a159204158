//! Settings for controlling the profiler from outside the process.

use std::path::PathBuf;

/// The signals that start and stop the profiler, and the folder for the profile. See
/// [`profiler_control_by_signals`](crate::api::profiler_control_by_signals).
///
/// By default `SIGUSR1` starts and `SIGUSR2` stops the profiler. The default folder is the working
/// directory at the time when this value is passed to the profiler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlSignals {
    pub(crate) start_signal: Option<i32>,
    pub(crate) stop_signal: Option<i32>,
    pub(crate) folder: Option<PathBuf>,
}

impl ControlSignals {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of the signal that starts the profiler. Accepted are the signals that
    /// [`StartParams::signal`](crate::types::settings::StartParams::signal) lists.
    #[must_use]
    pub fn start_signal(mut self, signal: i32) -> Self {
        self.start_signal = Some(signal);
        self
    }

    /// Sets the number of the signal that saves the profile and stops the profiler. Accepted are
    /// the signals that [`StartParams::signal`](crate::types::settings::StartParams::signal) lists.
    #[must_use]
    pub fn stop_signal(mut self, signal: i32) -> Self {
        self.stop_signal = Some(signal);
        self
    }

    /// Sets the folder where the profile is saved. `MOZ_UPLOAD_DIR` overrides it, if it is set and
    /// not empty.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }
}
