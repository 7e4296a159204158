//! What has become of the profiles, as other threads see it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::types::PushCounts;

/// The counts of a pusher.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) sent: Count,
    pub(super) sent_bytes: Count,
    pub(super) retried: Count,
    pub(super) dropped: Count,
    pub(super) refused: Count,
    pub(super) rejected: Count,
    pub(super) incomplete: Count,
    pub(super) waiting: Count,
    /// Size of the profiles that the sender has not put into the queue yet, in bytes.
    pub(super) handed_over: Count,
    /// Whether no further window may be cut.
    pub(super) has_ended: AtomicBool,
    /// Whether the connector may wait for the server no longer.
    pub(super) is_over: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Progress {
    pub(super) fn counts(&self) -> PushCounts {
        PushCounts {
            sent: self.sent.get(),
            sent_bytes: self.sent_bytes.get(),
            retried: self.retried.get(),
            dropped: self.dropped.get(),
            refused: self.refused.get(),
            rejected: self.rejected.get(),
            incomplete: self.incomplete.get(),
            waiting: self.waiting.get(),
        }
    }
}
