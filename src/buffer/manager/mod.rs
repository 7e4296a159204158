//! Supplies chunks, and decides which ones are recycled.

#[forbid(unsafe_code)]
mod chunk_manager;
#[forbid(unsafe_code)]
mod headroom;
#[forbid(unsafe_code)]
mod session_chunks;
#[forbid(unsafe_code)]
mod update;

pub(crate) use chunk_manager::ChunkManager;
pub(crate) use headroom::{Headroom, MemoryProbe, SAVE_FACTOR, capacity_within};
pub(crate) use session_chunks::{
    BufferStatistics, DROP_REASONS, Dropped, DroppedEntries, NoChunk, SessionChunks,
};
pub(crate) use update::{ChunkMetadata, Update, UpdateReader};
