//! Settings of dumps, and the reasons for a refusal.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::types::error::NOT_RUNNING;

/// Where dumps go, what they contain, and what causes one. See
/// [`profiler_set_dumps`](crate::dump::profiler_set_dumps).
///
/// By default, only [`profiler_dump`](crate::dump::profiler_dump) causes a dump.
#[derive(Clone, PartialEq, Debug)]
#[must_use]
pub struct DumpSettings {
    pub(crate) folder: PathBuf,
    pub(crate) last: Duration,
    pub(crate) min_interval: Duration,
    pub(crate) max_files: usize,
    pub(crate) long_interval: Option<Duration>,
    pub(crate) long_jank: Option<Duration>,
    pub(crate) signal: Option<i32>,
    pub(crate) on_panic: bool,
    pub(crate) cpu_share: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
}

impl DumpSettings {
    /// Returns the settings for dumps in this folder, which must exist. A relative path is relative
    /// to the current folder at this call.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        Self {
            folder: std::path::absolute(&folder).unwrap_or(folder),
            last: Duration::from_secs(30),
            min_interval: Duration::from_secs(60),
            max_files: 20,
            long_interval: None,
            long_jank: None,
            signal: None,
            on_panic: false,
            cpu_share: None,
            memory_bytes: None,
        }
    }

    /// Sets the folder, as [`in_folder`](Self::in_folder) does.
    pub(crate) fn folder(mut self, folder: PathBuf) -> Self {
        self.folder = std::path::absolute(&folder).unwrap_or(folder);
        self
    }

    /// Sets how much time before its cause a dump contains, if [`profiler_dump`] is not asked for
    /// another time. Default: 30 seconds.
    ///
    /// [`profiler_dump`]: crate::dump::profiler_dump
    pub fn last(mut self, last: Duration) -> Self {
        self.last = last;
        self
    }

    /// Sets the least time between the causes of two dumps. Default: one minute. A cause that comes
    /// earlier is counted, and the notice and the marker of the next dump have the number.
    pub fn min_interval(mut self, min_interval: Duration) -> Self {
        self.min_interval = min_interval;
        self
    }

    /// Sets how many dumps of this process are kept. Those of earlier processes stay. Default: 20.
    /// A further one removes the oldest. 0 counts as 1.
    pub fn max_files(mut self, max_files: usize) -> Self {
        self.max_files = max_files;
        self
    }

    /// Dumps when an interval marker, or a span of `tracing`, is longer than this: a slow request.
    ///
    /// The dump begins when the interval is recorded, at its end. The dump has the whole interval,
    /// even if the interval is longer than [`last`](Self::last). A text file in the same folder,
    /// with the same name but the ending `.txt`, says where the interval's time went: see
    /// [`Profile::explain`](crate::Profile::explain). Two markers for the start and the end of an
    /// interval cause none. Choose a limit that intervals exceed only when something is wrong: a
    /// marker for the whole run of a program would cause a dump, too.
    pub fn on_interval_longer_than(mut self, limit: Duration) -> Self {
        self.long_interval = Some(limit);
        self
    }

    /// Dumps when an event loop has handled no new event for longer than this: the loop of a thread
    /// that the session profiles, and that reports its events with [`AutoProfilerEvent`] or is
    /// watched by [`profiler_watch_event_loop`].
    ///
    /// The dump begins while the jank lasts, at most a quarter of the limit late, or else at its
    /// end. It has the whole jank, also if that is longer than [`last`](Self::last). One jank causes
    /// one dump, even if other events wait behind the slow one. The dump's marker is on the loop's
    /// thread.
    ///
    /// Cost: a thread of the profiler checks all registered threads four times within the limit, at
    /// most 200 times a second; the end of an event reads the clock. The child of a fork has no such
    /// thread until it sets dumps itself.
    ///
    /// [`AutoProfilerEvent`]: crate::event_delay::AutoProfilerEvent
    /// [`profiler_watch_event_loop`]: crate::event_delay::profiler_watch_event_loop
    #[doc(alias = "Jank")]
    pub fn on_jank_longer_than(mut self, limit: Duration) -> Self {
        self.long_jank = Some(limit);
        self
    }

    /// Dumps when the process receives the signal with this number: `kill -USR1 PID` with 10.
    /// Accepted are the signals that
    /// [`StartParams::signal`](crate::types::settings::StartParams::signal) lists, but neither those
    /// of [`profiler_control_by_signals`] nor the sampling signal.
    ///
    /// The signal's handler only writes a byte to a pipe, and calls the handler before it; a thread
    /// of the profiler dumps. If no dump can be made, a line on standard error says why. As with
    /// [`profiler_control_by_signals`], the handler before it comes back when the dumps are set
    /// without the signal, and with [`profiler_shutdown`](crate::profiler_shutdown), unless that
    /// was the default action. In the child of a fork, the signal has no effect on the profiler
    /// until the child sets dumps itself.
    ///
    /// [`profiler_control_by_signals`]: crate::api::profiler_control_by_signals
    pub fn on_signal(mut self, signal: i32) -> Self {
        self.signal = Some(signal);
        self
    }

    /// Dumps when a thread panics, before the panic unwinds. Waits for the file, up to ten seconds,
    /// because the program may end.
    ///
    /// Installs a panic hook, once, that begins the dump, calls the hook before, and then waits. If
    /// the hook before ends the process, there may be no file. A hook that the application sets
    /// later replaces this one, unless it calls the hook before it. While the calling thread
    /// panics, no hook can be set; a later call sets it.
    pub fn on_panic(mut self) -> Self {
        self.on_panic = true;
        self
    }

    /// Dumps when the process has used more than this share of the processors for a second; again
    /// only after it has used less. 1.0 is all processors that the process may use, by its affinity
    /// and its control group. The child of a fork checks no limits until it sets dumps itself.
    pub fn on_cpu_above(mut self, share: f64) -> Self {
        self.cpu_share = Some(share);
        self
    }

    /// Dumps when the process has more than this resident memory, in bytes; again only after it has
    /// had less. The child of a fork checks no limits until it sets dumps itself.
    pub fn on_memory_above(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }
}

/// The reason why no dump was made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DumpError {
    /// No session runs, so nothing is recorded.
    Inactive,
    /// Another dump is being written.
    Busy,
    /// There was a dump a short time ago.
    TooSoon {
        /// The time until the next dump is allowed.
        wait: Duration,
    },
    /// The call came from code that the profiler runs itself, such as the application's allocator.
    Reentrant,
    /// The operating system refused a call.
    System {
        /// The action that failed, as a verb phrase.
        action: &'static str,
        /// The answer of the operating system.
        answer: String,
    },
    /// A setting has a value that is not accepted.
    BadValue {
        /// The setting.
        setting: &'static str,
        /// The value, in words.
        value: String,
        /// The accepted values, in words.
        accepted: String,
    },
    /// This build contains no profiler.
    Unsupported,
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inactive => write!(f, "cannot dump: {NOT_RUNNING}"),
            Self::Busy => f.write_str(
                "cannot dump: another dump is being written, expected a request after its end",
            ),
            Self::TooSoon { wait } => write!(
                f,
                "cannot dump: got a request too soon after the last dump, expected it {:.1} s later",
                wait.as_secs_f64()
            ),
            Self::Reentrant => f.write_str(
                "cannot dump: got a call from inside the profiler's own work, expected one from the application's code",
            ),
            Self::BadValue {
                setting,
                value,
                accepted,
            } => write!(
                f,
                "cannot set dumps: got {value} as {setting}, expected {accepted}"
            ),
            Self::System { action, answer } => write!(f, "cannot {action}: {answer}"),
            Self::Unsupported => f.write_str("cannot dump: this build contains no profiler"),
        }
    }
}

impl Error for DumpError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let wait = Duration::from_millis(1500);
        assert_eq!(
            DumpError::TooSoon { wait }.to_string(),
            "cannot dump: got a request too soon after the last dump, expected it 1.5 s later"
        );
        for error in [
            DumpError::Busy,
            DumpError::Inactive,
            DumpError::Reentrant,
            DumpError::Unsupported,
        ] {
            assert!(error.to_string().starts_with("cannot dump: "), "{error}");
        }
    }
}
