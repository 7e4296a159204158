//! The copy that a thread makes of its own stack.
//!
//! # Purpose
//! A marker with a stack, and
//! [`profiler_capture_backtrace`](crate::stack::profiler_capture_backtrace), copy the calling
//! thread's stack at once ([`copy`]) and leave the unwinding for later. Copies of markers wait in a
//! list ([`pending`]) for the sampler; their memory comes from a pool ([`pool`]).
//!
//! # Threads and locks
//! Any thread copies its own stack. The list and the pool are lock-free.
//!
//! # Imports
//! `capture`, `labels`, `platform`, `threads`, `types`, `util`
//!
//! # Invariants
//! - Copying for a marker allocates only if the pool has no block of about the needed size. The
//!   pool is filled when a session begins, and the sampler refills it after each such miss.
//! - Stacks of another session are dropped.
//!
//! # Read next
//! `copy.rs`, `pending.rs`, then `sampler/pending_entries.rs`.

mod copy;
mod pending;
mod pool;

pub(crate) use copy::{BacktraceLabel, BacktraceParts, CapturedBacktrace};
pub(crate) use pending::{
    PendingStack, add_kept_stack, add_pending_stack, count_lost_stack, has_pending_stacks,
    lost_stacks, reset_lost_stacks, take_pending_stacks,
};
pub(crate) use pool::{preallocate_words, refill_words};
