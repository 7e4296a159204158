//! The times at which the sampler wakes.

use crate::types::TimeStamp;

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

    /// Advances to the next tick after `now` and returns the number of missed ticks, which are
    /// dropped. After a tick that used more CPU time than one interval, the sampler leaves the
    /// application at least the same time before the next tick.
    pub(crate) fn advance(&mut self, now: TimeStamp, used_ns: u64) -> u64 {
        let reserved_ns = if used_ns > self.interval_ns {
            used_ns
        } else {
            0
        };
        let late_ns = now.plus_ns(reserved_ns).since_ns(self.next);
        let missed = late_ns / self.interval_ns;
        self.next = self.next.plus_ns((missed + 1) * self.interval_ns);
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_stay_on_schedule_and_missed_ticks_are_counted_once() {
        let mut schedule = Schedule {
            next: TimeStamp(1000),
            interval_ns: 100,
        };
        assert_eq!(
            (schedule.advance(TimeStamp(1030), 30), schedule.next),
            (0, TimeStamp(1100))
        );
        assert_eq!(
            (schedule.advance(TimeStamp(1100), 100), schedule.next),
            (0, TimeStamp(1200))
        );
        assert_eq!(
            (schedule.advance(TimeStamp(1530), 30), schedule.next),
            (3, TimeStamp(1600))
        );
        assert_eq!(
            (schedule.advance(TimeStamp(1540), 40), schedule.next),
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
            (schedule.advance(TimeStamp(1250), 250), schedule.next),
            (5, TimeStamp(1600))
        );
        assert_eq!(
            (schedule.advance(TimeStamp(1850), 90), schedule.next),
            (2, TimeStamp(1900)),
            "the sampler was delayed"
        );
    }
}
