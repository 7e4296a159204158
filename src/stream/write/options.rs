//! The options of a profile.

use crate::types::{
    DEFAULT_MAX_ROWS, DEFAULT_NAME_CACHE_BYTES, NameOptions, ProfilerTime, Symbolicate, TimeStamp,
};
use crate::util::{ProgressLogger, SharedProgress};

/// The options of a job that writes a profile. Dropping them reports the job as done to the
/// observer of its progress.
#[derive(Debug)]
pub(crate) struct StreamOptions {
    pub(crate) names: NameOptions,
    /// Earlier data is left out.
    pub(crate) since: Option<TimeStamp>,
    /// Maximum number of rows of samples and markers in all threads together.
    pub(crate) max_rows: u64,
    pub(crate) progress: ProgressLogger,
}

impl StreamOptions {
    pub(crate) fn new(
        names: NameOptions,
        since: Option<ProfilerTime>,
        max_rows: u64,
        progress: Option<&SharedProgress>,
    ) -> Self {
        let since = since.map(ProfilerTime::timestamp);
        Self {
            names,
            since,
            max_rows,
            progress: ProgressLogger::for_job(progress),
        }
    }

    /// Returns the options for a whole profile without a progress observer.
    pub(crate) fn whole(symbolicate: Symbolicate) -> Self {
        let names = NameOptions {
            symbolicate,
            max_cache_bytes: DEFAULT_NAME_CACHE_BYTES,
            max_threads: None,
        };
        Self::new(names, None, DEFAULT_MAX_ROWS, None)
    }
}
