//! What anybody may ask at any time: one relaxed load, which may be out of date at once.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Features, PsLock, TimeStamp};
use crate::platform::monotonic_now;

const ACTIVE: u32 = 1 << 31;
const PAUSED: u32 = 1 << 30;
const SAMPLING_PAUSED: u32 = 1 << 29;
const STATE_BITS: u32 = ACTIVE | PAUSED | SAMPLING_PAUSED;

const _: () = assert!(
    Features::JS_SOURCES.bits() & STATE_BITS == 0,
    "features and states share a word"
);

static THE_WORD: Word = Word(AtomicU64::new(0));

/// The two ways to pause. They are independent of each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PauseKind {
    /// Neither samples nor markers.
    All,
    /// No samples; markers go on.
    Sampling,
}

impl PauseKind {
    const fn bit(self) -> u32 {
        match self {
            Self::All => PAUSED,
            Self::Sampling => SAMPLING_PAUSED,
        }
    }
}

/// In the lower half states and features, 0 while the profiler is not active; in the upper one how often recording has begun
/// or been paused, so that who looks twice also sees a pause that began and ended between. Changed under the `PsLock`.
#[derive(Debug)]
struct Word(AtomicU64);

impl Word {
    fn change(&self, raises: bool, to: impl Fn(u32) -> u32) {
        let before = self.0.load(Ordering::Relaxed);
        let number = (before >> 32).wrapping_add(raises.into());
        // Sequentially consistent: whoever reads the clock after this pauses later than who saw the state before.
        self.0.swap(
            number << 32 | u64::from(to(before as u32)),
            Ordering::SeqCst,
        );
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
            clock()
        } else {
            let now = clock();
            self.change(false, |low| low & !bit);
            now
        }
    }

    #[inline]
    fn states_and_features(&self) -> u32 {
        self.0.load(Ordering::Relaxed) as u32
    }

    #[inline]
    fn recording(&self) -> Option<Recording> {
        // Acquire: the clock is read after this, not before.
        let word = self.0.load(Ordering::Acquire);
        (word as u32 & (ACTIVE | PAUSED) == ACTIVE).then(|| Recording::of(word))
    }

    #[inline]
    fn still_records(&self, since: Recording) -> bool {
        Recording::of(self.0.load(Ordering::SeqCst)) == since
    }
}

/// A time in which markers are recorded, without a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recording(u64);

impl Recording {
    /// A pause of the sampling does not end it.
    const fn of(word: u64) -> Self {
        Self(word & !(SAMPLING_PAUSED as u64))
    }
}

/// Whether the profiler is active, whether it pauses, and with which features it runs.
#[doc(alias = "sActiveAndFeatures")]
#[derive(Debug)]
pub(crate) struct RacyFeatures;

impl RacyFeatures {
    pub(crate) fn set_active(features: Features, _lock: &PsLock) {
        THE_WORD.set_active(features);
    }

    pub(crate) fn set_inactive(_lock: &PsLock) {
        Self::set_inactive_in_child();
    }

    /// In the child of a fork, where no other thread is: also on one that is ending, and has no lock.
    pub(crate) fn set_inactive_in_child() {
        THE_WORD.set_inactive();
    }

    /// Pauses so, or goes on, and gives the time of that. At both ends it is read within the pause, so that who reads the
    /// clock outside finds a time outside. While the profiler is active.
    pub(crate) fn set_paused(kind: PauseKind, paused: bool, _lock: &PsLock) -> TimeStamp {
        THE_WORD.set_paused(kind, paused, monotonic_now)
    }

    #[inline]
    pub(crate) fn is_active() -> bool {
        Self::load() & ACTIVE != 0
    }

    #[inline]
    pub(crate) fn is_active_and_unpaused() -> bool {
        Self::load() & (ACTIVE | PAUSED) == ACTIVE
    }

    /// False when the profiler is not active.
    #[inline]
    pub(crate) fn is_paused() -> bool {
        Self::load() & PAUSED != 0
    }

    /// Whether no samples are taken, by either way to pause. False when the profiler is not active.
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

    /// If markers are recorded: since when. For who reads the clock next.
    #[inline]
    pub(crate) fn recording() -> Option<Recording> {
        THE_WORD.recording()
    }

    /// Whether they have been recorded all the time since; asked after the clock was read.
    #[inline]
    pub(crate) fn still_records(since: Recording) -> bool {
        THE_WORD.still_records(since)
    }

    #[inline]
    fn load() -> u32 {
        THE_WORD.states_and_features()
    }
}

#[cfg(test)]
mod tests {
    use super::PauseKind::{All, Sampling};
    use super::*;

    fn set_paused(word: &Word, kind: PauseKind, paused: bool) {
        let clock = || {
            let states = word.states_and_features();
            assert!(
                states & kind.bit() != 0,
                "the clock is read within the pause"
            );
            TimeStamp(u64::from(states))
        };
        assert_ne!(word.set_paused(kind, paused, clock), TimeStamp(0));
    }

    #[test]
    fn a_pause_between_two_looks_is_seen_and_one_of_the_sampling_does_not_matter() {
        let word = Word(AtomicU64::new(0));
        assert_eq!(word.recording(), None);
        word.set_active(Features::CPU);
        let since = word.recording().expect("it records");
        set_paused(&word, Sampling, true);
        assert!(word.still_records(since));
        set_paused(&word, Sampling, false);
        assert!(word.still_records(since) && word.recording() == Some(since));
        set_paused(&word, All, true);
        assert!(!word.still_records(since) && word.recording().is_none());
        set_paused(&word, All, false);
        assert!(!word.still_records(since), "a whole pause");
        let since = word.recording().expect("it records");
        word.set_inactive();
        assert!(!word.still_records(since) && word.recording().is_none());
        assert_eq!(word.states_and_features(), 0);
        word.set_active(Features::CPU);
        assert!(!word.still_records(since), "another session");
        assert_eq!(word.states_and_features(), ACTIVE | Features::CPU.bits());
    }
}
