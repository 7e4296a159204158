//! An in-process sampling profiler, modeled on the Gecko Profiler of Firefox.
//!
//! gekkota samples the threads of an application and writes profiles for the [Firefox
//! Profiler](https://profiler.firefox.com): native stacks with names, the application's own labels
//! and markers, and CPU times, on one timeline. It needs no privileges, no frame pointers and no
//! debugger.
//!
//! A running thread is interrupted only while its own signal handler copies registers, the used
//! part of the stack, and labels. The sampler thread does everything else. It reads the stack of a
//! sleeping thread from outside and rarely wakes it.
//!
//! # Example
//!
//! ```
//! use gekkota::{MarkerTiming, ProfilerTime, StartParams};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   if gekkota::Features::available() == gekkota::Features::NONE { return Ok(()); }
//!     // Registers the main thread, and reads the MOZ_PROFILER_* variables.
//!     let _profiler = gekkota::AutoProfilerInit::new();
//!     gekkota::profiler_start(StartParams::default())?;
//!
//!     let worker = std::thread::spawn(|| {
//!         gekkota::register_thread("worker");
//!         // A frame in every sample that is taken until the end of this scope.
//!         gekkota::auto_profiler_label!("decode", Other);
//!         let start = ProfilerTime::now();
//!         // … the work …
//!         let timing = MarkerTiming::interval_until_now_from(start);
//!         let category = gekkota::gecko_profiler_category!(Other);
//!         gekkota::add_text_marker("Decoded", category, timing.into(), "cover.png");
//!     });
//!     worker.join().expect("the worker does not panic");
//!
//!     // Open this file in https://profiler.firefox.com.
//!     let path = std::env::temp_dir().join(format!("worker-{}.json", std::process::id()));
//!     gekkota::profiler_save_profile_to_file(&path)?;
//!     gekkota::profiler_stop();
//!
//!     assert!(std::fs::read_to_string(&path)?.contains("cover.png"));
//! #   std::fs::remove_file(&path)?;
//!     Ok(())
//! }
//! ```
//!
//! # From task to item
//!
//! | Task | Items |
//! |---|---|
//! | Set up the profiler in `main`; start it by environment variables | [`AutoProfilerInit`], [`profiler_init`], [`profiler_shutdown`] |
//! | Start before `main`, to see static initializers | [`early_start!`] |
//! | Save the profile however the program ends | [`AutoProfilerInitBuilder`], [`profiler_save_at_exit`] |
//! | Start and stop a session from code | [`profiler_start`] or [`profiler_ensure_started`] with [`StartParams`] and [`Features`], [`profiler_stop`]; or the guard [`ProfilerSession`] |
//! | Start sessions in tests and benchmarks, one after the other | [`ProfilerSession::start_in_turn`] |
//! | Name a thread, and give it a slot and a signal stack before its first sample | [`register_thread`], [`unregister_thread`], [`ThreadGuard`] |
//! | Name the threads of Tokio and rayon | [`thread::start_hook`], [`thread::register_thread_once`] |
//! | Spawn a registered thread with `std::thread::Builder` | [`thread::RegisteredSpawn`] |
//! | Save or write a profile, in any format | [`profiler_save_profile_to_file`], [`profiler_get_profile`], [`profiler_stream_json`], [`Profile`], [`profile::Format`] |
//! | Read, convert, summarize or compare profiles | [`Profile::read`], [`Profile::write`], [`Profile::summary`], [`Profile::diff`] |
//! | Name a part of the work on every stack | [`auto_profiler_label!`], [`auto_profiler_label_dynamic!`], [`label`]; in a constant: [`label::Label`] |
//! | Label a whole function, or a future | [`gecko_profiler_fn_label`](macro@gecko_profiler_fn_label), [`labeled_future`] |
//! | Tell which request each sample belongs to | [`context`] |
//! | Put an event on the timeline, with a text or fields | [`marker!`]; with a category, a time or a stack: [`add_text_marker`], [`add_untyped_marker`], [`auto_profiler_marker!`], [`auto_profiler_marker_text!`] |
//! | Give an event typed fields | [`marker_type!`], [`add_marker`], [`lazy_add_marker!`], [`ProfilerMarker`], [`schema`] |
//! | Set a marker's time, thread or stack | [`MarkerOptions`], [`MarkerTiming`], [`MarkerStack`] |
//! | Use Gecko's marker types, or link the markers of one flow | [`marker`](mod@marker), [`FlowId`] |
//! | Show numbers of the program as tracks | [`counter`] |
//! | Show what allocates memory, and what is still alive | [`memory`] |
//! | Show the energy that the machine uses, and the frequencies of its cores | [`Features::POWER`], [`Features::CPU_FREQ`] |
//! | Tell a wait for a processor from a sleep, and count context switches | [`Features::CONTEXT_SWITCHES`] |
//! | Show where async tasks wait, and how long | [`Features::WAITING_TASKS`], [`labeled_future`] |
//! | Write the last seconds to a file when something goes wrong | [`dump`](mod@dump) |
//! | Push profiles to a Pyroscope server | `push` |
//! | Keep the data when the process is killed or crashes | [`StartParams::crash_file`], [`Profile::rescue`] |
//! | Limit what the profiler costs | [`StartParams::always_on`], [`StartParams::max_cpu_percent`](StartParams::max_cpu_percent()) |
//! | Show what the profiler costs | [`StartParams::record_overheads`], [`profiler_get_buffer_info`], [`Profile::summary`] |
//! | Choose a category, or define one | [`gecko_profiler_category!`], [`profiler_categories!`], [`category`] |
//! | Pause and resume | [`profiler_pause`], [`profiler_resume`]; only the samples: [`profiler_pause_sampling`], [`profiler_resume_sampling`] |
//! | Query the state | [`profiler_is_active`], [`profiler_is_paused`], [`profiler_get_buffer_info`] |
//! | Get called when the state changes | [`callback`] |
//! | Start and save by signals | [`profiler_control_by_signals`] |
//! | Profile child processes; name the process, its version and its pages | [`process`] |
//! | Announce that a thread sleeps; query threads | [`profiler_thread_sleep`], [`AutoProfilerThreadSleep`], [`thread`] |
//! | Get a single stack, with or without a session | [`stack`] |
//! | Show how long events wait in an event loop | [`event_delay`] |
//! | Record file operations with their stacks | [`file_io`] |
//! | Show the functions of scripts | [`script`] |
//! | Unwind and name generated code | [`jit`] |
//! | Record `log` and `tracing`; show `metrics` as tracks | `ProfilerLogger`, `ProfilerLayer`; `ProfilerRecorder` |
//! | Handle errors | [`StartError`], [`SaveError`], [`ReadError`], [`RescueError`], [`StreamError`], [`UnknownFeature`], [`ExitProfileError`](process::ExitProfileError), [`SuspendError`](stack::SuspendError) |
//! | Compile code that was written for Mozilla's crate | [`gecko_profiler`] |
//!
//! Unless its documentation says otherwise, a function may be called from any thread at any time,
//! including before [`profiler_init`] and after [`profiler_shutdown`]. A call that does not fit the
//! profiler's state, such as a stop without a session, does nothing. No function panics because of
//! a mistake of the application.
//!
//! # Features
//!
//! - `enabled` (default): the profiler itself. Without it, and on targets other than Linux on
//!   x86_64 and aarch64, every item exists and does nothing, and [`profiler_start`] returns
//!   [`StartError::Unsupported`].
//! - `gzip` (default): compresses profiles whose file name ends in `.gz`, and reads debug information
//!   that is compressed with zlib.
//! - `formats`: writes the formats of Chrome's DevTools, speedscope and d3-flame-graph.
//! - `protobuf`: writes profiles for pprof.
//! - `cpp`: names C++ functions as in C++, instead of as the linker does.
//! - `mini_debug_info`: names functions of stripped libraries that contain compressed symbols, as
//!   those of Fedora do, and reads debug information that is compressed with Zstandard.
//! - `attributes` (default): [`#[gecko_profiler_fn_label]`](macro@gecko_profiler_fn_label), from a
//!   package without dependencies. A library that only needs labels uses
//!   `default-features = false, features = ["attributes"]`.
//! - `serde` (part of `enabled`): encodes marker payloads with `serde`, and re-exports its traits
//!   in [`schema`]. A library that adds markers without `enabled` needs this feature only if its
//!   payloads implement these traits.
//! - `derive`: serde's derive macros in [`schema`]. [`marker_type!`] does not need them, nor does an
//!   application that depends on `serde` with its own feature `derive`.
//! - `http`: serves profiles over HTTP at the address that `MOZ_PROFILER_HTTP` names, for programs without
//!   a server of their own: see [`endpoints`].
//! - `push`: pushes profiles to a Pyroscope server; includes `protobuf`. See `push`.
//! - `push-tls`: pushes to addresses that begin with `https://`; includes `push`.
//! - `otlp-unstable`: pushes OpenTelemetry's profiles to a collector; includes `push`. The format is
//!   not stable.
//! - `backtrace`: converts a `backtrace::Backtrace` into the stack of a marker, on Linux.
//! - `log`: `ProfilerLogger`, which records `log` records as markers.
//! - `metrics`: `ProfilerRecorder`, which shows counters, gauges and histograms of `metrics` as tracks.
//! - `tracing`: `ProfilerLayer`, which records `tracing` spans and events as labels and markers.
//!
//! A default build compiles 33 packages. Of the features that are off by default, `cpp` and `log`
//! add one package each, `http` one, `metrics` 3, `derive` and `tracing` 5, `protobuf` 10,
//! `mini_debug_info` 11, `push` 13, `push-tls` 11 more, `backtrace`, `formats` and
//! `otlp-unstable` (beside `push`) none.
//! `cargo peers weight` measures the CPU time of a build and the size of a program for each.

// `.ci/steps/10-sanitizers` builds with RealtimeSanitizer, which needs this nightly feature.
#![cfg_attr(gekkota_rtsan, feature(sanitize))]
// A library does not print to the application's terminal. Only `session/env/notices.rs` does, without
// these macros.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
// CI looks for dead code in a build with all features. In others, code is left out only if it needs a
// dependency, or if its size counts.
#![cfg_attr(
    not(all(
        has_profiler,
        feature = "formats",
        feature = "http",
        feature = "log",
        feature = "metrics",
        feature = "otlp-unstable",
        feature = "push-tls",
        feature = "tracing",
        feature = "unwind_benchmark"
    )),
    allow(dead_code, unused_imports, reason = "the code of a feature")
)]

#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod allocations;
mod api;
#[cfg(has_profiler)]
mod backtrace;
#[cfg(has_profiler)]
mod buffer;
#[cfg(has_profiler)]
mod capture;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod counters;
#[cfg(not(has_profiler))]
#[forbid(unsafe_code)]
mod disabled;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod event_loop;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod export;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod family;
#[cfg(all(has_profiler, any(test, fuzzing)))]
#[doc(hidden)]
#[forbid(unsafe_code)]
pub mod fuzzing;
#[cfg(all(has_profiler, feature = "http"))]
#[forbid(unsafe_code)]
mod http;
#[cfg(any(feature = "log", feature = "metrics", feature = "tracing"))]
#[forbid(unsafe_code)]
mod integrations;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod json;
#[cfg(has_profiler)]
mod labels;
#[forbid(unsafe_code)]
mod macros;
#[forbid(unsafe_code)]
mod markers;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod model;
#[cfg(has_profiler)]
mod platform;
#[cfg(all(has_profiler, feature = "push"))]
#[forbid(unsafe_code)]
mod pushing;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod record;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod sampler;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod session;
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
#[forbid(unsafe_code)]
mod threads;
#[forbid(unsafe_code)]
mod types;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod unwind;
mod util;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod waiting_tasks;

#[forbid(unsafe_code)]
pub mod gecko_profiler;

pub use api::{
    AutoProfilerInit, AutoProfilerInitBuilder, AutoProfilerLabel, AutoProfilerMarker,
    AutoProfilerTextMarker, AutoProfilerThreadSleep, AutoProfilerThreadWake, Profile,
    ProfilerSession, Started, ThreadGuard, add_marker, add_text_marker, add_untyped_marker,
    labeled_future, labeled_future_with_dynamic, profiler_control_by_signals,
    profiler_ensure_started, profiler_feature_active, profiler_features_if_active,
    profiler_features_if_active_and_unpaused, profiler_get_available_features,
    profiler_get_buffer_info, profiler_get_profile, profiler_get_start_params, profiler_init,
    profiler_is_active, profiler_is_active_and_unpaused, profiler_is_paused,
    profiler_is_sampling_paused, profiler_pause, profiler_pause_sampling, profiler_resume,
    profiler_resume_sampling, profiler_save_at_exit, profiler_save_profile_to_file,
    profiler_shutdown, profiler_start, profiler_stop, profiler_stream_json, profiler_thread_sleep,
    profiler_thread_wake, register_thread, unregister_thread,
};
/// Labels every call of a function, as if its first line were
/// [`gecko_profiler_label!`](crate::gecko_profiler::gecko_profiler_label) or, for an attribute with
/// a text, [`auto_profiler_label!`].
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
///     trim(text)
/// }
///
/// #[gecko_profiler_fn_label("trim")]
/// fn trim(text: &str) -> &str {
///     text.trim()
/// }
/// # assert_eq!((Server.answer(" a "), compile()), (1, ()));
/// ```
///
/// | Argument | Meaning | Default |
/// |---|---|---|
/// | `"text"`, first | the label's text | the subcategory's label; pushed only if the profiler is active when the function begins |
/// | `Category`, `Category, Subcategory`, or an expression of type [`ProfilingCategoryPair`] | the category | Gecko's “Other”; required without a text |
/// | `crate = path`, last | the path of gekkota | `::gekkota` |
///
/// The label of an `async fn` is pushed for each poll of its future, as by [`labeled_future`],
/// which also registers the threads that poll, and is absent while the future waits. The same holds
/// for a function whose whole body is `async move { … }`, or `Box::pin` of one, as `async-trait`
/// generates it. The future is `Send` if it was `Send` without the attribute, and grows by a few
/// words.
///
/// An application that has renamed the crate in its `Cargo.toml` passes `crate = renamed`, or
/// writes `extern crate renamed as gekkota;` once at its root. A function without a body, and a
/// `const fn`, do not compile with this attribute.
///
/// Cost: that of the label. Idea: the attribute of Mozilla's crate, which accepts no `async fn`.
#[doc(alias = "AUTO_PROFILER_LABEL_CATEGORY_PAIR")]
#[cfg(feature = "attributes")]
pub use gekkota_attributes::gecko_profiler_fn_label;
#[cfg(feature = "log")]
pub use integrations::log::ProfilerLogger;
#[cfg(feature = "metrics")]
pub use integrations::metrics::ProfilerRecorder;
#[cfg(feature = "tracing")]
pub use integrations::tracing::ProfilerLayer;
pub use markers::{FlowId, MarkerOptions, MarkerStack, MarkerTiming, ProfilerMarker};
pub use types::{
    BufferInfo, ControlSignals, Features, ProfilerTime, ProfilingCategoryPair, ReadError,
    RescueError, SaveError, StartError, StartParams, StreamError, UnknownFeature,
};

/// Callbacks of the application: on changes of the profiler's state, and after a sampling loop.
pub mod callback {
    pub use crate::api::{
        profiler_add_state_change_callback, profiler_callback_after_sampling,
        profiler_remove_state_change_callback,
    };
    pub use crate::types::{ProfilingState, ProfilingStates, SamplingState};
}

/// Gecko's categories and subcategories by name, and the types behind [`profiler_categories!`].
///
/// Labels and markers take a [`ProfilingCategoryPair`], which [`gecko_profiler_category!`] makes
/// from these names.
pub mod category {
    pub use crate::types::subcategories::*;
    pub use crate::types::{HostCategory, ProfilingCategory};
}

/// The request that a thread works on, in each of its samples: trace id, span id and labels.
pub mod context {
    pub use crate::api::{AutoProfilerContext, ProfilerContext, in_context};
}

/// Numbers of the application over time, as tracks of the profile.
pub mod counter {
    pub use crate::api::{
        OwnedProfilerCounter, OwnedProfilerCounterTotal, ProfilerCounter, ProfilerCounterTotal,
        profiler_count_bandwidth_bytes,
    };
    pub use crate::types::CounterUnit;
}

/// The seconds before something went wrong, written to a file while the session continues.
pub mod dump {
    pub use crate::api::{ProfilerDump, profiler_dump, profiler_set_dumps};
    pub use crate::types::{DumpError, DumpSettings};
}

/// Measurement of how long events wait in a thread's event loop: the `eventDelay` of its samples.
pub mod event_delay {
    pub use crate::api::{
        AutoProfilerEvent, EventDelayProbe, EventLoopWatch, profiler_watch_event_loop,
    };
}

/// File operations of the application, as markers with stacks.
///
/// Needs one of the features [`Features::MAIN_THREAD_IO`], [`Features::FILE_IO`] and
/// [`Features::FILE_IO_ALL`], of which a start by environment variables has the last. Unlike Gecko,
/// the profiler does not intercept the calls of the C library: what is not wrapped is not recorded.
/// An operation of a profiled thread is only on that thread's track, whereas Gecko repeats it on
/// the main thread's.
pub mod file_io {
    pub use crate::api::{AutoProfilerFileIO, ProfiledFile, add_file_io_marker};
}

/// Machine code that the application generates: unwinding through it, and names for it.
pub mod jit {
    pub use crate::api::{CodeRange, profiler_register_code_range};
}

/// Labels in constants, and variants of [`auto_profiler_label!`] and
/// [`auto_profiler_label_dynamic!`]: for hot code, for UTF-16 texts, and for functions that scripts
/// call.
pub mod label {
    pub use crate::api::{IntoLabel, Label};
    pub use crate::types::LabelFlags;
    #[doc(inline)]
    pub use crate::{
        __auto_profiler_label_category_pair as auto_profiler_label_category_pair,
        __auto_profiler_label_category_pair_relevant_for_js as auto_profiler_label_category_pair_relevant_for_js,
        __auto_profiler_label_dynamic_nonsensitive as auto_profiler_label_dynamic_nonsensitive,
        __auto_profiler_label_dynamic_relevant_for_js as auto_profiler_label_dynamic_relevant_for_js,
        __auto_profiler_label_dynamic_utf16 as auto_profiler_label_dynamic_utf16,
        __auto_profiler_label_getter as auto_profiler_label_getter,
        __auto_profiler_label_hot as auto_profiler_label_hot,
        __auto_profiler_label_method as auto_profiler_label_method,
        __auto_profiler_label_relevant_for_js as auto_profiler_label_relevant_for_js,
        __auto_profiler_label_setter as auto_profiler_label_setter,
    };
}

/// More ways to add markers: Gecko's marker types, flows, and macros that evaluate their arguments
/// only when the marker is recorded.
pub mod marker {
    pub use crate::api::AutoProfilerFlowMarker;
    pub use crate::markers::{MarkerBacktrace, built_in};
    #[doc(inline)]
    pub use crate::{
        __add_text_marker_fmt as add_text_marker_fmt,
        __auto_profiler_flow_marker as auto_profiler_flow_marker,
        __lazy_add_text_marker as lazy_add_text_marker,
        __lazy_add_untyped_marker as lazy_add_untyped_marker,
        __profiler_marker_flow_only as profiler_marker_flow_only,
    };
}

/// Profiles for clients that ask a running program over HTTP, behind routes of the host's own
/// server.
///
/// A program without a server of its own gets one from the crate's feature `http`: with the
/// variable `MOZ_PROFILER_HTTP`, [`profiler_init`] begins to serve the same paths as Go's
/// `net/http/pprof`.
pub mod endpoints {
    pub use crate::api::{
        AskFuture, Endpoint, EndpointAnswer, EndpointError, EndpointLimits, Question, answer,
        answer_async, flamegraph_svg, gecko, pprof_cpu, pprof_heap, pprof_wall,
        set_endpoint_limits, summary_text, threads_text,
    };
}

/// Profiles pushed to a store of the fleet, such as Pyroscope, one after the other.
///
/// Environment variables can start this, too: with `MOZ_PROFILER_PUSH`, [`profiler_init`] begins to
/// push.
#[cfg(feature = "push")]
pub mod push {
    pub use crate::api::{Pusher, profiler_push};
    pub use crate::types::{PushCounts, PushError, PushSettings};
}

/// The memory of the application: a counter, samples with the stacks that allocated, and what is
/// alive.
pub mod memory {
    pub use crate::api::{ProfilerAllocator, profiler_heap_snapshot};
}

/// Name, type, version and pages of this process in the profile, and the profiles of its child
/// processes.
pub mod process {
    pub use crate::api::{
        ExecHandover, profiler_clear_all_pages, profiler_command, profiler_current_process_id,
        profiler_env_vars_for_child_process, profiler_prepare_exec, profiler_received_exit_profile,
        profiler_register_page, profiler_set_process_name, profiler_set_process_type,
        profiler_set_version, profiler_unregister_page, profiler_wait_for_children,
        profiler_wait_for_sampling_of_children,
    };
    pub use crate::types::{ExitProfileError, Page, ProcessId};
}

/// Formats, options, progress reports and summaries of a [`Profile`].
pub mod profile {
    pub use crate::api::{DiffOptions, ProfileDiff, SnapshotOptions};
    pub use crate::types::{
        ExplainedPart, ExplainedStack, Explanation, Format, HotFunction, SampleWeight, SlowRequest,
        ThreadSummary, TimeKind, ViewerRange,
    };
    pub use crate::types::{ProfilerStats, Symbolicate};
    pub use crate::util::SharedProgress;
}

/// Display and encoding of a marker type, for implementations of [`ProfilerMarker`] that are
/// written by hand instead of with [`marker_type!`].
///
/// `#[derive(Serialize, Deserialize)]` needs the crate's feature `derive`.
pub mod schema {
    pub use crate::markers::{
        Format, GraphColor, GraphType, JSONWriter, Location, MarkerField, MarkerSchema,
        PayloadFlags, Searchable,
    };
    #[cfg(feature = "serde")]
    pub use serde::{Deserialize, Serialize};
}

/// Functions of the scripts that an interpreter in the application runs.
pub mod script {
    pub use crate::api::{
        AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_code_range,
        profiler_register_script_function, profiler_run_interpreter,
    };
    pub use crate::types::ScriptImplementation;
}

/// Single stacks on demand, of the calling thread or of another one, with or without a session.
pub mod stack {
    pub use crate::api::{
        ProfilerBacktrace, StackSample, profiler_capture_backtrace,
        profiler_suspend_and_sample_thread,
    };
    pub use crate::types::{CodeAddress, FunctionName, StackFeatures, StackFrame, SuspendError};
}

/// Registration of the threads of Tokio, rayon and `std::thread::Builder`; thread ids, what the
/// profiler records of a thread, and alternate signal stacks.
pub mod thread {
    pub use crate::api::{
        AutoSignalStack, RegisteredSpawn, profiler_current_thread_id,
        profiler_is_active_and_thread_is_registered, profiler_is_locked_on_current_thread,
        profiler_is_main_thread, profiler_main_thread_id, profiler_other_thread_is_being_profiled,
        profiler_thread_is_being_profiled, profiler_thread_is_sleeping, register_thread_once,
        start_hook,
    };
    pub use crate::types::{ThreadId, ThreadProfilingFeatures};
}

/// Items that the exported macros and the attribute expand to. Not part of the public API.
#[doc(hidden)]
pub mod __private {
    pub use crate::api::{
        TaskWait, records_flows, records_markers_of_current_thread, register_polling_thread,
        start_early, would_record,
    };
    pub use crate::markers::{FieldNames, FieldValue, Fields};
    pub use crate::types::{CategoryDefinition, place_among};
    pub use crate::util::ShortText;
    pub use crate::{__gecko_profiler_label as gecko_profiler_label, auto_profiler_label};
    #[cfg(all(has_profiler, feature = "unwind_benchmark"))]
    pub use crate::{sampler::repeat_unwinding, symbols::resolve_addresses};
    #[cfg(feature = "serde")]
    pub use serde;
}

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
