//! The times at which the sampler wakes.

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
}
