//! Replaces `session` and `record` in builds without the profiler.
//!
//! # Purpose
//! Provides the functions of those modules with empty bodies, for unsupported targets and for
//! builds without the feature `enabled`.
//!
//! # Threads and locks
//! No threads, no locks.
//!
//! # Imports
//! `export`, `markers`, `types`, `util`
//!
//! # Invariants
//! A start fails with `StartError::Unsupported`, so sessions and profiles never exist. Their types
//! are uninhabited.
//!
//! # Read next
//! `functions.rs`, then `crate::api`.

mod functions;

#[cfg(feature = "tracing")]
pub(crate) use functions::destination_time;
pub(crate) use functions::{
    AllocationModes, BegunPoll, CapturedBacktrace, CodeRangeToken, ContextWords, Diff, EventToken,
    EventWatchToken, ExecHandover, FrozenProfile, Generation, LabelToken, MarkerDestination,
    OwnedCounter, ProbeToken, ReadProfile, SampledStack, ScriptFunction, SessionClient,
    SignalStack, StaticCounter, StreamOptions, TaskWait, WhileOtherRuns, WriteOptions, WrittenDump,
    add_context_label, add_state_change_callback, add_text_marker_at, add_text_marker_now,
    add_typed_marker_at, add_typed_marker_now, add_untyped_marker_at, add_untyped_marker_now,
    allocation_modes, announce_sleep, are_waits_recorded, begin_event, buffer_info,
    callback_after_sampling, capture_backtrace, chosen, clear_all_pages, control_by_signals,
    current_context, default_options, destination_with_stack, dump, dumps_at_panic, end_event,
    end_guarded_session, ensure_started, env_vars_for_child_process, features_if_active,
    features_if_active_and_unpaused, freeze, heap_snapshot, init, init_with_end, is_active,
    is_active_and_unpaused, is_announced_asleep, is_current_thread, is_locked_on_current_thread,
    is_main_thread, is_other_thread_being_profiled, is_paused, is_sampling_paused,
    is_thread_being_profiled, is_thread_registered, join_session, main_thread_id,
    marker_destination, marker_destination_in, now, on_allocated, on_free, own_thread_id, pause,
    pause_sampling, pop_labels, prepare_exec, push_label, push_label_with_text, push_script_frame,
    put_file_io_marker, put_text_marker, put_typed_marker, put_untyped_marker,
    received_exit_profile, record_backtrace, record_own_stack, record_return_addresses,
    register_code_range, register_page, register_script_function, register_thread,
    remove_state_change_callback, replace_context, rescue, resolve_backtrace, resume,
    resume_sampling, running_session, sample_allocation, sample_free, sample_move, save_at_exit,
    session_that_records_markers, set_dumps, set_process_name, set_process_type,
    set_script_frame_position, set_version, shutdown, shutdown_after, spawn_task, stack_pointer,
    start, start_guarded, start_params, stop, suspend_and_sample, undo_free, unregister_code_range,
    unregister_page, unregister_thread, unwatch_event_loop, wait_for_children,
    wait_for_sampling_of_children, watch_event_loop,
};
#[cfg(feature = "metrics")]
pub(crate) use functions::{FloatValues, ScaledFloat, may_list_counters};
#[cfg(feature = "push")]
pub(crate) use functions::{RunningPush, push};
