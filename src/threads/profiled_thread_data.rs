//! Data that a session keeps for each thread that it records.

/// Session data of a thread. Exists from the moment when the session starts to record the thread
/// until the session drops it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProfiledThreadData {
    /// Index of the thread in the session's list of live threads.
    pub(crate) live_index: usize,
    /// Buffer position behind the last entry of the thread; `None` while the thread is registered,
    /// and after that until the sampler sets it.
    #[doc(alias = "BufferPositionWhenUnregistered")]
    pub(crate) end_position: Option<u64>,
}
