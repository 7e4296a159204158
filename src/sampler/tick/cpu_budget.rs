//! Keeps the sampler's CPU time within the share of a processor that the session allows.

use crate::types::TimeStamp;

/// Time whose share the sampler may save up, and may owe, in ns.
const WINDOW_NS: f64 = 1e9;
/// Number of ticks over which the cost of a tick is averaged.
const AVERAGED_TICKS: f64 = 32.0;

/// The CPU time that the sampler may use.
///
/// The distance between two ticks follows from the mean cost of the last ones. If it followed from
/// the last tick alone, the time after an expensive tick would be longer. What threads do at
/// expensive ticks would then count for too much.
#[derive(Debug)]
pub(crate) struct CpuBudget {
    /// CPU time for each nanosecond that passes, in ns; `None` without a limit.
    share: Option<f64>,
    /// CPU time that is left, in ns; negative if the sampler has used more than it may.
    left_ns: f64,
    /// Mean cost of a tick, in ns.
    mean_ns: Option<f64>,
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
            mean_ns: None,
            charged: None,
        }
    }

    /// Charges the CPU time since the last call, and returns the time before which no tick is to be
    /// taken. The tick began at `time`, and `own_ns` is all CPU time so far. The first tick costs
    /// nothing: its caches are empty.
    ///
    /// With a full credit, no tick is delayed. Without credit or debt, the distance is such that the
    /// ticks cost their share. With the largest debt, it is twice that.
    pub(crate) fn charge(&mut self, time: TimeStamp, own_ns: u64) -> TimeStamp {
        let last = self.charged.replace(Charged { at: time, own_ns });
        let (Some(share), Some(last)) = (self.share, last) else {
            return time;
        };
        let earned_ns = time.since_ns(last.at) as f64 * share;
        let used_ns = own_ns.saturating_sub(last.own_ns) as f64;
        let window_ns = share * WINDOW_NS;
        self.left_ns = (self.left_ns + earned_ns - used_ns).clamp(-window_ns, window_ns);
        let mean_ns = self.mean_ns.unwrap_or(used_ns);
        let mean_ns = mean_ns + (used_ns - mean_ns) / AVERAGED_TICKS;
        self.mean_ns = Some(mean_ns);
        let distance_ns = (1.0 - self.left_ns / window_ns) * mean_ns / share;
        time.plus_ns(distance_ns.min(WINDOW_NS) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    /// Runs ticks, each with its cost in ns, and returns the time from each to the next one.
    fn gaps_ns(
        budget: &mut CpuBudget,
        costs_ns: impl IntoIterator<Item = u64>,
        interval_ns: u64,
    ) -> Vec<u64> {
        let (mut now, mut own_ns) = (TimeStamp(SECOND_NS), 0);
        let gap_ns = |cost_ns| {
            own_ns += cost_ns;
            let allowed = budget.charge(now, own_ns);
            let gap_ns = allowed.since_ns(now).max(interval_ns);
            now = now.plus_ns(gap_ns);
            gap_ns
        };
        costs_ns.into_iter().map(gap_ns).collect()
    }

    #[test]
    fn ticks_within_the_share_are_never_delayed() {
        let mut budget = CpuBudget::new(Some(10_000));
        let gaps = gaps_ns(&mut budget, [9_999; 5_000], MS);
        assert!(gaps.iter().all(|gap_ns| *gap_ns == MS));
        let mut unlimited = CpuBudget::new(None);
        let gaps = gaps_ns(&mut unlimited, [SECOND_NS; 10], 1);
        assert!(gaps.iter().all(|gap_ns| *gap_ns == 1));
    }

    #[test]
    fn expensive_ticks_keep_to_the_share() {
        // A tick of 50 µs may be taken each 5 ms, after the credit of 10 ms is used.
        let mut budget = CpuBudget::new(Some(10_000));
        let gaps = gaps_ns(&mut budget, [50_000; 20_000], MS);
        assert_eq!(gaps[0], MS);
        let late: u64 = gaps[10_000..].iter().sum();
        assert!(late.abs_diff(10_000 * 5 * MS) < 10_000 * MS / 20, "{late}");
        let time_ns: u64 = gaps.iter().sum();
        let (used_ns, credit_ns) = (20_000.0 * 50_000.0, 10e6);
        assert!(used_ns <= time_ns as f64 * 0.01 + credit_ns + 50_000.0);
    }

    #[test]
    fn time_after_a_tick_hardly_depends_on_its_cost() {
        let mut budget = CpuBudget::new(Some(10_000));
        // In no order that the mean could follow.
        let mut state = 1_u64;
        let costs: Vec<u64> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            [20_000, 200_000][(state >> 40) as usize & 1]
        })
        .take(40_000)
        .collect();
        let gaps = gaps_ns(&mut budget, costs.iter().copied(), MS);
        let after = |cost_ns: u64| {
            let all = costs.iter().zip(&gaps).skip(10_000);
            let after: Vec<u64> = all
                .filter(|(cost, _)| **cost == cost_ns)
                .map(|(_, gap_ns)| *gap_ns)
                .collect();
            after.iter().sum::<u64>() as f64 / after.len() as f64
        };
        let (cheap, expensive) = (after(20_000), after(200_000));
        assert!(
            (expensive / cheap - 1.0).abs() < 0.1,
            "{cheap} and {expensive}"
        );
    }

    #[test]
    fn no_tick_is_delayed_by_more_than_a_second() {
        let mut budget = CpuBudget::new(Some(100));
        let gaps = gaps_ns(&mut budget, [60 * SECOND_NS; 20], MS);
        assert_eq!(gaps[0], MS, "the first tick is not charged");
        assert!(
            gaps[1..].iter().all(|gap_ns| *gap_ns == SECOND_NS),
            "{gaps:?}"
        );
    }
}
