//! A session as a guard, and the profile that it produces.

use std::io::Write;
use std::path::Path;

use crate::api::backend;
use crate::api::snapshot::SnapshotOptions;
use crate::export::{ThreadSummary, summarize};
use crate::types::{SaveError, StartError, StartParams, StreamError};

/// A running session. Dropping it stops the profiler, unless another call has started a new session
/// since.
///
/// A session that is dropped without [`finish`](Self::finish) loses its data, with one exception.
/// If the application called [`profiler_init`](crate::api::life_cycle::profiler_init) with
/// `MOZ_PROFILER_SHUTDOWN` set, the profile of the last `ProfilerSession` that ended is kept.
/// [`profiler_shutdown`](crate::api::life_cycle::profiler_shutdown) saves the kept profile if no
/// session runs at that time. Until then the profile occupies the memory of its data.
///
/// Declare the session after [`AutoProfilerInit`](crate::api::life_cycle::AutoProfilerInit), so
/// that the session is dropped first.
///
/// ```no_run
/// # fn work() {}
/// let session = gekkota::ProfilerSession::start(gekkota::StartParams::default())?;
/// work();
/// session.finish()?.save("work.profile.json")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the profiler stops when this is dropped"]
pub struct ProfilerSession {
    generation: backend::Generation,
    /// The profile that [`finish`](Self::finish) took.
    finished: Option<Box<backend::FrozenProfile>>,
}

impl ProfilerSession {
    /// Starts a session, as [`profiler_start`](crate::api::life_cycle::profiler_start) does.
    ///
    /// # Errors
    /// Those of [`profiler_start`](crate::api::life_cycle::profiler_start).
    pub fn start(params: StartParams) -> Result<Self, StartError> {
        backend::start(&params).map(|generation| Self {
            generation,
            finished: None,
        })
    }

    /// Takes the profile so far. The session continues.
    ///
    /// Cost: copies lists, and shares the buffer's memory. The costly work happens when the profile
    /// is written.
    ///
    /// # Errors
    /// [`StreamError::Inactive`] if another call has stopped or restarted the profiler.
    pub fn snapshot(&self) -> Result<Profile, StreamError> {
        backend::freeze(Some(self.generation))
            .map(|frozen| Profile { frozen })
            .ok_or(StreamError::Inactive)
    }

    /// Takes the whole profile, and ends the session.
    ///
    /// # Errors
    /// [`StreamError::Inactive`] if another call has stopped or restarted the profiler.
    pub fn finish(mut self) -> Result<Profile, StreamError> {
        let profile = self.snapshot();
        self.finished = (profile.as_ref().ok())
            .map(|profile| profile.frozen.clone())
            .map(Box::new);
        profile
    }
}

impl Drop for ProfilerSession {
    fn drop(&mut self) {
        backend::end_guarded_session(self.generation, self.finished.take().map(|taken| *taken));
    }
}

/// A format in which a [`Profile`] can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Format {
    /// Gecko's JSON, version 36, for <https://profiler.firefox.com> and `samply load`.
    Gecko,
}

/// The data of a session at one moment.
///
/// A profile shares the buffer's memory with the session, and keeps that memory alive after the
/// session. A clone is cheap. A profile can be written from any thread.
#[derive(Clone, Debug)]
pub struct Profile {
    frozen: backend::FrozenProfile,
}

impl Profile {
    /// Writes the profile with the default options, which resolve addresses to names.
    ///
    /// # Errors
    /// [`StreamError::Io`], the first error of `out`.
    pub fn write(&self, format: Format, out: &mut dyn Write) -> Result<(), StreamError> {
        self.write_with(format, out, &SnapshotOptions::default())
    }

    /// Writes the profile with these options.
    ///
    /// # Errors
    /// [`StreamError::Io`], the first error of `out`.
    pub fn write_with(
        &self,
        format: Format,
        out: &mut dyn Write,
        options: &SnapshotOptions,
    ) -> Result<(), StreamError> {
        match format {
            Format::Gecko => self
                .frozen
                .write(&options.to_stream_options(), out)
                .map_err(StreamError::Io),
        }
    }

    /// Saves the profile to a file in Gecko's JSON, as
    /// [`profiler_save_profile_to_file`](crate::api::snapshot::profiler_save_profile_to_file) does.
    ///
    /// # Errors
    /// [`SaveError`] names the file that could not be created or written, and the reason.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SaveError> {
        self.frozen.save(path.as_ref()).map(drop)
    }

    /// Saves the profile to a file with these options: only the last seconds, for example, or with
    /// progress reports.
    ///
    /// # Errors
    /// [`SaveError`] names the file that could not be created or written, and the reason.
    pub fn save_with(
        &self,
        path: impl AsRef<Path>,
        options: &SnapshotOptions,
    ) -> Result<(), SaveError> {
        self.frozen
            .save_with(&options.to_stream_options(), path.as_ref())
            .map(drop)
    }

    /// Returns the functions on which each thread spent its time. The threads are in the order of
    /// registration. Resolves all names, as writing does.
    pub fn summarize(&self) -> Vec<ThreadSummary> {
        summarize(self.frozen.source())
    }

    /// Returns counts of the sampler's work, failures and costs, by name, as in the profile's
    /// `profilingLog`. These counts report missing or incomplete data:
    ///
    /// | Name | Count |
    /// |---|---|
    /// | `missed_ticks` | scheduled ticks that were dropped because the sampler could not run, or because it left the processor to the application after a long tick |
    /// | `ticks_without_memory` | ticks that took no samples, because the system had no memory to record them |
    /// | `unanswered_ticks` | ticks at which a running thread had not answered |
    /// | `truncated_samples` | samples whose stacks lack their older end, marked `(truncated)` |
    /// | `too_deep_samples` | those of them whose thread used more than 1 MiB of stack: only the youngest MiB is copied, or less if the system has no memory for it |
    /// | `threads_without_stacks` | threads without memory for their stacks; they have markers and CPU times |
    /// | `threads_without_clock` | threads whose CPU clock the system refused to read; they have no CPU times |
    /// | `refused_signals` | requests to threads that the system refused to deliver |
    /// | `refused_timers` | threads for which the system refused a timer; they receive signals instead |
    /// | `handler_replacements` | times that foreign code replaced the signal's handler; while a foreign handler is installed, running threads are not sampled |
    /// | `dropped_samples` | samples that were dropped, because the buffer had no space or the system no memory |
    /// | `lost_marker_stacks` | stacks of markers that were lost for lack of memory |
    /// | `dropped_ended_threads` | ended threads that were dropped with their samples and markers, because the session kept too many |
    /// | `dropped_empty_threads` | ended threads without samples and markers that were dropped, because the session kept too many |
    /// | `dropped_ended_pages` | unregistered pages that were dropped, because the session kept too many |
    /// | `dropped_exit_profiles` | profiles of child processes that were dropped, because the session kept too many |
    /// | `lost_code_names` | unregistered ranges of generated code whose names were dropped, because the session kept too many |
    /// | `unread_perf_map_bytes` | bytes of `/tmp/perf-PID.map` that were not read, because the file lists too much code |
    /// | `sampler_panics` | 1 if the sampler ended by an internal error; no samples were taken from then on |
    pub fn sampler_counts(&self) -> Vec<(&'static str, u64)> {
        self.frozen.counts()
    }
}
