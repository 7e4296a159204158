//! Control from outside: a signal starts the profiler, another saves the profile and stops it.
//!
//! The handlers hand their signals to a thread, which does what anybody could do by the API. The child of a fork has no such
//! thread, and its handlers do nothing until the host asks for it there.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::{ControlSignals, ProcessId, PsCell, PsLock, StartError, StartParams};
use crate::control::environment;
use crate::control::life_cycle::{
    LIFE_CYCLE, ensure_core, running_generation, start_if_inactive, stop_generation,
};
use crate::control::notices;
use crate::control::snapshot::freeze;
use crate::platform::{
    ControlPipe, ControlRequest, ControlSignal, ProfilerThread, check_control_signals, current_process_id,
    give_signal_back, spawn_profiler_thread, take_signal, with_signals_blocked,
};

/// How much is kept of what a signal started.
const CAPACITY_BYTES: u64 = 512 << 20;

/// The signals in use, and the thread that they are handed to.
struct Control {
    process: ProcessId,
    signals: [ControlSignal; 2],
    folder: PathBuf,
    pipe: Arc<ControlPipe>,
    is_ending: Arc<AtomicBool>,
    thread: ProfilerThread,
}

/// What the calling thread has to do with control by signals.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    Serves,
    /// It has served, and ends when it is back.
    Ends,
}

thread_local! {
    static OWN_PART: Cell<Part> = const { Cell::new(Part::None) };
}

/// Changed under the life-cycle lock as well.
static CONTROL: PsCell<Option<Control>> = PsCell::new(None);

/// See `profiler_control_by_signals`.
pub(crate) fn control_by_signals(asked: &ControlSignals) -> Result<(), StartError> {
    let signals = check_control_signals(asked.start_signal, asked.stop_signal)?;
    let folder = environment::upload_folder().or_else(|| asked.folder.clone()).unwrap_or_default();
    // The program may go elsewhere later.
    let folder = std::path::absolute(folder.join("."))
        .map_err(|error| system_error("find the current folder", &error))?;
    ensure_core();
    let turn = LIFE_CYCLE.lock();
    let taken = begin_or_change(signals, folder).and_then(|()| signals.into_iter().try_for_each(take_signal));
    drop(turn);
    if taken.is_err() {
        end_control();
    }
    taken
}

fn system_error(action: &'static str, error: &std::io::Error) -> StartError {
    StartError::System { action, answer: error.to_string() }
}

fn begin_or_change(signals: [ControlSignal; 2], folder: PathBuf) -> Result<(), StartError> {
    {
        let mut lock = PsLock::acquire();
        let process = current_process_id();
        let running = CONTROL.get_mut(&mut lock).as_mut().filter(|control| control.process == process);
        if let Some(control) = running {
            let before = std::mem::replace(&mut control.signals, signals);
            control.folder = folder;
            let unused = before.into_iter().filter(|old| signals.iter().all(|new| new.number != old.number));
            unused.for_each(|signal| give_signal_back(signal.number));
            return Ok(());
        }
    }
    let pipe = ControlPipe::open().map_err(|error| system_error("open a pipe", &error))?;
    let pipe = Arc::new(pipe);
    let is_ending = Arc::new(AtomicBool::new(false));
    let served = (Arc::clone(&pipe), Arc::clone(&is_ending));
    let body = move || serve(&served.0, &served.1);
    let thread = with_signals_blocked(|| spawn_profiler_thread(c"ProfilerControl", body))
        .map_err(|error| system_error("make the control thread", &error))?;
    let control = Control { process: current_process_id(), signals, folder, pipe, is_ending, thread };
    let mut lock = PsLock::acquire();
    let stale = CONTROL.get_mut(&mut lock).replace(control);
    std::mem::forget(stale);
    Ok(())
}

/// Gives the signals back, and waits until what they have asked for is done.
pub(super) fn end_control() {
    let turn = LIFE_CYCLE.lock();
    let control = {
        let mut lock = PsLock::acquire();
        CONTROL.get_mut(&mut lock).take_if(|control| control.process == current_process_id())
    };
    let Some(Control { signals, pipe, is_ending, thread, .. }) = control else { return };
    signals.into_iter().for_each(|signal| give_signal_back(signal.number));
    drop(turn);
    is_ending.store(true, Ordering::Release);
    // The host may be called on that thread, and shut down there.
    if OWN_PART.get() != Part::None {
        OWN_PART.set(Part::Ends);
        return;
    }
    loop {
        match pipe.ask_to_end() {
            Ok(true) => return thread.join(),
            Ok(false) => std::thread::sleep(Duration::from_millis(1)),
            // Nobody can tell it any more.
            Err(_) => return,
        }
    }
}

/// In the child of a fork there is no thread, and the pipe is closed.
pub(super) fn forget_control_in_child(lock: &mut PsLock) {
    std::mem::forget(CONTROL.get_mut(lock).take());
}

/// The control thread. Nothing is started any more when it is about to end.
fn serve(pipe: &ControlPipe, is_ending: &AtomicBool) {
    OWN_PART.set(Part::Serves);
    loop {
        for request in pipe.wait() {
            let answer = match request {
                ControlRequest::Start if is_ending.load(Ordering::Acquire) => continue,
                ControlRequest::Start => start,
                ControlRequest::Stop => save_and_stop,
                ControlRequest::End => return,
            };
            // The host goes on, and the next signal may fare better.
            if catch_unwind(AssertUnwindSafe(answer)).is_err() {
                notices::tell("what the signal asked for failed by an error of the profiler's own");
            }
            if OWN_PART.get() == Part::Ends {
                return;
            }
        }
    }
}

/// Where the profile goes, and the numbers of the signals.
fn destination() -> Option<(PathBuf, [ControlSignal; 2])> {
    let lock = PsLock::acquire();
    let control = CONTROL.get(&lock).as_ref()?;
    let name = format!("profile_default_{}.json", control.process.to_number());
    Some((control.folder.join(name), control.signals))
}

fn start() {
    let Some((path, [_, stop])) = destination() else { return };
    let next = format!("signal {} saves the profile as {} and stops", stop.number, path.display());
    let params = StartParams::default().capacity_bytes(CAPACITY_BYTES).filters(["*"]);
    match start_if_inactive(&params) {
        Ok(Some(_)) => notices::tell(&format!("profiling; {next}")),
        Ok(None) => notices::tell(&format!("already profiling; {next}")),
        Err(error) => notices::tell(&error.to_string()),
    }
}

fn save_and_stop() {
    let Some((path, [start, _])) = destination() else { return };
    let running = running_generation();
    let Some((generation, profile)) = running.and_then(|running| Some((running, freeze(Some(running))?)))
    else {
        let start = start.number;
        notices::tell(&format!(
            "no profile was saved: the profiler is not running; signal {start} starts it"
        ));
        return;
    };
    match profile.save_at(path, environment::wants_names()) {
        Ok(saved) => {
            stop_generation(generation);
            notices::tell(&format!("stopped; the profile was saved as {}", saved.display()));
        }
        Err(error) => notices::tell(&format!("{error}; profiling goes on")),
    }
}
