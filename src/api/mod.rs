//! What a host touches.
//!
//! # Purpose
//! Public functions and guards, with their documentation, over `control` or its twin.
//!
//! # Threads and locks
//! Each item says from which thread it may be called and what it costs. None may be called in a signal handler, but
//! `profiler_capture_backtrace` where it says so.
//!
//! # Imports
//! `base`, `control`, `disabled`, `export`, `markers`
//!
//! # Invariants
//! Nothing here panics on a host's mistake. What makes no sense does nothing.
//!
//! # Read next
//! `life_cycle.rs`, `session.rs`, `threads.rs`, `code.rs`, `labels.rs`, `markers.rs`, `stacks.rs`, `outside.rs`.

#[cfg(has_profiler)]
use crate::control as engine;
#[cfg(not(has_profiler))]
use crate::disabled as engine;

mod code;
mod labels;
mod life_cycle;
mod markers;
mod outside;
mod session;
mod snapshot;
mod stacks;
mod threads;

pub use code::{CodeRange, profiler_register_code_range};
pub use labels::AutoProfilerLabel;
pub use life_cycle::{
    AutoProfilerInit, Started, profiler_init, profiler_is_active, profiler_shutdown, profiler_start,
    profiler_stop,
};
pub use markers::{AutoProfilerTextMarker, add_text_marker, add_untyped_marker};
pub use outside::{profiler_control_by_signals, profiler_env_vars_for_child_process};
pub use session::{Format, Profile, ProfilerSession};
pub use snapshot::{
    SnapshotOptions, Symbolicate, profiler_get_profile, profiler_save_profile_to_file, profiler_stream_json,
};
pub use stacks::{
    ProfilerBacktrace, StackSample, profiler_capture_backtrace, profiler_current_thread_id,
    profiler_suspend_and_sample_thread,
};
pub use threads::{
    AutoProfilerThreadSleep, AutoProfilerThreadWake, ThreadGuard, profiler_thread_is_sleeping,
    profiler_thread_sleep, profiler_thread_wake, register_thread, unregister_thread,
};
