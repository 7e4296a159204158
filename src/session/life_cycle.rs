//! The profiler's life cycle, from `profiler_init` to `profiler_shutdown`.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backtrace::{preallocate_words, reset_lost_stacks};
use crate::platform::{
    current_process_id, install_fork_handlers, install_handler, is_main_thread, monotonic_now,
    resolve_sampling_signal,
};
use crate::sampler::{capture_in_handler, spawn_sampler};
use crate::session::callbacks::notify;
use crate::session::env::{StartUp, environment};
use crate::session::event_watcher::ensure_event_watcher;
use crate::session::fork::fork_hooks;
use crate::session::notices;
use crate::session::signals::{control_by_default_signals, control_by_signals, end_control};
use crate::session::snapshot::freeze;
use crate::state::{
    ACTIVE_PS, ActivePs, CORE_PS, CorePs, REGISTRATION_HOOKS, RacyFeatures, Session,
    SessionSettings, UnservedCallbacks, core_buffer,
};
use crate::threads::{register_current_thread, unregister_current_thread};
use crate::types::{Generation, ProfilingState, StartError, StartParams, ThreadFilter};
use crate::util::{LockRank, NamedMutex, PsLock, is_any_lock_held_on_current_thread};

/// Serialises start, stop and fork. Held while the sampler is joined.
pub(crate) static LIFE_CYCLE: NamedMutex<()> =
    NamedMutex::new("life cycle", LockRank::Lifecycle, ());

/// Set from `profiler_init` to `profiler_shutdown`.
static HAS_READ_ENVIRONMENT: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether initialisation has registered the calling thread, which is the main thread then. The
    /// registration lasts until the main thread calls `profiler_shutdown`, however often other
    /// threads shut the profiler down before.
    static IS_REGISTERED_BY_INIT: Cell<bool> = const { Cell::new(false) };
}

/// See `profiler_init`.
pub(crate) fn init() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    ensure_core();
    if HAS_READ_ENVIRONMENT.swap(true, Ordering::AcqRel) {
        return;
    }
    match environment::read() {
        StartUp::Off => {}
        // The parent process or a shell set the variables for another process.
        StartUp::Start(params)
            if ThreadFilter::new(&params.filters).excludes_process(current_process_id()) =>
        {
            environment::notify_other_processes_selected(&params.filters);
        }
        StartUp::Start(params) => match start_if_inactive(&params) {
            Ok(Some(_)) => environment::notify_if_not_saved_at_shutdown(),
            // The application has already started a session.
            Ok(None) => {}
            Err(error) => notices::notify(&error.to_string()),
        },
        StartUp::Problems(problems) => environment::notify_problems(&problems),
    }
    if environment::wants_signals()
        && let Err(error) = control_by_default_signals()
    {
        notices::notify(&error.to_string());
    }
}

/// Creates `CorePs` if necessary. If the caller is the main thread, registers it once.
pub(crate) fn ensure_core() {
    let is_missing = CORE_PS.get(&PsLock::acquire()).is_none();
    if is_missing {
        // Created without a lock, because that makes system calls.
        let fresh = CorePs::new();
        CORE_PS.get_mut(&mut PsLock::acquire()).get_or_insert(fresh);
        install_fork_handlers(fork_hooks());
    }
    if is_main_thread() && !IS_REGISTERED_BY_INIT.replace(true) {
        register_current_thread("", REGISTRATION_HOOKS);
    }
}

/// See `profiler_shutdown`.
pub(crate) fn shutdown() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    // Requests of signals that have already arrived are handled first.
    end_control();
    HAS_READ_ENVIRONMENT.store(false, Ordering::Release);
    notify_stopping(None);
    let is_initialized = CORE_PS.get(&PsLock::acquire()).is_some();
    if is_initialized {
        notify(ProfilingState::ShuttingDown);
    }
    if let Some(path) = environment::shutdown_path() {
        match freeze(None) {
            None => environment::notify_nothing_to_save(&path),
            Some(profile) => match profile.at_shutdown().save_once(&path) {
                Ok(saved) => notices::notify(&format!("saved the profile as {}", saved.display())),
                Err(error) => notices::notify(&error.to_string()),
            },
        }
    }
    // Declared before the guard, so that its callbacks run after the lock is released.
    let _left_over;
    let _guard = LIFE_CYCLE.lock();
    _left_over = end_session();
    // Under the same guard, so that no session runs without `CorePs`.
    let _core = CORE_PS.get_mut(&mut PsLock::acquire()).take();
    if IS_REGISTERED_BY_INIT.replace(false) {
        unregister_current_thread();
    }
}

/// See `profiler_start`.
pub(crate) fn start(params: &StartParams) -> Result<Generation, StartError> {
    start_unless(params, |_| false)
        .inspect(|_| notify(ProfilingState::Started))
        .map(Running::generation)
}

/// See `profiler_ensure_started`.
pub(crate) fn ensure_started(params: &StartParams) -> Result<Generation, StartError> {
    let running = start_unless(params, |same_settings| same_settings)?;
    if matches!(running, Running::Started(_)) {
        notify(ProfilingState::Started);
    }
    Ok(running.generation())
}

/// Starts a session, unless one is running; then returns `None`.
pub(crate) fn start_if_inactive(params: &StartParams) -> Result<Option<Generation>, StartError> {
    match start_unless(params, |_| true)? {
        Running::Started(generation) => {
            notify(ProfilingState::Started);
            Ok(Some(generation))
        }
        Running::Kept(_) => Ok(None),
    }
}

/// The running session after a start.
enum Running {
    /// The start began this session.
    Started(Generation),
    /// The session was running before, and the start kept it.
    Kept(Generation),
}

impl Running {
    fn generation(self) -> Generation {
        match self {
            Self::Started(generation) | Self::Kept(generation) => generation,
        }
    }
}

/// Returns the error for a call whose thread already holds one of the profiler's locks, and so
/// would deadlock.
///
/// Such a call comes from code that runs inside the profiler's own work, such as the application's
/// allocator, or from a fork handler that runs between the profiler's own ones.
pub(crate) fn reentrancy_error() -> StartError {
    StartError::System {
        action: "take the profiler's locks",
        answer: "this thread already holds one, because the call comes from within the profiler's \
                 own work or a fork; see profiler_is_locked_on_current_thread"
            .to_owned(),
    }
}

/// Returns the settings of a session with these parameters, or an error if a parameter is invalid.
fn session_settings(params: &StartParams) -> Result<SessionSettings, StartError> {
    params.validate()?;
    Ok(SessionSettings {
        capacity_bytes: params.capacity_bytes,
        interval: params.interval,
        features: params.features.adjusted(),
        filters: params.filters.clone(),
        signal: resolve_sampling_signal(params.signal)?,
        engine: params.engine,
        duration: params.duration,
        active_tab_id: params.active_tab_id,
        records_overheads: environment::records_overheads(),
    })
}

/// Starts a session, unless `keeps` decides to keep the running one. Its argument is whether the
/// running session has the same settings.
fn start_unless(params: &StartParams, keeps: impl Fn(bool) -> bool) -> Result<Running, StartError> {
    let mut ended_session = false;
    let running = start_under_lock(params, keeps, &mut ended_session);
    if running.is_err() && ended_session {
        // A restart does not report `Stopping`. Only its failure, known now, leaves the profiler
        // stopped.
        notify(ProfilingState::Stopping);
    }
    running
}

fn start_under_lock(
    params: &StartParams,
    keeps: impl Fn(bool) -> bool,
    ended_session: &mut bool,
) -> Result<Running, StartError> {
    if is_any_lock_held_on_current_thread() {
        return Err(reentrancy_error());
    }
    let settings = session_settings(params)?;
    if let Some(signals) = &params.control_signals {
        control_by_signals(signals)?;
    }
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

    // Without a lock: installing fork handlers waits for a fork in progress, which may wait for the
    // life-cycle lock.
    ensure_core();
    // Declared before the guard, so that its callbacks run after the lock is released, on every
    // return path.
    let _left_over;
    let _guard = LIFE_CYCLE.lock();
    // Again, because a shutdown may have removed `CorePs`.
    ensure_core();
    let running = running_session();
    if let Some((generation, session)) = &running
        && keeps(session.settings == settings)
    {
        return Ok(Running::Kept(*generation));
    }
    // Before the old session ends, so that a failure changes nothing.
    install_handler(settings.signal, capture_in_handler)?;
    _left_over = end_session();
    *ended_session = running.is_some();

    let (features, capacity_bytes, interval) = (
        settings.features,
        settings.capacity_bytes,
        settings.interval,
    );
    let counters = {
        let lock = PsLock::acquire();
        let known = CORE_PS.get(&lock).iter().flat_map(|core| &core.counters);
        known
            .copied()
            .filter(|counter| features.contains(counter.feature))
            .collect()
    };
    let process_start = CorePs::process_start().monotonic;
    let session = Session::new(settings, process_start, monotonic_now(), counters);
    let generation = session.generation;
    core_buffer().begin_session(generation, capacity_bytes);
    reset_lost_stacks();
    preallocate_words();
    let (session, sampler) = match spawn_sampler(session, core_buffer()) {
        Ok(spawned) => spawned,
        Err(error) => {
            core_buffer().end_session();
            return Err(error);
        }
    };
    let mut lock = PsLock::acquire();
    *ACTIVE_PS.get_mut(&mut lock) = Some(ActivePs::new(session, filter, sampler));
    if let Some(active) = ACTIVE_PS.get(&lock) {
        active.threads.borrow_mut().begin(&lock);
    }
    RacyFeatures::set_active(features, &lock);
    drop(lock);
    ensure_event_watcher(interval);
    Ok(Running::Started(generation))
}

/// See `profiler_stop`.
pub(crate) fn stop() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    notify_stopping(None);
    stop_quietly(None);
}

/// Stops the session with this generation, if it is running.
pub(crate) fn stop_generation(generation: Generation) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    notify_stopping(Some(generation));
    stop_quietly(Some(generation));
}

/// Notifies the state callbacks that the running session is about to stop. With `only`, does so
/// only for that session.
fn notify_stopping(only: Option<Generation>) {
    if running_session().is_some_and(|(running, _)| only.is_none_or(|only| only == running)) {
        notify(ProfilingState::Stopping);
    }
}

/// Stops the running session without notifying the state callbacks. With `only`, stops only that
/// session.
fn stop_quietly(only: Option<Generation>) {
    // Declared before the guard, so that its callbacks run after the lock is released.
    let _left_over;
    let _guard = LIFE_CYCLE.lock();
    if only.is_none() || running_session().map(|(running, _)| running) == only {
        _left_over = end_session();
    }
}

pub(crate) fn running_generation() -> Option<Generation> {
    running_session().map(|(running, _)| running)
}

/// Returns the running session.
pub(crate) fn running_session() -> Option<(Generation, Arc<Session>)> {
    let lock = PsLock::acquire();
    let active = ACTIVE_PS.get(&lock).as_ref()?;
    Some((active.generation(), active.session()))
}

/// Ends the running session, if any, and returns the callbacks that still wait for one of its
/// sampling loops.
///
/// The caller holds the life-cycle lock, and drops the result without any lock, which runs these
/// callbacks.
fn end_session() -> UnservedCallbacks {
    let ended = {
        let mut lock = PsLock::acquire();
        RacyFeatures::set_inactive(&lock);
        let ended = ACTIVE_PS.get_mut(&mut lock).take();
        ended.inspect(|active| active.threads.borrow_mut().end(&lock))
    };
    let Some(active) = ended else {
        return UnservedCallbacks::default();
    };
    active.session.request_stop();
    active.sampler.join();
    core_buffer().end_session();
    active.session.after_sampling.close()
}
