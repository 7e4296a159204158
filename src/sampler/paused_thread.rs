//! A thread while sampling pauses: nothing is done for it, and nothing of that time is written or charged.
//!
//! Its CPU time until the pause, after its last sample, goes to its first sample after the pause; that of the pause to none.
//! The border is known to a tick alone: the time between the pause's beginning or end and the tick that noticed it counts
//! as run in the pause, and so does what it ran between two pauses when no tick fell there.

use crate::base::TimeStamp;
use crate::platform::{monotonic_now, thread_cpu_ns};
use crate::sampler::rest::Tick;
use crate::sampler::thread_sampler::ThreadSampler;
use crate::sampler::tick_context::TickContext;

impl ThreadSampler {
    /// Sampling stopped at `paused_at`, after the tick `last`: what was held back is written up to then, what was asked
    /// for is not waited for.
    pub(super) fn pause(
        &mut self,
        paused_at: TimeStamp,
        last: Tick,
        context: &mut TickContext<'_>,
    ) {
        self.write_rest_until(last, context);
        self.timer.end();
        let Some(cpu_ns) = thread_cpu_ns(self.tid()) else {
            return;
        };
        let since_then_ns = monotonic_now().since_ns(paused_at);
        // It may have answered before.
        if self.waiting.is_some() {
            self.take_up(cpu_ns, context);
        }
        self.give_up_request();
        self.ran_before_pause_ns = cpu_ns
            .saturating_sub(self.reported_cpu_ns)
            .saturating_sub(since_then_ns);
    }

    /// Sampling goes on with this tick. A thread that has not run meanwhile rests on.
    pub(super) fn resume(&mut self, tick: Tick) {
        self.give_up_request();
        let before_ns = std::mem::take(&mut self.ran_before_pause_ns);
        // One that is gone is found so on this tick.
        let Some(cpu_ns) = thread_cpu_ns(self.tid()) else {
            return;
        };
        self.reported_cpu_ns = self.reported_cpu_ns.max(cpu_ns.saturating_sub(before_ns));
        match &mut self.rest {
            Some(rest) if rest.cpu_ns == cpu_ns => rest.skip_to(tick),
            rest => *rest = None,
        }
    }

    /// The sampler will do nothing for a while, and may never do anything again.
    pub(super) fn leave_alone(&mut self, context: &TickContext<'_>) {
        self.write_rest(context);
        self.end_timer();
    }

    /// Ends its timer. What that was asked for is taken back, so that the next request makes another; an answer that is
    /// there already is taken up.
    pub(super) fn end_timer(&mut self) {
        self.timer.end();
        if self
            .waiting
            .as_ref()
            .is_some_and(|waiting| waiting.by_timer)
            && let Some(slot) = self.slot.clone()
        {
            self.take_back(&slot);
        }
    }

    /// An answer that comes in spite of this, since its handler was writing it, is not taken up.
    fn give_up_request(&mut self) {
        if let Some(slot) = self.slot.clone() {
            self.take_back(&slot);
            slot.retire();
        }
        self.waiting = None;
    }
}
