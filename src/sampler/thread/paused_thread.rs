//! Handles a thread while sampling is paused: no work is done for it, and no time within the pause
//! is written or charged.
//!
//! CPU time between the thread's last sample and the pause is charged to its first sample after the
//! pause. CPU time during the pause is charged to no sample. The sampler sees a pause begin or end
//! only on its next tick. So CPU time between the pause's beginning or end and that tick counts as
//! part of the pause. CPU time between two pauses also does, if no tick falls between them.

use crate::platform::{monotonic_now, thread_cpu_ns};
use crate::sampler::encode::Tick;
use crate::sampler::thread::thread_sampler::ThreadSampler;
use crate::sampler::tick::TickContext;
use crate::types::TimeStamp;

impl ThreadSampler {
    /// Pauses the thread: sampling paused at `paused_at`, after the tick `last`. Writes the samples
    /// that were held back until then, and does not wait for a pending request.
    pub(crate) fn pause(
        &mut self,
        paused_at: TimeStamp,
        last: Tick,
        context: &mut TickContext<'_>,
    ) {
        self.write_idle_until(last, context);
        self.timer.end();
        let Some(cpu_ns) = thread_cpu_ns(self.tid()) else {
            return;
        };
        let since_then_ns = monotonic_now().since_ns(paused_at);
        // The thread may have answered before the pause.
        if self.pending.is_some() {
            self.collect_capture(cpu_ns, context);
        }
        self.abandon_request();
        self.ran_before_pause_ns = cpu_ns
            .saturating_sub(self.reported_cpu_ns)
            .saturating_sub(since_then_ns);
    }

    /// Resumes sampling on this tick. A thread that has not run during the pause stays idle.
    pub(crate) fn resume(&mut self, tick: Tick) {
        self.abandon_request();
        let before_ns = std::mem::take(&mut self.ran_before_pause_ns);
        // A later step of this tick notices if the thread has exited.
        let Some(cpu_ns) = thread_cpu_ns(self.tid()) else {
            return;
        };
        self.reported_cpu_ns = self.reported_cpu_ns.max(cpu_ns.saturating_sub(before_ns));
        match &mut self.idle {
            Some(idle) if idle.cpu_ns == cpu_ns => idle.skip_to(tick),
            idle => *idle = None,
        }
    }

    /// Writes the pending idle samples and ends the timer, because the sampler may not come back to
    /// this thread for a while, or ever.
    pub(crate) fn flush_and_end_timer(&mut self, context: &TickContext<'_>) {
        self.write_idle_samples(context);
        self.end_timer();
    }

    /// Ends the thread's timer and cancels a request that the timer was to answer, so that the next
    /// request makes a new timer. An answer that has already arrived is still collected.
    pub(crate) fn end_timer(&mut self) {
        self.timer.end();
        if self
            .pending
            .as_ref()
            .is_some_and(|pending| pending.by_timer)
            && let Some(slot) = self.slot.clone()
        {
            self.cancel_request(&slot);
        }
    }

    /// Cancels the pending request. If the handler is already writing an answer, that answer is
    /// dropped.
    fn abandon_request(&mut self) {
        if let Some(slot) = self.slot.clone() {
            self.cancel_request(&slot);
            slot.retire();
        }
        self.pending = None;
    }
}
