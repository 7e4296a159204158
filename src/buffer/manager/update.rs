//! The updates with which a chunk manager reports its memory.

use crate::types::TimeStamp;

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
