//! The chunk manager decides when chunks are allocated, recycled and discarded, and reports their
//! memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::buffer::chunks::{Chunk, FreshChunk};
use crate::types::TimeStamp;

/// Answer of a manager to a request for a chunk.
#[derive(Debug)]
pub(crate) enum Reservation {
    /// A discarded chunk of exactly the requested size.
    Recycled(FreshChunk),
    /// The memory is reserved; the caller allocates a chunk of the requested size.
    Allocate,
    /// The manager supplies no chunk of this size.
    Unavailable,
}

/// Totals of the discarded chunks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Discarded {
    pub(crate) chunks: u64,
    /// Bytes that the chunks held.
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    /// Time at which the last of the chunks was done; `None` without chunks. All entries that were
    /// put later are still in the buffer.
    pub(crate) complete_since: Option<TimeStamp>,
}

impl Discarded {
    pub(crate) fn add(&mut self, chunk: &Chunk) {
        self.chunks += 1;
        self.bytes += chunk.committed() as u64;
        self.entries += chunk.entries();
        self.complete_since = self.complete_since.max(Some(chunk.done_at()));
    }
}

/// Maximum size of a chunk, in bytes.
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// Minimum number of chunks that fit into the limit: the one being written, the next one, and two
/// to read back.
const MIN_CHUNKS: usize = 4;

/// Keeps the total size of the chunks within a limit by discarding the oldest released ones. The
/// total exceeds the limit only if the unreleased chunks alone exceed it. What the session keeps
/// outside the chunks counts towards the same limit.
///
/// **Contract**:
/// - A chunk is *unreleased* from the [`Self::reserve`] that granted it until it is released or
///   returned unused. A released chunk stays *released* until it is discarded.
/// - Released chunks are never written to. They are kept oldest first, by the time they were done.
/// - Only released chunks are discarded, oldest first, and discarded chunks are counted.
/// - The manager does not wait for readers: a chunk that a reader shares is discarded at once, and
///   its memory lives until the reader drops it.
/// - All methods are called under the buffer's lock. They allocate only to grow lists of chunks.
#[doc(alias = "ProfileBufferChunkManager")]
#[doc(alias = "ProfileBufferControlledChunkManager")]
#[doc(alias = "ProfileBufferChunkManagerWithLocalLimit")]
#[derive(Debug)]
pub(crate) struct ChunkManager {
    /// The limit of the total size with enough memory. The unreleased chunks alone may exceed it.
    pub(crate) max_bytes: usize,
    /// The limit while the system has too little memory for `max_bytes`.
    allowed_bytes: usize,
    max_chunk_bytes: usize,
    released: VecDeque<Arc<Chunk>>,
    released_bytes: usize,
    pub(crate) unreleased_bytes: usize,
    /// Size of what the session keeps outside the chunks.
    pub(crate) kept_bytes: usize,
    pub(crate) discarded: Discarded,
    newly_released: Vec<ChunkMetadata>,
    has_changed: bool,
}

impl ChunkManager {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            allowed_bytes: max_bytes,
            max_chunk_bytes: MAX_CHUNK_BYTES,
            released: VecDeque::new(),
            released_bytes: 0,
            unreleased_bytes: 0,
            kept_bytes: 0,
            discarded: Discarded::default(),
            newly_released: Vec::new(),
            has_changed: false,
        }
    }

    /// Limits the size of a chunk further.
    pub(crate) fn with_chunks_up_to(mut self, max_chunk_bytes: usize) -> Self {
        self.max_chunk_bytes = self.max_chunk_bytes.min(max_chunk_bytes);
        self
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
        let chunk_bytes = self.chunk_bytes() + bytes;
        chunk_bytes.saturating_add(self.kept_bytes) > self.allowed_bytes
    }

    /// Lowers the limit to what the system has memory for, or lifts that again.
    pub(crate) fn allow(&mut self, bytes: usize) {
        self.allowed_bytes = bytes.min(self.max_bytes);
    }

    /// Discards the oldest released chunks while the total exceeds the limit.
    pub(crate) fn discard_excess(&mut self) {
        while self.is_full_with(0) && self.discard_oldest().is_some() {}
    }

    /// Returns the size of the largest chunk, in bytes; it bounds the size of an entry.
    pub(crate) fn largest_chunk_bytes(&self) -> usize {
        (self.max_bytes / MIN_CHUNKS).min(self.max_chunk_bytes)
    }

    /// Reserves memory for a chunk of `bytes`, discarding old chunks if needed. If granted, the
    /// chunk counts as unreleased.
    #[doc(alias = "GetChunk")]
    pub(crate) fn reserve(&mut self, bytes: usize) -> Reservation {
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

    /// Discards the oldest released chunks until one of them has space for `bytes`. Returns that
    /// chunk, which then counts as granted. Called if the system has no memory for a new chunk.
    /// Stops at a chunk that a reader shares, because discarding it would free no memory.
    pub(crate) fn recycle_oldest(&mut self, bytes: usize) -> Option<FreshChunk> {
        while self
            .released
            .front()
            .is_some_and(|oldest| Arc::strong_count(oldest) == 1)
        {
            let recycled = Chunk::recycle(self.discard_oldest()?)?;
            if recycled.capacity() >= bytes {
                self.unreleased_bytes += recycled.capacity();
                return Some(recycled);
            }
        }
        None
    }

    /// Takes over a chunk that is done.
    pub(crate) fn release(&mut self, chunk: Arc<Chunk>) {
        chunk.set_released();
        self.unreleased_bytes -= chunk.capacity();
        self.has_changed = true;
        if chunk.committed() == 0 {
            return;
        }
        let done_at = chunk.done_at();
        if self.released.try_reserve(1).is_err() && self.discard_oldest().is_none() {
            // Without memory for a longer list, the oldest chunk makes space in it. Here there is
            // no list at all.
            self.discarded.add(&chunk);
            chunk.set_discarded();
            return;
        }
        self.released_bytes += chunk.capacity();
        if self.newly_released.try_reserve(1).is_ok() {
            self.newly_released.push(ChunkMetadata {
                done_at,
                bytes: chunk.capacity() as u64,
            });
        }
        let position = self
            .released
            .iter()
            .rposition(|other| other.done_at() <= done_at)
            .map_or(0, |last| last + 1);
        self.released.insert(position, chunk);
    }

    /// Cancels the reservation of a chunk that was never written to.
    #[doc(alias = "ForgetUnreleasedChunks")]
    pub(crate) fn forget_unreleased(&mut self, bytes: usize) {
        self.unreleased_bytes -= bytes;
        self.has_changed = true;
    }

    /// Returns the released chunks, oldest first.
    #[doc(alias = "PeekExtantReleasedChunks")]
    pub(crate) fn released(&self) -> &VecDeque<Arc<Chunk>> {
        &self.released
    }

    /// Returns the size of all chunks, in bytes.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.released_bytes + self.unreleased_bytes
    }

    /// Returns the changes since the previous call.
    #[doc(alias = "SetUpdateCallback")]
    pub(crate) fn take_update(&mut self) -> Update {
        if !std::mem::take(&mut self.has_changed) {
            return Update::None;
        }
        let oldest_done = self.released.front().map(|oldest| oldest.done_at());
        let mut newly_released = std::mem::take(&mut self.newly_released);
        newly_released.retain(|chunk| oldest_done.is_some_and(|oldest| chunk.done_at >= oldest));
        newly_released.sort_by_key(|chunk| chunk.done_at);
        Update::Changed {
            memory: ChunkMemory {
                unreleased_bytes: self.unreleased_bytes as u64,
                released_bytes: self.released_bytes as u64,
                oldest_done,
            },
            newly_released,
        }
    }

    /// Discards all released chunks that were done at `time` or earlier.
    #[doc(alias = "DestroyChunksAtOrBefore")]
    pub(crate) fn destroy_chunks_at_or_before(&mut self, time: TimeStamp) {
        while self
            .released
            .front()
            .is_some_and(|oldest| oldest.done_at() <= time)
        {
            drop(self.discard_oldest());
        }
    }
}

/// Size of a released chunk, and the time at which it was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkMetadata {
    pub(crate) done_at: TimeStamp,
    pub(crate) bytes: u64,
}

/// Memory of all chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ChunkMemory {
    /// Size of the chunks that are being written or will be written next.
    pub(crate) unreleased_bytes: u64,
    /// Size of the chunks that are complete.
    pub(crate) released_bytes: u64,
    /// Time at which the oldest complete chunk was done.
    pub(crate) oldest_done: Option<TimeStamp>,
}

/// Report of a manager about its chunks. Successive updates of one manager can be folded into one
/// equivalent update.
#[doc(alias = "ProfileBufferControlledChunkManager::Update")]
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) enum Update {
    /// Nothing has changed.
    #[default]
    None,
    Changed {
        memory: ChunkMemory,
        /// Chunks released since the previous update and not discarded yet, oldest first.
        newly_released: Vec<ChunkMetadata>,
    },
    /// The manager is gone.
    Final,
}

/// Who follows the updates of one manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UpdateReader {
    /// The parent process, which limits the memory of its children.
    Parent,
    /// This process, for the limit of itself and its children.
    Family,
}

impl UpdateReader {
    pub(crate) const COUNT: usize = 2;
}

impl Update {
    /// Adds a later update of the same manager.
    pub(crate) fn fold(&mut self, newer: Self) {
        match (&mut *self, newer) {
            (_, Self::None) | (Self::Final, _) => {}
            (
                Self::Changed {
                    memory,
                    newly_released,
                },
                Self::Changed {
                    memory: now,
                    newly_released: newer,
                },
            ) => {
                *memory = now;
                // Chunks older than the oldest one have been discarded since.
                newly_released.retain(|chunk| {
                    now.oldest_done
                        .is_some_and(|oldest| chunk.done_at >= oldest)
                });
                // If the allocation fails, the update lacks these chunks.
                if newly_released.try_reserve(newer.len()).is_ok() {
                    newly_released.extend(newer);
                }
            }
            (_, newer) => *self = newer,
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

    fn numbers(manager: &ChunkManager) -> Vec<u64> {
        manager
            .released()
            .iter()
            .map(|chunk| chunk.number.0)
            .collect()
    }

    #[test]
    fn reserve_at_the_limit_discards_the_oldest_chunk_and_recycles_it_if_the_size_matches() {
        let mut manager = ChunkManager::new(40);
        assert_eq!(manager.largest_chunk_bytes(), 10);
        for number in 1..=3 {
            assert!(matches!(manager.reserve(10), Reservation::Allocate));
            manager.release(filled(10, number, number));
        }
        assert!(matches!(manager.reserve(10), Reservation::Allocate));
        assert_eq!(
            (numbers(&manager), manager.unreleased_bytes),
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
        assert_eq!(manager.discarded, discarded);
        // A discarded chunk of another size is not recycled.
        assert!(matches!(manager.reserve(8), Reservation::Allocate));
        assert_eq!((numbers(&manager), manager.discarded.chunks), (vec![3], 2));
        // With no chunk left to discard, unreleased chunks may exceed the limit.
        for _ in 0..3 {
            assert!(matches!(
                manager.reserve(10),
                Reservation::Allocate | Reservation::Recycled(_)
            ));
        }
        assert_eq!((numbers(&manager), manager.unreleased_bytes), (vec![], 58));
        manager.forget_unreleased(10);
        assert_eq!(manager.unreleased_bytes, 48);
    }

    #[test]
    fn bytes_kept_outside_the_chunks_count_towards_the_limit() {
        let mut manager = ChunkManager::new(40);
        for number in 1..=3 {
            assert!(matches!(manager.reserve(10), Reservation::Allocate));
            manager.release(filled(10, number, number));
        }
        manager.discard_excess();
        assert_eq!(numbers(&manager), [1, 2, 3]);
        manager.kept_bytes = 15;
        manager.discard_excess();
        assert_eq!(numbers(&manager), [2, 3]);
        assert!(matches!(manager.reserve(10), Reservation::Recycled(_)));
        assert_eq!(numbers(&manager), [3]);
        // With no chunk left to discard, the total may exceed the limit.
        manager.kept_bytes = 100;
        manager.discard_excess();
        assert_eq!((numbers(&manager), manager.unreleased_bytes), (vec![], 10));
    }

    #[test]
    fn chunk_shared_with_a_reader_is_discarded_but_not_recycled() {
        let mut manager = ChunkManager::new(40);
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
    fn recycle_oldest_discards_chunks_that_no_reader_shares() {
        let mut manager = ChunkManager::new(400);
        for (number, bytes) in [(1, 10), (2, 20), (3, 10), (4, 30)] {
            assert!(matches!(manager.reserve(bytes), Reservation::Allocate));
            manager.release(filled(bytes, number, number));
        }
        let recycled = manager.recycle_oldest(15).expect("the second chunk");
        assert_eq!(recycled.capacity(), 20);
        assert_eq!(
            (numbers(&manager), manager.unreleased_bytes),
            (vec![3, 4], 20)
        );
        let shared = Arc::clone(&manager.released()[0]);
        assert!(manager.recycle_oldest(1).is_none(), "a reader shares it");
        assert_eq!((numbers(&manager), manager.chunk_bytes()), (vec![3, 4], 60));
        drop(shared);
        assert!(manager.recycle_oldest(40).is_none(), "no chunk is as large");
        assert_eq!((manager.chunk_bytes(), manager.discarded.chunks), (20, 4));
    }

    #[test]
    fn released_chunks_are_sorted_by_done_time_without_empty_ones() {
        let mut manager = ChunkManager::new(100);
        for (number, done_at) in [(1, 5), (2, 3), (3, 5), (4, 9), (5, 4)] {
            manager.reserve(10);
            manager.release(filled(10, number, done_at));
        }
        manager.reserve(10);
        let (empty, writer) = Chunk::new(10).begin(ChunkNumber(6), Generation::from_number(1), 6);
        writer.finish(TimeStamp(1));
        manager.release(empty);
        assert_eq!(
            (numbers(&manager), manager.unreleased_bytes),
            (vec![2, 5, 1, 3, 4], 0)
        );
        manager.destroy_chunks_at_or_before(TimeStamp(4));
        assert_eq!(numbers(&manager), [1, 3, 4]);
        manager.destroy_chunks_at_or_before(TimeStamp(8));
        assert_eq!((numbers(&manager), manager.discarded.chunks), (vec![4], 4));
    }

    #[test]
    fn take_update_reports_changes_since_the_previous_call() {
        let mut manager = ChunkManager::new(100);
        assert_eq!(manager.take_update(), Update::None);
        manager.reserve(10);
        manager.release(filled(10, 1, 1));
        manager.reserve(10);
        let released = |done_at| ChunkMetadata {
            done_at: TimeStamp(done_at),
            bytes: 10,
        };
        let expected = Update::Changed {
            memory: ChunkMemory {
                unreleased_bytes: 10,
                released_bytes: 10,
                oldest_done: Some(TimeStamp(1)),
            },
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
            memory: ChunkMemory {
                unreleased_bytes: 0,
                released_bytes: 10,
                oldest_done: Some(TimeStamp(3)),
            },
            newly_released: vec![released(3)],
        };
        assert_eq!(manager.take_update(), expected);
    }

    fn changed(unreleased: u64, released: u64, oldest: u64, newly: &[(u64, u64)]) -> Update {
        Update::Changed {
            memory: ChunkMemory {
                unreleased_bytes: unreleased,
                released_bytes: released,
                oldest_done: (oldest > 0).then_some(TimeStamp(oldest)),
            },
            newly_released: newly
                .iter()
                .map(|&(done, bytes)| ChunkMetadata {
                    done_at: TimeStamp(done),
                    bytes,
                })
                .collect(),
        }
    }

    fn folded(updates: &[Update]) -> Update {
        updates
            .iter()
            .cloned()
            .fold(Update::None, |mut all, update| {
                all.fold(update);
                all
            })
    }

    #[test]
    fn folded_updates_equal_one_update() {
        assert_eq!(folded(&[]), Update::None);
        let first = changed(10, 0, 0, &[]);
        assert_eq!(folded(&[Update::None, first.clone(), Update::None]), first);
        let second = changed(20, 30, 3, &[(3, 30)]);
        assert_eq!(folded(&[first.clone(), second.clone()]), second);
        // By the third update the first released chunk has been discarded.
        let third = changed(5, 70, 4, &[(4, 30), (5, 40)]);
        assert_eq!(folded(&[first, second.clone(), third.clone()]), third);
        let fourth = changed(6, 90, 4, &[(7, 20)]);
        assert_eq!(
            folded(&[second.clone(), third, fourth]),
            changed(6, 90, 4, &[(4, 30), (5, 40), (7, 20)])
        );
        // All released chunks were discarded.
        assert_eq!(
            folded(&[second.clone(), changed(1, 0, 0, &[])]),
            changed(1, 0, 0, &[])
        );
        assert_eq!(folded(&[second.clone(), Update::Final]), Update::Final);
        assert_eq!(
            folded(&[Update::Final, second]),
            Update::Final,
            "no update follows `Final`"
        );
    }
}
