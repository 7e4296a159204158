//! Streaming JSON output.
//!
//! # Purpose
//! A writer that streams compact JSON to any `io::Write`, and a table of unique strings. The module
//! is independent of the profile's format.
//!
//! Floats are formatted with the fewest digits that read back as the same number. Times are whole
//! ns, formatted as milliseconds with up to six decimals. Gecko does the same.
//!
//! # Threads and locks
//! None: a writer belongs to the thread that creates it.
//!
//! # Imports
//! `util`
//!
//! # Invariants
//! Memory is bounded by one buffer, and writing a value does not allocate. Long values go to the
//! sink directly, without a copy in the buffer. An attempt is the exception: all its output stays
//! in the buffer, which grows, until the attempt ends. Each string is escaped once. A table of
//! unique strings copies a string only if the string may be freed before the table. Strings that
//! are not UTF-8 are converted to UTF-8.
//!
//! After the first failure of a job the writer writes nothing more. The failure is returned at the
//! end; `failed` reports it earlier.
//!
//! # Read next
//! `writer.rs`, `number.rs`, `unique_strings.rs`, then `crate::stream`.

mod number;
mod unique_strings;
mod writer;

pub(crate) use unique_strings::{StringIndex, UniqueStrings};
pub(crate) use writer::{JsonWriter, json_text};
