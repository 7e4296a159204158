//! The manager of a session's buffer.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::TimeStamp;
use crate::buffer::chunk::Chunk;
use crate::buffer::chunk_manager::{
    ChunkManager, ChunkMetadata, ControlledChunkManager, Discarded, Room, Update,
};

/// The size that every chunk has at the most.
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// A chunk is at most this part of all: there is the one that is written to, the next one, and two to read back.
const MIN_CHUNKS: usize = 4;

/// Keeps chunks within a number of bytes: when they are used up, the oldest ones go. Only unreleased chunks can exceed it.
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
    pub(super) fn new(max_bytes: usize) -> Self {
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

    /// Gives the oldest chunk up.
    fn discard_oldest(&mut self) -> Option<Arc<Chunk>> {
        let oldest = self.released.pop_front()?;
        self.released_bytes -= oldest.capacity();
        self.discarded.add(&oldest);
        oldest.set_given_up();
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

    fn make_room(&mut self, bytes: usize) -> Room {
        if bytes > self.largest_chunk_bytes() {
            return Room::None;
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
        recycled.map_or(Room::Make, Room::Recycled)
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
        let place = self
            .released
            .iter()
            .rposition(|other| other.done_at() <= done_at)
            .map_or(0, |last| last + 1);
        self.released.insert(place, chunk);
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
    use crate::base::Generation;
    use crate::buffer::index::ChunkNumber;

    fn filled(bytes: usize, number: u64, done_at: u64) -> Arc<Chunk> {
        let (chunk, mut right) =
            Chunk::new(bytes).begin(ChunkNumber(number), Generation::from_number(1), number);
        assert!(right.append(TimeStamp(number.min(done_at)), &&b"entry"[..]));
        right.finish(TimeStamp(done_at));
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
    fn the_oldest_goes_where_there_is_no_room_and_is_used_again_if_it_fits() {
        let mut manager = ChunkManagerWithLocalLimit::new(40);
        assert_eq!(manager.largest_chunk_bytes(), 10);
        for number in 1..=3 {
            assert!(matches!(manager.make_room(10), Room::Make));
            manager.release(filled(10, number, number));
        }
        assert!(matches!(manager.make_room(10), Room::Make));
        assert_eq!(
            (numbers(&manager), manager.unreleased_bytes()),
            (vec![1, 2, 3], 10)
        );
        assert!(matches!(manager.make_room(10), Room::Recycled(_)));
        assert_eq!(numbers(&manager), [2, 3]);
        let discarded = Discarded {
            chunks: 1,
            bytes: 6,
            entries: 1,
            complete_since: Some(TimeStamp(1)),
        };
        assert_eq!(manager.discarded(), discarded);
        // Of another size, it makes room.
        assert!(matches!(manager.make_room(8), Room::Make));
        assert_eq!(
            (numbers(&manager), manager.discarded().chunks),
            (vec![3], 2)
        );
        // Nothing is left to give up, and what is in use may exceed the limit.
        for _ in 0..3 {
            assert!(matches!(
                manager.make_room(10),
                Room::Make | Room::Recycled(_)
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
    fn a_chunk_that_is_read_is_given_up_and_not_used_again() {
        let mut manager = ChunkManagerWithLocalLimit::new(40);
        assert!((0..4).all(|_| matches!(manager.make_room(10), Room::Make)));
        let shared = filled(10, 1, 1);
        manager.release(Arc::clone(&shared));
        assert!(matches!(manager.make_room(10), Room::Make));
        assert_eq!(
            (shared.committed_bytes(), numbers(&manager)),
            (&b"\x05entry"[..], vec![])
        );
    }

    #[test]
    fn released_chunks_are_in_the_order_in_which_they_were_done_and_empty_ones_are_forgotten() {
        let mut manager = ChunkManagerWithLocalLimit::new(100);
        for (number, done_at) in [(1, 5), (2, 3), (3, 5), (4, 9), (5, 4)] {
            manager.make_room(10);
            manager.release(filled(10, number, done_at));
        }
        manager.make_room(10);
        let (empty, right) = Chunk::new(10).begin(ChunkNumber(6), Generation::from_number(1), 6);
        right.finish(TimeStamp(1));
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
    fn an_update_tells_what_changed_since_the_one_before() {
        let mut manager = ChunkManagerWithLocalLimit::new(100);
        assert_eq!(manager.take_update(), Update::None);
        manager.make_room(10);
        manager.release(filled(10, 1, 1));
        manager.make_room(10);
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
        // One that was released and discarded between two updates is in none.
        manager.release(filled(10, 2, 2));
        manager.make_room(10);
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
