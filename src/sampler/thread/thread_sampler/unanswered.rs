//! A request that the thread has not answered is checked, and replaced where the thread will not
//! answer soon.

use super::ThreadSampler;
use crate::capture::SlotHandle;
use crate::platform::signal_is_queued;
use crate::sampler::fork_gate::may_signal;
use crate::sampler::thread::pending_request::Unanswered;
use crate::sampler::thread::seen_state::Seen;
use crate::sampler::thread::thread_state::ThreadState;
use crate::sampler::tick::TickContext;
use crate::state::SessionCounts;

impl ThreadSampler {
    /// Collects the answer to the pending request, or checks why the answer is missing.
    pub(super) fn collect_or_wait(&mut self, cpu_ns: Option<u64>, context: &mut TickContext<'_>) {
        let Some(slot) = self.slot.clone() else {
            return;
        };
        self.collect_capture(&slot, cpu_ns, context);
        if context.session.is_stopping() {
            return;
        }
        let runs = match &self.state {
            ThreadState::Idle(_) => return,
            ThreadState::Running => return self.sample(cpu_ns, context),
            ThreadState::Signaled(_) => {
                self.follow_running(cpu_ns, context.interval_ns()).until_now
            }
        };
        // A sleeping thread will not answer.
        if let Seen::Blocked(at) = self.look(runs, context)
            && self.cancel_request(&slot)
        {
            self.sample_blocked(&slot, at, cpu_ns, context);
        } else {
            self.check_unanswered(&slot, cpu_ns, context);
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
        let is_queued = signal_is_queued(context.session.signal());
        match &mut self.state {
            ThreadState::Running | ThreadState::Idle(_) => {}
            ThreadState::Signaled(request) => {
                let checked = request.check_clock(cpu_ns, context.tick, interval_ns, is_queued);
                self.may_block_signal = true;
                if let Unanswered::Ran { ticks, resend } = checked {
                    SessionCounts::add(&counts.unanswered_ticks, ticks);
                    // The question also ends the event of a thread that masks the signal.
                    let blocks_signal =
                        (resend || self.own.has_event()) && self.blocks_signal(None, context);
                    if resend && may_send && !blocks_signal {
                        self.send(slot, sequence, context);
                    }
                }
            }
        }
    }
}
