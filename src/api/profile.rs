//! A profile, the formats in which it can be written, and taking one while the session continues.

use std::fmt;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use crate::api::backend;
use crate::types::{
    DEFAULT_CHILD_TIMEOUT, DEFAULT_MAX_ROWS, DEFAULT_NAME_CACHE_BYTES, Explanation, ExportOptions,
    Format, NameOptions, ProfilerTime, ReadError, RescueError, SampleWeight, SaveError,
    SlowRequest, StreamError, Symbolicate, ThreadSummary,
};
use crate::util::SharedProgress;

/// The data of a session at one moment, or a profile that was read from a file.
///
/// The profile of a session shares the buffer's memory with the session, and keeps that memory
/// alive after the session. A clone is cheap. A profile can be written from any thread.
#[derive(Clone, Debug)]
#[doc(alias = "UniqueStacks")]
#[doc(alias = "ThreadStreamingContext")]
#[doc(alias = "SpliceableChunkedJSONWriter")]
pub struct Profile {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Session(Box<backend::FrozenProfile>),
    File(backend::ReadProfile),
}

impl Profile {
    pub(super) fn of_session(frozen: backend::FrozenProfile) -> Self {
        Self {
            source: Source::Session(Box::new(frozen)),
        }
    }

    pub(super) fn as_session(&self) -> Option<&backend::FrozenProfile> {
        match &self.source {
            Source::Session(frozen) => Some(frozen),
            Source::File(_) => None,
        }
    }

    /// Reads a profile that gekkota, Firefox or another program has written in Gecko's format, or
    /// in the Firefox Profiler's own ([`Format::Gecko`], [`Format::Processed`]). The file may be
    /// compressed with gzip.
    ///
    /// The whole profile is in memory afterwards.
    ///
    /// # Errors
    /// [`ReadError`]: the file cannot be opened or is too large, or a place in it has something
    /// else than a profile has there.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let read = backend::ReadProfile::read(path.as_ref())?;
        Ok(Self {
            source: Source::File(read),
        })
    }

    /// Reads a profile from a stream, like [`read`](Self::read).
    ///
    /// # Errors
    /// [`ReadError`] names the place where something else was expected.
    pub fn read_from(stream: impl Read) -> Result<Self, ReadError> {
        let read = backend::ReadProfile::read_from(stream)?;
        Ok(Self {
            source: Source::File(read),
        })
    }

    /// Makes a profile of the crash file of a process that has ended, or of one that still runs:
    /// see [`StartParams::crash_file`](crate::StartParams::crash_file). Names are looked up in the
    /// files of the process's modules that have the same build ids. Fields of markers that the
    /// process had computed, rather than read from the marker, are missing. `meta.rescued` of the
    /// profile says when the newest entry was recorded.
    ///
    /// The calling program need not be the one that wrote the file. Any thread may call it; it
    /// takes about as much memory as the file's chunks, and leaves the file where it is.
    ///
    /// # Errors
    /// [`RescueError`]: the file cannot be read, is not a crash file, is one of another version, or
    /// is damaged.
    pub fn rescue(path: impl AsRef<Path>) -> Result<Self, RescueError> {
        backend::rescue(path.as_ref()).map(Self::of_session)
    }

    /// Writes the profile with the format's usual options, which resolve addresses to names. A text
    /// counts CPU time and leaves out the runtime's frames, as [`summary`](Self::summary) does; the
    /// other formats count samples.
    ///
    /// # Errors
    /// [`StreamError::Io`]: the first error of `out`, or [`Format::Gecko`] for a profile that was read
    /// from a file.
    pub fn write(&self, format: Format, out: &mut dyn Write) -> Result<(), StreamError> {
        self.write_with(format, out, &SnapshotOptions::usual_for(Some(format)))
    }

    /// Writes the profile with these options.
    ///
    /// # Errors
    /// [`StreamError::Io`]: the first error of `out`; an option that does not fit, such as a thread
    /// that the profile does not have; a format that this build cannot write; or [`Format::Gecko`] for
    /// a profile that was read from a file.
    pub fn write_with(
        &self,
        format: Format,
        out: &mut dyn Write,
        options: &SnapshotOptions,
    ) -> Result<(), StreamError> {
        let options = options.to_write_options(format);
        let written = match &self.source {
            Source::Session(frozen) => frozen.write(&options, out),
            Source::File(read) => read.write(&options, out),
        };
        written.map_err(StreamError::Io)
    }

    /// Saves the profile to a file, in the format that [`Format::of_path`] finds in its name:
    /// `flame.svg` becomes a flame graph, `out.json` opens in the Firefox Profiler. A name that stands
    /// for [`Format::Gecko`] gets [`Format::Processed`] if the profile was read from a file.
    ///
    /// The file is created as by [`profiler_save_profile_to_file`].
    ///
    /// # Errors
    /// [`SaveError`] names the file that could not be created or written, and the reason.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SaveError> {
        match &self.source {
            Source::Session(frozen) => frozen.save(path.as_ref()).map(drop),
            Source::File(_) => {
                let options = SnapshotOptions::usual_for(Format::of_path(path.as_ref()));
                self.save_with(path, &options)
            }
        }
    }

    /// Saves the profile to a file with these options: only the last seconds, for example, or with
    /// progress reports. The format is that of [`save`](Self::save).
    ///
    /// # Errors
    /// [`SaveError`] names the file that could not be created or written, and the reason: an ending
    /// that no format has, for example.
    pub fn save_with(
        &self,
        path: impl AsRef<Path>,
        options: &SnapshotOptions,
    ) -> Result<(), SaveError> {
        let options = options.to_write_options(Format::Gecko);
        let saved = match &self.source {
            Source::Session(frozen) => frozen.save_with(options, path.as_ref()),
            Source::File(read) => read.save_with(options, path.as_ref()),
        };
        saved.map(drop)
    }

    /// Returns the functions on which each thread of this process, or each thread of a file, spent
    /// its time. The main thread comes first, then the others in the order of registration.
    /// Resolves all names, as writing does.
    pub fn summarize(&self) -> Vec<ThreadSummary> {
        match &self.source {
            Source::Session(frozen) => frozen.summarize(),
            Source::File(read) => read.summarize(),
        }
    }

    /// Returns a text for people and programs: where each thread spent its CPU time and how long it
    /// waited, the hottest functions with their labels, the slowest markers, what is missing, and
    /// what the profiler cost.
    ///
    /// Of a thread, `sampled` is the number of its samples times the interval, and `cpu` its CPU
    /// time. `off-cpu` is the rest of the time from its first sample to its last one: it waited, or
    /// got no processor. With the feature `contextswitches`, `queued` is the part of it in which it
    /// could have run and got no processor.
    ///
    /// ```no_run
    /// # fn work() {}
    /// let session = gekkota::ProfilerSession::start(gekkota::StartParams::default())?;
    /// work();
    /// println!("{}", session.finish()?.summary());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `{}` is made for standard output. If that is a terminal, the text has the terminal's width
    /// and colors, and long names lack their middle. `COLUMNS` sets another width, and `NO_COLOR`
    /// switches off the colors. If standard output is a file or a pipe, the text is plain, and
    /// names are shortened only if the text would have more than 8,000 bytes. `{:#}` is the plain
    /// text wherever it goes, and [`Format::Text`] writes it with any options. With
    /// `MOZ_PROFILER_REPORT=1`, [`profiler_shutdown`](crate::api::life_cycle::profiler_shutdown)
    /// prints the same text to standard error.
    ///
    /// Cost: resolves all names, as writing does. The result does not keep the profile.
    pub fn summary(&self) -> impl fmt::Display + use<> {
        let texts = |read: backend::ReadProfile| read.texts().map_err(StreamError::Io);
        // The reader of the summary learns of an error there.
        let failed = |error: StreamError| (error.to_string(), None);
        let (plain, of_terminal) = self.to_read().and_then(texts).unwrap_or_else(failed);
        Summary { plain, of_terminal }
    }

    /// Compares this profile with a later one of the same program, by the CPU time of each function a
    /// second. [`diff_with`](Self::diff_with) compares times per unit of work.
    ///
    /// Each change has a band of chance, from the number of samples and how they follow each other,
    /// so that noise is not called a change. The more samples, the narrower the bands.
    ///
    /// ```no_run
    /// let before = gekkota::Profile::read("before.json")?;
    /// let after = gekkota::Profile::read("after.json")?;
    /// let diff = before.diff(&after)?;
    /// println!("{diff}");
    /// assert!(!diff.is_regression());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// An inlined function has its own self time. A change outside its band is real: of 100 comparisons
    /// of profiles without a change, about one shows such a change. A run of one program differs from
    /// the next by more than its samples tell, so the bands also assume that each function's cost
    /// varies by 2 %.
    ///
    /// A second is one of wall time without pauses. A program that does twice the work in it takes
    /// twice the time in each function. So a function counts as slower only if its share of the
    /// functions without a change grew, too. If nearly all of the time is in functions that became
    /// slower alike, only times per unit of work show it, unless they took many times as long.
    ///
    /// # Errors
    /// [`StreamError::Io`] if one of the profiles has no CPU time (or no samples, if it has no CPU
    /// times), or if there is not enough memory.
    pub fn diff(&self, after: &Self) -> Result<ProfileDiff, StreamError> {
        self.diff_with(after, &DiffOptions::default())
    }

    /// Compares this profile with a later one, like [`diff`](Self::diff), with these options.
    ///
    /// ```no_run
    /// use gekkota::profile::DiffOptions;
    ///
    /// let before = gekkota::Profile::read("before.json")?;
    /// let after = gekkota::Profile::read("after.json")?;
    /// println!("{}", before.diff_with(&after, &DiffOptions::default().per("GET /orders"))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`diff`](Self::diff), or one of the profiles has no marker of the given name.
    pub fn diff_with(
        &self,
        after: &Self,
        options: &DiffOptions,
    ) -> Result<ProfileDiff, StreamError> {
        let (before, after) = (self.to_read()?, after.to_read()?);
        let diff = before.compare(&after, options.per.as_deref());
        let diff = diff.map_err(StreamError::Io)?;
        Ok(ProfileDiff { diff })
    }

    /// Explains where the time of a slow request went: on CPU, waiting for a processor, for a lock,
    /// for I/O, asleep or suspended at an `.await`, each with the stacks in which it passed.
    ///
    /// ```no_run
    /// use gekkota::profile::SlowRequest;
    ///
    /// let profile = gekkota::Profile::read("dump.json.gz")?;
    /// println!("{}", profile.explain(&SlowRequest::of_marker("GET /orders"))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The times come from the thread's samples and the CPU times between them, so a wait or a
    /// stack is exact to one interval of the sampler at its begin and at its end. The system call
    /// of a blocked thread, and the functions around it, show what the thread waits for. A thread
    /// that was woken but gets no processor still counts as waiting for the same, unless a sample
    /// found that it waited for a processor. Without the feature `cpu`, a sample that does not wait
    /// counts as one on CPU. With the feature `contextswitches`, the kernel tells how much of the
    /// time between samples that ran was a wait for a processor, as a mean over some 300 ms.
    ///
    /// A request on several threads needs a trace id in the contexts of its samples
    /// ([`context`](crate::context)), or in those of its waits: with the feature
    /// [`waitingtasks`](crate::Features::WAITING_TASKS), a request that only waited can be explained,
    /// and the futures tell where it was suspended. Without it, the stack of a suspended request is the
    /// last one before. A poll that is too short for a sample counts as suspended.
    ///
    /// Cost: resolves all names, as writing does. The result does not keep the profile.
    ///
    /// # Errors
    /// The profile has no such request ([`ErrorKind::NotFound`](std::io::ErrorKind::NotFound)), or
    /// there is not enough memory.
    pub fn explain(&self, request: &SlowRequest) -> std::io::Result<Explanation> {
        match &self.source {
            Source::Session(frozen) => frozen.explain(&request.0),
            Source::File(read) => read.explain(&request.0),
        }
    }

    fn to_read(&self) -> Result<backend::ReadProfile, StreamError> {
        let read = match &self.source {
            Source::Session(frozen) => frozen.to_read(),
            Source::File(read) => read.to_read(),
        };
        read.map_err(StreamError::Io)
    }

    /// Returns counts of the sampler's work, failures and costs, by name, as in the profile's
    /// `profilingLog`. A profile that was read from a file has none here. These counts report
    /// missing or incomplete data:
    ///
    /// | Name | Count |
    /// |---|---|
    /// | `skipped_ticks` | scheduled ticks that were left out to keep within [`StartParams::max_cpu_percent`](crate::StartParams::max_cpu_percent()); the samples before them count for them, too |
    /// | `missed_ticks` | scheduled ticks that were dropped because the sampler could not run, or because it left the processor to the application after a long tick |
    /// | `delayed_ticks` | ticks that came 0.15 ms late or more, because the sampler waited for a processor |
    /// | `ticks_without_memory` | ticks that took no samples, because the system had no memory to record them |
    /// | `unanswered_ticks` | ticks at which a running thread had not answered |
    /// | `truncated_samples` | samples whose stacks lack their older end, marked `(truncated)` |
    /// | `too_deep_samples` | those of them whose thread used more than 1 MiB of stack: only the youngest MiB is copied, or less if the system has no memory for it |
    /// | `threads_without_stacks` | threads without memory for their stacks; they have markers and CPU times |
    /// | `threads_without_clock` | threads whose CPU clock the system refused to read; they have no CPU times |
    /// | `refused_signals` | requests to threads that the system refused to deliver |
    /// | `refused_events` | threads for which the system refused an event of their CPU clock; signals interrupt them instead |
    /// | `samples_without_stack` | samples of running threads that could not be interrupted, for example because they block the signal; each says why |
    /// | `handler_replacements` | times that foreign code replaced the signal's handler; while none of `SIGURG`, `SIGPROF` and `SIGSTKFLT` is free of foreign handlers, running threads have no stacks |
    /// | `dropped_samples` | samples that were dropped, because the buffer had no space or the system no memory |
    /// | `lost_waits` | waits of async tasks, or rows of these waits, that were lost for lack of space |
    /// | `left_out_wait_intervals` | waits of 10 ms or more without an interval of their own, because there were too many |
    /// | `lost_marker_stacks` | stacks of markers that were lost for lack of memory |
    /// | `dropped_ended_threads` | ended threads that were dropped with their samples and markers, because the session kept too many |
    /// | `dropped_empty_threads` | ended threads without samples and markers that were dropped, because the session kept too many |
    /// | `dropped_ended_pages` | unregistered pages that were dropped, because the session kept too many |
    /// | `dropped_exit_profiles` | profiles of child processes that were dropped, because the session kept too many |
    /// | `lost_code_names` | unregistered ranges of generated code whose names were dropped, because the session kept too many |
    /// | `unread_perf_map_bytes` | bytes of `/tmp/perf-PID.map` that were not read, because the file lists too much code |
    /// | `sampler_panics` | 1 if the sampler ended by an internal error; no samples were taken from then on |
    pub fn sampler_counts(&self) -> Vec<(&'static str, u64)> {
        match &self.source {
            Source::Session(frozen) => frozen.counts(),
            Source::File(_) => Vec::new(),
        }
    }
}

/// The result of [`Profile::summary`].
struct Summary {
    plain: String,
    /// The text for standard output, if that is a terminal.
    of_terminal: Option<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_terminal = self.of_terminal.as_ref().filter(|_| !f.alternate());
        f.write_str(of_terminal.unwrap_or(&self.plain))
    }
}

/// Options for comparing two profiles: see [`Profile::diff_with`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DiffOptions {
    /// Name of the marker of a unit of work; `None` for times a second.
    pub per: Option<String>,
}

impl DiffOptions {
    /// Compares times per unit of work, such as a request: each marker with this name is one. An
    /// interval counts when it ends. Default: times a second.
    ///
    /// Equal work then has equal times, whatever the load was and however long the profiles are.
    #[must_use]
    pub fn per(mut self, marker: impl Into<String>) -> Self {
        self.per = Some(marker.into());
        self
    }
}

/// What changed from one profile to another: the result of [`Profile::diff`].
///
/// Its `Display` is a text. The first line has the CPU time, the wall time and the number of samples
/// before and after, each with its band. A table by self time and one by total time follow, with the
/// greatest changes first. The verdicts: `slower` and `faster` are sure changes of the self time;
/// `grew` and `fell` are sure changes of the total time, whose reason may be in another function.
/// Below a line are up to ten others: `moved` is a time that changed with the amount of work a second,
/// and `unclear` may be chance. Without a change, the text says how large one could be and yet be
/// missed.
#[derive(Clone, Debug)]
pub struct ProfileDiff {
    diff: backend::Diff,
}

impl ProfileDiff {
    /// Returns whether the functions whose self time surely changed take more time than before, all
    /// together. So a fix is not a regression if new functions do the work in less time. If no self
    /// time surely changed, returns whether a total time surely grew and none fell.
    pub fn is_regression(&self) -> bool {
        self.diff.is_regression()
    }

    /// Writes the result as JSON.
    ///
    /// # Errors
    /// The first error of `out`.
    pub fn write_json(&self, out: &mut dyn Write) -> std::io::Result<()> {
        self.diff.write_json(out)
    }
}

impl fmt::Display for ProfileDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diff.text())
    }
}

/// Options for writing a profile.
///
/// For a profile that was read from a file, only the progress, the thread, the weight, the sources
/// and the folding of the runtime have an effect.
///
/// The default writes the whole profile, with names, and reports no progress. Set the options with
/// the methods; the fields of the same names are for reading.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SnapshotOptions {
    /// How much is looked up of each address.
    pub symbolicate: Symbolicate,
    /// Start of the data in the profile; `None` for no limit except the session's own duration.
    pub since: Option<ProfilerTime>,
    /// The number of rows of samples and markers, of all threads together, above which idle samples
    /// are thinned out.
    pub max_rows: u64,
    /// Maximum memory for names that later profiles of the session may use, in bytes.
    pub name_cache_bytes: usize,
    /// The number of threads that look up names, with the calling one; `None` for half the
    /// processors, but at most four.
    pub symbolication_threads: Option<usize>,
    /// The progress that the writer updates; `None` for no reports.
    pub progress: Option<SharedProgress>,
    /// Name or id of the thread to write; `None` for all threads.
    pub thread: Option<String>,
    /// What a sample counts for in formats without times.
    pub weight: SampleWeight,
    /// Maximum size of the sources in the profile, in bytes; 0 for none.
    pub source_bytes: usize,
    /// Whether the outermost frames of Rust's and Tokio's runtimes are left out.
    pub fold_runtime: bool,
    /// The time without progress after which a running child process is left out.
    pub child_timeout: Duration,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self {
            symbolicate: Symbolicate::Full,
            since: None,
            max_rows: DEFAULT_MAX_ROWS,
            name_cache_bytes: DEFAULT_NAME_CACHE_BYTES,
            symbolication_threads: None,
            progress: None,
            thread: None,
            weight: SampleWeight::Samples,
            source_bytes: 0,
            fold_runtime: false,
            child_timeout: DEFAULT_CHILD_TIMEOUT,
        }
    }
}

impl SnapshotOptions {
    /// Sets how much is looked up of each address. Default: [`Symbolicate::Full`].
    #[must_use]
    pub fn symbolicate(mut self, symbolicate: Symbolicate) -> Self {
        self.symbolicate = symbolicate;
        self
    }

    /// Leaves out data from before this time: samples, markers that ended earlier, counter values,
    /// pauses, and threads that ended earlier and have no other data. The same holds for children
    /// that run. Profiles of children that have exited stay complete.
    ///
    /// `meta.contentEarliestTime` then contains this time, or the time of the snapshot if that is
    /// earlier. A time before the session's start, or before the limit of
    /// [`StartParams::duration`](crate::types::StartParams::duration), has no effect.
    #[must_use]
    #[doc(alias = "sinceTime")]
    pub fn since(mut self, since: ProfilerTime) -> Self {
        self.since = Some(since);
        self
    }

    /// Sets the maximum number of rows of samples and markers, of all threads together. Default:
    /// 4,000,000.
    ///
    /// If there are more rows, samples of threads that did not run are left out evenly, and counted
    /// as `left_out_idle_rows` in `meta.losses`. In Gecko's format, samples are repeated for
    /// `left_out_ticks` only if there are not too many rows then. Markers, and samples of threads
    /// that ran, are always kept, so the profile may exceed the maximum.
    ///
    /// In all formats but Gecko's, a row counts for the samples after it that are left out: that is
    /// its weight. So sums and times stay right. There, a thread that sleeps nearly all the time has
    /// few rows whatever the maximum is: at the beginning and at the end of each sleep. These do not
    /// count as left out. In a viewer, a range within such a sleep has no row of the thread.
    ///
    /// In the format of the Firefox Profiler, 64 or more threads of a process have one track if
    /// they sleep at the same place throughout, and their names differ by numbers only. The track
    /// shows one of the threads, and its name says how many threads it represents:
    /// `pool-7 (1 of 998 asleep alike)`. The other threads, with at most 0.1 ms of CPU time each,
    /// are left out of the file: their samples count nowhere in the file. A report that is made
    /// from such a file lacks these samples, too. All other formats but Gecko's have all threads. A
    /// thread that has markers, or has used more CPU time, keeps its own track.
    ///
    /// Gecko's format has these tracks for a session and for the profile of a crash file. In
    /// Gecko's format, all tracks are kept for children that have ended, for a program that has
    /// called `exec`, and for a file that is converted from another format.
    #[must_use]
    pub fn max_rows(mut self, max_rows: u64) -> Self {
        self.max_rows = max_rows;
        self
    }

    /// Sets how much memory may hold names for later profiles of the same session, in bytes.
    /// Default: 16 MiB, for some 50,000 addresses. With 0, no further names are kept.
    ///
    /// The names of a module are kept under its build id, so they stay right if the module moves or
    /// its file changes.
    #[must_use]
    pub fn name_cache_bytes(mut self, bytes: usize) -> Self {
        self.name_cache_bytes = bytes;
        self
    }

    /// Sets how many threads may look up names at the same time, with the calling one. Default:
    /// half the processors that the calling thread may use, but at most four.
    ///
    /// Each thread works on one module at a time, so that the writer needs memory for the debug
    /// information of as many modules. All but the calling one have a lower priority and end when
    /// the names are found. They are not created in a sandbox, without 1 GiB of memory for each,
    /// and if the calling thread has a real-time priority.
    #[must_use]
    pub fn symbolication_threads(mut self, threads: usize) -> Self {
        self.symbolication_threads = Some(threads);
        self
    }

    /// Sets the progress that the writer updates, for another thread to poll. Cost: some hundred
    /// atomic writes per thread in the profile.
    #[must_use]
    pub fn progress(mut self, progress: SharedProgress) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Writes only the thread with this name or id. Default: all threads. A format for one thread
    /// then gets the thread that used the most CPU time. Gecko's format always has all threads of a
    /// session.
    #[must_use]
    pub fn thread(mut self, name_or_id: impl Into<String>) -> Self {
        self.thread = Some(name_or_id.into());
        self
    }

    /// Sets what a sample counts for in formats without times, such as [`Format::Collapsed`] and
    /// [`Format::Svg`]. Default: [`SampleWeight::Samples`].
    #[must_use]
    pub fn weight(mut self, weight: SampleWeight) -> Self {
        self.weight = weight;
        self
    }

    /// Embeds the sources of the program's own crates in a profile in the format
    /// [`Format::Processed`], up to this size in bytes. The viewer then shows the sources to
    /// everyone who has the profile, without a server. Default: 0, which embeds none.
    ///
    /// Embeds only files that the debug information of their module names, if the module is on this
    /// machine with the build id that the profile has. Sources of other packages and of Rust are
    /// left out, as far as their paths show it. So is a file that is newer than its module, because
    /// its lines would be wrong. The files with the most samples come first. A file is at most 4
    /// MiB long. A notice says how many were left out. A set-user-id program embeds none, and a
    /// file in Gecko's format names no sources.
    ///
    /// ```no_run
    /// use gekkota::Profile;
    /// use gekkota::profile::SnapshotOptions;
    ///
    /// let options = SnapshotOptions::default().source_bytes(8 << 20);
    /// Profile::read("out.json")?.save_with("out.processed.json", &options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn source_bytes(mut self, max_bytes: usize) -> Self {
        self.source_bytes = max_bytes;
        self
    }

    /// Sets whether the outermost frames, which belong to Rust's or Tokio's runtime and are the
    /// same in all samples of a thread, are left out. Default: false. Gecko's format always has
    /// them.
    #[must_use]
    pub fn fold_runtime(mut self, fold_runtime: bool) -> Self {
        self.fold_runtime = fold_runtime;
        self
    }

    /// Sets after which time without progress a running child process is left out. Default: 1 s.
    ///
    /// All children of the session write their profiles at the same time as this process. A child
    /// that is stopped by a signal, for example, makes no progress. `profileGatheringLog` in the
    /// profile names it.
    #[must_use]
    #[doc(alias = "child.timeout_s")]
    pub fn child_timeout(mut self, timeout: Duration) -> Self {
        self.child_timeout = timeout;
        self
    }

    /// Returns the options with which a format is written by default.
    pub(super) fn usual_for(format: Option<Format>) -> Self {
        let usual = format.map(ExportOptions::usual_for).unwrap_or_default();
        Self {
            weight: usual.weight,
            fold_runtime: usual.folds_runtime,
            ..Self::default()
        }
    }

    pub(super) fn to_write_options(&self, format: Format) -> backend::WriteOptions {
        let names = NameOptions {
            symbolicate: self.symbolicate,
            max_cache_bytes: self.name_cache_bytes,
            max_threads: self.symbolication_threads,
        };
        let progress = self.progress.as_ref();
        let stream = backend::StreamOptions::new(names, self.since, self.max_rows, progress)
            .child_timeout(self.child_timeout);
        let export = ExportOptions {
            thread: self.thread.clone(),
            weight: self.weight,
            folds_runtime: self.fold_runtime,
            max_source_bytes: self.source_bytes,
            ..ExportOptions::default()
        };
        backend::WriteOptions {
            format,
            stream,
            export,
        }
    }
}

/// Writes the profile so far in the Gecko format, for <https://profiler.firefox.com>. The session
/// continues.
///
/// May be called from any thread, also concurrently. Samples and markers do not wait for it. The
/// text is streamed. Memory grows with the number of distinct stacks, by 12 bytes per sample of a
/// thread that ran, and by about 5 bytes per marker. The buffer's memory is shared with the
/// session, not copied. Chunks that the session discards while the profile is written stay in
/// memory until they have been read, and markers until the end, so both together may take twice the
/// capacity. This loses no data; `profilingLog` reports the amount of memory.
///
/// # Errors
/// [`StreamError::Inactive`], or the first error of `out` as [`StreamError::Io`], after which
/// nothing more is written. The session and its data are unaffected.
pub fn profiler_stream_json(
    out: &mut dyn Write,
    options: &SnapshotOptions,
) -> Result<(), StreamError> {
    // First, so that the progress reaches its end even without a session.
    let options = options.to_write_options(Format::Gecko);
    let profile = backend::freeze(None).ok_or(StreamError::Inactive)?;
    profile.write_once(&options, out).map_err(StreamError::Io)
}

/// Returns the profile so far as [`profiler_stream_json`] writes it, or `None` while the profiler
/// is inactive.
///
/// Addresses get names, unless `MOZ_PROFILER_SYMBOLICATE` is `0`.
pub fn profiler_get_profile() -> Option<Vec<u8>> {
    backend::freeze(None)?
        .into_text(&backend::default_options())
        .ok()
}

/// Saves the profile so far to a file that only its owner can read. The session continues.
///
/// `%p`, `%n` and `%t` in the path become the process's id, name and type
/// ([`profiler_save_at_exit`](crate::api::life_cycle::profiler_save_at_exit)). The ending of the
/// name selects the format, as [`Format::of_path`] documents it: `out.json` opens in the Firefox
/// Profiler. A further `.gz` makes a compressed file. Addresses get names, unless
/// `MOZ_PROFILER_SYMBOLICATE` is `0`.
///
/// - **Little memory.** If there is not enough memory for the whole profile, addresses stay
///   unnamed, or only the newest part is written, and `left_out_bytes` in `meta.losses` says so. If
///   there is not even enough memory for a small part, the result is an error, and a later save can
///   succeed.
/// - **Complete or absent.** The profile is written to a temporary file in the same folder, which
///   then takes the place of the file. The temporary file has no name where the file system allows
///   that, so a killed process leaves nothing behind. Otherwise, the next save in this folder
///   removes the file that a killed process left.
/// - **Folders that are not writable.** If the file exists and is writable, but no file can be
///   created in its folder, or if the file is a mount point, the file is overwritten. The complete
///   profile is first written to a temporary file in `/var/tmp`, `/tmp` or memory. A kill or a
///   power failure while it is copied from there leaves an incomplete file, and an error of the
///   disk leaves an empty one. The file keeps its mode, so other users may be able to read it.
/// - **Links.** A symbolic link is followed and kept. It is refused if another user may have
///   planted it: in a folder where each user may create files, as in `/tmp`, it belongs neither to
///   the user of this process nor to the folder's owner. The kernel has the same rule,
///   `fs.protected_symlinks`; the profiler applies it even if that is off. These rules hold for
///   pipes, too.
/// - **Devices and pipes**, `/dev/stdout` for example, are written directly. A pipe from which no
///   process reads for five seconds is an error.
/// - **Signals.** A write to a pipe without a reader, or beyond the maximum size of a file, is an
///   error. It raises no signal (`SIGPIPE`, `SIGXFSZ`), so it does not end the program.
///
/// # Errors
/// [`SaveError`] names the file that could not be created or written, and the reason. On a full
/// disk the partial file is removed. The session continues.
pub fn profiler_save_profile_to_file(path: impl AsRef<Path>) -> Result<(), SaveError> {
    let profile = backend::freeze(None).ok_or(SaveError::Inactive)?;
    profile.save_once(path.as_ref()).map(drop)
}

/// Returns a profile of the memory that is allocated now, with the stacks that allocated it, and
/// without any other data of the session.
///
/// It has the sampled allocations since the session began that have not been freed. A paused
/// session samples no allocations. Each sample represents a number of bytes, and the sums estimate
/// the true ones. In the viewer, the samples are “Retained memory” of the main thread's track. A
/// pprof profile ([`Format::Pprof`](crate::profile::Format)) has `inuse_space` and `inuse_objects`.
///
/// Needs a running session with
/// [`Features::NATIVE_ALLOCATIONS`](crate::Features::NATIVE_ALLOCATIONS), and a
/// [`ProfilerAllocator`](crate::memory::ProfilerAllocator) as the global allocator. Returns `None`
/// without such a session, without memory, or when called from inside the profiler's own work.
///
/// A session keeps at most 131,072 live samples, and 64 MiB of their stacks. `profilingLog` of the
/// profile counts what it leaves out: `dropped_allocations` and `unkept_allocation_stacks`.
///
/// May be called on any thread. Waits for the sampler's next tick. Takes memory for each live
/// sample.
///
/// ```
/// use gekkota::profile::Format;
///
/// if let Some(heap) = gekkota::memory::profiler_heap_snapshot() {
///     let mut file = Vec::new();
///     heap.write(Format::Gecko, &mut file)?;
/// }
/// # Ok::<(), gekkota::StreamError>(())
/// ```
pub fn profiler_heap_snapshot() -> Option<Profile> {
    backend::heap_snapshot().map(Profile::of_session)
}
