//! An interval that was longer than the settings of dumps allow.

use crate::types::TimeStamp;

/// An interval that was too long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LongInterval {
    pub(crate) name: String,
    /// Serial number of the thread that has the marker.
    pub(crate) thread: u64,
    pub(crate) start: TimeStamp,
    pub(crate) end: TimeStamp,
}
