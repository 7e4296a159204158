//! Converts the buffer to Gecko JSON.
//!
//! # Purpose
//! Entries are decoded once, each into the context of its thread. Markers are read again when they
//! are printed, for their payloads. Frames and stacks are deduplicated, named on request, and
//! printed. These are steps 11 and 12 of a sample's path.
//!
//! # Threads and locks
//! Runs on the thread that requests the profile. Entries are read from a snapshot, without a lock.
//! The descriptions of script functions and the session's log are read under brief locks of their
//! own.
//!
//! # Imports
//! `buffer`, `counters`, `json`, `labels`, `markers`, `model`, `platform`, `state`, `symbols`, `threads`,
//! `types`, `unwind`, `util`
//!
//! # Invariants
//! - The text is never in memory as a whole. Memory grows with the distinct frames and stacks, and
//!   by some bytes per sample and marker.
//! - A job whose writer fails ends the next time it checks for a failure.
//! - A malformed entry is skipped and counted.
//! - Every index that is written points into its table.
//! - Before a step that takes much memory, the job asks for it (`memory.rs`).
//! - The profiles of child processes are written from files, never held as a whole.
//!
//! # Read next
//! `decode/source.rs`, `decode/chunk_stacks.rs`, `decode/streaming_context.rs`,
//! `resolve/named_stacks.rs`, `write/profile.rs`.

mod decode;
mod memory;
mod model;
mod resolve;
mod schema;
mod write;

pub(crate) use decode::{
    FrozenChildren, GatherRequest, Gathering, GatheringLog, PastProcess, PastScript, ProfileSource,
    last_entry_ns,
};
#[cfg(any(test, fuzzing))]
pub(crate) use decode::{PlainSample, PlainSamples, RowEvent, max_wait_rows};
pub(crate) use memory::{check_memory, is_out_of_memory};
pub(crate) use model::{MODEL_END, build_model};
pub(crate) use write::{FoundProblems, StreamOptions, stream_gecko_json};
