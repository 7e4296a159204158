//! A cell that passes a chunk from one thread to another: one thread puts it in, any thread may
//! take it out.
//!
//! **Contract** (cited below):
//! - *owned*: a pointer in the cell comes from [`Arc::into_raw`], and the cell owns that reference.
//!   The thread that swaps the pointer out then owns it.
//! - *one putter*: one thread at a time puts into a cell, and only into an empty one; other threads
//!   only take. So no chunk is overwritten; an overwritten chunk would stay in use forever.

use std::ptr;
use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicPtr, Ordering};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicPtr, Ordering};

use crate::buffer::chunks::chunk::{Chunk, ChunkWriter};

/// A chunk's writer, or nothing. Never blocks: a taker that comes second finds the cell empty.
#[derive(Debug)]
pub(crate) struct TakeCell(AtomicPtr<Chunk>);

impl TakeCell {
    pub(crate) fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Takes the chunk's writer out and leaves the cell empty.
    #[inline]
    pub(crate) fn take(&self) -> Option<ChunkWriter> {
        let chunk = self.0.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: *owned*: only this swap returned the pointer, so this call owns the reference.
        (!chunk.is_null()).then(|| ChunkWriter::from_chunk(unsafe { Arc::from_raw(chunk) }))
    }

    /// Puts a chunk's writer into the empty cell: *one putter*.
    #[inline]
    pub(crate) fn put(&self, writer: ChunkWriter) {
        let chunk = Arc::into_raw(writer.into_chunk());
        self.0.store(chunk.cast_mut(), Ordering::Release);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }
}

impl Drop for TakeCell {
    fn drop(&mut self) {
        drop(self.take());
    }
}
