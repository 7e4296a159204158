//! Starts and ends the event of a thread that samples itself while it runs, and collects its
//! captures. Such a thread sleeps now and then.

use std::sync::Arc;

use super::{Exited, ThreadSampler};
use crate::capture::SlotHandle;
use crate::platform::{monotonic_now, thread_cpu_ns};
use crate::sampler::thread_sampler::own_samples::Ran;
use crate::sampler::thread_sampler::signal_request::SignalMask;
use crate::sampler::tick_context::TickContext;
use crate::state::SessionCounts;
use crate::types::TimeStamp;

impl ThreadSampler {
    /// Writes the samples that the thread has taken of itself, and before them its answer to a signal.
    ///
    /// # Errors
    /// The thread has exited.
    pub(super) fn collect_own_samples(
        &mut self,
        context: &mut TickContext<'_>,
    ) -> Result<(), Exited> {
        if !self.own.has_captures() {
            return Ok(());
        }
        let cpu_ns = self.read_clock(context)?;
        let last = self.write_own_samples(cpu_ns, context);
        if last.is_some_and(|last| monotonic_now().since_ns(last) < context.interval_ns()) {
            self.may_block_signal = false;
            self.signal_mask = SignalMask::default();
        }
        Ok(())
    }

    /// Writes the samples that the thread has taken of itself so far, so that a profile includes them.
    pub(crate) fn write_waiting_samples(&mut self, context: &mut TickContext<'_>) {
        if self.own.has_captures() {
            // The thread may have exited, and its id may belong to another one.
            let cpu_ns = thread_cpu_ns(self.tid()).filter(|cpu_ns| *cpu_ns >= self.known_cpu_ns);
            self.write_own_samples(cpu_ns, context);
        }
    }

    fn write_own_samples(
        &mut self,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) -> Option<TimeStamp> {
        if let Some(slot) = self.slot.clone().filter(|_| self.has_request())
            && !context.session.is_stopping()
        {
            self.collect_capture(&slot, cpu_ns, context);
        }
        let Self {
            own,
            samples,
            state,
            switches,
            ..
        } = self;
        own.collect(samples, context, |first, samples, context| {
            state.end_idle(Some(first), samples, switches.as_mut(), context);
        })
    }

    /// Writes what the thread has captured since its clock was last read.
    pub(super) fn collect_latest(&mut self, context: &mut TickContext<'_>) {
        (self.own).collect(&mut self.samples, context, |_, _, _| {});
    }

    /// Starts or ends the event of a thread that has run. Returns whether it has one.
    pub(super) fn follow_own_clock(
        &mut self,
        slot: &Arc<SlotHandle>,
        cpu_ns: Option<u64>,
        ran: Ran,
        context: &mut TickContext<'_>,
    ) -> bool {
        let Some(cpu_ns) = cpu_ns else {
            return false;
        };
        let interval_ns = context.interval_ns();
        let needs_event = self.own.needs_event(ran);
        if self.own.has_event() {
            if needs_event == Some(false)
                || self.is_worth_event(cpu_ns, context) == Some(false)
                || self.is_strict(context)
            {
                self.own.end_event();
                self.collect_latest(context);
                self.own.release();
            } else if !self.own.make_room(cpu_ns, interval_ns) {
                SessionCounts::add(&context.session.counts.silent_events, 1);
                self.may_block_signal = true;
                match self.blocks_signal(None, context) {
                    true => self.own.release(),
                    false => self.own.refuse(context.session),
                }
                return false;
            }
            return self.own.has_event();
        }
        // A handler finds the slot of a thread that has not registered by the bounds of its stack.
        let is_possible = self.own.may_have_event()
            && self.found.as_ref().is_none_or(|found| found.has_bounds())
            && context.session.may_use_events()
            && context.may_request();
        let used_ns = cpu_ns.saturating_sub(self.began_cpu_ns);
        let is_worthwhile = needs_event == Some(true) && used_ns >= interval_ns / 4;
        if !(is_possible && is_worthwhile && self.is_worth_event(cpu_ns, context) == Some(true)) {
            return false;
        }
        let has_event = self.own.may_have_slots(context.session)
            && !self.blocks_signal(None, context)
            && self.own.start_event(self.tid(), slot, cpu_ns, context);
        if !has_event {
            self.own.look_soon();
        }
        has_event
    }

    /// Returns whether the thread sleeps, but not too often: see [`OwnSamples::look_at_sleeps`]. A thread
    /// may also be absent because it waits for a processor.
    ///
    /// [`OwnSamples::look_at_sleeps`]: crate::sampler::thread_sampler::own_samples::OwnSamples::look_at_sleeps
    fn is_worth_event(&mut self, cpu_ns: u64, context: &TickContext<'_>) -> Option<bool> {
        if !self.own.is_time_to_look() {
            return None;
        }
        let sleeps = self.ask_status(context);
        self.own
            .look_at_sleeps(sleeps, cpu_ns, context.interval_ns())
    }

    pub(crate) fn end_event(&mut self) {
        self.own.end_event();
    }

    /// Forgets whether the thread blocks the sampling signal, which is another one from now on.
    pub(crate) fn forget_mask(&mut self) {
        self.may_block_signal = true;
        self.signal_mask = SignalMask::Unknown;
    }
}
