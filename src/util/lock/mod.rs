//! Locks with a name, an owner and a place in the lock order.

mod fork_safe;
#[forbid(unsafe_code)]
mod named_locks;
mod ps_lock;

#[cfg(test)]
pub(crate) use fork_safe::ForkSafe;
pub(crate) use fork_safe::{LocksInChild, is_forked_child, note_forked_child, prepare_to_wait};
pub(crate) use named_locks::{
    ExclusiveGuard, Guard, Held as MarkedRank, LockRank, NamedMutex, NamedRwLock, as_profiler_work,
    holds_any_lock, holds_rank, is_any_lock_held_on_current_thread, mark_rank,
    refuse_calls_of_current_thread,
};
pub(crate) use ps_lock::{PsCell, PsLock};
