//! What a counter is called.

/// A counter's identity and names. The viewer picks a track by category and name.
#[doc(alias = "BaseProfilerCount")]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CounterDescription {
    /// Which counter, in the buffer.
    pub(crate) id: u64,
    pub(crate) name: &'static str,
    pub(crate) category: &'static str,
    pub(crate) description: &'static str,
}
