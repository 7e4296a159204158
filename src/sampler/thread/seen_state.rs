//! The answer to the question whether a thread is blocked, which decides how it is sampled.

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
