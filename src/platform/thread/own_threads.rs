//! The ids of the profiler's own threads, which are not sampled.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::platform::clock::system_clock::monotonic_now;
use crate::platform::identity::current_thread_id;
use crate::types::{ThreadId, TimeStamp};

/// Maximum number of threads that are known. The profiler has some ten at most. The other entries
/// are of threads that have just ended.
const MAX_THREADS: usize = 256;

/// Time after which a thread that has left its entry has surely ended, in ns. On a busy machine, it
/// may have to wait before it can end.
const ENDING_NS: u64 = 5_000_000_000;

static THREADS: [Entry; MAX_THREADS] = [const { Entry::new() }; MAX_THREADS];
/// Number of threads that were created and have not entered their ids yet.
static BEGINNING: AtomicU32 = AtomicU32::new(0);

/// The entry of a thread. The system lists a thread for a moment after it has left its entry.
#[derive(Debug)]
struct Entry {
    is_used: AtomicBool,
    /// The id of the thread that has or had the entry; 0 if there was none.
    id: AtomicI32,
    /// When the thread has left the entry, in ns; 0 while it has it.
    left_at_ns: AtomicU64,
}

impl Entry {
    const fn new() -> Self {
        Self {
            is_used: AtomicBool::new(false),
            id: AtomicI32::new(0),
            left_at_ns: AtomicU64::new(0),
        }
    }

    fn take(&self, id: i32) -> bool {
        let is_taken = !self.is_used.swap(true, Ordering::SeqCst);
        if is_taken {
            self.id.store(id, Ordering::SeqCst);
            self.left_at_ns.store(0, Ordering::SeqCst);
        }
        is_taken
    }

    fn leave(&self, now: TimeStamp) {
        self.left_at_ns.store(now.0.max(1), Ordering::SeqCst);
        self.is_used.store(false, Ordering::SeqCst);
    }

    /// Returns whether the thread with this id has the entry, or has just left it.
    fn is_of(&self, id: i32, now: TimeStamp) -> bool {
        let left_at = TimeStamp(self.left_at_ns.load(Ordering::SeqCst));
        let may_exist = self.is_used.load(Ordering::SeqCst) || now.since_ns(left_at) < ENDING_NS;
        may_exist && self.id.load(Ordering::SeqCst) == id
    }
}

/// Takes the entry that was left first: the thread that left it has most likely ended. Returns `None`
/// if all are used.
fn take_oldest(entries: &[Entry], id: i32) -> Option<&Entry> {
    loop {
        let oldest = entries
            .iter()
            .filter(|entry| !entry.is_used.load(Ordering::SeqCst))
            .min_by_key(|entry| entry.left_at_ns.load(Ordering::SeqCst))?;
        // Another thread may have been faster.
        if oldest.take(id) {
            return Some(oldest);
        }
    }
}

/// A thread of the profiler that is about to be created. If it is not created, this is dropped.
#[derive(Debug)]
pub(super) struct BeginningThread(());

/// The entry of a thread of the profiler. The thread leaves it when this is dropped.
#[derive(Debug)]
pub(super) struct OwnThread(Option<&'static Entry>);

impl BeginningThread {
    pub(super) fn new() -> Self {
        BEGINNING.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    /// Enters the id of the calling thread, which is the one that was created.
    pub(super) fn enter(self) -> OwnThread {
        let id = current_thread_id().to_number();
        OwnThread(take_oldest(&THREADS, id))
    }
}

impl Drop for BeginningThread {
    fn drop(&mut self) {
        BEGINNING.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if let Some(entry) = self.0 {
            entry.leave(monotonic_now());
        }
    }
}

/// Returns whether a thread of the profiler has begun and is not known yet. If not, every thread of
/// the profiler that a list contained which was read before this call is known.
pub(crate) fn is_own_thread_beginning() -> bool {
    BEGINNING.load(Ordering::SeqCst) > 0
}

/// Returns whether this is a thread of the profiler, or was one a moment ago.
pub(crate) fn is_own_thread(thread: ThreadId) -> bool {
    let now = monotonic_now();
    let id = thread.to_number();
    THREADS.iter().any(|entry| entry.is_of(id, now))
}

/// Forgets all threads, in the child of a fork, which has none of them.
pub(crate) fn forget_own_threads_in_child() {
    for entry in &THREADS {
        entry.id.store(0, Ordering::SeqCst);
        entry.left_at_ns.store(0, Ordering::SeqCst);
        entry.is_used.store(false, Ordering::SeqCst);
    }
    BEGINNING.store(0, Ordering::SeqCst);
}

thread_local! {
    /// Whether this thread is one of the profiler's. It has no destructor, so the application's
    /// allocator can still read it while the thread ends.
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Makes the calling thread one of the profiler's, before it frees anything.
pub(super) fn mark_current_thread() {
    IS_OWN.set(true);
}

/// Returns whether the calling thread is one of the profiler's. Makes no system call.
pub(crate) fn is_current_thread_own() -> bool {
    IS_OWN.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(ns: u64) -> TimeStamp {
        TimeStamp(1_000_000_000_000 + ns)
    }

    #[test]
    fn entry_is_of_its_thread_until_that_has_surely_ended() {
        let entry = Entry::new();
        assert!(!entry.is_of(0, time(0)), "nobody has had it");
        assert!(entry.take(7) && !entry.take(8));
        assert!(entry.is_of(7, time(2 * ENDING_NS)) && !entry.is_of(8, time(0)));
        entry.leave(time(0));
        assert!(entry.is_of(7, time(ENDING_NS - 1)));
        assert!(!entry.is_of(7, time(ENDING_NS)));
        assert!(entry.take(8));
        assert!(entry.is_of(8, time(0)) && !entry.is_of(7, time(0)));
    }

    #[test]
    fn entry_that_was_left_first_is_taken_first() {
        let entries = [const { Entry::new() }; 3];
        let take = |id| take_oldest(&entries, id).is_some();
        let is_known = |id| entries.iter().any(|entry| entry.is_of(id, time(10)));
        // A thread ends before the next one begins, and may still be listed.
        for id in 1..=3 {
            assert!(take(id));
            let of_id = entries.iter().find(|entry| entry.is_of(id, time(10)));
            of_id.expect("an entry").leave(time(id as u64));
            assert!((1..=id).all(is_known));
        }
        assert!(take(4));
        assert!(!is_known(1) && [2, 3, 4].into_iter().all(is_known));
        assert!(take(5) && take(6) && !take(7));
        assert!([4, 5, 6].into_iter().all(is_known));
    }
}
