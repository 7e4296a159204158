//! A pending request, and the samples for the ticks until the thread answers.
//!
//! A thread that was preempted before the signal reached it does not run again without answering,
//! unless it masks the signal. So the stack in its answer is also its stack on the ticks before.
//! The sampler does little for such a thread in the meantime: when many threads share few
//! processors, most of them have a pending request. The sampler cancels the request of a thread
//! that turns out to be asleep.

use std::sync::atomic::AtomicU64;

use crate::capture::SlotHandle;
use crate::platform::{BlockedAt, monotonic_now};
use crate::sampler::encode::{SampleRun, Tick};
use crate::sampler::handler::SIGNAL_DELAY_NS;
use crate::sampler::tick::TickContext;
use crate::state::SessionCounts;
use crate::types::TimeStamp;

/// Ticks until the sampler first checks whether an unanswering thread runs or sleeps, and ticks
/// between later checks.
const FIRST_CHECK_TICK: u64 = 2;
const TICKS_BETWEEN_CHECKS: u64 = 16;
/// Number of ticks on which a thread runs without answering, after which its request counts as lost
/// and is sent again. The kernel drops a signal while a foreign one of the same number is pending,
/// such as that of another copy of the crate. A second signal to a thread that still has the first
/// one pending changes nothing.
const RESEND_AFTER_TICKS: u64 = 20;
/// Time of such ticks for a thread whose clock cannot be read, because such a thread also counts as
/// running while it waits for a processor; and for signals that the kernel queues and never drops.
const RESEND_RARELY_AFTER_NS: u64 = 1_000_000_000;

/// A request by signal.
#[derive(Debug)]
pub(crate) struct SignalRequest {
    /// The thread's CPU clock when the request was sent; `None` if it cannot be read.
    cpu_ns: Option<u64>,
    /// Where the thread was blocked when the request was sent, if it was blocked.
    blocked_at: Option<BlockedAt>,
    /// The tick of the request, or of the last check that found that the thread had run.
    first: Tick,
    /// Number of ticks since then, including the first, but no left-out ticks.
    ticks: u64,
    /// Number and time of the last of these ticks, or of the last tick that was left out after it.
    last: Tick,
    /// Ticks on which the thread ran without answering.
    unanswered: u64,
    /// When the signal was sent.
    sent_at: TimeStamp,
}

/// Result of a clock check for a thread that has not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unanswered {
    /// The thread has not run.
    Idle,
    /// The thread has run, during at most this many ticks. The request may be sent again if
    /// `resend` is true.
    Ran { ticks: u64, resend: bool },
}

impl SignalRequest {
    pub(crate) fn new(cpu_ns: Option<u64>, tick: Tick, blocked_at: Option<BlockedAt>) -> Self {
        Self {
            cpu_ns,
            blocked_at,
            first: tick,
            ticks: 0,
            last: tick,
            unanswered: 0,
            sent_at: monotonic_now(),
        }
    }

    /// Returns whether the thread waited for a processor until it answered, at `answered`: it answered
    /// late, and did not run in the meantime. `cpu_ns` is its clock at the answer; 0 if it was not
    /// read.
    pub(crate) fn waited_for_processor(&self, answered: TimeStamp, cpu_ns: u64) -> bool {
        let late_ns = answered.since_ns(self.sent_at);
        let is_late = self.blocked_at.is_none() && late_ns >= SIGNAL_DELAY_NS;
        let ran_ns = self.ran_ns(Some(cpu_ns).filter(|cpu_ns| *cpu_ns > 0));
        is_late && ran_ns.is_some_and(|ran_ns| ran_ns < late_ns / 2)
    }

    /// Counts the ticks that a capture would have answered that gives no sample. `count` counts the
    /// capture.
    #[cold]
    pub(crate) fn count_unused_capture(
        &self,
        slot: &SlotHandle,
        answered: TimeStamp,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
        count: &AtomicU64,
    ) {
        slot.clear_canceled_request();
        let run = self.idle_run(answered, monotonic_now(), cpu_ns, context.interval_ns());
        let ticks = run.map_or_else(
            |unanswered| unanswered,
            |run| run.map_or(0, |run| run.ticks),
        );
        SessionCounts::add(count, 1);
        SessionCounts::add(&context.session.counts.unanswered_ticks, ticks + 1);
    }

    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        self.cpu_ns
    }

    /// Returns the CPU time since the request; `None` without a readable clock.
    fn ran_ns(&self, cpu_ns: Option<u64>) -> Option<u64> {
        Some(cpu_ns?.saturating_sub(self.cpu_ns?))
    }

    pub(crate) fn blocked_at(&self) -> Option<BlockedAt> {
        self.blocked_at
    }

    /// Adds the previous tick, which has no answer at this tick, and the ticks that were left out
    /// in between, up to `last`. Returns true if the clock is to be checked.
    pub(crate) fn add_tick(&mut self, last: Tick) -> bool {
        (self.ticks, self.last) = (self.ticks + 1, last);
        self.ticks == FIRST_CHECK_TICK || self.ticks.is_multiple_of(TICKS_BETWEEN_CHECKS)
    }

    /// Checks the clock of a thread that has not answered. A thread without a readable clock counts
    /// as having run. `is_queued` means that the kernel queues the request's signal.
    pub(crate) fn check_clock(
        &mut self,
        cpu_ns: Option<u64>,
        tick: Tick,
        interval_ns: u64,
        is_queued: bool,
    ) -> Unanswered {
        if self
            .ran_ns(cpu_ns)
            .is_some_and(|ran_ns| ran_ns <= delay_ns(interval_ns))
        {
            return Unanswered::Idle;
        }
        let ticks = self.ticks;
        self.unanswered += ticks;
        let resend_after = match is_queued || cpu_ns.is_none() {
            true => RESEND_AFTER_TICKS.max(RESEND_RARELY_AFTER_NS / interval_ns.max(1)),
            false => RESEND_AFTER_TICKS,
        };
        let resend = self.unanswered >= resend_after;
        if resend {
            self.unanswered = 0;
        }
        (self.cpu_ns, self.first, self.ticks) = (cpu_ns, tick, 0);
        Unanswered::Ran { ticks, resend }
    }

    /// Returns the ticks, if any, before the answer on which the thread had the same stack as in
    /// its answer. The thread answered at `answered`; its CPU clock read `cpu_ns` at `now`.
    ///
    /// # Errors
    /// The number of unanswered ticks, if the thread ran before it answered, or if its clock cannot
    /// be read.
    pub(crate) fn idle_run(
        &self,
        answered: TimeStamp,
        now: TimeStamp,
        cpu_ns: Option<u64>,
        interval_ns: u64,
    ) -> Result<Option<SampleRun>, u64> {
        let ran_since_ns = now.since_ns(answered);
        let ran_before_ns = self
            .ran_ns(cpu_ns)
            .map(|ran_ns| ran_ns.saturating_sub(ran_since_ns));
        if ran_before_ns.is_none_or(|ran_ns| ran_ns > delay_ns(interval_ns)) {
            return Err(self.ticks);
        }
        let run = SampleRun {
            first: self.first.time,
            last: self.last.time,
            ticks: self.last.number.saturating_sub(self.first.number) + 1,
            first_tick: Some(self.first.number),
        };
        Ok((self.ticks > 0).then_some(run))
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

    /// Returns a request from tick 10 that is not answered on the ticks from 11 to `last`, and the
    /// number of clock checks.
    fn pending_until(last: u64) -> (SignalRequest, u64) {
        let mut pending = SignalRequest::new(Some(7 * MS), tick(10), None);
        let checks = (11..=last)
            .filter(|&number| pending.add_tick(tick(number - 1)))
            .count();
        (pending, checks as u64)
    }

    #[test]
    fn ticks_before_the_answer_have_its_stack() {
        let (pending, checks) = pending_until(50);
        assert_eq!(checks, 3);
        // The thread answered half a millisecond ago and has run since.
        let (answered, now) = (TimeStamp(50 * MS + MS / 2), tick(51).time);
        let run = pending.idle_run(answered, now, Some(7 * MS + MS / 2), MS);
        assert_eq!(
            run,
            Ok(Some(SampleRun {
                first: tick(10).time,
                last: tick(49).time,
                ticks: 40,
                first_tick: Some(10),
            }))
        );
        assert_eq!(
            pending.idle_run(answered, now, Some(8 * MS), MS),
            Err(40),
            "the thread ran before it answered"
        );
        let (at_once, _) = pending_until(10);
        assert_eq!(
            at_once.idle_run(tick(10).time, tick(11).time, Some(8 * MS), MS),
            Ok(None)
        );
    }

    #[test]
    fn running_thread_without_answer_is_counted_and_signaled_again() {
        let resends = |is_queued: bool, has_clock: bool| {
            let (mut pending, _) = pending_until(26);
            assert_eq!(
                pending.check_clock(Some(7 * MS), tick(26), MS, is_queued),
                Unanswered::Idle
            );
            assert_eq!(
                pending.check_clock(Some(9 * MS), tick(26), MS, is_queued),
                Unanswered::Ran {
                    ticks: 16,
                    resend: false
                }
            );
            let mut resends = 0;
            for number in 27..3000 {
                if pending.add_tick(tick(number - 1)) {
                    let cpu_ns = Some(number * MS).filter(|_| has_clock);
                    let checked = pending.check_clock(cpu_ns, tick(number), MS, is_queued);
                    resends += u64::from(matches!(checked, Unanswered::Ran { resend: true, .. }));
                }
            }
            resends
        };
        // Each check counts two more ticks.
        assert_eq!(resends(false, true), (16 + 2972) / RESEND_AFTER_TICKS);
        for (is_queued, has_clock) in [(true, true), (false, false)] {
            let rarely = (16 + 2972) / (RESEND_RARELY_AFTER_NS / MS);
            assert_eq!(resends(is_queued, has_clock), rarely);
        }
    }

    #[test]
    fn thread_without_clock_counts_as_running_and_has_no_idle_run() {
        let (mut pending, _) = pending_until(26);
        let run = pending.idle_run(tick(26).time, tick(26).time, None, MS);
        assert_eq!(run, Err(16));
        assert_eq!(
            pending.check_clock(None, tick(26), MS, false),
            Unanswered::Ran {
                ticks: 16,
                resend: false
            }
        );
    }

    #[test]
    fn run_has_the_ticks_that_were_left_out() {
        let at = |number, ms| Tick {
            number,
            time: TimeStamp(ms * MS),
        };
        // Ticks 10, 14 and 16 were taken.
        let mut pending = SignalRequest::new(Some(7 * MS), at(10, 10), None);
        pending.add_tick(at(13, 13));
        pending.add_tick(at(15, 15));
        let run = |pending: &SignalRequest| {
            let answered = TimeStamp(16 * MS);
            pending.idle_run(answered, answered, Some(7 * MS), MS)
        };
        let ticks = |first, last, ticks| {
            Ok(Some(SampleRun {
                first: TimeStamp(first * MS),
                last: TimeStamp(last * MS),
                ticks,
                first_tick: Some(first),
            }))
        };
        assert_eq!(run(&pending), ticks(10, 15, 6));
    }
}
