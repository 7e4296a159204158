//! Keeps the sampler's CPU time within the share of a processor that the session allows.

use crate::types::TimeStamp;

/// Time whose share the sampler may save up, and may owe, in ns. The sampler can so use a second's
/// share at once, and takes at least one tick a second.
const WINDOW_NS: f64 = 1e9;

/// The CPU time that the sampler may use.
#[derive(Debug)]
pub(crate) struct CpuBudget {
    /// CPU time for each nanosecond that passes, in ns; `None` without a limit.
    share: Option<f64>,
    /// CPU time that is left, in ns; negative if the sampler has used more than it may.
    left_ns: f64,
    charged: Option<Charged>,
}

/// The last charge.
#[derive(Clone, Copy, Debug)]
struct Charged {
    at: TimeStamp,
    /// All CPU time up to then, in ns.
    own_ns: u64,
}

impl CpuBudget {
    /// Returns the budget of a session that allows so many millionths of a processor.
    pub(crate) fn new(max_cpu_ppm: Option<u64>) -> Self {
        let share = max_cpu_ppm.map(|ppm| ppm as f64 / 1e6);
        Self {
            share,
            left_ns: share.unwrap_or(0.0) * WINDOW_NS,
            charged: None,
        }
    }

    /// Charges the CPU time since the last call, and returns the time before which no tick is to be
    /// taken. `own_ns` is all CPU time so far. The first tick costs nothing: its caches are empty.
    pub(crate) fn charge(&mut self, now: TimeStamp, own_ns: u64) -> TimeStamp {
        let (Some(share), last) = (
            self.share,
            self.charged.replace(Charged { at: now, own_ns }),
        ) else {
            return now;
        };
        let Some(last) = last else {
            return now;
        };
        let earned_ns = now.since_ns(last.at) as f64 * share;
        let used_ns = own_ns.saturating_sub(last.own_ns) as f64;
        let window_ns = share * WINDOW_NS;
        self.left_ns = ((self.left_ns + earned_ns).min(window_ns) - used_ns).max(-window_ns);
        now.plus_ns((-self.left_ns / share).max(0.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Runs ticks that cost `cost_ns` each, and returns the times that lie between them.
    fn gaps_ns(budget: &mut CpuBudget, cost_ns: u64, ticks: usize, interval_ns: u64) -> Vec<u64> {
        let (mut now, mut own_ns) = (TimeStamp(SECOND_NS), 0);
        let mut gap_ns = || {
            own_ns += cost_ns;
            let allowed = budget.charge(now, own_ns);
            let gap_ns = allowed.since_ns(now).max(interval_ns);
            now = now.plus_ns(gap_ns);
            gap_ns
        };
        (0..ticks).map(|_| gap_ns()).collect()
    }

    #[test]
    fn ticks_within_the_share_are_never_delayed() {
        let mut budget = CpuBudget::new(Some(10_000));
        let gaps = gaps_ns(&mut budget, 9_999, 5_000, 1_000_000);
        assert!(gaps.iter().all(|gap_ns| *gap_ns == 1_000_000));
        let mut unlimited = CpuBudget::new(None);
        let gaps = gaps_ns(&mut unlimited, SECOND_NS, 10, 1);
        assert!(gaps.iter().all(|gap_ns| *gap_ns == 1));
    }

    #[test]
    fn expensive_ticks_are_spread_until_they_are_within_the_share() {
        // A tick of 50 µs may be taken each 5 ms, after the credit of 10 ms is used.
        let mut budget = CpuBudget::new(Some(10_000));
        let gaps = gaps_ns(&mut budget, 50_000, 2_000, 1_000_000);
        assert_eq!(gaps[0], 1_000_000);
        let late = &gaps[1_000..];
        assert!(
            late.iter().all(|gap_ns| gap_ns.abs_diff(5_000_000) <= 1),
            "{late:?}"
        );
        let time_ns: u64 = gaps.iter().sum();
        let (used_ns, credit_ns) = (2_000.0 * 50_000.0, 10e6);
        assert!(used_ns <= time_ns as f64 * 0.01 + credit_ns + 50_000.0);
    }

    #[test]
    fn no_tick_is_delayed_by_more_than_a_second() {
        let mut budget = CpuBudget::new(Some(100));
        let gaps = gaps_ns(&mut budget, 60 * SECOND_NS, 20, 1_000_000);
        assert_eq!(gaps[0], 1_000_000, "the first tick is not charged");
        assert!(
            gaps[1..].iter().all(|gap_ns| *gap_ns == SECOND_NS),
            "{gaps:?}"
        );
    }
}
