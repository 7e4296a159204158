//! The profiler state that any thread can read with one relaxed load. The state may change right
//! after the load.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::labels::call_closed_stack_hook;
use crate::platform::monotonic_now;
use crate::types::{Features, TimeStamp};
use crate::util::PsLock;

const ACTIVE: u64 = 1 << 31;
const PAUSED: u64 = 1 << 30;
const SAMPLING_PAUSED: u64 = 1 << 29;
const STATE_BITS: u64 = ACTIVE | PAUSED | SAMPLING_PAUSED;
/// Number of bits for the states and the features. The count is above them.
const LOW_BITS: u32 = 40;

const _: () = assert!(
    Features::ALL.bits() & STATE_BITS == 0 && Features::ALL.bits() >> LOW_BITS == 0,
    "features and states share a word"
);

static STATE: StateWord = StateWord(AtomicU64::new(0));

/// The two kinds of pause. They are independent of each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PauseKind {
    /// Pauses samples and markers.
    All,
    /// Pauses samples; markers are still recorded.
    Sampling,
}

impl PauseKind {
    const fn bit(self) -> u64 {
        match self {
            Self::All => PAUSED,
            Self::Sampling => SAMPLING_PAUSED,
        }
    }
}

/// State of the profiler in one word. The lower bits hold the states and the features, or 0 while
/// the profiler is inactive. The upper bits count the starts and pauses of recording, so that two
/// reads also detect a pause that began and ended in between. The word changes under the `PsLock`,
/// or in the child of a fork.
#[derive(Debug)]
struct StateWord(AtomicU64);

impl StateWord {
    fn change(&self, counts: bool, to: impl Fn(u64) -> u64) {
        let before = self.0.load(Ordering::Relaxed);
        let count = (before >> LOW_BITS).wrapping_add(counts.into());
        // Sequentially consistent, like the load in `still_records`: the change does not wait in
        // this processor's store buffer. That does not order reads of the clock, hence
        // `let_other_processors_finish`.
        self.0
            .swap(count << LOW_BITS | to(low_of(before)), Ordering::SeqCst);
    }

    fn set_active(&self, features: Features) {
        self.change(true, |_| features.bits() & !STATE_BITS | ACTIVE);
    }

    fn set_inactive(&self) {
        self.change(false, |_| 0);
    }

    fn set_paused(
        &self,
        kind: PauseKind,
        paused: bool,
        clock: impl FnOnce() -> TimeStamp,
    ) -> TimeStamp {
        let (bit, is_counted) = (kind.bit(), kind == PauseKind::All);
        if paused {
            self.change(is_counted, |low| low | bit);
            let_other_processors_finish();
            clock()
        } else {
            let now = clock();
            let_other_processors_finish();
            self.change(false, |low| low & !bit);
            now
        }
    }

    #[inline]
    fn states_and_features(&self) -> u64 {
        low_of(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    fn recording(&self) -> Option<Recording> {
        // Acquire: the caller reads the clock after this load, not before.
        let word = self.0.load(Ordering::Acquire);
        (word & (ACTIVE | PAUSED) == ACTIVE).then(|| Recording::from_word(word))
    }

    #[inline]
    fn still_records(&self, since: Recording) -> bool {
        Recording::from_word(self.0.load(Ordering::SeqCst)) == since
    }
}

const fn low_of(word: u64) -> u64 {
    word & ((1 << LOW_BITS) - 1)
}

/// Waits until reads of the clock and of this word on other processors can no longer appear in
/// another order than in the program. Whatever that order is, a processor may read its clock some
/// hundred nanoseconds before or after it reads a word in memory. It may also see a change of the
/// word that much later.
fn let_other_processors_finish() {
    const MAX_REORDERING_NS: u64 = 1_000;
    let begin = monotonic_now();
    while monotonic_now().since_ns(begin) < MAX_REORDERING_NS {
        std::hint::spin_loop();
    }
}

/// A period in which markers are recorded without a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recording(u64);

impl Recording {
    /// Ignores pauses of sampling, which do not end the period.
    const fn from_word(word: u64) -> Self {
        Self(word & !SAMPLING_PAUSED)
    }
}

/// Whether the profiler is active or paused, and its features.
#[doc(alias = "sActiveAndFeatures")]
#[derive(Debug)]
pub(crate) struct RacyFeatures;

impl RacyFeatures {
    pub(crate) fn set_active(features: Features, _lock: &PsLock) {
        STATE.set_active(features);
        call_closed_stack_hook(!features.contains(Features::NO_UNREGISTERED_SAMPLING));
    }

    pub(crate) fn set_inactive(_lock: &PsLock) {
        Self::set_inactive_in_child();
    }

    /// Sets the profiler inactive in the child of a fork. Takes no lock: no other thread exists,
    /// and the calling thread may be exiting.
    pub(crate) fn set_inactive_in_child() {
        call_closed_stack_hook(false);
        STATE.set_inactive();
    }

    /// Pauses or resumes, and returns the time of the change. The clock is read within the pause,
    /// both at its start and at its end. So a thread that reads the clock while the
    /// profiler is not paused gets a time outside the pause. Called only while the profiler is
    /// active.
    pub(crate) fn set_paused(kind: PauseKind, paused: bool, _lock: &PsLock) -> TimeStamp {
        STATE.set_paused(kind, paused, monotonic_now)
    }

    #[inline]
    pub(crate) fn is_active() -> bool {
        Self::load() & ACTIVE != 0
    }

    #[inline]
    pub(crate) fn is_active_and_unpaused() -> bool {
        Self::load() & (ACTIVE | PAUSED) == ACTIVE
    }

    /// Returns whether samples and markers are paused. False while the profiler is inactive.
    #[inline]
    pub(crate) fn is_paused() -> bool {
        Self::load() & PAUSED != 0
    }

    /// Returns whether sampling is paused, by either kind of pause. False while the profiler is
    /// inactive.
    #[inline]
    pub(crate) fn is_sampling_paused() -> bool {
        Self::load() & (PAUSED | SAMPLING_PAUSED) != 0
    }

    #[inline]
    pub(crate) fn features_if_active() -> Option<Features> {
        let word = Self::load();
        (word & ACTIVE != 0).then(|| Features::from_bits(word & !STATE_BITS))
    }

    #[inline]
    pub(crate) fn features_if_active_and_unpaused() -> Option<Features> {
        let word = Self::load();
        (word & (ACTIVE | PAUSED) == ACTIVE).then(|| Features::from_bits(word & !STATE_BITS))
    }

    /// Returns the current period if markers are recorded. The caller reads the clock afterwards.
    #[inline]
    pub(crate) fn recording() -> Option<Recording> {
        STATE.recording()
    }

    /// Returns whether markers were recorded without a pause since `since`. Called after the clock
    /// was read.
    #[inline]
    pub(crate) fn still_records(since: Recording) -> bool {
        STATE.still_records(since)
    }

    #[inline]
    fn load() -> u64 {
        STATE.states_and_features()
    }
}

#[cfg(test)]
mod tests {
    use super::PauseKind::{All, Sampling};
    use super::*;

    fn set_paused(word: &StateWord, kind: PauseKind, paused: bool) {
        let clock = || {
            let states = word.states_and_features();
            assert!(
                states & kind.bit() != 0,
                "the clock is read within the pause"
            );
            TimeStamp(states)
        };
        assert_ne!(word.set_paused(kind, paused, clock), TimeStamp(0));
    }

    #[test]
    fn still_records_detects_a_pause_but_not_one_of_sampling() {
        let word = StateWord(AtomicU64::new(0));
        assert_eq!(word.recording(), None);
        word.set_active(Features::CPU);
        let since = word.recording().expect("markers are recorded");
        set_paused(&word, Sampling, true);
        assert!(word.still_records(since));
        set_paused(&word, Sampling, false);
        assert!(word.still_records(since) && word.recording() == Some(since));
        set_paused(&word, All, true);
        assert!(!word.still_records(since) && word.recording().is_none());
        set_paused(&word, All, false);
        assert!(!word.still_records(since), "a pause began and ended");
        let since = word.recording().expect("markers are recorded");
        word.set_inactive();
        assert!(!word.still_records(since) && word.recording().is_none());
        assert_eq!(word.states_and_features(), 0);
        word.set_active(Features::CPU);
        assert!(!word.still_records(since), "another session");
        assert_eq!(word.states_and_features(), ACTIVE | Features::CPU.bits());
    }
}
