//! JSON that is written as it is made.
//!
//! # Purpose
//! A writer that streams compact JSON to any `io::Write`, and a table of unique strings. It knows no profiler words.
//!
//! # Threads and locks
//! None: a writer belongs to whoever makes it.
//!
//! # Imports
//! `base`
//!
//! # Invariants
//! Memory is bounded by one buffer. After the first failure of the sink nothing more is written, and the failure is
//! told at the end.
//!
//! # Read next
//! `writer.rs`, then `crate::stream`.

mod unique_strings;
mod writer;

pub(crate) use unique_strings::{StringIndex, UniqueStrings};
pub(crate) use writer::JsonWriter;
