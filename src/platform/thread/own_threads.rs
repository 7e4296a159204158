//! The ids of the profiler's own threads, which are not sampled.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::platform::identity::current_thread_id;
use crate::types::ThreadId;

/// Maximum number of threads that are known. The profiler has some ten at most. Beyond that, a
/// thread is taken to be one of the application's.
const MAX_THREADS: usize = 64;

/// The ids; 0 where there is none.
static THREADS: [AtomicI32; MAX_THREADS] = [const { AtomicI32::new(0) }; MAX_THREADS];
/// Number of threads that were created and have not entered their ids yet.
static BEGINNING: AtomicU32 = AtomicU32::new(0);

/// A thread of the profiler that is about to be created. If it is not created, this is dropped.
#[derive(Debug)]
pub(super) struct BeginningThread(());

/// The entry of a thread of the profiler. It ends when this is dropped, on that thread.
#[derive(Debug)]
pub(super) struct OwnThread(Option<&'static AtomicI32>);

impl BeginningThread {
    pub(super) fn new() -> Self {
        BEGINNING.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    /// Enters the id of the calling thread, which is the one that was created.
    pub(super) fn enter(self) -> OwnThread {
        let id = current_thread_id().to_number();
        let free = |entry: &&AtomicI32| {
            entry
                .compare_exchange(0, id, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        OwnThread(THREADS.iter().find(free))
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
            entry.store(0, Ordering::SeqCst);
        }
    }
}

/// Returns whether a thread of the profiler has begun and is not known yet. If not, every thread of
/// the profiler that a list contained which was read before this call is known, or has ended.
pub(crate) fn is_own_thread_beginning() -> bool {
    BEGINNING.load(Ordering::SeqCst) > 0
}

/// Returns whether this is a thread of the profiler.
pub(crate) fn is_own_thread(thread: ThreadId) -> bool {
    let id = thread.to_number();
    THREADS
        .iter()
        .any(|entry| entry.load(Ordering::SeqCst) == id)
}

/// Forgets all threads, in the child of a fork, which has none of them.
pub(crate) fn forget_own_threads_in_child() {
    THREADS
        .iter()
        .for_each(|entry| entry.store(0, Ordering::SeqCst));
    BEGINNING.store(0, Ordering::SeqCst);
}
