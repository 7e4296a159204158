//! The options of a profile.

use std::sync::Arc;
use std::time::Duration;

use crate::platform::ProcessStart;
use crate::stream::children::GatherRequest;
use crate::symbols::OpenModules;
use crate::types::{
    DEFAULT_CHILD_TIMEOUT, DEFAULT_MAX_ROWS, DEFAULT_NAME_CACHE_BYTES, NameOptions, ProfilerTime,
    Symbolicate, TimeStamp,
};
use crate::util::{ProgressLogger, SharedProgress};

/// The options of a job that writes a profile. Dropping them reports the job as done to the
/// observer of its progress.
#[derive(Debug)]
pub(crate) struct StreamOptions {
    pub(crate) names: NameOptions,
    /// Looks up the names, if it is given.
    pub(crate) open_modules: Option<Arc<OpenModules>>,
    /// Earlier data is left out.
    pub(crate) since: Option<TimeStamp>,
    /// Maximum number of rows of samples and markers in all threads together.
    pub(crate) max_rows: u64,
    /// A running child process that makes no progress for this long is left out.
    pub(crate) child_timeout: Duration,
    /// Whether a file in Gecko's format shows threads that sleep alike as one track. If a program reads
    /// the file to write another format, it needs all of them.
    pub(crate) merges_alike: bool,
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
            open_modules: None,
            since,
            max_rows,
            child_timeout: DEFAULT_CHILD_TIMEOUT,
            merges_alike: true,
            progress: ProgressLogger::for_job(progress),
        }
    }

    /// Sets the time without progress after which a running child process is left out.
    pub(crate) fn child_timeout(mut self, timeout: Duration) -> Self {
        self.child_timeout = timeout;
        self
    }

    /// Returns what these options say about the profiles of running children. `clock` is that of this
    /// process.
    pub(crate) fn gather_request(&self, clock: ProcessStart) -> GatherRequest {
        GatherRequest {
            since: self.since,
            max_rows: self.max_rows,
            symbolicate: self.names.symbolicate,
            child_timeout: self.child_timeout,
            merges_alike: self.merges_alike,
            clock,
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
