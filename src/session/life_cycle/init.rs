//! The profiler's life cycle, from `profiler_init` to `profiler_shutdown`.
//!
//! Before `main`, a constructor of the program may start it. Gecko starts a small Base Profiler
//! early, whose data the main profiler takes over. Here both are one: `profiler_init` continues the
//! session that the constructor has started.

use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use crate::platform::{
    current_process_id, install_lasting_signal_stack, is_in_executable, is_main_thread,
    open_missing_standard_streams,
};
use crate::session::dumps::dump::dump_settings;
use crate::session::ends::exec::{keep_profile_before_exec, take_profile_before_exec};
use crate::session::ends::last_profile::{
    save_once, stop_watching_ends, watch_ends_if_asked, watch_exit,
};
use crate::session::env::{StartUp, env_notices, environment, notices};
use crate::session::family::family;
use crate::session::life_cycle::clients::start_for_application;
use crate::session::life_cycle::signals::{
    control_by_default_signals, control_by_signals, end_control, set_dumps_by_default,
};
use crate::session::life_cycle::start_stop::{
    SessionPlan, StartOutcome, end_session, ensure_core, notify_stopping, start_if_inactive,
    stop_generation, take_registered_by_init,
};
use crate::session::running::{
    LIFE_CYCLE, Turn, notify, reentrancy_error, running_generation, running_session,
};
use crate::session::saving::save::{default_options_for, expand_path, missing_folder};
use crate::session::saving::shutdown_file::{claim, is_claimed};
use crate::session::saving::snapshot::{FrozenProfile, freeze, keep_for_shutdown};
use crate::state::CORE_PS;
use crate::threads::unregister_current_thread;
use crate::types::{
    DumpError, Generation, ProfilingState, StartError, StartParams, ThreadFilter, WhileOtherRuns,
    unregistered_main_thread,
};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

/// The process that has read the environment, from `profiler_init` to `profiler_shutdown`; 0 for
/// none. A child of `fork` reads it again if it calls `profiler_init`.
static READ_ENVIRONMENT_IN: AtomicI32 = AtomicI32::new(0);

/// See `profiler_init`.
pub(crate) fn init() {
    init_once();
}

/// Works like [`init`], and saves the last profile to this file, and reports it, if that is asked
/// for: see `AutoProfilerInitBuilder`.
pub(crate) fn init_with_end(file: Option<&Path>, reports: bool) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    // Before the variables are applied, so that what happens at the end is known then.
    if file.is_some() {
        environment::set_file_of_application(file);
    }
    if reports {
        environment::set_report_of_application(true);
    }
    if init_once() {
        return;
    }
    let watched = match file {
        Some(path) => save_at_exit(path),
        None => watch_ends_if_asked(true),
    };
    report(watched);
}

/// The process that a constructor has initialized before `main`, until `profiler_init` takes that
/// over; 0 for none.
static INITIALIZED_EARLY_IN: AtomicI32 = AtomicI32::new(0);

/// The number of the session that began before `main`; 0 for none.
static EARLY_SESSION: AtomicU64 = AtomicU64::new(0);

/// Initializes the profiler before `main`. The variables say that it is to start.
fn init_early() {
    ensure_core();
    let process = current_process_id().to_number();
    if READ_ENVIRONMENT_IN.swap(process, Ordering::AcqRel) != process {
        INITIALIZED_EARLY_IN.store(process, Ordering::Release);
        let session = apply_variables().map_or(0, Generation::to_number);
        EARLY_SESSION.store(session, Ordering::Relaxed);
        report(watch_ends_if_asked(false));
        control_if_asked();
    }
}

/// Initializes the profiler, or takes it over from [`init_early`]. Returns false if the application
/// has initialized it before in this process.
fn init_once() -> bool {
    if is_any_lock_held_on_current_thread() {
        return false;
    }
    ensure_core();
    let process = current_process_id().to_number();
    if READ_ENVIRONMENT_IN.swap(process, Ordering::AcqRel) != process {
        let session = apply_variables();
        env_notices::notify_if_unsaved();
        if session.is_some() && !is_main_thread() {
            notices::notify(&unregistered_main_thread().text);
        }
        prepare_end();
        return true;
    }
    let was_early = INITIALIZED_EARLY_IN.swap(0, Ordering::AcqRel) == process;
    if was_early {
        take_over();
    }
    was_early
}

/// Continues the session, if any, that [`init_early`] has begun. Only now is it known which file
/// the application asks for: it may have done so in code, or set a variable.
fn take_over() {
    env_notices::notify_if_unsaved();
    if let Some(path) = environment::shutdown_path()
        && !is_claimed(&path)
    {
        claim(&path);
    }
    prepare_end();
}

/// Reads the variables, and returns the session that they have started.
fn apply_variables() -> Option<Generation> {
    let start_up = environment::read();
    take_profile_before_exec();
    // Before the session's threads exist, because it may set a variable for child processes.
    if let Some(path) = environment::shutdown_path() {
        claim(&path);
    }
    match start_up {
        StartUp::Off => {}
        // The variables are meant for another process: a parent process or a shell set them.
        StartUp::Start(params)
            if ThreadFilter::new(&params.filters).excludes_process(current_process_id()) =>
        {
            env_notices::notify_other_processes_selected(&params.filters);
        }
        StartUp::Start(params) => match start_if_inactive(&params) {
            Ok(Some(session)) => {
                env_notices::note_start();
                keep_profile_before_exec();
                watch_exit();
                return Some(session);
            }
            // The application has already started a session.
            Ok(None) => {}
            Err(error) => notices::notify(&error.to_string()),
        },
        StartUp::Problems(problems) => env_notices::notify_problems(&problems),
    }
    None
}

/// Prepares what the variables and the application want at the end of the process, and control by
/// signals.
fn prepare_end() {
    if let Some(path) = environment::shutdown_path() {
        if let Err(error) = default_options_for(&path) {
            notices::notify(&format!(
                "{error}; the profile will be saved in Gecko's format"
            ));
        }
        notify_if_not_savable(&expand_path(&path));
    }
    report(watch_ends_if_asked(true));
    control_if_asked();
}

/// Warns that a profile can probably not be saved at shutdown, while there is time to create the
/// folder.
fn notify_if_not_savable(path: &Path) {
    let problem = match (missing_folder(path), path.is_dir()) {
        (Some(folder), _) => format!("the folder {} does not exist", folder.display()),
        (None, true) => "it is a folder, expected the path of a file".to_owned(),
        (None, false) => return,
    };
    notices::notify(&format!(
        "the profile cannot be saved as {} unless that changes: {problem}",
        path.display()
    ));
}

fn control_if_asked() {
    if environment::wants_signals() {
        report(control_by_default_signals());
    }
    match environment::dump_signal() {
        Some(Ok(signal)) => report(dump_by_default_signal(signal)),
        Some(Err(text)) => notices::notify(&format!(
            "cannot set dumps: got {text:?} as MOZ_PROFILER_DUMP_SIGNAL, expected the name or the \
             number of a signal"
        )),
        None => {}
    }
}

/// Sets dumps that a signal causes, as the variable says.
fn dump_by_default_signal(signal: i32) -> Result<(), DumpError> {
    let mut settings = dump_settings().on_signal(signal);
    if let Some(folder) = environment::upload_folder() {
        settings = settings.folder(folder);
    }
    set_dumps_by_default(settings)
}

fn report(result: Result<(), impl fmt::Display>) {
    if let Err(error) = result {
        notices::notify(&error.to_string());
    }
}

/// See `profiler_save_at_exit`.
pub(crate) fn save_at_exit(path: &Path) -> Result<(), StartError> {
    if is_any_lock_held_on_current_thread() {
        return Err(reentrancy_error());
    }
    ensure_core();
    environment::set_file_of_application(Some(path));
    if let Some(path) = environment::shutdown_path() {
        claim(&path);
    }
    watch_ends_if_asked(true)
}

/// See `profiler_shutdown`.
pub(crate) fn shutdown() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    // Handles the requests of signals that have already arrived, before the session ends.
    end_control();
    READ_ENVIRONMENT_IN.store(0, Ordering::Release);
    INITIALIZED_EARLY_IN.store(0, Ordering::Release);
    notify_stopping(None);
    let is_initialized = CORE_PS.get(&PsLock::acquire()).is_some();
    if is_initialized {
        notify(ProfilingState::ShuttingDown);
    }
    let has_parent = family().is_some_and(|family| family.has_parent());
    if !environment::uses_profile_at_shutdown() {
        if !has_parent {
            env_notices::notify_if_left_running();
        }
    } else if running_session().is_some() {
        notify(ProfilingState::GeneratingProfile);
    }
    save_once();
    environment::set_file_of_application(None);
    environment::set_report_of_application(false);
    env_notices::forget_start();
    end_core();
    if let Some(family) = family() {
        family.leave();
    }
    stop_watching_ends();
}

/// Ends the running session, and removes `CorePs`.
fn end_core() {
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

/// Ends the life of an `AutoProfilerInit`, which began this long ago.
pub(crate) fn shutdown_after(lifetime: Duration) {
    env_notices::notify_if_short_lived(lifetime);
    shutdown();
}

/// See `profiler_start`.
pub(crate) fn start(params: &StartParams) -> Result<Generation, StartError> {
    start_unless(params, |_| false)
}

/// See `profiler_ensure_started`.
pub(crate) fn ensure_started(params: &StartParams) -> Result<Generation, StartError> {
    start_unless(params, |has_same_settings| has_same_settings)
}

/// Works like [`ensure_started`], for the parent process: see [`SessionPlan::of_parent`].
pub(crate) fn ensure_started_for_parent(params: &StartParams) -> Result<Generation, StartError> {
    let start = || {
        let plan = SessionPlan::new(params)?.of_parent();
        plan.start_unless(|has_same_settings| has_same_settings)
    };
    start_for_application(start).map(StartOutcome::generation)
}

/// Sets up the parameters' control signals, and starts a session, unless `keeps` decides to keep
/// the running one. Returns the running session.
fn start_unless(params: &StartParams, keeps: fn(bool) -> bool) -> Result<Generation, StartError> {
    // An error changes no signals.
    SessionPlan::new(params)?;
    if let Some(signals) = &params.control_signals {
        control_by_signals(signals)?;
    }
    let before = running_generation();
    let outcome = start_for_application(|| SessionPlan::new(params)?.start_unless(keeps))?;
    keep_profile_before_exec();
    let early = Generation::from_number(EARLY_SESSION.load(Ordering::Relaxed));
    if matches!(outcome, StartOutcome::Started(_)) && before == Some(early) {
        env_notices::notify_early_session_dropped();
    }
    Ok(outcome.generation())
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
    if READ_ENVIRONMENT_IN.load(Ordering::Acquire) != 0
        && !is_any_lock_held_on_current_thread()
        && environment::uses_profile_at_shutdown()
    {
        keep_for_shutdown(taken.or_else(|| freeze(Some(generation))));
    }
    stop_generation(generation);
}

/// See `early_start!`. `constructor` is the address of the function that the loader has called.
/// Never panics.
///
/// The standard library's runtime begins later, and goes by what it finds. So this prepares what
/// the runtime would have prepared.
pub(crate) fn start_early(constructor: usize) {
    let start = || {
        if environment::is_early_startup_on() && is_start_of_program(constructor) {
            // Before a file is opened, which could get the number of a standard stream.
            open_missing_standard_streams();
            // Before the main thread registers, which gives it a stack until `profiler_shutdown`.
            install_lasting_signal_stack();
            init_early();
        }
    };
    if catch_unwind(AssertUnwindSafe(start)).is_err() {
        notices::notify("cannot start before main: the profiler panicked");
    }
}

/// Returns whether the constructor belongs to the program, rather than to a library that a running
/// program loads.
fn is_start_of_program(constructor: usize) -> bool {
    is_main_thread() && is_in_executable(constructor)
}
