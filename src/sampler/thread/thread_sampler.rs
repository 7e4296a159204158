//! Step 2 of 12: the thread's CPU clock decides whether to repeat the last sample, read the stack
//! remotely, send a signal, or keep waiting.
//!
//! Step 6 of 12: a capture that has arrived is collected.
//!
//! To read a stack remotely means that the sampler thread reads the stack of a blocked thread
//! without interrupting it.
//!
//! | state of the thread | action |
//! |---|---|
//! | has not run since its stack was captured | none: the thread is idle and repeats its sample |
//! | ran for all of the last tick | request by signal, or by the thread's own timer |
//! | ran for less, is blocked in the kernel now | remote read; the thread becomes idle |
//! | likewise, and its stack needs the frame pointer | request by signal; the answer is cached |
//! | ran for less, is not blocked | request by signal, which the thread answers when it runs |
//! | has not answered its request yet | none until it answers |

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::capture::{SlotHandle, SlotPhase};
use crate::platform::{
    BlockedAt, ProbeResult, Sent, SignalTicket, ThreadProbe, monotonic_now, send_request,
    thread_cpu_ns,
};
use crate::sampler::encode::LastStack;
use crate::sampler::encode::{IdlePeriod, Tick};
use crate::sampler::fork_gate::may_signal;
use crate::sampler::handler::READS_CLOCK;
use crate::sampler::thread::frame_pointer_cache::{FramePointerCache, RemoteUnwind, registers_at};
use crate::sampler::thread::pending_request::{PendingRequest, Unanswered};
use crate::sampler::tick::TimerState;
use crate::sampler::tick::{Scratch, TickContext, captured_by, unwind_counted};
use crate::state::{Session, SessionCounts};
use crate::threads::OffThreadRef;
use crate::types::{ThreadId, ThreadProfilingFeatures, TimeStamp};

/// Maximum CPU time that a thread needs from the end of its handler back to sleep, in ns. Used
/// where the sampler cannot see whether a thread sleeps.
const RETURN_TO_SLEEP_NS: u64 = 30_000;
/// Time that an interrupt takes from a running thread, in ns.
const SHORT_ABSENCE_NS: u64 = 10_000;

/// Whether a thread still exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadLife {
    Alive,
    /// The thread exited without unregistering.
    Dead,
}

/// Returns where the thread is blocked, or `None` if it is not blocked or if the system does not
/// report it.
fn probe_blocked_at(
    probe: &mut ThreadProbe,
    is_hidden: &mut bool,
    context: &TickContext<'_>,
) -> Option<BlockedAt> {
    if *is_hidden {
        return None;
    }
    match probe.probe() {
        ProbeResult::Blocked(at) => Some(at),
        ProbeResult::NotBlocked => None,
        ProbeResult::Hidden => {
            *is_hidden = true;
            SessionCounts::add(&context.session.counts.hidden_threads, 1);
            READS_CLOCK.store(true, Ordering::Relaxed);
            None
        }
    }
}

/// The sampler's state of one thread.
#[derive(Debug)]
pub(crate) struct ThreadSampler {
    pub(crate) registration: OffThreadRef,
    /// What is recorded of the thread.
    pub(crate) features: ThreadProfilingFeatures,
    pub(crate) slot: Option<Arc<SlotHandle>>,
    probe: ThreadProbe,
    /// Whether the system does not report if the thread sleeps.
    is_hidden: bool,
    /// Where the thread was blocked when its frame pointer was last requested.
    fp_requested_at: Option<BlockedAt>,
    frame_pointers: FramePointerCache,
    pub(crate) timer: TimerState,
    pub(crate) pending: Option<PendingRequest>,
    pub(crate) idle: Option<IdlePeriod>,
    /// The last reading of the CPU clock, and the time of that reading.
    seen_cpu_ns: u64,
    seen_at: TimeStamp,
    /// The CPU clock up to which samples account for the thread's CPU time.
    pub(crate) reported_cpu_ns: u64,
    /// While sampling is paused: CPU time between the thread's last sample and the pause.
    pub(crate) ran_before_pause_ns: u64,
    pub(crate) last_stack: LastStack,
    /// Time of the last sample.
    pub(crate) last_time: TimeStamp,
}

impl ThreadSampler {
    pub(crate) fn new(registration: OffThreadRef, session: &Session) -> Self {
        let unlocked = registration.unlocked_const_reader_and_atomic_rw();
        let features = unlocked.profiling_features();
        let slot = unlocked.slot();
        match &slot {
            // Drop the requests of an earlier session.
            Some(slot) => {
                slot.retire();
                slot.set_timer(-1);
            }
            None if session.records_stacks_of(features) => {
                SessionCounts::add(&session.counts.threads_without_stacks, 1);
            }
            None => {}
        }
        let tid = unlocked.tid();
        let cpu_ns = thread_cpu_ns(tid).unwrap_or(0);
        Self {
            probe: ThreadProbe::new(tid),
            features,
            registration,
            slot,
            is_hidden: false,
            fp_requested_at: None,
            frame_pointers: FramePointerCache::default(),
            timer: TimerState::default(),
            pending: None,
            idle: None,
            seen_cpu_ns: cpu_ns,
            seen_at: TimeStamp(0),
            reported_cpu_ns: cpu_ns,
            ran_before_pause_ns: 0,
            last_stack: LastStack::default(),
            last_time: TimeStamp(0),
        }
    }

    pub(crate) fn tid(&self) -> ThreadId {
        self.registration
            .unlocked_const_reader_and_atomic_rw()
            .tid()
    }

    fn announced_sleep(&self) -> Option<u32> {
        self.registration
            .unlocked_const_reader_and_atomic_rw()
            .announced_sleep()
    }

    /// Returns whether the thread has not run since its stack was captured.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.is_some()
    }

    /// Returns whether the thread has been idle for long.
    pub(crate) fn is_long_idle(&self, tick: Tick) -> bool {
        self.idle.as_ref().is_some_and(|idle| idle.is_long(tick))
    }

    /// Runs one tick of this thread. Ticks of an idle thread may be skipped.
    pub(crate) fn tick(&mut self, context: &mut TickContext<'_>) -> ThreadLife {
        if !context.may_signal {
            self.end_timer();
        }
        if self.is_still_pending(context) {
            return ThreadLife::Alive;
        }
        if let Some(idle) = &self.idle {
            let announced = self.announced_sleep();
            if idle.is_announced(announced, context.tick) {
                return ThreadLife::Alive;
            }
        }
        // A clock that went back belongs to another thread, to which the system gave this thread's
        // id.
        let Some(cpu_ns) = thread_cpu_ns(self.tid()).filter(|&cpu_ns| cpu_ns >= self.seen_cpu_ns)
        else {
            self.end_idle_period(context);
            return ThreadLife::Dead;
        };
        if self.idle.as_ref().is_some_and(|idle| idle.cpu_ns == cpu_ns) {
            return ThreadLife::Alive;
        }
        self.end_idle_period(context);
        self.collect_capture(cpu_ns, context);
        if self.idle.is_some() {
            return ThreadLife::Alive;
        }
        let runs = self.ran_until_now(cpu_ns);
        let is_captured = context.session.records_stacks_of(self.features);
        let Some(slot) = self.slot.clone().filter(|_| is_captured) else {
            self.sample_without_stack(cpu_ns, context);
            return ThreadLife::Alive;
        };
        let mut blocked_at = None;
        if let Some(pending) = &mut self.pending {
            let (by_timer, stood_still) = (pending.by_timer, pending.clock_stood_still(cpu_ns));
            blocked_at = if runs {
                None
            } else {
                probe_blocked_at(&mut self.probe, &mut self.is_hidden, context)
            };
            // A sleeping thread will not answer: it masks the signal, or its timer does not
            // advance. The timer of a thread that waits for a processor does not advance either.
            // Such a thread gets a signal instead, which it handles before anything else.
            let is_futile = blocked_at.is_some() || (by_timer && stood_still);
            if !is_futile || !self.cancel_request(&slot) {
                self.check_unanswered(&slot, cpu_ns, context);
                return ThreadLife::Alive;
            }
            if by_timer && blocked_at.is_none() {
                self.request_by_signal(&slot, cpu_ns, None, context);
                return ThreadLife::Alive;
            }
        } else if !runs {
            blocked_at = probe_blocked_at(&mut self.probe, &mut self.is_hidden, context);
        }
        if let Some(at) = blocked_at
            && self.capture_remotely(&slot, at, cpu_ns, context)
        {
            return ThreadLife::Alive;
        }
        if blocked_at.is_some() || !self.request_by_timer(&slot, cpu_ns, context) {
            self.request_by_signal(&slot, cpu_ns, blocked_at, context);
        }
        ThreadLife::Alive
    }

    /// Cancels a request that will not be answered soon. Returns false if the answer is already
    /// being written.
    pub(crate) fn cancel_request(&mut self, slot: &SlotHandle) -> bool {
        self.note_cancelled(slot);
        slot.cancel();
        let is_cancelled = slot.phase() == SlotPhase::Idle;
        if is_cancelled {
            self.pending = None;
        }
        is_cancelled
    }

    /// Records that a signal was already sent for a request that is about to be cancelled. That
    /// signal may arrive later, even in another session.
    fn note_cancelled(&self, slot: &SlotHandle) {
        let was_sent = self
            .pending
            .as_ref()
            .is_some_and(|pending| !pending.by_timer);
        if let Some(sequence) = slot.pending_request().filter(|_| was_sent) {
            slot.set_cancelled_request(sequence);
        }
    }

    /// Leaves the request to the thread's own timer. Returns false if the thread has no timer.
    fn request_by_timer(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: u64,
        context: &TickContext<'_>,
    ) -> bool {
        let has_timer = context.session.uses_timers()
            && context.may_signal
            && self.timer.ensure(self.tid(), slot, context.session);
        if has_timer && slot.request().is_some() {
            self.pending = Some(PendingRequest::new(cpu_ns, context.tick, None, true));
        }
        has_timer
    }

    /// Returns whether the thread has run for all of the time since the last tick, and so probably
    /// still runs.
    fn ran_until_now(&mut self, cpu_ns: u64) -> bool {
        let now = monotonic_now();
        let ran_ns = cpu_ns.saturating_sub(std::mem::replace(&mut self.seen_cpu_ns, cpu_ns));
        let elapsed_ns = now.since_ns(std::mem::replace(&mut self.seen_at, now));
        ran_ns >= elapsed_ns.saturating_sub(SHORT_ABSENCE_NS.max(elapsed_ns / 64))
    }

    /// Writes the pending idle samples up to `last`, the last tick on which the thread existed, and
    /// cancels its request. A signal that arrives later finds no request.
    pub(crate) fn end(&mut self, last: Tick, context: &TickContext<'_>) {
        self.write_idle_until(last, context);
        self.timer.end();
        if let Some(slot) = &self.slot {
            self.note_cancelled(slot);
            slot.retire();
        }
        self.pending = None;
    }

    /// Ends the idle period of a thread that has run: its last sample is on the previous tick.
    fn end_idle_period(&mut self, context: &TickContext<'_>) {
        self.write_idle_until(context.tick_before, context);
        self.idle = None;
    }

    /// Reads the stack of a thread that is blocked at `at` without waking it. Returns false if the
    /// thread must be signalled instead.
    fn capture_remotely(
        &mut self,
        slot: &SlotHandle,
        at: BlockedAt,
        cpu_ns: u64,
        context: &mut TickContext<'_>,
    ) -> bool {
        // Read before the stack, since a later announcement belongs to another sleep.
        let announced = self.announced_sleep();
        let tid = self.tid();
        // The thread has not run if its clock still has the value from before the stack was read.
        let stood_still = || thread_cpu_ns(tid) == Some(cpu_ns);
        if !slot.capture_remotely(registers_at(at), monotonic_now(), stood_still) {
            return false;
        }
        let Some(view) = slot.captured() else {
            return false;
        };
        let captured = captured_by(&view);
        let unwound = unwind_counted(context, |unwinder, native| {
            self.frame_pointers.unwind(at, &captured, unwinder, native)
        });
        // If a request at this place did not supply the frame pointer, do not send another.
        if unwound == Some(RemoteUnwind::NeedsFramePointer)
            && self.fp_requested_at.replace(at) != Some(at)
        {
            return false;
        }
        self.fp_requested_at = None;
        let Scratch {
            native,
            merged,
            stack,
        } = &mut *context.scratch;
        if unwound.is_none() {
            context.unwinder.unwind_innermost(&captured, native);
        }
        stack.set(native, &view, context.session.records_scripts(), merged);
        let is_doubtful = native.doubtful;
        let time = view.header().time;
        drop(view);
        let written = self.write_sample(time, cpu_ns, context);
        SessionCounts::add(&context.session.counts.samples_from_outside, written);
        if is_doubtful {
            // The stack is doubtful, so the next tick captures it again.
            return true;
        }
        self.idle = Some(IdlePeriod::new(
            cpu_ns,
            announced,
            context.tick,
            context.interval_ns(),
        ));
        slot.release_deep_stack();
        true
    }

    fn request_by_signal(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: u64,
        blocked_at: Option<BlockedAt>,
        context: &TickContext<'_>,
    ) {
        if !(context.may_signal && may_signal()) {
            return;
        }
        let Some(sequence) = slot.repeat_cancelled_request().or_else(|| slot.request()) else {
            return;
        };
        if blocked_at.is_some() {
            SessionCounts::add(&context.session.counts.signals_to_sleepers, 1);
        }
        self.send(slot, sequence, context);
        if slot.phase() != SlotPhase::Idle {
            self.pending = Some(PendingRequest::new(cpu_ns, context.tick, blocked_at, false));
        }
    }

    fn send(&self, slot: &SlotHandle, sequence: u32, context: &TickContext<'_>) {
        let ticket = SignalTicket {
            slot: slot.number(),
            sequence,
        };
        let signal = context.session.settings.signal;
        if send_request(context.process, self.tid(), signal, ticket) != Sent::Yes {
            SessionCounts::add(&context.session.counts.refused_signals, 1);
            slot.cancel();
        }
    }

    /// Returns whether a request is still pending and nothing else is to be done on this tick.
    fn is_still_pending(&mut self, context: &TickContext<'_>) -> bool {
        let (Some(pending), Some(slot)) = (&mut self.pending, &self.slot) else {
            return false;
        };
        let is_pending = matches!(slot.phase(), SlotPhase::Requested | SlotPhase::Writing);
        is_pending && !pending.by_timer && !pending.add_tick(context.tick_before)
    }

    /// Checks a thread that has not answered yet.
    fn check_unanswered(&mut self, slot: &SlotHandle, cpu_ns: u64, context: &TickContext<'_>) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        let Some(sequence) = slot.pending_request() else {
            return;
        };
        let counts = &context.session.counts;
        let may_send = context.may_signal && may_signal();
        if pending.by_timer {
            // A thread that ran for so long without its timer's signal masks the signal, or spends
            // its time where the timer does not count it.
            let max_silence_ns = 3 * context.interval_ns();
            if cpu_ns.saturating_sub(pending.cpu_ns) > max_silence_ns && may_send {
                SessionCounts::add(&counts.silent_timers, 1);
                *pending = PendingRequest::new(cpu_ns, context.tick, None, false);
                self.send(slot, sequence, context);
            }
        } else if let Unanswered::Ran { ticks, resend } =
            pending.check_clock(cpu_ns, context.tick, context.interval_ns())
        {
            SessionCounts::add(&counts.unanswered_ticks, ticks);
            if resend && may_send {
                self.send(slot, sequence, context);
            }
        }
    }

    /// Collects a capture that has arrived: unwinds, merges and writes it.
    pub(crate) fn collect_capture(&mut self, cpu_ns: u64, context: &mut TickContext<'_>) {
        let Some(slot) = self.slot.clone() else {
            return;
        };
        if self.pending.is_none() {
            // The answer to a request of an earlier session, whose handler was still writing when
            // this session began.
            if slot.phase() == SlotPhase::Ready {
                slot.retire();
            }
            return;
        }
        let Some(view) = slot.captured() else {
            if slot.phase() == SlotPhase::Idle {
                self.pending = None;
            }
            return;
        };
        let Some(pending) = self.pending.take() else {
            return;
        };
        if !pending.by_timer {
            slot.clear_cancelled_request();
        }
        let header = *view.header();
        let captured = captured_by(&view);
        let unwound = unwind_counted(context, |unwinder, native| {
            unwinder.unwind(&captured, native)
        });
        let Scratch {
            native,
            merged,
            stack,
        } = &mut *context.scratch;
        match (unwound, pending.blocked_at) {
            (None, _) => context.unwinder.unwind_innermost(&captured, native),
            (Some(()), Some(at)) => self.frame_pointers.remember(at, &header.registers, native),
            (Some(()), None) => {}
        }
        stack.set(native, &view, context.session.records_scripts(), merged);
        drop(view);

        if pending.by_timer && header.cpu_ns > 0 {
            self.write_captured(header.time, header.cpu_ns, context);
            return;
        }
        // CPU time since the answer belongs to the next sample.
        let now = monotonic_now();
        match pending.idle_run(header.time, now, cpu_ns, context.interval_ns()) {
            Ok(run) => {
                if let Some(run) = run {
                    let written = self.write_run(run, pending.cpu_ns, context);
                    SessionCounts::add(&context.session.counts.same_samples, written);
                }
                self.write_captured(header.time, pending.cpu_ns, context);
            }
            Err(unanswered) => {
                SessionCounts::add(&context.session.counts.unanswered_ticks, unanswered);
                let at_answer_ns = cpu_ns.saturating_sub(now.since_ns(header.time));
                self.write_captured(header.time, at_answer_ns.max(pending.cpu_ns), context);
            }
        }
        let ran_on_ns = cpu_ns.saturating_sub(header.cpu_ns);
        let is_asleep = self.is_hidden && header.cpu_ns > 0 && ran_on_ns <= RETURN_TO_SLEEP_NS;
        // Even in that short time, an event may have begun or ended before the thread slept again.
        if is_asleep && slot.event_delay().state_in_handler() == header.event_loop {
            // The thread went back to sleep, or is about to.
            let announced = self.announced_sleep();
            self.idle = Some(IdlePeriod::new(
                cpu_ns,
                announced,
                context.tick,
                context.interval_ns(),
            ));
        }
    }
}
