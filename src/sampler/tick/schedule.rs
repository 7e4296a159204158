//! The times at which the sampler wakes.

use crate::types::TimeStamp;

/// Ticks of the schedule that are left out before the next one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LeftOut {
    /// Those that the sampler was too late for.
    pub(crate) missed: u64,
    /// Those that its CPU time does not allow. The samples before them count for them, too.
    pub(crate) skipped: u64,
}

/// Maximum time between two collections, in ns, if threads keep their samples.
const COLLECTION_NS: u64 = 100_000_000;
/// Maximum number of ticks between two collections: so many slots a thread needs.
const MAX_COLLECTION_TICKS: u64 = 12;

/// The distances between collections, if threads keep their samples until then.
///
/// They vary, so that the sampler does not meet a program that works every 100 ms at the same point of
/// its work each time.
#[derive(Debug)]
pub(crate) struct Collections {
    max_ticks: u64,
    /// State of a linear congruential generator.
    random: u64,
}

impl Collections {
    pub(crate) fn new(interval_ns: u64, seed: u64) -> Self {
        Self {
            max_ticks: (COLLECTION_NS / interval_ns.max(1)).clamp(1, MAX_COLLECTION_TICKS),
            random: seed,
        }
    }

    /// Returns the maximum number of ticks from one collection to the next.
    pub(crate) fn max_ticks(&self) -> u64 {
        self.max_ticks
    }

    /// Returns how many ticks to leave out before the next collection.
    pub(crate) fn next_left_out(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let fewest = self.max_ticks.div_ceil(2);
        fewest + (self.random >> 33) % (self.max_ticks - fewest + 1) - 1
    }
}

/// The schedule of the ticks.
pub(crate) struct Schedule {
    pub(crate) next: TimeStamp,
    interval_ns: u64,
}

impl Schedule {
    /// Starts a schedule whose first tick is at `next`.
    pub(crate) fn new(next: TimeStamp, interval_ns: u64) -> Self {
        Self { next, interval_ns }
    }

    /// Advances to the next tick after `now` that is not before `allowed`, and returns the ticks that
    /// are left out. After a tick that used more CPU time than one interval, the sampler leaves the
    /// application at least the same time before the next tick.
    pub(crate) fn advance(&mut self, now: TimeStamp, used_ns: u64, allowed: TimeStamp) -> LeftOut {
        let reserved_ns = if used_ns > self.interval_ns {
            used_ns
        } else {
            0
        };
        let late_ns = now.plus_ns(reserved_ns).since_ns(self.next);
        let missed = late_ns / self.interval_ns;
        self.next = self.next.plus_ns((missed + 1) * self.interval_ns);
        let skipped = allowed.since_ns(self.next).div_ceil(self.interval_ns);
        self.next = self.next.plus_ns(skipped * self.interval_ns);
        LeftOut { missed, skipped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Advances a schedule without a limit of the CPU time.
    fn advance(schedule: &mut Schedule, now: u64, used_ns: u64) -> u64 {
        let left_out = schedule.advance(TimeStamp(now), used_ns, TimeStamp(now));
        assert_eq!(left_out.skipped, 0);
        left_out.missed
    }

    #[test]
    fn ticks_stay_on_schedule_and_missed_ticks_are_counted_once() {
        let mut schedule = Schedule {
            next: TimeStamp(1000),
            interval_ns: 100,
        };
        assert_eq!(
            (advance(&mut schedule, 1030, 30), schedule.next),
            (0, TimeStamp(1100))
        );
        assert_eq!(
            (advance(&mut schedule, 1100, 100), schedule.next),
            (0, TimeStamp(1200))
        );
        assert_eq!(
            (advance(&mut schedule, 1530, 30), schedule.next),
            (3, TimeStamp(1600))
        );
        assert_eq!(
            (advance(&mut schedule, 1540, 40), schedule.next),
            (0, TimeStamp(1700))
        );
    }

    #[test]
    fn overloaded_sampler_leaves_half_of_a_processor() {
        let mut schedule = Schedule {
            next: TimeStamp(1000),
            interval_ns: 100,
        };
        assert_eq!(
            (advance(&mut schedule, 1250, 250), schedule.next),
            (5, TimeStamp(1600))
        );
        assert_eq!(
            (advance(&mut schedule, 1850, 90), schedule.next),
            (2, TimeStamp(1900)),
            "the sampler was delayed"
        );
    }

    #[test]
    fn collections_vary_within_their_limits() {
        for (interval_ms, most) in [(1, 12), (10, 10), (30, 3), (100, 1), (1000, 1)] {
            let mut collections = Collections::new(interval_ms * 1_000_000, 7);
            let ticks: Vec<u64> = (0..1000).map(|_| collections.next_left_out() + 1).collect();
            let all: std::collections::BTreeSet<u64> = ticks.into_iter().collect();
            assert_eq!(collections.max_ticks(), most);
            assert!(all.into_iter().eq(most.div_ceil(2)..=most));
        }
    }

    #[test]
    fn ticks_before_the_allowed_time_are_skipped() {
        let mut schedule = Schedule {
            next: TimeStamp(1000),
            interval_ns: 100,
        };
        let mut advance = |now, allowed| {
            let LeftOut { missed, skipped } =
                schedule.advance(TimeStamp(now), 10, TimeStamp(allowed));
            (missed, skipped, schedule.next.0)
        };
        assert_eq!(advance(1010, 1100), (0, 0, 1100));
        assert_eq!(advance(1110, 1201), (0, 1, 1300));
        assert_eq!(advance(1310, 1900), (0, 5, 1900));
        assert_eq!(
            advance(2150, 2301),
            (2, 2, 2400),
            "late, and then not allowed"
        );
    }
}
