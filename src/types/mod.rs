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
//! `util`.
//!
//! # Invariants
//! A number with a unit or an owner is a newtype. Each rejected value has an error that contains
//! the operation, the value and the accepted values.
//!
//! # Read next
//! `settings.rs`, `features.rs`, `error.rs`, then `crate::util`.

mod address;
mod buffer_info;
mod category;
mod context_words;
mod control_signals;
mod counter_params;
mod dump_settings;
mod error;
mod explanation;
mod export_options;
mod features;
mod format;
mod frame_flags;
mod generation;
mod graph_color;
mod ids;
mod kept_limits;
mod label_across_await;
mod marker_phase;
mod no_stack;
mod page;
mod process_levels;
mod profiling_state;
#[cfg(feature = "push")]
mod push_settings;
mod script_description;
mod serde_impls;
mod settings;
mod signal_name;
mod stacks;
mod symbolicate;
mod thread_features;
mod thread_filter;
mod thread_summary;
mod time;
mod wait;
mod warnings;

pub use address::CodeAddress;
pub(crate) use address::StackAddress;
pub use buffer_info::{BufferInfo, ProfilerStats};
#[cfg(any(test, fuzzing))]
pub(crate) use category::CATEGORIES;
pub(crate) use category::subcategories;
pub use category::{
    CategoryDefinition, HostCategory, ProfilingCategory, ProfilingCategoryPair, place_among,
};
pub(crate) use category::{
    CategoryInfo, GECKO_CATEGORIES, OTHER_CATEGORY, all_categories, is_known_color,
    registered_categories, set_new_category_hook,
};
pub(crate) use context_words::{ContextWords, MAX_CONTEXT_LABELS};
pub use control_signals::ControlSignals;
pub(crate) use counter_params::CounterParams;
pub use counter_params::CounterUnit;
pub use dump_settings::{DumpError, DumpSettings};
pub use error::{
    ExitProfileError, ReadError, RescueError, SaveError, StartError, StreamError, SuspendError,
    UnknownFeature,
};
pub(crate) use explanation::Wanted;
pub use explanation::{
    ExplainedPart, ExplainedStack, Explanation, SlowRequest, TimeKind, ViewerRange,
};
pub use export_options::SampleWeight;
pub(crate) use export_options::{ExportOptions, Look};
pub use features::Features;
pub(crate) use features::UnavailableFeature;
pub use format::Format;
pub(crate) use frame_flags::FrameFlags;
pub use frame_flags::LabelFlags;
pub(crate) use generation::Generation;
pub use graph_color::GraphColor;
pub use ids::{ProcessId, ThreadId};
pub(crate) use kept_limits::KeptLimits;
pub(crate) use label_across_await::LabelOfOneThread;
pub(crate) use marker_phase::MarkerPhase;
pub(crate) use no_stack::{NoStack, RAN_BETWEEN_SAMPLES};
pub use page::Page;
pub(crate) use process_levels::MAX_PROCESS_LEVELS;
pub(crate) use profiling_state::WhileOtherRuns;
pub use profiling_state::{ProfilingState, ProfilingStates, SamplingState};
#[cfg(feature = "push")]
pub use push_settings::{PushCounts, PushError, PushSettings};
#[cfg(feature = "push")]
pub(crate) use push_settings::{PushProtocol, PushSecret};
pub(crate) use script_description::ScriptDescription;
pub use script_description::ScriptImplementation;
pub(crate) use serde_impls::{serde_as_index, serde_as_inner};
pub use settings::StartParams;
pub(crate) use settings::{CAPACITY_RANGE_BYTES, INTERVAL_RANGE, MAX_CPU_RANGE_PERCENT};
pub(crate) use settings::{DEFAULT_CHILD_TIMEOUT, DEFAULT_MAX_ROWS, DEFAULT_NAME_CACHE_BYTES};
pub(crate) use signal_name::signal_name;
pub(crate) use signal_name::signal_number;
pub use stacks::{FunctionName, StackFeatures, StackFrame};
pub(crate) use symbolicate::NameOptions;
pub use symbolicate::Symbolicate;
pub use thread_features::ThreadProfilingFeatures;
pub(crate) use thread_filter::ThreadFilter;
pub use thread_summary::{HotFunction, ThreadSummary};
pub use time::ProfilerTime;
pub(crate) use time::TimeStamp;
pub(crate) use wait::{IDLE_INDEX, Wait};
pub(crate) use warnings::{
    BUFFER_MEMORY, LackOfMemory, PROFILER_SECTION, SAMPLER_CPU, STOP_TIME, Uncovered, Warning,
    late_signals, little_memory, low_coverage, missed_ticks, replaced_handler, stripped_program,
    unavailable_features, unmatched_filters, unregistered_main_thread, without_stacks,
};
