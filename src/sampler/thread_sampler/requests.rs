//! A thread is asked for a capture by a signal. Step 6 of 12: its answer is collected, or its request is
//! replaced where the thread will not answer soon.

use super::{ThreadSampler, ThreadState};
use crate::capture::{CaptureHeader, FIRST_FOUND_BYTES, SlotHandle, SlotPhase};
use crate::platform::{
    BlockedAt, ProbeResult, Sent, is_after_system_call, is_interrupted_wait,
    is_thread_of_c_library, monotonic_now, send_request, signal_is_queued,
};
use crate::sampler::fork_gate::may_signal;
use crate::sampler::thread_sampler::signal_request::{
    SeenMask, SignalMask, SignalRequest, Unanswered,
};
use crate::sampler::tick_context::{Scratch, TickContext, captured_by, unwind_copy};
use crate::state::SessionCounts;
use crate::types::{NoStack, Wait};

/// CPU time in which each signal to a thread is preceded by the question for its seccomp mode, in ns.
const EARLY_CPU_NS: u64 = 10_000_000;
/// Intervals of a thread's later CPU time after which it is asked again.
const INTERVALS_WITHOUT_QUESTION: u64 = 16;
/// Maximum CPU time that a thread needs from the end of its handler back to sleep, in ns. Used
/// where the sampler cannot see whether a thread sleeps.
const RETURN_TO_SLEEP_NS: u64 = 30_000;

impl ThreadSampler {
    pub(super) fn request_by_signal(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: Option<u64>,
        blocked_at: Option<BlockedAt>,
        context: &mut TickContext<'_>,
    ) {
        if !(context.may_request() && may_signal()) {
            if !context.is_handler_in_place && blocked_at.is_none() {
                self.sample_uninterrupted(cpu_ns, context);
            }
            return;
        }
        let counts = &context.session.counts;
        let blocks_signal = self.blocks_signal(blocked_at, context);
        let repeated = slot.repeat_canceled_request();
        if blocks_signal && repeated.is_none() {
            match blocked_at {
                None => self.sample_uninterrupted(cpu_ns, context),
                Some(_) => SessionCounts::add(&counts.unanswered_ticks, 1),
            }
            return;
        }
        let Some(sequence) = repeated.or_else(|| slot.state.request()) else {
            // A late handler uses the slot, or an earlier session's sampler that waits for the
            // loader.
            SessionCounts::add(&counts.unanswered_ticks, 1);
            return;
        };
        // From here on, the thread answers the request before it fills its other slots.
        self.collect_latest(context);
        // The signal of a repeated request is still pending where the thread blocks it.
        if !blocks_signal {
            if blocked_at.is_some() {
                SessionCounts::add(&counts.signals_to_sleepers, 1);
            }
            slot.set_requested_at(monotonic_now());
            self.send(slot, sequence, context);
        }
        if slot.state.phase() != SlotPhase::Idle {
            let request = SignalRequest::new(cpu_ns, context.tick, blocked_at);
            self.state = ThreadState::Signaled(request);
        }
    }

    /// Writes a sample of a running thread that is sent no signal. In the place of its stack, the sample
    /// says why.
    fn sample_uninterrupted(&mut self, cpu_ns: Option<u64>, context: &mut TickContext<'_>) {
        let counts = &context.session.counts;
        let signal = context.session.signal();
        let reason = if !context.is_handler_in_place {
            NoStack::Replaced(signal)
        } else if self.is_strict || !self.is_interruptible() {
            NoStack::NotInterruptible
        } else if self.signal_mask.is_masked(cpu_ns) {
            NoStack::Blocked(signal)
        } else {
            SessionCounts::add(&counts.unanswered_ticks, 1);
            return;
        };
        let event_loop = self.event_loop();
        context.scratch.stack.set_no_stack(reason, event_loop);
        let written = (self.samples).write_sample(context.tick.time, cpu_ns, context);
        SessionCounts::add(&counts.samples_without_stack, written);
    }

    /// Returns whether the thread, which is blocked at `blocked_at` or not blocked, masks the
    /// signal. The thread's next `sigwait` would return a pending signal. So an event ends that began
    /// before the thread masked the signal.
    ///
    /// A thread that ran on after its last answer is assumed not to mask the signal, because the
    /// check costs 3 µs, or 20 µs for a real-time signal.
    pub(super) fn blocks_signal(
        &mut self,
        blocked_at: Option<BlockedAt>,
        context: &TickContext<'_>,
    ) -> bool {
        if !self.is_interruptible() || self.is_strict(context) {
            self.own.end_event();
            return true;
        }
        if blocked_at.is_some_and(|at| at.awaits_handler) {
            // The signal would end the wait.
            return true;
        }
        let seen = self.see_mask(blocked_at, context);
        let cpu_ns = Some(self.seen_cpu_ns).filter(|_| !self.has_no_clock);
        let blocks = self.signal_mask.note(seen, context.tick.time, cpu_ns);
        if blocks {
            self.own.end_event();
        }
        blocks
    }

    /// Returns whether a handler may run on the thread.
    fn is_interruptible(&mut self) -> bool {
        // `std::process::exit` on another thread may unmap the main thread's signal stack, also while a
        // signal is pending. A main thread that has registered has one of the profiler's.
        if self.found.is_some() && self.registration.unlocked_const_reader().info().is_main {
            return false;
        }
        // Asked again, because a thread of the C library is not known as such when it begins.
        self.may_run_handler = self.may_run_handler || is_thread_of_c_library(self.tid());
        self.may_run_handler
    }

    /// Returns whether the thread is in seccomp's strict mode, which ends a thread that reads a clock, as
    /// the handler does. A thread stays in that mode, and usually begins it early. So it is asked each
    /// time at first, and then once in some intervals, because the question takes 7 µs.
    pub(super) fn is_strict(&mut self, context: &TickContext<'_>) -> bool {
        let was_asked = self.asked_strict_at_tick == context.tick.number;
        if !self.is_strict && !was_asked && self.seen_cpu_ns >= self.ask_strict_at_ns {
            self.ask_status(context);
            let used_ns = self.seen_cpu_ns.saturating_sub(self.began_cpu_ns);
            let most_ns = INTERVALS_WITHOUT_QUESTION.saturating_mul(context.interval_ns());
            let is_early = used_ns < EARLY_CPU_NS.max(most_ns);
            self.ask_strict_at_ns = match is_early || self.has_no_clock {
                true => 0,
                false => self.seen_cpu_ns.saturating_add(most_ns),
            };
        }
        self.is_strict
    }

    /// Asks whether the thread is in strict mode. Returns how often it has slept: see
    /// [`ThreadProbe::strict_mode_and_sleeps`].
    ///
    /// [`ThreadProbe::strict_mode_and_sleeps`]: crate::platform::ThreadProbe::strict_mode_and_sleeps
    pub(super) fn ask_status(&mut self, context: &TickContext<'_>) -> Option<u64> {
        let (is_strict, sleeps) = self.probe.strict_mode_and_sleeps();
        self.is_strict |= is_strict;
        self.asked_strict_at_tick = context.tick.number;
        sleeps
    }

    /// Asks the kernel whether the thread masks the signal. `blocked_at` is where the thread was
    /// blocked when the caller asked.
    fn see_mask(&mut self, blocked_at: Option<BlockedAt>, context: &TickContext<'_>) -> SeenMask {
        if blocked_at.is_some_and(|at| at.awaits_signals) {
            return SeenMask::Masked;
        }
        // While a handler runs, the kernel reports the signal as blocked.
        let answers = (self.own).has_answered(self.seen_cpu_ns, context.interval_ns());
        if !self.may_block_signal || answers {
            return SeenMask::Open;
        }
        if self.probe.blocks(context.session.signal()) {
            return SeenMask::Masked;
        }
        match self.probe.probe() {
            ProbeResult::Blocked(at) if at.awaits_signals => SeenMask::Masked,
            // The thread was blocked in the meantime, so its mask did not change.
            ProbeResult::Blocked(at) if blocked_at == Some(at) => SeenMask::Open,
            // Nothing tells whether the thread waits for signals.
            ProbeResult::Hidden => SeenMask::Open,
            ProbeResult::Blocked(_) | ProbeResult::FallingAsleep | ProbeResult::NotBlocked => {
                SeenMask::PerhapsOpen
            }
        }
    }

    pub(super) fn send(&self, slot: &SlotHandle, sequence: u32, context: &TickContext<'_>) {
        let (signal, ticket) = (context.session.signal(), slot.ticket(sequence));
        if send_request(context.process, self.tid(), signal, ticket) != Sent::Yes {
            SessionCounts::add(&context.session.counts.refused_signals, 1);
            slot.state.cancel();
        }
    }

    /// Cancels a request that will not be answered soon. Returns false if the answer is already
    /// being written.
    pub(super) fn cancel_request(&mut self, slot: &SlotHandle) -> bool {
        self.note_canceled(slot);
        slot.state.cancel();
        let is_canceled = slot.state.phase() == SlotPhase::Idle;
        if is_canceled {
            self.drop_request();
        }
        is_canceled
    }

    /// Cancels the pending request. If the handler is already writing an answer, that answer is
    /// dropped.
    pub(super) fn abandon_request(&mut self) {
        if let Some(slot) = self.slot.clone() {
            self.note_canceled(&slot);
            slot.state.retire();
        }
        self.drop_request();
    }

    /// Records that a signal was already sent for a request that is about to be canceled. That
    /// signal may arrive later, even in another session.
    fn note_canceled(&self, slot: &SlotHandle) {
        if let Some(sequence) = slot.state.pending_request().filter(|_| self.has_request()) {
            slot.set_canceled_request(sequence);
        }
    }

    pub(super) fn has_request(&self) -> bool {
        matches!(self.state, ThreadState::Signaled(_))
    }

    /// Leaves the states of a pending request.
    pub(super) fn drop_request(&mut self) {
        if self.has_request() {
            self.state = ThreadState::Running;
        }
    }

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
        if let ProbeResult::Blocked(at) = self.look(runs, context)
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
        let Some(sequence) = slot.state.pending_request() else {
            return;
        };
        let counts = &context.session.counts;
        let interval_ns = context.interval_ns();
        let may_send = context.may_request() && may_signal();
        let is_queued = signal_is_queued(context.session.signal());
        let ThreadState::Signaled(request) = &mut self.state else {
            return;
        };
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

    /// Unwinds, merges and writes a capture that has arrived, and counts the handler's time. Keeps the
    /// state if none has arrived.
    pub(super) fn collect_capture(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) {
        let Some(mut view) = slot.captured() else {
            if slot.state.phase() == SlotPhase::Idle {
                // The request was not sent.
                self.drop_request();
            }
            return;
        };
        let ThreadState::Signaled(request) = std::mem::take(&mut self.state) else {
            // Without a request the slot has no capture of this session.
            return;
        };
        self.may_block_signal = false;
        self.signal_mask = SignalMask::default();
        let header = *view.header();
        let counts = &context.session.counts;
        SessionCounts::add(&counts.stopped_ns, header.handler_ns);
        if self.is_better_repeated(slot, &header) {
            drop(view);
            let count = &counts.repeated_captures;
            request.count_unused_capture(slot, header.time, cpu_ns, context, count);
            return;
        }
        let waited = request.waited_for_processor(header.time, header.cpu_ns);
        if self.own.has_event()
            && request.blocked_at.is_none()
            && !waited
            && !(self.own.lacks_kernel() && is_after_system_call(&header.registers))
        {
            let interval_ns = context.interval_ns();
            if !cpu_ns.is_some_and(|cpu_ns| self.own.is_silent(cpu_ns, interval_ns)) {
                // The thread samples itself while it runs.
                slot.clear_canceled_request();
                return;
            }
            SessionCounts::add(&counts.silent_events, 1);
            self.own.refuse(context.session);
        }
        if view.enlarge_slot() {
            let count = &counts.repeated_captures;
            request.count_unused_capture(slot, header.time, cpu_ns, context, count);
            return;
        }
        if !context.scratch.try_reserve(&view) {
            let count = &counts.dropped_samples;
            request.count_unused_capture(slot, header.time, cpu_ns, context, count);
            return;
        }
        let is_walked = unwind_copy(context, &captured_by(&view));
        let Scratch {
            native,
            merged,
            stack,
        } = &mut context.scratch;
        if is_walked && let Some(at) = request.blocked_at {
            self.frame_pointers.remember(at, &header.registers, native);
        }
        stack.set(native, &view, context.session.records_scripts(), merged);
        if let Some(at) = request.blocked_at {
            stack.set_wait(at.wait.filter(|_| at.is_place_of(header.registers.pc)));
        } else if waited {
            stack.set_wait(Some(Wait::Processor));
        } else if is_interrupted_wait(&header.registers) {
            // The thread fell asleep before the signal arrived.
            stack.set_wait(Some(Wait::Other));
        }
        drop(view);

        let now = monotonic_now();
        if !context.session.is_stopping() {
            slot.clear_canceled_request();
        }
        let run = request.idle_run(header.time, now, cpu_ns, context.interval_ns());
        let answered_cpu_ns = match run {
            Ok(run) => {
                if let Some(run) = run {
                    let written = self.samples.write_run(run, request.cpu_ns, context);
                    SessionCounts::add(&counts.same_samples, written);
                }
                request.cpu_ns
            }
            Err(unanswered) => {
                SessionCounts::add(&counts.unanswered_ticks, unanswered);
                // CPU time since the answer belongs to the next sample.
                cpu_ns.map(|cpu_ns| {
                    let answered_ns = match header.cpu_ns {
                        0 => cpu_ns.saturating_sub(now.since_ns(header.time)),
                        read_at_end_ns => read_at_end_ns.saturating_sub(header.handler_ns),
                    };
                    answered_ns.max(request.cpu_ns.unwrap_or(0))
                })
            }
        };
        let written = (self.samples).write_sample(header.time, answered_cpu_ns, context);
        SessionCounts::add(&counts.captured_samples, written);
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
