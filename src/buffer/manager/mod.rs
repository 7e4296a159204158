//! Supplies chunks, and decides which ones are recycled.

mod chunk_manager;
mod headroom;
mod session_chunks;
mod update;

pub(crate) use chunk_manager::ChunkManager;
pub(crate) use headroom::{Headroom, MemoryProbe, capacity_within};
pub(crate) use session_chunks::{
    BufferStatistics, DROP_REASONS, Dropped, DroppedEntries, NoChunk, SessionChunks,
};
pub(crate) use update::{ChunkMemory, ChunkMetadata, Update, UpdateReader};
