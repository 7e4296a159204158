//! The time of a thread that no sample stands for yet, in a session whose threads keep their samples.
//!
//! The thread's CPU clock divides the time: a sample of the running thread stands for an interval of
//! its CPU time, and a sample of the sleeping or waiting thread for an interval of the rest. So the
//! share of a thread's running time is right, whichever of its samples are lost.

use crate::sampler::encode::SampleRun;
use crate::types::TimeStamp;

/// Maximum number of samples that a thread may have too many, until ticks make up for them.
const MAX_TOO_MANY: u64 = 2;

/// The time without a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwedTicks {
    interval_ns: u64,
    /// Number of the last tick that is counted, and the CPU clock up to which its time is counted.
    until: u64,
    cpu_ns: Option<u64>,
    /// CPU time without a sample, in ns. Negative if samples stand for more: a timer and the schedule
    /// do not begin at the same time.
    ran_ns: i64,
    /// The rest of the time, in ns. Negative likewise.
    rest_ns: i64,
    /// [`Self::rest`] before the last tick was added.
    rest_before: u64,
}

impl OwedTicks {
    /// Begins after the tick `until`, when the thread's clock read `cpu_ns`.
    pub(crate) fn new(until: u64, cpu_ns: Option<u64>, interval_ns: u64) -> Self {
        Self {
            interval_ns: interval_ns.max(1),
            until,
            cpu_ns,
            ran_ns: 0,
            rest_ns: 0,
            rest_before: 0,
        }
    }

    /// Adds the time up to this tick, on which the thread's clock reads `cpu_ns`; `None` if it cannot
    /// be read.
    pub(crate) fn add_until(&mut self, tick: u64, cpu_ns: Option<u64>) {
        let ticks = tick.saturating_sub(self.until);
        self.rest_before = self.rest();
        let clocks = cpu_ns.zip(self.cpu_ns);
        let ran_ns = clocks.map_or(0, |(now, before)| now.saturating_sub(before));
        (self.until, self.cpu_ns) = (self.until.max(tick), self.cpu_ns.max(cpu_ns));
        self.ran_ns = self.ran_ns.saturating_add_unsigned(ran_ns);
        let passed_ns = ticks.saturating_mul(self.interval_ns);
        self.rest_ns = self
            .rest_ns
            .saturating_add_unsigned(passed_ns)
            .saturating_sub_unsigned(ran_ns);
    }

    fn ticks(&self, ns: i64) -> u64 {
        ns.max(0) as u64 / self.interval_ns
    }

    fn ns(&self, ticks: u64) -> u64 {
        ticks.saturating_mul(self.interval_ns)
    }

    /// Returns how many whole intervals the thread has run without a sample.
    pub(crate) fn ran(&self) -> u64 {
        self.ticks(self.ran_ns)
    }

    /// Returns how many whole intervals of the rest have no sample.
    pub(crate) fn rest(&self) -> u64 {
        self.ticks(self.rest_ns)
    }

    /// Returns the same as it was before the last tick was added.
    pub(crate) fn rest_before(&self) -> u64 {
        self.rest_before
    }

    /// Takes samples of the running thread for so many ticks into account.
    pub(crate) fn pay_ran(&mut self, ticks: u64) {
        self.ran_ns = self.ran_ns.saturating_sub_unsigned(self.ns(ticks));
    }

    /// Takes samples of the sleeping or waiting thread for so many ticks into account.
    pub(crate) fn pay_rest(&mut self, ticks: u64) {
        self.rest_ns = self.rest_ns.saturating_sub_unsigned(self.ns(ticks));
    }

    /// Returns a run of samples for all of the rest, at least one, which ends at `last`.
    pub(crate) fn pay_all_rest(&mut self, last: TimeStamp) -> SampleRun {
        let ticks = self.rest().max(1);
        self.pay_rest(ticks);
        SampleRun {
            first: TimeStamp(last.0.saturating_sub(self.ns(ticks - 1))),
            last,
            ticks,
            first_tick: None,
        }
    }

    /// Leaves the CPU time of at most `ran` ticks and the rest of at most `rest` ticks without a
    /// sample, and at most [`MAX_TOO_MANY`] samples too many of each. Returns how many ticks get no
    /// sample.
    pub(crate) fn forgive(&mut self, ran: u64, rest: u64) -> u64 {
        let mut forgiven_ns = 0;
        let most = [self.ns(ran), self.ns(rest)];
        let too_many = self.ns(MAX_TOO_MANY) as i64;
        for (ns, most) in [&mut self.ran_ns, &mut self.rest_ns].into_iter().zip(most) {
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            forgiven_ns += (*ns - most).max(0);
            *ns = (*ns).clamp(-too_many, most);
        }
        self.ticks(forgiven_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owed(ticks: u64, cpu_ns: u64) -> OwedTicks {
        let mut owed = OwedTicks::new(100, Some(5_000), 10);
        owed.add_until(100 + ticks, Some(5_000 + cpu_ns));
        owed
    }

    #[test]
    fn clock_divides_the_time() {
        let mut owed = owed(10, 34);
        assert_eq!((owed.ran(), owed.rest()), (3, 6));
        owed.pay_ran(3);
        let run = owed.pay_all_rest(TimeStamp(1_000));
        assert_eq!(
            (run.first, run.last, run.ticks),
            (TimeStamp(950), TimeStamp(1_000), 6)
        );
        // What is left of both is less than an interval, and counts later.
        owed.add_until(120, Some(5_040));
        assert_eq!((owed.ran(), owed.rest()), (1, 10));
        owed.add_until(130, None);
        assert_eq!((owed.ran(), owed.rest()), (1, 20));
    }

    #[test]
    fn samples_too_many_are_taken_from_the_next_ones() {
        let mut owed = owed(1, 10);
        // Even so, a sample stands for its own tick.
        assert_eq!(owed.pay_all_rest(TimeStamp(50)).ticks, 1);
        owed.pay_ran(2);
        owed.add_until(111, Some(5_040));
        assert_eq!((owed.ran(), owed.rest()), (2, 6));
    }

    #[test]
    fn time_that_gets_no_sample_does_not_grow() {
        let mut long = owed(1_000, 4_000);
        assert_eq!(long.forgive(24, 24), 1_000 - 48);
        assert_eq!((long.ran(), long.rest()), (24, 24));
        long.pay_ran(100);
        assert_eq!(long.forgive(24, 1), 23);
        // The clock has gone on by four ticks, and half of them make up for the samples too many.
        long.add_until(1_104, Some(9_040));
        assert_eq!((long.ran(), long.rest()), (2, 1));
    }

    #[test]
    fn run_does_not_begin_before_time() {
        let mut owed = owed(100, 0);
        assert_eq!(owed.pay_all_rest(TimeStamp(5)).first, TimeStamp(0));
        owed.add_until(u64::MAX, Some(u64::MAX));
        assert!(owed.forgive(1, 1) > 0);
    }
}
