//! Views of a profile other than Gecko's JSON.
//!
//! # Purpose
//! Summarizes the time that each thread spent in each function, for programs and terminals.
//!
//! # Threads and locks
//! Runs on the caller's thread. It takes no lock itself; `stream` takes brief ones.
//!
//! # Imports
//! `stream`, `types`, `util`
//!
//! # Invariants
//! All results are computed from the model that `stream` decodes; this folder never reads the
//! buffer.
//!
//! # Read next
//! `hot_functions.rs`.

#[cfg(has_profiler)]
mod diff;
#[cfg(has_profiler)]
mod function_groups;
#[cfg(has_profiler)]
mod function_names;
#[cfg(has_profiler)]
mod function_times;
mod hot_functions;
#[cfg(has_profiler)]
mod summary;
#[cfg(has_profiler)]
mod summary_facts;
#[cfg(has_profiler)]
mod summary_tables;
#[cfg(all(test, has_profiler))]
mod test_profile;
#[cfg(has_profiler)]
mod text_columns;
mod thread_summary;

#[cfg(has_profiler)]
pub(crate) use diff::{Diff, DiffOptions, Verdict, compare};
#[cfg(has_profiler)]
pub(crate) use function_times::summarize_model;
#[cfg(not(has_profiler))]
pub(crate) use hot_functions::ProfileSource;
pub(crate) use hot_functions::summarize;
#[cfg(has_profiler)]
pub(crate) use summary::write_text;
pub use thread_summary::{HotFunction, ThreadSummary};
