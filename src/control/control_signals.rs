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

use crate::base::{
    ControlSignals, ProcessId, PsCell, PsLock, StartError, StartParams,
    is_any_lock_held_on_current_thread,
};
use crate::control::environment;
use crate::control::life_cycle::{
    LIFE_CYCLE, ensure_core, running_generation, start_if_inactive, stop_generation,
    within_own_work,
};
use crate::control::notices;
use crate::control::snapshot::freeze;
use crate::platform::{
    ControlPipe, ControlRequest, ControlSignal, ProfilerThread, check_control_signals,
    current_process_id, give_signal_back, spawn_profiler_thread, take_signal, with_signals_blocked,
};

/// How much is kept of what a signal started.
const CAPACITY_BYTES: u64 = 512 << 20;

/// What the thread and those who tell it share, until both are done with it.
struct Shared {
    pipe: ControlPipe,
    process: ProcessId,
    is_ending: AtomicBool,
    /// Whether the thread is at work.
    is_answering: AtomicBool,
    orders: PsCell<Orders>,
}

/// The signals in use, and where the profile goes.
#[derive(Clone)]
struct Orders {
    signals: [ControlSignal; 2],
    folder: PathBuf,
}

struct Control {
    shared: Arc<Shared>,
    thread: ProfilerThread,
}

thread_local! {
    /// What the calling thread serves, for comparison alone; null where that is nothing, or nothing any more.
    static SERVED: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// Changed under the life-cycle lock as well.
static CONTROL: PsCell<Option<Control>> = PsCell::new(None);

/// See `profiler_control_by_signals`.
pub(crate) fn control_by_signals(asked: &ControlSignals) -> Result<(), StartError> {
    if is_any_lock_held_on_current_thread() {
        return Err(within_own_work());
    }
    take_control(asked, false)
}

/// The same with the defaults, unless the program was first.
pub(super) fn control_by_default_signals() -> Result<(), StartError> {
    take_control(&ControlSignals::default(), true)
}

fn take_control(asked: &ControlSignals, keeps: bool) -> Result<(), StartError> {
    let folder = environment::upload_folder()
        .or_else(|| asked.folder.clone())
        .unwrap_or_default();
    // The program may go elsewhere later.
    let folder = std::path::absolute(folder.join("."))
        .map_err(|error| system_error("find the current folder", &error))?;
    ensure_core();
    let turn = LIFE_CYCLE.lock();
    // A session takes its signal under that lock, and the two must not be the same.
    let signals = check_control_signals(asked.start_signal, asked.stop_signal)?;
    let running = running_control();
    if keeps && running.is_some() {
        return Ok(());
    }
    let orders = Orders { signals, folder };
    let changed = match running {
        Some(running) => {
            running.change(orders);
            Ok(())
        }
        None => begin(orders),
    };
    let taken = changed.and_then(|()| signals.into_iter().try_for_each(take_signal));
    drop(turn);
    if taken.is_err() {
        end_control();
    }
    taken
}

fn system_error(action: &'static str, error: &std::io::Error) -> StartError {
    StartError::System {
        action,
        answer: error.to_string(),
    }
}

/// The control that works, of this process. Under the life-cycle lock.
fn running_control() -> Option<Arc<Shared>> {
    let shared = {
        let lock = PsLock::acquire();
        Arc::clone(&CONTROL.get(&lock).as_ref()?.shared)
    };
    if shared.process != current_process_id() {
        return None;
    }
    let is_whole = shared.pipe.is_whole();
    if !is_whole {
        give_up(&shared);
    }
    is_whole.then_some(shared)
}

fn begin(orders: Orders) -> Result<(), StartError> {
    let pipe = ControlPipe::open().map_err(|error| system_error("open a pipe", &error))?;
    let shared = Arc::new(Shared {
        pipe,
        process: current_process_id(),
        is_ending: AtomicBool::new(false),
        is_answering: AtomicBool::new(false),
        orders: PsCell::new(orders),
    });
    let served = Arc::clone(&shared);
    let thread =
        with_signals_blocked(|| spawn_profiler_thread(c"ProfilerControl", move || served.serve()))
            .map_err(|error| system_error("make the control thread", &error))?;
    let mut lock = PsLock::acquire();
    let stale = CONTROL
        .get_mut(&mut lock)
        .replace(Control { shared, thread });
    // Another process's, whose thread is not here.
    std::mem::forget(stale);
    Ok(())
}

/// Gives the signals back, and waits until what they have asked for is done.
pub(super) fn end_control() {
    let turn = LIFE_CYCLE.lock();
    let control = {
        let mut lock = PsLock::acquire();
        let process = current_process_id();
        CONTROL
            .get_mut(&mut lock)
            .take_if(|control| control.shared.process == process)
    };
    let Some(Control { shared, thread }) = control else {
        return;
    };
    shared.is_ending.store(true, Ordering::Release);
    shared
        .orders()
        .signals
        .into_iter()
        .for_each(|signal| give_signal_back(signal.number));
    drop(turn);
    // The host may be called on that thread, and shut down there. It ends when it is back.
    if SERVED.get() == Arc::as_ptr(&shared) {
        SERVED.set(std::ptr::null());
        return;
    }
    loop {
        match shared.pipe.ask_to_end() {
            Ok(true) => return thread.join(),
            Ok(false) => {}
            // Nobody can tell it any more; where it is at work, it finds out by itself.
            Err(_) if shared.is_answering.load(Ordering::Acquire) => {}
            Err(_) => return,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Parts with a control whose pipe somebody has closed; false if that has been done already. Under the life-cycle lock.
fn give_up(shared: &Arc<Shared>) -> bool {
    shared.pipe.withdraw();
    let control = {
        let mut lock = PsLock::acquire();
        CONTROL
            .get_mut(&mut lock)
            .take_if(|control| Arc::ptr_eq(&control.shared, shared))
    };
    if control.is_some() {
        shared
            .orders()
            .signals
            .into_iter()
            .for_each(|signal| give_signal_back(signal.number));
    }
    control.is_some()
}

/// In the child of a fork there is no thread, and the pipe is closed.
pub(super) fn forget_control_in_child(lock: &mut PsLock) {
    std::mem::forget(CONTROL.get_mut(lock).take());
}

impl Shared {
    fn orders(&self) -> Orders {
        self.orders.get(&PsLock::acquire()).clone()
    }

    fn change(&self, orders: Orders) {
        let signals = orders.signals;
        let before = std::mem::replace(self.orders.get_mut(&mut PsLock::acquire()), orders);
        let is_unused = |old: &ControlSignal| signals.iter().all(|new| new.number != old.number);
        before
            .signals
            .into_iter()
            .filter(is_unused)
            .for_each(|signal| give_signal_back(signal.number));
    }

    /// The control thread. Nothing is started any more when it is about to end.
    fn serve(self: Arc<Self>) {
        SERVED.set(Arc::as_ptr(&self));
        // A callback of the host's may have forked, and be back in the child, where somebody else has the pipe's numbers.
        let serves = || SERVED.get() == Arc::as_ptr(&self) && current_process_id() == self.process;
        while let Ok(requests) = self.pipe.wait() {
            self.is_answering.store(true, Ordering::Release);
            for request in requests {
                let answer = match request {
                    ControlRequest::Start if self.is_ending.load(Ordering::Acquire) => continue,
                    ControlRequest::Start => start,
                    ControlRequest::Stop => save_and_stop,
                    ControlRequest::End => return,
                };
                // The host goes on, and the next signal may fare better.
                if catch_unwind(AssertUnwindSafe(|| answer(&self))).is_err() {
                    notices::tell(
                        "what the signal asked for failed by an error of the profiler's own",
                    );
                }
                if !serves() {
                    return;
                }
            }
            self.is_answering.store(false, Ordering::Release);
        }
        let is_news = {
            let _turn = LIFE_CYCLE.lock();
            give_up(&self)
        };
        if is_news {
            notices::tell(
                "control by signals has ended: somebody has closed its pipe; profiler_control_by_signals begins anew",
            );
        }
    }

    /// Where the profile goes, and the numbers of the signals.
    fn destination(&self) -> (PathBuf, [ControlSignal; 2]) {
        let Orders { signals, folder } = self.orders();
        (
            folder.join(format!("profile_default_{}.json", self.process.to_number())),
            signals,
        )
    }
}

fn start(control: &Shared) {
    let (path, [_, stop]) = control.destination();
    let next = format!(
        "signal {} saves the profile as {} and stops",
        stop.number,
        path.display()
    );
    let params = StartParams::default()
        .capacity_bytes(CAPACITY_BYTES)
        .filters(["*"]);
    match start_if_inactive(&params) {
        Ok(Some(_)) => notices::tell(&format!("profiling; {next}")),
        Ok(None) => notices::tell(&format!("already profiling; {next}")),
        Err(error) => notices::tell(&error.to_string()),
    }
}

fn save_and_stop(control: &Shared) {
    let (path, [start, _]) = control.destination();
    let running = running_generation();
    let Some((generation, profile)) =
        running.and_then(|running| Some((running, freeze(Some(running))?)))
    else {
        let start = start.number;
        notices::tell(&format!(
            "no profile was saved: the profiler is not running; signal {start} starts it"
        ));
        return;
    };
    match profile.save_at(path) {
        Ok(saved) => {
            stop_generation(generation);
            notices::tell(&format!(
                "stopped; the profile was saved as {}",
                saved.display()
            ));
        }
        Err(error) => notices::tell(&format!("{error}; profiling goes on")),
    }
}
