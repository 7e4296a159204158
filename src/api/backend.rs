//! The functions and types that the API calls in a build with the profiler.
//!
//! `crate::disabled` replaces this module in other builds.

pub(crate) use crate::allocations::{
    AllocationModes, modes as allocation_modes, on_allocated, on_free,
};
pub(crate) use crate::backtrace::CapturedBacktrace;
pub(crate) use crate::counters::{
    FloatValues, OwnedCounter, ScaledFloat, StaticCounter, may_list_counters,
};
pub(crate) use crate::event_loop::ProbeToken;
pub(crate) use crate::export::Diff;
pub(crate) use crate::family::{
    ensure_started, init, init_with_end, start, start_early, start_guarded, wait_for_children,
    wait_for_sampling_of_children,
};
#[cfg(feature = "http")]
pub(crate) use crate::http::{Answering, Asked, HttpAnswer, serve, stop_serving};
pub(crate) use crate::labels::{
    LabelToken, ScriptFunction, add_context_label, current_context, pop_labels, push_label,
    push_label_with_text, push_script_frame, register_script_function, replace_context,
    set_script_frame_position,
};
pub(crate) use crate::platform::{
    SignalStack, cached_thread_id as own_thread_id, is_main_thread, main_thread_id,
};
#[cfg(feature = "push")]
pub(crate) use crate::pushing::{RunningPush, push, push_of_variables, stop_pushing};
pub(crate) use crate::record::{
    MarkerPayload, announce_sleep, capture_backtrace, chosen, chosen_destination, destination_time,
    dump, heap_snapshot, is_announced_asleep, marker_destination, now, put_file_io_marker,
    record_backtrace, record_own_stack, record_return_addresses, register_thread,
    resolve_backtrace, running_session, sample_allocation, sample_free, sample_move,
    session_that_records_markers, stack_pointer, suspend_and_sample, undo_free, unregister_thread,
};
pub(crate) use crate::sampler::SampledStack;
#[cfg(feature = "http")]
pub(crate) use crate::session::http_variables;
pub(crate) use crate::session::{
    EventToken, EventWatchToken, ExecHandover, FrozenProfile, ReadProfile, SessionClient,
    WriteOptions, WrittenDump, add_state_change_callback, begin_event, buffer_info,
    callback_after_sampling, clear_all_pages, control_by_signals, default_options, dumps_at_panic,
    end_event, end_guarded_session, env_vars_for_child_process, features_if_active,
    features_if_active_and_unpaused, freeze, is_active, is_active_and_unpaused, is_current_thread,
    is_other_thread_being_profiled, is_paused, is_sampling_paused, is_thread_being_profiled,
    is_thread_registered, join_session, pause, pause_sampling, prepare_exec, received_exit_profile,
    register_page, remove_state_change_callback, rescue, resume, resume_sampling, save_at_exit,
    set_dumps, set_process_name, set_process_type, set_version, shutdown, shutdown_after,
    spawn_task, start_params, stop, unregister_page, unwatch_event_loop, watch_event_loop,
};
pub(crate) use crate::stream::StreamOptions;
pub(crate) use crate::unwind::{CodeRangeToken, register_code_range, unregister_code_range};
pub(crate) use crate::util::is_any_lock_held_on_current_thread as is_locked_on_current_thread;
pub(crate) use crate::waiting_tasks::{BegunPoll, TaskWait, are_waits_recorded};
