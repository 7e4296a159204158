//! Step 6 of 12: a capture that has arrived is collected.

use super::ThreadSampler;
use crate::capture::{CaptureHeader, FIRST_FOUND_BYTES, SlotHandle, SlotPhase};
use crate::platform::{is_after_system_call, is_interrupted_wait, monotonic_now};
use crate::sampler::thread::signal_mask::SignalMask;
use crate::sampler::thread::thread_state::ThreadState;
use crate::sampler::tick::{Scratch, TickContext, captured_by, unwind_copy};
use crate::state::SessionCounts;
use crate::types::Wait;

/// Maximum CPU time that a thread needs from the end of its handler back to sleep, in ns. Used
/// where the sampler cannot see whether a thread sleeps.
const RETURN_TO_SLEEP_NS: u64 = 30_000;

impl ThreadSampler {
    /// Collects a capture that has arrived, and counts the handler's time. Keeps the state if none has
    /// arrived.
    pub(super) fn collect_capture(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) {
        if let Some(handler_ns) = self.write_capture(slot, cpu_ns, context) {
            SessionCounts::add(&context.session.counts.stopped_ns, handler_ns);
        }
    }

    /// Unwinds, merges and writes a capture that has arrived. Returns how long the handler took, in
    /// ns; `None` if no capture has arrived.
    fn write_capture(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) -> Option<u64> {
        let Some(mut view) = slot.captured() else {
            if slot.phase() == SlotPhase::Idle {
                // The request was not sent.
                self.drop_request();
            }
            return None;
        };
        let ThreadState::Signaled(request) = std::mem::take(&mut self.state) else {
            // Without a request the slot has no capture of this session.
            return None;
        };
        self.may_block_signal = false;
        self.signal_mask = SignalMask::default();
        let header = *view.header();
        let handler_ns = Some(header.handler_ns);
        if self.is_better_repeated(slot, &header) {
            drop(view);
            let count = &context.session.counts.repeated_captures;
            request.count_unused_capture(slot, header.time, cpu_ns, context, count);
            return handler_ns;
        }
        let waited = request.waited_for_processor(header.time, header.cpu_ns);
        if self.own.has_event()
            && request.blocked_at().is_none()
            && !waited
            && !(self.own.lacks_kernel() && is_after_system_call(&header.registers))
        {
            let interval_ns = context.interval_ns();
            if !cpu_ns.is_some_and(|cpu_ns| self.own.is_silent(cpu_ns, interval_ns)) {
                // The thread samples itself while it runs.
                slot.clear_canceled_request();
                return handler_ns;
            }
            SessionCounts::add(&context.session.counts.silent_events, 1);
            self.own.refuse(context.session);
        }
        if view.enlarge_slot() {
            let count = &context.session.counts.repeated_captures;
            request.count_unused_capture(slot, header.time, cpu_ns, context, count);
            return handler_ns;
        }
        if !context.scratch.try_reserve(&view) {
            let count = &context.session.counts.dropped_samples;
            request.count_unused_capture(slot, header.time, cpu_ns, context, count);
            return handler_ns;
        }
        let is_walked = unwind_copy(context, &captured_by(&view));
        let Scratch {
            native,
            merged,
            stack,
        } = &mut *context.scratch;
        if is_walked && let Some(at) = request.blocked_at() {
            self.frame_pointers.remember(at, &header.registers, native);
        }
        stack.set(native, &view, context.session.records_scripts(), merged);
        if let Some(at) = request.blocked_at() {
            stack.set_wait(at.wait.filter(|_| at.is_place_of(header.registers.pc)));
        } else if waited {
            stack.set_wait(Some(Wait::Processor));
        } else if is_interrupted_wait(&header.registers) {
            // The thread fell asleep before the signal arrived.
            stack.set_wait(Some(Wait::Other));
        }
        drop(view);

        let now = monotonic_now();
        // CPU time since the answer belongs to the next sample.
        let at_answer_ns = |requested_ns: u64| {
            let cpu_ns = cpu_ns?;
            let answered_ns = match header.cpu_ns {
                0 => cpu_ns.saturating_sub(now.since_ns(header.time)),
                read_at_end_ns => read_at_end_ns.saturating_sub(header.handler_ns),
            };
            Some(answered_ns.max(requested_ns))
        };
        let counts = &context.session.counts;
        if !context.session.is_stopping() {
            slot.clear_canceled_request();
        }
        match request.idle_run(header.time, now, cpu_ns, context.interval_ns()) {
            Ok(run) => {
                if let Some(run) = run {
                    let written = self.samples.write_run(run, request.cpu_ns(), context);
                    SessionCounts::add(&counts.same_samples, written);
                }
                self.samples
                    .write_captured(header.time, request.cpu_ns(), context);
            }
            Err(unanswered) => {
                SessionCounts::add(&counts.unanswered_ticks, unanswered);
                let answered_cpu_ns = at_answer_ns(request.cpu_ns().unwrap_or(0));
                self.samples
                    .write_captured(header.time, answered_cpu_ns, context);
            }
        }
        let ran_on_ns = cpu_ns.map(|cpu_ns| cpu_ns.saturating_sub(header.cpu_ns));
        let is_asleep = self.hidden_until.is_some()
            && header.cpu_ns > 0
            && ran_on_ns.is_some_and(|ran_on_ns| ran_on_ns <= RETURN_TO_SLEEP_NS)
            && is_interrupted_wait(&header.registers);
        // Even in that short time, an event may have begun or ended before the thread slept again.
        if is_asleep && slot.event_delay().state_in_handler() == header.event_loop {
            // The thread went back to sleep, or is about to.
            self.begin_idle_period(cpu_ns, self.announced_sleep(), context);
        }
        handler_ns
    }

    /// Searches for the bounds of the stack of a thread that has not registered, with what its handler
    /// has found. Returns whether its next capture has more of the stack than this one.
    fn is_better_repeated(&mut self, slot: &SlotHandle, header: &CaptureHeader) -> bool {
        let Some(found) = &mut self.found else {
            return false;
        };
        let had_failed = found.has_failed();
        if found.search(slot, header.registers.sp, header.thread_pointer) {
            let copied_to = header.stack_start.saturating_add(header.stack_bytes as u64);
            found.contains(copied_to)
        } else {
            found.has_failed() && !had_failed && header.stack_bytes >= FIRST_FOUND_BYTES
        }
    }
}
