//! The profiler's life cycle, from `profiler_init` to `profiler_shutdown`.

use std::panic::Location;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::platform::{StandardStream, current_process_id};
use crate::session::callbacks::notify;
use crate::session::env::{StartUp, env_notices, environment, look_on};
use crate::session::notices;
use crate::session::running::LIFE_CYCLE;
use crate::session::save::expand_path;
use crate::session::signals::{control_by_default_signals, control_by_signals, end_control};
use crate::session::snapshot::{FrozenProfile, freeze, keep_for_shutdown, take_kept};
use crate::session::start_stop::{
    SessionPlan, end_session, ensure_core, notify_stopping, start_if_inactive, stop_generation,
    take_registered_by_init,
};
use crate::session::turn::{Turn, WhileOtherRuns};
use crate::session::write_options::default_options_for;
use crate::state::CORE_PS;
use crate::threads::unregister_current_thread;
use crate::types::{Generation, ProfilingState, StartError, StartParams, ThreadFilter};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

/// Set from `profiler_init` to `profiler_shutdown`.
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
        // The variables are meant for another process: a parent process or a shell set them.
        StartUp::Start(params)
            if ThreadFilter::new(&params.filters).excludes_process(current_process_id()) =>
        {
            env_notices::notify_other_processes_selected(&params.filters);
        }
        StartUp::Start(params) => match start_if_inactive(&params) {
            Ok(Some(_)) => env_notices::notify_if_not_saved_at_shutdown(),
            // The application has already started a session.
            Ok(None) => {}
            Err(error) => notices::notify(&error.to_string()),
        },
        StartUp::Problems(problems) => env_notices::notify_problems(&problems),
    }
    if let Some(path) = environment::shutdown_path() {
        if let Err(error) = default_options_for(&path) {
            notices::notify(&format!(
                "{error}; the profile will be saved in Gecko's format"
            ));
        }
        env_notices::notify_if_not_savable(&expand_path(&path));
    }
    if environment::wants_signals()
        && let Err(error) = control_by_default_signals()
    {
        notices::notify(&error.to_string());
    }
}

/// See `profiler_shutdown`.
pub(crate) fn shutdown() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    // Handles the requests of signals that have already arrived, before the session ends.
    end_control();
    HAS_READ_ENVIRONMENT.store(false, Ordering::Release);
    notify_stopping(None);
    let is_initialized = CORE_PS.get(&PsLock::acquire()).is_some();
    if is_initialized {
        notify(ProfilingState::ShuttingDown);
    }
    let kept = take_kept();
    if environment::uses_profile_at_shutdown() {
        let path = environment::shutdown_path();
        match freeze(None).or(kept) {
            None => env_notices::notify_no_profile_at_shutdown(path.as_deref()),
            Some(profile) => use_last_profile(profile.at_shutdown(), path.as_deref()),
        }
    }
    // Declared before the guard, so that it is dropped after the lock is released.
    let _cleanup;
    let _guard = LIFE_CYCLE.lock();
    _cleanup = end_session();
    // Under the same guard, so that no session runs without `CorePs`.
    let _core = CORE_PS.get_mut(&mut PsLock::acquire()).take();
    if take_registered_by_init() {
        unregister_current_thread();
    }
}

/// Saves the profile at `path`, and then prints the report that the environment asks for.
fn use_last_profile(profile: FrozenProfile, path: Option<&Path>) {
    let reported = environment::wants_report().then(|| profile.clone());
    match path.map(|path| profile.save_at_shutdown(path)) {
        None => {}
        Some(Ok(saved)) => notices::notify(&format!("saved the profile as {}", saved.display())),
        Some(Err(error)) => notices::notify(&error.to_string()),
    }
    let look = || look_on(StandardStream::Error);
    match reported.map(|profile| profile.report(look())) {
        None => {}
        Some(Ok(report)) => env_notices::print_report(&report),
        Some(Err(error)) => notices::notify(&format!("cannot print a report: {error}")),
    }
}

/// See `profiler_start`.
pub(crate) fn start(params: &StartParams) -> Result<Generation, StartError> {
    start_unless(params, |_| false)
}

/// See `profiler_ensure_started`.
pub(crate) fn ensure_started(params: &StartParams) -> Result<Generation, StartError> {
    start_unless(params, |has_same_settings| has_same_settings)
}

/// Sets up the parameters' control signals, and starts a session, unless `keeps` decides to keep
/// the running one. Returns the running session.
fn start_unless(
    params: &StartParams,
    keeps: impl Fn(bool) -> bool,
) -> Result<Generation, StartError> {
    let plan = SessionPlan::new(params)?;
    if let Some(signals) = &params.control_signals {
        control_by_signals(signals)?;
    }
    Ok(plan.start_unless(keeps)?.generation())
}

/// Starts the session of a `ProfilerSession` that is created at `place`.
pub(crate) fn start_guarded(
    params: &StartParams,
    place: &'static Location<'static>,
    while_other_runs: WhileOtherRuns,
) -> Result<Generation, StartError> {
    let turn = Turn::take(place, while_other_runs)?;
    let generation = start(params)?;
    turn.begin(generation);
    Ok(generation)
}

/// Ends the session of a `ProfilerSession`, if it is running. `taken` is its profile, if the
/// application has taken it.
///
/// If the environment asks for a file or a report, keeps the profile for `profiler_shutdown`.
pub(crate) fn end_guarded_session(generation: Generation, taken: Option<FrozenProfile>) {
    if HAS_READ_ENVIRONMENT.load(Ordering::Acquire)
        && !is_any_lock_held_on_current_thread()
        && environment::uses_profile_at_shutdown()
    {
        keep_for_shutdown(taken.or_else(|| freeze(Some(generation))));
    }
    stop_generation(generation);
}
