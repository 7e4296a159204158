//! Stop 2 of 12: a thread's CPU clock is read, and decides: same as before, a look from outside, a signal, or still
//! waiting.
//!
//! Stop 6 of 12: a capture that has arrived is taken up.
//!
//! | the thread | what is done |
//! |---|---|
//! | has not run since its stack was taken | it rests: the sample is the same, and nobody is asked |
//! | ran all the time since the last tick | it is sent a request, or its own timer is to stop it |
//! | ran for less, and is blocked in the kernel now | the sampler reads its stack from outside, and it rests from now on |
//! | the same, but its stack needs a register that nobody knows | it is sent a request, and remembered there |
//! | ran for less, and is not blocked | it is sent a request, which it answers when it runs |
//! | has not answered yet | it is left alone until it has |

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::{CodeAddress, Features, ProcessId, StackAddress, ThreadId, TimeStamp};
use crate::platform::{
    BlockedAt, Sent, SignalTicket, ThreadWindow, monotonic_now, send_request, thread_cpu_ns,
};
use crate::sampler::fork_gate::may_signal;
use crate::sampler::merge::MergedFrame;
use crate::sampler::rest::{Rest, Tick};
use crate::sampler::sample_writer::{CodedStack, LastStack, SampleTime, SampleWriter};
use crate::sampler::sleeping_places::{SleepingPlaces, registers_at};
use crate::sampler::timers::TimerState;
use crate::sampler::waiting::{Unanswered, Waiting};
use crate::state::{Session, SessionCounts};
use crate::threads::{CapturedView, SlotHandle, SlotPhase, ThreadRegistration};
use crate::unwind::{NativeFrame, NativeStack, StackCopy, Unwinder};

/// One stack in so many is unwound once more, at once: what that takes is the unwinder's own share of the time, without the
/// processor's wait for memory.
const STACKS_PER_REPETITION: u64 = 64;
/// A thread that runs is away so long for an interrupt.
const SHORT_ABSENCE_NS: u64 = 10_000;
/// What is not written of a rest becomes old with this, so that little of it is lost with a crash.
const OLD_REST_NS: u64 = 1_000_000_000;

/// What every thread's step needs of the sampler.
pub(super) struct TickContext<'a> {
    pub(super) session: &'a Session,
    pub(super) process: ProcessId,
    pub(super) unwinder: &'a mut Unwinder,
    pub(super) writer: SampleWriter<'a>,
    pub(super) scratch: &'a mut Scratch,
    pub(super) tick: Tick,
    pub(super) tick_before: Tick,
    /// Whether no thread of the process has run since all were looked at.
    pub(super) nobody_ran: bool,
    /// Whether the signal reaches our handler.
    pub(super) may_signal: bool,
}

impl TickContext<'_> {
    fn interval_ns(&self) -> u64 {
        self.session.settings.interval.as_nanos() as u64
    }
}

/// Memory that is used again from sample to sample.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    native: NativeStack,
    merged: Vec<MergedFrame>,
    coded: CodedStack,
}

/// A thread that can be told to be gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ThreadLife {
    Alive,
    /// It ended without unregistering.
    Dead,
}

/// The sampler's side of a thread.
#[derive(Debug)]
pub(super) struct ThreadSampler {
    pub(super) registration: Arc<ThreadRegistration>,
    slot: Option<Arc<SlotHandle>>,
    window: ThreadWindow,
    places: SleepingPlaces,
    timer: TimerState,
    waiting: Option<Waiting>,
    rest: Option<Rest>,
    /// The CPU clock when it was read last, and when that was.
    seen_cpu_ns: u64,
    seen_at: TimeStamp,
    /// The CPU clock up to which the thread's time stands in samples.
    reported_cpu_ns: u64,
    last_stack: LastStack,
}

impl ThreadSampler {
    pub(super) fn new(registration: Arc<ThreadRegistration>, session: &Session) -> Self {
        let slot = registration.slot();
        match &slot {
            // What an earlier session asked for.
            Some(slot) => _ = slot.retire(),
            None => SessionCounts::add(&session.counts.threads_without_stacks, 1),
        }
        let cpu_ns = thread_cpu_ns(registration.tid()).unwrap_or(0);
        Self {
            window: ThreadWindow::new(registration.tid()),
            registration,
            slot,
            places: SleepingPlaces::default(),
            timer: TimerState::default(),
            waiting: None,
            rest: None,
            seen_cpu_ns: cpu_ns,
            seen_at: TimeStamp(0),
            reported_cpu_ns: cpu_ns,
            last_stack: LastStack::default(),
        }
    }

    fn tid(&self) -> ThreadId {
        self.registration.tid()
    }

    /// Whether it has not run since its stack was taken.
    pub(super) fn rests(&self) -> bool {
        self.rest.is_some()
    }

    /// Whether it has rested for long.
    pub(super) fn rests_long(&self, tick: Tick) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.is_long(tick))
    }

    /// One tick of this thread. One that rests may be left out.
    pub(super) fn tick(&mut self, context: &mut TickContext<'_>) -> ThreadLife {
        if self.is_waited_for(context) {
            return ThreadLife::Alive;
        }
        if let Some(rest) = &self.rest {
            let announced = self.registration.announced_sleep();
            if context.nobody_ran || rest.is_announced(announced, context.tick) {
                return ThreadLife::Alive;
            }
        }
        let Some(cpu_ns) = thread_cpu_ns(self.tid()) else {
            self.end_rest(context);
            return ThreadLife::Dead;
        };
        if self.rest.as_ref().is_some_and(|rest| rest.cpu_ns == cpu_ns) {
            return ThreadLife::Alive;
        }
        self.end_rest(context);
        self.take_up(cpu_ns, context);
        let runs = self.ran_until_now(cpu_ns);
        let slot = match self.slot.clone() {
            Some(slot) if !context.session.settings.features.contains(Features::NO_STACK_SAMPLING) => slot,
            _ => {
                self.sample_without_stack(cpu_ns, context);
                return ThreadLife::Alive;
            }
        };
        let mut blocked_at = None;
        if let Some(waiting) = &mut self.waiting {
            // A timer stands still while its thread sleeps, or waits for a processor.
            let is_to_look = waiting.by_timer && !runs && waiting.is_to_be_seen(cpu_ns);
            blocked_at = if is_to_look { self.window.look() } else { None };
            if blocked_at.is_none() || !self.take_back(&slot) {
                self.wait_on(&slot, cpu_ns, context);
                return ThreadLife::Alive;
            }
        } else if !runs {
            blocked_at = self.window.look();
        }
        if let Some(at) = blocked_at
            && self.capture_from_outside(&slot, at, cpu_ns, context)
        {
            return ThreadLife::Alive;
        }
        if blocked_at.is_some() || !self.ask_timer(&slot, cpu_ns, context) {
            self.fire(&slot, cpu_ns, blocked_at, context);
        }
        ThreadLife::Alive
    }

    /// Takes a request back that the thread's timer was to answer; false when it just does.
    fn take_back(&mut self, slot: &SlotHandle) -> bool {
        slot.cancel();
        let is_back = slot.phase() == SlotPhase::Idle;
        if is_back {
            self.waiting = None;
        }
        is_back
    }

    /// Leaves it to the thread's own timer to stop it. False where it has none.
    fn ask_timer(&mut self, slot: &SlotHandle, cpu_ns: u64, context: &TickContext<'_>) -> bool {
        let has_timer = context.session.uses_timers()
            && self.timer.ensure(self.registration.tid(), slot, context.session);
        if has_timer && slot.request().is_some() {
            self.waiting = Some(Waiting::new(cpu_ns, context.tick, None, true));
        }
        has_timer
    }

    /// Whether the thread has run all the time since the last tick, and so is likely to be running.
    fn ran_until_now(&mut self, cpu_ns: u64) -> bool {
        let now = monotonic_now();
        let ran_ns = cpu_ns.saturating_sub(std::mem::replace(&mut self.seen_cpu_ns, cpu_ns));
        let elapsed_ns = now.since_ns(std::mem::replace(&mut self.seen_at, now));
        ran_ns >= elapsed_ns.saturating_sub(SHORT_ABSENCE_NS.max(elapsed_ns / 64))
    }

    /// Writes what is not written yet of a rest, so that a profile has it.
    pub(super) fn write_rest(&mut self, context: &TickContext<'_>) {
        self.write_rest_until(context.tick, context);
    }

    /// The same, if that is old.
    pub(super) fn write_old_rest(&mut self, context: &TickContext<'_>) {
        if self.rest.as_ref().is_some_and(|rest| rest.unwritten_ns(context.tick.time) >= OLD_REST_NS) {
            self.write_rest(context);
        }
    }

    /// Writes what is to be written, up to the last tick that it was there, and gives up on a request that is out. A signal
    /// that comes later finds that nobody waits.
    pub(super) fn end(&mut self, last: Tick, context: &TickContext<'_>) {
        self.write_rest_until(last, context);
        self.timer.end();
        if let Some(slot) = &self.slot {
            slot.retire();
        }
        self.waiting = None;
    }

    /// It has run: what is to be written of its rest ends with the tick before.
    fn end_rest(&mut self, context: &TickContext<'_>) {
        self.write_rest_until(context.tick_before, context);
        self.rest = None;
    }

    fn write_rest_until(&mut self, last: Tick, context: &TickContext<'_>) {
        let interval_ns = context.interval_ns();
        let Some(run) = self.rest.as_mut().and_then(|rest| rest.take_run(last, interval_ns)) else { return };
        SessionCounts::add(&context.session.counts.same_samples, run.ticks);
        let sample = self.sample_at(run.first, self.reported_cpu_ns, context.session);
        let span_ns = run.last.since_ns(run.first);
        context.writer.repeat(sample, run.ticks - 1, span_ns, &mut self.last_stack);
    }

    /// Reads the stack of a thread that is blocked there, without waking it.
    fn capture_from_outside(
        &mut self,
        slot: &SlotHandle,
        at: BlockedAt,
        cpu_ns: u64,
        context: &mut TickContext<'_>,
    ) -> bool {
        let tid = self.tid();
        // It has not run if its clock stands where it stood before it was looked at.
        let stood_still = || thread_cpu_ns(tid) == Some(cpu_ns);
        if !slot.capture_from_outside(registers_at(at), monotonic_now(), stood_still) {
            return false;
        }
        let Some(view) = slot.captured() else { return false };
        let unwound = unwind_counted(context, |unwinder, native| {
            self.places.unwind(at, stack_of(&view), unwinder, native)
        });
        if unwound == Some(false) {
            return false;
        }
        let Scratch { native, merged, coded } = &mut *context.scratch;
        if unwound.is_none() {
            set_innermost(&view, native);
        }
        coded.set(native, &view, merged);
        let time = view.header().time;
        drop(view);
        SessionCounts::add(&context.session.counts.samples_from_outside, 1);
        self.write_sample(time, cpu_ns, context);
        let announced = self.registration.announced_sleep();
        self.rest = Some(Rest::new(cpu_ns, announced, context.tick, context.interval_ns()));
        true
    }

    fn fire(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: u64,
        blocked_at: Option<BlockedAt>,
        context: &TickContext<'_>,
    ) {
        if !(context.may_signal && may_signal()) {
            return;
        }
        let Some(sequence) = slot.request() else { return };
        if blocked_at.is_some() {
            SessionCounts::add(&context.session.counts.signals_to_sleepers, 1);
        }
        self.send(slot, sequence, context);
        if slot.phase() != SlotPhase::Idle {
            self.waiting = Some(Waiting::new(cpu_ns, context.tick, blocked_at, false));
        }
    }

    fn send(&self, slot: &SlotHandle, sequence: u32, context: &TickContext<'_>) {
        let ticket = SignalTicket { slot: slot.number(), sequence };
        let signal = context.session.settings.signal;
        if send_request(context.process, self.tid(), signal, ticket) != Sent::Yes {
            SessionCounts::add(&context.session.counts.refused_signals, 1);
            slot.cancel();
        }
    }

    /// Whether a request is out on this tick still, and nothing is to be done but to wait.
    fn is_waited_for(&mut self, context: &TickContext<'_>) -> bool {
        let (Some(waiting), Some(slot)) = (&mut self.waiting, &self.slot) else { return false };
        let is_out = matches!(slot.phase(), SlotPhase::Requested | SlotPhase::Writing);
        is_out && !waiting.by_timer && !waiting.add_tick(context.tick_before)
    }

    /// Looks at a thread that has not answered yet.
    fn wait_on(&mut self, slot: &SlotHandle, cpu_ns: u64, context: &TickContext<'_>) {
        let Some(waiting) = &mut self.waiting else { return };
        let Some(sequence) = slot.pending_request() else { return };
        let counts = &context.session.counts;
        let may_send = context.may_signal && may_signal();
        if waiting.by_timer {
            // One that has run for so long with a timer, and was not stopped, blocks its signal, or spends its time
            // where the timer does not look.
            let patience_ns = 3 * context.interval_ns();
            if cpu_ns.saturating_sub(waiting.cpu_ns) > patience_ns && may_send {
                SessionCounts::add(&counts.silent_timers, 1);
                *waiting = Waiting::new(cpu_ns, context.tick, None, false);
                self.send(slot, sequence, context);
            }
        } else if let Unanswered::Ran { ticks, resend } =
            waiting.look(cpu_ns, context.tick, context.interval_ns())
        {
            SessionCounts::add(&counts.unanswered_ticks, ticks);
            if resend && may_send {
                self.send(slot, sequence, context);
            }
        }
    }

    /// Takes up a capture that has arrived: unwinds, merges and writes it.
    fn take_up(&mut self, cpu_ns: u64, context: &mut TickContext<'_>) {
        if self.waiting.is_none() {
            return;
        }
        let Some(slot) = self.slot.clone() else { return };
        let Some(view) = slot.captured() else {
            if slot.phase() == SlotPhase::Idle {
                self.waiting = None;
            }
            return;
        };
        let Some(waiting) = self.waiting.take() else { return };
        let header = *view.header();
        let unwound = unwind_counted(context, |unwinder, native| {
            unwinder.unwind(&header.registers, stack_of(&view), native);
        });
        let Scratch { native, merged, coded } = &mut *context.scratch;
        match (unwound, waiting.blocked_at) {
            (None, _) => set_innermost(&view, native),
            (Some(()), Some(at)) => self.places.remember(at, &header.registers, native),
            (Some(()), None) => {}
        }
        coded.set(native, &view, merged);
        drop(view);

        let counts = &context.session.counts;
        SessionCounts::add(&counts.captured_samples, 1);
        if header.cpu_ns > 0 {
            self.write_sample(header.time, header.cpu_ns, context);
            return;
        }
        // What it ran since it answered belongs to its next sample.
        let now = monotonic_now();
        match waiting.idle_run(header.time, now, cpu_ns, context.interval_ns()) {
            Ok(run) => {
                if let Some(run) = run {
                    SessionCounts::add(&counts.same_samples, run.ticks);
                    self.write_samples(run.first, run.ticks - 1, run.last, waiting.cpu_ns, context);
                }
                self.write_sample(header.time, waiting.cpu_ns, context);
            }
            Err(unanswered) => {
                SessionCounts::add(&counts.unanswered_ticks, unanswered);
                let at_answer_ns = cpu_ns.saturating_sub(now.since_ns(header.time));
                self.write_sample(header.time, at_answer_ns.max(waiting.cpu_ns), context);
            }
        }
    }

    /// Writes a sample with the stack in the scratch memory.
    fn write_sample(&mut self, time: TimeStamp, cpu_ns: u64, context: &TickContext<'_>) {
        self.write_samples(time, 0, time, cpu_ns, context);
    }

    /// The same, which stands for `more` up to `last`.
    fn write_samples(
        &mut self,
        first: TimeStamp,
        more: u64,
        last: TimeStamp,
        cpu_ns: u64,
        context: &TickContext<'_>,
    ) {
        let sample = self.sample_at(first, cpu_ns, context.session);
        let (counts, stack) = (&context.session.counts, &context.scratch.coded);
        SessionCounts::add(&counts.truncated_samples, if stack.is_truncated() { 1 + more } else { 0 });
        SessionCounts::add(
            &counts.samples_on_other_stacks,
            if stack.is_of_other_stack() { 1 + more } else { 0 },
        );
        self.last_stack.set(stack);
        context.writer.repeat(sample, more, last.since_ns(first), &mut self.last_stack);
    }

    fn sample_without_stack(&mut self, cpu_ns: u64, context: &mut TickContext<'_>) {
        context.scratch.coded.set_empty();
        self.write_sample(context.tick.time, cpu_ns, context);
        self.rest = Some(Rest::new(cpu_ns, None, context.tick, context.interval_ns()));
    }

    /// A sample at which the thread's CPU clock shows `cpu_ns`.
    fn sample_at(&mut self, time: TimeStamp, cpu_ns: u64, session: &Session) -> SampleTime {
        let delta = cpu_ns.saturating_sub(self.reported_cpu_ns);
        self.reported_cpu_ns = self.reported_cpu_ns.max(cpu_ns);
        let cpu_delta_ns = session.settings.features.contains(Features::CPU).then_some(delta);
        SampleTime { thread: self.registration.serial, time, cpu_delta_ns }
    }
}

fn stack_of<'a>(view: &'a CapturedView<'_>) -> StackCopy<'a> {
    StackCopy { start: view.header().stack_start, bytes: view.stack() }
}

/// Unwinds into the scratch memory and counts what it cost; `None` when stacks are not walked.
fn unwind_counted<T>(
    context: &mut TickContext<'_>,
    mut unwind: impl FnMut(&mut Unwinder, &mut NativeStack) -> T,
) -> Option<T> {
    if !context.session.settings.features.contains(Features::STACK_WALK) {
        return None;
    }
    let before = monotonic_now();
    let answer = unwind(context.unwinder, &mut context.scratch.native);
    let counts = &context.session.counts;
    SessionCounts::add(&counts.unwind_ns, monotonic_now().since_ns(before));
    let frames = context.scratch.native.frames.len() as u64;
    let stacks = counts.unwound_stacks.fetch_add(1, Ordering::Relaxed);
    SessionCounts::add(&counts.unwound_frames, frames);
    if stacks % STACKS_PER_REPETITION == STACKS_PER_REPETITION - 1 {
        let before = monotonic_now();
        unwind(context.unwinder, &mut context.scratch.native);
        SessionCounts::add(&counts.repeated_unwind_ns, monotonic_now().since_ns(before));
        SessionCounts::add(&counts.repeated_frames, frames);
    }
    Some(answer)
}

/// The innermost frame alone.
fn set_innermost(view: &CapturedView<'_>, native: &mut NativeStack) {
    let registers = &view.header().registers;
    native.frames.clear();
    native.truncated = false;
    native.frames.push(NativeFrame {
        address: CodeAddress::new(registers.pc),
        stack_address: StackAddress(registers.sp),
    });
}
