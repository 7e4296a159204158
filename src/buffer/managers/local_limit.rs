//! The chunk manager of a session's buffer, which keeps to one limit in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::buffer::chunks::Chunk;
use crate::buffer::managers::chunk_manager::{
    ChunkManager, ChunkMetadata, ControlledChunkManager, Discarded, Reservation, Update,
};
use crate::types::TimeStamp;

/// Maximum size of a chunk, in bytes.
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// Minimum number of chunks that fit into the limit: the one being written, the next one, and two
/// to read back.
const MIN_CHUNKS: usize = 4;

/// Keeps the total size of the chunks within a limit by discarding the oldest ones. Only unreleased
/// chunks can exceed it.
#[doc(alias = "ProfileBufferChunkManagerWithLocalLimit")]
#[derive(Debug)]
pub(crate) struct ChunkManagerWithLocalLimit {
    max_bytes: usize,
    released: VecDeque<Arc<Chunk>>,
    released_bytes: usize,
    unreleased_bytes: usize,
    discarded: Discarded,
    newly_released: Vec<ChunkMetadata>,
    has_changed: bool,
}

impl ChunkManagerWithLocalLimit {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            released: VecDeque::new(),
            released_bytes: 0,
            unreleased_bytes: 0,
            discarded: Discarded::default(),
            newly_released: Vec::new(),
            has_changed: false,
        }
    }

    /// Discards the oldest released chunk and returns it.
    fn discard_oldest(&mut self) -> Option<Arc<Chunk>> {
        let oldest = self.released.pop_front()?;
        self.released_bytes -= oldest.capacity();
        self.discarded.add(&oldest);
        oldest.set_discarded();
        self.has_changed = true;
        Some(oldest)
    }

    fn is_full_with(&self, bytes: usize) -> bool {
        self.released_bytes + self.unreleased_bytes + bytes > self.max_bytes
    }
}

impl ChunkManager for ChunkManagerWithLocalLimit {
    fn max_total_bytes(&self) -> usize {
        self.max_bytes
    }

    fn largest_chunk_bytes(&self) -> usize {
        (self.max_bytes / MIN_CHUNKS).min(MAX_CHUNK_BYTES)
    }

    fn reserve(&mut self, bytes: usize) -> Reservation {
        if bytes > self.largest_chunk_bytes() {
            return Reservation::Unavailable;
        }
        let mut recycled = None;
        while self.is_full_with(bytes) {
            let Some(oldest) = self.discard_oldest() else {
                break;
            };
            if oldest.capacity() == bytes && recycled.is_none() {
                recycled = Chunk::recycle(oldest);
            }
        }
        self.unreleased_bytes += bytes;
        self.has_changed = true;
        recycled.map_or(Reservation::Allocate, Reservation::Recycled)
    }

    fn release(&mut self, chunk: Arc<Chunk>) {
        chunk.set_released();
        self.unreleased_bytes -= chunk.capacity();
        self.has_changed = true;
        if chunk.committed() == 0 {
            return;
        }
        let done_at = chunk.done_at();
        self.released_bytes += chunk.capacity();
        self.newly_released.push(ChunkMetadata {
            done_at,
            bytes: chunk.capacity() as u64,
        });
        let position = self
            .released
            .iter()
            .rposition(|other| other.done_at() <= done_at)
            .map_or(0, |last| last + 1);
        self.released.insert(position, chunk);
    }

    fn forget_unreleased(&mut self, bytes: usize) {
        self.unreleased_bytes -= bytes;
        self.has_changed = true;
    }

    fn released(&self) -> &VecDeque<Arc<Chunk>> {
        &self.released
    }

    fn unreleased_bytes(&self) -> usize {
        self.unreleased_bytes
    }

    fn discarded(&self) -> Discarded {
        self.discarded
    }
}

impl ControlledChunkManager for ChunkManagerWithLocalLimit {
    fn take_update(&mut self) -> Update {
        if !std::mem::take(&mut self.has_changed) {
            return Update::None;
        }
        let oldest_done = self.released.front().map(|oldest| oldest.done_at());
        let mut newly_released = std::mem::take(&mut self.newly_released);
        newly_released.retain(|chunk| oldest_done.is_some_and(|oldest| chunk.done_at >= oldest));
        newly_released.sort_by_key(|chunk| chunk.done_at);
        Update::Changed {
            unreleased_bytes: self.unreleased_bytes as u64,
            released_bytes: self.released_bytes as u64,
            oldest_done,
            newly_released,
        }
    }

    fn destroy_chunks_at_or_before(&mut self, time: TimeStamp) {
        while self
            .released
            .front()
            .is_some_and(|oldest| oldest.done_at() <= time)
        {
            drop(self.discard_oldest());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::chunks::ChunkNumber;
    use crate::types::Generation;

    fn filled(bytes: usize, number: u64, done_at: u64) -> Arc<Chunk> {
        let (chunk, mut writer) =
            Chunk::new(bytes).begin(ChunkNumber(number), Generation::from_number(1), number);
        assert!(writer.append(TimeStamp(number.min(done_at)), &&b"entry"[..]));
        writer.finish(TimeStamp(done_at));
        chunk
    }

    fn numbers(manager: &ChunkManagerWithLocalLimit) -> Vec<u64> {
        manager
            .released()
            .iter()
            .map(|chunk| chunk.number.0)
            .collect()
    }

    #[test]
    fn reserve_at_the_limit_discards_the_oldest_chunk_and_recycles_it_if_the_size_matches() {
        let mut manager = ChunkManagerWithLocalLimit::new(40);
        assert_eq!(manager.largest_chunk_bytes(), 10);
        for number in 1..=3 {
            assert!(matches!(manager.reserve(10), Reservation::Allocate));
            manager.release(filled(10, number, number));
        }
        assert!(matches!(manager.reserve(10), Reservation::Allocate));
        assert_eq!(
            (numbers(&manager), manager.unreleased_bytes()),
            (vec![1, 2, 3], 10)
        );
        assert!(matches!(manager.reserve(10), Reservation::Recycled(_)));
        assert_eq!(numbers(&manager), [2, 3]);
        let discarded = Discarded {
            chunks: 1,
            bytes: 6,
            entries: 1,
            complete_since: Some(TimeStamp(1)),
        };
        assert_eq!(manager.discarded(), discarded);
        // A discarded chunk of another size is not recycled.
        assert!(matches!(manager.reserve(8), Reservation::Allocate));
        assert_eq!(
            (numbers(&manager), manager.discarded().chunks),
            (vec![3], 2)
        );
        // With no chunk left to discard, unreleased chunks may exceed the limit.
        for _ in 0..3 {
            assert!(matches!(
                manager.reserve(10),
                Reservation::Allocate | Reservation::Recycled(_)
            ));
        }
        assert_eq!(
            (numbers(&manager), manager.unreleased_bytes()),
            (vec![], 58)
        );
        manager.forget_unreleased(10);
        assert_eq!(manager.unreleased_bytes(), 48);
    }

    #[test]
    fn chunk_shared_with_a_reader_is_discarded_but_not_recycled() {
        let mut manager = ChunkManagerWithLocalLimit::new(40);
        assert!((0..4).all(|_| matches!(manager.reserve(10), Reservation::Allocate)));
        let shared = filled(10, 1, 1);
        manager.release(Arc::clone(&shared));
        assert!(matches!(manager.reserve(10), Reservation::Allocate));
        assert_eq!(
            (shared.committed_bytes(), numbers(&manager)),
            (&b"\x05entry"[..], vec![])
        );
    }

    #[test]
    fn released_chunks_are_sorted_by_done_time_without_empty_ones() {
        let mut manager = ChunkManagerWithLocalLimit::new(100);
        for (number, done_at) in [(1, 5), (2, 3), (3, 5), (4, 9), (5, 4)] {
            manager.reserve(10);
            manager.release(filled(10, number, done_at));
        }
        manager.reserve(10);
        let (empty, writer) = Chunk::new(10).begin(ChunkNumber(6), Generation::from_number(1), 6);
        writer.finish(TimeStamp(1));
        manager.release(empty);
        assert_eq!(
            (numbers(&manager), manager.unreleased_bytes()),
            (vec![2, 5, 1, 3, 4], 0)
        );
        manager.destroy_chunks_at_or_before(TimeStamp(4));
        assert_eq!(numbers(&manager), [1, 3, 4]);
        manager.destroy_chunks_at_or_before(TimeStamp(8));
        assert_eq!(
            (numbers(&manager), manager.discarded().chunks),
            (vec![4], 4)
        );
    }

    #[test]
    fn take_update_reports_changes_since_the_previous_call() {
        let mut manager = ChunkManagerWithLocalLimit::new(100);
        assert_eq!(manager.take_update(), Update::None);
        manager.reserve(10);
        manager.release(filled(10, 1, 1));
        manager.reserve(10);
        let released = |done_at| ChunkMetadata {
            done_at: TimeStamp(done_at),
            bytes: 10,
        };
        let expected = Update::Changed {
            unreleased_bytes: 10,
            released_bytes: 10,
            oldest_done: Some(TimeStamp(1)),
            newly_released: vec![released(1)],
        };
        assert_eq!(
            (manager.take_update(), manager.take_update()),
            (expected, Update::None)
        );
        // A chunk released and discarded between two updates appears in neither.
        manager.release(filled(10, 2, 2));
        manager.reserve(10);
        manager.release(filled(10, 3, 3));
        manager.destroy_chunks_at_or_before(TimeStamp(2));
        let expected = Update::Changed {
            unreleased_bytes: 0,
            released_bytes: 10,
            oldest_done: Some(TimeStamp(3)),
            newly_released: vec![released(3)],
        };
        assert_eq!(manager.take_update(), expected);
    }
}
