//! Saves the last profile at every end of the process that can be noticed.
//!
//! The thread on which the process ends only asks a thread of the profiler, and waits
//! (`platform/process_end/gate.rs`). The profiler's thread sleeps until then. It takes no
//! life-cycle lock, so a start or stop in progress does not delay it. It calls no state-change
//! callback.
//!
//! There is neither thread nor handler unless the variables or the application ask for a file or a
//! report at the end.

use std::panic::catch_unwind;
use std::path::Path;

use crate::platform::{
    EndRequest, ProfilerThread, StandardStream, WaitEnd, begin_save, close_gate,
    current_process_id, die_by_signal, finish_save, install_exit_handler, is_gate_open,
    is_saving_thread, open_gate, prepare_control_signals, release_end_signals, request_save,
    serve_gate, signal_survived, spawn_profiler_thread, take_end_signals, wait_for_request,
    wait_for_running_save, wait_for_save, with_signals_blocked,
};
use crate::sampler::close_gate_at_exit;
use crate::session::env::{env_notices, environment, look_on, notices};
use crate::session::family::{Family, family};
use crate::session::running::LIFE_CYCLE;
use crate::session::saving::crash_file;
use crate::session::saving::save::expand_path;
use crate::session::saving::shutdown_file::{destination, has_own_id, is_forked, note_saved};
use crate::session::saving::snapshot::{FrozenProfile, freeze_unnoticed, take_kept};
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

/// Makes the process save its last profile at its end, if the variables or the application ask for
/// that. Before `main`, `takes_signals` is false, which leaves the signals alone until the application
/// initializes the profiler: it may install a handler only where it finds none.
///
/// # Errors
/// [`StartError::System`] if the operating system refuses a thread or a handler.
pub(crate) fn watch_ends_if_asked(takes_signals: bool) -> Result<(), StartError> {
    match environment::uses_profile_at_shutdown() {
        true => watch_ends(takes_signals),
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
        run_save();
    } else {
        wait_for_save(true);
    }
}

/// Runs the save that this thread has begun.
fn run_save() {
    if catch_unwind(use_last_profile).is_err() {
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
        run_save();
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

/// Saves and reports the last profile, as far as the variables or the application ask for it: that
/// of the running session, or of the last `ProfilerSession` that ended.
fn use_last_profile() {
    let kept = take_kept();
    let parent = family().filter(|family| family.has_parent());
    if !environment::uses_profile_at_shutdown() && parent.is_none() {
        return;
    }
    let profile = freeze_unnoticed(None).or(kept);
    let hand_over = |parent: &dyn Family| {
        let profile = profile.clone();
        profile.is_some_and(|profile| parent.hand_over(profile.at_shutdown().source))
    };
    let is_handed_over = parent.is_some_and(hand_over);
    // Without a %p, the file is the parent's, which has this profile in its own.
    let path = environment::shutdown_path().filter(|path| !is_handed_over || has_own_id(path));
    if path.is_none() && !environment::wants_report() {
        return;
    }
    match profile {
        None => env_notices::notify_no_profile_at_shutdown(path.as_deref(), is_forked()),
        Some(profile) => save_and_report(profile.at_shutdown(), path.as_deref()),
    }
}

/// Saves the profile at `path`, and then prints the report that the environment asks for.
fn save_and_report(profile: FrozenProfile, path: Option<&Path>) {
    let reported = environment::wants_report().then(|| profile.clone());
    if let Some(asked) = path {
        let (path, reason) = destination(asked);
        match profile.save_at_shutdown(&path) {
            Ok(saved) => {
                crash_file::remove();
                if reason.is_none() {
                    // The saved path may lack symbolic links of the one that was asked for.
                    note_saved(&expand_path(asked));
                }
                let reason = reason.map(|reason| format!(", {reason}"));
                notices::notify(&format!(
                    "saved the profile as {}{}",
                    saved.display(),
                    reason.unwrap_or_default()
                ));
            }
            Err(error) => notices::notify(&error.to_string()),
        }
    }
    let look = || look_on(StandardStream::Error);
    match reported.map(|profile| profile.report(look())) {
        None => {}
        Some(Ok(report)) => env_notices::print_report(&report),
        Some(Err(error)) => notices::notify(&format!("cannot print a report: {error}")),
    }
}
