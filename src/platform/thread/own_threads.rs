//! The ids of the profiler's own threads, which are not sampled.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::platform::clock::monotonic_now;
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

    fn leave(&self) {
        self.left_at_ns
            .store(monotonic_now().0.max(1), Ordering::SeqCst);
        self.is_used.store(false, Ordering::SeqCst);
    }

    /// Returns whether a thread has left the entry, and may not have ended yet.
    fn is_ending(&self, now: TimeStamp) -> bool {
        let left_at = TimeStamp(self.left_at_ns.load(Ordering::SeqCst));
        left_at.0 != 0 && now.since_ns(left_at) < ENDING_NS
    }

    /// Returns whether the thread with this id has the entry, or has just left it.
    fn is_of(&self, id: i32, now: TimeStamp) -> bool {
        let has_or_leaves = self.is_used.load(Ordering::SeqCst) || self.is_ending(now);
        has_or_leaves && self.id.load(Ordering::SeqCst) == id
    }
}

/// Takes the entry that was left first, whose thread has most likely ended.
fn take_oldest(id: i32) -> Option<&'static Entry> {
    let unused = |entry: &&Entry| !entry.is_used.load(Ordering::SeqCst);
    let oldest = THREADS
        .iter()
        .filter(unused)
        .min_by_key(|entry| entry.left_at_ns.load(Ordering::SeqCst))?;
    oldest.take(id).then_some(oldest)
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
        let now = monotonic_now();
        let mut entries = THREADS.iter();
        let free = entries.find(|entry| !entry.is_ending(now) && entry.take(id));
        OwnThread(free.or_else(|| take_oldest(id)))
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
            entry.leave();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_begin_one_after_another_are_all_known() {
        let begin_and_end = || {
            let thread = || {
                let own = BeginningThread::new().enter();
                drop(own);
                current_thread_id()
            };
            std::thread::spawn(thread).join().expect("a thread")
        };
        let ended: Vec<_> = (0..10).map(|_| begin_and_end()).collect();
        assert!(
            ended.iter().all(|&thread| is_own_thread(thread)),
            "{ended:?}"
        );
        assert!(!is_own_thread(current_thread_id()));
    }

    #[test]
    fn entry_is_of_its_thread_until_that_has_surely_ended() {
        let entry = Entry::new();
        let now = monotonic_now();
        assert!(entry.take(7) && !entry.take(8));
        assert!(entry.is_of(7, now) && !entry.is_ending(now));
        entry.leave();
        assert!(entry.is_of(7, monotonic_now()) && entry.is_ending(monotonic_now()));
        let later = monotonic_now().plus_ns(ENDING_NS);
        assert!(!entry.is_of(7, later) && !entry.is_ending(later));
    }
}
