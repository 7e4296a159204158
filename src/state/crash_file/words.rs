//! Words of the file's first page whose meaning the session knows.

/// Words that change during the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum OwnerWord {
    /// Start of the pause in progress, of each kind, in ns; 0 for none.
    PausedSince = 0,
    SamplingPausedSince = 1,
    /// When the sampler last noted the session's counts, in ns.
    CountedAt = 2,
    /// The first of the session's counts.
    Counts = 8,
}
