//! Begins and ends pushing.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::platform::{
    Receiver, Sender, channel, current_process_id, prepare_to_wait_as_loader_call,
    spawn_profiler_thread, use_own_descriptors, with_signals_blocked,
};
use crate::pushing::cutter::{Command, Cutter};
use crate::pushing::exchange::Transport;
use crate::pushing::queue::{Item, Queue};
use crate::pushing::sender::{BackOff, Connector, Job, Progress, Sender as PushSender, Stage};
use crate::pushing::target::Target;
use crate::session::{
    WindowCutter, add_state_change_callback, check_session, freeze_window, notify,
    push_settings_of_variables, remove_state_change_callback,
};
use crate::types::{ProcessId, ProfilingState, PushCounts, PushError, PushSettings, StartParams};
use crate::util::{PsCell, PsLock, is_any_lock_held_on_current_thread};

/// Maximum time that [`push`] waits until the queue is open. The new thread may wait for the loader,
/// whose lock the caller may hold.
const MAX_UNTIL_OPEN: Duration = Duration::from_secs(2);
/// Maximum time for the last profile to be written and sent.
const MAX_UNTIL_SENT: Duration = Duration::from_millis(400);
/// Maximum time that [`RunningPush::stop`] waits for the threads.
const MAX_UNTIL_ENDED: Duration = Duration::from_millis(900);
/// The id of the callback for the end of a session: "gekkota" and a number.
const CALLBACK: u64 = u64::from_be_bytes(*b"gekkota\x02");
/// Capacity of a session that only the pusher wants.
const CAPACITY_BYTES: u64 = 32 << 20;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);

/// A pusher, as other threads see it.
#[derive(Debug)]
pub(crate) struct RunningPush {
    process: ProcessId,
    progress: Arc<Progress>,
    commands: Arc<Sender<Command>>,
    /// Closed once the sender and the cutter have ended.
    ended: Receiver<()>,
    is_stopped: AtomicBool,
}

/// The pusher of this process.
static RUNNING: PsCell<Option<Arc<RunningPush>>> = PsCell::new(None);

/// Begins to push profiles. The child of a fork pushes none until it calls this.
///
/// # Errors
/// See `profiler_push`.
pub(crate) fn push(settings: &PushSettings) -> Result<Arc<RunningPush>, PushError> {
    if is_any_lock_held_on_current_thread() {
        return Err(PushError::Reentrant);
    }
    let target = Target::new(settings)?;
    let transport = Transport::new(&target.address, settings)?;
    let interval = checked_interval(settings.interval)?;
    let params = StartParams::default()
        .interval(Duration::from_secs(1) / settings.hz.max(1))
        .max_cpu_percent(1.0)
        .capacity_bytes(CAPACITY_BYTES);
    let (commands, receive_commands) = channel();
    let (end, ended) = channel();
    let running = Arc::new(RunningPush {
        process: current_process_id(),
        progress: Arc::default(),
        commands: Arc::new(commands),
        ended,
        is_stopped: AtomicBool::new(false),
    });
    if !running.become_only_one() {
        return Err(PushError::AlreadyPushing);
    }
    let begun = begin(
        settings,
        (target, transport),
        interval,
        params,
        &running,
        receive_commands,
        end,
    );
    if begun.is_err() {
        running.forget();
    }
    begun.map(|()| running)
}

/// Begins to push profiles if a variable asks for it, unless the process does already. A notice says
/// why not.
pub(crate) fn push_of_variables() {
    let is_running = || {
        let running = RUNNING.get(&PsLock::acquire()).clone();
        running.is_some_and(|running| running.process == current_process_id())
    };
    if is_any_lock_held_on_current_thread() || is_running() {
        return;
    }
    let pushed = push_settings_of_variables().map(|settings| push_or_do_without_folder(settings?));
    if let Some(Err(error)) = pushed {
        notify(&error.to_string());
    }
}

/// A child process inherits the variables, and its parent uses the folder.
fn push_or_do_without_folder(mut settings: PushSettings) -> Result<(), PushError> {
    match push(&settings) {
        Err(PushError::Queue { path, error }) if error.kind() == ErrorKind::WouldBlock => {
            notify(&format!(
                "another process uses the folder {}; profiles wait in memory",
                path.display()
            ));
            settings.queue_folder = None;
            push(&settings).map(drop)
        }
        pushed => pushed.map(drop),
    }
}

/// Ends pushing, if the process does so: see [`RunningPush::stop`].
pub(crate) fn stop_pushing() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    let running = RUNNING.get(&PsLock::acquire()).clone();
    if let Some(running) = running {
        running.stop();
    }
}

fn checked_interval(interval: Duration) -> Result<Duration, PushError> {
    match (SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
        true => Ok(interval),
        false => Err(PushError::BadValue {
            field: "interval",
            value: format!("{interval:?}"),
            accepted: "0.1 seconds to 1 hour",
        }),
    }
}

fn begin(
    settings: &PushSettings,
    (target, transport): (Target, Transport),
    interval: Duration,
    params: StartParams,
    running: &RunningPush,
    commands: Receiver<Command>,
    end: Sender<()>,
) -> Result<(), PushError> {
    let (jobs, receive_jobs) = channel();
    let (is_open, opens) = channel();
    let (notices, receive_notices) = channel();
    let jobs = Arc::new(jobs);
    let progress = Arc::clone(&running.progress);
    let run_sender = {
        let (jobs, progress, target) = (Arc::clone(&jobs), Arc::clone(&progress), target.clone());
        let (folder, max_bytes) = (settings.queue_folder.clone(), settings.queue_bytes);
        move || {
            use_own_descriptors();
            let connector = Connector {
                target: target.clone(),
                transport,
                progress: Arc::clone(&progress),
            };
            let opened = open_queue(folder, max_bytes)
                .and_then(|opened| Ok((opened, begin_to_connect(connector, jobs)?)));
            match opened {
                Err(error) => {
                    let words = error.to_string();
                    // The caller has not waited for so long.
                    if !is_open.send(Err(error)) {
                        notices.send(words);
                    }
                }
                Ok(((queue, dropped), items)) => {
                    progress.dropped.add(dropped);
                    progress.waiting.set(queue.len() as u64);
                    is_open.send(Ok(()));
                    drop(is_open);
                    let sender = PushSender {
                        target,
                        jobs: receive_jobs,
                        items,
                        queue,
                        progress,
                        stage: Stage::Idle,
                        back_off: BackOff::default(),
                        until: None,
                        is_away_told: false,
                        refusal_told: None,
                        #[cfg(feature = "otlp-unstable")]
                        is_rejection_told: false,
                        notices,
                    };
                    sender.run();
                }
            }
        }
    };
    let spawn = || spawn_profiler_thread(c"ProfilerPush", run_sender);
    drop(with_signals_blocked(spawn).map_err(PushError::System)?);
    if let Some(opened) = opens.receive_within(MAX_UNTIL_OPEN) {
        opened?;
    }
    drop(opens);
    let end_sender = |error| {
        jobs.send(Job::End(Instant::now()));
        error
    };
    let windows = WindowCutter::join(&params).map_err(|error| end_sender(error.into()))?;
    let cutter = Cutter {
        params,
        interval,
        windows: Some(windows),
        target,
        jobs: Arc::clone(&jobs),
        progress,
        is_changing: false,
        starts_at_once: false,
        last: None,
        is_told: false,
        is_loss_told: false,
        max_bytes: settings.queue_bytes,
        is_over: false,
    };
    let jobs = Arc::clone(&jobs);
    let held = Arc::clone(&running.commands);
    let run_cutter = move || {
        // Dropped last: it tells that the threads have ended, also if this one panics.
        let _end = end;
        prepare_to_wait_as_loader_call();
        // The channel stays open as long as it is read.
        let _held = held;
        let end_of_cutter = EndOfCutter(Arc::clone(&jobs));
        cutter.run(&commands, &receive_notices);
        drop(end_of_cutter);
        // Until the sender has ended.
        while let Some(notice) = receive_notices.receive() {
            notify(&notice);
        }
    };
    let spawn = || spawn_profiler_thread(c"ProfilerCutter", run_cutter);
    drop(with_signals_blocked(spawn).map_err(|error| end_sender(PushError::System(error)))?);
    let commands = Arc::clone(&running.commands);
    let process = running.process;
    let before_end = move |state| {
        if state == ProfilingState::Stopping
            && process == current_process_id()
            && let Some(window) = freeze_window()
        {
            commands.send(Command::Cut(Box::new(window)));
        }
    };
    add_state_change_callback(
        ProfilingState::Stopping.into(),
        CALLBACK,
        Box::new(before_end),
    );
    Ok(())
}

fn open_queue(folder: Option<PathBuf>, max_bytes: u64) -> Result<(Queue, u64), PushError> {
    Queue::open(folder.as_deref(), max_bytes).map_err(|error| {
        let path = folder.unwrap_or_default();
        PushError::Queue { path, error }
    })
}

/// Begins the connector, in the descriptor table of the sender. It ends with the channel.
fn begin_to_connect(
    connector: Connector,
    jobs: Arc<Sender<Job>>,
) -> Result<Sender<Item>, PushError> {
    let (items, receive_items) = channel();
    let run = move || connector.run(&receive_items, &jobs);
    spawn_profiler_thread(c"ProfilerConnect", run).map_err(PushError::System)?;
    Ok(items)
}

/// Tells the sender to end when it is dropped, also if the cutter panics.
struct EndOfCutter(Arc<Sender<Job>>);

impl Drop for EndOfCutter {
    fn drop(&mut self) {
        self.0.send(Job::End(Instant::now() + MAX_UNTIL_SENT));
    }
}

impl RunningPush {
    /// Returns false if the process has another pusher.
    fn become_only_one(self: &Arc<Self>) -> bool {
        // Declared before the lock, so that it is dropped after the lock is released.
        let stale;
        let mut lock = PsLock::acquire();
        let running = RUNNING.get_mut(&mut lock);
        if running
            .as_ref()
            .is_some_and(|running| running.process == self.process)
        {
            return false;
        }
        stale = running.replace(Arc::clone(self));
        // Leaked: it belongs to the parent process, and its threads do not exist here.
        std::mem::forget(stale);
        true
    }

    fn forget(self: &Arc<Self>) {
        let is_this = |running: &mut Arc<Self>| Arc::ptr_eq(running, self);
        let taken = RUNNING.get_mut(&mut PsLock::acquire()).take_if(is_this);
        drop(taken);
    }

    /// Returns what has become of the profiles so far.
    pub(crate) fn counts(&self) -> PushCounts {
        self.progress.counts()
    }

    /// Sets the time between two profiles.
    ///
    /// # Errors
    /// [`PushError::BadValue`]
    pub(crate) fn set_interval(&self, interval: Duration) -> Result<(), PushError> {
        let interval = checked_interval(interval)?;
        if self.process == current_process_id() {
            self.commands.send(Command::Interval(interval));
        }
        Ok(())
    }

    /// Sets the parameters of the sessions that the pusher starts.
    ///
    /// # Errors
    /// [`PushError::Start`]
    pub(crate) fn set_session(&self, params: StartParams) -> Result<(), PushError> {
        check_session(&params)?;
        if self.process == current_process_id() {
            self.commands.send(Command::Session(Box::new(params)));
        }
        Ok(())
    }

    /// Writes the last profile, sends what waits or leaves it in the folder, and ends the threads.
    /// Waits for them for less than a second. A thread that takes longer ends later.
    pub(crate) fn stop(self: &Arc<Self>) {
        let is_usable =
            self.process == current_process_id() && !is_any_lock_held_on_current_thread();
        if !is_usable {
            return;
        }
        if self.is_stopped.swap(true, Ordering::AcqRel) {
            // Another thread stops it, or has done so.
            if !self.progress.has_ended.load(Ordering::Acquire) {
                self.ended.receive_within(MAX_UNTIL_ENDED);
            }
            return;
        }
        self.commands.send(Command::End);
        self.ended.receive_within(MAX_UNTIL_ENDED);
        // From now on, another pusher may have the samples.
        self.progress.has_ended.store(true, Ordering::Release);
        // After the end of the pusher's session, whose last window it passes on.
        remove_state_change_callback(CALLBACK);
        self.forget();
    }
}
