//! The profiling state of a thread, in one atomic word: the session that records the thread, and
//! what it records.
//!
//! *hint*: the state that a reader loads may already be out of date. The entry that the reader then
//! writes names its session, and the buffer refuses entries of other sessions.
//! `state/session_model.rs` checks this under loom.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{Generation, ThreadProfilingFeatures};

/// The generation of the session that records the thread, above the bits of the recorded features;
/// 0 when no session does.
#[derive(Debug)]
pub(crate) struct AtomicProfilingState(AtomicU64);

const FEATURE_BITS: u32 = 3;

impl AtomicProfilingState {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn set(&self, session: Generation, features: ThreadProfilingFeatures) {
        let word = session.to_number() << FEATURE_BITS | u64::from(features.to_bits());
        self.0.store(word, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn features(&self) -> ThreadProfilingFeatures {
        ThreadProfilingFeatures::from_bits(self.0.load(Ordering::Relaxed) as u8)
    }

    /// Returns the session that records any of these features.
    pub(crate) fn session_that_records(
        &self,
        any_of: ThreadProfilingFeatures,
    ) -> Option<Generation> {
        let word = self.0.load(Ordering::Relaxed);
        let features = ThreadProfilingFeatures::from_bits(word as u8);
        features
            .intersects(any_of)
            .then(|| Generation::from_number(word >> FEATURE_BITS))
    }
}
