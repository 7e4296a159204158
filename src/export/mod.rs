//! Reads profiles from files, and writes them in every format but Gecko's.
//!
//! # Purpose
//! Reads Gecko's JSON and the Firefox Profiler's own into the model ([`read`]), and writes the model
//! in each format but Gecko's ([`write`]). Summarizes a profile for people and programs
//! ([`summary`]), and finds what changed between two profiles ([`diff`]).
//!
//! # Threads and locks
//! Runs on the caller's thread, without locks.
//!
//! # Imports
//! `json`, `model`, `types`, `util`
//!
//! # Invariants
//! - Everything is computed from the model. This folder knows neither the buffer nor the session.
//! - A file of any content is read or refused; it never causes a panic.
//! - A writer streams: beside the model, it needs less memory than the model.
//!
//! # Read next
//! `format.rs`, `options.rs`, `write/mod.rs`, `read/mod.rs`, `summary/report.rs`, `diff/mod.rs`.

#[cfg(all(test, has_profiler, feature = "formats"))]
mod chrome_sample;
#[cfg(has_profiler)]
mod diff;
#[cfg(has_profiler)]
mod explain;
mod explanation;
mod format;
#[cfg(has_profiler)]
mod function_groups;
#[cfg(has_profiler)]
mod function_names;
#[cfg(has_profiler)]
mod function_times;
#[cfg(has_profiler)]
mod marker_pairs;
#[cfg(all(has_profiler, feature = "formats"))]
mod marker_spans;
#[cfg(has_profiler)]
mod options;
#[cfg(has_profiler)]
mod own_code;
#[cfg(has_profiler)]
mod payloads;
#[cfg(all(has_profiler, feature = "formats"))]
mod profile_calls;
#[cfg(all(has_profiler, feature = "formats"))]
mod profile_nodes;
#[cfg(has_profiler)]
mod read;
#[cfg(has_profiler)]
mod run_loops;
#[cfg(all(test, has_profiler))]
mod sample_profile;
#[cfg(has_profiler)]
mod sampled_range;
#[cfg(has_profiler)]
mod summary;
#[cfg(has_profiler)]
mod switch_totals;
#[cfg(all(test, has_profiler))]
mod test_profile;
mod thread_summary;
#[cfg(all(has_profiler, feature = "formats"))]
mod ticks;
#[cfg(has_profiler)]
mod write;

#[cfg(has_profiler)]
pub(crate) use diff::{Diff, DiffOptions, compare};
#[cfg(has_profiler)]
pub(crate) use explain::explain;
pub(crate) use explanation::Wanted;
pub use explanation::{
    ExplainedPart, ExplainedStack, Explanation, SlowRequest, TimeKind, ViewerRange,
};
pub use format::Format;
#[cfg(has_profiler)]
pub(crate) use function_times::summarize;
pub(crate) use options::ExportOptions;
#[cfg(has_profiler)]
pub(crate) use options::Look;
pub use options::SampleWeight;
#[cfg(has_profiler)]
pub(crate) use own_code::is_own_source;
#[cfg(has_profiler)]
pub(crate) use read::{add_child, read_profile_file, read_profile_from};
pub use thread_summary::{HotFunction, ThreadSummary};
#[cfg(has_profiler)]
pub(crate) use write::write_profile;
#[cfg(all(has_profiler, feature = "otlp-unstable"))]
pub(crate) use write::{OtlpResource, write_otlp};
