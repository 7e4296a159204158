//! The layout of a crash file: a session's chunks in a mapped file, which outlives the process.
//!
//! # Purpose
//! Gives the session's chunks memory in the file, each with a head that says how much of it is
//! complete, and keeps the facts beside them. Reads such a file, whatever it holds. Knows bytes, not
//! their meaning: that of the facts is known in `state/crash_file/`.
//!
//! # Threads and locks
//! Any thread takes pages, gives them back, and adds facts, without a lock.
//!
//! # Imports
//! `types`, `util`
//!
//! # Invariants
//! - A chunk's head has an even sequence number only while the chunk's complete bytes are entries.
//! - The kernel keeps each store of a process that dies, in the order of its instructions. So a
//!   store that makes something valid comes after those that it makes valid.
//! - Reading takes memory in proportion to the file's size, and no number in the file is trusted.
//!
//! # Read next
//! `layout.rs`, `area.rs`, `facts_log.rs`, `read.rs`.

mod area;
mod facts_log;
mod layout;
mod page_map;
mod read;

pub(crate) use area::{AreaOwner, AreaPiece, CrashArea};
pub(crate) use facts_log::MAX_RECORD_BYTES;
pub(crate) use read::{AreaError, AreaHead, FoundChunks, FoundFacts, ReadAt};
