//! Parameters of a session, the signals that start and stop one, and the limits of what it keeps
//! outside of the buffer.

use std::path::PathBuf;
use std::time::Duration;

use crate::types::error::StartError;
use crate::types::features::Features;
use crate::types::newtypes::TimeStamp;

/// Accepted sampling intervals. Below 10 µs, a signal takes longer than the interval.
pub(crate) const INTERVAL_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_micros(10)..=Duration::from_secs(10);

/// Accepted buffer capacities, in bytes. The minimum is four chunks of 64 KiB.
pub(crate) const CAPACITY_RANGE_BYTES: std::ops::RangeInclusive<u64> = (256 << 10)..=(64 << 30);

/// Accepted maximum CPU times of the sampler, in percent of a processor.
pub(crate) const MAX_CPU_RANGE_PERCENT: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// Default maximum number of rows in a profile: samples and markers of all threads together.
pub(crate) const DEFAULT_MAX_ROWS: u64 = 4_000_000;

/// Default time without progress after which a profile is written without a running child process.
pub(crate) const DEFAULT_CHILD_TIMEOUT: Duration = Duration::from_secs(1);

/// Default maximum memory for names that later profiles of a session may use, in bytes.
pub(crate) const DEFAULT_NAME_CACHE_BYTES: usize = 16 << 20;

/// Parameters of a session: what to record, how often, for which threads, and how much to keep.
///
/// The defaults are 128 MiB, 1 ms, no CPU limit, the default features, all threads, and the first
/// of three signals that the application does not handle, usually `SIGURG`. Each method sets the
/// field of the same name; the fields are public for reading.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StartParams {
    /// Capacity of the buffer, in bytes.
    pub capacity_bytes: u64,
    /// Time between two samples of a thread.
    pub interval: Duration,
    /// Maximum CPU time of the sampler, in percent of a processor; `None` for no limit. See
    /// [`Self::max_cpu_percent`](Self::max_cpu_percent()).
    pub max_cpu_percent: Option<f64>,
    /// Number of markers of a name that are recorded in a second; 0 for no limit. See
    /// [`Self::max_markers_per_second`](Self::max_markers_per_second()).
    pub max_markers_per_second: u32,
    /// The features, which say what to record.
    pub features: Features,
    /// The thread filters; an empty list selects all threads.
    pub filters: Vec<String>,
    /// Number of the sampling signal; `None` for an automatic choice.
    pub signal: Option<i32>,
    /// Mean number of allocated bytes between two sampled allocations.
    pub allocation_interval_bytes: u64,
    /// Maximum age of data in a profile; `None` for no limit. Never zero.
    pub duration: Option<Duration>,
    /// Id of a browser's tab; 0 for none.
    pub active_tab_id: u64,
    /// Whether the profile has the cost of each tick of the sampler.
    pub record_overheads: bool,
    /// Whether child processes that use this crate take part in the session.
    pub children: bool,
    /// The signals that start and stop the profiler from now on; `None` keeps the current setting.
    pub control_signals: Option<ControlSignals>,
    /// The file that outlives a crash of the process; `None` for that of the variable
    /// `MOZ_PROFILER_CRASH_FILE`, if it is set.
    pub crash_file: Option<PathBuf>,
}

impl Default for StartParams {
    fn default() -> Self {
        Self {
            capacity_bytes: 128 << 20,
            interval: Duration::from_millis(1),
            max_cpu_percent: None,
            max_markers_per_second: 0,
            features: Features::default_set(),
            filters: Vec::new(),
            signal: None,
            allocation_interval_bytes: 512 << 10,
            duration: None,
            active_tab_id: 0,
            record_overheads: false,
            children: false,
            control_signals: None,
            crash_file: None,
        }
    }
}

impl StartParams {
    /// Returns the default parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns parameters for a program in production that is always profiled: 100 samples of each
    /// thread a second, about 1 % of a processor for the sampler at most, and 100 markers a second
    /// of each name.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use gekkota::StartParams;
    /// let params = StartParams::always_on();
    /// assert_eq!(params.interval, Duration::from_millis(10));
    /// assert_eq!(params.max_cpu_percent, Some(1.0));
    /// assert_eq!(params.max_markers_per_second, 100);
    /// ```
    pub fn always_on() -> Self {
        Self::default()
            .interval(Duration::from_millis(10))
            .max_cpu_percent(1.0)
            .max_markers_per_second(100)
    }

    /// Sets how many allocated bytes are between two sampled allocations on average, for the
    /// feature [`NATIVE_ALLOCATIONS`](Features::NATIVE_ALLOCATIONS). The default, 512 KiB, costs a
    /// program that allocates 1 GB/s about 2,000 stacks per second. A smaller number finds smaller
    /// amounts. The samples that are alive, and their stacks, take up to 90 MB in addition to the
    /// buffer.
    #[must_use]
    pub fn allocation_interval_bytes(mut self, bytes: u64) -> Self {
        self.allocation_interval_bytes = bytes;
        self
    }

    /// Sets the capacity for samples and markers, from 256 KiB to 64 GiB. When the buffer is full,
    /// new data replace the oldest.
    ///
    /// A session has at most an eighth of the memory that the limits of the process's cgroups
    /// (containers), and the machine, leave when it begins, and less while they leave less.
    ///
    /// Each thread that adds markers reserves two chunks of at least 4 KiB each. If the
    /// reservations of all threads exceed the capacity, the buffer grows to their sum.
    ///
    /// Everything else that the session keeps counts towards the capacity. Each kind of data has a
    /// share: exit profiles (a quarter), ended threads and the code that `/tmp/perf-PID.map` lists
    /// (an eighth each), unregistered pages and unregistered generated code (a sixteenth each).
    /// Beyond its share, the oldest data of a kind are dropped, and `meta.losses` of the profile
    /// counts them. The rest of a perf map is not read. Of ended threads without samples and
    /// markers, the newest 1,000 are kept.
    #[must_use]
    #[doc(alias = "ProfileBufferGlobalController")]
    #[doc(alias = "ProfileBufferChunkManagerWithLocalLimit")]
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// Sets the time between two samples of a thread, from 10 µs to 10 s, on average: the sampler looks
    /// at a random moment of each interval, so that it is not in step with the program.
    ///
    /// A thread that sleeps now and then is sampled on its own CPU time while it runs, with random
    /// periods of this length on average, by an event of its CPU clock (`perf_event_open`). Signals
    /// find the other threads that run: those that never sleep, those that sleep after each few
    /// microseconds, which an event would slow down, and all of them where the kernel does not allow
    /// such events, as in most containers.
    /// `meta.samplingEngine` of the profile is “task clock” or “signals”.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets the maximum CPU time of the sampler, in percent of a processor, from 0.01 to 100.
    /// Default: no limit.
    ///
    /// What a tick costs grows with the number of threads that run, and with the depth of their
    /// stacks. If the last ticks cost more than the share on average, the sampler leaves out ticks.
    /// So the rate falls while the program does much, and rises again afterwards, up to one sample
    /// in each [`interval`](Self::interval()). No tick is delayed by more than a second, whatever
    /// it costs. With a limit, the sampler's thread raises its priority less (nice value -5, not
    /// -20), where the process may raise it. Ticks are then less exact while many threads are busy,
    /// but the kernel moves the application's threads between processors less often.
    ///
    /// A sample counts for its tick and for the ticks that were left out after it: their number is
    /// the sample's weight in the profile. In Gecko's format, whose weights the Firefox Profiler
    /// ignores, a sample has that number of rows instead, as far as
    /// [`SnapshotOptions::max_rows`](crate::profile::SnapshotOptions::max_rows) allows. A thread
    /// that did not run in the meantime has all its samples. So the shares of functions and threads
    /// stay right, and are only less exact. CPU times do not depend on the rate. `skipped_ticks` in
    /// [`Profile::sampler_counts`](crate::Profile::sampler_counts) says how many ticks were left
    /// out.
    ///
    /// Both the CPU time of the sampler's thread and the time of the signal handler for samples
    /// count. What the application's threads spend on markers and on sampled allocations does not,
    /// nor does the thread that writes a profile. A credit of up to a second's share covers short
    /// peaks. A thread that samples itself on its own CPU time is still sampled at the interval.
    ///
    /// A thread that ends has no sample for the ticks that were left out since its last one, and a
    /// thread that begins and ends between two ticks has none at all.
    #[doc(alias = "MOZ_PROFILER_STARTUP_MAX_CPU")]
    #[must_use]
    pub fn max_cpu_percent(mut self, percent: f64) -> Self {
        self.max_cpu_percent = Some(percent);
        self
    }

    /// Sets how many markers of a name are recorded in a second, so that a program with many does not
    /// fill the buffer and the file. 0, the default, means no limit.
    ///
    /// Beyond the limit, markers are left out at random. A recorded marker then represents two,
    /// four or more markers, counting itself: its field `standsFor` says how many in every format,
    /// and the sum is right on average. The profile's loss `left_out_markers` is the number of
    /// left-out markers that the markers in the profile represent. While the number of markers
    /// grows quickly, up to twice the limit are recorded.
    ///
    /// Intervals of 1, 16 and 256 ms or more have a limit of their own each, so that slow ones are
    /// not lost among quick ones. An interval that causes a dump is recorded, and so are markers that
    /// are only the start or the end of an interval, and the profiler's own, except for file
    /// operations. A record of `log` or `tracing` has the name of its target, so all of a target's
    /// levels share one limit. Names that differ only after 64 bytes share one limit, and so do a
    /// few names by chance.
    ///
    /// Cost: with a limit, each marker hashes its name, and one that is recorded changes a word that
    /// all threads share.
    #[doc(alias = "MOZ_PROFILER_STARTUP_MAX_MARKERS")]
    #[must_use]
    pub fn max_markers_per_second(mut self, limit: u32) -> Self {
        self.max_markers_per_second = limit;
        self
    }

    /// Sets the id of the active tab of a browser, for the reader of the profile; 0 for none.
    #[must_use]
    pub fn active_tab_id(mut self, id: u64) -> Self {
        self.active_tab_id = id;
        self
    }

    /// Records the cost of each tick of the sampler, as rows of Gecko's `profilerOverhead` in the
    /// profile: when it was, and how long each of its steps took. Costs some 15 bytes of the buffer
    /// a tick.
    ///
    /// The statistics of all ticks are in each profile, and in
    /// [`BufferInfo`](crate::BufferInfo), without this.
    #[doc(alias = "MOZ_PROFILER_RECORD_OVERHEADS")]
    #[must_use]
    pub fn record_overheads(mut self, records: bool) -> Self {
        self.record_overheads = records;
        self
    }

    /// Lets child processes take part in the session, and their own child processes, too. Default:
    /// false.
    ///
    /// A child joins when it calls [`profiler_init`](crate::profiler_init): it starts with these
    /// settings, and stops, pauses and resumes with this process. Each profile of this process
    /// contains those of the children that run
    /// ([`SnapshotOptions::child_timeout`](crate::profile::SnapshotOptions::child_timeout)), and of
    /// children that have ended, each of which sends a last profile. A session that the child has
    /// begun itself ends when it joins, unless it has the same settings. If this process has no
    /// such session then, the child keeps its own one until this process starts one. A child that
    /// never calls `profiler_init` costs nothing.
    ///
    /// If a child is killed, this process makes its profile from the child's memory, without the
    /// child's types of markers. So each child describes them while it records: the first marker of
    /// each type calls the type's code, as with [`Self::crash_file`], on the thread that adds the
    /// marker.
    ///
    /// The process listens on a Unix socket in a new folder that only this user can open, from the
    /// first such session until [`profiler_shutdown`](crate::profiler_shutdown). A child finds it
    /// by the variable `GEKKOTA_FAMILY`, which also has a random word that a stranger does not
    /// know. The child must run as the same user.
    ///
    /// The start sets that variable for all programs that the process starts, if the process has
    /// only one thread then. Another thread could read the environment at the same time. If there
    /// are other threads, only children that [`profiler_command`](crate::process::profiler_command)
    /// prepares will join, and those that get the variables of
    /// [`profiler_env_vars_for_child_process`](crate::process::profiler_env_vars_for_child_process).
    ///
    /// Idea: Gecko's profiling of its child processes.
    #[doc(alias = "MOZ_PROFILER_CHILDREN")]
    #[must_use]
    #[doc(alias = "PProfiler")]
    #[doc(alias = "PProfilerChild")]
    #[doc(alias = "PProfilerParent")]
    #[doc(alias = "ProfilerChild")]
    #[doc(alias = "ProfilerParent")]
    #[doc(alias = "ProfilerParentTracker")]
    #[doc(alias = "GatherProfile")]
    pub fn children(mut self, take_part: bool) -> Self {
        self.children = take_part;
        self
    }

    /// Lets signals stop and restart the profiler.
    ///
    /// The start first calls
    /// [`profiler_control_by_signals`](crate::api::profiler_control_by_signals) with this value.
    /// The signals remain in use after the session ends.
    #[must_use]
    pub fn control_signals(mut self, signals: ControlSignals) -> Self {
        self.control_signals = Some(signals);
        self
    }

    /// Keeps the session's data in a file that outlives the process: after `SIGKILL`, an abort, a
    /// stack overflow or the end of the memory, [`Profile::rescue`](crate::Profile::rescue) makes a
    /// profile of it. At most the entries that were being written are lost.
    ///
    /// The first `%p` in the path becomes the process id. In the name of the file, the first `%n`
    /// becomes the process's name, and the first `%t` its type. If the file cannot be created, the
    /// session runs without it, and a notice on standard error says why.
    ///
    /// The file is as long as the buffer's capacity and about an eighth more. Only what was recorded
    /// takes space on the disk, but there must be enough for all at the start. Before Linux 5.14, and
    /// in a sandbox, all of it is taken then. Once its pages were used, recording into it costs about
    /// as much as into other memory. The first use of each page is slower, above all on a disk. The
    /// kernel writes changed pages to the disk from time to time; a file in `/dev/shm` causes no such
    /// work.
    ///
    /// The end of the session removes the file, and so does a saved last profile. A file that a
    /// process has left is renamed by the next start with the same path, and a notice says so; the
    /// newest eight are kept. If the name of the file has a `%p`, no later start has the same path:
    /// then each start keeps the newest eight of all files with such a name whose process has
    /// ended, and removes older ones. If another process uses the path, this one adds its process
    /// id to the name. `exec` leaves the file, too.
    ///
    /// The child of a fork shares the file's memory with its parent. It cannot read a profile that
    /// its parent took: that gives an error.
    ///
    /// The first marker of each type calls the type's `marker_type_display`, `deserialize` and
    /// `stream_json_marker_data` with made-up values, on the thread that adds the marker: a rescuer
    /// need not have the type. Fields that show values of the payload appear in a rescued profile;
    /// computed ones do not.
    #[doc(alias = "MOZ_PROFILER_CRASH_FILE")]
    #[must_use]
    pub fn crash_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.crash_file = Some(path.into());
        self
    }

    /// Sets the features to record. Features that are not available here are dropped.
    #[must_use]
    pub fn features(mut self, features: Features) -> Self {
        self.features = features;
        self
    }

    /// Selects the threads whose name contains one of these texts, ignoring ASCII case.
    ///
    /// An empty list selects every thread, and so do `*` and the empty text. `pid:N` selects every
    /// thread of process N, and `tid:N` the thread N. A list that only names other processes makes
    /// the start fail.
    ///
    /// A text that begins with `-` excludes the threads that the rest would select: `-GC` or
    /// `-tid:N`. An excluded thread is neither interrupted nor read. Exclude the threads of a
    /// runtime that must not be interrupted. A list that only excludes selects all other threads.
    ///
    /// A thread that has not registered is selected by the name that the system has for it, of at
    /// most 15 bytes. A new thread has the name of the one that created it, so filters by name wait
    /// until it has run for a moment. If it renames itself later, they are applied again
    /// within moments, or within 10 s if the thread is old. A thread that was selected stays
    /// selected, unless its new name is excluded.
    #[must_use]
    pub fn filters<S: Into<String>>(mut self, filters: impl IntoIterator<Item = S>) -> Self {
        self.filters = filters.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the number of the signal that interrupts a thread to take its stack. Default: the first
    /// of `SIGURG`, `SIGPROF` and `SIGSTKFLT` that has no handler of the application, or `SIGURG`
    /// if all have one. A profile names the signal in `meta.samplingSignal`. If the application
    /// replaces the profiler's handler during a session, the session continues with the next of the
    /// three signals without a handler; `meta.warnings` says so.
    ///
    /// `SIGURG` comes first because the system ignores it by default, and hardly any application
    /// uses it. Its handler runs on the thread's alternate signal stack, if the thread has one.
    /// Go's runtime uses `SIGURG`, too; a process that contains it uses the next one.
    ///
    /// Accepted are `SIGPROF`, `SIGVTALRM`, `SIGALRM`, `SIGURG`, `SIGUSR1`, `SIGUSR2`, `SIGIO`,
    /// `SIGPWR`, `SIGSTKFLT` and the real-time signals.
    ///
    /// An application that chooses another signal, or handles `SIGURG`, and replaces itself by `exec`
    /// should stop the profiler first. A signal that is pending during `exec` causes its default action
    /// in the new program: `SIGPROF` ends the program, `SIGURG` is ignored. Spawning other programs is
    /// not affected.
    ///
    /// A handler of the application that was installed before the profiler's still gets the
    /// application's signals of this number. But the kernel then restarts the system calls that
    /// they interrupt: an application that ends its own `read` by a signal, with a handler without
    /// `SA_RESTART`, needs another signal for the profiler.
    ///
    /// With another signal than `SIGURG`, threads are not sampled on their own CPU time: an event of a
    /// thread's CPU clock would end the process if the application removed the handler or called `exec`.
    ///
    /// Two copies of the crate in one process may use the same signal. While that of one is pending
    /// for a thread, the kernel drops that of the other, unless it is a real-time signal; so
    /// signals of their own are better.
    ///
    /// A session does not send the signal to a thread that blocks it, so that a `sigwait` for all
    /// signals does not return it. Such a thread is sampled while it sleeps; while it runs, its
    /// samples say so in the place of a stack. A thread that begins to block the signal after a sample
    /// may receive it once.
    #[must_use]
    pub fn signal(mut self, signal: i32) -> Self {
        self.signal = Some(signal);
        self
    }

    /// Sets the maximum age of data in a profile, relative to the time when the profile is taken.
    ///
    /// The limit applies to samples and markers, and to ended threads, unregistered pages and exit
    /// profiles. Zero, the default, means no limit by age. The limit by
    /// [`capacity_bytes`](Self::capacity_bytes) always applies. The age of an interval marker
    /// counts from its end. Idea: Gecko's duration, which has no effect there (Mozilla bug
    /// 1632365).
    #[doc(alias = "MOZ_PROFILER_STARTUP_DURATION")]
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = (!duration.is_zero()).then_some(duration);
        self
    }

    /// Rejects values that are out of range. Does not check the signal, which `platform` does.
    pub(crate) fn validate(&self) -> Result<(), StartError> {
        let bad = |field, value, accepted| {
            Err(StartError::BadValue {
                field,
                value,
                accepted,
            })
        };
        if !INTERVAL_RANGE.contains(&self.interval) {
            let (min, max) = (INTERVAL_RANGE.start(), INTERVAL_RANGE.end());
            return bad(
                "interval",
                format!("{:?}", self.interval),
                format!("{min:?} to {max:?}"),
            );
        }
        if let Some(percent) = self.max_cpu_percent
            && !MAX_CPU_RANGE_PERCENT.contains(&percent)
        {
            let (min, max) = (MAX_CPU_RANGE_PERCENT.start(), MAX_CPU_RANGE_PERCENT.end());
            return bad(
                "max_cpu_percent",
                format!("{percent} %"),
                format!("{min} % to {max} %"),
            );
        }
        if !CAPACITY_RANGE_BYTES.contains(&self.capacity_bytes) {
            let (min, max) = (CAPACITY_RANGE_BYTES.start(), CAPACITY_RANGE_BYTES.end());
            return bad(
                "capacity_bytes",
                format!("{} bytes", self.capacity_bytes),
                format!("{min} bytes (256 KiB) to {max} bytes (64 GiB)"),
            );
        }
        if self.allocation_interval_bytes == 0 {
            return bad(
                "allocation_interval_bytes",
                "0 bytes".to_owned(),
                "at least 1 byte".to_owned(),
            );
        }
        match self.features.unknown_bits() {
            0 => Ok(()),
            unknown => bad(
                "features",
                format!("a set with the unknown bits {unknown:#x}"),
                "a union of the constants of Features".to_owned(),
            ),
        }
    }
}

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

/// Limits of one kind of data that a session keeps outside the buffer's chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptLimits {
    /// Maximum size of all items, in bytes.
    pub(crate) max_bytes: u64,
    /// Maximum age of an item, in ns; `None` for no limit by age.
    max_age_ns: Option<u64>,
}

impl KeptLimits {
    /// Keeps nothing.
    pub(crate) const NOTHING: Self = Self {
        max_bytes: 0,
        max_age_ns: None,
    };

    /// Limits the items to `max_bytes`, and to the duration of their session if it has one.
    pub(crate) fn new(max_bytes: u64, duration: Option<Duration>) -> Self {
        let max_age_ns = duration.and_then(|duration| duration.as_nanos().try_into().ok());
        Self {
            max_bytes,
            max_age_ns,
        }
    }

    /// Returns whether an item that ended at `time` is older than the limit.
    pub(crate) fn is_too_old(&self, time: TimeStamp, now: TimeStamp) -> bool {
        self.max_age_ns
            .is_some_and(|max_age_ns| now.since_ns(time) > max_age_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_is_too_old_after_the_duration() {
        let limits = KeptLimits::new(1, Some(Duration::from_nanos(10)));
        let ended = TimeStamp(100);
        assert!(!limits.is_too_old(ended, TimeStamp(110)));
        assert!(limits.is_too_old(ended, TimeStamp(111)));
        let unlimited = KeptLimits::new(1, None);
        assert!(!unlimited.is_too_old(ended, TimeStamp(u64::MAX)));
    }
}
