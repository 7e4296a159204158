//! The identity and the names of a counter.

use crate::types::Features;

/// A counter's identity and names. The viewer selects a track by category and name.
#[doc(alias = "BaseProfilerCount")]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CounterDescription {
    /// Identifies the counter in the buffer.
    pub(crate) id: u64,
    /// The feature with which the counter is sampled.
    pub(crate) feature: Features,
    pub(crate) name: &'static str,
    pub(crate) category: &'static str,
    pub(crate) description: &'static str,
    /// Whether the value is a level, such as memory, rather than a sum that grows with time. A
    /// profile without the beginning of the session begins with the whole level.
    pub(crate) is_level: bool,
}
