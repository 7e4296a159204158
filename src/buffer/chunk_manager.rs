//! Where chunks come from and where they go: what every chunk manager keeps to, and what one tells of itself.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::TimeStamp;
use crate::buffer::chunk::Chunk;

/// What a manager answers who needs a chunk.
#[derive(Debug)]
pub(crate) enum Room {
    /// One that was emptied, of that very size.
    Recycled(Chunk),
    /// There is room: make one of that size.
    Make,
    /// There is none.
    None,
}

/// What was given up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Discarded {
    pub(super) chunks: u64,
    /// What they held.
    pub(super) bytes: u64,
    pub(super) entries: u64,
    /// When the last of them was done, if there were any. What was put later is all there.
    pub(super) complete_since: Option<TimeStamp>,
}

impl Discarded {
    pub(super) fn add(&mut self, chunk: &Chunk) {
        self.chunks += 1;
        self.bytes += chunk.committed() as u64;
        self.entries += chunk.entries();
        self.complete_since = self.complete_since.max(Some(chunk.done_at()));
    }
}

/// Decides how much memory chunks take, and which of them go.
///
/// **Contract**:
/// - a chunk is *unreleased* from [`Self::make_room`] that promised it until it is released or taken back unused, and *released*
///   from then on until it is discarded;
/// - released chunks are never written to; they are kept oldest first, by when they were done;
/// - only released chunks are discarded, the oldest first, and what is discarded is counted;
/// - a chunk that a reader shares is not waited for: it is discarded, and lives until the reader is done;
/// - called under the buffer's lock. Nothing is allocated but in lists of chunks.
#[doc(alias = "ProfileBufferChunkManager")]
pub(crate) trait ChunkManager {
    /// So many bytes it keeps to, but for unreleased chunks.
    fn max_total_bytes(&self) -> usize;

    /// The size of the largest chunk, and so of the largest entry.
    fn largest_chunk_bytes(&self) -> usize;

    /// Makes room for a chunk of `bytes`, and counts it as unreleased, unless there is none.
    #[doc(alias = "GetChunk")]
    fn make_room(&mut self, bytes: usize) -> Room;

    /// Takes a chunk that is done.
    fn release(&mut self, chunk: Arc<Chunk>);

    /// A chunk for which there was room is not there any more, and was never written to.
    #[doc(alias = "ForgetUnreleasedChunks")]
    fn forget_unreleased(&mut self, bytes: usize);

    /// Oldest first.
    #[doc(alias = "PeekExtantReleasedChunks")]
    fn released(&self) -> &VecDeque<Arc<Chunk>>;

    fn unreleased_bytes(&self) -> usize;

    fn discarded(&self) -> Discarded;
}

/// A manager that can be governed from outside: one limit for many processes.
#[doc(alias = "ProfileBufferControlledChunkManager")]
pub(crate) trait ControlledChunkManager: ChunkManager {
    /// What has changed since the last time.
    #[doc(alias = "SetUpdateCallback")]
    fn take_update(&mut self) -> Update;

    /// Discards all released chunks that were done at that time or before.
    #[doc(alias = "DestroyChunksAtOrBefore")]
    fn destroy_chunks_at_or_before(&mut self, time: TimeStamp);
}

/// A chunk that was released: when it was done, and its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkMetadata {
    pub(super) done_at: TimeStamp,
    pub(super) bytes: u64,
}

/// What a manager tells of its chunks. Updates of one manager fold into one that says the same.
#[doc(alias = "ProfileBufferControlledChunkManager::Update")]
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) enum Update {
    /// Nothing has changed.
    #[default]
    None,
    Changed {
        unreleased_bytes: u64,
        released_bytes: u64,
        /// When the oldest of the released chunks was done.
        oldest_done: Option<TimeStamp>,
        /// Those that were released since the update before and are there still, oldest first.
        newly_released: Vec<ChunkMetadata>,
    },
    /// The manager is gone.
    Final,
}

impl Update {
    /// Adds a later update of the same manager.
    pub(super) fn fold(&mut self, newer: Self) {
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
                // What is older than the oldest is not there any more.
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
    fn updates_fold_into_one_that_says_the_same() {
        assert_eq!(folded(&[]), Update::None);
        let first = changed(10, 0, 0, &[]);
        assert_eq!(folded(&[Update::None, first.clone(), Update::None]), first);
        let second = changed(20, 30, 3, &[(3, 30)]);
        assert_eq!(folded(&[first.clone(), second.clone()]), second);
        // The first released one is gone by the third.
        let third = changed(5, 70, 4, &[(4, 30), (5, 40)]);
        assert_eq!(folded(&[first, second.clone(), third.clone()]), third);
        let fourth = changed(6, 90, 4, &[(7, 20)]);
        assert_eq!(
            folded(&[second.clone(), third, fourth]),
            changed(6, 90, 4, &[(4, 30), (5, 40), (7, 20)])
        );
        // Everything was destroyed.
        assert_eq!(
            folded(&[second.clone(), changed(1, 0, 0, &[])]),
            changed(1, 0, 0, &[])
        );
        assert_eq!(folded(&[second.clone(), Update::Final]), Update::Final);
        assert_eq!(
            folded(&[Update::Final, second]),
            Update::Final,
            "nothing comes after it"
        );
    }
}
