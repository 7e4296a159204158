//! Begins and ends sessions.

use std::cell::Cell;
use std::sync::Arc;

use crate::allocations::{begin_allocations, end_allocations};
use crate::backtrace::{preallocate_words, reset_lost_stacks};
use crate::buffer::capacity_within;
use crate::counters::{
    for_each_application_counter, forget_dropped_counters, keep_dropped_counters,
};
use crate::labels::set_closed_stack_hook;
use crate::platform::{
    current_process_id, install_handler, is_main_thread, keep_out_of_fault_handlers,
    look_at_memory_limits, monotonic_now, names_of_other_threads, note_standard_streams,
    prepare_handler, prepare_heavy_barrier, prepare_heavy_barrier_without_waiting,
    resolve_sampling_signal,
};
use crate::sampler::{
    capture_in_handler, forget_allocation_stacks, less_own_chunks, spawn_sampler,
};
use crate::session::ends::fork::ensure_fork_handlers;
use crate::session::env::{env_notices, environment, lacking_features_of_program};
use crate::session::family::{SessionEvent, family, notice};
use crate::session::life_cycle::event_loops::ensure_event_watcher;
use crate::session::life_cycle::registration::register_if_recorded;
use crate::session::running::{
    LIFE_CYCLE, notify, reentrancy_error, running_generation, running_session, wake_waiting_guards,
};
use crate::session::saving::crash_file;
use crate::state::{
    ActivePs, CORE_PS, CorePs, Fact, REGISTRATION_HOOKS, RacyFeatures, Session, SessionSettings,
    UnservedCallbacks, all_marker_types, begin_marker_limit, core_buffer,
};
use crate::threads::{ThreadRegistry, register_current_thread};
use crate::types::{
    Features, Generation, ProfilingState, StartError, StartParams, ThreadFilter, ThreadId,
    UnavailableFeature,
};
use crate::unwind::{Unwinder, forget_unregistered_code};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};
use crate::waiting_tasks::{begin_waits, end_waits};

thread_local! {
    /// Whether [`ensure_core`] has registered the calling thread. Only set on the main thread. The
    /// registration lasts until the main thread itself calls `profiler_shutdown`, even if other
    /// threads shut the profiler down before.
    static IS_REGISTERED_BY_INIT: Cell<bool> = const { Cell::new(false) };
}

/// Creates `CorePs` if necessary. If the caller is the main thread, registers it once.
pub(crate) fn ensure_core() {
    let is_missing = CORE_PS.get(&PsLock::acquire()).is_none();
    if is_missing {
        note_standard_streams();
        // Created before the lock is taken, because the creation makes system calls.
        let fresh = CorePs::new();
        prepare_heavy_barrier_without_waiting();
        // First: threads register themselves in a session, and do not ask for the handlers.
        ensure_fork_handlers();
        CORE_PS.get_mut(&mut PsLock::acquire()).get_or_insert(fresh);
        set_closed_stack_hook(register_if_recorded);
    }
    if is_main_thread() && !IS_REGISTERED_BY_INIT.replace(true) {
        register_current_thread("", REGISTRATION_HOOKS);
    }
}

/// Returns whether [`ensure_core`] has registered the calling thread, and forgets it.
pub(crate) fn take_registered_by_init() -> bool {
    IS_REGISTERED_BY_INIT.replace(false)
}

/// The running session after a start.
pub(crate) enum StartOutcome {
    /// The start began this session.
    Started(Generation),
    /// The session was running before, and the start kept it.
    Kept(Generation),
}

impl StartOutcome {
    pub(crate) fn generation(self) -> Generation {
        match self {
            Self::Started(generation) | Self::Kept(generation) => generation,
        }
    }
}

/// Starts a session, unless one is running; then returns `None`. Ignores the parameters' control
/// signals.
pub(crate) fn start_if_inactive(params: &StartParams) -> Result<Option<Generation>, StartError> {
    match SessionPlan::new(params)?.start_unless(|_| true)? {
        StartOutcome::Started(generation) => Ok(Some(generation)),
        StartOutcome::Kept(_) => Ok(None),
    }
}

/// Returns the settings of a session with these parameters, or an error if a parameter is invalid.
fn session_settings(params: &StartParams) -> Result<SessionSettings, StartError> {
    params.validate()?;
    let has_parent = family().is_some_and(|family| family.parents_invitation().is_some());
    // The parent reads the memory of a child, so the variable that it has inherited needs no file.
    let of_variable = || environment::crash_file().filter(|_| !has_parent);
    let signal = resolve_sampling_signal(params.signal)?;
    Ok(SessionSettings {
        capacity_bytes: params.capacity_bytes,
        interval: params.interval,
        max_cpu_ppm: (params.max_cpu_percent).map(|percent| (percent * 1e4).round() as u64),
        max_markers_per_second: params.max_markers_per_second,
        features: params.features.adjusted(),
        filters: params.filters.clone(),
        signal,
        duration: params.duration,
        allocation_interval_bytes: params.allocation_interval_bytes,
        active_tab_id: params.active_tab_id,
        records_overheads: params.record_overheads || environment::records_overheads(),
        has_children: params.children || environment::wants_children(),
        has_parent,
        crash_file: params.crash_file.clone().or_else(of_variable),
    })
}

/// Checks whether a session can begin with these parameters.
///
/// # Errors
/// Those of `profiler_start`, except for what only a start finds out.
pub(crate) fn check_session(params: &StartParams) -> Result<(), StartError> {
    SessionPlan::new(params).map(drop)
}

/// A session with valid settings that has not begun.
pub(crate) struct SessionPlan {
    settings: SessionSettings,
    unavailable_features: Vec<UnavailableFeature>,
    filter: ThreadFilter,
    /// Whether the parent process asked for it.
    is_of_parent: bool,
}

impl SessionPlan {
    /// Plans a session with these parameters. Validates all of them except the control signals.
    pub(crate) fn new(params: &StartParams) -> Result<Self, StartError> {
        if is_any_lock_held_on_current_thread() {
            return Err(reentrancy_error());
        }
        let settings = session_settings(params)?;
        let filter = ThreadFilter::new(&params.filters);
        if filter.excludes_process(current_process_id()) {
            return Err(StartError::BadValue {
                field: "filters",
                value: format!("{:?}, which select only other processes", params.filters),
                accepted: format!(
                    "at least one filter that is pid:{} or part of a thread name",
                    current_process_id().to_number()
                ),
            });
        }
        Ok(Self {
            settings,
            unavailable_features: UnavailableFeature::not_in_this_build(
                params.features.chosen_unavailable(),
            ),
            filter,
            is_of_parent: false,
        })
    }

    /// Keeps a running session even if its capacity or signal differ: variables start a
    /// child with a rounded capacity, and the others are a matter of the process.
    pub(crate) fn of_parent(mut self) -> Self {
        self.is_of_parent = true;
        self
    }

    /// Leaves out the features that this machine has no data for.
    fn leave_out_lacking_features(&mut self) {
        for lack in lacking_features_of_program(self.settings.features) {
            self.settings.features = self.settings.features.without(lack.feature);
            self.unavailable_features.push(lack);
        }
    }

    /// Starts the session, unless `keeps` decides to keep the running one. The argument of `keeps`
    /// is whether the running session has the same settings.
    pub(crate) fn start_unless(
        mut self,
        keeps: fn(bool) -> bool,
    ) -> Result<StartOutcome, StartError> {
        // Without a lock: installing fork handlers waits for a fork in progress, which may wait for
        // the life-cycle lock.
        ensure_core();
        if let Some(kept) = self.kept_session(keeps) {
            return Ok(kept);
        }
        // Without a lock: another thread may ask the machine.
        self.leave_out_lacking_features();
        // Without a lock: it reads files.
        let share_bytes = capacity_within(look_at_memory_limits());
        // Without a lock: both wait for the loader, whose lock another thread of the application
        // may hold while it starts the profiler.
        prepare_handler();
        // Without a lock: it may wait. The sampler would wait instead, with the buffer's lock.
        prepare_heavy_barrier();
        let unwinder = Unwinder::new();
        // Without a lock: it calls code of the application.
        let is_needed = self.settings.crash_file.is_some() || self.settings.has_parent;
        let types = match is_needed {
            true => all_marker_types(),
            false => Vec::new(),
        };
        let mut ended_session = false;
        let running =
            self.start_under_lock(unwinder, share_bytes, &types, keeps, &mut ended_session);
        match running {
            Ok(StartOutcome::Started(_)) => notify(ProfilingState::Started),
            // A restart does not report `Stopping`, because only a failed restart leaves the
            // profiler stopped.
            Err(_) if ended_session => notify(ProfilingState::Stopping),
            _ => {}
        }
        running
    }

    /// Returns the running session if `keeps` decides to keep it.
    fn kept_session(&self, keeps: fn(bool) -> bool) -> Option<StartOutcome> {
        let (generation, session) = running_session()?;
        let mut settings = self.settings.clone();
        // What the machine lacked when that session began is not asked again.
        for lack in &session.unavailable_features {
            if !session.settings.features.contains(lack.feature) {
                settings.features = settings.features.without(lack.feature);
            }
        }
        let running = &session.settings;
        // A signal that equals the session's current one counts as unchanged.
        if settings.signal == session.signal() {
            settings.signal = running.signal;
        }
        if self.is_of_parent || settings.capacity_bytes == session.asked_capacity_bytes {
            settings.capacity_bytes = running.capacity_bytes;
        }
        if self.is_of_parent {
            settings.signal = running.signal;
        }
        keeps(*running == settings).then_some(StartOutcome::Kept(generation))
    }

    fn start_under_lock(
        self,
        unwinder: Unwinder,
        share_bytes: u64,
        types: &[Fact],
        keeps: fn(bool) -> bool,
        ended_session: &mut bool,
    ) -> Result<StartOutcome, StartError> {
        // Declared before the guard, so that it is dropped after the lock is released, on every
        // path.
        let _cleanup;
        let _guard = LIFE_CYCLE.lock();
        // Called again, because a concurrent shutdown may have removed `CorePs`.
        ensure_core();
        // Another thread may have started one since then.
        if let Some(kept) = self.kept_session(keeps) {
            return Ok(kept);
        }
        let Self {
            mut settings,
            unavailable_features,
            filter,
            ..
        } = self;
        // Before the old session ends, so that a failure changes nothing.
        install_handler(settings.signal, capture_in_handler)?;
        keep_out_of_fault_handlers(settings.signal);
        *ended_session = running_session().is_some();
        _cleanup = end_session();

        let asked_capacity_bytes = settings.capacity_bytes;
        settings.capacity_bytes = asked_capacity_bytes.min(share_bytes);
        let (features, capacity_bytes, interval) = (
            settings.features,
            settings.capacity_bytes,
            settings.interval,
        );
        let interval_bytes = settings.allocation_interval_bytes;
        let counters = {
            let lock = PsLock::acquire();
            let known = CORE_PS.get(&lock).iter().flat_map(|core| &core.counters);
            known
                .copied()
                .filter(|counter| features.contains(counter.feature))
                .collect()
        };
        let process_start = CorePs::process_start().monotonic;
        let mut session = Session::new(settings, process_start, monotonic_now(), counters);
        session.unavailable_features = unavailable_features;
        session.asked_capacity_bytes = asked_capacity_bytes;
        keep_dropped_counters();
        for_each_application_counter(|counter| {
            let counter = (Arc::clone(counter), counter.read());
            session.counters_at_start.push(counter);
        });
        let generation = session.generation;
        if session.settings.has_children
            && let Some(family) = family()
            && let Some(problem) = family.prepare()
        {
            session.log.add(problem);
        }
        crash_file::begin(&mut session, types);
        let area = session
            .crash_facts
            .as_ref()
            .map(|facts| Arc::clone(&facts.area));
        let max_chunk_bytes = max_chunk_bytes_of_child(capacity_bytes).unwrap_or(usize::MAX);
        begin_marker_limit(session.settings.max_markers_per_second);
        core_buffer().begin_session_with(generation, capacity_bytes, max_chunk_bytes, area);
        forget_allocation_stacks();
        // Allocates, which is not to be the application's growth.
        if features.contains(Features::WAITING_TASKS) {
            begin_waits();
        }
        session.allocated_at_start = less_own_chunks(begin_allocations(features, interval_bytes));
        reset_lost_stacks();
        preallocate_words();
        let (session, sampler) = match spawn_sampler(session, core_buffer(), unwinder) {
            Ok(spawned) => spawned,
            Err(error) => {
                end_allocations();
                if features.contains(Features::WAITING_TASKS) {
                    end_waits();
                }
                crash_file::end();
                core_buffer().end_session();
                forget_dropped_counters();
                return Err(error);
            }
        };
        let mut lock = PsLock::acquire();
        let settings = session.settings.clone();
        ActivePs::new(session, filter, sampler).begin(&mut lock);
        RacyFeatures::set_active(features, &lock);
        notice(SessionEvent::Started(settings), &lock);
        drop(lock);
        ensure_event_watcher(interval);
        Ok(StartOutcome::Started(generation))
    }
}

/// Returns the maximum size of a chunk in a child process, whose parent limits the memory of all
/// its children. It can only destroy chunks that are not being written, so the others are to be
/// small.
fn max_chunk_bytes_of_child(capacity_bytes: u64) -> Option<usize> {
    /// Number of chunks that fit into the capacity. A process writes several at the same time.
    const CHUNKS: u64 = 1024;
    const MIN_BYTES: u64 = 16 << 10;
    family()?.parents_invitation()?;
    usize::try_from((capacity_bytes / CHUNKS).max(MIN_BYTES)).ok()
}

/// See `profiler_stop`.
pub(crate) fn stop() {
    stop_session(None);
}

/// Stops the session with this generation, if it is running.
pub(crate) fn stop_generation(generation: Generation) {
    stop_session(Some(generation));
}

/// Stops the running session. With `only`, stops only that session.
fn stop_session(only: Option<Generation>) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    notify_stopping(only);
    // Declared before the guard, so that it is dropped after the lock is released.
    let _cleanup;
    let _guard = LIFE_CYCLE.lock();
    if only.is_none() || running_generation() == only {
        _cleanup = end_session();
    }
}

/// Notifies the state callbacks that the running session is about to stop. With `only`, does so
/// only for that session.
pub(crate) fn notify_stopping(only: Option<Generation>) {
    if running_generation().is_some_and(|running| only.is_none_or(|only| only == running)) {
        notify(ProfilingState::Stopping);
    }
}

/// Work that is left after a session has ended. Dropping this value does the work, so the caller
/// must not hold a lock then.
#[derive(Default)]
pub(crate) struct DeferredCleanup {
    /// Callbacks that still wait for a sampling loop of the session. Dropping them runs them.
    _callbacks: UnservedCallbacks,
    unmatched_filters: Vec<String>,
    /// The registered threads, for the notice about these filters.
    registered_threads: Vec<(ThreadId, String)>,
    /// Number of the session's chunks that the system had no memory for.
    refused_chunks: u64,
}

impl Drop for DeferredCleanup {
    fn drop(&mut self) {
        // Without the variable, the application started the session, and only the profile reports
        // them.
        if !self.unmatched_filters.is_empty() && environment::is_startup_on() {
            let registered = std::mem::take(&mut self.registered_threads);
            env_notices::notify_unmatched_filters(
                &self.unmatched_filters,
                &names_of_threads(registered),
            );
        }
        if self.refused_chunks > 0 && environment::is_startup_on() {
            env_notices::notify_out_of_memory(self.refused_chunks);
        }
    }
}

/// Returns the names of these threads and of the others that a filter could have selected.
fn names_of_threads(mut threads: Vec<(ThreadId, String)>) -> Vec<String> {
    let known = threads.iter().map(|(id, _)| *id).collect();
    threads.extend(names_of_other_threads(known));
    let mut names: Vec<String> = threads.into_iter().map(|(_, name)| name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Ends the running session, if any. The caller holds the life-cycle lock, and drops the result
/// without any lock.
pub(crate) fn end_session() -> DeferredCleanup {
    let ended = {
        let mut lock = PsLock::acquire();
        RacyFeatures::set_inactive(&lock);
        let ended = ActivePs::end(&mut lock);
        if ended.is_some() {
            notice(SessionEvent::Stopped, &lock);
        }
        ended
    };
    let Some(active) = ended else {
        return DeferredCleanup::default();
    };
    end_allocations();
    if active
        .session
        .settings
        .features
        .contains(Features::WAITING_TASKS)
    {
        end_waits();
    }
    active.session.request_stop();
    active.sampler.join();
    wake_waiting_guards();
    forget_allocation_stacks();
    // Before the chunks are freed: a file without them would be an empty profile.
    crash_file::end();
    let refused_chunks = core_buffer().refused_chunks();
    core_buffer().end_session();
    // Profiles that were taken keep their own names and counters.
    forget_dropped_counters();
    forget_unregistered_code();
    let unmatched_filters = active.threads.borrow().unmatched_filters();
    let mut registered_threads = Vec::new();
    if !unmatched_filters.is_empty() {
        ThreadRegistry::for_each(&PsLock::acquire(), |thread| {
            let thread = thread.unlocked_const_reader_and_atomic_rw();
            registered_threads.push((thread.tid(), thread.name()));
        });
    }
    DeferredCleanup {
        unmatched_filters,
        registered_threads,
        refused_chunks,
        _callbacks: active.session.after_sampling.close(),
    }
}
