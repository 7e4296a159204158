//! The ids of the profiler's own threads, which are not sampled.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::platform::clock::monotonic_now;
use crate::platform::identity::current_thread_id;
use crate::types::{ThreadId, TimeStamp};

/// Maximum number of threads that are known. The profiler has some ten at most. Beyond that, a
/// thread is taken to be one of the application's.
const MAX_THREADS: usize = 64;

/// Time after which a thread that has left its entry has surely ended, in ns.
const ENDING_NS: u64 = 1_000_000_000;

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

    /// Returns whether the thread with this id has the entry, or has just left it.
    fn is_of(&self, id: i32, now: TimeStamp) -> bool {
        let left_at = TimeStamp(self.left_at_ns.load(Ordering::SeqCst));
        self.id.load(Ordering::SeqCst) == id
            && (left_at.0 == 0 || now.since_ns(left_at) < ENDING_NS)
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
        OwnThread(THREADS.iter().find(|entry| entry.take(id)))
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

thread_local! {
    /// Whether this thread is one of the profiler's. It has no destructor, so that the application's
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

/// Returns whether this is a thread of the profiler, or one that has ended within the last second.
pub(crate) fn is_own_thread(thread: ThreadId) -> bool {
    let now = monotonic_now();
    let id = thread.to_number();
    THREADS.iter().any(|entry| entry.is_of(id, now))
}

/// Forgets all threads, in the child of a fork, which has none of them.
pub(crate) fn forget_own_threads_in_child() {
    for entry in &THREADS {
        entry.id.store(0, Ordering::SeqCst);
        entry.is_used.store(false, Ordering::SeqCst);
    }
    BEGINNING.store(0, Ordering::SeqCst);
}
