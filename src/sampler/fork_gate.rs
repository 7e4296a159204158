//! Holds back the profiler's signals while the process forks. A signal makes the kernel restart
//! `fork`, which in a large process may then never finish (gperftools #704, Mozilla bug 837390).
//!
//! Holds them back for good once the process exits: `std::process::exit` has unmapped the signal stack
//! of the main thread by then, on which a handler would run.

use std::sync::atomic::{AtomicU32, Ordering};

static FORKS_IN_PROGRESS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn close_fork_gate() {
    FORKS_IN_PROGRESS.fetch_add(1, Ordering::SeqCst);
}

/// Sends no signal any more, because the process exits.
pub(crate) fn close_gate_at_exit() {
    close_fork_gate();
}

pub(crate) fn open_fork_gate() {
    FORKS_IN_PROGRESS.fetch_sub(1, Ordering::SeqCst);
}

/// Returns whether no fork is in progress, so that a signal may be sent.
pub(crate) fn may_signal() -> bool {
    FORKS_IN_PROGRESS.load(Ordering::SeqCst) == 0
}

/// Opens the gate in the child of a fork, where no other thread is forking.
pub(crate) fn reopen_fork_gate_in_child() {
    FORKS_IN_PROGRESS.store(0, Ordering::SeqCst);
}
