//! A profile, and the formats in which it can be written.

use std::fmt;
use std::io::{Read, Write};
use std::path::Path;

use crate::api::backend;
use crate::api::snapshot::SnapshotOptions;
use crate::types::{
    Explanation, Format, ReadError, RescueError, SaveError, SlowRequest, StreamError, ThreadSummary,
};

/// The data of a session at one moment, or a profile that was read from a file.
///
/// The profile of a session shares the buffer's memory with the session, and keeps that memory
/// alive after the session. A clone is cheap. A profile can be written from any thread.
#[derive(Clone, Debug)]
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
    /// The file is created as by
    /// [`profiler_save_profile_to_file`](crate::api::snapshot::profiler_save_profile_to_file).
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
