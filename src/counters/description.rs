//! What a counter is called.

use crate::base::Features;

/// A counter's identity and names. The viewer picks a track by category and name.
#[doc(alias = "BaseProfilerCount")]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CounterDescription {
    /// Which counter, in the buffer.
    pub(crate) id: u64,
    /// With which feature it is sampled.
    pub(crate) feature: Features,
    pub(crate) name: &'static str,
    pub(crate) category: &'static str,
    pub(crate) description: &'static str,
}
