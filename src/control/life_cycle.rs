//! From `profiler_init` to `profiler_shutdown`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{
    Generation, LockRank, NamedMutex, ProfilingState, PsLock, StartError, StartParams,
    ThreadFilter, is_any_lock_held_on_current_thread,
};
use crate::control::callbacks::tell;
use crate::control::control_signals::{
    control_by_default_signals, control_by_signals, end_control,
};
use crate::control::environment::{self, StartUp};
use crate::control::event_watcher::ensure_event_watcher;
use crate::control::fork::fork_hooks;
use crate::control::notices;
use crate::control::snapshot::freeze;
use crate::platform::{
    current_process_id, install_fork_handlers, install_handler, is_main_thread, monotonic_now,
    signal_is_acceptable,
};
use crate::sampler::{capture_in_handler, spawn_sampler};
use crate::state::{
    ACTIVE_PS, ActivePs, CORE_PS, CorePs, LeftOverCallbacks, REGISTRATION_HOOKS, RacyFeatures,
    Session, SessionSettings, core_buffer,
};
use crate::threads::{
    forget_lost_stacks, prepare_words, register_current_thread, unregister_current_thread,
};

/// Start, stop and fork take turns. Held while the sampler is joined.
pub(super) static LIFE_CYCLE: NamedMutex<()> =
    NamedMutex::new("life cycle", LockRank::Lifecycle, ());

/// From `profiler_init` to `profiler_shutdown`.
static HAS_READ_ENVIRONMENT: AtomicBool = AtomicBool::new(false);

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
        // A parent's wish, or a shell's, for another process.
        StartUp::Start(params)
            if ThreadFilter::new(&params.filters).excludes_process(current_process_id()) =>
        {
            environment::tell_that_others_are_meant(&params.filters);
        }
        StartUp::Start(params) => match start_if_inactive(&params) {
            Ok(Some(_)) => environment::tell_if_nothing_will_be_saved(),
            // The program was first.
            Ok(None) => {}
            Err(error) => notices::tell(&error.to_string()),
        },
        StartUp::Problems(problems) => environment::tell_problems(&problems),
    }
    if environment::wants_signals()
        && let Err(error) = control_by_default_signals()
    {
        notices::tell(&error.to_string());
    }
}

/// Makes `CorePs` if there is none, and registers the main thread if this is it and that was not done yet.
pub(super) fn ensure_core() {
    // What the system is asked for, it is asked under no lock.
    let is_main = is_main_thread();
    let is_missing = CORE_PS.get(&PsLock::acquire()).is_none();
    let fresh = is_missing.then(CorePs::new);
    let registers_main = {
        let mut lock = PsLock::acquire();
        let core = CORE_PS.get_mut(&mut lock);
        let core = core.get_or_insert_with(|| fresh.unwrap_or_else(CorePs::new));
        let registers_main = is_main && !core.registered_main_thread;
        core.registered_main_thread |= is_main;
        registers_main
    };
    if is_missing {
        install_fork_handlers(fork_hooks());
    }
    if registers_main {
        register_current_thread("", REGISTRATION_HOOKS);
    }
}

/// See `profiler_shutdown`.
pub(crate) fn shutdown() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    // What a signal has asked for is done first.
    end_control();
    HAS_READ_ENVIRONMENT.store(false, Ordering::Release);
    tell_stopping(None);
    let is_initialized = CORE_PS.get(&PsLock::acquire()).is_some();
    if is_initialized {
        tell(ProfilingState::ShuttingDown);
    }
    if let Some(path) = environment::shutdown_path() {
        match freeze(None) {
            None => environment::tell_nothing_to_save(&path),
            Some(profile) => match profile.save_once(&path) {
                Ok(saved) => {
                    notices::tell(&format!("the profile was saved as {}", saved.display()))
                }
                Err(error) => notices::tell(&error.to_string()),
            },
        }
    }
    // Told after the turn.
    let _left_over;
    let _turn = LIFE_CYCLE.lock();
    _left_over = end_session();
    // In the same turn, so that no session is without it.
    let core = CORE_PS.get_mut(&mut PsLock::acquire()).take();
    if core.is_some_and(|core| core.registered_main_thread) && is_main_thread() {
        unregister_current_thread();
    }
}

/// See `profiler_start`.
pub(crate) fn start(params: &StartParams) -> Result<Generation, StartError> {
    start_unless(params, |_| false)
        .inspect(|_| tell(ProfilingState::Started))
        .map(Begun::generation)
}

/// See `profiler_ensure_started`.
pub(crate) fn ensure_started(params: &StartParams) -> Result<Generation, StartError> {
    let begun = start_unless(params, |same| same)?;
    if matches!(begun, Begun::Now(_)) {
        tell(ProfilingState::Started);
    }
    Ok(begun.generation())
}

/// Starts, if no session runs; `None` if one does.
pub(super) fn start_if_inactive(params: &StartParams) -> Result<Option<Generation>, StartError> {
    match start_unless(params, |_| true)? {
        Begun::Now(generation) => {
            tell(ProfilingState::Started);
            Ok(Some(generation))
        }
        Begun::Before(_) => Ok(None),
    }
}

/// A session that runs.
enum Begun {
    Now(Generation),
    Before(Generation),
}

impl Begun {
    fn generation(self) -> Generation {
        match self {
            Self::Now(generation) | Self::Before(generation) => generation,
        }
    }
}

/// What is asked for from within the profiler's own work, by the host's allocator say, or by a handler of `fork`'s between
/// ours, would wait for a lock that its own thread holds.
pub(super) fn within_own_work() -> StartError {
    StartError::System {
        action: "take its locks",
        answer: "this thread holds them, within the profiler's own work or a fork; see \
                 profiler_is_locked_on_current_thread"
            .to_owned(),
    }
}

/// What a session with these parameters is run with.
fn adjusted(params: &StartParams) -> Result<SessionSettings, StartError> {
    params.validate()?;
    Ok(SessionSettings {
        capacity_bytes: params.capacity_bytes,
        interval: params.interval,
        features: params.features.adjusted(),
        filters: params.filters.clone(),
        signal: signal_is_acceptable(params.signal)?,
        engine: params.engine,
        duration: params.duration,
        active_tab_id: params.active_tab_id,
        records_overheads: environment::records_overheads(),
    })
}

/// Starts, unless `keeps` likes the running session, of which it is told whether its settings are these.
fn start_unless(params: &StartParams, keeps: impl Fn(bool) -> bool) -> Result<Begun, StartError> {
    let mut ended_one = false;
    let begun = start_in_turn(params, keeps, &mut ended_one);
    if begun.is_err() && ended_one {
        // It was not to stop; so it can be told only now.
        tell(ProfilingState::Stopping);
    }
    begun
}

fn start_in_turn(
    params: &StartParams,
    keeps: impl Fn(bool) -> bool,
    ended_one: &mut bool,
) -> Result<Begun, StartError> {
    if is_any_lock_held_on_current_thread() {
        return Err(within_own_work());
    }
    let settings = adjusted(params)?;
    if let Some(signals) = &params.control_signals {
        control_by_signals(signals)?;
    }
    let filter = ThreadFilter::new(&params.filters);
    if filter.excludes_process(current_process_id()) {
        return Err(StartError::BadValue {
            field: "filters",
            value: format!("{:?}, which name other processes alone", params.filters),
            accepted: format!(
                "filters of which one is pid:{} or names threads",
                current_process_id().to_number()
            ),
        });
    }

    // Under no lock: installing fork handlers waits for a fork that is going on, which may wait for the turn.
    ensure_core();
    // Told after the turn, on every way out.
    let _left_over;
    let _turn = LIFE_CYCLE.lock();
    // A shutdown may have come between.
    ensure_core();
    let running = running_session();
    if let Some((generation, session)) = &running
        && keeps(session.settings == settings)
    {
        return Ok(Begun::Before(*generation));
    }
    // Before the old session ends, so that a refusal changes nothing.
    install_handler(settings.signal, capture_in_handler)?;
    _left_over = end_session();
    *ended_one = running.is_some();

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
    forget_lost_stacks();
    prepare_words();
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
    Ok(Begun::Now(generation))
}

/// See `profiler_stop`.
pub(crate) fn stop() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    tell_stopping(None);
    stop_quietly(None);
}

/// Stops, if it is this session that runs.
pub(crate) fn stop_generation(generation: Generation) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    tell_stopping(Some(generation));
    stop_quietly(Some(generation));
}

/// Tells that the session is about to stop, if there is one and it is this.
fn tell_stopping(only: Option<Generation>) {
    if running_session().is_some_and(|(running, _)| only.is_none_or(|only| only == running)) {
        tell(ProfilingState::Stopping);
    }
}

fn stop_quietly(only: Option<Generation>) {
    // Told after the turn.
    let _left_over;
    let _turn = LIFE_CYCLE.lock();
    if only.is_none() || running_session().map(|(running, _)| running) == only {
        _left_over = end_session();
    }
}

pub(super) fn running_generation() -> Option<Generation> {
    running_session().map(|(running, _)| running)
}

/// The session that runs.
pub(super) fn running_session() -> Option<(Generation, Arc<Session>)> {
    let lock = PsLock::acquire();
    let active = ACTIVE_PS.get(&lock).as_ref()?;
    Some((active.generation(), active.session()))
}

/// Ends the session, if there is one, and gives the callbacks that waited for a loop of it, to be told under no lock. Under
/// the life-cycle lock.
fn end_session() -> LeftOverCallbacks {
    let ended = {
        let mut lock = PsLock::acquire();
        RacyFeatures::set_inactive(&lock);
        let ended = ACTIVE_PS.get_mut(&mut lock).take();
        ended.inspect(|active| active.threads.borrow_mut().end(&lock))
    };
    let Some(active) = ended else {
        return LeftOverCallbacks::default();
    };
    active.session.request_stop();
    active.sampler.join();
    core_buffer().end_session();
    active.session.after_sampling.close()
}
