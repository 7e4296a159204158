//! Other views of a profile than Gecko's JSON.
//!
//! # Purpose
//! What each thread spent its time on, as numbers for a program or a terminal.
//!
//! # Threads and locks
//! On the thread that asks. No lock.
//!
//! # Imports
//! `base`, `stream`
//!
//! # Invariants
//! Everything is made from the model that `stream` decodes; nothing in here sees the buffer.
//!
//! # Read next
//! `hot_functions.rs`.

mod hot_functions;

#[cfg(not(has_profiler))]
pub(crate) use hot_functions::ProfileSource;
pub(crate) use hot_functions::summarize;
pub use hot_functions::{HotFunction, ThreadSummary};
