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
mod options;
mod process_times;
mod read;
mod write;

#[cfg(not(has_profiler))]
pub(crate) use hot_functions::ProfileSource;
pub(crate) use hot_functions::summarize;
pub use hot_functions::{HotFunction, ThreadSummary};
pub(crate) use options::{ExportOptions, SampleWeight};
pub(crate) use read::{read_profile, read_profile_file, read_profile_from};
pub(crate) use write::write_gecko;
