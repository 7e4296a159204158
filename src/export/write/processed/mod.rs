//! Writes the processed format of the Firefox Profiler.
//!
//! A frame of this format has its function, library, file, line, address, inline depth and native
//! symbol together, so the source view, the assembly view and the badges of inlined calls work. The
//! text of a source file is in `sources.content`, so the source view needs no server.
//!
//! The crate `fxprof-processed-profile` is not used: its release writes version 55, which has no
//! texts of source files and no descriptions of counters. It also holds the whole profile a second
//! time before it writes.
//!
//! The version is 70. A reader upgrades an older version than its own, but refuses a newer one. The
//! page of August 2026 reads up to 70; `profiler-cli` 0.10.0 reads up to 75. The later versions
//! mostly pack columns into flags.
//!
//! The profile streams to the output, one column after another. In memory are only numbers: which
//! rows of the model are written, and where each of its texts is in `stringArray`.

mod allocations;
mod categories;
mod columns;
mod context;
mod counters;
mod firefox_payloads;
mod libs;
mod markers;
mod meta;
mod profile;
mod resources;
mod schemas;
mod strings;
mod tables;
mod threads;
mod used_rows;

pub(crate) use profile::write_processed;

#[cfg(test)]
mod fact_tests;
#[cfg(test)]
mod sample_model;
#[cfg(test)]
mod tests;
