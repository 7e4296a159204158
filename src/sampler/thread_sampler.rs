//! Step 2 of 12: the thread's CPU clock decides whether to repeat the last sample, read the stack
//! remotely, send a signal, or keep waiting.
//!
//! To read a stack remotely means that the sampler thread reads the stack of a blocked thread
//! without interrupting it.
//!
//! | state | on a tick | next state |
//! |---|---|---|
//! | any | has taken samples of itself: collects them first (`own_clock.rs`) | |
//! | `Idle` | has not run: repeats its sample | `Idle` |
//! | `Idle` | has run: continues as `Running` on the same tick | |
//! | `Running` | is blocked: remote read | `Idle`, or `Running` if the stack is doubtful |
//! | `Running` | likewise, and its stack needs the frame pointer: request by signal; the answer is cached | `Signaled` |
//! | `Running` | falls asleep: waits until the kernel tells where | `Running` |
//! | `Running` | runs, and samples itself: nothing | `Running` |
//! | `Running` | runs, and does not sample itself: request by signal | `Signaled` |
//! | `Running` | waits for a processor: request by signal, which the thread answers when it runs | `Signaled` |
//! | `Signaled` | has answered: collects the capture, then continues as `Running` on the same tick, unless the thread went back to sleep | `Idle` |
//! | `Signaled` | has answered, but the stack did not fit into the slot: enlarges the slot, then continues as `Running` on the same tick | |
//! | `Signaled` | has not answered: waits; checks on a few ticks whether the thread ran or is blocked | `Signaled` |
//! | `Signaled` | has not answered and is blocked: cancels the request, remote read instead | `Idle`, `Signaled` |
//! | any | no longer exists: reports `Exited` | |
//!
//! A thread that masks the signal is not sent it and has no event. While it runs, its samples say so
//! in the place of a stack. Its stack is read when it is blocked. An event fires whatever the mask, so
//! one that a thread has when it masks the signal may leave that signal pending.
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

mod blocked;
mod frame_pointer_cache;
mod own_clock;
mod own_samples;
mod requests;
mod sample_recorder;
mod signal_request;
#[cfg(test)]
mod stopped_session_tests;
mod switch_recorder;
mod thread_lists;

use std::sync::Arc;

use crate::capture::{EventLoopState, FIRST_FOUND_BYTES, FoundStack, SlotHandle, SlotPhase};
use crate::platform::{
    BlockedAt, ProbeResult, ThreadProbe, monotonic_now, thread_cpu_ns, thread_exists,
};
use crate::sampler::encode::{IdlePeriod, Tick};
use crate::sampler::thread_sampler::frame_pointer_cache::FramePointerCache;
use crate::sampler::thread_sampler::own_samples::{OwnSamples, Ran};
use crate::sampler::thread_sampler::sample_recorder::SampleRecorder;
use crate::sampler::thread_sampler::signal_request::{SignalMask, SignalRequest};
use crate::sampler::thread_sampler::switch_recorder::SwitchRecorder;
use crate::sampler::tick_context::TickContext;
use crate::state::{Session, SessionCounts};
use crate::threads::OffThreadRef;
use crate::types::{Features, NoStack, ThreadId, TimeStamp};

pub(crate) use thread_lists::Threads;

/// Time off the processor in which a thread still counts as having run without a break, in ns:
/// about as long as an interrupt takes.
const SHORT_ABSENCE_NS: u64 = 10_000;

/// Minimum CPU time since a thread's last sample for which [`ThreadSampler::write_cpu_time`] writes
/// another one, in ns.
const MIN_LAST_CPU_NS: u64 = 10_000;

/// Reports that a thread exited without unregistering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exited;

/// The sampler's state of one thread.
#[derive(Debug)]
pub(crate) struct ThreadSampler {
    registration: OffThreadRef,
    /// The slot for the thread's captures; `None` if its stacks are not recorded.
    slot: Option<Arc<SlotHandle>>,
    /// The stack of a thread that has not registered, as it was found; `None` for a registered one.
    found: Option<FoundStack>,
    /// Whether the handler may run on the thread: it has registered, or is known to be one of the C
    /// library's.
    may_run_handler: bool,
    /// Whether the thread is in seccomp's strict mode, and the CPU time at which it is asked again.
    is_strict: bool,
    /// The tick at which it was last asked for that.
    asked_strict_at_tick: u64,
    ask_strict_at_ns: u64,
    state: ThreadState,
    probe: ThreadProbe,
    /// Whether the thread with the id is the one that registered; `None` before the kernel was asked.
    /// Within a session, a CPU clock that goes back shows another thread. But a thread that registered
    /// before the session may have ended unnoticed, and the system may have given its id to another
    /// one.
    is_same: Option<bool>,
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
    own: OwnSamples,
    /// The last reading of the CPU clock by which the sampler told whether the thread runs, and the
    /// time of that reading.
    seen_cpu_ns: u64,
    seen_at: TimeStamp,
    /// The last reading of the CPU clock on any tick, and the first one of the session; 0 if it cannot be
    /// read.
    known_cpu_ns: u64,
    began_cpu_ns: u64,
    samples: SampleRecorder,
    /// `None` if the session does not record context switches.
    switches: Option<SwitchRecorder>,
}

/// State of a thread between two ticks.
#[derive(Debug, Default)]
enum ThreadState {
    /// No request is pending. The thread may have run since its last sample.
    #[default]
    Running,
    /// The thread has not run since its stack was captured.
    Idle(IdlePeriod),
    /// A signal was sent, which the thread's handler answers.
    Signaled(SignalRequest),
}

impl ThreadSampler {
    /// Begins to sample a thread. The CPU time that it has used in the last `unseen_ns` belongs to
    /// its first sample, because the thread was not sampled in that time.
    pub(crate) fn new(registration: OffThreadRef, session: &Session, unseen_ns: u64) -> Self {
        let unlocked = registration.unlocked_const_reader_and_atomic_rw();
        let features = unlocked.profiling_features();
        let records_stacks = session.records_stacks_of(features);
        let is_found = !unlocked.is_registered();
        let slot = match is_found {
            true if records_stacks => slot_for_found(&registration),
            true => None,
            false => registered_slot(&registration),
        };
        if slot.is_none() && records_stacks {
            SessionCounts::add(&session.counts.threads_without_stacks, 1);
        }
        let begun_at = registration.unlocked_const_reader().info().registered_at;
        let began_earlier = is_found && begun_at <= session.started_at;
        let tid = unlocked.tid();
        let seen_cpu_ns = thread_cpu_ns(tid).unwrap_or(0);
        // What a thread has used since it registered during the session belongs to its first sample.
        let at_begin = unlocked.cpu_at_begin_ns();
        let at_begin = at_begin.filter(|_| !is_found && begun_at > session.started_at);
        let cpu_ns = at_begin.unwrap_or(seen_cpu_ns.saturating_sub(unseen_ns));
        Self {
            probe: ThreadProbe::new(tid),
            is_same: (unlocked.had_tid_at() >= session.started_at).then_some(true),
            samples: SampleRecorder::new(registration.serial(), features, cpu_ns, session),
            found: is_found.then(FoundStack::new),
            may_run_handler: !is_found,
            is_strict: false,
            asked_strict_at_tick: 0,
            ask_strict_at_ns: 0,
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
            own: OwnSamples::new(cpu_ns ^ u64::from(tid.to_number().unsigned_abs()) << 32),
            seen_cpu_ns,
            seen_at: monotonic_now(),
            known_cpu_ns: seen_cpu_ns,
            began_cpu_ns: cpu_ns.min(seen_cpu_ns),
            switches: (session.settings.features)
                .contains(Features::CONTEXT_SWITCHES)
                .then(SwitchRecorder::default),
        }
    }

    fn tid(&self) -> ThreadId {
        self.registration.tid()
    }

    fn announced_sleep(&self) -> Option<u32> {
        let thread = self.registration.unlocked_const_reader_and_atomic_rw();
        thread.announced_sleep()
    }

    /// Runs one tick of this thread. Ticks of an idle thread may be skipped.
    ///
    /// # Errors
    /// The thread has exited.
    pub(crate) fn tick(&mut self, context: &mut TickContext<'_>) -> Result<(), Exited> {
        let (registration, probe) = (&self.registration, &self.probe);
        if !*(self.is_same).get_or_insert_with(|| registration.is_thread_of(probe)) {
            return Err(Exited);
        }
        if !context.is_handler_in_place {
            self.own.end_event();
        }
        self.collect_own_samples(context)?;
        self.follow_registration(context.session);
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
                let idle_cpu_ns = idle.cpu_ns;
                let thread = self.registration.unlocked_const_reader_and_atomic_rw();
                if idle.is_announced(thread.announced_sleep(), context.tick) {
                    return Ok(());
                }
                let clock = self.read_clock(context);
                if clock != Ok(Some(idle_cpu_ns)) {
                    let (samples, switches) = (&mut self.samples, self.switches.as_mut());
                    self.state.end_idle(None, samples, switches, context);
                    self.sample(clock?, context);
                }
            }
            ThreadState::Signaled(request) => {
                let phase = self.slot.as_ref().map(|slot| slot.state.phase());
                let is_unanswered =
                    matches!(phase, Some(SlotPhase::Requested | SlotPhase::Writing));
                if is_unanswered && !request.add_tick(context.last_before) {
                    return Ok(());
                }
                let cpu_ns = self.read_clock(context)?;
                self.collect_or_wait(cpu_ns, context);
            }
        }
        Ok(())
    }

    /// Uses the slot of a thread that has registered since it was found: that slot knows the bounds
    /// of the thread's stack, and its labels.
    fn follow_registration(&mut self, session: &Session) {
        let thread = self.registration.unlocked_const_reader_and_atomic_rw();
        if self.found.is_none() || !thread.is_registered() {
            return;
        }
        self.found = None;
        // Its slots have no labels.
        self.own.release();
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
        let ran = self.follow_running(cpu_ns, context.interval_ns());
        let Some(slot) = self.slot.clone() else {
            self.sample_without_stack(cpu_ns, context);
            return;
        };
        if slot.state.phase() == SlotPhase::Ready {
            // A capture for an earlier session: its handler was still writing when this session
            // began.
            slot.state.retire();
        }
        let samples_itself = self.follow_own_clock(&slot, cpu_ns, ran, context);
        match self.look(ran.until_now, context) {
            ProbeResult::Blocked(at) => self.sample_blocked(&slot, at, cpu_ns, context),
            // A signal might wake it, and the kernel tells only later where it sleeps.
            ProbeResult::FallingAsleep => {
                SessionCounts::add(&context.session.counts.unanswered_ticks, 1);
            }
            ProbeResult::NotBlocked | ProbeResult::Hidden => {
                let runs = |tid| ran.mostly || thread_cpu_ns(tid) > cpu_ns;
                if !samples_itself || self.own.lacks_kernel() || !runs(self.tid()) {
                    self.request_by_signal(&slot, cpu_ns, None, context);
                }
            }
        }
    }

    /// Returns how the thread has run since its clock was last read here. A thread without a readable
    /// clock is taken to run.
    fn follow_running(&mut self, cpu_ns: Option<u64>, interval_ns: u64) -> Ran {
        let Some(cpu_ns) = cpu_ns else {
            return Ran {
                until_now: true,
                nearly_always: true,
                mostly: true,
            };
        };
        let now = monotonic_now();
        let ran_ns = cpu_ns.saturating_sub(std::mem::replace(&mut self.seen_cpu_ns, cpu_ns));
        let elapsed_ns = now.since_ns(std::mem::replace(&mut self.seen_at, now));
        let absent_ns = elapsed_ns.saturating_sub(ran_ns);
        Ran {
            until_now: absent_ns <= SHORT_ABSENCE_NS.max(elapsed_ns / 64),
            // Of two looks in quick succession, the time that they take is a large part.
            nearly_always: absent_ns <= elapsed_ns.max(interval_ns) / 8,
            mostly: ran_ns >= elapsed_ns / 2,
        }
    }

    fn sample_without_stack(&mut self, cpu_ns: Option<u64>, context: &mut TickContext<'_>) {
        let event_loop = self.event_loop();
        context.scratch.stack.set_empty(event_loop);
        let time = context.tick.time;
        self.samples.write_sample(time, cpu_ns, context);
        self.begin_idle_period(cpu_ns, None, context);
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
        self.own.end_event();
        self.write_waiting_samples(context);
        self.own.release();
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
            ThreadState::Idle(idle) if cpu_ns.is_none_or(|cpu_ns| cpu_ns == idle.cpu_ns) => {
                idle.skip_to(tick);
            }
            state => *state = ThreadState::Running,
        }
    }

    /// Records the thread's context switches since the last reading, so that a profile has them.
    pub(crate) fn record_last_switches(&mut self, context: &TickContext<'_>) {
        let switches = self.switches.as_ref();
        if switches.is_some_and(SwitchRecorder::has_begun) && !context.pauses.is_paused {
            self.record_switches(context);
        }
    }

    /// Records the thread's context switches if it has run. Returns whether its files were read.
    pub(crate) fn record_switches(&mut self, context: &TickContext<'_>) -> bool {
        let cpu_ns = match &self.state {
            ThreadState::Idle(idle) => Some(idle.cpu_ns),
            _ => thread_cpu_ns(self.tid()),
        };
        let Some(switches) = &mut self.switches else {
            return false;
        };
        switches.record(&self.registration, &mut self.probe, cpu_ns, context)
    }

    /// Returns the state of the thread's event loop now.
    fn event_loop(&self) -> EventLoopState {
        let registration = self.registration.unlocked_const_reader();
        let slot = self.slot.clone().or_else(|| registration.slot());
        let state = slot.map(|slot| slot.event_delay().state_in_handler());
        state.unwrap_or_default()
    }

    /// Writes the CPU time that the thread has used since its last sample, so that the sum is its clock's.
    /// `last` is the last tick.
    pub(crate) fn write_cpu_time(&mut self, last: Tick, context: &mut TickContext<'_>) {
        if self.has_no_clock {
            return;
        }
        let thread = self.registration.unlocked_const_reader_and_atomic_rw();
        let cpu_ns = match thread.cpu_at_end_ns() {
            // The id of a thread that has ended may belong to another one.
            None if thread.unregistered_at().is_none() => thread_cpu_ns(thread.tid()).unwrap_or(0),
            cpu_ns => cpu_ns.unwrap_or(0),
        };
        let cpu_ns = match context.pauses.is_paused {
            true => self.samples.cpu_ns_before_pause(),
            false => cpu_ns.max(self.known_cpu_ns),
        };
        if self.samples.unreported_ns(cpu_ns) >= MIN_LAST_CPU_NS {
            // A thread that was asleep has run since. The next sample captures its stack again.
            (self.state).end_idle(None, &mut self.samples, self.switches.as_mut(), context);
            let event_loop = self.event_loop();
            match self.slot.is_some() {
                true => (context.scratch.stack).set_no_stack(NoStack::RanBetween, event_loop),
                false => context.scratch.stack.set_empty(event_loop),
            }
            let ended_at = thread.unregistered_at().unwrap_or(last.time);
            self.samples.write_cpu_time(ended_at, cpu_ns, context);
        }
    }

    /// Stops sampling the thread for good: writes its pending idle samples up to `last`, the last
    /// tick of the thread or of the session, and cancels its request. A signal that arrives later
    /// finds no request.
    pub(crate) fn end(&mut self, last: Tick, context: &mut TickContext<'_>) {
        self.own.end_event();
        self.write_waiting_samples(context);
        self.write_idle_until(last, context);
        self.own.release();
        self.abandon_request();
        self.write_cpu_time(last, context);
        if self.samples.has_samples() {
            let thread = self.registration.unlocked_const_reader_and_atomic_rw();
            thread.note_entry(context.session.generation);
        }
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
        let may_rest = |switches: &SwitchRecorder| switches.may_rest(idle.cpu_ns);
        let has_not_run = idle.cpu_ns == self.began_cpu_ns && !self.has_no_clock;
        (idle.is_long(tick) || has_not_run) && self.switches.as_ref().is_none_or(may_rest)
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

    /// Writes the pending idle samples up to this tick if they are overdue.
    pub(crate) fn write_overdue_idle(&mut self, context: &TickContext<'_>) {
        let has_crash_file = context.session.crash_facts.is_some();
        let now = context.tick.time;
        if matches!(&self.state, ThreadState::Idle(idle) if idle.is_overdue(now, has_crash_file)) {
            self.write_idle_until(context.tick, context);
        }
    }

    /// Writes the pending idle samples up to the tick `last`.
    pub(crate) fn write_idle_until(&mut self, last: Tick, context: &TickContext<'_>) {
        if let ThreadState::Idle(idle) = &mut self.state {
            self.samples.write_idle(idle, last, None, context);
        }
    }
}

impl ThreadState {
    /// Ends the idle period of a thread that has run, if it is in one: its last sample is on the previous
    /// tick of the schedule. `woke` is a time at which it ran again, if one is known.
    fn end_idle(
        &mut self,
        woke: Option<TimeStamp>,
        samples: &mut SampleRecorder,
        switches: Option<&mut SwitchRecorder>,
        context: &TickContext<'_>,
    ) {
        if let Self::Idle(idle) = self {
            samples.write_idle(idle, context.last_before, woke, context);
            if let Some(switches) = switches {
                switches.rest(idle.cpu_ns, context.tick_before.time);
            }
            *self = Self::Running;
        }
    }
}

/// Returns the slot of a thread that has registered, without the requests of an earlier session.
fn registered_slot(registration: &OffThreadRef) -> Option<Arc<SlotHandle>> {
    let slot = registration.unlocked_const_reader().slot()?;
    slot.state.retire();
    slot.unlink_batch();
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
    slot.state.retire();
    slot.bind_to_found_thread(FIRST_FOUND_BYTES);
    Some(Arc::new(slot))
}
