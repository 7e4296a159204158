//! What anybody may ask at any time: one relaxed load, which may be out of date at once.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::Features;

const ACTIVE: u32 = 1 << 31;
const PAUSED: u32 = 1 << 30;
const SAMPLING_PAUSED: u32 = 1 << 29;
const STATE_BITS: u32 = ACTIVE | PAUSED | SAMPLING_PAUSED;

const _: () = assert!(Features::JS_SOURCES.bits() & STATE_BITS == 0, "features and states share a word");

/// Changed under the `PsLock` alone. 0 while the profiler is not active.
static ACTIVE_AND_FEATURES: AtomicU32 = AtomicU32::new(0);

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

/// Whether the profiler is active, whether it pauses, and with which features it runs.
#[doc(alias = "sActiveAndFeatures")]
#[derive(Debug)]
pub(crate) struct RacyFeatures;

impl RacyFeatures {
    pub(crate) fn set_active(features: Features) {
        ACTIVE_AND_FEATURES.store(features.bits() & !STATE_BITS | ACTIVE, Ordering::Relaxed);
    }

    pub(crate) fn set_inactive() {
        ACTIVE_AND_FEATURES.store(0, Ordering::Relaxed);
    }

    /// Pauses so, or goes on; true when that is a change. Under the `PsLock`, while the profiler is active.
    pub(crate) fn set_paused(kind: PauseKind, paused: bool) -> bool {
        // Sequentially consistent: whoever reads the clock after this pauses later than who saw the state before.
        let before = match paused {
            true => ACTIVE_AND_FEATURES.fetch_or(kind.bit(), Ordering::SeqCst),
            false => ACTIVE_AND_FEATURES.fetch_and(!kind.bit(), Ordering::SeqCst),
        };
        (before & kind.bit() != 0) != paused
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

    /// Whether markers are still recorded, asked after the clock was read for one.
    #[inline]
    pub(crate) fn is_still_unpaused() -> bool {
        ACTIVE_AND_FEATURES.load(Ordering::SeqCst) & (ACTIVE | PAUSED) == ACTIVE
    }

    #[inline]
    fn load() -> u32 {
        ACTIVE_AND_FEATURES.load(Ordering::Relaxed)
    }
}
