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

mod category;
mod category_macros;
mod descriptions;
mod dump_settings;
mod error;
mod features;
mod format;
mod newtypes;
mod profiling_state;
#[cfg(feature = "push")]
mod push_settings;
mod reports;
mod settings;
mod signal_name;
mod stacks;
mod threads;
mod wait;
mod warnings;

#[cfg(any(test, fuzzing))]
pub(crate) use category::CATEGORIES;
pub use category::{
    CategoryDefinition, HostCategory, ProfilingCategory, ProfilingCategoryPair, place_among,
};
pub(crate) use category::{
    CategoryInfo, GECKO_CATEGORIES, OTHER_CATEGORY, all_categories, is_known_color,
    registered_categories, set_new_category_hook, subcategories,
};
pub(crate) use descriptions::{CounterParams, MarkerPhase, ScriptDescription};
pub use descriptions::{CounterUnit, GraphColor, Page, ScriptImplementation};
pub use dump_settings::{DumpError, DumpSettings};
pub(crate) use error::MAX_PROCESS_LEVELS;
pub use error::{
    ExitProfileError, ReadError, RescueError, SaveError, StartError, StreamError, SuspendError,
    UnknownFeature,
};
pub use features::Features;
pub(crate) use features::UnavailableFeature;
pub(crate) use format::{ExportOptions, Look, NameOptions};
pub use format::{Format, SampleWeight, Symbolicate};
pub use newtypes::{CodeAddress, ProcessId, ProfilerTime, ThreadId};
pub(crate) use newtypes::{Generation, StackAddress, TimeStamp, serde_as_index, serde_as_inner};
pub(crate) use profiling_state::WhileOtherRuns;
pub use profiling_state::{ProfilingState, ProfilingStates, SamplingState};
#[cfg(feature = "push")]
pub use push_settings::{PushCounts, PushError, PushSettings};
#[cfg(feature = "push")]
pub(crate) use push_settings::{PushProtocol, PushSecret};
pub(crate) use reports::Wanted;
pub use reports::{
    BufferInfo, ExplainedPart, ExplainedStack, Explanation, HotFunction, ProfilerStats,
    SlowRequest, ThreadSummary, TimeKind, ViewerRange,
};
pub(crate) use settings::{
    CAPACITY_RANGE_BYTES, DEFAULT_CHILD_TIMEOUT, DEFAULT_MAX_ROWS, DEFAULT_NAME_CACHE_BYTES,
    INTERVAL_RANGE, KeptLimits, MAX_CPU_RANGE_PERCENT,
};
pub use settings::{ControlSignals, StartParams};
pub(crate) use signal_name::{signal_name, signal_number};
pub(crate) use stacks::{ContextWords, FrameFlags, LabelOfOneThread, MAX_CONTEXT_LABELS};
pub use stacks::{FunctionName, LabelFlags, StackFeatures, StackFrame};
pub(crate) use threads::ThreadFilter;
pub use threads::ThreadProfilingFeatures;
pub(crate) use wait::{IDLE_INDEX, NoStack, RAN_BETWEEN_SAMPLES, Wait};
pub(crate) use warnings::{
    BUFFER_MEMORY, LackOfMemory, PROFILER_SECTION, SAMPLER_CPU, STOP_TIME, Uncovered, Warning,
    late_signals, little_memory, low_coverage, missed_ticks, replaced_handler, stripped_program,
    unavailable_features, unmatched_filters, unregistered_main_thread, without_stacks,
};
