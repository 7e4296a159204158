//! Stop 2 of 12: a thread's CPU clock is read, and decides: same as before, a signal, or still waiting.
//!
//! Stop 6 of 12: a capture that has arrived is taken up.
//!
//! A thread whose CPU clock has not moved since its last capture has not run, so its stack is what it was. The clock
//! moves a little by the capture itself: the way back out of the handler, and back to sleep. So what tells is how often
//! the thread went to sleep, which the kernel counts: a thread is asleep when two captures in a row found it at the same
//! place, it went to sleep once between them, and once since. From then on its clock must not move at all.

use std::sync::Arc;

use crate::base::{CodeAddress, Features, ProcessId, StackAddress, ThreadId, TimeStamp};
use crate::platform::{
    Registers, Sent, SignalTicket, monotonic_now, send_request, thread_cpu_ns, thread_sleeps,
};
use crate::sampler::fork_gate::may_signal;
use crate::sampler::merge::MergedFrame;
use crate::sampler::sample_writer::{CodedStack, LastStack, SampleTime, SampleWriter};
use crate::state::{Session, SessionCounts};
use crate::threads::{CapturedView, SlotHandle, SlotPhase, ThreadRegistration};
use crate::unwind::{NativeFrame, NativeStack, StackCopy, Unwinder};

/// How long a thread may run on before a signal reaches it.
const SIGNAL_DELAY_NS: u64 = 200_000;
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
    /// Ticks on which the thread stood still, and what its CPU clock showed.
    idle_ticks: Vec<(TimeStamp, u64)>,
    /// Ticks on which it ran and did not answer.
    unanswered: u64,
}

/// Where the last capture found the thread.
#[derive(Clone, Copy, Debug)]
struct LastCapture {
    registers: Registers,
    /// How often the thread had gone to sleep by then.
    sleeps: u64,
    /// Whether the capture before found it at the same place, one sleep earlier.
    asleep: bool,
}

/// The sampler's side of a thread.
#[derive(Debug)]
pub(super) struct ThreadSampler {
    pub(super) registration: Arc<ThreadRegistration>,
    slot: Option<Arc<SlotHandle>>,
    waiting: Option<Waiting>,
    last_capture: Option<LastCapture>,
    /// The CPU clock of a thread that is asleep; its samples repeat while the clock shows this.
    asleep_at_cpu_ns: Option<u64>,
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
        let reported_cpu_ns = thread_cpu_ns(registration.tid()).unwrap_or(0);
        Self {
            registration,
            slot,
            waiting: None,
            last_capture: None,
            asleep_at_cpu_ns: None,
            reported_cpu_ns,
            last_stack: LastStack::default(),
        }
    }

    fn tid(&self) -> ThreadId {
        self.registration.tid()
    }

    /// One tick of this thread.
    pub(super) fn tick(&mut self, context: &mut TickContext<'_>) -> ThreadLife {
        self.take_up(context);
        let Some(cpu_ns) = thread_cpu_ns(self.tid()) else {
            return ThreadLife::Dead;
        };
        let features = context.session.settings.features;
        let slot = match self.slot.clone() {
            Some(slot) if !features.contains(Features::NO_STACK_SAMPLING) => slot,
            _ => {
                self.sample_without_stack(cpu_ns, context);
                return ThreadLife::Alive;
            }
        };
        if self.waiting.is_some() {
            self.wait_on(&slot, cpu_ns, context);
        } else if self.is_asleep(cpu_ns) {
            let sample = self.sample_at(monotonic_now(), cpu_ns, context.session);
            SessionCounts::add(&context.session.counts.same_samples, 1);
            context.writer.repeat(sample, &mut self.last_stack);
        } else if may_signal() {
            self.fire(&slot, cpu_ns, context);
        }
        ThreadLife::Alive
    }

    /// Gives up on a request that is out. A signal that comes later finds that nobody waits.
    pub(super) fn give_up(&mut self) {
        if let Some(slot) = &self.slot {
            slot.retire();
        }
        self.waiting = None;
    }

    fn is_asleep(&mut self, cpu_ns: u64) -> bool {
        if let Some(asleep_at) = self.asleep_at_cpu_ns {
            if asleep_at == cpu_ns {
                return true;
            }
            self.asleep_at_cpu_ns = None;
            self.last_capture = None;
            return false;
        }
        let Some(last) = self.last_capture else { return false };
        let is_back_asleep = || thread_sleeps(self.tid()) == Some(last.sleeps + 1);
        if last.asleep && self.last_stack.is_known() && is_back_asleep() {
            self.asleep_at_cpu_ns = Some(cpu_ns);
            return true;
        }
        false
    }

    fn fire(&mut self, slot: &SlotHandle, cpu_ns: u64, context: &TickContext<'_>) {
        let Some(sequence) = slot.request() else { return };
        self.send(slot, sequence, context);
        if slot.phase() != SlotPhase::Idle {
            let last_tick = monotonic_now();
            self.waiting = Some(Waiting { cpu_ns, last_tick, idle_ticks: Vec::new(), unanswered: 0 });
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
        let last_cpu_ns = std::mem::replace(&mut waiting.cpu_ns, cpu_ns);
        let last_tick = std::mem::replace(&mut waiting.last_tick, monotonic_now());
        let ran_ns = cpu_ns.saturating_sub(last_cpu_ns);
        let delay_ns = SIGNAL_DELAY_NS.min(context.session.settings.interval.as_nanos() as u64 / 4);
        if ran_ns <= delay_ns && waiting.idle_ticks.len() < MAX_WAITING_TICKS {
            waiting.idle_ticks.push((last_tick, last_cpu_ns));
            return;
        }
        let unknown = 1 + waiting.idle_ticks.len() as u64;
        waiting.idle_ticks.clear();
        waiting.unanswered += unknown;
        SessionCounts::add(&context.session.counts.unanswered_ticks, unknown);
        if waiting.unanswered >= RESEND_AFTER_TICKS && may_signal() {
            waiting.unanswered = 0;
            self.send(slot, sequence, context);
        }
    }

    /// Takes up a capture that has arrived: unwinds, merges and writes it.
    fn take_up(&mut self, context: &mut TickContext<'_>) {
        let Some(slot) = self.slot.clone() else { return };
        let Some(view) = slot.captured() else {
            if self.waiting.is_some() && slot.phase() == SlotPhase::Idle {
                self.waiting = None;
            }
            return;
        };
        let Some(waiting) = self.waiting.take() else {
            // An answer to a session before this one.
            return;
        };
        code_stack(&view, context);
        let header = *view.header();
        drop(view);

        let counts = &context.session.counts;
        let idle_ticks = waiting.idle_ticks;
        SessionCounts::add(&counts.same_samples, idle_ticks.len() as u64);
        for (time, cpu_ns) in idle_ticks {
            let sample = self.sample_at(time, cpu_ns, context.session);
            context.writer.write(sample, &context.scratch.coded, &mut self.last_stack);
        }
        SessionCounts::add(&counts.captured_samples, 1);
        SessionCounts::add(&counts.truncated_samples, context.scratch.native.truncated.into());
        let sample = self.sample_at(header.time, header.cpu_ns, context.session);
        context.writer.write(sample, &context.scratch.coded, &mut self.last_stack);

        let asleep = self
            .last_capture
            .is_some_and(|last| last.registers == header.registers && header.sleeps == last.sleeps + 1);
        self.last_capture = Some(LastCapture { registers: header.registers, sleeps: header.sleeps, asleep });
    }

    fn sample_without_stack(&mut self, cpu_ns: u64, context: &mut TickContext<'_>) {
        context.scratch.coded.set_empty();
        let sample = self.sample_at(monotonic_now(), cpu_ns, context.session);
        context.writer.write(sample, &context.scratch.coded, &mut self.last_stack);
    }

    /// A sample at which the thread's CPU clock shows `cpu_ns`.
    fn sample_at(&mut self, time: TimeStamp, cpu_ns: u64, session: &Session) -> SampleTime {
        let delta = cpu_ns.saturating_sub(self.reported_cpu_ns);
        self.reported_cpu_ns = self.reported_cpu_ns.max(cpu_ns);
        let cpu_delta_ns = session.settings.features.contains(Features::CPU).then_some(delta);
        SampleTime { thread: self.registration.serial, time, cpu_delta_ns }
    }
}

/// Unwinds and merges a capture into the scratch memory.
fn code_stack(view: &CapturedView<'_>, context: &mut TickContext<'_>) {
    let header = view.header();
    let Scratch { native, merged, coded } = &mut *context.scratch;
    if context.session.settings.features.contains(Features::STACK_WALK) {
        let stack = StackCopy { start: header.stack_start, bytes: view.stack() };
        let before = monotonic_now();
        context.unwinder.unwind(&header.registers, stack, native);
        let counts = &context.session.counts;
        SessionCounts::add(&counts.unwind_ns, monotonic_now().since_ns(before));
        SessionCounts::add(&counts.unwound_frames, native.frames.len() as u64);
    } else {
        native.frames.clear();
        native.truncated = false;
        native.frames.push(NativeFrame {
            address: CodeAddress::new(header.registers.pc),
            stack_address: StackAddress(header.registers.sp),
        });
    }
    coded.set(native, view, merged);
}
