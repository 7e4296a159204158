//! Basic types that every other folder uses.
//!
//! # Purpose
//! Defines times, ids, addresses, features, categories, settings and errors. This folder makes no
//! system call and reads no clock.
//!
//! # Threads and locks
//! Plain values, without locks.
//!
//! # Imports
//! Nothing of the crate.
//!
//! # Invariants
//! A number with a unit or an owner is a newtype. Each rejected value has an error that contains
//! the operation, the value and the accepted values.
//!
//! # Read next
//! `settings.rs`, `features.rs`, `error.rs`, then `crate::util`.

#[forbid(unsafe_code)]
mod address;
#[forbid(unsafe_code)]
mod buffer_info;
#[forbid(unsafe_code)]
mod category;
#[forbid(unsafe_code)]
mod control_signals;
#[forbid(unsafe_code)]
mod counter_params;
#[forbid(unsafe_code)]
mod dump_settings;
#[forbid(unsafe_code)]
mod error;
#[forbid(unsafe_code)]
mod features;
#[forbid(unsafe_code)]
mod frame_flags;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod generation;
#[forbid(unsafe_code)]
mod graph_color;
#[forbid(unsafe_code)]
mod ids;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod kept_limits;
#[forbid(unsafe_code)]
mod label_across_await;
#[forbid(unsafe_code)]
mod marker_phase;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod no_stack;
#[forbid(unsafe_code)]
mod page;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod process_levels;
#[forbid(unsafe_code)]
mod profiling_state;
#[cfg(feature = "push")]
#[forbid(unsafe_code)]
mod push_settings;
#[forbid(unsafe_code)]
mod script_description;
#[forbid(unsafe_code)]
mod serde_impls;
#[forbid(unsafe_code)]
mod settings;
#[forbid(unsafe_code)]
mod signal_name;
#[forbid(unsafe_code)]
mod stacks;
#[forbid(unsafe_code)]
mod symbolicate;
#[forbid(unsafe_code)]
mod thread_features;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod thread_filter;
#[forbid(unsafe_code)]
mod time;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod wait;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod warnings;

pub use address::CodeAddress;
#[cfg(has_profiler)]
pub(crate) use address::StackAddress;
pub use buffer_info::{BufferInfo, ProfilerStats};
#[cfg(all(has_profiler, any(test, fuzzing)))]
pub(crate) use category::CATEGORIES;
pub(crate) use category::subcategories;
pub use category::{
    CategoryDefinition, HostCategory, ProfilingCategory, ProfilingCategoryPair, place_among,
};
#[cfg(has_profiler)]
pub(crate) use category::{
    CategoryInfo, GECKO_CATEGORIES, OTHER_CATEGORY, all_categories, is_known_color,
    registered_categories, set_new_category_hook,
};
pub use control_signals::ControlSignals;
pub(crate) use counter_params::CounterParams;
pub use counter_params::CounterUnit;
pub use dump_settings::{DumpError, DumpSettings};
pub use error::{
    ExitProfileError, ReadError, RescueError, SaveError, StartError, StreamError, SuspendError,
    UnknownFeature,
};
pub use features::Features;
#[cfg(has_profiler)]
pub(crate) use features::UnavailableFeature;
pub(crate) use frame_flags::FrameFlags;
pub use frame_flags::LabelFlags;
#[cfg(has_profiler)]
pub(crate) use generation::Generation;
pub use graph_color::GraphColor;
pub use ids::{ProcessId, ThreadId};
#[cfg(has_profiler)]
pub(crate) use kept_limits::KeptLimits;
pub(crate) use label_across_await::LabelOfOneThread;
pub(crate) use marker_phase::MarkerPhase;
#[cfg(has_profiler)]
pub(crate) use no_stack::{NoStack, RAN_BETWEEN_SAMPLES};
pub use page::Page;
#[cfg(has_profiler)]
pub(crate) use process_levels::MAX_PROCESS_LEVELS;
pub use profiling_state::{ProfilingState, ProfilingStates, SamplingState};
#[cfg(feature = "push")]
pub use push_settings::{PushCounts, PushError, PushSettings};
#[cfg(all(has_profiler, feature = "push"))]
pub(crate) use push_settings::{PushProtocol, PushSecret};
pub(crate) use script_description::ScriptDescription;
pub use script_description::ScriptImplementation;
pub(crate) use serde_impls::{serde_as_index, serde_as_inner};
pub use settings::StartParams;
#[cfg(has_profiler)]
pub(crate) use settings::{CAPACITY_RANGE_BYTES, INTERVAL_RANGE, MAX_CPU_RANGE_PERCENT};
pub(crate) use settings::{DEFAULT_CHILD_TIMEOUT, DEFAULT_MAX_ROWS, DEFAULT_NAME_CACHE_BYTES};
#[cfg(has_profiler)]
pub(crate) use signal_name::signal_name;
#[cfg(has_profiler)]
pub(crate) use signal_name::signal_number;
pub use stacks::{FunctionName, StackFeatures, StackFrame};
pub(crate) use symbolicate::NameOptions;
pub use symbolicate::Symbolicate;
pub use thread_features::ThreadProfilingFeatures;
#[cfg(has_profiler)]
pub(crate) use thread_filter::ThreadFilter;
pub use time::ProfilerTime;
#[cfg(has_profiler)]
pub(crate) use time::TimeStamp;
#[cfg(has_profiler)]
pub(crate) use wait::{IDLE_INDEX, Wait};
#[cfg(has_profiler)]
pub(crate) use warnings::{
    BUFFER_MEMORY, LackOfMemory, PROFILER_SECTION, SAMPLER_CPU, STOP_TIME, Uncovered, Warning,
    late_signals, little_memory, low_coverage, missed_ticks, replaced_handler, stripped_program,
    unavailable_features, unmatched_filters, unregistered_main_thread, without_stacks,
};
