//! Chunk managers: where chunks come from, and which ones are recycled.

#[forbid(unsafe_code)]
mod chunk_manager;
#[forbid(unsafe_code)]
mod local_limit;
#[forbid(unsafe_code)]
mod session_chunks;
#[cfg(all(test, not(loom)))]
#[forbid(unsafe_code)]
mod single_chunk_manager;

pub(crate) use chunk_manager::{ChunkManager, ControlledChunkManager, Update};
pub(crate) use local_limit::ChunkManagerWithLocalLimit;
pub(crate) use session_chunks::{
    BufferStatistics, DROP_REASONS, Dropped, DroppedEntries, SessionChunks,
};
#[cfg(all(test, not(loom)))]
pub(crate) use single_chunk_manager::ChunkManagerSingle;
