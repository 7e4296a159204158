//! The Rust way: a session is a guard, and gives a profile.

use std::io::Write;
use std::path::Path;

use crate::api::engine;
use crate::api::snapshot::SnapshotOptions;
use crate::base::{SaveError, StartError, StartParams, StreamError};
use crate::export::{ThreadSummary, summarize};

/// A running session. Dropping it stops the profiler, unless somebody has started it anew meanwhile.
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
    generation: engine::Generation,
}

impl ProfilerSession {
    /// Starts, as [`profiler_start`](crate::profiler_start) does.
    ///
    /// # Errors
    /// Those of [`profiler_start`](crate::profiler_start).
    pub fn start(params: StartParams) -> Result<Self, StartError> {
        engine::start(&params).map(|generation| Self { generation })
    }

    /// The profile so far; the session goes on.
    ///
    /// # Errors
    /// [`StreamError::Inactive`] when somebody has stopped the profiler or started it anew.
    pub fn snapshot(&self) -> Result<Profile, StreamError> {
        engine::freeze(Some(self.generation))
            .map(|frozen| Profile { frozen })
            .ok_or(StreamError::Inactive)
    }

    /// The whole profile; the session ends.
    ///
    /// # Errors
    /// [`StreamError::Inactive`] when somebody has stopped the profiler or started it anew.
    pub fn finish(self) -> Result<Profile, StreamError> {
        self.snapshot()
    }
}

impl Drop for ProfilerSession {
    fn drop(&mut self) {
        engine::stop_generation(self.generation);
    }
}

/// What a profile can be written as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Format {
    /// Gecko's JSON, version 36, for <https://profiler.firefox.com> and `samply load`.
    Gecko,
}

/// What a session had recorded at one moment. It shares the session's memory, and keeps it.
#[derive(Clone, Debug)]
pub struct Profile {
    frozen: engine::FrozenProfile,
}

impl Profile {
    /// Writes it, with names.
    ///
    /// # Errors
    /// The writer's first failure, as [`StreamError::Io`].
    pub fn write(&self, format: Format, out: &mut dyn Write) -> Result<(), StreamError> {
        self.write_with(format, out, &SnapshotOptions::default())
    }

    /// Writes it so.
    ///
    /// # Errors
    /// The writer's first failure, as [`StreamError::Io`].
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

    /// Saves Gecko's JSON to a file, as [`profiler_save_profile_to_file`](crate::profiler_save_profile_to_file) does.
    ///
    /// # Errors
    /// [`SaveError`] tells which file could not be made or written, and why.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SaveError> {
        self.frozen.save(path.as_ref()).map(drop)
    }

    /// Saves it so: of the last seconds alone, say, or with somebody watching.
    ///
    /// # Errors
    /// [`SaveError`] tells which file could not be made or written, and why.
    pub fn save_with(
        &self,
        path: impl AsRef<Path>,
        options: &SnapshotOptions,
    ) -> Result<(), SaveError> {
        self.frozen
            .save_with(&options.to_stream_options(), path.as_ref())
            .map(drop)
    }

    /// What each thread spent its time on, in the order of registration. Names every function, as writing does.
    pub fn summarize(&self) -> Vec<ThreadSummary> {
        summarize(self.frozen.source())
    }

    /// What the sampler did, could not do, and cost, by name, as in the profile's `profilingLog`. What is missing, or not whole:
    ///
    /// | name | what |
    /// |---|---|
    /// | `missed_ticks` | ticks of the schedule that passed while the sampler could not run, or left its time to the host |
    /// | `unanswered_ticks` | ticks on which a thread that was running had not answered |
    /// | `truncated_samples` | samples whose stacks lack their older end, and have `(truncated)` there |
    /// | `threads_without_stacks` | threads for whose stacks there was no room; they have markers and CPU times |
    /// | `refused_signals` | requests to threads that the system did not pass on |
    /// | `refused_timers` | threads for which the system made no timer; they get signals |
    /// | `handler_replacements` | how often somebody else had replaced the signal's handler; while theirs stays, threads that run are not sampled |
    /// | `dropped_samples` | samples that found no room in the buffer |
    /// | `sampler_panics` | 1 when the sampler ended by an error of its own; nothing was sampled from then on |
    pub fn sampler_counts(&self) -> Vec<(&'static str, u64)> {
        self.frozen.counts()
    }
}
