//! Step 1 of 12: the sampler wakes on an absolute schedule and handles the threads one by one.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::allocations::AllocationEvent;
use crate::backtrace::has_pending_stacks;
use crate::buffer::{ChunkedBuffer, LaneHandle};
use crate::platform::{
    HandlerCheck, OwnTable, ProfilerThread, RefusedClock, TaskClock, WatchedThread,
    calibrate_clock, check_sandbox, current_process_id, current_thread_cpu_ns_in_handler,
    current_thread_id, ensure_handler, follow_standard_error, look_at_memory_limits, monotonic_now,
    prepare_sampler_thread, prepare_to_wait_as_loader_call, read_through_pipe, sleep_until,
    spawn_profiler_thread, take_free_signal, use_own_descriptors_and_standard_error,
    watch_loader_calls, with_signals_blocked,
};
use crate::sampler::allocation_stacks::drop_freed;
use crate::sampler::encode::{SampleEncoder, SampleWriter, Tick};
use crate::sampler::main_thread_markers::{UnregisteredMarkers, write_allocation_events};
use crate::sampler::pending_entries::{
    EventProbeRecorder, MAX_PASSES, WaitScratch, write_pending_stacks, write_waits,
};
use crate::sampler::schedule::{CpuBudget, EvenTicks, LeftOut, Schedule};
use crate::sampler::session_counters::SessionCounters;
use crate::sampler::thread_sampler::{ThreadSampler, Threads};
use crate::sampler::tick_context::{Scratch, TickContext, TickOverheads};
use crate::sampler::unregistered_threads::UnregisteredThreads;
use crate::state::{
    ActivePs, KeptKind, RunningSampler, SamplerEnd, SeenPauses, Session, SessionCounts,
    lasting_facts,
};
use crate::threads::OffThreadRef;
use crate::types::{Features, SamplingState, StartError, TimeStamp, signal_name};
use crate::unwind::{Unwinder, drop_old_unregistered_code, keep_unregistered_code};
use crate::util::{PsLock, allocator_has};
use crate::waiting_tasks::{account_all_waits, account_waits, has_wait_rows};

/// Interval between two sandbox checks, in ns: a program may sandbox itself at any time. Expired
/// data is discarded at the same interval.
const HOUSEKEEPING_INTERVAL_NS: u64 = 1_000_000_000;
/// Time after which a tick counts as delayed, in ns. Without a wait for a processor, and in a sandbox,
/// where the kernel may delay timers, a tick is at most some 100 µs late.
const DELAYED_NS: u64 = 150_000;
/// Memory for the work of a tick, in bytes: caches that grow, for example. The lists of modules and
/// threads, which may be long, are made only if there is memory for them. glibc consolidates its
/// memory whenever 64 KiB or more are freed.
const TICK_BYTES: usize = 32 << 10;
/// Maximum length of one sleep step, in ns. A long sleep is split into steps, so that the sampler
/// notices the end of the session soon.
const SLEEP_STEP_NS: u64 = 10_000_000;

/// Number of checks in a row, one every 100 ms, that find the sampler stuck in the loader before a
/// thread that stops the session gives up waiting for it. The loader's lock is normally held for
/// microseconds, and for some milliseconds by `dlopen` of a large library.
const STUCK_CHECKS: u32 = 10;
/// Number of checks after which that thread gives up for any reason. The application's allocator,
/// too, may wait for the loader on the sampler's thread.
const MAX_CHECKS: u32 = 300;

struct SamplerHandle {
    session: Arc<Session>,
    thread: ProfilerThread,
    loader_calls: Arc<WatchedThread<'static>>,
}

impl RunningSampler for SamplerHandle {
    fn join(self: Box<Self>) {
        debug_assert!(
            !PsLock::is_held_on_current_thread(),
            "the sampler needs the PsLock to end"
        );
        // Do not join a sampler that waits for the loader, whose lock this thread may hold: it may
        // be in a callback of `dl_iterate_phdr`. Such a sampler ends by itself.
        let (mut seen, mut stuck_checks, mut checks) = (None, 0, 0);
        let is_stuck = || {
            checks += 1;
            stuck_checks = if self.loader_calls.is_stuck(&mut seen) {
                stuck_checks + 1
            } else {
                0
            };
            stuck_checks >= STUCK_CHECKS || checks >= MAX_CHECKS
        };
        if self.session.stage.wait_for_end(is_stuck) == SamplerEnd::Ended {
            self.thread.join();
        }
    }
}

/// Starts the sampler thread, with all signals but those of faults blocked. The caller supplies the
/// unwinder, because creating one waits for the loader, and the caller holds a lock here. The
/// unwinder lists the modules before the thread starts, so that the first tick is not delayed and a
/// snapshot taken at once finds them.
///
/// # Errors
/// The system's refusal to create a thread.
pub(crate) fn spawn_sampler(
    mut session: Session,
    buffer: &'static ChunkedBuffer,
    mut unwinder: Unwinder,
) -> Result<(Arc<Session>, Box<dyn RunningSampler>), StartError> {
    let settings = &session.settings;
    keep_unregistered_code(settings.kept_limits(KeptKind::UnregisteredCode));
    unwinder.limit_perf_map(settings.kept_limits(KeptKind::PerfMap).max_bytes);
    session.set_first_modules(unwinder.modules());
    let session = Arc::new(session);
    let loader_calls = Arc::new(watch_loader_calls());
    let (shared, own_calls) = (Arc::clone(&session), Arc::clone(&loader_calls));
    let body = move || {
        own_calls.begin();
        prepare_to_wait_as_loader_call();
        if shared.stage.is_detached() {
            return;
        }
        run_to_end(&shared, || {
            let (lane, encoder) = (buffer.take_lane_for_samples(), RefCell::default());
            SamplerThread::new(&shared, buffer, &lane, &encoder, unwinder).run();
        });
    };
    let spawned = with_signals_blocked(|| spawn_profiler_thread(c"SamplerThread", body));
    match spawned {
        Ok(thread) => {
            let handle = SamplerHandle {
                session: Arc::clone(&session),
                thread,
                loader_calls,
            };
            Ok((session, Box::new(handle)))
        }
        Err(error) => Err(StartError::System {
            action: "make the sampler thread",
            answer: error.to_string(),
        }),
    }
}

/// Runs the sampler's loop. A panic that unwinds ends the sampler but not the application. The
/// profile reports the panic.
fn run_to_end(session: &Session, run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        SessionCounts::add(&session.counts.sampler_panics, 1);
        session.log.add("sampler panicked");
        session.after_sampling.fail();
    }
    session.stage.set_ended();
}

/// Time from the first tick to the first event. The end of a shorter session does not wait for it.
const BEFORE_EVENTS_NS: u64 = 20_000_000;

/// The sampler's loop and its state between ticks.
struct SamplerThread<'s> {
    session: &'s Arc<Session>,
    buffer: &'static ChunkedBuffer,
    context: TickContext<'s>,
    threads: Threads,
    seen_thread_changes: u64,
    unregistered: UnregisteredThreads,
    unregistered_markers: UnregisteredMarkers,
    /// Time of the ticks in which the system did not tell this thread's CPU time, in ns.
    ticks_ns: u64,
    /// Whether ticks are left out before the next one, to save CPU time. A profile that is taken in
    /// between would lack much of the CPU time that the threads used.
    leaves_out_ticks: bool,
    even_ticks: EvenTicks,
    last_handler: HandlerCheck,
    /// The signal to sample with from the next tick on.
    next_signal: Option<i32>,
    counters: SessionCounters,
    /// Memory for events of allocations; empty between two calls.
    allocation_events: Vec<AllocationEvent>,
    next_housekeeping: TimeStamp,
    next_look_at_memory: TimeStamp,
    has_logged_lack_of_memory: bool,
    event_probes: EventProbeRecorder,
    wait_scratch: WaitScratch,
}

impl<'s> SamplerThread<'s> {
    fn new(
        session: &'s Arc<Session>,
        buffer: &'static ChunkedBuffer,
        lane: &'s LaneHandle<'s>,
        encoder: &'s RefCell<SampleEncoder>,
        unwinder: Unwinder,
    ) -> Self {
        let begin = Tick {
            number: 0,
            time: monotonic_now(),
        };
        let counters = SessionCounters::new(session);
        let context = TickContext {
            session,
            process: current_process_id(),
            unwinder,
            writer: SampleWriter {
                lane,
                encoder,
                session: session.generation,
                process_start: session.process_start,
            },
            scratch: Scratch::default(),
            tick: begin,
            tick_before: begin,
            last_before: begin,
            even_since: 0,
            pauses: SeenPauses::default(),
            is_handler_in_place: true,
        };
        Self {
            session,
            buffer,
            even_ticks: EvenTicks::new(begin, context.interval_ns()),
            context,
            threads: Threads::default(),
            seen_thread_changes: 0,
            unregistered: UnregisteredThreads::default(),
            unregistered_markers: UnregisteredMarkers::default(),
            ticks_ns: 0,
            leaves_out_ticks: false,
            last_handler: HandlerCheck::InPlace,
            next_signal: None,
            counters,
            allocation_events: Vec::new(),
            next_housekeeping: TimeStamp(0),
            next_look_at_memory: TimeStamp(0),
            has_logged_lack_of_memory: false,
            event_probes: EventProbeRecorder::default(),
            wait_scratch: WaitScratch::default(),
        }
    }

    fn run(mut self) {
        // Where the system refuses, the thread holds no descriptor for longer than one call.
        if use_own_descriptors_and_standard_error() {
            read_through_pipe();
        }
        let session = self.session;
        let counts = &session.counts;
        self.counters.find_machine(session);
        let nice = prepare_sampler_thread(session.settings.max_cpu_ppm.is_some());
        session.set_sampler_nice(nice);
        let interval_ns = self.context.interval_ns();
        let begin = monotonic_now();
        let mut schedule = Schedule::new(begin, interval_ns);
        let may_ask = TaskClock::may_ask(session.settings.signal);
        SessionCounts::add(&counts.refused_events, (!may_ask).into());
        // A crash file tells whether threads may have events.
        session.note_counts(begin);
        let (mut has_tried_events, mut trying) = (!may_ask, None);
        let mut budget = CpuBudget::new(session.settings.max_cpu_ppm);
        let mut left_out = LeftOut::default();
        while !session.is_stopping() {
            let time = monotonic_now();
            let tick = Tick {
                number: self.context.tick.number + 1 + left_out.skipped,
                time,
            };
            self.context.tick_before = std::mem::replace(&mut self.context.tick, tick);
            self.follow_even_ticks();
            SessionCounts::add(&counts.ticks, 1);
            let late_ns = time.since_ns(schedule.next);
            SessionCounts::add(&counts.late_ticks, (late_ns > interval_ns / 2).into());
            SessionCounts::add(&counts.delayed_ticks, (late_ns > DELAYED_NS).into());
            SessionCounts::add(&counts.missed_ticks, left_out.missed);
            SessionCounts::add(&counts.skipped_ticks, left_out.skipped);
            let used_before_ns = counts.sampler_cpu_ns.load(Ordering::Relaxed);
            session.after_sampling.begin_loop(tick.number);
            let state = self.take_tick();
            if session.stage.is_detached() {
                return;
            }
            let used_ns = counts.sampler_cpu_ns.load(Ordering::Relaxed) - used_before_ns;
            session.after_sampling.end_loop(tick.number, state);
            let now = monotonic_now();
            if !has_tried_events && now.since_ns(begin) >= BEFORE_EVENTS_NS {
                has_tried_events = true;
                trying = self.try_events();
            }
            let own_ns = self.own_ns(now.since_ns(time), used_ns > 0);
            let allowed = budget.charge(time, own_ns);
            left_out = schedule.advance(now, used_ns, allowed);
            self.leaves_out_ticks = left_out.skipped > 0;
            self.sleep_to(schedule.next);
        }
        if session.stage.is_detached() {
            return;
        }
        self.check_handler();
        for thread in self.threads.all() {
            // Unwinding may wait for the loader, and another session may begin during the wait.
            if session.stage.is_detached() {
                break;
            }
            thread.end(self.context.tick, &mut self.context);
        }
        // So that many short sessions do not leave many such threads.
        if let Some(thread) = trying {
            thread.join();
        }
    }

    /// Finds out whether threads may have events of their CPU clocks: starts one on the sampler's thread,
    /// which lasts as long as its descriptor table. While there is one, others start quickly: for the
    /// first event of the machine, the kernel prepares itself, which takes some tens of milliseconds.
    /// So another thread waits for that, and only in a session that lasts. Returns that thread, if
    /// it was started.
    fn try_events(&self) -> Option<ProfilerThread> {
        let (session, sampler) = (Arc::clone(self.session), current_thread_id());
        let try_one = move || {
            const NEVER_NS: u64 = u64::MAX >> 1;
            let tried = TaskClock::start(sampler, NEVER_NS, session.settings.signal, |_| ());
            let is_refused = tried.as_ref().err() == Some(&RefusedClock::Process);
            SessionCounts::add(&session.counts.refused_events, is_refused.into());
            session.set_may_use_events(!is_refused);
            // For the crash file, as at the session's beginning.
            if !session.stage.is_detached() {
                session.note_counts(monotonic_now());
            }
            // The kernel closes it with the table.
            std::mem::forget(tried);
        };
        let table = OwnTable::current()?;
        let body = move || {
            table.share();
            try_one();
        };
        let spawned = spawn_profiler_thread(c"ProfilerEvents", body);
        // Without that thread, no thread has an event.
        SessionCounts::add(&self.session.counts.refused_events, spawned.is_err().into());
        spawned.ok()
    }

    /// Returns the CPU time that sampling has taken so far, in ns: that of this thread and of the
    /// handlers. A tick took `tick_ns`, which counts if the system does not tell this thread's time.
    fn own_ns(&mut self, tick_ns: u64, is_clock_readable: bool) -> u64 {
        let counts = &self.session.counts;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        if !is_clock_readable {
            self.ticks_ns += tick_ns;
        }
        count(&counts.sampler_cpu_ns) + count(&counts.stopped_ns) + self.ticks_ns
    }

    fn sleep_to(&mut self, deadline: TimeStamp) {
        while !self.session.is_stopping() {
            self.write_if_requested();
            self.write_pending_stacks();
            self.buffer.maintain();
            calibrate_clock();
            let now = monotonic_now();
            let step = now.plus_ns(SLEEP_STEP_NS);
            sleep_until(deadline.min(step));
            if deadline <= step {
                return;
            }
        }
    }

    fn take_tick(&mut self) -> SamplingState {
        // Not in the tick that found the signal. The foreign handler that runs then may be interrupted, and
        // threads have answers to the signal before.
        if let Some(signal) = self.next_signal.take() {
            self.session.set_signal(signal);
            self.threads.all().for_each(ThreadSampler::forget_mask);
        }
        self.follow_pauses();
        self.follow_missed_ticks();
        if !self.has_memory() {
            // New modules and threads are listed later. Maintenance allows the next attempt.
            let state = self.sampling_state();
            let is_counted = state != SamplingState::SamplingPaused;
            SessionCounts::add(&self.session.counts.ticks_without_memory, is_counted.into());
            self.buffer.maintain();
            self.write_if_requested();
            return state;
        }
        let now = self.context.tick.time;
        if now >= self.next_housekeeping {
            self.next_housekeeping = now.plus_ns(HOUSEKEEPING_INTERVAL_NS);
            check_sandbox();
            follow_standard_error();
            self.discard_old();
            self.drop_expired();
            self.follow_waiting_tasks();
            self.session.note_counts(now);
        }
        let mut overheads = TickOverheads::begin();
        self.follow_modules();
        if self.session.stage.is_detached() {
            return self.sampling_state();
        }
        let unseen_ns = self.unregistered.follow(self.session, now);
        self.mark_unregistered_threads();
        self.refresh_threads(unseen_ns);
        overheads.step_done();
        let state = self.sampling_state();
        let is_sampling = state != SamplingState::SamplingPaused;
        self.session.follow_facts(lasting_facts);
        if is_sampling {
            self.counters.sample(&self.context);
        }
        overheads.step_done();
        if is_sampling {
            self.check_handler();
            if self.threads.sample(&mut self.context) {
                self.unregistered.expect_change();
            }
        }
        // Unwinding may have waited for the loader for so long that another session has begun.
        if self.session.is_stopping() {
            return state;
        }
        if let Some(map) = self.context.unwinder.changed_perf_map() {
            self.session.set_perf_map(map);
        }
        self.event_probes.record(&self.context, false);
        self.write_pending_stacks();
        overheads.step_done();
        self.buffer.maintain();
        overheads.step_done();
        // As in Gecko, the work during a pause is not sampling overhead.
        if is_sampling {
            overheads.record(&self.context);
        }
        self.write_if_requested();
        // A seccomp filter that was installed during the session may forbid reading the clock.
        let own_cpu_ns = current_thread_cpu_ns_in_handler();
        if own_cpu_ns > 0 {
            let count = &self.session.counts.sampler_cpu_ns;
            count.store(own_cpu_ns, Ordering::Relaxed);
        }
        state
    }

    /// Returns whether the allocator has memory for a tick, and the buffer for its samples. Without
    /// it no thread is interrupted, because its sample would be lost.
    fn has_memory(&mut self) -> bool {
        if !allocator_has(TICK_BYTES) {
            return false;
        }
        self.follow_memory_limits();
        if !self.has_logged_lack_of_memory && self.buffer.refused_chunks() > 0 {
            self.has_logged_lack_of_memory = true;
            self.session.log.add("no memory for a chunk of the buffer");
        }
        !self.buffer.lacks_memory()
    }

    /// Looks from time to time how much memory is left, and limits the buffer to a share of it.
    fn follow_memory_limits(&mut self) {
        let now = self.context.tick.time;
        if now < self.next_look_at_memory {
            return;
        }
        self.next_look_at_memory = now.plus_ns(HOUSEKEEPING_INTERVAL_NS);
        let capacity_bytes = self.buffer.follow_memory(look_at_memory_limits());
        let asked_bytes = self.session.asked_capacity_bytes;
        let withheld_bytes = asked_bytes.saturating_sub(capacity_bytes);
        let count = &self.session.counts.withheld_capacity_bytes;
        count.fetch_max(withheld_bytes, Ordering::Relaxed);
    }

    fn sampling_state(&self) -> SamplingState {
        if self.context.pauses.is_paused {
            SamplingState::SamplingPaused
        } else if (self.session.settings.features).contains(Features::NO_STACK_SAMPLING) {
            SamplingState::NoStackSamplingCompleted
        } else {
            SamplingState::SamplingCompleted
        }
    }

    /// Checks whether sampling was paused or resumed since the last tick. Both may have happened.
    fn follow_pauses(&mut self) {
        let before = self.context.pauses;
        let Some(seen) = self.session.pauses.follow(&before) else {
            return;
        };
        let last = self.context.tick_before;
        if let (false, Some(paused_at)) = (before.is_paused, seen.until) {
            self.context.pauses = seen;
            self.context.pauses.since = before.since;
            self.check_handler();
            for thread in self.threads.all() {
                thread.pause(paused_at, last, &mut self.context);
            }
        }
        self.context.pauses = seen;
        if !seen.is_paused && seen.until.is_some() {
            self.context.pauses.until = None;
            let tick = &mut self.context.tick;
            tick.time = tick.time.max(seen.since);
            self.threads.resume(*tick, self.session);
            self.counters.skip_pause(tick.time);
            self.follow_even_ticks();
        }
    }

    /// Notes a gap between ticks that makes them uneven.
    fn follow_missed_ticks(&mut self) {
        let tick = self.context.tick;
        let is_paused = self.context.pauses.is_paused;
        if is_paused {
            self.even_ticks.restart(tick);
        }
        let is_even = is_paused || self.even_ticks.add(tick);
        self.follow_even_ticks();
        if !is_even {
            self.check_handler();
            let before = self.context.last_before.time;
            self.context.writer.add_gap(before, tick);
        }
    }

    /// Updates what the context says of the ticks before this one.
    fn follow_even_ticks(&mut self) {
        let (context, even_ticks) = (&mut self.context, &self.even_ticks);
        context.last_before = even_ticks.last_before(context.tick, context.tick_before);
        context.even_since = even_ticks.since();
    }

    /// Updates the list of modules if one was loaded or unloaded. Pending idle samples are written
    /// first, with the old list. Without memory for the new list, the next tick tries again.
    fn follow_modules(&mut self) {
        if self.context.unwinder.check_modules() {
            self.check_handler();
            for thread in self.threads.all() {
                thread.write_idle_until(self.context.last_before, &self.context);
            }
            if self.context.unwinder.refresh_modules() {
                self.session.set_modules(self.context.unwinder.modules());
            }
        }
    }

    /// Adds markers for the CPU use of unregistered threads, if the session records them.
    fn mark_unregistered_threads(&mut self) {
        let features = self.session.settings.features;
        if features.contains(Features::UNREGISTERED_THREADS) && !self.context.pauses.is_paused {
            let threads = self.unregistered.threads();
            self.unregistered_markers.add(threads, &self.context);
        }
    }

    /// Updates the list of sampled threads if the session's list has changed. Without memory for
    /// it, the next tick tries again. Unregistered threads were last searched for `unseen_ns` ago.
    fn refresh_threads(&mut self, unseen_ns: u64) {
        let (session, buffer) = (self.session, self.buffer);
        let mut seen_changes = self.seen_thread_changes;
        let set = |sampled: &[OffThreadRef]| {
            self.check_handler();
            let is_set = self
                .threads
                .set(sampled, unseen_ns, &mut self.context)
                .is_some();
            if is_set {
                self.unregistered.expect_change();
            }
            is_set
        };
        ActivePs::follow_threads(session, &mut seen_changes, set, || buffer.range());
        self.seen_thread_changes = seen_changes;
    }

    /// Discards entries that are older than the session's duration.
    fn discard_old(&self) {
        let duration = self.session.settings.duration;
        let duration_ns = duration.and_then(|duration| duration.as_nanos().try_into().ok());
        let too_old = duration_ns.and_then(|ns| self.context.tick.time.0.checked_sub(ns));
        self.buffer
            .discard_old(monotonic_now, too_old.map(TimeStamp));
    }

    /// Drops what the session keeps outside the buffer and what is older than the buffer's contents
    /// or than the session's duration: ended threads, exit profiles, pages and code.
    #[doc(alias = "ClearExpiredExitProfiles")]
    fn drop_expired(&self) {
        let now = monotonic_now();
        drop_freed(now);
        let (in_memory, unread) = self.context.unwinder.perf_map_bytes();
        self.session.set_perf_map_bytes(in_memory, unread);
        drop_old_unregistered_code(now);
        let expired = ActivePs::with(self.session, |active, lock| active.take_expired(now, lock));
        // Dropped without holding the lock.
        drop(expired);
    }

    /// Checks whether the profiler's handler is installed, and follows a replacement of it. Called
    /// before the threads are sampled or their samples are written.
    fn check_handler(&mut self) {
        let session = self.session;
        let handler = ensure_handler(session.signal());
        // A foreign handler that stays in place counts as one replacement.
        let is_replaced = match handler {
            HandlerCheck::InPlace => false,
            HandlerCheck::Reinstalled | HandlerCheck::Lost => true,
            HandlerCheck::Foreign => self.last_handler != handler,
        };
        if is_replaced {
            SessionCounts::add(&session.counts.handler_replacements, 1);
            if handler == HandlerCheck::Foreign {
                self.next_signal = take_free_signal(session.signal());
            }
            match self.next_signal {
                Some(signal) => {
                    let name = signal_name(signal);
                    session.log.add(format!(
                        "signal handler replaced, sampling goes on with {name}"
                    ));
                }
                None => session.log.add("signal handler replaced"),
            }
            // The events of long-idle threads end here, too: these threads have no own tick.
            self.threads.all().for_each(ThreadSampler::end_event);
        }
        self.last_handler = handler;
        // Never drive a foreign handler at the sampling rate.
        self.context.is_handler_in_place =
            matches!(handler, HandlerCheck::InPlace | HandlerCheck::Reinstalled);
    }

    fn write_allocation_events(&mut self) {
        let may_find_main_thread = self.unregistered.is_first_search_open();
        let events = &mut self.allocation_events;
        write_allocation_events(&self.context, events, may_find_main_thread);
    }

    fn records_waits(&self) -> bool {
        let features = self.session.settings.features;
        features.contains(Features::WAITING_TASKS) && !self.session.is_stopping()
    }

    /// Adds rows for lasting waits, and counts lost waits.
    fn follow_waiting_tasks(&mut self) {
        if self.records_waits() {
            account_waits(self.context.tick.time);
            self.wait_scratch.count_losses(&self.session.counts);
        }
    }

    fn write_waits(&mut self) {
        if self.records_waits() && has_wait_rows() {
            self.check_handler();
            write_waits(&mut self.context, &mut self.wait_scratch);
        }
    }

    fn write_pending_stacks(&mut self) {
        self.write_waits();
        // After the session has stopped, pending stacks may belong to another one.
        if self.session.is_stopping() {
            return;
        }
        self.write_allocation_events();
        if has_pending_stacks() && !self.session.is_stopping() {
            self.check_handler();
            write_pending_stacks(&mut self.context);
        }
    }

    fn write_if_requested(&mut self) {
        let requested = self.session.pending_flush();
        let Some(requested) = requested.filter(|_| !self.session.is_stopping()) else {
            return;
        };
        self.unregistered.read_all_names(self.session);
        // Before the stacks, so that each event that the profile has has its stack there.
        self.write_allocation_events();
        if self.leaves_out_ticks {
            // Those that began since the last tick.
            self.refresh_threads(0);
        }
        self.check_handler();
        let context = &mut self.context;
        for thread in self.threads.all() {
            thread.write_waiting_samples(context);
            thread.write_idle_until(context.tick, context);
            if self.leaves_out_ticks && !context.pauses.is_paused {
                thread.write_cpu_time(context.tick, context);
            }
            thread.record_last_switches(context);
        }
        write_pending_stacks(context);
        self.counters.write_current(&self.context);
        self.event_probes.record(&self.context, true);
        if self.records_waits() {
            let now = monotonic_now();
            for _ in 0..MAX_PASSES {
                let is_all = account_all_waits(now);
                self.write_waits();
                if is_all {
                    break;
                }
            }
            self.wait_scratch.count_losses(&self.session.counts);
        }
        self.session.set_written(requested);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::SessionSettings;

    #[test]
    fn panic_of_the_sampler_is_counted_and_logged() {
        let run_and_report = |run: fn()| {
            let now = TimeStamp::default();
            let session = Session::new(SessionSettings::for_tests(), now, now, Vec::new());
            run_to_end(&session, run);
            assert!(session.stage.wait_for_end(|| false) == SamplerEnd::Ended);
            let panics = session.counts.sampler_panics.load(Ordering::Relaxed);
            let events = session.log.all().events;
            (
                panics,
                events
                    .iter()
                    .map(|(_, event)| event.to_string())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            run_and_report(|| panic!("on purpose")),
            (1, vec!["sampler panicked".to_owned()])
        );
        assert_eq!(run_and_report(|| ()), (0, vec![]));
    }
}
