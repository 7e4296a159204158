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

mod hot_functions;
#[cfg(has_profiler)]
mod options;
#[cfg(all(test, has_profiler))]
mod sample_profile;
#[cfg(has_profiler)]
mod write;

#[cfg(not(has_profiler))]
pub(crate) use hot_functions::ProfileSource;
pub(crate) use hot_functions::summarize;
pub use hot_functions::{HotFunction, ThreadSummary};
#[cfg(has_profiler)]
pub(crate) use write::collapsed::write_collapsed;
#[cfg(has_profiler)]
pub(crate) use write::flame_graph::write_flame_graph;
#[cfg(has_profiler)]
pub(crate) use write::speedscope::write_speedscope;
#[cfg(has_profiler)]
pub(crate) use write::svg::write_svg;
#[cfg(has_profiler)]
pub(crate) use write::timed_flame_graph::write_timed_flame_graph;
