//! The waits of the running session, and their lock.
//!
//! Threads of the application take the lock wherever they poll and drop futures, perhaps inside the
//! application's allocator. So no holder of the lock allocates, frees or waits.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::types::TimeStamp;
use crate::util::{LockRank, NamedMutex, as_profiler_work, is_any_lock_held_on_current_thread};
use crate::waiting_tasks::chain::MAX_POLLS;
use crate::waiting_tasks::waits::{MAX_PART_BYTES, MAX_ROWS, TaskName, WaitLosses, WaitRow, Waits};

/// Numbers of the futures that may wait at the same time, and of different stacks. The memory is
/// allocated at the session's start, about 17 MiB, but the system provides only what is used.
/// Further waits are lost, and counted. The second numbers are for a system without that memory.
const SPACE: [(usize, usize); 2] = [(1 << 17, 1 << 16), (1 << 10, 1 << 10)];
/// Number of waits whose end could not be recorded, as far as the session remembers them.
const MAX_REFUSED: usize = 64;

/// The waits of the running session; `None` if it records none.
static WAITS: NamedMutex<Option<Waits>> =
    NamedMutex::new("waiting tasks", LockRank::WaitingTasks, None);
/// The number of the running session, if it records waits; 0 otherwise.
static SESSION: AtomicU32 = AtomicU32::new(0);
static LAST_SESSION: AtomicU32 = AtomicU32::new(0);
static HAS_ROWS: AtomicBool = AtomicBool::new(false);
/// Waits that have ended where the lock must not be taken: the session in the upper half, the place
/// plus one in the lower one; 0 for none.
static REFUSED_ENDS: [AtomicU64; MAX_REFUSED] = [const { AtomicU64::new(0) }; MAX_REFUSED];
static HAS_REFUSED_ENDS: AtomicBool = AtomicBool::new(false);
/// Number of ends of the running session for which [`REFUSED_ENDS`] had no space.
static FORGOTTEN_ENDS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of the session that records waits; 0 if no session records waits.
#[inline(always)]
pub(super) fn session() -> u32 {
    SESSION.load(Ordering::Relaxed)
}

/// Runs `body` on the waits of the session with this number. Returns `None` if the session has
/// ended, or inside the profiler's own work, where the caller may hold the lock.
pub(super) fn with_waits<T>(of_session: u32, body: impl FnOnce(&mut Waits) -> T) -> Option<T> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    // The application may poll and drop futures inside `parking_lot`, as its allocator may.
    let mut waits = WAITS.lock_by_polling();
    // Under the lock, so that a wait of an ended session is not added to the next one's.
    if session() != of_session {
        return None;
    }
    let waits = waits.as_mut()?;
    forget_refused_ends(of_session, waits);
    let answer = body(waits);
    if !waits.rows.is_empty() {
        HAS_ROWS.store(true, Ordering::Relaxed);
    }
    Some(answer)
}

/// Ends a wait.
pub(super) fn end_wait(of_session: u32, place: u32, now: TimeStamp) {
    if with_waits(of_session, |waits| waits.end(place, now)).is_some() || session() != of_session {
        return;
    }
    let refused = u64::from(of_session) << 32 | u64::from(place);
    let fill = |slot: &AtomicU64| {
        slot.compare_exchange(0, refused, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    };
    // Without a free slot, the wait seems to last until the session ends.
    if REFUSED_ENDS.iter().any(fill) {
        HAS_REFUSED_ENDS.store(true, Ordering::Release);
    } else {
        FORGOTTEN_ENDS.fetch_add(1, Ordering::Relaxed);
    }
}

#[inline]
fn forget_refused_ends(of_session: u32, waits: &mut Waits) {
    if !HAS_REFUSED_ENDS.load(Ordering::Relaxed) {
        return;
    }
    // A slot that is filled from here on sets it again.
    HAS_REFUSED_ENDS.swap(false, Ordering::Acquire);
    for slot in &REFUSED_ENDS {
        let refused = slot.swap(0, Ordering::Relaxed);
        if refused >> 32 == u64::from(of_session) {
            waits.forget(refused as u32);
        }
    }
}

/// Begins to record waits. Without enough memory, no wait is recorded.
pub(crate) fn begin_waits() {
    let with = |(max_waiting, max_stacks)| Waits::with_space(max_waiting, max_stacks);
    let mut fresh = as_profiler_work(|| SPACE.into_iter().find_map(with));
    let mut number = LAST_SESSION.fetch_add(1, Ordering::Relaxed) + 1;
    if number == 0 {
        number = LAST_SESSION.fetch_add(1, Ordering::Relaxed) + 1;
    }
    let mut waits = WAITS.lock_by_polling();
    std::mem::swap(&mut *waits, &mut fresh);
    HAS_ROWS.store(false, Ordering::Relaxed);
    FORGOTTEN_ENDS.store(0, Ordering::Relaxed);
    if waits.is_some() {
        SESSION.store(number, Ordering::Relaxed);
    }
    drop(waits);
    as_profiler_work(|| drop(fresh));
}

/// Ends recording, and forgets all waits.
pub(crate) fn end_waits() {
    if session() == 0 {
        return;
    }
    let mut waits = WAITS.lock_by_polling();
    SESSION.store(0, Ordering::Relaxed);
    let forgotten = waits.take();
    drop(waits);
    as_profiler_work(|| drop(forgotten));
}

/// Ends recording in the child of a fork. Takes no lock.
pub(crate) fn end_waits_in_child() {
    SESSION.store(0, Ordering::Relaxed);
}

/// Forgets the parent's waits in the child of a fork.
pub(crate) fn forget_waits_in_child() {
    WAITS.renew_in_child(None);
}

/// Returns whether there are rows for the sampler.
pub(crate) fn has_wait_rows() -> bool {
    HAS_ROWS.load(Ordering::Relaxed)
}

/// Swaps the rows that have been added since the last call with `rows`, which is empty. Does
/// nothing without memory.
pub(crate) fn swap_wait_rows(rows: &mut Vec<WaitRow>) {
    // The memory becomes that of the session's next rows.
    if rows.capacity() < MAX_ROWS && rows.try_reserve_exact(MAX_ROWS).is_err() {
        return;
    }
    if let Some(waits) = WAITS.lock_by_polling().as_mut() {
        std::mem::swap(&mut waits.rows, rows);
        HAS_ROWS.store(false, Ordering::Relaxed);
    }
}

/// Follows a pause of recording, or its end.
pub(crate) fn follow_pause(now: TimeStamp, is_paused: bool) {
    if session() == 0 {
        return;
    }
    if let Some(waits) = WAITS.lock_by_polling().as_mut() {
        waits.set_paused(now, is_paused);
        HAS_ROWS.store(true, Ordering::Relaxed);
    }
}

/// The names of a stack, in memory that is reused.
#[derive(Debug, Default)]
pub(crate) struct StackNames {
    texts: String,
    /// Lengths of the label and the other text of each name, innermost first.
    lengths: Vec<(usize, usize)>,
}

impl StackNames {
    /// Reads the names of a stack of the running session. Returns false without memory.
    pub(crate) fn read(&mut self, stack: u32) -> bool {
        self.texts.clear();
        self.lengths.clear();
        // Allocates now, because no holder of the lock allocates.
        let has_memory = self.lengths.try_reserve(MAX_POLLS).is_ok()
            && self
                .texts
                .try_reserve(MAX_POLLS * 2 * MAX_PART_BYTES)
                .is_ok();
        if !has_memory {
            return false;
        }
        let waits = WAITS.lock_by_polling();
        let Some(waits) = waits.as_ref() else {
            return false;
        };
        waits.stacks.visit_names(stack, |name| {
            if self.lengths.len() < MAX_POLLS {
                self.texts.push_str(name.label);
                self.texts.push_str(name.dynamic);
                self.lengths.push((name.label.len(), name.dynamic.len()));
            }
        });
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.lengths.len()
    }

    pub(crate) fn text_bytes(&self) -> usize {
        self.texts.len()
    }

    /// Calls `visit` with each name, outermost first.
    pub(crate) fn visit(&self, mut visit: impl FnMut(TaskName<'_>)) {
        let mut end = self.texts.len();
        for &(label, dynamic) in self.lengths.iter().rev() {
            let [begin, middle] = [end - label - dynamic, end - dynamic];
            visit(TaskName {
                label: &self.texts[begin..middle],
                dynamic: &self.texts[middle..end],
            });
            end = begin;
        }
    }
}

/// Adds rows for the waits that last, so that a long one has a row now and then.
pub(crate) fn account_waits(now: TimeStamp) {
    with_waits(session(), |waits| waits.account(now));
}

/// Adds rows for everything that no row has, and intervals for the waits that last. Returns false
/// if there was not enough space: the caller takes the rows, and calls this again.
pub(crate) fn account_all_waits(now: TimeStamp) -> bool {
    with_waits(session(), |waits| waits.account_all(now)).unwrap_or(true)
}

/// Returns what the session's profile lacks.
pub(crate) fn wait_losses() -> WaitLosses {
    let waits = WAITS.lock_by_polling();
    let losses = waits.as_ref().map(Waits::losses).unwrap_or_default();
    WaitLosses {
        waits: losses.waits + FORGOTTEN_ENDS.load(Ordering::Relaxed),
        ..losses
    }
}
