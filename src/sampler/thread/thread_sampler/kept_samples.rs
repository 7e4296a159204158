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
        let seen_cpu_ns = self.seen_cpu_ns;
        let cpu_ns = self.read_clock(context)?;
        self.samples.follow_ticks(cpu_ns, context);
        if cpu_ns.is_some_and(|cpu_ns| cpu_ns - seen_cpu_ns >= context.interval_ns()) {
            // A capture of just now shows that it does not.
            self.may_block_signal = true;
        }
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

    /// Ends the idle period of a thread that has kept samples, before the sampler looks at it again: a
    /// profile would show sleep for the same time.
    pub(crate) fn notice_kept_samples(&mut self, context: &TickContext<'_>) {
        if context.is_batched && self.is_idle() && self.batch.has_captures() {
            let cpu_ns = self.own_cpu_ns();
            self.samples.follow_ticks(cpu_ns, context);
            self.end_idle_period(context);
        }
    }

    /// Returns the thread's CPU clock; `None` if it cannot be read, or if the thread has exited and its id
    /// belongs to another one.
    pub(super) fn own_cpu_ns(&self) -> Option<u64> {
        thread_cpu_ns(self.tid()).filter(|cpu_ns| *cpu_ns >= self.known_cpu_ns)
    }

    /// Writes the last samples of a thread. Its clock tells for how much time they stand, unless the thread
    /// has unregistered, and may have run on since.
    pub(super) fn write_last_samples(&mut self, context: &mut TickContext<'_>) {
        let thread = self.registration.unlocked_const_reader_and_atomic_rw();
        let cpu_ns = self.own_cpu_ns().filter(|_| thread.is_registered());
        if context.is_batched && cpu_ns.is_some() {
            self.samples.follow_ticks(cpu_ns, context);
        }
        if let Some(slot) = self.slot.clone().filter(|_| self.has_request())
            && context.is_batched
            && !context.session.is_stopping()
        {
            self.collect_capture(&slot, cpu_ns, context);
        }
        if self.batch.has_captures() {
            let is_known = context.is_batched && cpu_ns.is_some();
            self.batch
                .collect(&mut self.samples, cpu_ns, is_known, context);
        }
        if context.is_batched {
            self.samples.forgive(0, u64::MAX, context.session);
        }
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
    /// thread is to be asked by a signal instead. `ran_ns` is its CPU time since its last sample, or since
    /// it began.
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
        // No further timer is asked for once the first one was refused.
        let has_timer = context.may_request()
            && context.session.is_batched()
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
