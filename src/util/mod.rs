//! Tools without profiler types: locks, progress, failures, texts and callbacks.
//!
//! # Purpose
//! Holds the tools that all folders share: locks with a name and an order ([`lock`]), progress of
//! long jobs ([`progress`]), the first failure of a job ([`failure_latch`]), short texts, hash
//! tables, and calls into the application that catch its panics. [`memory`] checks that there is
//! memory before code that cannot handle a failed allocation.
//!
//! # Threads and locks
//! `lock/` holds the main lock, the proof that the caller holds it, and the named locks with their
//! order.
//!
//! # Imports
//! Nothing of the crate.
//!
//! # Invariants
//! - A lock is never poisoned: every critical section leaves its data well formed.
//! - A panic of the application's callback ends in `callbacks.rs`.
//!
//! # Read next
//! `lock/named_locks.rs`, `lock/ps_lock.rs`, then `crate::platform`.

#[forbid(unsafe_code)]
mod callbacks;
#[forbid(unsafe_code)]
mod change_count;
#[forbid(unsafe_code)]
mod failure_latch;
#[cfg(has_profiler)]
mod lock;
#[cfg(all(test, loom))]
#[forbid(unsafe_code)]
mod loom_model;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod memory;
#[forbid(unsafe_code)]
mod numbers;
mod polled_with;
#[forbid(unsafe_code)]
mod progress;
mod shared_memory;
#[forbid(unsafe_code)]
mod shared_sort;
#[forbid(unsafe_code)]
mod short_text;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod unique_index;

pub(crate) use callbacks::run_callback;
pub(crate) use change_count::ChangeCount;
pub(crate) use failure_latch::FailureLatch;
#[cfg(all(test, has_profiler))]
pub(crate) use lock::fork_safe::ForkSafe;
#[cfg(has_profiler)]
pub(crate) use lock::fork_safe::{
    LocksInChild, is_forked_child, note_forked_child, prepare_to_wait,
};
#[cfg(has_profiler)]
pub(crate) use lock::named_locks::{
    ExclusiveGuard, Guard, Held as MarkedRank, LockRank, NamedMutex, NamedRwLock, as_profiler_work,
    holds_any_lock, holds_rank, is_any_lock_held_on_current_thread, mark_rank,
    refuse_calls_of_current_thread,
};
#[cfg(has_profiler)]
pub(crate) use lock::ps_lock::{PsCell, PsLock};
#[cfg(all(test, loom))]
pub(crate) use loom_model::explore_model;
#[cfg(has_profiler)]
pub(crate) use memory::{SMALL_TASK_BYTES, allocator_has, try_vec};
pub(crate) use numbers::{NumberMap, next_random, pair_key, random_below};
pub(crate) use polled_with::PolledWith;
pub use progress::SharedProgress;
pub(crate) use progress::{ProgressCounter, ProgressLocation, ProgressLogger};
pub(crate) use shared_memory::{Mapping, SharedMemory, WORD_BYTES};
pub(crate) use shared_sort::SharedSort;
pub use short_text::ShortText;
pub(crate) use short_text::{TextBudget, cut_at_character};
#[cfg(has_profiler)]
pub(crate) use unique_index::{Search, TextTable, UniqueIndex, UniqueList};
