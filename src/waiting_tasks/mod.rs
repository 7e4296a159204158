//! Where async tasks wait, and for how long.
//!
//! # Purpose
//! A wrapped future ([`task_wait`]) knows the wrapped future that polls it ([`chain`]). If it is
//! pending, and no wrapped future inside of it is, it waits until it is polled again or dropped.
//! [`waits`] keeps the names, the futures that wait and the rows for the sampler.
//!
//! # Threads and locks
//! Each thread has the chain of its polls in progress in a thread-local of plain numbers. The waits
//! of a session have one lock ([`recorded_waits`]), which each begin and end of a wait takes for
//! some stores, and the sampler to collect the rows. Without a session that records waits, a poll
//! reads one atomic.
//!
//! # Imports
//! `labels`, `platform`, `types`, `util`
//!
//! # Invariants
//! - No future is polled and no waker is used on behalf of the profiler.
//! - The holder of the lock does not allocate. A future that is polled or dropped inside the
//!   profiler's own work takes no lock.
//! - The rows of a stack add up to what its tasks have waited, except for the time since its last
//!   row. After [`account_all_waits`], they add up to all of it.
//!
//! # Read next
//! `task_wait.rs`, `waits.rs`, then `crate::sampler`'s `pending_entries.rs`.

mod chain;
mod recorded_waits;
mod task_wait;
mod waits;

pub(crate) use recorded_waits::{
    StackNames, account_all_waits, account_waits, begin_waits, end_waits, end_waits_in_child,
    follow_pause, forget_waits_in_child, has_wait_rows, swap_wait_rows, wait_losses,
};
pub(crate) use task_wait::{BegunPoll, TaskWait, are_waits_recorded};
pub(crate) use waits::{WaitLosses, WaitRow};
