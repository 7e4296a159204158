//! A schedule of ticks like that of gekkota's sampler: missed ticks are dropped, and later ticks
//! keep their times.

use std::time::{Duration, Instant};

use crate::raw;
use crate::study::Fallible;

pub(crate) struct Schedule {
    first_ns: u64,
    next_ns: u64,
    interval_ns: u64,
    on_time: u64,
}

impl Schedule {
    /// Starts a schedule whose first tick is now.
    pub(crate) fn start(interval: Duration) -> Self {
        Self::starting_at(raw::monotonic_ns(), interval)
    }

    fn starting_at(first_ns: u64, interval: Duration) -> Self {
        Self {
            first_ns,
            next_ns: first_ns,
            interval_ns: interval.as_nanos() as u64,
            on_time: 1,
        }
    }

    /// Sleeps until the next tick, skipping the ticks that are past.
    pub(crate) fn sleep_to_next(&mut self) {
        self.advance(raw::monotonic_ns());
        raw::sleep_until_ns(self.next_ns);
        self.begin(raw::monotonic_ns());
    }

    /// Advances to the next future tick, and returns its time.
    fn advance(&mut self, now_ns: u64) -> u64 {
        let missed = now_ns.saturating_sub(self.next_ns) / self.interval_ns;
        self.next_ns += (missed + 1) * self.interval_ns;
        self.next_ns
    }

    fn begin(&mut self, now_ns: u64) {
        self.on_time += u64::from(now_ns.saturating_sub(self.next_ns) <= self.interval_ns / 2);
    }

    /// Returns the share of the ticks due by now that began within half an interval of their time.
    pub(crate) fn on_time(&self) -> f64 {
        self.on_time_by(raw::monotonic_ns())
    }

    fn on_time_by(&self, now_ns: u64) -> f64 {
        let ticks = 1 + now_ns.saturating_sub(self.first_ns) / self.interval_ns;
        self.on_time as f64 / ticks as f64
    }
}

/// Runs `tick` for a span on a thread that is prepared as gekkota's sampler is. Returns the schedule.
pub(crate) fn tick_for(
    interval: Duration,
    span: Duration,
    mut tick: impl FnMut(Instant) + Send,
) -> Fallible<Schedule> {
    let ticks = || {
        raw::prepare_sampler_thread();
        let start = Instant::now();
        let mut schedule = Schedule::start(interval);
        while start.elapsed() < span {
            tick(start);
            schedule.sleep_to_next();
        }
        schedule
    };
    let thread = std::thread::scope(|scope| scope.spawn(ticks).join());
    thread.map_err(|_| "the sampler panicked".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks_are_dropped_and_late_ones_are_not_on_time() {
        let mut schedule = Schedule::starting_at(1000, Duration::from_nanos(100));
        assert_eq!(schedule.on_time_by(1000), 1.0);
        assert_eq!(schedule.advance(1030), 1100);
        schedule.begin(1150);
        assert_eq!(schedule.on_time_by(1199), 1.0);
        assert_eq!(schedule.advance(1160), 1200);
        schedule.begin(1251);
        assert_eq!(schedule.on_time_by(1299), 2.0 / 3.0);
        assert_eq!(schedule.advance(1730), 1800, "five ticks are missed");
        schedule.begin(1800);
        assert_eq!(schedule.on_time_by(1800), 3.0 / 9.0);
        assert_eq!(
            schedule.on_time_by(2899),
            3.0 / 19.0,
            "a tick that lasts too long"
        );
    }
}
