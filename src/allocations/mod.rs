//! What the application's allocator allocates and frees.
//!
//! # Purpose
//! Counts the bytes and calls of each thread ([`thread_counts`]), and keeps the sampled allocations
//! that are alive ([`live`]). [`hook`] is what the allocator calls; it decides which allocations are
//! sampled.
//!
//! # Threads and locks
//! Each thread counts in a place of its own, without a lock. The list of live allocations has a lock,
//! which sampled allocations, their frees, the sampler and snapshots take, and a few other frees.
//!
//! # Imports
//! `platform`, `types`, `util`
//!
//! # Invariants
//! - A call from inside the profiler's own work is counted, and never sampled.
//! - A free finds its sampled allocation before the memory goes back to the allocator, so no other
//!   allocation can have the same address in the list.
//! - The room knows neither stacks nor markers. `record/allocations.rs` copies the stacks, and
//!   `sampler/main_thread_markers.rs` writes the markers.
//!
//! # Read next
//! `hook.rs`, `thread_counts.rs`, `live.rs`.

mod hook;
mod live;
mod thread_counts;

pub(crate) use hook::{
    AllocationModes, SampledAllocation, begin_allocations, choose_sample, end_allocations,
    end_allocations_in_child, find_freed, forget_allocations_in_child, is_hook_installed, modes,
    on_allocated, on_free, uncount_free,
};
pub(crate) use live::{
    AllocationEvent, LiveAllocation, add_free, add_live, dropped_allocations, has_events,
    has_many_events, live_allocations, swap_events,
};
pub(crate) use thread_counts::{AllocationCounts, HookUse, all_counts};
