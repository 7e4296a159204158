//! Tells the profiler's own threads from the application's.

use std::cell::Cell;

thread_local! {
    /// Whether this thread is one of the profiler's. It has no destructor, so the application's
    /// allocator can still read it while the thread ends.
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Makes the calling thread one of the profiler's, before it allocates or frees anything.
pub(crate) fn mark_current_thread_own() {
    IS_OWN.set(true);
}

/// Returns whether the calling thread is one of the profiler's. Makes no system call.
pub(crate) fn is_current_thread_own() -> bool {
    IS_OWN.get()
}
