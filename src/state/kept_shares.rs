//! Shares of a session's capacity that it keeps outside the buffer's chunks.
//!
//! Each kind of data has a share, so that one kind does not push out another. All kinds count
//! towards the capacity, so they leave less of it to the buffer's chunks. Together they leave the
//! chunks at least three eighths of the capacity.

/// A kind of data that a session keeps outside the buffer's chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeptKind {
    /// The data of threads that have ended.
    EndedThreads,
    /// The profiles of child processes that have exited.
    ExitProfiles,
    /// The pages that were unregistered.
    EndedPages,
    /// The generated code that was unregistered.
    UnregisteredCode,
    /// The generated code that `/tmp/perf-PID.map` lists.
    PerfMap,
}

impl KeptKind {
    /// Returns the number by which the capacity is divided to get the share.
    pub(in crate::state) const fn divisor(self) -> u64 {
        match self {
            Self::ExitProfiles => 4,
            Self::EndedThreads | Self::PerfMap => 8,
            Self::EndedPages | Self::UnregisteredCode => 16,
        }
    }
}
