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
//! - Labels: [`auto_profiler_label!`] and its kin, [`AutoProfilerLabel`], [`labelled_future`].
//! - Markers: [`add_text_marker`], [`auto_profiler_marker_text!`], [`marker_type!`] or [`ProfilerMarker`] with [`add_marker`],
//!   [`lazy_add_marker!`]; what can be said of each, [`MarkerOptions`]; those that Gecko has, [`marker::built_in`].
//! - Categories: [`gecko_profiler_category!`], [`profiler_categories!`].
//!
//! # Code that was written for Mozilla's crate
//! compiles after `use gekkota as gecko_profiler;`: that crate's items are here, by its names. One has another form: its
//! `AutoProfilerLabel::new(&mut MaybeUninit<…>, …)` is unsafe, since that label must not be moved; here a label is a guard,
//! [`AutoProfilerLabel::new`], and is safe to move.
//!
//! # Features
//! - `enabled` (default): the profiler. Without it, and on targets other than Linux on x86_64 and aarch64, everything is
//!   there and does nothing, and [`profiler_start`] answers [`StartError::Unsupported`].
//! - `gzip` (default): profiles whose name ends in `.gz` are compressed.
//! - `attributes` (default): [`#[gecko_profiler_fn_label]`](macro@gecko_profiler_fn_label), from a package that depends on nothing.
//!   A library that carries labels alone has it with `default-features = false, features = ["attributes"]`.
//! - `serde` (with `enabled`): payloads of markers are what `serde` codes, and its traits are re-exported. A library that carries
//!   markers without the profiler asks for it if it wants those.
//! - `log`: records of `log` as markers.
//! - `tracing`: spans and events of `tracing` as labels and markers.

// RealtimeSanitizer, which nightly alone has; `.ci/run` builds so.
#![cfg_attr(gekkota_rtsan, feature(sanitize))]
// A library leaves the application's terminal alone.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

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
#[cfg(any(feature = "log", feature = "tracing"))]
#[forbid(unsafe_code)]
mod interop;
#[forbid(unsafe_code)]
mod macros;
#[forbid(unsafe_code)]
mod markers;

pub use api::{
    AutoProfilerEvent, AutoProfilerFlowMarker, AutoProfilerInit, AutoProfilerLabel,
    AutoProfilerMarker, AutoProfilerScriptFrame, AutoProfilerTextMarker, AutoProfilerThreadSleep,
    AutoProfilerThreadWake, AutoProfilerTracingMarker, CodeRange, EventDelayProbe, EventLoopWatch,
    Format, Profile, ProfilerBacktrace, ProfilerSession, ScriptFunction, SnapshotOptions,
    StackSample, Started, Symbolicate, ThreadGuard, add_marker, add_text_marker,
    add_untyped_marker, can_accept_markers, current_thread_is_being_profiled_for_markers,
    is_active, is_active_and_unpaused, labelled_future, labelled_future_with_dynamic,
    profiler_add_state_change_callback, profiler_callback_after_sampling,
    profiler_capture_backtrace, profiler_clear_all_pages, profiler_control_by_signals,
    profiler_current_process_id, profiler_current_thread_id, profiler_ensure_started,
    profiler_env_vars_for_child_process, profiler_feature_active, profiler_features_if_active,
    profiler_features_if_active_and_unpaused, profiler_get_available_features,
    profiler_get_buffer_info, profiler_get_profile, profiler_get_start_params, profiler_init,
    profiler_is_active, profiler_is_active_and_thread_is_registered,
    profiler_is_active_and_unpaused, profiler_is_locked_on_current_thread, profiler_is_main_thread,
    profiler_is_paused, profiler_is_sampling_paused, profiler_main_thread_id,
    profiler_other_thread_is_being_profiled, profiler_pause, profiler_pause_sampling,
    profiler_received_exit_profile, profiler_register_code_range, profiler_register_page,
    profiler_register_script_function, profiler_remove_state_change_callback, profiler_resume,
    profiler_resume_sampling, profiler_save_profile_to_file, profiler_set_process_name,
    profiler_shutdown, profiler_start, profiler_stop, profiler_stream_json,
    profiler_suspend_and_sample_thread, profiler_thread_is_being_profiled,
    profiler_thread_is_sleeping, profiler_thread_sleep, profiler_thread_wake,
    profiler_unregister_page, profiler_watch_event_loop, register_thread, unregister_thread,
};
pub use base::{
    BufferInfo, CodeAddress, ControlSignals, ExitProfileError, Features, FunctionName,
    HostCategory, LabelFlags, Page, ProcessId, ProfilerTime, ProfilingCategory,
    ProfilingCategoryPair, ProfilingState, ProfilingStates, SamplingEngine, SamplingState,
    SaveError, SharedProgress, StackFeatures, StackFrame, StartError, StartParams, StreamError,
    SuspendError, ThreadId, ThreadProfilingFeatures, UnknownFeature, subcategories,
};
pub use export::{HotFunction, ThreadSummary};
/// A label for each run of a function, as if [`gecko_profiler_label!`] were its first line; with a text of its own, as if
/// [`auto_profiler_label!`] were.
///
/// ```
/// use gekkota::gecko_profiler_fn_label;
///
/// gekkota::profiler_categories! {
///     pub Requests("Requests", blue) { Other: "Other", Parsing: "Parsing" }
/// }
///
/// struct Server;
///
/// impl Server {
///     #[gecko_profiler_fn_label(Network)]
///     fn answer(&self, request: &str) -> usize {
///         parse(request).len()
///     }
///
///     #[gecko_profiler_fn_label("serve", Network)]
///     async fn serve(&mut self, request: &str) -> usize {
///         self.answer(request)
///     }
/// }
///
/// #[gecko_profiler_fn_label(JavaScript, Parsing)]
/// pub fn compile() {}
///
/// #[gecko_profiler_fn_label("parse", Requests::Parsing)]
/// fn parse(text: &str) -> &str {
///     text.trim()
/// }
/// # assert_eq!((Server.answer(" a "), compile()), (1, ()));
/// ```
///
/// | argument | says | else |
/// |---|---|---|
/// | `"text"`, first | the label | the subcategory's label, and only while the profiler is active when the function begins |
/// | `Category`, `Category, Subcategory`, or an expression of a [`ProfilingCategoryPair`] | the category | it has to be there |
/// | `crate = path`, last | where gekkota is | `::gekkota` |
///
/// The label of an `async fn` is there whenever its future is polled, as with [`labelled_future`], and not while it waits; so is
/// that of a function that does nothing but make a future: whose body is `async move { … }`, or `Box::pin` of that, as
/// `async-trait` makes it. The future is as `Send` as it was, and holds a few words more.
///
/// A host that has renamed the crate in its `Cargo.toml` says `crate = renamed`, or once for all, at its root,
/// `extern crate renamed as gekkota;`. What is no function with a body, and a `const fn`, does not compile.
///
/// Cost: the label's. Idea: the attribute of Mozilla's crate, for functions that are not `async`.
#[doc(alias = "AUTO_PROFILER_LABEL_CATEGORY_PAIR")]
#[cfg(feature = "attributes")]
pub use gekkota_attributes::gecko_profiler_fn_label;
#[cfg(feature = "tracing")]
pub use interop::ProfilerLayer;
#[cfg(feature = "log")]
pub use interop::ProfilerLogger;
pub use marker::built_in::{CowString, FlowStackMarker, StackMarker, Tracing};
pub use marker::options;
pub use marker::schema;
pub use markers::{
    FlowId, JSONWriter, MarkerBacktrace, MarkerField, MarkerOptions, MarkerSchema, MarkerStack,
    MarkerTiming, ProfilerMarker,
};
#[cfg(feature = "serde")]
pub use serde::{Deserialize, Serialize};
// By Mozilla's crate they are at the root.
#[doc(no_inline)]
pub use subcategories::*;

/// Everything about markers, as Mozilla's crate has it.
pub mod marker {
    pub use crate::api::{
        AutoProfilerFlowMarker, AutoProfilerMarker, AutoProfilerTextMarker,
        AutoProfilerTracingMarker, add_marker, add_text_marker, add_untyped_marker,
    };
    pub use crate::markers::built_in;
    pub use crate::markers::{FlowId, MarkerField, ProfilerMarker};
    pub use built_in::{CowString, FlowStackMarker, StackMarker, Tracing};
    pub use options::*;
    pub use schema::MarkerSchema;

    /// What is said of a marker beside its name and category.
    pub mod options {
        #[doc(no_inline)]
        pub use crate::markers::MarkerStack as StackCaptureOptions;
        pub use crate::markers::{MarkerBacktrace, MarkerOptions, MarkerStack, MarkerTiming};
    }

    /// How the viewer shows a type of markers.
    pub mod schema {
        pub use crate::markers::{
            Format, GraphColor, GraphType, Location, MarkerSchema, PayloadFlags, Searchable,
        };
    }
}

/// The categories, where Mozilla's crate has them.
pub mod gecko_bindings {
    /// Gecko's categories and subcategories.
    pub mod profiling_categories {
        #[doc(no_inline)]
        pub use crate::subcategories::*;
        #[doc(no_inline)]
        pub use crate::{ProfilingCategory, ProfilingCategoryPair};
    }
}

/// What macros expand to.
#[doc(hidden)]
pub mod __private {
    pub use crate::api::{records_flows, would_record};
    pub use crate::base::{CategoryDefinition, ShortText, place_among};
    #[cfg(feature = "serde")]
    pub use serde;
}

/// Compiles the code of the README, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
