//! Step 2 of 12: the thread's CPU clock decides whether to repeat the last sample, read the stack
//! remotely, send a signal, or keep waiting.
//!
//! Step 6 of 12: a capture that has arrived is collected.
//!
//! To read a stack remotely means that the sampler thread reads the stack of a blocked thread
//! without interrupting it.
//!
//! | state | on a tick | next state |
//! |---|---|---|
//! | `Idle` | has not run: repeats its sample | `Idle` |
//! | `Idle` | has run: continues as `Running` on the same tick | |
//! | `Running` | ran for all of the last tick: request by signal, or by its own timer | `Signaled`, `TimerArmed` |
//! | `Running` | likewise, and keeps its samples: makes room for the next ones | `Running` |
//! | `Running` | ran for less, is blocked now: remote read | `Idle`, or `Running` if the stack is doubtful |
//! | `Running` | likewise, and its stack needs the frame pointer: request by signal; the answer is cached | `Signaled` |
//! | `Running` | ran for less, is not blocked: request by signal, which the thread answers when it runs | `Signaled` |
//! | `Signaled`, `TimerArmed` | has answered: collects the capture, then continues as `Running` on the same tick, unless the thread went back to sleep | `Idle` |
//! | `Signaled`, `TimerArmed` | has answered, but the stack did not fit into the slot: enlarges the slot, then continues as `Running` on the same tick | |
//! | `Signaled` | has not answered: waits; checks on a few ticks whether the thread ran or is blocked | `Signaled` |
//! | `Signaled` | has not answered and is blocked: cancels the request, remote read instead | `Idle`, `Signaled` |
//! | `TimerArmed` | has not answered, ran for less than the last tick: request by signal or remote read instead | `Signaled`, `Idle` |
//! | `TimerArmed` | has run for several intervals without an answer: request by signal instead | `Signaled` |
//! | any | no longer exists: reports `Exited` | |
//!
//! A thread that keeps its samples (`batched_samples.rs`) hands over those that have come in, before
//! all of this.
//!
//! A thread that masks the signal is not sent it and has no timer, so its ticks count as unanswered
//! while it runs. Its stack is read when it is blocked. A timer fires whatever the mask, so one that
//! runs when its thread masks the signal may leave that signal pending.
//!
//! The kernel may refuse to read a thread's CPU clock, for example because of a seccomp filter.
//! Such a thread is taken to run on every tick, and so gets a signal on every tick. Its samples
//! have no CPU times.
//!
//! While sampling is paused, no work is done for a thread, and no time within the pause is written
//! or charged. CPU time between the thread's last sample and the pause is charged to its first
//! sample after the pause. CPU time during the pause is charged to no sample. The sampler sees a
//! pause begin or end only on its next tick. So CPU time between the pause's beginning or end and
//! that tick counts as part of the pause. CPU time between two pauses also does, if no tick falls
//! between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::capture::{
    CaptureHeader, CutCopy, FIRST_FOUND_BYTES, FoundStack, SlotHandle, SlotPhase,
};
use crate::platform::{
    BlockedAt, ProbeResult, Sent, SignalTicket, ThreadProbe, is_interrupted_wait,
    is_thread_of_c_library, monotonic_now, send_request, signal_is_queued, thread_cpu_ns,
    thread_exists,
};
use crate::sampler::encode::{IdlePeriod, Tick};
use crate::sampler::fork_gate::may_signal;
use crate::sampler::handler::READS_CLOCK;
use crate::sampler::thread::batched_samples::BatchedSamples;
use crate::sampler::thread::frame_pointer_cache::{FramePointerCache, RemoteUnwind, registers_at};
use crate::sampler::thread::identity::Identity;
use crate::sampler::thread::pending_request::{SignalRequest, TimerRequest, Unanswered};
use crate::sampler::thread::sample_recorder::SampleRecorder;
use crate::sampler::thread::signal_mask::{SeenMask, SignalMask};
use crate::sampler::thread::switch_recorder::SwitchRecorder;
use crate::sampler::thread::thread_state::ThreadState;
use crate::sampler::tick::TimerState;
use crate::sampler::tick::{Scratch, TickContext, captured_by, unwind_copy, unwind_counted};
use crate::state::{Session, SessionCounts};
use crate::threads::OffThreadRef;
use crate::types::{Features, ThreadId, TimeStamp};

/// Maximum CPU time that a thread needs from the end of its handler back to sleep, in ns. Used
/// where the sampler cannot see whether a thread sleeps.
const RETURN_TO_SLEEP_NS: u64 = 30_000;
/// Time off the processor in which a thread still counts as having run without a break, in ns:
/// about as long as an interrupt takes.
const SHORT_ABSENCE_NS: u64 = 10_000;

/// Time until the sampler asks again whether a thread is blocked, after the system has refused to
/// report it, in ns. A process can become dumpable again, and `/proc` can be mounted.
const HIDDEN_NS: u64 = 1_000_000_000;

/// Returns the slot of a thread that has registered, without the requests of an earlier session.
fn registered_slot(registration: &OffThreadRef) -> Option<Arc<SlotHandle>> {
    let slot = registration.unlocked_const_reader().slot()?;
    slot.retire();
    slot.unlink_batch();
    slot.set_timer(-1);
    Some(slot)
}

/// Returns a slot for a thread that has not registered. The kernel's own threads in the process have
/// no stack: `io_uring` has some.
fn slot_for_found(registration: &OffThreadRef) -> Option<Arc<SlotHandle>> {
    const KERNEL_THREADS: &str = "iou-";
    let thread = registration.unlocked_const_reader_and_atomic_rw();
    if thread.name().starts_with(KERNEL_THREADS) {
        return None;
    }
    let slot = SlotHandle::acquire()?;
    slot.retire();
    slot.set_timer(-1);
    slot.bind_to_found_thread(FIRST_FOUND_BYTES);
    Some(Arc::new(slot))
}

/// Reports that a thread exited without unregistering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exited;

/// The sampler's state of one thread.
#[derive(Debug)]
pub(crate) struct ThreadSampler {
    registration: OffThreadRef,
    /// The slot for the thread's captures; `None` if its stacks are not recorded.
    slot: Option<Arc<SlotHandle>>,
    /// What is known of the stack of a thread that has not registered; `None` for one that has.
    found: Option<FoundStack>,
    /// Whether the handler may run on the thread: it has registered, or is known to be one of the C
    /// library's.
    may_run_handler: bool,
    state: ThreadState,
    probe: ThreadProbe,
    identity: Identity,
    /// If the system refuses to report whether the thread is blocked, the time of the next attempt.
    hidden_until: Option<TimeStamp>,
    /// Whether the kernel refused to read the thread's CPU clock.
    has_no_clock: bool,
    /// Whether the thread may block the signal: it has slept since its last answer, or not
    /// answered.
    may_block_signal: bool,
    signal_mask: SignalMask,
    /// Where the thread was blocked when its frame pointer was last requested.
    fp_requested_at: Option<BlockedAt>,
    frame_pointers: FramePointerCache,
    timer: TimerState,
    batch: BatchedSamples,
    /// The last reading of the CPU clock by which the sampler told whether the thread runs, and the
    /// time of that reading.
    seen_cpu_ns: u64,
    seen_at: TimeStamp,
    /// The last reading of the CPU clock on any tick, and the first one of the session.
    known_cpu_ns: u64,
    began_cpu_ns: u64,
    samples: SampleRecorder,
    /// `None` if the session does not record context switches.
    switches: Option<SwitchRecorder>,
}

impl ThreadSampler {
    /// Begins to sample a thread. The CPU time that it has used in the last `unseen_ns` belongs to
    /// its first sample, because nobody has sampled it then.
    pub(crate) fn new(registration: OffThreadRef, session: &Session, unseen_ns: u64) -> Self {
        let unlocked = registration.unlocked_const_reader_and_atomic_rw();
        let features = unlocked.profiling_features();
        let records_stacks = session.records_stacks_of(features);
        let is_found = !unlocked.is_registered();
        let slot = if is_found {
            Some(&registration)
                .filter(|_| records_stacks)
                .and_then(slot_for_found)
        } else {
            registered_slot(&registration)
        };
        if slot.is_none() && records_stacks {
            SessionCounts::add(&session.counts.threads_without_stacks, 1);
        }
        let began_earlier = is_found
            && registration.unlocked_const_reader().info().registered_at <= session.started_at;
        let tid = unlocked.tid();
        let seen_cpu_ns = thread_cpu_ns(tid).unwrap_or(0);
        let cpu_ns = seen_cpu_ns.saturating_sub(unseen_ns);
        Self {
            probe: ThreadProbe::new(tid),
            identity: Identity::at_start(&registration, session),
            samples: SampleRecorder::new(registration.serial(), features, cpu_ns, session),
            found: is_found.then(FoundStack::new),
            may_run_handler: !is_found,
            registration,
            slot: slot.filter(|_| records_stacks),
            state: ThreadState::Running,
            hidden_until: None,
            has_no_clock: false,
            may_block_signal: true,
            signal_mask: if began_earlier {
                SignalMask::Unknown
            } else {
                SignalMask::Open
            },
            fp_requested_at: None,
            frame_pointers: FramePointerCache::default(),
            timer: TimerState::default(),
            batch: BatchedSamples::default(),
            seen_cpu_ns,
            seen_at: TimeStamp(0),
            known_cpu_ns: seen_cpu_ns,
            began_cpu_ns: seen_cpu_ns,
            switches: (session.settings.features)
                .contains(Features::CONTEXT_SWITCHES)
                .then(SwitchRecorder::default),
        }
    }

    pub(crate) fn registration(&self) -> &OffThreadRef {
        &self.registration
    }

    fn tid(&self) -> ThreadId {
        self.registration
            .unlocked_const_reader_and_atomic_rw()
            .tid()
    }

    fn announced_sleep(&self) -> Option<u32> {
        self.registration
            .unlocked_const_reader_and_atomic_rw()
            .announced_sleep()
    }

    /// Returns the thread's CPU clock as it was last read on a tick, in ns; 0 if it cannot be read.
    pub(crate) fn known_cpu_ns(&self) -> u64 {
        self.known_cpu_ns
    }

    /// Returns whether the thread has not run since its stack was captured.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, ThreadState::Idle(_))
    }

    /// Returns whether the thread has been idle for long or for all of the session, and all its context
    /// switches have been read, if the session records them.
    pub(crate) fn is_long_idle(&self, tick: Tick) -> bool {
        let ThreadState::Idle(idle) = &self.state else {
            return false;
        };
        let may_rest = |switches: &SwitchRecorder| switches.may_rest(idle.cpu_ns());
        let has_not_run = idle.cpu_ns() == self.began_cpu_ns && !self.has_no_clock;
        (idle.is_long(tick) || has_not_run) && self.switches.as_ref().is_none_or(may_rest)
    }

    /// Runs one tick of this thread. Ticks of an idle thread may be skipped.
    ///
    /// # Errors
    /// The thread has exited.
    pub(crate) fn tick(&mut self, context: &mut TickContext<'_>) -> Result<(), Exited> {
        if !self.identity.is_the_same(&self.registration, &self.probe) {
            return Err(Exited);
        }
        self.follow_registration(context.session);
        if !context.is_handler_in_place {
            self.end_timer();
        }
        self.collect_batch(context)?;
        self.advance(context)
    }

    /// Takes the step that follows from the thread's state.
    ///
    /// # Errors
    /// The thread has exited.
    fn advance(&mut self, context: &mut TickContext<'_>) -> Result<(), Exited> {
        match &mut self.state {
            ThreadState::Running => {
                let cpu_ns = self.read_clock(context)?;
                self.sample(cpu_ns, context);
            }
            ThreadState::Idle(idle) => {
                let idle_cpu_ns = idle.cpu_ns();
                let thread = self.registration.unlocked_const_reader_and_atomic_rw();
                if idle.is_announced(thread.announced_sleep(), context.tick) {
                    return Ok(());
                }
                let clock = self.read_clock(context);
                if clock != Ok(Some(idle_cpu_ns)) {
                    self.end_idle_period(context);
                    self.sample(clock?, context);
                }
            }
            ThreadState::Signaled(request) => {
                let phase = self.slot.as_ref().map(|slot| slot.phase());
                let is_unanswered =
                    matches!(phase, Some(SlotPhase::Requested | SlotPhase::Writing));
                if is_unanswered && !request.add_tick(context.tick_before, context.tick) {
                    return Ok(());
                }
                let cpu_ns = self.read_clock(context)?;
                self.collect_or_wait(cpu_ns, context);
            }
            ThreadState::TimerArmed(request) => {
                let phase = self.slot.as_ref().map(|slot| slot.phase());
                if phase != Some(SlotPhase::Ready) {
                    request.add_tick();
                }
                let cpu_ns = self.read_clock(context)?;
                self.collect_or_wait(cpu_ns, context);
            }
        }
        Ok(())
    }

    /// Writes the samples that the thread has kept since the last collection, and before them its
    /// answer to a signal, which it gave before it ran on.
    ///
    /// # Errors
    /// The thread has exited.
    fn collect_batch(&mut self, context: &mut TickContext<'_>) -> Result<(), Exited> {
        if !context.is_batched {
            self.samples.owe_nothing();
            if self.batch.exists() {
                self.write_kept_samples(context);
                self.batch.release();
            }
            return Ok(());
        }
        let cpu_ns = self.read_clock(context)?;
        self.samples.follow_ticks(cpu_ns, context);
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
    /// thread is to be asked by a signal instead. `ran_ns` is its CPU time since the last tick.
    fn arm_batch(
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
        let has_timer = context.may_request()
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

    /// Uses the slot of a thread that has registered since it was found: that slot knows the bounds
    /// of the thread's stack, and its labels.
    fn follow_registration(&mut self, session: &Session) {
        let thread = self.registration.unlocked_const_reader_and_atomic_rw();
        if self.found.is_none() || !thread.is_registered() {
            return;
        }
        self.found = None;
        let records_stacks = session.records_stacks_of(thread.profiling_features());
        if let Some(slot) = registered_slot(&self.registration).filter(|_| records_stacks) {
            self.abandon_request();
            self.slot = Some(slot);
        }
    }

    /// Reads the thread's CPU clock; `None` if the kernel refuses.
    ///
    /// # Errors
    /// The thread has exited. A clock that went back belongs to another thread, to which the system
    /// has given this thread's id.
    fn read_clock(&mut self, context: &TickContext<'_>) -> Result<Option<u64>, Exited> {
        let tid = self.tid();
        match thread_cpu_ns(tid) {
            Some(cpu_ns) if cpu_ns >= self.seen_cpu_ns => {
                self.known_cpu_ns = cpu_ns;
                Ok(Some(cpu_ns))
            }
            // The error number does not tell an exited thread from a refusal: a filter may report
            // `EINVAL`, too.
            None if thread_exists(context.process, tid) => {
                if !std::mem::replace(&mut self.has_no_clock, true) {
                    let count = &context.session.counts.threads_without_clock;
                    SessionCounts::add(count, 1);
                }
                Ok(None)
            }
            Some(_) | None => Err(Exited),
        }
    }

    /// Samples a thread that may have run and has no pending request.
    fn sample(&mut self, cpu_ns: Option<u64>, context: &mut TickContext<'_>) {
        if context.is_batched {
            // A thread that masks the signal has no samples while it runs, for example.
            let most = context.max_owed_ticks();
            self.samples.forgive(most, most, context.session);
        }
        let ran_ns = cpu_ns.map_or(0, |cpu_ns| cpu_ns.saturating_sub(self.seen_cpu_ns));
        let runs = self.ran_until_now(cpu_ns);
        let Some(slot) = self.slot.clone() else {
            self.sample_without_stack(cpu_ns, context);
            return;
        };
        if slot.phase() == SlotPhase::Ready {
            // A capture for an earlier session: its handler was still writing when this session
            // began.
            slot.retire();
        }
        let keeps_samples = context.is_batched && self.arm_batch(&slot, cpu_ns, ran_ns, context);
        if let Some(at) = self.blocked_at(runs, context) {
            self.sample_blocked(&slot, at, cpu_ns, context);
        } else if keeps_samples && runs {
            // It ran for all of the time since the last tick but for a part of an interval.
            let [_, slept_before] = self.samples.owed_rest();
            let most = context.max_owed_ticks();
            self.samples
                .forgive(most, slept_before.max(1), context.session);
        } else if !(runs && self.request_by_timer(&slot, cpu_ns, context)) {
            // The timer of a thread that waits for a processor does not advance. A signal is what
            // such a thread handles before anything else.
            self.request_by_signal(&slot, cpu_ns, None, context);
        }
    }

    /// Samples a thread that is blocked at `at` and has no pending request.
    fn sample_blocked(
        &mut self,
        slot: &SlotHandle,
        at: BlockedAt,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) {
        if at.awaits_signals {
            self.signal_mask = SignalMask::Masked;
            // Between two signals, the timer would fire, and the thread would receive that one.
            self.timer.end();
        }
        if !self.capture_remotely(slot, at, cpu_ns, context) {
            self.request_by_signal(slot, cpu_ns, Some(at), context);
        }
    }

    /// Collects the answer to the pending request, or checks why there is none.
    fn collect_or_wait(&mut self, cpu_ns: Option<u64>, context: &mut TickContext<'_>) {
        let Some(slot) = self.slot.clone() else {
            return;
        };
        self.collect_capture(&slot, cpu_ns, context);
        if context.session.is_stopping() {
            return;
        }
        let runs = match &mut self.state {
            ThreadState::Idle(_) => return,
            ThreadState::Running => return self.sample(cpu_ns, context),
            ThreadState::Signaled(_) => self.ran_until_now(cpu_ns),
            ThreadState::TimerArmed(request) => {
                let ticks = request.ticks();
                // Without a readable clock, request by signal instead.
                let runs = cpu_ns.is_some() && self.ran_until_now(cpu_ns);
                if !runs {
                    self.replace_timer_request(&slot, ticks, cpu_ns, context);
                    return;
                }
                runs
            }
        };
        // A sleeping thread will not answer: it masks the signal, or its timer does not advance.
        if let Some(at) = self.blocked_at(runs, context)
            && self.cancel_request(&slot)
        {
            self.sample_blocked(&slot, at, cpu_ns, context);
        } else {
            self.check_unanswered(&slot, cpu_ns, context);
        }
    }

    /// Replaces a request that the timer will not answer soon, because the thread stopped running.
    /// `ticks` is the number of ticks that the request has had no answer for.
    fn replace_timer_request(
        &mut self,
        slot: &SlotHandle,
        ticks: u64,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) {
        let blocked_at = self.blocked_at(false, context);
        if !self.cancel_request(slot) {
            return;
        }
        let unanswered = &context.session.counts.unanswered_ticks;
        if let Some(at) = blocked_at {
            SessionCounts::add(unanswered, ticks);
            self.sample_blocked(slot, at, cpu_ns, context);
            return;
        }
        self.request_by_signal(slot, cpu_ns, None, context);
        if ticks > 0
            && cpu_ns.is_some()
            && let ThreadState::Signaled(request) = &mut self.state
        {
            *request = SignalRequest::instead_of_timer(cpu_ns, context.tick_before, context.tick);
            SessionCounts::add(unanswered, ticks - 1);
        } else {
            SessionCounts::add(unanswered, ticks);
        }
    }

    /// Returns where the thread is blocked, or `None` if it runs, is not blocked, or if the system
    /// does not report it.
    fn blocked_at(&mut self, runs: bool, context: &TickContext<'_>) -> Option<BlockedAt> {
        let is_hidden = |until| context.tick.time < until;
        if runs || self.hidden_until.is_some_and(is_hidden) {
            return None;
        }
        match self.probe.probe() {
            ProbeResult::Blocked(at) => {
                self.hidden_until = None;
                Some(at)
            }
            ProbeResult::NotBlocked => None,
            ProbeResult::Hidden => {
                let next_attempt = context.tick.time.plus_ns(HIDDEN_NS);
                if self.hidden_until.replace(next_attempt).is_none() {
                    SessionCounts::add(&context.session.counts.hidden_threads, 1);
                }
                READS_CLOCK.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// Returns whether the thread has run for all of the time since the last tick, and so probably
    /// still runs. A thread without a readable clock is taken to run.
    fn ran_until_now(&mut self, cpu_ns: Option<u64>) -> bool {
        let Some(cpu_ns) = cpu_ns else {
            return true;
        };
        let now = monotonic_now();
        let ran_ns = cpu_ns.saturating_sub(std::mem::replace(&mut self.seen_cpu_ns, cpu_ns));
        let elapsed_ns = now.since_ns(std::mem::replace(&mut self.seen_at, now));
        ran_ns >= elapsed_ns.saturating_sub(SHORT_ABSENCE_NS.max(elapsed_ns / 64))
    }

    /// Makes a request that the thread's own timer answers. Returns false if the thread has no
    /// timer, or masks the signal.
    fn request_by_timer(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
    ) -> bool {
        let Some(cpu_ns) = cpu_ns else {
            return false;
        };
        // A timer's signal does not find the slot of a thread that has not registered.
        let has_timer = context.session.uses_timers()
            && !context.is_batched
            && self.found.is_none()
            && context.may_request()
            && !self.blocks_signal(None, context)
            && self.timer.ensure(self.tid(), slot, context.session);
        if has_timer && slot.request().is_some() {
            self.state = ThreadState::TimerArmed(TimerRequest::new(cpu_ns));
        }
        has_timer
    }

    fn request_by_signal(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: Option<u64>,
        blocked_at: Option<BlockedAt>,
        context: &TickContext<'_>,
    ) {
        if !(context.may_request() && may_signal()) {
            return;
        }
        let counts = &context.session.counts;
        let blocks_signal = self.blocks_signal(blocked_at, context);
        let repeated = slot.repeat_canceled_request();
        if blocks_signal && repeated.is_none() {
            if !context.is_batched {
                SessionCounts::add(&counts.unanswered_ticks, 1);
            }
            return;
        }
        let Some(sequence) = repeated.or_else(|| slot.request()) else {
            // A late handler uses the slot, or an earlier session's sampler that waits for the
            // loader.
            SessionCounts::add(&counts.unanswered_ticks, 1);
            return;
        };
        // The signal of a repeated request is still pending where the thread blocks it.
        if !blocks_signal {
            if blocked_at.is_some() {
                SessionCounts::add(&counts.signals_to_sleepers, 1);
            }
            self.send(slot, sequence, context);
        }
        if slot.phase() != SlotPhase::Idle {
            let request = SignalRequest::new(cpu_ns, context.tick, blocked_at);
            self.state = ThreadState::Signaled(request);
        }
    }

    /// Returns whether the thread, which is blocked at `blocked_at` or not blocked, masks the
    /// signal. The thread's next `sigwait` would return a pending signal. So a timer ends that was
    /// made before the thread masked the signal.
    ///
    /// A thread that ran on after its last answer is assumed not to mask the signal, because the
    /// check costs 3 µs, or 20 µs for a real-time signal.
    fn blocks_signal(&mut self, blocked_at: Option<BlockedAt>, context: &TickContext<'_>) -> bool {
        let is_main = self.registration.unlocked_const_reader().info().is_main;
        if is_main && self.found.is_some() {
            // `std::process::exit` on another thread may unmap the main thread's signal stack, also
            // while a signal is pending. A main thread that has registered has one of the profiler's.
            return true;
        }
        // Asked again, because a thread of the C library is not known as such when it begins.
        self.may_run_handler = self.may_run_handler || is_thread_of_c_library(self.tid());
        if !self.may_run_handler {
            return true;
        }
        if blocked_at.is_some_and(|at| at.awaits_handler) {
            // The signal would end the wait.
            return true;
        }
        let seen = self.see_mask(blocked_at, context.session.settings.signal);
        let cpu_ns = Some(self.seen_cpu_ns).filter(|_| !self.has_no_clock);
        let blocks = self.signal_mask.note(seen, context.tick.time, cpu_ns);
        if blocks {
            self.timer.end();
        }
        blocks
    }

    /// Asks the kernel whether the thread masks the signal. `blocked_at` is where the thread was
    /// blocked when the caller asked.
    fn see_mask(&mut self, blocked_at: Option<BlockedAt>, signal: i32) -> SeenMask {
        if blocked_at.is_some_and(|at| at.awaits_signals) {
            return SeenMask::Masked;
        }
        if !self.may_block_signal {
            return SeenMask::Open;
        }
        if self.probe.blocks(signal) {
            return SeenMask::Masked;
        }
        match self.probe.probe() {
            ProbeResult::Blocked(at) if at.awaits_signals => SeenMask::Masked,
            // The thread was blocked in the meantime, so its mask did not change.
            ProbeResult::Blocked(at) if blocked_at == Some(at) => SeenMask::Open,
            // Nothing tells whether the thread waits for signals.
            ProbeResult::Hidden => SeenMask::Open,
            ProbeResult::Blocked(_) | ProbeResult::NotBlocked => SeenMask::PerhapsOpen,
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

    /// Checks a thread that has not answered yet.
    fn check_unanswered(
        &mut self,
        slot: &SlotHandle,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
    ) {
        let Some(sequence) = slot.pending_request() else {
            return;
        };
        let counts = &context.session.counts;
        let interval_ns = context.interval_ns();
        let may_send = context.may_request() && may_signal();
        let is_queued = signal_is_queued(context.session.settings.signal);
        match &mut self.state {
            ThreadState::Running | ThreadState::Idle(_) => {}
            ThreadState::Signaled(request) => {
                let checked = request.check_clock(cpu_ns, context.tick, interval_ns, is_queued);
                self.may_block_signal = true;
                if let Unanswered::Ran { ticks, resend } = checked {
                    SessionCounts::add(&counts.unanswered_ticks, ticks);
                    // The question also ends a timer of a thread that masks the signal.
                    let blocks_signal =
                        (resend || self.timer.runs()) && self.blocks_signal(None, context);
                    if resend && may_send && !blocks_signal {
                        self.send(slot, sequence, context);
                    }
                }
            }
            ThreadState::TimerArmed(request) => {
                if may_send && cpu_ns.is_some_and(|cpu_ns| request.is_overdue(cpu_ns, interval_ns))
                {
                    SessionCounts::add(&counts.silent_timers, 1);
                    SessionCounts::add(&counts.unanswered_ticks, request.ticks());
                    let request = SignalRequest::new(cpu_ns, context.tick, None);
                    self.state = ThreadState::Signaled(request);
                    self.may_block_signal = true;
                    if !self.blocks_signal(None, context) {
                        self.send(slot, sequence, context);
                    }
                }
            }
        }
    }

    /// Cancels a request that will not be answered soon. Returns false if the answer is already
    /// being written.
    fn cancel_request(&mut self, slot: &SlotHandle) -> bool {
        self.note_canceled(slot);
        slot.cancel();
        let is_canceled = slot.phase() == SlotPhase::Idle;
        if is_canceled {
            self.drop_request();
        }
        is_canceled
    }

    /// Cancels the pending request. If the handler is already writing an answer, that answer is
    /// dropped.
    fn abandon_request(&mut self) {
        if let Some(slot) = self.slot.clone() {
            self.note_canceled(&slot);
            slot.retire();
        }
        self.drop_request();
    }

    /// Records that a signal was already sent for a request that is about to be canceled. That
    /// signal may arrive later, even in another session.
    fn note_canceled(&self, slot: &SlotHandle) {
        let was_sent = matches!(self.state, ThreadState::Signaled(_));
        if let Some(sequence) = slot.pending_request().filter(|_| was_sent) {
            slot.set_canceled_request(sequence);
        }
    }

    fn has_request(&self) -> bool {
        matches!(
            self.state,
            ThreadState::Signaled(_) | ThreadState::TimerArmed(_)
        )
    }

    /// Leaves the states of a pending request.
    fn drop_request(&mut self) {
        if self.has_request() {
            self.state = ThreadState::Running;
        }
    }

    /// Reads the stack of a thread that is blocked at `at` without waking it. Returns false if the
    /// thread must be signaled instead.
    fn capture_remotely(
        &mut self,
        slot: &SlotHandle,
        at: BlockedAt,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) -> bool {
        // Read before the stack, since a later announcement belongs to another sleep.
        let announced = self.announced_sleep();
        let tid = self.tid();
        // The thread has not run if its clock still has the value from before the stack was read.
        let stood_still = || cpu_ns.is_some() && thread_cpu_ns(tid) == cpu_ns;
        if !slot.capture_remotely(registers_at(at), monotonic_now(), stood_still) {
            return false;
        }
        let Some(view) = slot.captured() else {
            return false;
        };
        if !context.scratch.try_reserve(&view) {
            SessionCounts::add(&context.session.counts.dropped_samples, 1);
            return true;
        }
        let captured = captured_by(&view);
        let unwound = unwind_counted(context, |unwinder, native| {
            self.frame_pointers.unwind(at, &captured, unwinder, native)
        });
        if context.scratch.native.truncated
            && let Some(found) = self.found.as_mut().filter(|found| !found.contains(at.sp))
        {
            match found.after_cut_copy(slot, view.stack().len()) {
                CutCopy::IsComplete => {}
                CutCopy::RepeatLonger => {
                    drop(view);
                    return self.capture_remotely(slot, at, cpu_ns, context);
                }
                CutCopy::AskThread if self.blocks_signal(Some(at), context) => {}
                CutCopy::AskThread => return false,
            }
        }
        // If a request at this place did not supply the frame pointer, do not send another. A
        // thread that masks the signal would not answer.
        if unwound == Some(RemoteUnwind::NeedsFramePointer)
            && !self.blocks_signal(Some(at), context)
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
        stack.set_wait(at.wait);
        let is_doubtful = native.doubtful;
        let time = view.header().time;
        drop(view);
        let written = self.samples.write_sample(time, cpu_ns, context);
        SessionCounts::add(&context.session.counts.remote_samples, written);
        if is_doubtful {
            // The stack is doubtful, so the next tick captures it again.
            return true;
        }
        self.begin_idle_period(cpu_ns, announced, context);
        slot.release_deep_stack();
        true
    }

    /// Collects a capture that has arrived, and leaves the handler's time out of the thread's CPU
    /// times. Keeps the state if none has arrived.
    fn collect_capture(
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

    fn sample_without_stack(&mut self, cpu_ns: Option<u64>, context: &mut TickContext<'_>) {
        let slot = self
            .registration
            .unlocked_const_reader_and_atomic_rw()
            .slot();
        let event_loop = slot.map(|slot| slot.event_delay().state_in_handler());
        context
            .scratch
            .stack
            .set_empty(event_loop.unwrap_or_default());
        let time = context.tick.time;
        match self.samples.owed_running() {
            0 => _ = self.samples.write_sample(time, cpu_ns, context),
            ran => {
                self.samples.write_rest(context);
                self.samples.write_running(time, ran - 1, cpu_ns, context);
            }
        }
        self.begin_idle_period(cpu_ns, None, context);
    }

    /// Starts an idle period on this tick, which already has its sample. Without a readable clock,
    /// no later tick could tell that the period ended, so the thread stays running.
    fn begin_idle_period(
        &mut self,
        cpu_ns: Option<u64>,
        announced: Option<u32>,
        context: &TickContext<'_>,
    ) {
        self.may_block_signal = true;
        if let Some(cpu_ns) = cpu_ns {
            let idle = IdlePeriod::new(cpu_ns, announced, context.tick);
            self.state = ThreadState::Idle(idle);
        }
    }

    /// Ends the idle period of a thread that has run: its last sample is on the previous tick of the
    /// schedule.
    fn end_idle_period(&mut self, context: &TickContext<'_>) {
        let last = match &self.state {
            // It may have begun to run several collections ago. The ledger tells for how long.
            ThreadState::Idle(idle) if context.is_batched => {
                let [slept, _] = self.samples.owed_rest();
                context.earlier_tick((idle.unwritten() + slept).saturating_sub(1))
            }
            _ => context.last_tick_before(),
        };
        self.write_idle_until(last, context);
        if let (ThreadState::Idle(idle), Some(switches)) = (&self.state, &mut self.switches) {
            switches.rest(idle.cpu_ns(), context.tick_before.time);
        }
        self.state = ThreadState::Running;
    }

    /// Writes the pending idle samples up to the previous tick.
    pub(crate) fn write_idle_before_tick(&mut self, context: &TickContext<'_>) {
        self.write_idle_until(context.last_idle_tick(), context);
    }

    /// Returns the number of the first tick whose idle sample is pending; `None` if none is.
    pub(crate) fn unwritten_since(&self) -> Option<u64> {
        match &self.state {
            ThreadState::Idle(idle) => Some(idle.unwritten()),
            _ => None,
        }
    }

    /// Writes the pending idle samples up to this tick, so that a profile includes them.
    pub(crate) fn write_idle_samples(&mut self, context: &TickContext<'_>) {
        self.write_idle_until(context.tick, context);
    }

    /// Writes the pending idle samples up to this tick if they are overdue.
    pub(crate) fn write_overdue_idle(&mut self, context: &TickContext<'_>) {
        let has_crash_file = context.session.crash_facts.is_some();
        let now = context.tick.time;
        if matches!(&self.state, ThreadState::Idle(idle) if idle.is_overdue(now, has_crash_file)) {
            self.write_idle_samples(context);
        }
    }

    fn write_idle_until(&mut self, last: Tick, context: &TickContext<'_>) {
        if let ThreadState::Idle(idle) = &mut self.state {
            context.breaks.write_runs(idle, last, |idle, last| {
                self.samples.write_idle(idle, last, context);
            });
        }
    }

    /// Stops sampling the thread for a pause that began at `paused_at`, after the tick `last`.
    /// Writes the idle samples up to that tick, collects an answer that has arrived, and drops the
    /// pending request.
    pub(crate) fn pause(
        &mut self,
        paused_at: TimeStamp,
        last: Tick,
        context: &mut TickContext<'_>,
    ) {
        self.write_idle_until(last, context);
        self.timer.end();
        self.write_kept_samples(context);
        self.batch.release();
        // How many of them were before the pause is not known, so no thread has a sample for them.
        self.samples.forget_skipped(context.session);
        let cpu_ns = thread_cpu_ns(self.tid());
        let since_then_ns = monotonic_now().since_ns(paused_at);
        // The thread may have answered before the pause.
        if let Some(slot) = self.slot.clone().filter(|_| self.has_request()) {
            self.collect_capture(&slot, cpu_ns, context);
        }
        self.abandon_request();
        self.samples.pause(cpu_ns, since_then_ns);
        if let Some(switches) = &mut self.switches {
            switches.forget();
        }
    }

    /// Resumes sampling on this tick. A thread that has not run during the pause stays idle.
    pub(crate) fn resume(&mut self, tick: Tick, session: &Session) {
        self.abandon_request();
        // A later step of this tick notices if the thread has exited.
        let cpu_ns = thread_cpu_ns(self.tid());
        self.samples.resume(cpu_ns, session);
        match &mut self.state {
            ThreadState::Idle(idle) if cpu_ns.is_none_or(|cpu_ns| cpu_ns == idle.cpu_ns()) => {
                idle.skip_to(tick);
            }
            state => *state = ThreadState::Running,
        }
    }

    /// Returns since when it is due to record the thread's context switches; `None` if it is not.
    pub(crate) fn switches_due_since(&self, now: TimeStamp) -> Option<TimeStamp> {
        self.switches.as_ref()?.due_since(now)
    }

    /// Records the thread's context switches since the last reading, so that a profile has them.
    pub(crate) fn record_last_switches(&mut self, context: &TickContext<'_>) {
        let has_begun = self
            .switches
            .as_ref()
            .is_some_and(SwitchRecorder::has_begun);
        if has_begun && !context.pauses.is_paused {
            self.record_switches(context);
        }
    }

    /// Records the thread's context switches if it has run. Returns whether its files were read.
    pub(crate) fn record_switches(&mut self, context: &TickContext<'_>) -> bool {
        let cpu_ns = match &self.state {
            ThreadState::Idle(idle) => Some(idle.cpu_ns()),
            _ => thread_cpu_ns(self.tid()),
        };
        let Some(switches) = &mut self.switches else {
            return false;
        };
        switches.record(&self.registration, &mut self.probe, cpu_ns, context)
    }

    /// Ends the thread's timer and cancels a request that the timer was to answer, so that the next
    /// request makes a new timer. An answer that has already arrived is still collected.
    fn end_timer(&mut self) {
        self.timer.end();
        if matches!(self.state, ThreadState::TimerArmed(_))
            && let Some(slot) = self.slot.clone()
        {
            self.cancel_request(&slot);
        }
    }

    /// Stops sampling the thread for good: writes its pending idle samples up to `last`, the last
    /// tick of the thread or of the session, and cancels its request. A signal that arrives later
    /// finds no request.
    pub(crate) fn end(&mut self, last: Tick, context: &mut TickContext<'_>) {
        self.write_idle_until(last, context);
        self.timer.end();
        self.write_kept_samples(context);
        self.batch.release();
        self.abandon_request();
        if self.samples.has_samples() {
            self.registration
                .unlocked_const_reader_and_atomic_rw()
                .note_entry(context.session.generation);
        }
    }
}
