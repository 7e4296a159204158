//! What a thread has captured by its own timer is collected, and the timer is started.

use std::sync::Arc;

use super::{Exited, ThreadSampler};
use crate::capture::SlotHandle;
use crate::platform::{monotonic_now, thread_cpu_ns};
use crate::sampler::thread::signal_mask::SignalMask;
use crate::sampler::tick::TickContext;
use crate::state::SessionCounts;

impl ThreadSampler {
    /// Writes the samples that the thread has kept since the last collection, and before them its
    /// answer to a signal, which it gave before it ran on.
    ///
    /// # Errors
    /// The thread has exited.
    pub(super) fn collect_batch(&mut self, context: &mut TickContext<'_>) -> Result<(), Exited> {
        if !context.is_batched {
            self.samples.owe_nothing();
            if self.batch.exists() {
                self.write_kept_samples(context);
                self.batch.release();
            }
            return Ok(());
        }
        let cpu_ns = self.read_clock(context)?;
        self.samples.follow_ticks(cpu_ns, context);
        if self.batch.has_captures() {
            if self.is_idle() {
                self.end_idle_period(context);
            }
            if let Some(slot) = self.slot.clone().filter(|_| self.has_request()) {
                self.collect_capture(&slot, cpu_ns, context);
            }
            let last = self.batch.collect(&mut self.samples, cpu_ns, true, context);
            let age_ns = last.map_or(0, |last| monotonic_now().since_ns(last));
            if age_ns < context.interval_ns() {
                self.may_block_signal = false;
                self.signal_mask = SignalMask::default();
            }
        }
        Ok(())
    }

    /// Writes the samples that the thread has kept so far, so that a profile includes them.
    pub(crate) fn write_kept_samples(&mut self, context: &mut TickContext<'_>) {
        if self.batch.has_captures() {
            let cpu_ns = thread_cpu_ns(self.tid());
            if let Some(slot) = self.slot.clone().filter(|_| self.has_request())
                && !context.session.is_stopping()
            {
                self.collect_capture(&slot, cpu_ns, context);
            }
            self.batch
                .collect(&mut self.samples, cpu_ns, false, context);
        }
    }

    /// Lets the thread's own timer make captures until the next collection. Returns false if the
    /// thread is to be asked by a signal instead. `ran_ns` is its CPU time since the last tick.
    pub(super) fn arm_batch(
        &mut self,
        slot: &Arc<SlotHandle>,
        cpu_ns: Option<u64>,
        ran_ns: u64,
        context: &TickContext<'_>,
    ) -> bool {
        let interval_ns = context.interval_ns();
        let is_worthwhile = self.batch.exists() || ran_ns >= interval_ns / 2;
        let is_possible = is_worthwhile && self.found.is_none() && !self.timer.is_refused();
        let Some(cpu_ns) = cpu_ns.filter(|_| is_possible) else {
            return false;
        };
        let has_timer = context.may_request()
            && !self.blocks_signal(None, context)
            && self.batch.ensure(slot, context)
            && self.timer.ensure(self.tid(), slot, context.session);
        if !has_timer {
            if !self.batch.has_captures() {
                self.batch.release();
            }
            return false;
        }
        let answers = self.batch.arm(cpu_ns, interval_ns);
        if !answers {
            SessionCounts::add(&context.session.counts.silent_timers, 1);
            self.may_block_signal = true;
        }
        answers
    }

    /// Gives back memory of a thread that has been idle for long.
    pub(crate) fn rest(&mut self) {
        if self.batch.rest() {
            self.timer.end();
        }
    }
}
