//! JSON that is written as it is made.
//!
//! # Purpose
//! A writer that streams compact JSON to any `io::Write`, and a table of unique strings. It knows no profiler words.
//!
//! Numbers look as Gecko writes them: floats as EcmaScript has them, the shortest digits that read back the same, and times,
//! which are whole nanoseconds, as milliseconds with up to six decimals.
//!
//! # Threads and locks
//! None: a writer belongs to whoever makes it.
//!
//! # Imports
//! `base`
//!
//! # Invariants
//! Memory is bounded by one buffer, and no value allocates. What is long goes to the sink past the buffer, uncopied; what is
//! escaped is so once, a unique string when it is first seen. Texts that are not UTF-8 come out as UTF-8. After the first
//! failure of the job nothing more is written, and the failure is told at the end; whoever works at the job may ask for it
//! on the way.
//!
//! # Read next
//! `writer.rs`, `number.rs`, `unique_strings.rs`, then `crate::stream`.

mod escape;
mod number;
mod unique_strings;
mod writer;

pub(crate) use unique_strings::{StringIndex, UniqueStrings};
pub(crate) use writer::JsonWriter;
