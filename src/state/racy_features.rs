//! What anybody may ask at any time: one relaxed load, which may be out of date at once.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::Features;

const ACTIVE: u32 = 1 << 31;

static ACTIVE_AND_FEATURES: AtomicU32 = AtomicU32::new(0);

/// Whether the profiler is active, and with which features.
#[derive(Debug)]
pub(crate) struct RacyFeatures;

impl RacyFeatures {
    pub(crate) fn set_active(features: Features) {
        ACTIVE_AND_FEATURES.store(features.bits() | ACTIVE, Ordering::Relaxed);
    }

    pub(crate) fn set_inactive() {
        ACTIVE_AND_FEATURES.store(0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_active() -> bool {
        ACTIVE_AND_FEATURES.load(Ordering::Relaxed) & ACTIVE != 0
    }
}
