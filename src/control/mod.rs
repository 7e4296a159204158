//! Starts, pauses and stops the profiler, and takes profiles.
//!
//! # Purpose
//! Implements the calls of the API: life cycle, pauses, state callbacks, snapshots, stacks on
//! demand, profile files, environment variables, control by signals, and the handling of `fork`.
//! `crate::disabled` replaces this module in builds without the profiler.
//!
//! # Threads and locks
//! The functions run on any thread of the application. Start and stop take the life-cycle lock,
//! which is the outermost one, and then the `PsLock`. They join the sampler under the life-cycle
//! lock, but not under the `PsLock`.
//!
//! - The sampler takes the `PsLock` briefly when the session's threads change. It takes the
//!   life-cycle lock only inside a callback of the application, and no thread waits for such a
//!   callback.
//! - Callbacks of the application run without any lock.
//! - The control thread handles control signals. It starts and stops the profiler like any other
//!   thread, so it is joined under neither lock.
//! - The event watcher posts probes to event loops. It ends by itself soon after the session and is
//!   never joined.
//!
//! # Imports
//! `base`, `buffer`, `markers`, `platform`, `sampler`, `state`, `stream`, `threads`, `unwind`
//!
//! # Invariants
//! Before a session's sampler begins, the previous one has ended or no longer touches shared data.
//! A profile's file is complete or absent.
//!
//! # Read next
//! `life_cycle.rs`, `pause.rs`, `callbacks.rs`, `snapshot.rs`, `environment_table.rs`.

mod callbacks;
mod control_signals;
mod dump;
mod environment;
mod environment_table;
mod environment_values;
mod event_loops;
mod event_watcher;
mod fork;
mod inquiry;
mod life_cycle;
mod notices;
mod on_demand;
mod pause;
mod process;
mod recording;
mod snapshot;
mod thread_queries;

pub(crate) use crate::base::Generation;
pub(crate) use crate::stream::StreamOptions;
pub(crate) use callbacks::{
    add_state_change_callback, callback_after_sampling, remove_state_change_callback,
};
pub(crate) use control_signals::control_by_signals;
pub(crate) use environment::env_vars_for_child_process;
pub(crate) use environment_table::environment_docs;
pub(crate) use event_loops::{
    EventToken, EventWatchToken, ProbeToken, begin_event, end_event, unwatch_event_loop,
    watch_event_loop,
};
pub(crate) use inquiry::{
    buffer_info, features_if_active, features_if_active_and_unpaused, is_active,
    is_active_and_unpaused, is_paused, is_sampling_paused, start_params,
};
pub(crate) use life_cycle::{ensure_started, init, shutdown, start, stop, stop_generation};
pub(crate) use on_demand::{
    CapturedBacktrace, SampledStack, capture_backtrace, is_current_thread, own_thread_id,
    resolve_backtrace, suspend_and_sample,
};
pub(crate) use pause::{pause, pause_sampling, resume, resume_sampling};
pub(crate) use process::{
    clear_all_pages, received_exit_profile, register_page, set_process_name, unregister_page,
};
#[cfg(feature = "tracing")]
pub(crate) use recording::time_of_place;
pub(crate) use recording::{
    CodeRangeToken, LabelToken, MarkerPlace, ScriptFunction, add_text_marker_at,
    add_text_marker_now, add_typed_marker_at, add_typed_marker_now, add_untyped_marker_at,
    add_untyped_marker_now, announce_sleep, is_announced_asleep, move_script_frame, now,
    place_of_marker, place_of_marker_in, pop_labels, push_label, push_label_with_text,
    push_script_frame, put_text_marker, put_typed_marker, put_untyped_marker, record_backtrace,
    record_own_stack, register_code_range, register_script_function, register_thread,
    session_that_records_markers, stack_pointer, unregister_code_range, unregister_thread,
};
pub(crate) use snapshot::{FrozenProfile, default_options, freeze};
pub(crate) use thread_queries::{
    is_locked_on_current_thread, is_main_thread, is_other_thread_being_profiled,
    is_thread_being_profiled, is_thread_registered, main_thread_id,
};
