//! What the calling thread, registered or not, knows of itself once it was asked.

use std::cell::Cell;

use crate::base::ThreadId;
use crate::platform::{StackBounds, current_stack_bounds, current_thread_id};

/// A thread's id, and where its stack is, if the system can tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnThread {
    pub(super) tid: ThreadId,
    pub(super) bounds: Option<StackBounds>,
}

thread_local! {
    // Without a destructor and made at compile time, so that it is there for as long as the thread.
    static OWN_THREAD: Cell<Option<OwnThread>> = const { Cell::new(None) };
}

impl OwnThread {
    /// The calling thread. Asks the system the first time, which takes some microseconds and allocates.
    pub(super) fn current() -> Self {
        OWN_THREAD.get().unwrap_or_else(|| {
            let own = Self {
                tid: current_thread_id(),
                bounds: current_stack_bounds(),
            };
            OWN_THREAD.set(Some(own));
            own
        })
    }
}

/// In the child of a fork, where the calling thread has another id.
pub(super) fn forget_own_thread() {
    OWN_THREAD.set(None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_knows_itself_and_asks_again_after_it_forgot() {
        let own = OwnThread::current();
        assert_eq!(
            (own.tid, own.bounds),
            (current_thread_id(), current_stack_bounds())
        );
        let other = std::thread::spawn(OwnThread::current)
            .join()
            .expect("thread");
        assert_ne!((other.tid, other.bounds), (own.tid, own.bounds));
        OWN_THREAD.set(Some(other));
        forget_own_thread();
        assert_eq!(OwnThread::current().tid, own.tid);
    }
}
