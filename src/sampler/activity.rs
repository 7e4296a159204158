//! Whether anybody has run at all, for a process with many threads at rest.
//!
//! To read one clock for each of a thousand threads costs a third of a millisecond. How often the process's threads were
//! switched and how long they ran is one call, and 20 ns for each: when neither has changed since every thread at rest was
//! looked at, none of them has run. When others run, the threads that rest for long are looked at in turns, each at
//! least on every tenth tick; the CPU time of one that has run is charged to the sample that finds out.

use crate::platform::{OthersActivity, others_activity};

/// With fewer threads at rest for long, to ask for all is no cheaper than to read each clock.
const FEW: u64 = 8;
/// So many of them are looked at on a tick.
const LOOKS: u64 = 64;
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

/// What the process did, as of the last time that somebody had run.
#[derive(Debug, Default)]
pub(super) struct ActivityClue {
    since: OthersActivity,
    /// Ticks until every thread at rest has been looked at since then.
    looks_left: u64,
    /// Ticks until the clue is taken again.
    pause: u64,
}

impl ActivityClue {
    /// Which of so many threads at rest for long are to be looked at on this tick.
    pub(super) fn checks(&mut self, resting: u64) -> RestChecks {
        let one_in = resting.div_ceil(LOOKS).clamp(1, MOST_TICKS_BETWEEN_LOOKS);
        if resting < FEW {
            *self = Self::default();
            return RestChecks::OneIn(one_in);
        }
        if self.pause > 0 {
            self.pause -= 1;
            return RestChecks::OneIn(one_in);
        }
        self.after(others_activity(), one_in)
    }

    fn after(&mut self, activity: OthersActivity, one_in: u64) -> RestChecks {
        if activity.is_beyond(self.since) {
            // Who ran twice in a row is likely to run on.
            let ran_before = self.looks_left > 0;
            (self.since, self.looks_left) = (activity, one_in);
            self.pause = if ran_before { TICKS_BETWEEN_CLUES } else { 0 };
        } else if self.looks_left == 0 {
            return RestChecks::None;
        } else {
            self.looks_left -= 1;
        }
        RestChecks::OneIn(one_in)
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
        assert_eq!(ActivityClue::default().checks(1), RestChecks::OneIn(1));
    }
}
