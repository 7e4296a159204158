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
//! - A writer streams: it allocates less memory than the model already takes.
//!
//! # Read next
//! `options.rs`, `write/mod.rs`, `read/mod.rs`, `summary/mod.rs`, `diff/mod.rs`.

mod diff;
mod explain;
mod function_groups;
mod function_names;
mod function_times;
mod markers;
mod options;
mod read;
mod run_loops;
mod summary;
#[cfg(test)]
mod test_profile;
mod write;

pub(crate) use diff::{Diff, DiffOptions, compare};
pub(crate) use explain::explain;
pub(crate) use function_groups::is_own_source;
pub(crate) use function_times::summarize;
pub(crate) use read::{add_child, read_profile_file, read_profile_from};
pub(crate) use write::write_profile;
#[cfg(feature = "otlp-unstable")]
pub(crate) use write::{OtlpResource, write_otlp};
