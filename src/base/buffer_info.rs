//! What the buffer holds.

/// How full the running session's buffer is, and what it lost.
///
/// What the sampler holds back of threads at rest, to write it in one piece, is not in it yet; a profile has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ProfilerBufferInfo")]
#[non_exhaustive]
pub struct BufferInfo {
    /// The position of the oldest byte that is still there, among all bytes that the session ever put; the first is 1.
    pub range_start: u64,
    /// The position after the newest byte. What is there now are `range_end - range_start` bytes.
    pub range_end: u64,
    /// How many bytes the session may keep, as it was asked to.
    pub capacity_bytes: u64,
    /// Entries that were put since the session began: samples, runs of repeated samples, markers, counter values, pauses.
    pub put_entries: u64,
    /// Entries that are nowhere: larger than a chunk of the buffer, or come from a handler or an allocator of the program's in
    /// the midst of the profiler's own work. A profile has each apart.
    pub dropped_entries: u64,
    /// Bytes that were given up, oldest first, to make room for newer ones.
    pub recycled_bytes: u64,
}
