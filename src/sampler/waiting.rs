//! A request that is out, and what the ticks are until it is answered.
//!
//! A thread that was preempted before the signal reached it does not run again without answering, unless it blocks the
//! signal; so its stack on the ticks until then is the one that it answers with. Little is done for it meanwhile: of many
//! threads that share few processors, most are waited for. One that turns out to sleep is not waited for any longer.

use crate::base::TimeStamp;
use crate::platform::BlockedAt;
use crate::sampler::rest::{Run, Tick};

/// How long a thread may run on before a signal reaches it.
const SIGNAL_DELAY_NS: u64 = 200_000;
/// Whether a thread runs or sleeps and does not answer is looked at after so many ticks, and then once in so many.
const FIRST_LOOK: u64 = 2;
const TICKS_BETWEEN_LOOKS: u64 = 16;
/// A request that was lost, since a foreign signal of the same number was pending, is sent again after so many ticks.
const RESEND_AFTER_TICKS: u64 = 1000;

#[derive(Debug)]
pub(super) struct Waiting {
    /// The thread's CPU clock when the request went out.
    pub(super) cpu_ns: u64,
    /// Where it was blocked then, if it was.
    pub(super) blocked_at: Option<BlockedAt>,
    /// Whether the thread's own timer is to answer, and no signal was sent.
    pub(super) by_timer: bool,
    /// The tick on which it went out, or from which on the thread is known not to have run.
    first: Tick,
    /// Ticks that passed since, the first counted, and the last of them.
    ticks: u64,
    last: Tick,
    /// Ticks on which the thread ran and did not answer.
    unanswered: u64,
    /// What the clock showed when it was looked at last.
    seen_cpu_ns: u64,
}

/// What a look at the clock of a thread that has not answered says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unanswered {
    /// It has not run.
    Idle,
    /// It has run, for as many ticks at most, and may be sent the request again.
    Ran { ticks: u64, resend: bool },
}

impl Waiting {
    pub(super) fn new(
        cpu_ns: u64,
        tick: Tick,
        blocked_at: Option<BlockedAt>,
        by_timer: bool,
    ) -> Self {
        Self {
            cpu_ns,
            blocked_at,
            by_timer,
            first: tick,
            ticks: 0,
            last: tick,
            unanswered: 0,
            seen_cpu_ns: cpu_ns,
        }
    }

    /// One more tick without an answer, after `tick_before`; true when the clock is to be looked at.
    pub(super) fn add_tick(&mut self, tick_before: Tick) -> bool {
        (self.ticks, self.last) = (self.ticks + 1, tick_before);
        self.ticks == FIRST_LOOK || self.ticks.is_multiple_of(TICKS_BETWEEN_LOOKS)
    }

    pub(super) fn look(&mut self, cpu_ns: u64, tick: Tick, interval_ns: u64) -> Unanswered {
        if cpu_ns.saturating_sub(self.cpu_ns) <= delay_ns(interval_ns) {
            return Unanswered::Idle;
        }
        let ticks = self.ticks;
        self.unanswered += ticks;
        let resend = self.unanswered >= RESEND_AFTER_TICKS;
        if resend {
            self.unanswered = 0;
        }
        (self.cpu_ns, self.first, self.ticks) = (cpu_ns, tick, 0);
        Unanswered::Ran { ticks, resend }
    }

    /// The ticks on which the thread stood where it answered at `answered`, if there were any.
    ///
    /// # Errors
    /// How many ticks there were, when the thread ran before it answered, as its CPU clock shows `now`.
    pub(super) fn idle_run(
        &self,
        answered: TimeStamp,
        now: TimeStamp,
        cpu_ns: u64,
        interval_ns: u64,
    ) -> Result<Option<Run>, u64> {
        let ran_since_ns = now.since_ns(answered);
        let ran_before_ns = cpu_ns
            .saturating_sub(self.cpu_ns)
            .saturating_sub(ran_since_ns);
        if ran_before_ns > delay_ns(interval_ns) {
            return Err(self.ticks);
        }
        let run = Run {
            first: self.first.time,
            last: self.last.time,
            ticks: self.ticks,
        };
        Ok((run.ticks > 0).then_some(run))
    }

    /// Whether the thread has not run since it was asked about last.
    pub(super) fn stood_still(&mut self, cpu_ns: u64) -> bool {
        std::mem::replace(&mut self.seen_cpu_ns, cpu_ns) == cpu_ns
    }
}

fn delay_ns(interval_ns: u64) -> u64 {
    SIGNAL_DELAY_NS.min(interval_ns / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn tick(number: u64) -> Tick {
        Tick {
            number,
            time: TimeStamp(number * MS),
        }
    }

    /// Asked on tick 10, without an answer on the ticks 11 to `last`.
    fn waiting_until(last: u64) -> (Waiting, u64) {
        let mut waiting = Waiting::new(7 * MS, tick(10), None, false);
        let looks = (11..=last)
            .filter(|&number| waiting.add_tick(tick(number - 1)))
            .count();
        (waiting, looks as u64)
    }

    #[test]
    fn the_ticks_until_the_answer_have_its_stack() {
        let (waiting, looks) = waiting_until(50);
        assert_eq!(looks, 3);
        // It answered half a millisecond ago and has run since.
        let (answered, now) = (TimeStamp(50 * MS + MS / 2), tick(51).time);
        let run = waiting.idle_run(answered, now, 7 * MS + MS / 2, MS);
        assert_eq!(
            run,
            Ok(Some(Run {
                first: tick(10).time,
                last: tick(49).time,
                ticks: 40
            }))
        );
        assert_eq!(
            waiting.idle_run(answered, now, 8 * MS, MS),
            Err(40),
            "it ran before"
        );
        let (at_once, _) = waiting_until(10);
        assert_eq!(
            at_once.idle_run(tick(10).time, tick(11).time, 8 * MS, MS),
            Ok(None)
        );
    }

    #[test]
    fn who_runs_and_does_not_answer_is_counted_and_asked_again() {
        let (mut waiting, _) = waiting_until(26);
        assert_eq!(waiting.look(7 * MS, tick(26), MS), Unanswered::Idle);
        assert_eq!(
            waiting.look(9 * MS, tick(26), MS),
            Unanswered::Ran {
                ticks: 16,
                resend: false
            }
        );
        let mut resends = 0;
        for number in 27..3000 {
            if waiting.add_tick(tick(number - 1)) {
                let looked = waiting.look(number * MS, tick(number), MS);
                resends += u64::from(matches!(looked, Unanswered::Ran { resend: true, .. }));
            }
        }
        assert_eq!(resends, 2);
    }

    #[test]
    fn a_clock_that_moves_is_told_from_one_that_stands() {
        let mut waiting = Waiting::new(5, tick(1), None, true);
        assert_eq!(
            [5, 5, 6, 6].map(|cpu_ns| waiting.stood_still(cpu_ns)),
            [true, true, false, true]
        );
    }
}
