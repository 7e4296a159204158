//! Whether anybody has run at all, for a process with many threads at rest.
//!
//! To read one clock for each of a thousand threads costs most of a millisecond. How often the process's threads were
//! switched and how long they ran is one call, and some 50 ns for each: when neither has changed since every thread at
//! rest was looked at, none of them has gone to sleep again, been preempted, or run beyond a tick of the kernel's. When
//! nobody has run for a while, the call is made on every fourth tick. When somebody has, all are looked at once; while
//! somebody goes on to run, in turns, each at least on every tenth tick. So a thread that wakes after a long rest, beside
//! more than 32 others at rest, may be noticed some milliseconds late; its CPU time is charged to the sample that finds out.

use crate::platform::{OthersActivity, others_activity};

/// So many threads at rest for long are looked at on a tick; when there are no more than that, all.
const LOOKS: u64 = 32;
/// The kernel brings the time of a thread that runs on up to date with its own ticks alone, 1 to 10 ms apart; where the
/// interval is shorter, the clue would be late by many.
const SHORTEST_INTERVAL_NS: u64 = 1_000_000;
const MOST_TICKS_BETWEEN_LOOKS: u64 = 10;
/// While others run, the clue is taken once in so many ticks.
const TICKS_BETWEEN_CLUES: u64 = 8;

/// How the threads that have rested for long are looked at on this tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RestChecks {
    /// Nobody has run: none is.
    None,
    /// They take turns: one in so many a tick.
    OneIn(u64),
}

/// Nobody has run for a while after so many ticks; from then on the clue is taken once in so many.
const QUIET_TICKS: u64 = 32;
const TICKS_BETWEEN_CLUES_IN_QUIET: u64 = 4;

/// What the process did, as of the last time that somebody had run.
#[derive(Debug, Default)]
pub(super) struct ActivityClue {
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
            *self = Self::default();
            return RestChecks::OneIn(one_in);
        }
        if self.pause > 0 {
            self.pause -= 1;
            return if self.quiet > 0 { RestChecks::None } else { RestChecks::OneIn(one_in) };
        }
        self.after(others_activity(), one_in)
    }

    fn after(&mut self, activity: OthersActivity, one_in: u64) -> RestChecks {
        if activity.is_beyond(self.since) {
            self.since = activity;
            if std::mem::take(&mut self.quiet) >= QUIET_TICKS {
                self.looks_left = 0;
                return RestChecks::OneIn(1);
            }
            // Who ran twice in a row is likely to run on.
            self.pause = if self.looks_left > 0 { TICKS_BETWEEN_CLUES } else { 0 };
            self.looks_left = one_in;
            return RestChecks::OneIn(one_in);
        }
        if self.looks_left > 0 {
            self.looks_left -= 1;
            return RestChecks::OneIn(one_in);
        }
        self.quiet += 1;
        self.pause = if self.quiet >= QUIET_TICKS { TICKS_BETWEEN_CLUES_IN_QUIET - 1 } else { 0 };
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
            assert_eq!(clue.after(activity(5, 101), 3), RestChecks::OneIn(3), "in turns, all of them");
        }
        assert_eq!(clue.after(activity(5, 105), 3), RestChecks::None);
        assert_eq!(clue.after(activity(6, 105), 3), RestChecks::OneIn(3), "one went to sleep");
        assert_eq!(clue.pause, 0);
        assert_eq!(clue.after(activity(6, 300), 3), RestChecks::OneIn(3), "one runs");
        assert_eq!(clue.pause, TICKS_BETWEEN_CLUES);
        assert_eq!(ActivityClue::default().checks(32, 1_000_000), RestChecks::OneIn(1));
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
        assert_eq!(clue.pause, TICKS_BETWEEN_CLUES_IN_QUIET - 1);
        assert_eq!(clue.checks(1000, 1_000_000), RestChecks::None, "without asking");
        assert_eq!(clue.after(activity(6, 100), 10), RestChecks::OneIn(1));
        assert_eq!(clue.after(activity(6, 100), 10), RestChecks::None);
    }
}
