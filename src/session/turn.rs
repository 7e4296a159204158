//! Decides which `ProfilerSession` may start: only one of them has a running session.
//!
//! A guard takes its turn before it starts its session, so that two guards never start at the same
//! time. The turn ends when the session ends, for whatever reason: the guard need not return it.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::platform::{Sender, channel, current_thread_id};
use crate::session::running::reentrancy_error;
use crate::state::{ACTIVE_PS, ActivePs};
use crate::types::{Generation, StartError, ThreadId, WhileOtherRuns};
use crate::util::{PsCell, PsLock, is_any_lock_held_on_current_thread};

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
pub(super) struct Turn(u64);

impl Turn {
    /// Takes the turn for a call at `started_at`.
    ///
    /// # Errors
    /// [`StartError::SessionRuns`] if it is the turn of another guard and this one is not to wait,
    /// or would wait for its own thread.
    pub(super) fn take(
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
    pub(super) fn begin(self, generation: Generation) {
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
pub(super) fn wake_waiting_guards() {
    let waiting = std::mem::take(&mut TURNS.get_mut(&mut PsLock::acquire()).waiting);
    // Without the lock, because that wakes threads.
    drop(waiting);
}

/// Forgets whose turn it is in the child of a fork, which has neither the session nor the threads
/// that wait.
pub(super) fn forget_turns_in_child(lock: &mut PsLock) {
    let turns = TURNS.get_mut(lock);
    turns.holder = None;
    std::mem::forget(std::mem::take(&mut turns.waiting));
}
