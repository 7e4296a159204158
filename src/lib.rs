//! An in-process sampling profiler, built like the Gecko Profiler that Firefox carries in itself.
//!
//! Add one line to a program, and it samples its registered threads through signals, merges native stacks with the
//! labels that the program pushes, records markers and counters, and streams a profile that opens in the
//! [Firefox Profiler](https://profiler.firefox.com). It needs no privileges, no frame pointers, and no debugger.
//!
//! ```no_run
//! # fn work() {}
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let _profiler = gekkota::AutoProfilerInit::new();
//!     gekkota::profiler_start(gekkota::StartParams::default())?;
//!     std::thread::spawn(|| {
//!         gekkota::register_thread("worker");
//!         work();
//!     })
//!     .join()
//!     .ok();
//!     gekkota::profiler_save_profile_to_file("profile.json")?;
//!     Ok(())
//! }
//! ```
//!
//! A thread is stopped only while its own signal handler copies registers, the used part of its stack and its labels;
//! everything else happens on the sampler's thread. A thread that sleeps is read from outside and
//! hardly ever woken.
//!
//! # Where what is
//! - Life cycle: [`AutoProfilerInit`], [`profiler_start`], [`profiler_stop`], or the guard [`ProfilerSession`].
//! - While it runs: [`profiler_pause`], [`profiler_is_active`], [`profiler_get_buffer_info`],
//!   [`profiler_add_state_change_callback`], [`profiler_callback_after_sampling`].
//! - Getting it out: [`profiler_save_profile_to_file`], [`profiler_stream_json`], [`Profile`].
//! - From outside: the environment's variables ([`profiler_init`]), signals ([`profiler_control_by_signals`]), child
//!   processes ([`profiler_env_vars_for_child_process`], [`profiler_received_exit_profile`]).
//! - Threads: [`register_thread`], [`ThreadGuard`], [`profiler_thread_is_being_profiled`].
//! - Pages and the process's name: [`profiler_register_page`], [`profiler_set_process_name`].
//! - A single stack: [`profiler_suspend_and_sample_thread`], [`profiler_capture_backtrace`].
//! - How long an event loop keeps its events waiting: [`AutoProfilerEvent`], [`profiler_watch_event_loop`].
//! - Code that the program generates: [`profiler_register_code_range`].
//! - Scripts that an interpreter in the program runs: [`AutoProfilerScriptFrame`].
//! - What the program says of itself: [`auto_profiler_label!`], [`add_text_marker`], [`auto_profiler_marker_text!`].
//!
//! # Features
//! - `enabled` (default): the profiler. Without it, and on targets other than Linux on x86_64 and aarch64, everything is
//!   there and does nothing, and [`profiler_start`] answers [`StartError::Unsupported`].
//! - `gzip` (default): profiles whose name ends in `.gz` are compressed.

// RealtimeSanitizer, which nightly alone has; `.ci/run` builds so.
#![cfg_attr(gekkota_rtsan, feature(sanitize))]

#[cfg(has_profiler)]
mod buffer;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod control;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod counters;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod json;
#[cfg(has_profiler)]
mod platform;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod sampler;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod state;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod stream;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod symbols;
#[cfg(has_profiler)]
mod threads;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod unwind;

#[forbid(unsafe_code)]
mod api;
mod base;
#[cfg(not(has_profiler))]
#[forbid(unsafe_code)]
mod disabled;
#[forbid(unsafe_code)]
mod export;
#[cfg(all(has_profiler, any(test, fuzzing)))]
#[doc(hidden)]
#[forbid(unsafe_code)]
pub mod fuzzing;
#[forbid(unsafe_code)]
mod macros;
#[forbid(unsafe_code)]
mod markers;

pub use api::{
    AutoProfilerEvent, AutoProfilerInit, AutoProfilerLabel, AutoProfilerScriptFrame, AutoProfilerTextMarker,
    AutoProfilerThreadSleep, AutoProfilerThreadWake, CodeRange, EventDelayProbe, EventLoopWatch, Format,
    Profile, ProfilerBacktrace, ProfilerSession, ScriptFunction, SnapshotOptions, StackSample, Started,
    Symbolicate, ThreadGuard, add_text_marker, add_untyped_marker, profiler_add_state_change_callback,
    profiler_callback_after_sampling, profiler_capture_backtrace, profiler_clear_all_pages,
    profiler_control_by_signals, profiler_current_process_id, profiler_current_thread_id,
    profiler_ensure_started, profiler_env_vars_for_child_process, profiler_feature_active,
    profiler_features_if_active, profiler_features_if_active_and_unpaused, profiler_get_available_features,
    profiler_get_buffer_info, profiler_get_profile, profiler_get_start_params, profiler_init,
    profiler_is_active, profiler_is_active_and_thread_is_registered, profiler_is_active_and_unpaused,
    profiler_is_locked_on_current_thread, profiler_is_main_thread, profiler_is_paused,
    profiler_is_sampling_paused, profiler_main_thread_id, profiler_other_thread_is_being_profiled,
    profiler_pause, profiler_pause_sampling, profiler_received_exit_profile, profiler_register_code_range,
    profiler_register_page, profiler_register_script_function, profiler_remove_state_change_callback,
    profiler_resume, profiler_resume_sampling, profiler_save_profile_to_file, profiler_set_process_name,
    profiler_shutdown, profiler_start, profiler_stop, profiler_stream_json,
    profiler_suspend_and_sample_thread, profiler_thread_is_being_profiled, profiler_thread_is_sleeping,
    profiler_thread_sleep, profiler_thread_wake, profiler_unregister_page, profiler_watch_event_loop,
    register_thread, unregister_thread,
};
pub use base::{
    BufferInfo, CodeAddress, ControlSignals, ExitProfileError, Features, FunctionName, Page, ProcessId,
    ProfilerTime, ProfilingCategoryPair, ProfilingState, ProfilingStates, SamplingEngine, SamplingState,
    SaveError, SharedProgress, StackFeatures, StackFrame, StartError, StartParams, StreamError, SuspendError,
    ThreadId, ThreadProfilingFeatures, UnknownFeature, subcategories,
};
pub use export::{HotFunction, ThreadSummary};
pub use markers::{MarkerOptions, MarkerTiming};

/// Compiles the code of the README, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
