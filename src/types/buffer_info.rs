//! Fill level and losses of the buffer, and the sampler's overhead.

/// Statistics of a duration that the sampler measures on each of its loops, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ProfilerStats {
    /// Number of measured durations.
    pub count: u64,
    /// Sum of the durations, in ns.
    pub sum_ns: u64,
    /// Shortest duration, in ns; 0 if none was measured.
    pub min_ns: u64,
    /// Longest duration, in ns; 0 if none was measured.
    pub max_ns: u64,
}

/// Fill level and losses of the running session's buffer, and the sampler's overhead.
///
/// The sampler delays the samples of idle threads, to write equal ones as one entry. These figures
/// do not include such samples until they are written; a profile does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ProfilerBufferInfo")]
#[non_exhaustive]
pub struct BufferInfo {
    /// Position of the oldest byte in the buffer. Positions count all bytes that the session has
    /// written, from 1.
    pub range_start: u64,
    /// Position after the newest byte. The buffer holds `range_end - range_start` bytes.
    pub range_end: u64,
    /// Capacity of the buffer, in bytes, as requested at start, or a share of the memory that was left.
    pub capacity_bytes: u64,
    /// Number of entries written since the session began: samples, runs of repeated samples,
    /// markers, counter values and pauses.
    pub put_entries: u64,
    /// Number of entries that were lost. Some were larger than a chunk of the buffer. Others came
    /// from a signal handler or allocator of the application that ran inside the profiler's own
    /// work, or found no memory. A profile counts each kind separately.
    pub dropped_entries: u64,
    /// Number of bytes that were discarded, oldest first, to free space for newer ones.
    pub recycled_bytes: u64,
    /// Times from the beginning of one sampling loop to the beginning of the next.
    pub intervals: ProfilerStats,
    /// Total durations of sampling loops: the sum of the four parts below. These are wall-clock
    /// times, not CPU times. Loops during a pause do not count.
    pub overheads: ProfilerStats,
    /// First part of a loop: updating the lists of modules and threads. Gecko spends this time on
    /// waiting for its lock.
    pub lockings: ProfilerStats,
    /// Last part of a loop: maintaining the buffer.
    pub cleanings: ProfilerStats,
    /// Part of a loop: reading the counters.
    pub counters: ProfilerStats,
    /// Part of a loop: sampling the threads.
    pub threads: ProfilerStats,
}
