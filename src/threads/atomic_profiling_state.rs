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

/// The generation of the session that records the thread, above [`HAS_ENTRIES`] and the bits of the
/// recorded features; 0 when no session does.
#[derive(Debug)]
pub(crate) struct AtomicProfilingState(AtomicU64);

/// Bit that is set once the session may have an entry of the thread. It may also be set by a late
/// entry of an earlier session, which the buffer refuses.
const HAS_ENTRIES: u64 = 1 << 3;
/// Number of bits below the generation.
const STATE_BITS: u32 = 4;

impl AtomicProfilingState {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn set(&self, session: Generation, features: ThreadProfilingFeatures) {
        let word = session.to_number() << STATE_BITS | u64::from(features.to_bits());
        self.0.store(word, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn features(&self) -> ThreadProfilingFeatures {
        ThreadProfilingFeatures::from_bits(self.0.load(Ordering::Relaxed) as u8)
    }

    /// Returns the session that records any of these features.
    #[cfg(all(test, loom))]
    pub(crate) fn session_that_records(
        &self,
        any_of: ThreadProfilingFeatures,
    ) -> Option<Generation> {
        Self::session_in(self.0.load(Ordering::Relaxed), any_of)
    }

    #[inline(always)]
    fn session_in(word: u64, any_of: ThreadProfilingFeatures) -> Option<Generation> {
        let features = ThreadProfilingFeatures::from_bits(word as u8);
        features
            .intersects(any_of)
            .then(|| Generation::from_number(word >> STATE_BITS))
    }

    /// Returns the session that records any of these features, and notes that it will have an entry
    /// of the thread.
    #[inline(always)]
    pub(crate) fn begin_entry(&self, any_of: ThreadProfilingFeatures) -> Option<Generation> {
        let word = self.0.load(Ordering::Relaxed);
        let session = Self::session_in(word, any_of)?;
        if word & HAS_ENTRIES == 0 {
            self.set_has_entries();
        }
        Some(session)
    }

    /// Notes that the session may have an entry of the thread.
    pub(crate) fn note_entry(&self) {
        if !self.has_entries() {
            self.set_has_entries();
        }
    }

    #[cold]
    fn set_has_entries(&self) {
        self.0.fetch_or(HAS_ENTRIES, Ordering::Relaxed);
    }

    /// Returns whether the session may have an entry of the thread.
    pub(crate) fn has_entries(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HAS_ENTRIES != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_are_noted_until_the_next_session() {
        let state = AtomicProfilingState::new();
        let (one, other) = (Generation::from_number(5), Generation::from_number(6));
        state.set(one, ThreadProfilingFeatures::MARKERS);
        assert_eq!(state.begin_entry(ThreadProfilingFeatures::SAMPLING), None);
        assert!(!state.has_entries());
        for _ in 0..2 {
            let session = state.begin_entry(ThreadProfilingFeatures::MARKERS);
            assert_eq!((session, state.has_entries()), (Some(one), true));
        }
        assert_eq!(state.features(), ThreadProfilingFeatures::MARKERS);
        state.set(other, ThreadProfilingFeatures::SAMPLING);
        assert!(!state.has_entries());
        state.note_entry();
        assert_eq!(state.features(), ThreadProfilingFeatures::SAMPLING);
        state.clear();
        // A marker that began in the ended session.
        state.note_entry();
        assert_eq!(state.begin_entry(ThreadProfilingFeatures::ANY), None);
    }
}
