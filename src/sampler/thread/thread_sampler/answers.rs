//! Step 6 of 12: a capture that has arrived is collected.

use super::ThreadSampler;
use crate::capture::{CaptureHeader, FIRST_FOUND_BYTES, SlotHandle, SlotPhase};
use crate::platform::{is_interrupted_wait, monotonic_now};
use crate::sampler::thread::pending_request::SignalRequest;
use crate::sampler::thread::signal_mask::SignalMask;
use crate::sampler::thread::thread_state::ThreadState;
use crate::sampler::tick::{Scratch, TickContext, captured_by, unwind_copy};
use crate::state::SessionCounts;
use crate::types::TimeStamp;

/// Maximum CPU time that a thread needs from the end of its handler back to sleep, in ns. Used
/// where the sampler cannot see whether a thread sleeps.
const RETURN_TO_SLEEP_NS: u64 = 30_000;

impl ThreadSampler {
    /// Collects a capture that has arrived, and leaves the handler's time out of the thread's CPU
    /// times. Keeps the state if none has arrived.
    pub(super) fn collect_capture(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) {
        if let Some(handler_ns) = self.write_capture(slot, cpu_ns, context) {
            let own_ns = self.samples.leave_out(handler_ns, cpu_ns);
            SessionCounts::add(&context.session.counts.stopped_ns, own_ns);
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
        let state = std::mem::take(&mut self.state);
        self.may_block_signal = false;
        self.signal_mask = SignalMask::default();
        let header = *view.header();
        let handler_ns = Some(header.handler_ns);
        if self.is_better_repeated(slot, &header) {
            drop(view);
            let count = &context.session.counts.repeated_captures;
            state.count_unused_capture(slot, header.time, cpu_ns, context, count);
            return handler_ns;
        }
        if view.enlarge_slot() {
            let count = &context.session.counts.repeated_captures;
            state.count_unused_capture(slot, header.time, cpu_ns, context, count);
            return handler_ns;
        }
        if !context.scratch.try_reserve(&view) {
            let count = &context.session.counts.dropped_samples;
            state.count_unused_capture(slot, header.time, cpu_ns, context, count);
            return handler_ns;
        }
        let is_walked = unwind_copy(context, &captured_by(&view));
        let Scratch {
            native,
            merged,
            stack,
        } = &mut *context.scratch;
        if is_walked
            && let ThreadState::Signaled(request) = &state
            && let Some(at) = request.blocked_at()
        {
            self.frame_pointers.remember(at, &header.registers, native);
        }
        stack.set(native, &view, context.session.records_scripts(), merged);
        if let ThreadState::Signaled(request) = &state
            && let Some(at) = request.blocked_at()
            && at.is_place_of(header.registers.pc)
        {
            stack.set_wait(at.wait);
        }
        drop(view);

        let now = monotonic_now();
        // CPU time since the answer belongs to the next sample.
        let at_answer_ns = |requested_ns: u64| {
            let cpu_ns = cpu_ns?.saturating_sub(now.since_ns(header.time));
            Some(cpu_ns.max(requested_ns))
        };
        let counts = &context.session.counts;
        let request = match state {
            ThreadState::Signaled(request) => request,
            ThreadState::TimerArmed(request) => {
                SessionCounts::add(&counts.unanswered_ticks, request.ticks());
                let answered_cpu_ns = match header.cpu_ns {
                    0 => at_answer_ns(request.cpu_ns()),
                    read_at_end_ns => Some(read_at_end_ns.saturating_sub(header.handler_ns)),
                };
                self.samples
                    .write_captured(header.time, answered_cpu_ns, context);
                return handler_ns;
            }
            // Without a request the slot has no capture of this session.
            ThreadState::Running | ThreadState::Idle(_) => return handler_ns,
        };
        if !context.session.is_stopping() {
            slot.clear_canceled_request();
        }
        let slept = self.hidden_until.is_some() && is_interrupted_wait(&header.registers);
        let answer = (header.time, slept);
        match request.idle_run(header.time, now, cpu_ns, context.interval_ns()) {
            Ok(run) => {
                if let Some(run) = run {
                    let written = self.samples.write_run(run, request.cpu_ns(), context);
                    SessionCounts::add(&counts.same_samples, written);
                }
                self.write_answer(&request, answer, request.cpu_ns(), context);
            }
            Err(unanswered) => {
                SessionCounts::add(&counts.unanswered_ticks, unanswered);
                let answered_cpu_ns = at_answer_ns(request.cpu_ns().unwrap_or(0));
                self.write_answer(&request, answer, answered_cpu_ns, context);
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

    /// Writes the samples of an answer to a signal. If threads keep their samples, the answer of a
    /// thread that was running stands for its CPU time without a sample. Any other one stands for the
    /// time in which the thread waited for a processor.
    fn write_answer(
        &mut self,
        request: &SignalRequest,
        (time, slept): (TimeStamp, bool),
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
    ) {
        let was_running = cpu_ns.is_some() && !slept && request.was_running(time);
        if !(context.is_batched && was_running) {
            self.samples.write_captured(time, cpu_ns, context);
            return;
        }
        // The captures that the thread has made since then come after this.
        let running = self
            .samples
            .owed_running()
            .saturating_sub(self.batch.waiting());
        if running > 0 || !self.batch.exists() {
            let more = running.saturating_sub(1);
            let written = self.samples.write_running(time, more, cpu_ns, context);
            SessionCounts::add(&context.session.counts.captured_samples, written);
        }
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
