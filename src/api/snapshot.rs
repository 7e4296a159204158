//! Taking and writing a profile while the session continues.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::api::backend;
use crate::types::{
    DEFAULT_CHILD_TIMEOUT, DEFAULT_MAX_ROWS, DEFAULT_NAME_CACHE_BYTES, ExportOptions, Format,
    NameOptions, ProfilerTime, SampleWeight, SaveError, StreamError, Symbolicate,
};
use crate::util::SharedProgress;

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
