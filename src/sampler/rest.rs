//! A thread at rest: its samples repeat, and become one entry for the whole time.

use crate::base::TimeStamp;

/// A run that goes on is written so often, so that what a crash or a full buffer takes is little.
const LONGEST_RUN_NS: u64 = 1_000_000_000;
/// A thread that has rested for fewer ticks is likely to run soon, and is looked at on every tick.
const RESTLESS_TICKS: u64 = 32;
/// Even a thread that says that it sleeps may have died.
const HINTED_CHECK_TICKS: u64 = 1024;

/// Ticks on which a thread stood where it stood before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) first: TimeStamp,
    pub(super) last: TimeStamp,
    pub(super) ticks: u64,
}

/// How the resting threads are looked at on this tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RestChecks {
    /// Nobody has run: none is.
    None,
    /// Those that rest for long take turns: one in so many a tick.
    OneIn(u64),
}

/// A thread that has not run since its stack was taken.
#[derive(Debug)]
pub(super) struct Rest {
    /// What its CPU clock shows as long as it rests.
    pub(super) cpu_ns: u64,
    /// Which of its announced sleeps this is, if it is one.
    announced: Option<u32>,
    ticks: u64,
    run: Option<Run>,
}

impl Rest {
    pub(super) fn new(cpu_ns: u64, announced: Option<u32>) -> Self {
        Self { cpu_ns, announced, ticks: 0, run: None }
    }

    pub(super) fn is_long(&self) -> bool {
        self.ticks >= RESTLESS_TICKS
    }

    /// Whether it is to be looked at on this tick, by the turn of its thread.
    pub(super) fn is_due(&self, checks: RestChecks, turn: u64, announced: Option<u32>) -> bool {
        if self.announced.is_some() && self.announced == announced {
            return self.ticks % HINTED_CHECK_TICKS == HINTED_CHECK_TICKS - 1;
        }
        match checks {
            _ if self.announced != announced => true,
            RestChecks::None => false,
            RestChecks::OneIn(count) => !self.is_long() || turn.is_multiple_of(count),
        }
    }

    /// One more tick; gives the run that is to be written, if it has become long.
    pub(super) fn add_tick(&mut self, now: TimeStamp) -> Option<Run> {
        self.ticks += 1;
        let run = self.run.get_or_insert(Run { first: now, last: now, ticks: 0 });
        (run.last, run.ticks) = (now, run.ticks + 1);
        if run.last.since_ns(run.first) >= LONGEST_RUN_NS { self.run.take() } else { None }
    }

    /// What has not been written yet.
    pub(super) fn take_run(&mut self) -> Option<Run> {
        self.run.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_written_once_a_second_and_at_the_end() {
        let mut rest = Rest::new(5, None);
        let tick = |number: u64| TimeStamp(number * 1_000_000);
        let written: Vec<Run> = (0..2500).filter_map(|number| rest.add_tick(tick(number))).collect();
        let run = |first, last| Run { first: tick(first), last: tick(last), ticks: last - first + 1 };
        assert_eq!(written, [run(0, 1000), run(1001, 2001)]);
        assert_eq!((rest.take_run(), rest.take_run()), (Some(run(2002, 2499)), None));
    }

    #[test]
    fn the_restless_are_looked_at_always_and_the_others_in_turn() {
        let mut rest = Rest::new(5, None);
        let due = |rest: &Rest, turn| rest.is_due(RestChecks::OneIn(10), turn, None);
        assert!(due(&rest, 3));
        assert!(!rest.is_due(RestChecks::None, 0, None), "nobody ran");
        for number in 0..RESTLESS_TICKS {
            rest.add_tick(TimeStamp(number));
        }
        assert_eq!((due(&rest, 3), due(&rest, 10)), (false, true));
    }

    #[test]
    fn an_announced_sleep_is_left_alone_until_its_end() {
        let mut rest = Rest::new(5, Some(7));
        let due = |rest: &Rest, announced| rest.is_due(RestChecks::OneIn(1), 0, announced);
        assert_eq!((due(&rest, Some(7)), due(&rest, None), due(&rest, Some(9))), (false, true, true));
        let checks = (0..4096).filter(|&number| {
            rest.add_tick(TimeStamp(number));
            due(&rest, Some(7))
        });
        assert_eq!(checks.count(), 4);
    }
}
