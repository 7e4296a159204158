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
//! | the same, but its stack needs the frame pointer | it is sent a request, and that is remembered for the place |
//! | ran for less, and is not blocked | it is sent a request, which it answers when it runs |
//! | has not answered yet | it is left alone until it has |

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::{ThreadId, ThreadProfilingFeatures, TimeStamp};
use crate::platform::{
    BlockedAt, Look, Sent, SignalTicket, ThreadWindow, monotonic_now, send_request, thread_cpu_ns,
};
use crate::sampler::fork_gate::may_signal;
use crate::sampler::handler::READS_CLOCK;
use crate::sampler::rest::{Rest, Tick};
use crate::sampler::sample_writer::LastStack;
use crate::sampler::sleeping_places::{Outside, SleepingPlaces, registers_at};
use crate::sampler::tick_context::{Scratch, TickContext, captured_by, unwind_counted};
use crate::sampler::timers::TimerState;
use crate::sampler::waiting::{Unanswered, Waiting};
use crate::state::{Session, SessionCounts};
use crate::threads::{OffThreadRef, SlotHandle, SlotPhase};

/// So long a thread takes at most from the end of its handler back to its sleep, where nobody can look whether it sleeps.
const RETURN_TO_SLEEP_NS: u64 = 30_000;
/// A thread that runs is away so long for an interrupt.
const SHORT_ABSENCE_NS: u64 = 10_000;

/// A thread that can be told to be gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ThreadLife {
    Alive,
    /// It ended without unregistering.
    Dead,
}

/// Where the thread is blocked, if it is and the system tells.
fn look_through(
    window: &mut ThreadWindow,
    is_hidden: &mut bool,
    context: &TickContext<'_>,
) -> Option<BlockedAt> {
    if *is_hidden {
        return None;
    }
    match window.look() {
        Look::Blocked(at) => Some(at),
        Look::Not => None,
        Look::Hidden => {
            *is_hidden = true;
            SessionCounts::add(&context.session.counts.hidden_threads, 1);
            READS_CLOCK.store(true, Ordering::Relaxed);
            None
        }
    }
}

/// The sampler's side of a thread.
#[derive(Debug)]
pub(super) struct ThreadSampler {
    pub(super) registration: OffThreadRef,
    /// What is recorded of it.
    pub(super) features: ThreadProfilingFeatures,
    pub(super) slot: Option<Arc<SlotHandle>>,
    window: ThreadWindow,
    /// The system does not tell whether the thread sleeps.
    is_hidden: bool,
    /// Where it was when it was asked for its frame pointer last.
    asked_at: Option<BlockedAt>,
    places: SleepingPlaces,
    pub(super) timer: TimerState,
    pub(super) waiting: Option<Waiting>,
    pub(super) rest: Option<Rest>,
    /// The CPU clock when it was read last, and when that was.
    seen_cpu_ns: u64,
    seen_at: TimeStamp,
    /// The CPU clock up to which the thread's time stands in samples.
    pub(super) reported_cpu_ns: u64,
    /// While sampling pauses: what the thread ran before, after its last sample.
    pub(super) ran_before_pause_ns: u64,
    pub(super) last_stack: LastStack,
    /// When the last sample was.
    pub(super) last_time: TimeStamp,
}

impl ThreadSampler {
    pub(super) fn new(registration: OffThreadRef, session: &Session) -> Self {
        let unlocked = registration.unlocked_const_reader_and_atomic_rw();
        let features = unlocked.profiling_features();
        let slot = unlocked.slot();
        match &slot {
            // What an earlier session asked for.
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
            window: ThreadWindow::new(tid),
            features,
            registration,
            slot,
            is_hidden: false,
            asked_at: None,
            places: SleepingPlaces::default(),
            timer: TimerState::default(),
            waiting: None,
            rest: None,
            seen_cpu_ns: cpu_ns,
            seen_at: TimeStamp(0),
            reported_cpu_ns: cpu_ns,
            ran_before_pause_ns: 0,
            last_stack: LastStack::default(),
            last_time: TimeStamp(0),
        }
    }

    pub(super) fn tid(&self) -> ThreadId {
        self.registration
            .unlocked_const_reader_and_atomic_rw()
            .tid()
    }

    fn announced_sleep(&self) -> Option<u32> {
        self.registration
            .unlocked_const_reader_and_atomic_rw()
            .announced_sleep()
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
        if !context.may_signal {
            self.end_timer();
        }
        if self.is_waited_for(context) {
            return ThreadLife::Alive;
        }
        if let Some(rest) = &self.rest {
            let announced = self.announced_sleep();
            if rest.is_announced(announced, context.tick) {
                return ThreadLife::Alive;
            }
        }
        // A clock that went back is another thread's, which was given the id of this one.
        let Some(cpu_ns) = thread_cpu_ns(self.tid()).filter(|&cpu_ns| cpu_ns >= self.seen_cpu_ns)
        else {
            self.end_rest(context);
            return ThreadLife::Dead;
        };
        if self.rest.as_ref().is_some_and(|rest| rest.cpu_ns == cpu_ns) {
            return ThreadLife::Alive;
        }
        self.end_rest(context);
        self.take_up(cpu_ns, context);
        if self.rest.is_some() {
            return ThreadLife::Alive;
        }
        let runs = self.ran_until_now(cpu_ns);
        let is_captured = context.session.records_stacks_of(self.features);
        let Some(slot) = self.slot.clone().filter(|_| is_captured) else {
            self.sample_without_stack(cpu_ns, context);
            return ThreadLife::Alive;
        };
        let mut blocked_at = None;
        if let Some(waiting) = &mut self.waiting {
            let (by_timer, stood_still) = (waiting.by_timer, waiting.stood_still(cpu_ns));
            blocked_at = if runs {
                None
            } else {
                look_through(&mut self.window, &mut self.is_hidden, context)
            };
            // One that sleeps will not answer: it blocks the signal, or its timer stands still. A timer also stands still
            // while its thread waits for a processor; a signal is answered then before anything else.
            let is_in_vain = blocked_at.is_some() || (by_timer && stood_still);
            if !is_in_vain || !self.take_back(&slot) {
                self.wait_on(&slot, cpu_ns, context);
                return ThreadLife::Alive;
            }
            if by_timer && blocked_at.is_none() {
                self.fire(&slot, cpu_ns, None, context);
                return ThreadLife::Alive;
            }
        } else if !runs {
            blocked_at = look_through(&mut self.window, &mut self.is_hidden, context);
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

    /// Takes a request back that will not be answered soon; false when it just is.
    pub(super) fn take_back(&mut self, slot: &SlotHandle) -> bool {
        self.note_taken_back(slot);
        slot.cancel();
        let is_back = slot.phase() == SlotPhase::Idle;
        if is_back {
            self.waiting = None;
        }
        is_back
    }

    /// Before a request is taken back: where a signal was sent for it, that may come later, in another session even.
    fn note_taken_back(&self, slot: &SlotHandle) {
        let was_sent = self
            .waiting
            .as_ref()
            .is_some_and(|waiting| !waiting.by_timer);
        if let Some(sequence) = slot.pending_request().filter(|_| was_sent) {
            slot.set_taken_back(sequence);
        }
    }

    /// Leaves it to the thread's own timer to stop it. False where it has none.
    fn ask_timer(&mut self, slot: &SlotHandle, cpu_ns: u64, context: &TickContext<'_>) -> bool {
        let has_timer = context.session.uses_timers()
            && context.may_signal
            && self.timer.ensure(self.tid(), slot, context.session);
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

    /// Writes what is to be written, up to the last tick that it was there, and gives up on a request that is out. A signal
    /// that comes later finds that nobody waits.
    pub(super) fn end(&mut self, last: Tick, context: &TickContext<'_>) {
        self.write_rest_until(last, context);
        self.timer.end();
        if let Some(slot) = &self.slot {
            self.note_taken_back(slot);
            slot.retire();
        }
        self.waiting = None;
    }

    /// It has run: what is to be written of its rest ends with the tick before.
    fn end_rest(&mut self, context: &TickContext<'_>) {
        self.write_rest_until(context.tick_before, context);
        self.rest = None;
    }

    /// Reads the stack of a thread that is blocked there, without waking it.
    fn capture_from_outside(
        &mut self,
        slot: &SlotHandle,
        at: BlockedAt,
        cpu_ns: u64,
        context: &mut TickContext<'_>,
    ) -> bool {
        // Before the thread is looked at: an announcement that comes later is of another sleep.
        let announced = self.announced_sleep();
        let tid = self.tid();
        // It has not run if its clock stands where it stood before it was looked at.
        let stood_still = || thread_cpu_ns(tid) == Some(cpu_ns);
        if !slot.capture_from_outside(registers_at(at), monotonic_now(), stood_still) {
            return false;
        }
        let Some(view) = slot.captured() else {
            return false;
        };
        let captured = captured_by(&view);
        let unwound = unwind_counted(context, |unwinder, native| {
            self.places.unwind(at, &captured, unwinder, native)
        });
        // Asked once for a place and none the wiser, it is not asked again.
        if unwound == Some(Outside::AskThread) && self.asked_at.replace(at) != Some(at) {
            return false;
        }
        self.asked_at = None;
        let Scratch {
            native,
            merged,
            stack,
        } = &mut *context.scratch;
        if unwound.is_none() {
            context.unwinder.take_innermost(&captured, native);
        }
        stack.set(native, &view, merged);
        let is_doubtful = native.doubtful;
        let time = view.header().time;
        drop(view);
        let written = self.write_sample(time, cpu_ns, context);
        SessionCounts::add(&context.session.counts.samples_from_outside, written);
        if is_doubtful {
            // The next tick knows more.
            return true;
        }
        self.rest = Some(Rest::new(
            cpu_ns,
            announced,
            context.tick,
            context.interval_ns(),
        ));
        slot.give_back_deep_stack();
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
        let Some(sequence) = slot.request_taken_back().or_else(|| slot.request()) else {
            return;
        };
        if blocked_at.is_some() {
            SessionCounts::add(&context.session.counts.signals_to_sleepers, 1);
        }
        self.send(slot, sequence, context);
        if slot.phase() != SlotPhase::Idle {
            self.waiting = Some(Waiting::new(cpu_ns, context.tick, blocked_at, false));
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

    /// Whether a request is out on this tick still, and nothing is to be done but to wait.
    fn is_waited_for(&mut self, context: &TickContext<'_>) -> bool {
        let (Some(waiting), Some(slot)) = (&mut self.waiting, &self.slot) else {
            return false;
        };
        let is_out = matches!(slot.phase(), SlotPhase::Requested | SlotPhase::Writing);
        is_out && !waiting.by_timer && !waiting.add_tick(context.tick_before)
    }

    /// Looks at a thread that has not answered yet.
    fn wait_on(&mut self, slot: &SlotHandle, cpu_ns: u64, context: &TickContext<'_>) {
        let Some(waiting) = &mut self.waiting else {
            return;
        };
        let Some(sequence) = slot.pending_request() else {
            return;
        };
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
    pub(super) fn take_up(&mut self, cpu_ns: u64, context: &mut TickContext<'_>) {
        let Some(slot) = self.slot.clone() else {
            return;
        };
        if self.waiting.is_none() {
            // An answer to a session before this one, whose handler was writing when this one began.
            if slot.phase() == SlotPhase::Ready {
                slot.retire();
            }
            return;
        }
        let Some(view) = slot.captured() else {
            if slot.phase() == SlotPhase::Idle {
                self.waiting = None;
            }
            return;
        };
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        if !waiting.by_timer {
            slot.clear_taken_back();
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
        match (unwound, waiting.blocked_at) {
            (None, _) => context.unwinder.take_innermost(&captured, native),
            (Some(()), Some(at)) => self.places.remember(at, &header.registers, native),
            (Some(()), None) => {}
        }
        stack.set(native, &view, merged);
        drop(view);

        if waiting.by_timer && header.cpu_ns > 0 {
            self.write_captured(header.time, header.cpu_ns, context);
            return;
        }
        // What it ran since it answered belongs to its next sample.
        let now = monotonic_now();
        match waiting.idle_run(header.time, now, cpu_ns, context.interval_ns()) {
            Ok(run) => {
                if let Some(run) = run {
                    let written = self.write_run(run, waiting.cpu_ns, context);
                    SessionCounts::add(&context.session.counts.same_samples, written);
                }
                self.write_captured(header.time, waiting.cpu_ns, context);
            }
            Err(unanswered) => {
                SessionCounts::add(&context.session.counts.unanswered_ticks, unanswered);
                let at_answer_ns = cpu_ns.saturating_sub(now.since_ns(header.time));
                self.write_captured(header.time, at_answer_ns.max(waiting.cpu_ns), context);
            }
        }
        let ran_on_ns = cpu_ns.saturating_sub(header.cpu_ns);
        let is_back = self.is_hidden && header.cpu_ns > 0 && ran_on_ns <= RETURN_TO_SLEEP_NS;
        // In so little time an event may have begun or ended, after which it sleeps as well.
        if is_back && slot.event_delay().state_in_handler() == header.event_loop {
            // It went back to where it slept, or has hardly left it.
            let announced = self.announced_sleep();
            self.rest = Some(Rest::new(
                cpu_ns,
                announced,
                context.tick,
                context.interval_ns(),
            ));
        }
    }
}
