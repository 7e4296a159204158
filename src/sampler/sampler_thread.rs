//! Step 1 of 12: the sampler wakes on an absolute schedule and handles the threads one by one.

use std::cell::{Cell, RefCell};
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
use crate::sampler::allocation_markers::write_allocation_events;
use crate::sampler::allocation_stacks::drop_freed;
use crate::sampler::encode::{SampleEncoder, SampleWriter, Tick};
use crate::sampler::session_counters::SessionCounters;
use crate::sampler::thread::ThreadSampler;
use crate::sampler::thread::{DueThreads, SwitchReadings, Threads, Woken, find_outlived};
use crate::sampler::tick::CpuBudget;
use crate::sampler::tick::EvenTicks;
use crate::sampler::tick::EventProbeRecorder;
use crate::sampler::tick::TickOverheads;
use crate::sampler::tick::write_pending_stacks;
use crate::sampler::tick::{ActivityHint, SeenThreads};
use crate::sampler::tick::{LeftOut, Schedule};
use crate::sampler::tick::{Scratch, TickContext};
use crate::sampler::unregistered_markers::UnregisteredMarkers;
use crate::sampler::unregistered_threads::UnregisteredThreads;
use crate::sampler::waiting_tasks::{MAX_PASSES, WaitScratch, write_waits};
use crate::state::{
    ActivePs, KeptKind, REGISTRATION_HOOKS, RunningSampler, SamplerEnd, SeenPauses, Session,
    SessionCounts, lasting_facts,
};
use crate::threads::{OffThreadRef, unregister};
use crate::types::{Features, ProcessId, SamplingState, StartError, TimeStamp, signal_name};
use crate::unwind::{Unwinder, drop_old_unregistered_code, keep_unregistered_code};
use crate::util::{PsLock, allocator_has, try_vec};
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
        let thread = SamplerThread::new(Arc::clone(&shared), buffer, unwinder);
        run_to_end(&shared, || thread.run());
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
struct SamplerThread {
    session: Arc<Session>,
    /// The process. The child of a fork has no sampler.
    process: ProcessId,
    buffer: &'static ChunkedBuffer,
    lane: LaneHandle<'static>,
    encoder: RefCell<SampleEncoder>,
    unwinder: Unwinder,
    threads: Threads,
    /// Sum of the last readings of the sampled threads' clocks, including ended threads, in ns.
    known_cpu_ns: u64,
    /// Registered threads whose end was found while the list of threads was updated.
    outlived: Vec<OffThreadRef>,
    seen_thread_changes: u64,
    unregistered: UnregisteredThreads,
    unregistered_markers: UnregisteredMarkers,
    tick: Tick,
    tick_before: Tick,
    /// Time of the ticks in which the system did not tell this thread's CPU time, in ns.
    ticks_ns: u64,
    /// Whether ticks are left out before the next one, to save CPU time. A profile that is taken in
    /// between would lack much of the CPU time that the threads used.
    leaves_out_ticks: bool,
    even_ticks: EvenTicks,
    pauses: SeenPauses,
    scratch: Scratch,
    last_handler: HandlerCheck,
    /// The signal to sample with from the next tick on.
    next_signal: Option<i32>,
    counters: SessionCounters,
    /// Memory for events of allocations; empty between two calls.
    allocation_events: Vec<AllocationEvent>,
    next_housekeeping: TimeStamp,
    next_look_at_memory: TimeStamp,
    has_logged_lack_of_memory: bool,
    activity: ActivityHint,
    event_probes: EventProbeRecorder,
    switch_readings: SwitchReadings,
    wait_scratch: WaitScratch,
}

impl SamplerThread {
    fn new(session: Arc<Session>, buffer: &'static ChunkedBuffer, unwinder: Unwinder) -> Self {
        let begin = Tick {
            number: 0,
            time: monotonic_now(),
        };
        let interval_ns = session.settings.interval.as_nanos() as u64;
        let counters = SessionCounters::new(&session);
        Self {
            session,
            process: current_process_id(),
            buffer,
            lane: buffer.take_lane_for_samples(),
            encoder: RefCell::default(),
            unwinder,
            threads: Threads::default(),
            known_cpu_ns: 0,
            outlived: Vec::new(),
            seen_thread_changes: 0,
            unregistered: UnregisteredThreads::default(),
            unregistered_markers: UnregisteredMarkers::default(),
            tick: begin,
            tick_before: begin,
            ticks_ns: 0,
            leaves_out_ticks: false,
            even_ticks: EvenTicks::new(begin, interval_ns),
            pauses: SeenPauses::default(),
            scratch: Scratch::default(),
            last_handler: HandlerCheck::InPlace,
            next_signal: None,
            counters,
            allocation_events: Vec::new(),
            next_housekeeping: TimeStamp(0),
            next_look_at_memory: TimeStamp(0),
            has_logged_lack_of_memory: false,
            activity: ActivityHint::default(),
            event_probes: EventProbeRecorder::default(),
            switch_readings: SwitchReadings::default(),
            wait_scratch: WaitScratch::default(),
        }
    }

    fn run(mut self) {
        // Where the system refuses, the thread holds no descriptor for longer than one call.
        if use_own_descriptors_and_standard_error() {
            read_through_pipe();
        }
        self.counters.find_machine(&self.session);
        let nice = prepare_sampler_thread(self.session.settings.max_cpu_ppm.is_some());
        self.session.set_sampler_nice(nice);
        let interval_ns = self.interval_ns();
        let begin = monotonic_now();
        let mut schedule = Schedule::new(begin, interval_ns);
        let may_ask = TaskClock::may_ask(self.session.settings.signal);
        let refused = &self.session.counts.refused_events;
        SessionCounts::add(refused, (!may_ask).into());
        // A crash file tells whether threads may have events.
        self.session.note_counts(begin);
        let (mut has_tried_events, mut trying) = (!may_ask, None);
        let mut budget = CpuBudget::new(self.session.settings.max_cpu_ppm);
        let mut left_out = LeftOut::default();
        while !self.session.is_stopping() {
            let time = monotonic_now();
            let tick = Tick {
                number: self.tick.number + 1 + left_out.skipped,
                time,
            };
            self.tick_before = std::mem::replace(&mut self.tick, tick);
            let counts = &self.session.counts;
            SessionCounts::add(&counts.ticks, 1);
            let late_ns = time.since_ns(schedule.next);
            SessionCounts::add(&counts.late_ticks, (late_ns > interval_ns / 2).into());
            SessionCounts::add(&counts.delayed_ticks, (late_ns > DELAYED_NS).into());
            SessionCounts::add(&counts.missed_ticks, left_out.missed);
            SessionCounts::add(&counts.skipped_ticks, left_out.skipped);
            let used_before_ns = counts.sampler_cpu_ns.load(Ordering::Relaxed);
            self.session.after_sampling.begin_loop(tick.number);
            let state = self.take_tick();
            if self.session.stage.is_detached() {
                return;
            }
            let used_ns =
                self.session.counts.sampler_cpu_ns.load(Ordering::Relaxed) - used_before_ns;
            self.session.after_sampling.end_loop(tick.number, state);
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
        if self.session.stage.is_detached() {
            return;
        }
        self.with_context(|threads, context| {
            for thread in threads.all() {
                // Unwinding may wait for the loader, and another session may begin during the wait.
                if context.session.stage.is_detached() {
                    return;
                }
                thread.end(context.tick, context);
            }
        });
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
        let (session, sampler) = (Arc::clone(&self.session), current_thread_id());
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

    fn interval_ns(&self) -> u64 {
        self.session.settings.interval.as_nanos() as u64
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
        if self.tick.time >= self.next_housekeeping {
            self.next_housekeeping = self.tick.time.plus_ns(HOUSEKEEPING_INTERVAL_NS);
            check_sandbox();
            follow_standard_error();
            self.discard_old();
            self.drop_expired();
            self.follow_waiting_tasks();
            self.session.note_counts(self.tick.time);
        }
        let mut overheads = TickOverheads::begin(self.tick);
        self.follow_modules();
        if self.session.stage.is_detached() {
            return self.sampling_state();
        }
        let unseen_ns = self.unregistered.follow(&self.session, self.tick.time);
        self.mark_unregistered_threads();
        self.refresh_threads(unseen_ns);
        overheads.step_done();
        let state = self.sampling_state();
        let is_sampling = state != SamplingState::SamplingPaused;
        self.session.follow_facts(lasting_facts);
        if is_sampling {
            self.counters
                .sample(&self.session, &self.lane, &self.pauses);
        }
        overheads.step_done();
        if is_sampling {
            self.sample_threads();
        }
        // Unwinding may have waited for the loader for so long that another session has begun.
        if self.session.is_stopping() {
            return state;
        }
        if let Some(map) = self.unwinder.changed_perf_map() {
            self.session.set_perf_map(map);
        }
        self.event_probes.record(&self.session, &self.lane, false);
        self.write_pending_stacks();
        overheads.step_done();
        self.buffer.maintain();
        overheads.step_done();
        // As in Gecko, the work during a pause is not sampling overhead.
        if is_sampling {
            overheads.record(self.tick_before, &self.session, &self.lane);
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
        if self.tick.time < self.next_look_at_memory {
            return;
        }
        self.next_look_at_memory = self.tick.time.plus_ns(HOUSEKEEPING_INTERVAL_NS);
        let capacity_bytes = self.buffer.follow_memory(look_at_memory_limits());
        let asked_bytes = self.session.asked_capacity_bytes;
        self.session.counts.withheld_capacity_bytes.fetch_max(
            asked_bytes.saturating_sub(capacity_bytes),
            Ordering::Relaxed,
        );
    }

    fn sampling_state(&self) -> SamplingState {
        if self.pauses.is_paused {
            SamplingState::SamplingPaused
        } else if self
            .session
            .settings
            .features
            .contains(Features::NO_STACK_SAMPLING)
        {
            SamplingState::NoStackSamplingCompleted
        } else {
            SamplingState::SamplingCompleted
        }
    }

    /// Checks whether sampling was paused or resumed since the last tick. Both may have happened.
    fn follow_pauses(&mut self) {
        let before = self.pauses;
        let Some(seen) = self.session.pauses.follow(&before) else {
            return;
        };
        let last = self.tick_before;
        if let (false, Some(paused_at)) = (before.is_paused, seen.until) {
            self.pauses = seen;
            self.pauses.since = before.since;
            self.with_context(|threads, context| {
                threads
                    .all()
                    .for_each(|thread| thread.pause(paused_at, last, context));
            });
        }
        self.pauses = seen;
        if !seen.is_paused && seen.until.is_some() {
            self.pauses.until = None;
            self.tick.time = self.tick.time.max(seen.since);
            let tick = self.tick;
            let session = &self.session;
            let threads = self.threads.all();
            threads.for_each(|thread| thread.resume(tick, session));
            self.threads.regroup(tick, Woken::Any);
            self.counters.skip_pause(tick.time);
        }
    }

    /// Notes a gap between ticks that makes them uneven.
    fn follow_missed_ticks(&mut self) {
        let tick = self.tick;
        if self.pauses.is_paused {
            self.even_ticks.restart(tick);
        } else if !self.even_ticks.add(tick) {
            self.with_context(|_, context| {
                let (before, after) = (context.last_before.time, context.tick);
                context.writer.add_gap(before, after);
            });
        }
    }

    /// Updates the list of modules if one was loaded or unloaded. Pending idle samples are written
    /// first, with the old list. Without memory for the new list, the next tick tries again.
    fn follow_modules(&mut self) {
        if self.unwinder.check_modules() {
            self.with_context(|threads, context| {
                threads
                    .all()
                    .for_each(|thread| thread.write_idle_before_tick(context));
            });
            if self.unwinder.refresh_modules() {
                self.session.set_modules(self.unwinder.modules());
            }
        }
    }

    /// Adds markers for the CPU use of unregistered threads, if the session records them.
    fn mark_unregistered_threads(&mut self) {
        let features = self.session.settings.features;
        if features.contains(Features::UNREGISTERED_THREADS) && !self.pauses.is_paused {
            let threads = self.unregistered.threads();
            self.unregistered_markers
                .add(threads, &self.session, &self.lane);
        }
    }

    /// Updates the list of sampled threads if the session's list has changed. Without memory for
    /// it, the next tick tries again. Unregistered threads were last searched for `unseen_ns` ago.
    fn refresh_threads(&mut self, unseen_ns: u64) {
        let session = Arc::clone(&self.session);
        let mut seen_changes = self.seen_thread_changes;
        let buffer = self.buffer;
        ActivePs::follow_threads(
            &session,
            &mut seen_changes,
            |sampled| self.set_threads(sampled, unseen_ns),
            || buffer.range(),
        );
        self.seen_thread_changes = seen_changes;
    }

    /// Begins to sample the threads that are new in the list, which is sorted by serial numbers,
    /// and ends the sampling of threads that are no longer in the list. Returns false if memory for
    /// all threads is lacking.
    fn set_threads(&mut self, sampled: &[OffThreadRef], unseen_ns: u64) -> bool {
        // For each thread of the list, whether it is known.
        let Some(mut known) = try_vec(sampled.len()) else {
            return false;
        };
        known.resize(sampled.len(), false);
        let Some(outlived) = find_outlived(sampled) else {
            return false;
        };
        let is_outlived = |serial| outlived.iter().any(|thread| thread.serial() == serial);
        self.with_context(|threads, context| {
            for list in [&mut threads.active, &mut threads.idle] {
                let mut is_gone = |thread: &mut ThreadSampler| {
                    let serial = thread.registration().serial();
                    match sampled.binary_search_by_key(&serial, OffThreadRef::serial) {
                        Ok(index) => {
                            known[index] = true;
                            is_outlived(serial)
                        }
                        Err(_) => true,
                    }
                };
                list.extract_if(.., &mut is_gone)
                    .for_each(|mut gone| gone.end(context.tick_before, context));
            }
        });
        let active = &mut self.threads.active;
        let new = known.iter().filter(|is_known| !**is_known).count();
        if active.try_reserve(new).is_err() {
            return false;
        }
        let listed = sampled.iter().zip(known);
        for (registration, _) in listed.filter(|(_, is_known)| !is_known) {
            if !is_outlived(registration.serial()) {
                let thread = registration.unlocked_const_reader_and_atomic_rw();
                let unseen_ns = if thread.is_registered() { 0 } else { unseen_ns };
                let registration = registration.clone();
                let thread = ThreadSampler::new(registration, &self.session, unseen_ns);
                self.known_cpu_ns = self.known_cpu_ns.wrapping_add(thread.known_cpu_ns());
                active.push(thread);
            }
        }
        self.outlived = outlived;
        self.unregistered.expect_change();
        true
    }

    /// Discards entries that are older than the session's duration.
    fn discard_old(&self) {
        let duration_ns = self
            .session
            .settings
            .duration
            .and_then(|duration| duration.as_nanos().try_into().ok());
        let too_old = duration_ns
            .and_then(|ns| self.tick.time.0.checked_sub(ns))
            .map(TimeStamp);
        self.buffer.discard_old(monotonic_now, too_old);
    }

    /// Drops what the session keeps outside the buffer and what is older than the buffer's contents
    /// or than the session's duration: ended threads, exit profiles, pages and code.
    #[doc(alias = "ClearExpiredExitProfiles")]
    fn drop_expired(&self) {
        let now = monotonic_now();
        drop_freed(now);
        let (in_memory, unread) = self.unwinder.perf_map_bytes();
        self.session.set_perf_map_bytes(in_memory, unread);
        drop_old_unregistered_code(now);
        let expired = ActivePs::with(&self.session, |active, lock| active.take_expired(now, lock));
        // Dropped without holding the lock.
        drop(expired);
    }

    fn sample_threads(&mut self) {
        let interval_ns = self.interval_ns();
        let has_gap = self.tick.number - self.tick_before.number > 1;
        let since_last_ns = self.tick.time.since_ns(self.tick_before.time);
        let round = self.session.counts.ticks.load(Ordering::Relaxed);
        // Each tick begins with a different thread, so that no thread is always first (JuliaLang
        // #33490).
        let count = self.threads.active.len();
        self.threads.active.rotate_left(usize::from(count > 1));
        let mut dead = std::mem::take(&mut self.outlived);
        let mut woken = Woken::NONE;
        let session = Arc::clone(&self.session);
        let mut activity = std::mem::take(&mut self.activity);
        let known_cpu_ns = Cell::new(self.known_cpu_ns);
        let features = session.settings.features;
        let mut readings = match features.contains(Features::CONTEXT_SWITCHES) {
            true => self.switch_readings.allowed_at(self.tick.time),
            false => 0,
        };
        self.with_context(|threads, context| {
            // Returns for how long the thread has run since its clock was last read.
            let mut step = |thread: &mut ThreadSampler| {
                let known_before_ns = thread.known_cpu_ns();
                // Without memory, a later tick finds the thread dead.
                if thread.tick(context).is_err() && dead.try_reserve(1).is_ok() {
                    dead.push(thread.registration().clone());
                }
                let ran_ns = thread.known_cpu_ns().wrapping_sub(known_before_ns);
                known_cpu_ns.set(known_cpu_ns.get().wrapping_add(ran_ns));
                ran_ns
            };
            for thread in &mut threads.active {
                // The thread that stops the session waits for this loop to end.
                if session.is_stopping() {
                    return;
                }
                step(thread);
            }
            let seen = SeenThreads {
                idle: threads.idle.len(),
                known_cpu_ns: known_cpu_ns.get(),
                has_gap,
                since_last_ns,
                round,
            };
            let mut checks = activity.checks(seen, interval_ns);
            while let Some(place) = checks.next_place() {
                if session.is_stopping() {
                    return;
                }
                let thread = &mut threads.idle[place];
                checks.explain(step(thread));
                if !thread.is_idle() {
                    woken.add(place);
                }
            }
            activity.end_tick(&checks);
            if readings > 0 {
                let active = &mut threads.active;
                let due_since =
                    |thread: &ThreadSampler| thread.switches_due_since(context.tick.time);
                let due = DueThreads::find(active.iter().map(due_since));
                for place in due.places() {
                    if readings == 0 || session.is_stopping() {
                        break;
                    }
                    readings -= u64::from(active[place].record_switches(context));
                }
            }
            let turn = (round as usize).checked_rem(threads.idle.len());
            if let Some(thread) = turn.and_then(|turn| threads.idle.get_mut(turn)) {
                thread.write_overdue_idle(context);
            }
        });
        for registration in dead {
            self.unregistered.expect_change();
            let thread = registration.unlocked_const_reader_and_atomic_rw();
            if !thread.is_registered() {
                let now = monotonic_now();
                ActivePs::with(&session, |active, lock| {
                    active.end_unregistered(&registration, now, lock);
                });
                continue;
            }
            // Do not count a thread that unregistered during this tick before it exited.
            if registration
                .unlocked_const_reader_and_atomic_rw()
                .unregistered_at()
                .is_none()
            {
                SessionCounts::add(&self.session.counts.threads_found_dead, 1);
                unregister(&registration, REGISTRATION_HOOKS);
            }
        }
        self.activity = activity;
        self.known_cpu_ns = known_cpu_ns.get();
        self.threads.regroup(self.tick, woken);
    }

    /// Calls `body` with the threads and with the context for each thread's step.
    fn with_context<T>(&mut self, body: impl FnOnce(&mut Threads, &mut TickContext<'_>) -> T) -> T {
        let Self {
            session,
            process,
            lane,
            encoder,
            unwinder,
            threads,
            scratch,
            tick,
            tick_before,
            even_ticks,
            pauses,
            last_handler,
            next_signal,
            ..
        } = self;
        let writer = SampleWriter {
            lane,
            encoder,
            session: session.generation,
            process_start: session.process_start,
            dropped: &session.counts.dropped_samples,
        };
        let handler = ensure_handler(session.signal());
        // A foreign handler that stays in place counts as one replacement.
        let is_replaced = match handler {
            HandlerCheck::InPlace => false,
            HandlerCheck::Reinstalled | HandlerCheck::Lost => true,
            HandlerCheck::Foreign => *last_handler != handler,
        };
        SessionCounts::add(&session.counts.handler_replacements, is_replaced.into());
        if is_replaced {
            if handler == HandlerCheck::Foreign {
                *next_signal = take_free_signal(session.signal());
            }
            match *next_signal {
                Some(signal) => {
                    let name = signal_name(signal);
                    session.log.add(format!(
                        "signal handler replaced, sampling goes on with {name}"
                    ));
                }
                None => session.log.add("signal handler replaced"),
            }
            // The events of long-idle threads end here, too: these threads have no own tick.
            threads.all().for_each(ThreadSampler::end_event);
        }
        *last_handler = handler;
        let mut context = TickContext {
            session,
            process: *process,
            unwinder,
            writer,
            scratch,
            tick: *tick,
            tick_before: *tick_before,
            last_before: even_ticks.last_before(*tick, *tick_before),
            even_since: even_ticks.since(),
            pauses: *pauses,
            // Never drive a foreign handler at the sampling rate.
            is_handler_in_place: matches!(
                handler,
                HandlerCheck::InPlace | HandlerCheck::Reinstalled
            ),
        };
        body(threads, &mut context)
    }

    fn write_allocation_events(&mut self) {
        let may_find_main_thread = self.unregistered.is_first_search_open();
        let events = &mut self.allocation_events;
        write_allocation_events(&self.session, &self.lane, events, may_find_main_thread);
    }

    fn records_waits(&self) -> bool {
        let features = self.session.settings.features;
        features.contains(Features::WAITING_TASKS) && !self.session.is_stopping()
    }

    /// Adds rows for lasting waits, and counts lost waits.
    fn follow_waiting_tasks(&mut self) {
        if self.records_waits() {
            account_waits(self.tick.time);
            self.wait_scratch.count_losses(&self.session.counts);
        }
    }

    fn write_waits(&mut self) {
        if self.records_waits() && has_wait_rows() {
            let mut scratch = std::mem::take(&mut self.wait_scratch);
            self.with_context(|_, context| write_waits(context, &mut scratch));
            self.wait_scratch = scratch;
        }
    }

    fn write_pending_stacks(&mut self) {
        self.write_waits();
        if !self.session.is_stopping() {
            self.write_allocation_events();
        }
        // After the session has stopped, pending stacks may belong to another one.
        if has_pending_stacks() && !self.session.is_stopping() {
            self.with_context(|_, context| write_pending_stacks(context));
        }
    }

    fn write_if_requested(&mut self) {
        let requested = self.session.pending_flush();
        if let Some(requested) = requested.filter(|_| !self.session.is_stopping()) {
            self.unregistered.read_all_names(&self.session);
            // Before the stacks, so that each event that the profile has has its stack there.
            self.write_allocation_events();
            let leaves_out_ticks = self.leaves_out_ticks;
            if leaves_out_ticks {
                // Those that began since the last tick.
                self.refresh_threads(0);
            }
            self.with_context(|threads, context| {
                threads.all().for_each(|thread| {
                    thread.write_waiting_samples(context);
                    thread.write_idle_samples(context);
                    if leaves_out_ticks && !context.pauses.is_paused {
                        thread.write_cpu_time(context.tick, context);
                    }
                    thread.record_last_switches(context);
                });
                write_pending_stacks(context);
            });
            self.counters
                .write_current(&self.session, &self.lane, &self.pauses);
            self.event_probes.record(&self.session, &self.lane, true);
            if self.records_waits() {
                let now = monotonic_now();
                let mut passes = 0..MAX_PASSES;
                while passes.next().is_some() {
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
