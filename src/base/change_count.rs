//! A number that tells that something has changed.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Raised after each change of something that lies under a lock, so that who follows it takes the lock only then.
///
/// A change that is not seen now raises the number after it was read, and so is seen the next time.
#[derive(Debug)]
pub(crate) struct ChangeCount(AtomicU64);

impl ChangeCount {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// After a change, under its lock.
    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// Before looking at what may have changed.
    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
