//! The layout of a crash file: a session's chunks in a mapped file, which outlives the process.
//!
//! # Purpose
//! Gives the session's chunks memory in the file, each with a head that says how much of the chunk
//! is complete. Keeps the facts in the same file. Reads such a file, whatever it holds. Knows
//! bytes, not their meaning: `state/facts.rs` knows the meaning of the facts.
//!
//! # Threads and locks
//! Any thread takes pages, gives them back, and adds facts, without a lock.
//!
//! # Imports
//! `types`, `util`
//!
//! # Invariants
//! - A chunk's head has an even sequence number only while the chunk's complete bytes are entries.
//! - The kernel keeps each store of a process that dies, in the order of its instructions. So the
//!   store that makes data valid comes after the stores of these data.
//! - Reading takes memory in proportion to the file's size, and no number in the file is trusted.
//!
//! # Read next
//! `layout.rs`, `area.rs`, `read.rs`.

mod area;
mod layout;
mod read;

pub(crate) use area::{AreaOwner, AreaPiece, CrashArea};
pub(crate) use layout::MAX_RECORD_BYTES;
pub(crate) use read::{AreaError, AreaHead, FoundChunks, FoundFacts, ReadAt};
