//! Which session of the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A session's number. No two sessions of a process have the same, so that what began in one is told from what belongs to
/// the next.
#[doc(alias = "mGeneration")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generation(u64);

static LAST: AtomicU64 = AtomicU64::new(0);

impl Generation {
    /// One that no session has had.
    pub(crate) fn next() -> Self {
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) const fn is_after(self, other: Self) -> bool {
        self.0 > other.0
    }

    /// At least 1.
    pub(crate) const fn to_number(self) -> u64 {
        self.0
    }

    /// Of [`Self::to_number`].
    pub(crate) const fn from_number(number: u64) -> Self {
        Self(number)
    }
}
