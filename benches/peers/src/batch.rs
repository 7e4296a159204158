//! A loop of the same statement, eight times in a row, and the time of one.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

/// So often a statement stands in a round of the loop.
pub(crate) const A_ROUND: u32 = 8;

/// Nanoseconds of a statement in a scope of its own: of `rounds` rounds of eight in a row, each with something behind the statement
/// that the compiler cannot look into, so that none is left out or joined with the next. The loop is in the figure.
macro_rules! batch {
    ($rounds:expr, $scope:stmt) => {{
        let rounds: u32 = $rounds;
        let start = ::std::time::Instant::now();
        for _ in 0..::std::hint::black_box(rounds) {
            $crate::batch::batch!(@four $scope);
            $crate::batch::batch!(@four $scope);
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds * $crate::batch::A_ROUND)
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

/// What a relaxed load takes. The compiler cannot know what is loaded, or that nobody writes there.
#[inline(never)]
pub(crate) fn relaxed_load(rounds: u32) -> f64 {
    static LOADED: AtomicU32 = AtomicU32::new(0);
    let loaded = black_box(&LOADED);
    batch!(rounds, let _ = black_box(loaded.load(Ordering::Relaxed)))
}

/// What the loop takes alone.
#[inline(never)]
pub(crate) fn empty(rounds: u32) -> f64 {
    batch!(rounds, let _ = ())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    #[test]
    fn a_batch_is_the_time_of_one_scope() {
        let start = Instant::now();
        let time = batch!(3, std::thread::sleep(Duration::from_millis(1)));
        let whole = start.elapsed().as_secs_f64() * 1e9;
        assert!((1e6..=whole / 24.0).contains(&time), "{time} of {whole}");
    }
}
