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

use crate::base::{CodeAddress, Features, ProcessId, StackAddress, ThreadId, TimeStamp};
use crate::platform::{
    BlockedAt, Sent, SignalTicket, ThreadWindow, is_at_kernel_call, monotonic_now, send_request,
    thread_cpu_ns,
};
use crate::sampler::fork_gate::may_signal;
use crate::sampler::merge::MergedFrame;
use crate::sampler::progress::Progress;
use crate::sampler::rest::{Rest, Tick};
use crate::sampler::sample_writer::{CodedStack, LastStack, SampleTime, SampleWriter};
use crate::sampler::sleeping_places::{SleepingPlaces, registers_at};
use crate::sampler::timers::TimerState;
use crate::state::{Session, SessionCounts};
use crate::threads::{CapturedView, SlotHandle, SlotPhase, ThreadRegistration};
use crate::unwind::{NativeFrame, NativeStack, StackCopy, Unwinder};

/// A thread that runs is away so long for an interrupt.
const SHORT_ABSENCE_NS: u64 = 10_000;
/// How long a thread may run on before a signal reaches it.
const SIGNAL_DELAY_NS: u64 = 200_000;
/// What is not written of a rest becomes old with this, so that little of it is lost with a crash.
const OLD_REST_NS: u64 = 1_000_000_000;
/// Ticks without an answer of which the times are kept; beyond, they are only counted.
const MAX_WAITING_TICKS: usize = 100_000;
/// A request that was lost, since a foreign signal of the same number was pending, is sent again after so many ticks.
const RESEND_AFTER_TICKS: u64 = 1000;

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

/// A request that is out.
///
/// A thread that was preempted before the signal reached it does not run again without answering; so its stack on the
/// ticks until then is the one that it will answer with.
#[derive(Debug)]
struct Waiting {
    /// The thread's CPU clock at the last look.
    cpu_ns: u64,
    last_tick: TimeStamp,
    /// Where it was blocked when the request went out, if it was.
    blocked_at: Option<BlockedAt>,
    /// Whether the thread's own timer is to answer, and no signal was sent.
    by_timer: bool,
    /// Ticks on which the thread stood still, and what its CPU clock showed.
    idle_ticks: Vec<(TimeStamp, u64)>,
    /// Ticks on which it ran and did not answer.
    unanswered: u64,
    /// What the clock showed when it stood still last, and on how many ticks since.
    still_at: (u64, u64),
}

impl Waiting {
    /// Whether to look if the thread is blocked: when its clock has moved, and then less and less often.
    fn is_to_look(&mut self, cpu_ns: u64) -> bool {
        let (at, ticks) = self.still_at;
        self.still_at = (cpu_ns, if at == cpu_ns { ticks + 1 } else { 0 });
        self.still_at.1 == 0 || self.still_at.1.is_power_of_two()
    }

    fn new(cpu_ns: u64, blocked_at: Option<BlockedAt>, by_timer: bool) -> Self {
        let last_tick = monotonic_now();
        let (idle_ticks, unanswered, still_at) = (Vec::new(), 0, (cpu_ns, 0));
        Self { cpu_ns, last_tick, blocked_at, by_timer, idle_ticks, unanswered, still_at }
    }
}

/// The sampler's side of a thread.
#[derive(Debug)]
pub(super) struct ThreadSampler {
    pub(super) registration: Arc<ThreadRegistration>,
    slot: Option<Arc<SlotHandle>>,
    window: ThreadWindow,
    places: SleepingPlaces,
    timer: TimerState,
    progress: Progress,
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
            progress: Progress::default(),
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
        self.take_up(context);
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
            let is_to_look = waiting.by_timer && !runs && waiting.is_to_look(cpu_ns);
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
        if self.progress.is_to_wait() {
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
            self.waiting = Some(Waiting::new(cpu_ns, None, true));
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
        if let Some(slot) = &self.slot {
            self.timer.end(slot);
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
            self.waiting = Some(Waiting::new(cpu_ns, blocked_at, false));
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

    /// A tick on which the answer is still out.
    fn wait_on(&mut self, slot: &SlotHandle, cpu_ns: u64, context: &TickContext<'_>) {
        let Some(waiting) = &mut self.waiting else { return };
        let Some(sequence) = slot.pending_request() else { return };
        if waiting.by_timer {
            // One that has run for so long with a timer, and was not stopped, blocks its signal, or spends its time
            // where the timer does not look.
            let patience_ns = 3 * context.interval_ns();
            if cpu_ns.saturating_sub(waiting.cpu_ns) > patience_ns && context.may_signal && may_signal() {
                SessionCounts::add(&context.session.counts.silent_timers, 1);
                *waiting = Waiting::new(cpu_ns, None, false);
                self.send(slot, sequence, context);
            }
            return;
        }
        let last_cpu_ns = std::mem::replace(&mut waiting.cpu_ns, cpu_ns);
        let last_tick = std::mem::replace(&mut waiting.last_tick, context.tick.time);
        let ran_ns = cpu_ns.saturating_sub(last_cpu_ns);
        let delay_ns = SIGNAL_DELAY_NS.min(context.interval_ns() / 4);
        if ran_ns <= delay_ns && waiting.idle_ticks.len() < MAX_WAITING_TICKS {
            waiting.idle_ticks.push((last_tick, last_cpu_ns));
            return;
        }
        let unknown = 1 + waiting.idle_ticks.len() as u64;
        waiting.idle_ticks.clear();
        waiting.unanswered += unknown;
        SessionCounts::add(&context.session.counts.unanswered_ticks, unknown);
        if waiting.unanswered >= RESEND_AFTER_TICKS && context.may_signal && may_signal() {
            waiting.unanswered = 0;
            self.send(slot, sequence, context);
        }
    }

    /// Takes up a capture that has arrived: unwinds, merges and writes it.
    fn take_up(&mut self, context: &mut TickContext<'_>) {
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
        self.progress.add_capture(&header.registers, || is_at_kernel_call(header.registers.pc));
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
        let idle_ticks = waiting.idle_ticks;
        SessionCounts::add(&counts.same_samples, idle_ticks.len() as u64);
        for (time, cpu_ns) in idle_ticks {
            self.write_sample(time, cpu_ns, context);
        }
        SessionCounts::add(&counts.captured_samples, 1);
        // A thread that was slow to answer had not run since the last look.
        let cpu_ns = if header.cpu_ns > 0 { header.cpu_ns } else { waiting.cpu_ns };
        self.write_sample(header.time, cpu_ns, context);
    }

    /// Writes a sample with the stack in the scratch memory.
    fn write_sample(&mut self, time: TimeStamp, cpu_ns: u64, context: &TickContext<'_>) {
        let sample = self.sample_at(time, cpu_ns, context.session);
        let (counts, stack) = (&context.session.counts, &context.scratch.coded);
        SessionCounts::add(&counts.truncated_samples, stack.is_truncated().into());
        SessionCounts::add(&counts.samples_on_other_stacks, stack.is_of_other_stack().into());
        context.writer.write(sample, stack, &mut self.last_stack);
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
    unwind: impl FnOnce(&mut Unwinder, &mut NativeStack) -> T,
) -> Option<T> {
    if !context.session.settings.features.contains(Features::STACK_WALK) {
        return None;
    }
    let before = monotonic_now();
    let answer = unwind(context.unwinder, &mut context.scratch.native);
    let counts = &context.session.counts;
    SessionCounts::add(&counts.unwind_ns, monotonic_now().since_ns(before));
    SessionCounts::add(&counts.unwound_frames, context.scratch.native.frames.len() as u64);
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
