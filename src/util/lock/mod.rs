//! Locks with a name, an owner and a place in the lock order.

pub(super) mod fork_safe;
#[forbid(unsafe_code)]
pub(super) mod named_locks;
pub(super) mod ps_lock;
