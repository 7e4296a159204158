//! The time until the next attempt after one that failed.

use std::time::Duration;

use crate::platform::random_bytes;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Doubles the time with each failure, and adds up to a quarter at random, so that the processes of
/// a fleet do not all come back at the same moment.
#[derive(Default, Debug)]
pub(super) struct BackOff {
    failures: u32,
}

impl BackOff {
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the time to wait after one more failure. `asked` is the time that the server has asked
    /// for.
    pub(super) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.failures.min(6));
        self.failures = self.failures.saturating_add(1);
        let wait = doubled
            .min(LONGEST)
            .max(asked.unwrap_or_default().min(LONGEST));
        // Without a part at random before the kernel has gathered randomness.
        let random = random_bytes().map_or(0, u16::from_ne_bytes);
        wait + (wait / 4).mul_f64(f64::from(random) / 65536.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_doubles_to_a_minute_with_a_random_part() {
        let mut back_off = BackOff::default();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let least = Duration::from_secs(seconds);
            let wait = back_off.next(None);
            assert!((least..=least * 5 / 4).contains(&wait), "{wait:?}");
        }
        back_off.reset();
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert!(back_off.next(asked(9)) >= Duration::from_secs(9));
        assert!(back_off.next(asked(9999)) <= Duration::from_secs(75));
        let waits: Vec<_> = (0..8).map(|_| back_off.next(asked(60))).collect();
        assert!(waits.windows(2).any(|pair| pair[0] != pair[1]), "{waits:?}");
    }
}
