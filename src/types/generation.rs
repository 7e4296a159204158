//! Session numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of a session, unique within the process.
///
/// Comparing generations detects data that was created in an earlier session.
#[doc(alias = "mGeneration")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generation(u64);

static LAST: AtomicU64 = AtomicU64::new(0);

impl Generation {
    /// Returns a number that no session has used yet.
    pub(crate) fn next() -> Self {
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) const fn is_after(self, other: Self) -> bool {
        self.0 > other.0
    }

    /// Returns the number, which is at least 1.
    pub(crate) const fn to_number(self) -> u64 {
        self.0
    }

    /// Restores a generation from the result of [`Self::to_number`].
    pub(crate) const fn from_number(number: u64) -> Self {
        Self(number)
    }
}
