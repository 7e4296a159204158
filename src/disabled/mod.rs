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
    CapturedBacktrace, CodeRangeToken, FrozenProfile, Generation, LabelToken, SampledStack, add_marker,
    announce_sleep, capture_backtrace, control_by_signals, env_vars_for_child_process, freeze, init,
    is_active, is_announced_asleep, is_current_thread, now, own_thread_id, pop_labels, push_label,
    register_code_range, register_thread, resolve_backtrace, shutdown, stack_pointer, start, stop,
    stop_generation, suspend_and_sample, unregister_code_range, unregister_thread, wants_names,
};
