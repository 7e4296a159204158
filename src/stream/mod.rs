//! Converts the buffer to Gecko JSON.
//!
//! # Purpose
//! Entries are decoded once, each into the context of its thread. Markers are read again when they
//! are printed, for their payloads. Frames and stacks are deduplicated, named on request, and
//! printed. These are steps 11 and 12 of a sample's path.
//!
//! # Threads and locks
//! Runs on the thread that requests the profile. Everything is read from a snapshot, without a
//! lock.
//!
//! # Imports
//! `base`, `buffer`, `counters`, `json`, `markers`, `platform`, `state`, `symbols`, `threads`,
//! `unwind`
//!
//! # Invariants
//! - The text is never in memory as a whole. Memory grows with the distinct frames and stacks, and
//!   by some bytes per sample and marker.
//! - A job whose writer fails ends the next time it checks for a failure.
//! - A malformed entry is skipped and counted.
//! - Every index that is written points into its table.
//!
//! # Read next
//! `source.rs`, `options.rs`, `chunk_stacks.rs`, `decode.rs`, `named_stacks.rs`,
//! `resolved_thread.rs`, `profile.rs`.

mod chunk_stacks;
mod decode;
mod entry_counts;
mod event_probes;
mod libs;
mod location;
mod losses;
mod marker_places;
mod marker_rows;
mod marker_types;
mod meta;
mod named_stacks;
mod options;
mod overheads;
mod pages;
mod paused_ranges;
#[cfg(any(test, fuzzing))]
mod plain_samples;
mod profile;
mod resolved_thread;
mod rows;
mod source;
mod text_table;
mod thread_places;
mod thread_tables;
mod unique_stacks;

pub(crate) use decode::ProcessStreamingContext;
pub(crate) use named_stacks::{FrameKind, NamedStacks};
pub(crate) use options::StreamOptions;
#[cfg(any(test, fuzzing))]
pub(crate) use plain_samples::{PlainSample, PlainSamples};
pub(crate) use profile::stream_gecko_json;
pub(crate) use resolved_thread::ResolvedThread;
#[cfg(any(test, fuzzing))]
pub(crate) use rows::RowEvent;
pub(crate) use source::ProfileSource;
