//! Basic types that every other folder uses.
//!
//! # Purpose
//! Defines times, ids, addresses, features, categories, settings, errors and the profiler's locks.
//! Long jobs report failures through [`failure_latch`] and progress through [`progress_logger`].
//! This folder makes no system call and reads no clock.
//!
//! # Threads and locks
//! [`ps_lock`] defines the main lock and the proof of holding it. [`locks`] defines the other named
//! locks and the lock order.
//!
//! # Imports
//! Nothing of ours.
//!
//! # Invariants
//! A number with a unit or an owner is a newtype. Each rejected value has an error that contains
//! the operation, the value and the accepted values.
//!
//! # Read next
//! `ps_lock.rs`, then `crate::platform`.

#[forbid(unsafe_code)]
mod address;
#[forbid(unsafe_code)]
mod buffer_info;
#[forbid(unsafe_code)]
mod category;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod change_count;
#[forbid(unsafe_code)]
mod control_signals;
#[forbid(unsafe_code)]
mod error;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod failure_latch;
#[forbid(unsafe_code)]
mod features;
#[forbid(unsafe_code)]
mod frame_flags;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod generation;
#[forbid(unsafe_code)]
mod host_category;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod host_code;
#[forbid(unsafe_code)]
mod ids;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod locks;
#[cfg(all(test, loom, has_profiler))]
#[forbid(unsafe_code)]
mod loom_model;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod number_map;
#[forbid(unsafe_code)]
mod page;
mod polled_with;
#[forbid(unsafe_code)]
mod profiling_state;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod progress_logger;
#[forbid(unsafe_code)]
mod proportion_value;
#[cfg(has_profiler)]
mod ps_lock;
#[forbid(unsafe_code)]
mod script_description;
#[forbid(unsafe_code)]
mod settings;
#[forbid(unsafe_code)]
mod shared_progress;
#[forbid(unsafe_code)]
mod short_text;
#[forbid(unsafe_code)]
mod stacks;
#[forbid(unsafe_code)]
mod thread_features;
#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod thread_filter;
#[forbid(unsafe_code)]
mod time;

pub use address::CodeAddress;
#[cfg(has_profiler)]
pub(crate) use address::StackAddress;
pub use buffer_info::BufferInfo;
#[cfg(all(has_profiler, any(test, fuzzing)))]
pub(crate) use category::CATEGORIES;
#[cfg(has_profiler)]
pub(crate) use category::CategoryInfo;
pub(crate) use category::subcategories;
pub use category::{ProfilingCategory, ProfilingCategoryPair};
#[cfg(has_profiler)]
pub(crate) use change_count::ChangeCount;
pub use control_signals::ControlSignals;
pub use error::{
    ExitProfileError, SaveError, StartError, StreamError, SuspendError, UnknownFeature,
};
#[cfg(has_profiler)]
pub(crate) use failure_latch::FailureLatch;
pub use features::Features;
pub(crate) use frame_flags::FrameFlags;
pub use frame_flags::LabelFlags;
#[cfg(has_profiler)]
pub(crate) use generation::Generation;
#[cfg(has_profiler)]
pub(crate) use host_category::all_categories;
pub use host_category::{CategoryDefinition, HostCategory, place_among};
#[cfg(has_profiler)]
pub(crate) use host_code::call_host;
pub use ids::{ProcessId, ThreadId};
#[cfg(has_profiler)]
pub(crate) use locks::{
    ExclusiveGuard, Guard, LockRank, NamedMutex, NamedRwLock, as_own_work,
    is_any_lock_held_on_current_thread,
};
#[cfg(all(test, loom, has_profiler))]
pub(crate) use loom_model::explore_model;
#[cfg(has_profiler)]
pub(crate) use number_map::{NumberMap, pair_key};
pub use page::Page;
pub(crate) use polled_with::PolledWith;
pub use profiling_state::{ProfilingState, ProfilingStates, SamplingState};
#[cfg(has_profiler)]
pub(crate) use progress_logger::ProgressLogger;
pub(crate) use proportion_value::ProportionValue;
#[cfg(has_profiler)]
pub(crate) use ps_lock::{PsCell, PsLock};
pub(crate) use script_description::ScriptDescription;
pub(crate) use settings::DEFAULT_MAX_ROWS;
#[cfg(has_profiler)]
pub(crate) use settings::INTERVAL_RANGE;
pub use settings::{SamplingEngine, StartParams};
pub(crate) use shared_progress::ProgressLocation;
pub use shared_progress::SharedProgress;
pub use short_text::ShortText;
#[cfg(any(feature = "log", feature = "tracing"))]
pub(crate) use short_text::TextRoom;
#[cfg_attr(
    not(has_profiler),
    allow(
        unused_imports,
        reason = "only some optional modules of `interop` use it"
    )
)]
pub(crate) use short_text::cut_at_character;
pub use stacks::{FunctionName, StackFeatures, StackFrame};
pub use thread_features::ThreadProfilingFeatures;
#[cfg(has_profiler)]
pub(crate) use thread_filter::ThreadFilter;
pub use time::ProfilerTime;
#[cfg(has_profiler)]
pub(crate) use time::TimeStamp;
