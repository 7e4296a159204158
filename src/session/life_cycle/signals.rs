//! Control by signals: one signal starts the profiler, another saves the profile and stops the
//! profiler, and one causes a dump. Sets the other causes of dumps, too.
//!
//! The signal handlers pass requests to the control thread, which handles them with the same
//! functions as the API. The child of a fork has no control thread. Its handlers do nothing until
//! the application sets up control by signals there.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::platform::{
    ControlPipe, ControlRequest, ControlSignal, check_control_signals, check_dump_signal,
    current_process_id, prepare_control_signals, release_control_signal, spawn_profiler_thread,
    take_signals, with_signals_blocked,
};
use crate::session::dumps::causes::{dump_on_main_track, watch_limits};
use crate::session::dumps::dump::keep_settings;
use crate::session::ends::control_state::{CONTROL, ControlConfig, ControlShared, RunningControl};
use crate::session::env::{environment, notices};
use crate::session::life_cycle::clients::start_for_application;
use crate::session::life_cycle::start_stop::{
    SessionPlan, StartOutcome, ensure_core, stop_generation,
};
use crate::session::running::{LIFE_CYCLE, reentrancy_error, running_generation};
use crate::session::saving::save::{default_options, expand_path};
use crate::session::saving::snapshot::freeze;
use crate::types::{ControlSignals, DumpError, DumpSettings, StartError, StartParams, signal_name};
use crate::util::{PsCell, PsLock, is_any_lock_held_on_current_thread};

/// Buffer capacity of a session that a signal starts, in bytes, as for a start by environment
/// variables.
const CAPACITY_BYTES: u64 = 512 << 20;

thread_local! {
    /// On a control thread, the state that it serves; null on other threads, and on a control
    /// thread that must end after the current request. Only compared, never dereferenced.
    static SERVED_CONTROL: Cell<*const ControlShared> = const { Cell::new(std::ptr::null()) };
}

/// See `profiler_control_by_signals`.
pub(crate) fn control_by_signals(asked: &ControlSignals) -> Result<(), StartError> {
    if is_any_lock_held_on_current_thread() {
        return Err(of_control(reentrancy_error()));
    }
    take_control(asked, false).map_err(of_control)
}

/// Sets up control by the default signals, unless the application has already set up control.
pub(crate) fn control_by_default_signals() -> Result<(), StartError> {
    take_control(&ControlSignals::default(), true).map_err(of_control)
}

/// Returns the error with the text of control by signals. The functions that set up control share
/// errors with those that start a session.
fn of_control(error: StartError) -> StartError {
    match error {
        StartError::System { action, answer } => StartError::ControlSystem { action, answer },
        other => other,
    }
}

fn take_control(asked: &ControlSignals, keeps_running: bool) -> Result<(), StartError> {
    let folder = environment::upload_folder()
        .or_else(|| asked.folder.clone())
        .unwrap_or_default();
    // The application may change the current folder later.
    let folder = std::path::absolute(folder.join("."))
        .map_err(|error| system_error("find the current folder", &error))?;
    ensure_core();
    prepare_control_signals();
    // Held, because a session also chooses its signal under it, and the signals must differ.
    let guard = LIFE_CYCLE.lock();
    let signals = check_control_signals(asked.start_signal, asked.stop_signal)?;
    let running = running_control();
    let before = running.as_ref().map(|running| running.config());
    let before = before.unwrap_or_default();
    if keeps_running && before.start_stop.is_some() {
        return Ok(());
    }
    if let Some(dump) = before.dump {
        // Names the signal that is the same.
        check_dump_signal(dump.number, &signals)?;
    }
    let config = ControlConfig {
        start_stop: Some((signals, folder)),
        ..before
    };
    let taken = use_config(config, running);
    drop(guard);
    taken.map_err(Untaken::clean_up)
}

/// Signals that could not be taken.
struct Untaken {
    error: StartError,
    /// Whether a control thread was started for them.
    has_thread: bool,
}

impl Untaken {
    /// Ends the control thread that was started. Called without the life-cycle lock.
    fn clean_up(self) -> StartError {
        if self.has_thread {
            end_control();
        }
        self.error
    }
}

impl From<StartError> for Untaken {
    fn from(error: StartError) -> Self {
        Self {
            error,
            has_thread: false,
        }
    }
}

/// Lets a signal cause dumps, or none any more. The caller holds the life-cycle lock, and has called
/// [`prepare_dump_signal`].
///
/// # Errors
/// [`StartError::BadValue`] or [`StartError::System`]. The signals then do what they did before.
fn set_dump_signal(asked: Option<i32>) -> Result<(), Untaken> {
    let running = running_control();
    let before = running.as_ref().map(|running| running.config());
    let before = before.unwrap_or_default();
    if asked == before.dump.map(|dump| dump.number) {
        return Ok(());
    }
    let check = |asked| check_dump_signal(asked, before.start_stop_signals());
    let config = ControlConfig {
        dump: asked.map(check).transpose()?,
        ..before.clone()
    };
    use_config(config, running)
}

/// Does the part of [`set_dump_signal`] that may wait for the loader. Called without a lock.
fn prepare_dump_signal() {
    ensure_core();
    prepare_control_signals();
}

/// Whether the application has set dumps.
static IS_SET_BY_APPLICATION: AtomicBool = AtomicBool::new(false);

/// Sets where dumps go and what causes them; `None` for no more causes.
///
/// # Errors
/// - [`DumpError::BadValue`]: nothing has changed.
/// - [`DumpError::System`]: the system refuses a thread, a pipe or a handler. Then nothing has
///   changed, but limits of the settings before are no longer checked.
/// - [`DumpError::Reentrant`]
pub(crate) fn set_dumps(settings: Option<DumpSettings>) -> Result<(), DumpError> {
    set_dumps_by(settings, true)
}

fn set_dumps_by(settings: Option<DumpSettings>, is_application: bool) -> Result<(), DumpError> {
    if is_any_lock_held_on_current_thread() {
        return Err(DumpError::Reentrant);
    }
    let signal = settings.as_ref().and_then(|settings| settings.signal);
    if signal.is_some() {
        prepare_dump_signal();
    }
    // Of two calls at a time, all settings of the second one hold.
    let guard = LIFE_CYCLE.lock();
    if let Err(untaken) = set_dump_signal(signal) {
        drop(guard);
        return Err(to_dump_error(untaken));
    }
    watch_limits(settings.as_ref())?;
    keep_settings(settings);
    if is_application {
        IS_SET_BY_APPLICATION.store(true, Ordering::Release);
    }
    Ok(())
}

/// Sets dumps that a signal causes, unless the application has set dumps.
///
/// # Errors
/// See [`set_dumps`].
pub(crate) fn set_dumps_by_default(settings: DumpSettings) -> Result<(), DumpError> {
    match IS_SET_BY_APPLICATION.load(Ordering::Acquire) {
        false => set_dumps_by(Some(settings), false),
        true => Ok(()),
    }
}

fn to_dump_error(untaken: Untaken) -> DumpError {
    match untaken.clean_up() {
        StartError::BadValue {
            field,
            value,
            accepted,
        } => DumpError::BadValue {
            setting: field,
            value,
            accepted,
        },
        StartError::System { action, answer } => DumpError::System { action, answer },
        other => DumpError::System {
            action: "take the signal that causes dumps",
            answer: other.to_string(),
        },
    }
}

/// Takes the signals of a configuration, with the control thread that runs, or with a new one. The
/// caller holds the life-cycle lock.
fn use_config(config: ControlConfig, running: Option<Arc<ControlShared>>) -> Result<(), Untaken> {
    let signals = config.signals();
    if let Some(running) = running {
        // The signals come first: if they cannot be taken, a working control stays unchanged.
        take_signals(&signals)?;
        running.change(config);
        return Ok(());
    }
    begin(config)?;
    take_signals(&signals).map_err(|error| Untaken {
        error,
        has_thread: true,
    })
}

fn system_error(action: &'static str, error: &std::io::Error) -> StartError {
    StartError::System {
        action,
        answer: error.to_string(),
    }
}

/// Returns the state of this process's control thread, if its pipe is open. Removes a control whose
/// pipe was closed. The caller holds the life-cycle lock.
fn running_control() -> Option<Arc<ControlShared>> {
    let shared = {
        let lock = PsLock::acquire();
        Arc::clone(&CONTROL.get(&lock).as_ref()?.shared)
    };
    if shared.process != current_process_id() {
        return None;
    }
    let is_whole = shared.pipe.is_whole();
    if !is_whole {
        remove_control(&shared);
    }
    is_whole.then_some(shared)
}

/// Starts the control thread.
fn begin(config: ControlConfig) -> Result<(), StartError> {
    let pipe = ControlPipe::open().map_err(|error| system_error("open a pipe", &error))?;
    let shared = Arc::new(ControlShared {
        pipe,
        process: current_process_id(),
        is_ending: AtomicBool::new(false),
        is_busy: AtomicBool::new(false),
        config: PsCell::new(config),
    });
    let served = Arc::clone(&shared);
    let thread =
        with_signals_blocked(|| spawn_profiler_thread(c"ProfilerControl", move || served.serve()))
            .map_err(|error| system_error("create the control thread", &error))?;
    let mut lock = PsLock::acquire();
    let stale = CONTROL
        .get_mut(&mut lock)
        .replace(RunningControl { shared, thread });
    // Leaked: it belongs to the parent process, and its thread does not exist here.
    std::mem::forget(stale);
    Ok(())
}

/// Releases the signals, and waits until the requests that have arrived are handled.
pub(crate) fn end_control() {
    let guard = LIFE_CYCLE.lock();
    let control = {
        let mut lock = PsLock::acquire();
        let process = current_process_id();
        CONTROL
            .get_mut(&mut lock)
            .take_if(|control| control.shared.process == process)
    };
    let Some(RunningControl { shared, thread }) = control else {
        return;
    };
    shared.is_ending.store(true, Ordering::Release);
    shared
        .config()
        .signals()
        .into_iter()
        .for_each(|signal| release_control_signal(signal.number));
    drop(guard);
    // A callback of the application on the control thread may call this function. The thread ends
    // once the callback returns.
    if SERVED_CONTROL.get() == Arc::as_ptr(&shared) {
        SERVED_CONTROL.set(std::ptr::null());
        return;
    }
    loop {
        match shared.pipe.request_end() {
            Ok(true) => return thread.join(),
            Ok(false) => {}
            // The pipe is closed. A busy control thread notices that after its request, so this
            // loop waits for it.
            Err(_) if shared.is_busy.load(Ordering::Acquire) => {}
            Err(_) => return,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Removes a control whose pipe was closed, and releases its signals. Returns false if it was
/// already removed.
///
/// The caller holds the life-cycle lock.
fn remove_control(shared: &Arc<ControlShared>) -> bool {
    shared.pipe.unpublish();
    let control = {
        let mut lock = PsLock::acquire();
        CONTROL
            .get_mut(&mut lock)
            .take_if(|control| Arc::ptr_eq(&control.shared, shared))
    };
    if control.is_some() {
        shared
            .config()
            .signals()
            .into_iter()
            .for_each(|signal| release_control_signal(signal.number));
    }
    control.is_some()
}

// Not in `control_state.rs`: starting and stopping import that file, through `ends/fork.rs`.
impl ControlShared {
    /// Runs the control thread. Ignores requests to start the profiler once `end_control` has
    /// begun.
    fn serve(self: Arc<Self>) {
        SERVED_CONTROL.set(Arc::as_ptr(&self));
        // A callback of the application may fork and return in the child. There, the pipe's
        // descriptors may be other files.
        let serves =
            || SERVED_CONTROL.get() == Arc::as_ptr(&self) && current_process_id() == self.process;
        while let Ok(requests) = self.pipe.wait() {
            self.is_busy.store(true, Ordering::Release);
            for request in requests {
                let handle = match request {
                    ControlRequest::Start if self.is_ending.load(Ordering::Acquire) => continue,
                    ControlRequest::Start => start,
                    ControlRequest::Stop => save_and_stop,
                    ControlRequest::Dump => dump_for_signal,
                    ControlRequest::End => return,
                };
                // After a panic the application continues, and the next signal may succeed.
                if catch_unwind(AssertUnwindSafe(|| handle(&self))).is_err() {
                    notices::notify("cannot handle the signal: the profiler panicked");
                }
                if !serves() {
                    return;
                }
            }
            self.is_busy.store(false, Ordering::Release);
        }
        let is_removed = {
            let _guard = LIFE_CYCLE.lock();
            remove_control(&self)
        };
        if is_removed {
            notices::notify(
                "control by signals has ended: the program closed its pipe; \
                 profiler_control_by_signals restarts it",
            );
        }
    }

    /// Returns the path of the profile, and the signals that start and stop. `None` if they do no
    /// more.
    fn destination(&self) -> Option<(PathBuf, [ControlSignal; 2])> {
        let (signals, folder) = self.config().start_stop?;
        Some((file_in(&folder), signals))
    }
}

/// Returns the file for a profile in this folder, whose own name is not expanded.
fn file_in(folder: &Path) -> PathBuf {
    folder.join(expand_path(Path::new("profile_%t_%p.json")))
}

fn start(control: &ControlShared) {
    let Some((path, [_, stop])) = control.destination() else {
        return;
    };
    let next = format!(
        "{} saves the profile as {} and stops the profiler",
        signal_name(stop.number),
        path.display()
    );
    let params = StartParams::default()
        .capacity_bytes(CAPACITY_BYTES)
        .filters(["*"]);
    // Clients of endpoints may have started the running session. It continues without them now.
    match start_for_application(|| SessionPlan::new(&params)?.start_unless(|_| true)) {
        Ok(StartOutcome::Started(_)) => notices::notify(&format!("profiling; {next}")),
        Ok(StartOutcome::Kept(_)) => notices::notify(&format!("already profiling; {next}")),
        Err(error) => notices::notify(&error.to_string()),
    }
}

fn save_and_stop(control: &ControlShared) {
    let Some((path, [start, _])) = control.destination() else {
        return;
    };
    let running = running_generation();
    let Some((generation, profile)) =
        running.and_then(|running| Some((running, freeze(Some(running))?)))
    else {
        let start = signal_name(start.number);
        notices::notify(&format!(
            "cannot save a profile: the profiler is not running; {start} starts it"
        ));
        return;
    };
    match profile.save_at(&default_options(), path) {
        Ok(saved) => {
            stop_generation(generation);
            notices::notify(&format!(
                "stopped; saved the profile as {}",
                saved.display()
            ));
        }
        Err(error) => notices::notify(&format!("{error}; profiling continues")),
    }
}

fn dump_for_signal(control: &ControlShared) {
    let Some(signal) = control.config().dump else {
        return;
    };
    let reason = format!("the signal {}", signal_name(signal.number));
    if let Err(error) = dump_on_main_track(&reason, true) {
        notices::notify(&error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_of_profiles_is_not_expanded() {
        let file = file_in(Path::new("/a%p/%t%n"));
        let name = format!("profile_default_{}.json", std::process::id());
        assert_eq!(file, Path::new("/a%p/%t%n").join(name));
    }
}
