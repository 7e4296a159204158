//! The options of a profile.

use crate::types::{
    DEFAULT_MAX_ROWS, DEFAULT_NAME_CACHE_BYTES, ProfilerTime, Symbolicate, TimeStamp,
};
use crate::util::{ProgressLogger, SharedProgress};

/// The options of a job that writes a profile. Dropping them reports the job as done to the
/// observer of its progress.
#[derive(Debug)]
pub(crate) struct StreamOptions {
    /// How much is looked up of each address.
    pub(crate) symbolicate: Symbolicate,
    /// Earlier data is left out.
    pub(crate) since: Option<TimeStamp>,
    /// Maximum number of rows of samples and markers in all threads together.
    pub(crate) max_rows: u64,
    /// Maximum memory for names that later profiles of the session may use, in bytes.
    pub(crate) name_cache_bytes: usize,
    pub(crate) progress: ProgressLogger,
}

impl StreamOptions {
    pub(crate) fn new(
        symbolicate: Symbolicate,
        since: Option<ProfilerTime>,
        max_rows: u64,
        name_cache_bytes: usize,
        progress: Option<&SharedProgress>,
    ) -> Self {
        let since = since.map(ProfilerTime::timestamp);
        Self {
            symbolicate,
            since,
            max_rows,
            name_cache_bytes,
            progress: ProgressLogger::for_job(progress),
        }
    }

    /// Returns the options for a whole profile without a progress observer.
    pub(crate) fn whole(symbolicate: Symbolicate) -> Self {
        Self::new(
            symbolicate,
            None,
            DEFAULT_MAX_ROWS,
            DEFAULT_NAME_CACHE_BYTES,
            None,
        )
    }
}
