//! A counter of changes to locked data.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts changes of data under a lock, so that a reader needs the lock only after a change.
///
/// The writer increments the count after each change. A change that happens after the reader has
/// read the count makes the next count differ.
#[derive(Debug)]
pub(crate) struct ChangeCount(AtomicU64);

impl ChangeCount {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Increments the count. Called after a change, under the lock of the data.
    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// Returns the count. Called before the data is read.
    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
