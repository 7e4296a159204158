//! Times one statement, in a loop that repeats it eight times per round.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

/// Repetitions of the statement in one round of the loop.
pub(crate) const PER_ROUND: u32 = 8;

/// Returns the nanoseconds that one statement takes in its own scope, as the mean of `rounds`
/// rounds with eight repetitions each. An opaque `black_box` follows each repetition, so that the
/// compiler neither removes nor merges repetitions. The figure includes the loop.
macro_rules! batch {
    ($rounds:expr, $scope:stmt) => {{
        let rounds: u32 = $rounds;
        let start = ::std::time::Instant::now();
        for _ in 0..::std::hint::black_box(rounds) {
            $crate::batch::batch!(@four $scope);
            $crate::batch::batch!(@four $scope);
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds * $crate::batch::PER_ROUND)
    }};
    (@four $scope:stmt) => {
        $crate::batch::batch!(@one $scope);
        $crate::batch::batch!(@one $scope);
        $crate::batch::batch!(@one $scope);
        $crate::batch::batch!(@one $scope);
    };
    (@one $scope:stmt) => {{
        $scope
        ::std::hint::black_box(());
    }};
}
pub(crate) use batch;

/// Returns the nanoseconds of a relaxed load. The compiler cannot know the loaded value, nor that
/// it never changes.
#[inline(never)]
pub(crate) fn relaxed_load(rounds: u32) -> f64 {
    static LOADED: AtomicU32 = AtomicU32::new(0);
    let loaded = black_box(&LOADED);
    batch!(rounds, let _ = black_box(loaded.load(Ordering::Relaxed)))
}
