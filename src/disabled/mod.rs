//! The twin of `control` where there is no profiler.
//!
//! # Purpose
//! The same calls, doing nothing, on targets that cannot be sampled and without the feature `enabled`.
//!
//! # Threads and locks
//! None.
//!
//! # Imports
//! `base`, `export`, `markers`
//!
//! # Invariants
//! Starting answers `StartError::Unsupported`, so no session, and no profile, can ever be.
//!
//! # Read next
//! `engine.rs`, then `crate::api`.

mod engine;

pub(crate) use engine::{
    FrozenProfile, Generation, LabelToken, add_marker, announce_sleep, freeze, init, is_active,
    is_announced_asleep, now, pop_labels, push_label, register_thread, shutdown, stack_pointer, start, stop,
    stop_generation, unregister_thread,
};
