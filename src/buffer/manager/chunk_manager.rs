//! The traits of chunk managers, which decide when chunks are allocated, recycled and discarded,
//! and the updates with which they report their memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::buffer::chunks::Chunk;
use crate::types::TimeStamp;

/// Answer of a manager to a request for a chunk.
#[derive(Debug)]
pub(crate) enum Reservation {
    /// A discarded chunk of exactly the requested size.
    Recycled(Chunk),
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
    /// Time at which the last of the chunks was done, if there were any. All entries that were put
    /// later are still in the buffer.
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

/// Limits the memory of the chunks and chooses the chunks to discard.
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
pub(crate) trait ChunkManager {
    /// Limit of the total size, in bytes. Only unreleased chunks may exceed it.
    fn max_total_bytes(&self) -> usize;

    /// Size of the largest chunk, in bytes; it bounds the size of an entry.
    fn largest_chunk_bytes(&self) -> usize;

    /// Reserves memory for a chunk of `bytes`, discarding old chunks if needed. If granted, the
    /// chunk counts as unreleased.
    #[doc(alias = "GetChunk")]
    fn reserve(&mut self, bytes: usize) -> Reservation;

    /// Takes over a chunk that is done.
    fn release(&mut self, chunk: Arc<Chunk>);

    /// Cancels the reservation of a chunk that was never written to.
    #[doc(alias = "ForgetUnreleasedChunks")]
    fn forget_unreleased(&mut self, bytes: usize);

    /// Returns the released chunks, oldest first.
    #[doc(alias = "PeekExtantReleasedChunks")]
    fn released(&self) -> &VecDeque<Arc<Chunk>>;

    fn unreleased_bytes(&self) -> usize;

    fn discarded(&self) -> Discarded;
}

/// A manager that a controller can steer, to keep several processes within one limit.
#[doc(alias = "ProfileBufferControlledChunkManager")]
pub(crate) trait ControlledChunkManager: ChunkManager {
    /// Returns the changes since the previous call.
    #[doc(alias = "SetUpdateCallback")]
    fn take_update(&mut self) -> Update;

    /// Discards all released chunks that were done at `time` or earlier.
    #[doc(alias = "DestroyChunksAtOrBefore")]
    fn destroy_chunks_at_or_before(&mut self, time: TimeStamp);
}

/// Size of a released chunk, and the time at which it was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkMetadata {
    pub(crate) done_at: TimeStamp,
    pub(crate) bytes: u64,
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
        unreleased_bytes: u64,
        released_bytes: u64,
        /// Time at which the oldest released chunk was done.
        oldest_done: Option<TimeStamp>,
        /// Chunks released since the previous update and not discarded yet, oldest first.
        newly_released: Vec<ChunkMetadata>,
    },
    /// The manager is gone.
    Final,
}

impl Update {
    /// Adds a later update of the same manager.
    pub(crate) fn fold(&mut self, newer: Self) {
        match (&mut *self, newer) {
            (_, Self::None) | (Self::Final, _) => {}
            (
                Self::Changed {
                    unreleased_bytes,
                    released_bytes,
                    oldest_done,
                    newly_released,
                },
                Self::Changed {
                    unreleased_bytes: unreleased_now,
                    released_bytes: released_now,
                    oldest_done: oldest_now,
                    newly_released: newer,
                },
            ) => {
                (*unreleased_bytes, *released_bytes, *oldest_done) =
                    (unreleased_now, released_now, oldest_now);
                // Chunks older than the oldest one have been discarded since.
                newly_released
                    .retain(|chunk| oldest_now.is_some_and(|oldest| chunk.done_at >= oldest));
                newly_released.extend(newer);
            }
            (_, newer) => *self = newer,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn changed(unreleased: u64, released: u64, oldest: u64, newly: &[(u64, u64)]) -> Update {
        Update::Changed {
            unreleased_bytes: unreleased,
            released_bytes: released,
            oldest_done: (oldest > 0).then_some(TimeStamp(oldest)),
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
