//! Whether anybody has run at all, for a process with many threads at rest.
//!
//! To read one clock for each of a thousand threads costs most of a millisecond. How long the process's threads ran
//! together is told in a µs, as the kernel keeps the sum for us: when it has not changed since every thread at rest was
//! looked at, none of them has gone to sleep again, been preempted, or run beyond a tick of the kernel's. Where the kernel
//! keeps no sum it adds it up, at up to 100 ns for each thread, and so is asked less often: when nobody has run for a while,
//! on every eighth tick. When somebody has run, all are looked at once; while somebody goes on to run, in turns, each at least
//! on every tenth tick. So a thread that wakes after a long rest, beside more than 32 others at rest, may be noticed some
//! milliseconds late; its CPU time is charged to the sample that finds out.

use crate::platform::{OthersActivity, RunningSum, others_activity_thread_by_thread};

/// So many threads at rest for long are looked at on a tick; when there are no more than that, all.
const LOOKS: u64 = 32;
/// The kernel brings the time of a thread that runs on up to date with its own ticks alone, 1 to 10 ms apart; where the
/// interval is shorter, the clue would be late by many.
const SHORTEST_INTERVAL_NS: u64 = 1_000_000;
const MOST_TICKS_BETWEEN_LOOKS: u64 = 10;
/// A clue that is added up thread by thread is taken once in so many ticks while others run, and when nobody has for a
/// while.
const TICKS_BETWEEN_CLUES: u64 = 8;

/// How the threads that have rested for long are looked at on this tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RestChecks {
    /// Nobody has run: none is.
    None,
    /// They take turns: one in so many a tick.
    OneIn(u64),
}

/// Nobody has run for a while after so many ticks.
const QUIET_TICKS: u64 = 32;

/// How it is told how much the others ran.
#[derive(Debug, Default)]
enum Sum {
    /// It has not mattered yet.
    #[default]
    Unasked,
    Kept(RunningSum),
    ThreadByThread,
}

/// What the process did, as of the last time that somebody had run.
#[derive(Debug, Default)]
pub(super) struct ActivityClue {
    sum: Sum,
    since: OthersActivity,
    /// Ticks until every thread at rest has been looked at since then.
    looks_left: u64,
    /// Ticks until the clue is taken again.
    pause: u64,
    /// Ticks since nobody ran.
    quiet: u64,
}

impl ActivityClue {
    /// Which of so many threads at rest for long are to be looked at on this tick.
    pub(super) fn checks(&mut self, resting: u64, interval_ns: u64) -> RestChecks {
        let one_in = resting.div_ceil(LOOKS).clamp(1, MOST_TICKS_BETWEEN_LOOKS);
        if resting <= LOOKS || interval_ns < SHORTEST_INTERVAL_NS {
            // Not given back at once, since the number may swing about the limit.
            let sum = if resting > LOOKS / 2 {
                std::mem::take(&mut self.sum)
            } else {
                Sum::Unasked
            };
            *self = Self {
                sum,
                ..Self::default()
            };
            return RestChecks::OneIn(one_in);
        }
        if self.pause > 0 {
            self.pause -= 1;
            return if self.quiet > 0 {
                RestChecks::None
            } else {
                RestChecks::OneIn(one_in)
            };
        }
        if matches!(self.sum, Sum::Unasked) {
            self.sum = RunningSum::start().map_or(Sum::ThreadByThread, Sum::Kept);
        }
        let activity = match &self.sum {
            Sum::Kept(sum) => sum.others_activity(),
            Sum::Unasked | Sum::ThreadByThread => others_activity_thread_by_thread(),
        };
        let checks = self.after(activity, one_in);
        if matches!(self.sum, Sum::Kept(_)) {
            self.pause = 0;
        }
        checks
    }

    fn after(&mut self, activity: OthersActivity, one_in: u64) -> RestChecks {
        if activity.is_beyond(self.since) {
            self.since = activity;
            if std::mem::take(&mut self.quiet) >= QUIET_TICKS {
                self.looks_left = 0;
                return RestChecks::OneIn(1);
            }
            // Who ran twice in a row is likely to run on.
            self.pause = if self.looks_left > 0 {
                TICKS_BETWEEN_CLUES
            } else {
                0
            };
            self.looks_left = one_in;
            return RestChecks::OneIn(one_in);
        }
        if self.looks_left > 0 {
            self.looks_left -= 1;
            return RestChecks::OneIn(one_in);
        }
        self.quiet += 1;
        self.pause = if self.quiet >= QUIET_TICKS {
            TICKS_BETWEEN_CLUES - 1
        } else {
            0
        };
        RestChecks::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_looked_at_once_all_were_and_nothing_moved() {
        let mut clue = ActivityClue::default();
        let activity = OthersActivity::for_test;
        assert_eq!(clue.after(activity(5, 100), 3), RestChecks::OneIn(3));
        for _ in 0..3 {
            assert_eq!(
                clue.after(activity(5, 101), 3),
                RestChecks::OneIn(3),
                "in turns, all of them"
            );
        }
        assert_eq!(clue.after(activity(5, 105), 3), RestChecks::None);
        assert_eq!(
            clue.after(activity(6, 105), 3),
            RestChecks::OneIn(3),
            "one went to sleep"
        );
        assert_eq!(clue.pause, 0);
        assert_eq!(
            clue.after(activity(6, 300), 3),
            RestChecks::OneIn(3),
            "one runs"
        );
        assert_eq!(clue.pause, TICKS_BETWEEN_CLUES);
        assert_eq!(
            ActivityClue::default().checks(32, 1_000_000),
            RestChecks::OneIn(1)
        );
    }

    #[test]
    fn after_a_long_quiet_all_are_looked_at_at_once() {
        let mut clue = ActivityClue::default();
        let activity = OthersActivity::for_test;
        assert_eq!(clue.after(activity(5, 100), 10), RestChecks::OneIn(10));
        while clue.quiet < QUIET_TICKS {
            assert_eq!(clue.pause, 0);
            clue.after(activity(5, 100), 10);
        }
        assert_eq!(clue.pause, TICKS_BETWEEN_CLUES - 1);
        assert_eq!(
            clue.checks(1000, 1_000_000),
            RestChecks::None,
            "without asking"
        );
        assert_eq!(clue.after(activity(6, 100), 10), RestChecks::OneIn(1));
        assert_eq!(clue.after(activity(6, 100), 10), RestChecks::None);
    }
}
