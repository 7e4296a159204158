//! When the sampler wakes: the schedule of its ticks, the budget of CPU time that leaves some of them
//! out, and whether those that were taken are evenly spaced.

use crate::sampler::encode::Tick;
use crate::types::TimeStamp;
use crate::util::random_below;

/// Ticks of the schedule that are left out before the next one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LeftOut {
    /// Those that the sampler was too late for.
    pub(crate) missed: u64,
    /// Those that its CPU time does not allow. The samples before them count for them, too.
    pub(crate) skipped: u64,
}

/// The schedule of the ticks. There is one in each interval, at a random place, so that the ticks are not
/// in step with a program that works at even times.
pub(crate) struct Schedule {
    /// When the next tick is due.
    pub(crate) next: TimeStamp,
    /// Start of the interval of that tick.
    start: TimeStamp,
    interval_ns: u64,
    /// State of the random numbers.
    random: u64,
}

impl Schedule {
    /// Starts a schedule whose first tick is at `first`.
    pub(crate) fn new(first: TimeStamp, interval_ns: u64) -> Self {
        Self {
            next: first,
            start: first,
            interval_ns,
            random: first.0,
        }
    }

    /// Advances to the next tick after `now` that is not before `allowed`, and returns the ticks that
    /// are left out. After a tick that used more CPU time than one interval, the sampler leaves the
    /// application at least the same time before the next tick.
    pub(crate) fn advance(&mut self, now: TimeStamp, used_ns: u64, allowed: TimeStamp) -> LeftOut {
        let reserved_ns = match used_ns > self.interval_ns {
            true => used_ns,
            false => 0,
        };
        let earliest = now.plus_ns(reserved_ns);
        let missed = self.pass_intervals(1, earliest);
        let skipped = self.pass_intervals(0, allowed);
        let offset_ns = random_below(&mut self.random, self.interval_ns);
        self.next = self.start.plus_ns(offset_ns).max(earliest).max(allowed);
        LeftOut { missed, skipped }
    }

    /// Advances by `count` intervals, and by the further intervals that have ended at `time`.
    /// Returns the number of these further intervals.
    fn pass_intervals(&mut self, count: u64, time: TimeStamp) -> u64 {
        self.start = self.start.plus_ns(count * self.interval_ns);
        let ended = time.since_ns(self.start) / self.interval_ns;
        self.start = self.start.plus_ns(ended * self.interval_ns);
        ended
    }
}

/// Time whose share the sampler may save up, and may owe, in ns.
const WINDOW_NS: f64 = 1e9;
/// Number of ticks over which the cost of a tick is averaged.
const AVERAGED_TICKS: f64 = 32.0;

/// The CPU time that the sampler may use: the share of a processor that the session allows.
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
    /// When it was last charged, and all CPU time up to then, in ns.
    charged: Option<(TimeStamp, u64)>,
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
        let last = self.charged.replace((time, own_ns));
        let (Some(share), Some((charged_at, before_ns))) = (self.share, last) else {
            return time;
        };
        let earned_ns = time.since_ns(charged_at) as f64 * share;
        let used_ns = own_ns.saturating_sub(before_ns) as f64;
        let window_ns = share * WINDOW_NS;
        self.left_ns = (self.left_ns + earned_ns - used_ns).clamp(-window_ns, window_ns);
        let mean_ns = self.mean_ns.unwrap_or(used_ns);
        let mean_ns = mean_ns + (used_ns - mean_ns) / AVERAGED_TICKS;
        self.mean_ns = Some(mean_ns);
        let distance_ns = (1.0 - self.left_ns / window_ns) * mean_ns / share;
        time.plus_ns(distance_ns.min(WINDOW_NS) as u64)
    }
}

/// Maximum difference between the time of a tick and that on an even schedule, in intervals. With
/// less, the threads would have many short runs on a busy machine, which misses ticks now and then.
/// If it misses ticks regularly, they are even.
const TOLERANCE_INTERVALS: u64 = 4;
/// Minimum of that difference, in ns. A short interval is no longer than the delays with which any
/// system wakes a thread.
const MIN_TOLERANCE_NS: u64 = 2_000_000;

/// Ticks that are evenly spaced so far: each is near the straight line from the first to the last. So
/// the samples of an idle thread have the times of their ticks.
///
/// A run of idle samples is one entry, which holds the times of the first and the last of them. The
/// others are taken as evenly spaced, but ticks are not: the sampler may be kept from them for
/// seconds. Rows would then appear within that time, in which no tick looked at the thread. The
/// thread may even have run by then: the few ticks until the sampler notices that would show it
/// asleep for a good part of the time. So the sampler writes an entry for the tick that makes them
/// uneven, and the reader divides the runs there. A gap straight after another one is noted a tick
/// late: two ticks have no spacing to compare it with.
#[derive(Debug)]
pub(crate) struct EvenTicks {
    interval_ns: u64,
    tolerance_ns: f64,
    first: Tick,
    /// Bounds of the spacing of a line that is near all ticks so far, in ns.
    min_spacing_ns: f64,
    max_spacing_ns: f64,
}

impl EvenTicks {
    pub(crate) fn new(first: Tick, interval_ns: u64) -> Self {
        let tolerance_ns = TOLERANCE_INTERVALS
            .saturating_mul(interval_ns)
            .max(MIN_TOLERANCE_NS);
        Self {
            interval_ns,
            tolerance_ns: tolerance_ns as f64,
            first,
            min_spacing_ns: 0.0,
            max_spacing_ns: f64::INFINITY,
        }
    }

    /// Adds the next tick. Returns false if the ticks would no longer be even. This tick is the
    /// first one then.
    pub(crate) fn add(&mut self, tick: Tick) -> bool {
        let number = (tick.number - self.first.number) as f64;
        let after_ns = tick.time.since_ns(self.first.time) as f64;
        let is_even = (self.min_spacing_ns..=self.max_spacing_ns).contains(&(after_ns / number));
        if is_even {
            let min_spacing_ns = (after_ns - self.tolerance_ns) / number;
            let max_spacing_ns = (after_ns + self.tolerance_ns) / number;
            self.min_spacing_ns = self.min_spacing_ns.max(min_spacing_ns);
            self.max_spacing_ns = self.max_spacing_ns.min(max_spacing_ns);
        } else {
            self.restart(tick);
        }
        is_even
    }

    /// Returns the number of the first one of these ticks.
    pub(crate) fn since(&self) -> u64 {
        self.first.number
    }

    /// Returns the last tick of the schedule before `tick`, which is the latest tick: either
    /// `before`, the last tick that was taken, or the last tick that was left out in between.
    /// Left-out ticks came on time if the sampler was kept from its ticks.
    pub(crate) fn last_before(&self, tick: Tick, before: Tick) -> Tick {
        let max_spacing_ns = match self.first == tick {
            true => self.interval_ns,
            false => u64::MAX,
        };
        before.last_before(tick, max_spacing_ns)
    }

    /// Begins again with this tick as the first one.
    pub(crate) fn restart(&mut self, first: Tick) {
        (self.first, self.min_spacing_ns, self.max_spacing_ns) = (first, 0.0, f64::INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> Schedule {
        Schedule::new(TimeStamp(1000), 100)
    }

    /// Advances, and returns the ticks that are left out, and the start of the next tick's interval. The
    /// tick is within the interval, and not before the others.
    fn advance(schedule: &mut Schedule, now: u64, used_ns: u64, allowed: u64) -> [u64; 3] {
        let LeftOut { missed, skipped } =
            schedule.advance(TimeStamp(now), used_ns, TimeStamp(allowed));
        let (start, next) = (schedule.start.0, schedule.next.0);
        assert!((start..start + 100).contains(&next) && next >= now.max(allowed));
        [missed, skipped, start]
    }

    #[test]
    fn each_interval_has_a_tick_and_missed_ones_are_counted_once() {
        let mut schedule = schedule();
        let mut advance = |now, used_ns| advance(&mut schedule, now, used_ns, 0);
        assert_eq!(advance(1030, 30), [0, 0, 1100]);
        assert_eq!(advance(1199, 99), [0, 0, 1200]);
        // Late, but within the next interval.
        assert_eq!(advance(1350, 30), [0, 0, 1300]);
        assert_eq!(advance(1730, 30), [3, 0, 1700]);
    }

    #[test]
    fn overloaded_sampler_leaves_half_of_a_processor() {
        let mut schedule = schedule();
        assert_eq!(advance(&mut schedule, 1250, 250, 0), [4, 0, 1500]);
        assert!(schedule.next.0 >= 1500);
        // The sampler was delayed.
        assert_eq!(advance(&mut schedule, 1850, 90, 0), [2, 0, 1800]);
    }

    #[test]
    fn ticks_before_the_allowed_time_are_skipped() {
        let mut schedule = schedule();
        let mut advance = |now, allowed| advance(&mut schedule, now, 10, allowed);
        assert_eq!(advance(1010, 1100), [0, 0, 1100]);
        assert_eq!(advance(1110, 1301), [0, 1, 1300]);
        assert_eq!(advance(1310, 1900), [0, 5, 1900]);
        assert_eq!(
            advance(2150, 2301),
            [1, 2, 2300],
            "late, and then not allowed"
        );
    }

    #[test]
    fn ticks_are_everywhere_within_their_intervals() {
        let mut schedule = schedule();
        let mut tenths = [0; 10];
        for interval in 1..=10_000 {
            advance(&mut schedule, 1000 + (interval - 1) * 100, 10, 0);
            tenths[(schedule.next.0 - schedule.start.0) as usize / 10] += 1;
        }
        assert!(
            tenths.iter().all(|count| (800..1200).contains(count)),
            "{tenths:?}"
        );
    }

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

    const NONE: [u64; 0] = [];

    /// Adds ticks at these times, in ms, and returns the times of the ticks that begin a series.
    fn first_ones(times_ms: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let tick = |(number, ms)| Tick {
            number,
            time: TimeStamp(ms * MS),
        };
        let mut even = EvenTicks::new(tick((0, 0)), MS);
        let uneven = |&(number, ms): &(u64, u64)| !even.add(tick((number, ms)));
        let numbered = (1..).zip(times_ms);
        numbered.filter(uneven).map(|(_, ms)| ms).collect()
    }

    #[test]
    fn ticks_are_uneven_after_a_gap() {
        assert_eq!(first_ones((1..1000).chain(1003..2000)), NONE);
        assert_eq!(first_ones((1..1000).chain(1500..2000)), [1500]);
        assert_eq!(first_ones([1, 2, 3, 1000, 1001, 1002]), [1000]);
        // A gap after a single tick is taken for the spacing until the next tick.
        assert_eq!(first_ones([1000, 1001, 1002]), [1001]);
    }

    #[test]
    fn regularly_missed_ticks_are_even() {
        assert_eq!(first_ones((1..1000).map(|number| number * 3)), NONE);
        assert_eq!(
            first_ones((1..1000).map(|number| number + number / 7)),
            NONE
        );
        let slower = (1..1000).chain((1..500).map(|number| 1000 + 4 * number));
        assert!(!first_ones(slower).is_empty());
    }

    #[test]
    fn even_ticks_are_near_their_even_spacing() {
        // The gaps have no pattern.
        let mut state = 1_u32;
        let mut time_ms = 0;
        let times: Vec<u64> = (0..10_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                time_ms += 1 + u64::from(state >> 24 > 240) * u64::from(state >> 16 & 15);
                time_ms
            })
            .collect();
        let first_ones = first_ones(times.iter().copied());
        assert!((20..1000).contains(&first_ones.len()), "{first_ones:?}");
        for part in times.chunk_by(|_, next| !first_ones.contains(next)).skip(1) {
            let gaps = (part.len() - 1).max(1) as f64;
            let spacing = (part[part.len() - 1] - part[0]) as f64 / gaps;
            for (number, &ms) in part.iter().enumerate() {
                let difference = (part[0] as f64 + spacing * number as f64 - ms as f64).abs();
                assert!(difference <= TOLERANCE_INTERVALS as f64 + 1e-6, "{part:?}");
            }
        }
    }
}
