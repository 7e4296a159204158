//! The profile buffer: stores entries as bytes, without interpreting them.
//!
//! # Purpose
//! Holds entries of any length in chunks. Each writer has a lane with chunks of its own. When the
//! capacity is reached, the oldest chunks are recycled. Readers share the chunks that they read.
//! `entries/entry_kind.rs` is the one place that defines the kinds of entries and the encoding of
//! their fields.
//!
//! # Threads and locks
//! Any thread may put an entry into its lane: it marks the lane as being written, appends, and
//! clears the mark. This takes only loads and stores, because the sampler supplies the lane's next
//! chunk before it is needed. A named mutex (`LockRank::ChunkManager`) protects handing out, taking
//! back and listing chunks. A writer takes it only if it fills chunks faster than the sampler
//! supplies them.
//!
//! # Imports
//! `types`, `util`
//!
//! # Invariants
//! An entry lies in one chunk. Each chunk can be read without any other chunk. Lost entries are
//! counted. The bytes below a chunk's committed length never change. A chunk has one writer at a
//! time.
//!
//! # Read next
//! `entries/entry_kind.rs`, `chunks/chunk.rs`, `chunks/writing_cell.rs`, `lane.rs`,
//! `chunked_buffer.rs`, then `crate::stream`. `lane_model.rs` checks writers, readers and recycling
//! under loom.

#![deny(unsafe_code)]

mod buffer_snapshot;
mod chunk_manager;
mod chunked_buffer;
#[cfg(all(test, not(loom)))]
mod chunked_buffer_tests;
#[expect(unsafe_code, reason = "writers and readers share the bytes of a chunk")]
mod chunks;
mod crash_area;
#[cfg(all(test, not(loom)))]
mod crash_file_tests;
mod entries;
mod lane;
#[cfg(all(test, loom))]
mod lane_model;
mod session_chunks;

#[cfg(test)]
pub(crate) use buffer_snapshot::ChunkEntries;
pub(crate) use buffer_snapshot::{Block, BlockIndex, BufferSnapshot, SnapshotEnds};
pub(crate) use chunk_manager::{ChunkMetadata, Update, UpdateReader};
pub(crate) use chunked_buffer::{BufferForkGuard, ChunkedBuffer, LaneHandle, LaneRef};
pub(crate) use chunks::{ChunkNumber, all_slab_bytes};
pub(crate) use crash_area::{
    AreaError, AreaHead, AreaOwner, CrashArea, FoundChunks, FoundFacts, MAX_RECORD_BYTES, ReadAt,
};
pub(crate) use entries::{
    Entry, EntryCursor, EntryHead, EntryKind, EntryReader, EntryWriter, FrameTag, ROOT_NODES,
    Repeats, SampleFields, TickGap, large_bytes, number_bytes, root_node, unzigzag, zigzag,
};
pub(crate) use session_chunks::{BufferStatistics, Dropped, capacity_within};
