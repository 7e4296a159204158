//! Storage that knows bytes, not meaning.
//!
//! # Purpose
//! Entries of any length go into chunks, a lane of them for each writer; the oldest chunks are recycled at the capacity, and
//! readers share the chunks that they read. The kinds of entries and how their fields are coded are stated once, in
//! `entry_kind.rs`.
//!
//! # Threads and locks
//! Any thread may put an entry, in a lane of its own: it says that it writes, appends, and says that it is done. That is loads and
//! stores, and no lock, since the lane's next chunk is there before it is needed. A named mutex, the last but a few in the lock
//! order, is for chunks that are given out, taken back or listed, and for a writer that was faster than the sampler, which brings
//! them.
//!
//! # Imports
//! `base`
//!
//! # Invariants
//! An entry lies in one chunk. A chunk needs nothing of another one to be read. What is lost is counted. The bytes
//! below a chunk's committed length never change. A chunk has one writer at a time.
//!
//! # Read next
//! `entry_kind.rs`, `chunk.rs`, `writing_cell.rs`, `lane.rs`, `chunked_buffer.rs`, then `crate::stream`. `lane_model.rs` tries
//! writers, readers and recycling under loom.

#[forbid(unsafe_code)]
mod buffer_snapshot;
mod chunk;
#[forbid(unsafe_code)]
mod chunk_book;
#[forbid(unsafe_code)]
mod chunk_manager;
#[forbid(unsafe_code)]
mod chunked_buffer;
#[cfg(all(test, not(loom)))]
#[forbid(unsafe_code)]
mod chunked_buffer_tests;
#[forbid(unsafe_code)]
mod entry;
#[forbid(unsafe_code)]
mod entry_kind;
#[forbid(unsafe_code)]
mod entry_reader;
#[forbid(unsafe_code)]
mod entry_writer;
#[forbid(unsafe_code)]
mod index;
#[forbid(unsafe_code)]
mod lane;
#[cfg(all(test, loom))]
#[forbid(unsafe_code)]
mod lane_model;
#[forbid(unsafe_code)]
mod lanes;
#[forbid(unsafe_code)]
mod leb128;
#[forbid(unsafe_code)]
mod local_limit;
#[cfg(all(test, not(loom)))]
#[forbid(unsafe_code)]
mod single;
mod slab;
mod take_cell;
mod writing_cell;
#[cfg(all(test, loom))]
#[forbid(unsafe_code)]
mod writing_cell_model;

pub(crate) use buffer_snapshot::{Block, BufferSnapshot};
pub(crate) use chunk_book::Dropped;
pub(crate) use chunked_buffer::{BufferForkGuard, ChunkedBuffer, LaneHandle, LaneRef};
pub(crate) use entry::{Entry, EntryCursor, large_bytes, number_bytes};
pub(crate) use entry_kind::{EntryKind, FrameTag, ROOT_NODES, SampleFlags, root_node};
pub(crate) use entry_reader::EntryReader;
pub(crate) use entry_writer::{EntryHead, EntryWriter};
pub(crate) use index::{BlockIndex, ChunkNumber};
pub(crate) use leb128::{unzigzag, zigzag};
