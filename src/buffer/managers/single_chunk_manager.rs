//! The chunk manager of a buffer with a single chunk.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::buffer::chunks::Chunk;
use crate::buffer::managers::chunk_manager::{ChunkManager, Discarded, Reservation};

/// Grants one chunk only: for a small buffer that keeps the first entries and drops later ones.
#[doc(alias = "ProfileBufferChunkManagerSingle")]
#[derive(Debug)]
pub(crate) struct ChunkManagerSingle {
    bytes: usize,
    is_given: bool,
    released: VecDeque<Arc<Chunk>>,
}

impl ChunkManagerSingle {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            bytes,
            is_given: false,
            released: VecDeque::new(),
        }
    }
}

impl ChunkManager for ChunkManagerSingle {
    fn max_total_bytes(&self) -> usize {
        self.bytes
    }

    fn largest_chunk_bytes(&self) -> usize {
        self.bytes
    }

    fn reserve(&mut self, bytes: usize) -> Reservation {
        if bytes > self.bytes || std::mem::replace(&mut self.is_given, true) {
            Reservation::Unavailable
        } else {
            Reservation::Allocate
        }
    }

    fn release(&mut self, chunk: Arc<Chunk>) {
        chunk.set_released();
        self.released.push_back(chunk);
    }

    fn forget_unreleased(&mut self, _: usize) {
        self.is_given = false;
    }

    fn released(&self) -> &VecDeque<Arc<Chunk>> {
        &self.released
    }

    fn unreleased_bytes(&self) -> usize {
        if self.is_given && self.released.is_empty() {
            self.bytes
        } else {
            0
        }
    }

    fn discarded(&self) -> Discarded {
        Discarded::default()
    }
}
