//! The public functions and guards.
//!
//! # Purpose
//! Implements and documents the public API on top of `session` and `record`, or of `disabled`,
//! which replaces them in builds without the profiler. `lib.rs` and `gecko_profiler.rs` export the
//! items under their public names.
//!
//! # Threads and locks
//! Each item documents the threads that may call it, and its cost. Only
//! `profiler_capture_backtrace` may be called in a signal handler, under the conditions in its
//! documentation.
//!
//! # Imports
//! `allocations`, `backtrace`, `counters`, `disabled`, `event_loop`, `export`, `http`, `labels`,
//! `markers`, `platform`, `pushing`, `record`, `sampler`, `session`, `stream`, `types`, `unwind`,
//! `util`, `waiting_tasks`
//!
//! # Invariants
//! No function panics because of a mistake of the application. A call that does not fit the
//! profiler's state does nothing.
//!
//! # Read next
//! `life_cycle.rs`, `early_start.rs`, `pause.rs`, `status.rs`, `callbacks.rs`, `session.rs`,
//! `threads.rs`, `code.rs`, `counters.rs`, `allocator.rs`, `memory.rs`, `dump.rs`,
//! `event_delay.rs`, `file_io.rs`, `profiled_file.rs`, `labels.rs`, `context.rs`,
//! `thread_pools.rs`, `script_frames.rs`, `markers.rs`, `stacks.rs`, `remote_control.rs`.

mod allocator;
#[forbid(unsafe_code)]
mod callbacks;
#[forbid(unsafe_code)]
mod code;
#[forbid(unsafe_code)]
mod context;
#[forbid(unsafe_code)]
mod counters;
#[forbid(unsafe_code)]
mod dump;
mod early_start;
#[forbid(unsafe_code)]
mod endpoints;
#[forbid(unsafe_code)]
mod event_delay;
#[forbid(unsafe_code)]
mod file_io;
#[forbid(unsafe_code)]
mod label_text;
#[forbid(unsafe_code)]
mod labels;
#[forbid(unsafe_code)]
mod life_cycle;
#[forbid(unsafe_code)]
mod marker_guards;
#[forbid(unsafe_code)]
mod marker_session;
#[forbid(unsafe_code)]
mod markers;
#[forbid(unsafe_code)]
mod memory;
#[forbid(unsafe_code)]
mod pause;
#[forbid(unsafe_code)]
mod process;
#[forbid(unsafe_code)]
mod profile;
#[forbid(unsafe_code)]
mod profiled_file;
#[cfg(feature = "push")]
#[forbid(unsafe_code)]
mod push;
#[forbid(unsafe_code)]
mod remote_control;
#[forbid(unsafe_code)]
mod script_frames;
#[forbid(unsafe_code)]
mod session;
#[forbid(unsafe_code)]
mod snapshot;
#[forbid(unsafe_code)]
mod stacks;
#[forbid(unsafe_code)]
mod status;
#[forbid(unsafe_code)]
mod thread_pools;
#[forbid(unsafe_code)]
mod threads;
#[forbid(unsafe_code)]
mod waiting_tasks;

pub use allocator::ProfilerAllocator;
pub use callbacks::{
    profiler_add_state_change_callback, profiler_callback_after_sampling,
    profiler_remove_state_change_callback,
};
pub use code::{CodeRange, profiler_register_code_range, profiler_register_script_code_range};
pub use context::{AutoProfilerContext, ProfilerContext, in_context};
pub use counters::{
    OwnedProfilerCounter, OwnedProfilerCounterTotal, ProfilerCounter, ProfilerCounterTotal,
    profiler_count_bandwidth_bytes,
};
pub use dump::{ProfilerDump, profiler_dump, profiler_set_dumps};
pub use early_start::start_early;
pub use endpoints::{
    AskFuture, Endpoint, EndpointAnswer, EndpointError, EndpointLimits, Question, answer,
    answer_async, flamegraph_svg, gecko, pprof_cpu, pprof_heap, pprof_wall, set_endpoint_limits,
    summary_text, threads_text,
};
pub use event_delay::{
    AutoProfilerEvent, EventDelayProbe, EventLoopWatch, profiler_watch_event_loop,
};
pub use file_io::{AutoProfilerFileIO, add_file_io_marker};
pub use label_text::{IntoLabel, Label};
pub use labels::{AutoProfilerLabel, labeled_future, labeled_future_with_dynamic};
pub use life_cycle::{
    AutoProfilerInit, AutoProfilerInitBuilder, Started, profiler_ensure_started, profiler_init,
    profiler_save_at_exit, profiler_shutdown, profiler_start, profiler_stop,
};
pub use marker_guards::{
    AutoProfilerFlowMarker, AutoProfilerMarker, AutoProfilerTextMarker, AutoProfilerTracingMarker,
};
pub(crate) use marker_session::MarkerSession;
pub use markers::{
    add_marker, add_text_marker, add_untyped_marker, records_flows,
    records_markers_of_current_thread, would_record,
};
pub use memory::profiler_heap_snapshot;
pub use pause::{
    profiler_pause, profiler_pause_sampling, profiler_resume, profiler_resume_sampling,
};
pub use process::{
    ExecHandover, profiler_clear_all_pages, profiler_command, profiler_prepare_exec,
    profiler_received_exit_profile, profiler_register_page, profiler_set_process_name,
    profiler_set_process_type, profiler_set_version, profiler_unregister_page,
    profiler_wait_for_children, profiler_wait_for_sampling_of_children,
};
pub use profile::{DiffOptions, Profile, ProfileDiff};
pub use profiled_file::ProfiledFile;
#[cfg(feature = "push")]
pub use push::{Pusher, profiler_push};
pub use remote_control::{profiler_control_by_signals, profiler_env_vars_for_child_process};
pub use script_frames::{
    AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_function,
    profiler_run_interpreter,
};
pub use session::ProfilerSession;
pub use snapshot::{
    SnapshotOptions, profiler_get_profile, profiler_save_profile_to_file, profiler_stream_json,
};
pub use stacks::{
    ProfilerBacktrace, StackSample, profiler_capture_backtrace, profiler_current_thread_id,
    profiler_suspend_and_sample_thread,
};
pub use status::{
    profiler_current_process_id, profiler_feature_active, profiler_features_if_active,
    profiler_features_if_active_and_unpaused, profiler_get_available_features,
    profiler_get_buffer_info, profiler_get_start_params, profiler_is_active,
    profiler_is_active_and_thread_is_registered, profiler_is_active_and_unpaused,
    profiler_is_locked_on_current_thread, profiler_is_main_thread, profiler_is_paused,
    profiler_is_sampling_paused, profiler_main_thread_id, profiler_other_thread_is_being_profiled,
    profiler_thread_is_being_profiled,
};
pub use thread_pools::{
    RegisteredSpawn, register_polling_thread, register_thread_once, start_hook,
};
pub use threads::{
    AutoProfilerThreadSleep, AutoProfilerThreadWake, AutoSignalStack, ThreadGuard,
    profiler_thread_is_sleeping, profiler_thread_sleep, profiler_thread_wake, register_thread,
    unregister_thread,
};
pub use waiting_tasks::TaskWait;
pub(crate) use waiting_tasks::{EnteredWait, records_waits};
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod backend;
#[cfg(not(has_profiler))]
use crate::disabled as backend;
pub(crate) use backend::{FloatValues, OwnedCounter, ScaledFloat, may_list_counters};
