//! What a session keeps of a thread that it records something of.

/// From the moment when the session takes the thread up until it drops it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProfiledThreadData {
    /// Where the thread stands in the session's list of live ones.
    pub(crate) live_index: usize,
    /// Where the buffer ended when nothing of the thread was still to be written; unknown while it lives, and until the
    /// sampler has come by.
    #[doc(alias = "BufferPositionWhenUnregistered")]
    pub(crate) end_position: Option<u64>,
}
