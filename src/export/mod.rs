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

#[cfg(all(test, has_profiler))]
mod chrome_sample;
mod hot_functions;
#[cfg(has_profiler)]
mod marker_spans;
#[cfg(has_profiler)]
mod options;
#[cfg(has_profiler)]
mod profile_calls;
#[cfg(has_profiler)]
mod profile_nodes;
#[cfg(has_profiler)]
mod ticks;
#[cfg(has_profiler)]
mod write;

#[cfg(not(has_profiler))]
pub(crate) use hot_functions::ProfileSource;
pub(crate) use hot_functions::summarize;
pub use hot_functions::{HotFunction, ThreadSummary};
#[cfg(has_profiler)]
pub(crate) use write::{
    chrome_trace::write_chrome_trace, cpuprofile::write_cpuprofile,
    js_self_profile::write_js_self_profile,
};
