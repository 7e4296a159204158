//! The running session: the lock under which it begins and ends, its pauses, whose turn it is to
//! start one, and the application's callbacks for changes of its state.
//!
//! Callbacks run without any lock of the profiler, so they may call any function.
//!
//! Only one `ProfilerSession` has a running session. A guard takes its turn before it starts its
//! session, so that two guards never start at the same time. The turn ends when the session ends,
//! for whatever reason: the guard need not return it.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::buffer::{EntryHead, EntryKind};
use crate::platform::{Sender, channel, current_thread_id, monotonic_now};
use crate::session::family::{SessionEvent, notice};
use crate::state::{
    ACTIVE_PS, ActivePs, PauseKind, RacyFeatures, Session, StateCallback, put_entry,
};
use crate::types::{
    Generation, ProfilingState, ProfilingStates, SamplingState, StartError, ThreadId, TimeStamp,
    WhileOtherRuns,
};
use crate::util::{
    LockRank, NamedMutex, PsCell, PsLock, is_any_lock_held_on_current_thread, run_callback,
};
use crate::waiting_tasks::follow_pause;

/// Serializes start, stop and fork. Held while the sampler is joined.
pub(crate) static LIFE_CYCLE: NamedMutex<()> =
    NamedMutex::new("life cycle", LockRank::Lifecycle, ());

/// Returns the generation of the running session.
pub(crate) fn running_generation() -> Option<Generation> {
    running_session().map(|(running, _)| running)
}

/// Returns the running session.
pub(crate) fn running_session() -> Option<(Generation, Arc<Session>)> {
    let lock = PsLock::acquire();
    let active = ACTIVE_PS.get(&lock).as_ref()?;
    Some((active.generation(), active.session()))
}

/// Returns the error for a call that would deadlock, because its thread already holds one of the
/// profiler's locks.
///
/// Such a call comes from code that runs inside the profiler's own work, such as the application's
/// allocator, or from a fork handler of the application that runs between the profiler's own ones.
pub(crate) fn reentrancy_error() -> StartError {
    StartError::System {
        action: "take the profiler's locks",
        answer: "this thread already holds one, because the call comes from within the profiler's \
                 own work or a fork; see profiler_is_locked_on_current_thread"
            .to_owned(),
    }
}

/// See `profiler_pause`.
pub(crate) fn pause() {
    if RacyFeatures::is_active_and_unpaused() && !is_any_lock_held_on_current_thread() {
        notify(ProfilingState::Pausing);
        set_paused(PauseKind::All, true);
    }
}

/// See `profiler_resume`.
pub(crate) fn resume() {
    if set_paused(PauseKind::All, false) {
        notify(ProfilingState::Resumed);
    }
}

/// See `profiler_pause_sampling`. Returns whether that changed anything.
pub(crate) fn pause_sampling() -> bool {
    set_paused(PauseKind::Sampling, true)
}

/// See `profiler_resume_sampling`.
pub(crate) fn resume_sampling() {
    set_paused(PauseKind::Sampling, false);
}

/// Sets or clears a pause, and returns whether that changed anything.
///
/// Holds the `PsLock`, so that the session cannot end during the change.
fn set_paused(kind: PauseKind, paused: bool) -> bool {
    if is_any_lock_held_on_current_thread() {
        return false;
    }
    let lock = PsLock::acquire();
    let Some(session) = ACTIVE_PS.get(&lock).as_ref().map(ActivePs::session) else {
        return false;
    };
    let (entry, event) = match (kind, paused) {
        (PauseKind::All, true) => (EntryKind::Pause, "paused"),
        (PauseKind::All, false) => (EntryKind::Resume, "resumed"),
        (PauseKind::Sampling, true) => (EntryKind::PauseSampling, "sampling paused"),
        (PauseKind::Sampling, false) => (EntryKind::ResumeSampling, "sampling resumed"),
    };
    let is_changed = session.pauses.set(kind, paused, &lock, |now: TimeStamp| {
        let mut head = EntryHead::new(entry);
        put_entry(
            session.generation,
            now,
            &*head.number(now.since_ns(session.process_start)),
        );
    });
    if is_changed {
        notice(SessionEvent::Paused(kind, paused), &lock);
        session.note_pauses();
        follow_pause(monotonic_now(), RacyFeatures::is_sampling_paused());
        session.log.add(event);
    }
    is_changed
}

/// Maximum depth of nested calls: a callback may change the profiler's state, and that change calls
/// the callbacks again.
const MAX_DEPTH: usize = 16;

/// The callbacks that this thread is running, outermost first. It has no destructor, so an exiting
/// thread can use it.
struct CallsInProgress {
    calls: [(u64, Option<ProfilingState>); MAX_DEPTH],
    depth: usize,
}

thread_local! {
    static IN_PROGRESS: RefCell<CallsInProgress> = const { RefCell::new(CallsInProgress { calls: [(0, None); MAX_DEPTH], depth: 0 }) };
}

impl CallsInProgress {
    /// Records a call. Returns false if the same call is already in progress or the maximum depth
    /// is reached.
    fn begin(&mut self, serial: u64, state: ProfilingState) -> bool {
        let call = (serial, Some(state));
        let is_new = self.depth < MAX_DEPTH && !self.calls[..self.depth].contains(&call);
        if is_new {
            self.calls[self.depth] = call;
            self.depth += 1;
        }
        is_new
    }
}

fn call(callback: &StateCallback, state: ProfilingState) {
    if callback.wants(state)
        && IN_PROGRESS.with(|calls| calls.borrow_mut().begin(callback.serial, state))
    {
        run_callback(|| callback.call(state));
        IN_PROGRESS.with(|calls| calls.borrow_mut().depth -= 1);
    }
}

/// Calls all callbacks that are registered for this state.
#[doc(alias = "invoke_profiler_state_change_callbacks")]
pub(crate) fn notify(state: ProfilingState) {
    StateCallback::all()
        .iter()
        .for_each(|callback| call(callback, state));
}

/// See `profiler_add_state_change_callback`.
pub(crate) fn add_state_change_callback(
    states: ProfilingStates,
    id: u64,
    callback: Box<dyn Fn(ProfilingState) + Send + Sync>,
) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    let callback = StateCallback::add(states, id, callback);
    if RacyFeatures::is_active() {
        call(&callback, ProfilingState::AlreadyActive);
    }
}

/// See `profiler_remove_state_change_callback`.
pub(crate) fn remove_state_change_callback(id: u64) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    if id == 0 {
        return;
    }
    StateCallback::remove(id)
        .iter()
        .for_each(|callback| call(callback, ProfilingState::RemovingCallback));
}

/// See `profiler_callback_after_sampling`.
pub(crate) fn callback_after_sampling(callback: Box<dyn FnOnce(SamplingState) + Send>) -> bool {
    if is_any_lock_held_on_current_thread() {
        return false;
    }
    running_session().is_some_and(|(_, session)| session.after_sampling.add(callback).is_ok())
}

/// The guard whose turn it is, or was.
struct Holder {
    /// Distinguishes it from later ones.
    number: u64,
    started_at: &'static Location<'static>,
    /// The thread that started the session.
    thread: ThreadId,
    /// `None` while the session starts.
    generation: Option<Generation>,
}

impl Holder {
    /// Returns whether no other guard may start now. `running` is the running session.
    fn excludes_others(&self, running: Option<Generation>) -> bool {
        self.generation.is_none() || self.generation == running
    }
}

struct Turns {
    holder: Option<Holder>,
    /// The guards that wait. Dropping an item wakes its thread.
    waiting: Vec<Sender<()>>,
}

static TURNS: PsCell<Turns> = PsCell::new(Turns {
    holder: None,
    waiting: Vec::new(),
});

/// The turn of a guard that starts its session. Dropping it without [`Self::begin`] ends the turn.
pub(crate) struct Turn(u64);

impl Turn {
    /// Takes the turn for a call at `started_at`.
    ///
    /// # Errors
    /// [`StartError::SessionRuns`] if it is the turn of another guard and this one is not to wait,
    /// or would wait for its own thread.
    pub(crate) fn take(
        started_at: &'static Location<'static>,
        while_other_runs: WhileOtherRuns,
    ) -> Result<Self, StartError> {
        static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
        if is_any_lock_held_on_current_thread() {
            return Err(reentrancy_error());
        }
        let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
        let thread = current_thread_id();
        loop {
            let (wake, woken) = channel();
            let mut lock = PsLock::acquire();
            let running = ACTIVE_PS.get(&lock).as_ref().map(ActivePs::generation);
            let turns = TURNS.get_mut(&mut lock);
            let other = turns.holder.as_ref();
            let Some(other) = other.filter(|other| other.excludes_others(running)) else {
                turns.holder = Some(Holder {
                    number,
                    started_at,
                    thread,
                    generation: None,
                });
                return Ok(Self(number));
            };
            let is_same_thread = other.thread == thread;
            if is_same_thread || while_other_runs == WhileOtherRuns::Fail {
                return Err(StartError::SessionRuns {
                    started_at: other.started_at,
                    is_same_thread,
                });
            }
            // Under the same lock as the check, so that no end of a turn is missed.
            turns.waiting.push(wake);
            drop(lock);
            woken.receive();
        }
    }

    /// Sets the session, with whose end this turn ends.
    pub(crate) fn begin(self, generation: Generation) {
        self.set(|holder| holder.generation = Some(generation));
        std::mem::forget(self);
    }

    /// Changes the holder, if it is still this guard's turn: a fork has no turns in its child.
    fn set(&self, change: impl FnOnce(&mut Holder)) {
        let mut lock = PsLock::acquire();
        let holder = TURNS.get_mut(&mut lock).holder.as_mut();
        if let Some(holder) = holder.filter(|holder| holder.number == self.0) {
            change(holder);
        }
        drop(lock);
        // The session may have ended before its guard knew it.
        wake_waiting_guards();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lock = PsLock::acquire();
        let turns = TURNS.get_mut(&mut lock);
        turns.holder.take_if(|holder| holder.number == self.0);
        drop(lock);
        wake_waiting_guards();
    }
}

/// Lets the guards that wait look whether it is their turn. Called after each end of a session.
pub(crate) fn wake_waiting_guards() {
    let waiting = std::mem::take(&mut TURNS.get_mut(&mut PsLock::acquire()).waiting);
    // Without the lock, because that wakes threads.
    drop(waiting);
}

/// Forgets whose turn it is in the child of a fork, which has neither the session nor the threads
/// that wait.
pub(crate) fn forget_turns_in_child(lock: &mut PsLock) {
    let turns = TURNS.get_mut(lock);
    turns.holder = None;
    std::mem::forget(std::mem::take(&mut turns.waiting));
}
