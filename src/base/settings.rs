//! What a session is started with.

use std::time::Duration;

#[cfg(has_profiler)]
use crate::base::StartError;
use crate::base::{ControlSignals, Features};

/// Below 10 µs a signal costs more than the interval that it samples.
#[cfg(has_profiler)]
pub(crate) const INTERVAL_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_micros(10)..=Duration::from_secs(10);

/// At least four chunks of 64 KiB.
#[cfg(has_profiler)]
pub(crate) const CAPACITY_RANGE_BYTES: std::ops::RangeInclusive<u64> = (256 << 10)..=(64 << 30);

/// How many rows a profile holds where nobody says it: samples and markers, of all threads together.
pub(crate) const DEFAULT_MAX_ROWS: u64 = 4_000_000;

/// What asks a running thread for its stack.
///
/// All use the same handler. They differ in what a sample costs the thread, and in how many samples a thread has that
/// waits for a processor: with timers, fewer. A profile names the one that was used, in `meta.samplingEngine`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum SamplingEngine {
    /// The cheaper of the two on this machine, by a trial of some milliseconds when the profiler is first started.
    #[default]
    Auto,
    /// The sampler thread sends a signal. Works everywhere.
    Signals,
    /// Each thread has a timer of its own, which runs while the thread does (`perf_event_open`'s software CPU clock).
    /// Where the kernel does not allow it, signals are sent. In a sandbox that kills for unknown system calls, do not ask
    /// for it; [`Auto`](Self::Auto) does not try it where system calls are filtered.
    LocalTimers,
}

/// What to record, how often, of which threads, and how much of it to keep.
///
/// The defaults: 128 MiB, 1 ms, the default features, all registered threads, `SIGPROF`. The methods set what the fields of
/// the same names hold; the fields are there to be read.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StartParams {
    /// How many bytes to keep.
    pub capacity_bytes: u64,
    /// The time between two samples of a thread.
    pub interval: Duration,
    /// What to record.
    pub features: Features,
    /// Which threads; all when it is empty.
    pub filters: Vec<String>,
    /// The signal's number; `None` for the default.
    pub signal: Option<i32>,
    /// What asks a running thread for its stack.
    pub engine: SamplingEngine,
    /// How much of the past a profile holds, when it is limited. Never zero.
    pub duration: Option<Duration>,
    /// The id of a browser's tab; 0 for none.
    pub active_tab_id: u64,
    /// Which signals start and stop the profiler from then on; `None` leaves that as it is.
    pub control_signals: Option<ControlSignals>,
}

impl Default for StartParams {
    fn default() -> Self {
        Self {
            capacity_bytes: 128 << 20,
            interval: Duration::from_millis(1),
            features: Features::default_set(),
            filters: Vec::new(),
            signal: None,
            engine: SamplingEngine::Auto,
            duration: None,
            active_tab_id: 0,
            control_signals: None,
        }
    }
}

impl StartParams {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many bytes of samples and markers to keep, from 256 KiB to 64 GiB; when they are full, the oldest go.
    ///
    /// Each thread that adds markers has two chunks of it for itself, of 4 KiB at least. Where there are so many such threads that
    /// this is more than what is to be kept, it is what the buffer takes.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// The time between two samples of a thread, from 10 µs to 10 s.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// The id of the browser's tab that the program serves, for who reads the profile; 0 for none.
    #[must_use]
    pub fn active_tab_id(mut self, id: u64) -> Self {
        self.active_tab_id = id;
        self
    }

    /// Lets signals stop the profiler, and start it again: see
    /// [`profiler_control_by_signals`](crate::profiler_control_by_signals), which the start does first. It is no setting of the
    /// session: it stays when that ends.
    #[must_use]
    pub fn control_signals(mut self, signals: ControlSignals) -> Self {
        self.control_signals = Some(signals);
        self
    }

    /// What to record. Features that are not available here are dropped.
    #[must_use]
    pub fn features(mut self, features: Features) -> Self {
        self.features = features;
        self
    }

    /// Which threads: those whose name contains one of these, ASCII case aside.
    ///
    /// `*` and the empty string select every thread, `pid:N` every thread of process N; so does an empty list. A list of
    /// other processes alone is refused.
    #[must_use]
    pub fn filters<S: Into<String>>(mut self, filters: impl IntoIterator<Item = S>) -> Self {
        self.filters = filters.into_iter().map(Into::into).collect();
        self
    }

    /// The signal that asks a thread for its stack, `SIGPROF` by default. The kernel's number of one of `SIGPROF`,
    /// `SIGVTALRM`, `SIGALRM`, `SIGURG`, `SIGUSR1`, `SIGUSR2`, `SIGIO`, `SIGPWR`, `SIGSTKFLT` or the real-time signals.
    ///
    /// A program that calls `exec` in its own place while it is profiled should stop the profiler first or choose
    /// `SIGURG`: a signal that is under way at that moment meets the new program's default action, which for `SIGPROF`
    /// is to end it and for `SIGURG` nothing. Spawning other programs is not affected.
    #[must_use]
    pub fn signal(mut self, signal: i32) -> Self {
        self.signal = Some(signal);
        self
    }

    /// What asks a running thread for its stack: by default the cheaper way on this machine.
    #[must_use]
    pub fn engine(mut self, engine: SamplingEngine) -> Self {
        self.engine = engine;
        self
    }

    /// How much of the past a profile holds: what is older than this at the moment when the profile is taken stays out
    /// of it. By default, and with zero, there is no other limit than [`capacity_bytes`](Self::capacity_bytes), which
    /// holds in any case.
    ///
    /// An interval marker counts by its end, every other thing by its time. Idea: Gecko's duration, which has no effect
    /// there (Mozilla bug 1632365).
    #[doc(alias = "MOZ_PROFILER_STARTUP_DURATION")]
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = (!duration.is_zero()).then_some(duration);
        self
    }

    /// Refuses what is out of range, with the field, the value and the range. Signals are the platform's to judge.
    #[cfg(has_profiler)]
    pub(crate) fn validate(&self) -> Result<(), StartError> {
        let bad = |field, value, accepted| {
            Err(StartError::BadValue {
                field,
                value,
                accepted,
            })
        };
        if !INTERVAL_RANGE.contains(&self.interval) {
            let (least, most) = (INTERVAL_RANGE.start(), INTERVAL_RANGE.end());
            return bad(
                "interval",
                format!("{:?}", self.interval),
                format!("{least:?} to {most:?}"),
            );
        }
        if !CAPACITY_RANGE_BYTES.contains(&self.capacity_bytes) {
            let (least, most) = (CAPACITY_RANGE_BYTES.start(), CAPACITY_RANGE_BYTES.end());
            return bad(
                "capacity_bytes",
                format!("{} bytes", self.capacity_bytes),
                format!("{least} bytes (256 KiB) to {most} bytes (64 GiB)"),
            );
        }
        match self.features.unknown_bits() {
            0 => Ok(()),
            unknown => bad(
                "features",
                format!("a set with the unknown bits {unknown:#x}"),
                "the constants of Features, and what Features::from_name gives".to_owned(),
            ),
        }
    }
}
