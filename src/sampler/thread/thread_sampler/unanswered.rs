//! A request that the thread has not answered is checked, and replaced where the thread will not
//! answer soon.

use super::ThreadSampler;
use crate::capture::SlotHandle;
use crate::platform::signal_is_queued;
use crate::sampler::fork_gate::may_signal;
use crate::sampler::thread::pending_request::{SignalRequest, Unanswered};
use crate::sampler::thread::seen_state::Seen;
use crate::sampler::thread::thread_state::ThreadState;
use crate::sampler::tick::TickContext;
use crate::state::SessionCounts;

impl ThreadSampler {
    /// Collects the answer to the pending request, or checks why there is none.
    pub(super) fn collect_or_wait(&mut self, cpu_ns: Option<u64>, context: &mut TickContext<'_>) {
        let Some(slot) = self.slot.clone() else {
            return;
        };
        self.collect_capture(&slot, cpu_ns, context);
        if context.session.is_stopping() {
            return;
        }
        let runs = match &mut self.state {
            ThreadState::Idle(_) => return,
            ThreadState::Running => return self.sample(cpu_ns, context),
            ThreadState::Signaled(_) => self.ran_until_now(cpu_ns),
            ThreadState::TimerArmed(request) => {
                let ticks = request.ticks();
                // Without a readable clock, request by signal instead.
                let runs = cpu_ns.is_some() && self.ran_until_now(cpu_ns);
                if !runs {
                    self.replace_timer_request(&slot, ticks, cpu_ns, context);
                    return;
                }
                runs
            }
        };
        // A sleeping thread will not answer: it masks the signal, or its timer does not advance.
        if let Seen::Blocked(at) = self.look(runs, context)
            && self.cancel_request(&slot)
        {
            self.sample_blocked(&slot, at, cpu_ns, context);
        } else {
            self.check_unanswered(&slot, cpu_ns, context);
        }
    }

    /// Replaces a request that the timer will not answer soon, because the thread stopped running.
    /// `ticks` is the number of ticks that the request has had no answer for.
    fn replace_timer_request(
        &mut self,
        slot: &SlotHandle,
        ticks: u64,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) {
        let seen = self.look(false, context);
        if !self.cancel_request(slot) {
            return;
        }
        let unanswered = &context.session.counts.unanswered_ticks;
        match seen {
            Seen::Blocked(at) => {
                SessionCounts::add(unanswered, ticks);
                self.sample_blocked(slot, at, cpu_ns, context);
                return;
            }
            Seen::FallingAsleep => {
                SessionCounts::add(unanswered, ticks);
                Self::leave_tick_out(context);
                return;
            }
            Seen::NotBlocked => {}
        }
        self.request_by_signal(slot, cpu_ns, None, context);
        if ticks > 0
            && cpu_ns.is_some()
            && let ThreadState::Signaled(request) = &mut self.state
        {
            let (first, last) = (context.tick_before, context.last_before);
            *request = SignalRequest::instead_of_timer(cpu_ns, first, last);
            SessionCounts::add(unanswered, ticks - 1);
        } else {
            SessionCounts::add(unanswered, ticks);
        }
    }

    /// Checks a thread that has not answered yet.
    fn check_unanswered(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
    ) {
        let Some(sequence) = slot.pending_request() else {
            return;
        };
        let counts = &context.session.counts;
        let interval_ns = context.interval_ns();
        let may_send = context.may_request() && may_signal();
        let is_queued = signal_is_queued(context.session.settings.signal);
        match &mut self.state {
            ThreadState::Running | ThreadState::Idle(_) => {}
            ThreadState::Signaled(request) => {
                let checked = request.check_clock(cpu_ns, context.tick, interval_ns, is_queued);
                self.may_block_signal = true;
                if let Unanswered::Ran { ticks, resend } = checked {
                    SessionCounts::add(&counts.unanswered_ticks, ticks);
                    // The question also ends a timer of a thread that masks the signal.
                    let blocks_signal =
                        (resend || self.timer.runs()) && self.blocks_signal(None, context);
                    if resend && may_send && !blocks_signal {
                        self.send(slot, sequence, context);
                    }
                }
            }
            ThreadState::TimerArmed(request) => {
                if may_send && cpu_ns.is_some_and(|cpu_ns| request.is_overdue(cpu_ns, interval_ns))
                {
                    SessionCounts::add(&counts.silent_timers, 1);
                    SessionCounts::add(&counts.unanswered_ticks, request.ticks());
                    let request = SignalRequest::new(cpu_ns, context.tick, None);
                    self.state = ThreadState::Signaled(request);
                    self.may_block_signal = true;
                    if !self.blocks_signal(None, context) {
                        self.send(slot, sequence, context);
                    }
                }
            }
        }
    }
}
