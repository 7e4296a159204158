//! Chunks: slabs of memory that one writer fills, and the cells that pass them between threads.

mod chunk;
mod slab;
mod take_cell;
mod writing_cell;
#[cfg(all(test, loom))]
#[forbid(unsafe_code)]
mod writing_cell_model;

pub(crate) use chunk::{
    Chunk, ChunkNumber, ChunkState, ChunkWriter, FreshChunk, block_bytes, new_block_bytes,
};
pub(crate) use slab::all_slab_bytes;
pub(crate) use take_cell::TakeCell;
pub(crate) use writing_cell::{HeavyBarrier, WriteGuard, WritingCell};
