//! Saves the last profile at every end of the process that can be noticed.
//!
//! The thread on which the process ends only asks a thread of the profiler, and waits
//! (`platform/process_end/gate.rs`). The profiler's thread sleeps until then. It takes no
//! life-cycle lock, so a start or stop in progress does not delay it. It calls no state-change
//! callback.
//!
//! There is neither thread nor handler unless the variables or the application ask for a file or a
//! report at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::platform::{
    EndRequest, ProfilerThread, WaitEnd, begin_save, close_gate, current_process_id, die_by_signal,
    finish_save, install_exit_handler, is_gate_open, is_saving_thread, open_gate,
    prepare_control_signals, release_end_signals, request_save, serve_gate, signal_survived,
    spawn_profiler_thread, take_end_signals, wait_for_request, wait_for_running_save,
    wait_for_save, with_signals_blocked,
};
use crate::sampler::close_gate_at_exit;
use crate::session::env::{env_notices, environment};
use crate::session::family_events::family;
use crate::session::last_profile::use_last_profile;
use crate::session::notices;
use crate::session::running::{LIFE_CYCLE, reentrancy_error};
use crate::session::shutdown_file::claim;
use crate::session::start_stop::ensure_core;
use crate::types::{ProcessId, StartError};
use crate::util::{PsCell, PsLock, is_any_lock_held_on_current_thread};

/// The thread that saves at the end.
struct Server {
    process: ProcessId,
    thread: ProfilerThread,
    /// Whether signals that end the process are handled, too.
    takes_signals: bool,
}

/// The current server. A thread that changes it also holds the life-cycle lock.
static SERVER: PsCell<Option<Server>> = PsCell::new(None);

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
    watch_ends_if_asked()
}

/// Makes the process save its last profile at its end, if the variables or the application ask for
/// that.
///
/// # Errors
/// [`StartError::System`] if the operating system refuses a thread or a handler.
pub(crate) fn watch_ends_if_asked() -> Result<(), StartError> {
    match environment::uses_profile_at_shutdown() {
        true => watch_ends(true),
        false => Ok(()),
    }
}

/// As [`watch_ends_if_asked`], before `main`. Leaves the signals alone until the application
/// initializes the profiler: it may install a handler only where it finds none.
pub(crate) fn watch_ends_early_if_asked() -> Result<(), StartError> {
    match environment::uses_profile_at_shutdown() {
        true => watch_ends(false),
        false => Ok(()),
    }
}

/// Makes the process hand its last profile to its parent process, or save it, at its end.
///
/// # Errors
/// Those of [`watch_ends_if_asked`].
pub(crate) fn watch_ends_for_parent() -> Result<(), StartError> {
    watch_ends(true)
}

/// Makes a normal end of the process say that a session was left running.
pub(crate) fn watch_exit() {
    install_exit_handler(at_exit);
}

fn watch_ends(takes_signals: bool) -> Result<(), StartError> {
    watch_exit();
    // Without a lock: it may wait for the loader.
    prepare_control_signals();
    let _guard = LIFE_CYCLE.lock();
    let process = current_process_id();
    let took_signals = {
        let mut lock = PsLock::acquire();
        let server = SERVER.get_mut(&mut lock).as_mut();
        let running = server.filter(|server| server.process == process);
        running.map(|server| {
            let took = server.takes_signals;
            server.takes_signals |= takes_signals;
            took
        })
    };
    if let Some(took_signals) = took_signals {
        return match takes_signals && !took_signals {
            true => take_end_signals(),
            false => Ok(()),
        };
    }
    open_gate();
    let thread = with_signals_blocked(|| spawn_profiler_thread(c"ProfilerExit", serve)).map_err(
        |error| {
            close_gate();
            StartError::System {
                action: "create the thread that saves at exit",
                answer: error.to_string(),
            }
        },
    )?;
    let server = Server {
        process,
        thread,
        takes_signals,
    };
    let stale = SERVER.get_mut(&mut PsLock::acquire()).replace(server);
    // Leaked: it belongs to the parent process, and its thread does not exist here.
    std::mem::forget(stale);
    match takes_signals {
        true => take_end_signals(),
        false => Ok(()),
    }
}

/// Restores the signals' default actions, and ends the server. A signal that has arrived before
/// ends the process.
pub(crate) fn stop_watching_ends() {
    if is_saving_thread() {
        return;
    }
    let guard = LIFE_CYCLE.lock();
    let process = current_process_id();
    let server = SERVER
        .get_mut(&mut PsLock::acquire())
        .take_if(|server| server.process == process);
    let Some(Server { thread, .. }) = server else {
        return;
    };
    release_end_signals();
    close_gate();
    drop(guard);
    // The server may be stuck in a save.
    match wait_for_running_save() {
        WaitEnd::Saved => thread.join(),
        WaitEnd::Stuck(_) => drop(thread),
    }
}

/// Runs the server.
fn serve() {
    serve_gate();
    loop {
        let EndRequest { signal, closes } = wait_for_request();
        if signal.is_some() || !closes {
            save_here_or_wait();
        }
        if let Some(signal) = signal {
            if let Some(family) = family() {
                family.clean_up_at_exit();
            }
            die_by_signal(signal);
            // The kernel has spared the process, as it would have without the profiler.
            signal_survived();
            if !closes {
                let _ = take_end_signals();
            }
        }
        if closes {
            return;
        }
    }
}

fn save_here_or_wait() {
    if begin_save() {
        run_save(use_last_profile);
    } else {
        wait_for_save(true);
    }
}

/// Runs the save that this thread has begun.
fn run_save(save: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(save)).is_err() {
        notices::notify("cannot save the profile: the profiler panicked");
    }
    finish_save();
}

/// Saves the last profile, unless that is done or in progress: then waits for it. If a signal is to
/// end the process, waits until it does.
pub(crate) fn save_once() {
    if !is_gate_open() {
        return use_last_profile();
    }
    if is_saving_thread() {
        return;
    }
    if begin_save() {
        run_save(use_last_profile);
    }
    if let WaitEnd::Stuck(Some(signal)) = wait_for_save(false) {
        die_by_signal(signal);
    }
}

/// Runs on the thread that calls `exit`, whose thread-locals may be gone.
fn at_exit() {
    close_gate_at_exit();
    if let Some(family) = family() {
        family.clean_up_at_exit();
    }
    if !is_gate_open() {
        env_notices::notify_if_left_running();
        return;
    }
    if is_saving_thread() {
        return;
    }
    // The thread has called `exit` in a signal handler that interrupted the profiler: the save
    // would wait for this thread's lock, and this thread for the save.
    if is_any_lock_held_on_current_thread() {
        return notices::notify_stuck_at_exit();
    }
    request_save();
    match wait_for_save(false) {
        WaitEnd::Saved => {}
        WaitEnd::Stuck(Some(signal)) => die_by_signal(signal),
        WaitEnd::Stuck(None) => notices::notify_stuck_at_exit(),
    }
}
