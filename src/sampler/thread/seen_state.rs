//! The answers to the questions whether a thread is blocked and how it has run, which decide how it is
//! sampled.

use crate::platform::BlockedAt;

/// What the sampler sees of a thread on a tick.
pub(crate) enum Seen {
    Blocked(BlockedAt),
    /// The thread cannot be asked now: a signal might wake it, and the kernel tells only later where it
    /// sleeps.
    FallingAsleep,
    /// The thread runs or waits for a processor, or the system does not report whether it is blocked.
    NotBlocked,
}

/// How a thread has run since the sampler last looked at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ran {
    /// For all of the time, so it probably still runs.
    pub(crate) until_now: bool,
    /// For seven eighths of the time or more: its sleeps, if any, are short.
    pub(crate) nearly_always: bool,
    /// For at least half of the time.
    pub(crate) mostly: bool,
}
