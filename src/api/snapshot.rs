//! Getting the profile out while the session goes on.

use std::io::Write;
use std::path::Path;

use crate::api::engine;
use crate::base::{DEFAULT_MAX_ROWS, ProfilerTime, SaveError, SharedProgress, StreamError};

/// Whether addresses get names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Symbolicate {
    /// Names of functions, inlined ones included, from the debug information and symbol tables on this machine. Each
    /// distinct address is looked up once; the first look into a large executable takes seconds and memory.
    #[default]
    Full,
    /// Addresses stay as they are; the viewer asks a symbol server, such as `samply load` starts.
    No,
}

/// How a profile is to be written.
///
/// By default with names, whole, and with nobody watching. The methods set what the fields of the same names hold; the fields
/// are there to be read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SnapshotOptions {
    /// Whether addresses get names.
    pub symbolicate: Symbolicate,
    /// What is earlier stays out of the profile; `None` for no limit but the session's own duration.
    pub since: Option<ProfilerTime>,
    /// From how many rows of samples and markers on, of all threads together, those of threads that did not run are thinned.
    pub max_rows: u64,
    /// Where the writing tells how far it is.
    pub progress: Option<SharedProgress>,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self {
            symbolicate: Symbolicate::Full,
            since: None,
            max_rows: DEFAULT_MAX_ROWS,
            progress: None,
        }
    }
}

impl SnapshotOptions {
    /// Whether addresses get names; by default [`Symbolicate::Full`].
    #[must_use]
    pub fn symbolicate(mut self, symbolicate: Symbolicate) -> Self {
        self.symbolicate = symbolicate;
        self
    }

    /// Leaves out what is earlier: samples, markers that ended before, counter values, pauses, and threads that ended before
    /// and have nothing left; profiles of children stand as they came. `meta.contentEarliestTime` then says this time, or the
    /// moment when the profile was taken, if that is earlier. One before the session began changes nothing, and neither does
    /// one longer ago than [`StartParams::duration`](crate::StartParams::duration).
    #[must_use]
    #[doc(alias = "sinceTime")]
    pub fn since(mut self, since: ProfilerTime) -> Self {
        self.since = Some(since);
        self
    }

    /// How many rows of samples and markers the profile may hold, of all threads together; by default 4 000 000. Where there are
    /// more, samples in which a thread did not run are left out, evenly, and counted as `left_out_idle_rows` in `meta.losses`.
    /// Samples of threads that ran, and markers, are never left out, so that there may be more rows all the same.
    #[must_use]
    pub fn max_rows(mut self, max_rows: u64) -> Self {
        self.max_rows = max_rows;
        self
    }

    /// Tells here how far the writing is, for another thread to poll. Costs some hundred atomic writes for each thread in the
    /// profile.
    #[must_use]
    pub fn progress(mut self, progress: SharedProgress) -> Self {
        self.progress = Some(progress);
        self
    }

    pub(super) fn to_stream_options(&self) -> engine::StreamOptions {
        let wants_names = self.symbolicate == Symbolicate::Full;
        engine::StreamOptions::new(
            wants_names,
            self.since,
            self.max_rows,
            self.progress.as_ref(),
        )
    }
}

/// Writes the profile so far, in the Gecko format that <https://profiler.firefox.com> opens. The session goes on.
///
/// May be called from any thread, also from several at once; samples and markers do not wait for it. The text is
/// streamed; memory grows with the number of distinct stacks, by 12 bytes a sample of a thread that ran, and by some 5 a marker.
/// What the buffer holds is shared with the session, not copied: what the session gives up meanwhile, to make room, stays in
/// memory until it has been read, and markers until this is done, so that the two together may take twice the capacity.
/// Nothing is lost by that; `profilingLog` tells how much it was.
///
/// # Errors
/// [`StreamError::Inactive`], or the writer's first failure as [`StreamError::Io`]: its very error, after which nothing more
/// is written. The session and what it has recorded stay as they are.
pub fn profiler_stream_json(
    out: &mut dyn Write,
    options: &SnapshotOptions,
) -> Result<(), StreamError> {
    // Before the profile is taken, so that the progress ends in any case.
    let options = options.to_stream_options();
    let profile = engine::freeze(None).ok_or(StreamError::Inactive)?;
    profile.write_once(&options, out).map_err(StreamError::Io)
}

/// The profile so far, as [`profiler_stream_json`] writes it, with names unless `MOZ_PROFILER_SYMBOLICATE` is `0`; `None`
/// when the profiler is not active.
pub fn profiler_get_profile() -> Option<Vec<u8>> {
    engine::freeze(None)?
        .into_text(&engine::default_options())
        .ok()
}

/// Saves the profile so far to a file, readable by its owner alone. The session goes on.
///
/// The first `%p` in the path becomes the process's id; a name that ends in `.gz` gets the file compressed. It is written
/// beside its place and moved there, so it is whole or absent. Functions have names unless `MOZ_PROFILER_SYMBOLICATE` is `0`.
///
/// # Errors
/// [`SaveError`] tells which file could not be made or written, and why. Where the disk is full, nothing of the profile stays
/// on it, and the session goes on.
pub fn profiler_save_profile_to_file(path: impl AsRef<Path>) -> Result<(), SaveError> {
    let profile = engine::freeze(None).ok_or(SaveError::Inactive)?;
    profile.save_once(path.as_ref()).map(drop)
}
