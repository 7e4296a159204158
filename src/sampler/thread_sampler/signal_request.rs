//! What the sampler knows of a request by signal: the request that is pending, and whether the thread
//! masks the signal.
//!
//! A thread that was preempted before the signal reached it does not run again without answering,
//! unless it masks the signal. So the stack in its answer is also its stack on the ticks before.
//! The sampler does little for such a thread in the meantime: when many threads share few
//! processors, most of them have a pending request. The sampler cancels the request of a thread
//! that turns out to be asleep.
//!
//! While a thread waits for signals, as `sigwait` does, the kernel takes those signals out of its
//! mask. The signals are already out of the mask in the moment in which the thread begins to wait.
//! They stay out after a signal wakes the thread, until it gets a processor, which may take long.
//! In both cases the kernel reports that the thread runs. A sampling signal that is sent then is
//! the result of this `sigwait` or of the next one. So a thread that has masked the signal is taken
//! to mask it until it has run for a while without the signal in its mask.

use std::sync::atomic::AtomicU64;

use crate::capture::SlotHandle;
use crate::platform::{BlockedAt, monotonic_now};
use crate::sampler::encode::{SampleRun, Tick};
use crate::sampler::handler::SIGNAL_DELAY_NS;
use crate::sampler::tick_context::TickContext;
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
    pub(crate) cpu_ns: Option<u64>,
    /// Where the thread was blocked when the request was sent, if it was blocked.
    pub(crate) blocked_at: Option<BlockedAt>,
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
        let ticks = run.map(|run| run.map_or(0, |run| run.ticks));
        let ticks = ticks.unwrap_or_else(|unanswered| unanswered);
        SessionCounts::add(count, 1);
        SessionCounts::add(&context.session.counts.unanswered_ticks, ticks + 1);
    }

    /// Returns the CPU time since the request; `None` without a readable clock.
    fn ran_ns(&self, cpu_ns: Option<u64>) -> Option<u64> {
        Some(cpu_ns?.saturating_sub(self.cpu_ns?))
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
        let ran_ns = self.ran_ns(cpu_ns);
        if ran_ns.is_some_and(|ran_ns| ran_ns <= delay_ns(interval_ns)) {
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
        let may_have_run =
            |ran_ns: u64| ran_ns.saturating_sub(ran_since_ns) > delay_ns(interval_ns);
        if self.ran_ns(cpu_ns).is_none_or(may_have_run) {
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

/// Maximum CPU time that a thread needs to begin and end its waits for signals while the sampler
/// sees no wait, in ns. One wait takes some 10 µs. But a thread that waits in step with the ticks
/// may be seen awake on many ticks in a row.
const MAX_CHANGE_NS: u64 = 5_000_000;
/// This maximum for a thread that the sampler has not seen before, in ns. It is shorter, because
/// most threads never wait for signals, and are not sampled until then.
const MAX_FIRST_CHANGE_NS: u64 = 200_000;

/// CPU time that the handler takes at most, in ns.
const HANDLER_NS: u64 = 500_000;

/// What the kernel reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SeenMask {
    /// The thread masks the signal, or waits for it.
    Masked,
    /// The thread does not mask the signal, unless it begins or ends to wait for signals.
    PerhapsOpen,
    /// The thread does not mask the signal.
    Open,
}

/// What earlier questions have shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SignalMask {
    /// The thread began before the sampling, and was not seen yet.
    Unknown,
    /// The thread was never seen to mask the signal since its last answer.
    #[default]
    Open,
    /// The thread masks the signal, or waits for it. The sampler first saw this when the thread's
    /// CPU time was `since_ns`. A single report proves nothing: the kernel also reports the signal
    /// as masked while the handler runs.
    Masked { since_ns: u64 },
    /// The thread perhaps masked the signal earlier, and did not at this time. It is taken to mask it
    /// until its CPU time is larger than this.
    Opening { since: TimeStamp, until_ns: u64 },
}

impl SignalMask {
    /// Notes what the kernel reports. `now` is the time of the tick; `cpu_ns` is the thread's CPU
    /// time, or `None` if the kernel does not tell it. Returns whether the thread is to be taken to
    /// mask the signal.
    pub(crate) fn note(&mut self, seen: SeenMask, now: TimeStamp, cpu_ns: Option<u64>) -> bool {
        let opening = |change_ns| Self::Opening {
            since: now,
            until_ns: cpu_ns.unwrap_or(0).saturating_add(change_ns),
        };
        *self = match (seen, *self) {
            (SeenMask::Masked, Self::Masked { .. }) => *self,
            (SeenMask::Masked, _) => Self::Masked {
                since_ns: cpu_ns.unwrap_or(0),
            },
            (SeenMask::Open, _) | (SeenMask::PerhapsOpen, Self::Open) => Self::Open,
            (SeenMask::PerhapsOpen, Self::Unknown) => opening(MAX_FIRST_CHANGE_NS),
            (SeenMask::PerhapsOpen, Self::Masked { .. }) => opening(MAX_CHANGE_NS),
            (SeenMask::PerhapsOpen, Self::Opening { since, until_ns }) => {
                let has_run = cpu_ns.map_or(now > since, |cpu_ns| cpu_ns > until_ns);
                if has_run { Self::Open } else { *self }
            }
        };
        *self != Self::Open
    }

    /// Returns whether the thread certainly masks the signal, and not only while the handler runs.
    pub(crate) fn is_masked(self, cpu_ns: Option<u64>) -> bool {
        let longer_than_handler =
            |since_ns| cpu_ns.is_none_or(|cpu_ns| cpu_ns > since_ns + HANDLER_NS);
        matches!(self, Self::Masked { since_ns } if longer_than_handler(since_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::SeenMask::{Masked, Open, PerhapsOpen};
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

    /// Returns the answers to questions: what the kernel reports, the tick and the CPU time in µs.
    fn answers(questions: &[(SeenMask, u64, Option<u64>)]) -> Vec<bool> {
        answers_from(SignalMask::default(), questions)
    }

    fn answers_from(mut mask: SignalMask, questions: &[(SeenMask, u64, Option<u64>)]) -> Vec<bool> {
        let mut ask = |&(seen, tick, cpu_us): &(SeenMask, u64, Option<u64>)| {
            mask.note(seen, TimeStamp(tick), cpu_us.map(|us| us * 1_000))
        };
        questions.iter().map(&mut ask).collect()
    }

    #[test]
    fn thread_that_never_masked_the_signal_gets_it_at_once() {
        assert_eq!(
            answers(&[(PerhapsOpen, 1, Some(0)), (PerhapsOpen, 1, None)]),
            [false, false]
        );
    }

    #[test]
    fn thread_that_began_earlier_gets_it_when_it_has_run() {
        let begins_to_wait = [
            (PerhapsOpen, 1, Some(100)),
            // It waits for a processor.
            (PerhapsOpen, 2, Some(100)),
            (Masked, 3, Some(110)),
            (PerhapsOpen, 4, Some(400)),
        ];
        assert_eq!(
            answers_from(SignalMask::Unknown, &begins_to_wait),
            [true; 4]
        );
        let works = [(PerhapsOpen, 1, Some(100)), (PerhapsOpen, 2, Some(1_100))];
        assert_eq!(answers_from(SignalMask::Unknown, &works), [true, false]);
    }

    #[test]
    fn woken_thread_masks_the_signal_until_it_has_run() {
        let woken = [
            (Masked, 1, Some(100)),
            // It waits for a processor.
            (PerhapsOpen, 2, Some(100)),
            (PerhapsOpen, 3, Some(100)),
            // It gets one, and masks the signal again.
            (Masked, 4, Some(120)),
            (PerhapsOpen, 5, Some(130)),
            // It works without the signal in its mask.
            (PerhapsOpen, 6, Some(5_131)),
            (PerhapsOpen, 7, Some(5_131)),
        ];
        let expected = [true, true, true, true, true, false, false];
        assert_eq!(answers(&woken), expected);
    }

    #[test]
    fn thread_that_waits_in_step_with_the_ticks_masks_the_signal() {
        // It is never seen in one of its waits, each of which takes 10 µs.
        let awake = (2..=500).map(|tick| (PerhapsOpen, tick, Some(tick * 10)));
        let seen: Vec<_> = [(Masked, 1, Some(10))].into_iter().chain(awake).collect();
        assert!(answers(&seen).into_iter().all(|masks| masks));
    }

    #[test]
    fn thread_without_a_clock_is_asked_on_two_ticks() {
        let asked = [
            (Masked, 1, None),
            (PerhapsOpen, 2, None),
            (PerhapsOpen, 2, None),
            (PerhapsOpen, 3, None),
        ];
        assert_eq!(answers(&asked), [true, true, true, false]);
    }

    #[test]
    fn thread_that_surely_does_not_mask_the_signal_gets_it_at_once() {
        let asked = [
            (Masked, 1, Some(100)),
            (Open, 2, Some(100)),
            (PerhapsOpen, 3, Some(100)),
        ];
        assert_eq!(answers(&asked), [true, false, false]);
    }
}
