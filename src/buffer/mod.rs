//! Storage that knows bytes, not meaning.
//!
//! # Purpose
//! Entries of any length go into chunks, oldest chunks are recycled at the capacity, and readers share the chunks that
//! they read. The kinds of entries and how their fields are coded are stated once, in `entry_kind.rs`.
//!
//! # Threads and locks
//! Any thread may put an entry; a named mutex, the last one in the lock order, is held while bytes are copied, never
//! while they are made. Readers take it for the time of cloning a list of chunks.
//!
//! # Imports
//! `base`
//!
//! # Invariants
//! An entry lies in one chunk. A chunk needs nothing of another one to be read. What is lost is counted. The bytes
//! below a chunk's committed length never change.
//!
//! # Read next
//! `entry_kind.rs`, `chunk.rs`, `chunked_buffer.rs`, then `crate::stream`.

mod chunk;
#[forbid(unsafe_code)]
mod chunk_manager;
#[forbid(unsafe_code)]
mod chunked_buffer;
#[forbid(unsafe_code)]
mod entry_kind;
#[forbid(unsafe_code)]
mod entry_reader;
#[forbid(unsafe_code)]
mod entry_writer;
#[forbid(unsafe_code)]
mod index;
#[forbid(unsafe_code)]
mod leb128;

pub(crate) use chunked_buffer::{BufferForkGuard, BufferSnapshot, ChunkedBuffer};
pub(crate) use entry_kind::{EntryKind, SampleFlags};
pub(crate) use entry_reader::EntryReader;
pub(crate) use entry_writer::{EntryHead, EntryWriter};
pub(crate) use index::{BlockIndex, ChunkNumber};
pub(crate) use leb128::{unzigzag, zigzag};
