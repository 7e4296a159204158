//! How a profile is to be written.

use crate::base::{DEFAULT_MAX_ROWS, ProfilerTime, ProgressLogger, SharedProgress, TimeStamp};

/// What whoever asks for a profile wants of it. Its job is done when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamOptions {
    /// Whether addresses get names.
    pub(crate) symbolicate: bool,
    /// What is earlier stays out.
    pub(crate) since: Option<TimeStamp>,
    /// How many rows of samples and markers there may be, of all threads together.
    pub(crate) max_rows: u64,
    pub(crate) progress: ProgressLogger,
}

impl StreamOptions {
    pub(crate) fn new(
        symbolicate: bool,
        since: Option<ProfilerTime>,
        max_rows: u64,
        progress: Option<&SharedProgress>,
    ) -> Self {
        let since = since.map(ProfilerTime::timestamp);
        Self {
            symbolicate,
            since,
            max_rows,
            progress: ProgressLogger::of_job(progress),
        }
    }

    /// Everything, while nobody watches.
    pub(crate) fn whole(symbolicate: bool) -> Self {
        Self::new(symbolicate, None, DEFAULT_MAX_ROWS, None)
    }
}
