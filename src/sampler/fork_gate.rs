//! No signal is sent while the process forks: a `fork` that is interrupted begins again, and in a large process may
//! never end (gperftools #704, Mozilla bug 837390).

use std::sync::atomic::{AtomicU32, Ordering};

static FORKS_UNDER_WAY: AtomicU32 = AtomicU32::new(0);

pub(crate) fn close_fork_gate() {
    FORKS_UNDER_WAY.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn open_fork_gate() {
    FORKS_UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
}

pub(super) fn may_signal() -> bool {
    FORKS_UNDER_WAY.load(Ordering::SeqCst) == 0
}

/// In the child of a fork, where no other thread is in the middle of one.
pub(crate) fn reopen_fork_gate_in_child() {
    FORKS_UNDER_WAY.store(0, Ordering::SeqCst);
}
