//! Where chunks come from and where they go.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::buffer::chunk::Chunk;

/// The size that every chunk has at the most.
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// How many chunks there are at the least: the one that is written to, the next one, and two to read back.
const MIN_CHUNKS: usize = 4;

/// Keeps chunks within a number of bytes: when they are used up, the oldest complete one is emptied for the next.
///
/// A chunk that a reader still shares is not waited for: it lives until the reader is done, and another one takes its
/// place.
#[doc(alias = "ProfileBufferChunkManagerWithLocalLimit")]
#[derive(Debug)]
pub(super) struct ChunkManagerWithLocalLimit {
    max_bytes: usize,
    chunk_bytes: usize,
    released: VecDeque<Arc<Chunk>>,
    /// Made ahead of its use, so that who fills a chunk need not allocate.
    spare: Option<Chunk>,
    recycled_chunks: u64,
    recycled_bytes: u64,
}

impl ChunkManagerWithLocalLimit {
    pub(super) fn new(max_bytes: usize) -> Self {
        let chunk_bytes = (max_bytes / MIN_CHUNKS).min(MAX_CHUNK_BYTES);
        Self {
            max_bytes,
            chunk_bytes,
            released: VecDeque::new(),
            spare: None,
            recycled_chunks: 0,
            recycled_bytes: 0,
        }
    }

    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    pub(super) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Complete chunks, oldest first.
    pub(super) fn released(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.released.iter()
    }

    pub(super) fn recycled(&self) -> (u64, u64) {
        (self.recycled_chunks, self.recycled_bytes)
    }

    /// A chunk to write to.
    pub(super) fn take_chunk(&mut self) -> Chunk {
        let spare = self.spare.take().or_else(|| self.recycle_oldest());
        spare.unwrap_or_else(|| Chunk::new(self.chunk_bytes))
    }

    /// Takes a complete chunk back.
    pub(super) fn release(&mut self, chunk: Arc<Chunk>) {
        self.released.push_back(chunk);
    }

    /// Whether [`Self::provide_spare`] would help.
    pub(super) fn wants_spare(&self) -> bool {
        self.spare.is_none()
    }

    /// Makes the next chunk ready: the oldest one where the limit is reached, else `fresh`.
    pub(super) fn provide_spare(&mut self, fresh: Chunk) {
        if self.spare.is_none() {
            self.spare = Some(self.recycle_oldest().unwrap_or(fresh));
        }
    }

    /// Empties the oldest chunk when the one that is written to, the spare and the released ones reach the limit.
    fn recycle_oldest(&mut self) -> Option<Chunk> {
        let in_use = (self.released.len() + 2) * self.chunk_bytes;
        if in_use <= self.max_bytes {
            return None;
        }
        let oldest = self.released.pop_front()?;
        self.recycled_chunks += 1;
        self.recycled_bytes += oldest.committed_bytes().len() as u64;
        Arc::into_inner(oldest)
    }
}
