//! The profiles of child processes that still run. They arrive while the own profile is written.
//!
//! The layer above knows the child processes. It implements these traits.

use std::fmt::Debug;
use std::time::Duration;

use crate::platform::ProcessStart;
use crate::state::ChildProfile;
use crate::types::{Symbolicate, TimeStamp};

/// What the options of a job say about the profiles of running children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherRequest {
    /// Earlier data is left out.
    pub(crate) since: Option<TimeStamp>,
    /// Maximum number of rows of samples and markers in all threads of one child together.
    pub(crate) max_rows: u64,
    pub(crate) symbolicate: Symbolicate,
    /// A child that makes no progress for this long is left out.
    pub(crate) child_timeout: Duration,
    /// Whether threads that sleep alike may be shown as one track.
    pub(crate) merges_alike: bool,
    /// The clock that the times of all processes refer to.
    pub(crate) clock: ProcessStart,
}

/// The children that ran when a profile was taken. Each holds a frozen profile of its own until
/// this is dropped.
pub(crate) trait FrozenChildren: Send + Sync + Debug {
    /// Begins to gather the profiles. All children write at the same time.
    fn gather(&self, request: &GatherRequest) -> Box<dyn Gathering>;
}

/// Profiles that are being gathered.
pub(crate) trait Gathering {
    /// Returns the earliest start of the children's sessions and the latest time at which one of
    /// them was frozen. Waits for the children that have not told these times yet, up to the
    /// time-out.
    fn times(&mut self) -> Option<(TimeStamp, TimeStamp)>;

    /// Waits for the next profile, and returns it. Returns `None` once each child's profile was
    /// returned or given up.
    fn next_profile(&mut self) -> Option<ChildProfile>;

    /// Returns the share of the work that is done, from 0 to 1.
    fn proportion(&self) -> f32;

    /// Returns what happened. Called last.
    fn take_log(&mut self) -> GatheringLog;
}

/// What happened while profiles were gathered.
#[derive(Clone, Debug)]
pub(crate) struct GatheringLog {
    pub(crate) begun: TimeStamp,
    pub(crate) ended: TimeStamp,
    /// One text for each event, such as a child that was left out, and the reason.
    pub(crate) events: Vec<(TimeStamp, String)>,
}
