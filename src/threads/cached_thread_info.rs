//! Id and stack bounds of the calling thread, registered or not, cached after the first query.

use std::cell::Cell;

use crate::platform::{StackBounds, current_stack_bounds, current_thread_id};
use crate::types::ThreadId;

/// A thread's id, and the bounds of its stack if the system reports them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedThreadInfo {
    pub(crate) tid: ThreadId,
    pub(crate) bounds: Option<StackBounds>,
}

thread_local! {
    // Initialized at compile time and without a destructor, so that it exists as long as the
    // thread.
    static CACHED_INFO: Cell<Option<CachedThreadInfo>> = const { Cell::new(None) };
}

impl CachedThreadInfo {
    /// Returns the values of the calling thread. The first call on a thread queries the system,
    /// which takes some microseconds and allocates.
    pub(crate) fn current() -> Self {
        CACHED_INFO.get().unwrap_or_else(|| {
            let own = Self {
                tid: current_thread_id(),
                bounds: current_stack_bounds(),
            };
            CACHED_INFO.set(Some(own));
            own
        })
    }
}

/// Clears the cache, in the child of a fork, where the calling thread has another id.
pub(crate) fn clear_cached_thread_info() {
    CACHED_INFO.set(None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_per_thread_and_queried_again_after_clear() {
        let own = CachedThreadInfo::current();
        assert_eq!(
            (own.tid, own.bounds),
            (current_thread_id(), current_stack_bounds())
        );
        let other = std::thread::spawn(CachedThreadInfo::current)
            .join()
            .expect("thread");
        assert_ne!((other.tid, other.bounds), (own.tid, own.bounds));
        CACHED_INFO.set(Some(other));
        clear_cached_thread_info();
        assert_eq!(CachedThreadInfo::current().tid, own.tid);
    }
}
