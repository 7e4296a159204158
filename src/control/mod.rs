//! Starting, stopping, and getting a profile out.
//!
//! # Purpose
//! The life cycle, the snapshot, stacks on demand, the file, the environment's variables, and what `fork` does to all that. What the API
//! calls is in here; `crate::disabled` is its twin where there is no profiler.
//!
//! # Threads and locks
//! On any thread of the host. Start and stop take the life-cycle lock, the outermost one, and then the `PsLock`; the
//! sampler is joined under the life-cycle lock, which it never takes, and not under the `PsLock`.
//!
//! # Imports
//! `base`, `buffer`, `counters`, `markers`, `platform`, `sampler`, `state`, `stream`, `threads`, `unwind`
//!
//! # Invariants
//! A session's sampler has ended before the next session's begins. A file is whole or absent.
//!
//! # Read next
//! `life_cycle.rs`, `snapshot.rs`, `environment.rs`.

mod dump;
mod environment;
mod fork;
mod life_cycle;
mod on_demand;
mod recording;
mod snapshot;

pub(crate) use life_cycle::{Generation, init, is_active, shutdown, start, stop, stop_generation};
pub(crate) use on_demand::{
    CapturedBacktrace, SampledStack, capture_backtrace, is_current_thread, own_thread_id, resolve_backtrace,
    suspend_and_sample,
};
pub(crate) use recording::{
    CodeRangeToken, Description, LabelToken, ScriptFunction, add_marker, announce_sleep, is_announced_asleep,
    move_script_frame, now, pop_labels, push_label, push_script_frame, register_code_range,
    register_script_function, register_thread, stack_pointer, unregister_code_range, unregister_thread,
};
pub(crate) use snapshot::{FrozenProfile, freeze};
