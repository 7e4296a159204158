//! A session's chunks: which there are, whose they are, and how large the next ones are to be. Under the buffer's lock.

use std::ops::Range;
use std::sync::Arc;

use crate::base::{Generation, TimeStamp};
use crate::buffer::chunk::{Chunk, ChunkLife, WriteRight};
use crate::buffer::chunk_manager::{ChunkManager, ControlledChunkManager, Room, Update};
use crate::buffer::index::ChunkNumber;
use crate::buffer::lane::Lane;

/// What a lane gets that has shown no need of more. A thousand threads that write a marker now and then take two each.
const SMALL_CHUNK_BYTES: usize = 4 << 10;

/// Asked for by a lane that wants the largest chunks, however many lanes there are.
pub(super) const LARGEST: usize = usize::MAX;

/// Why an entry is nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dropped {
    /// No chunk that there may be has room for it.
    TooLarge,
    /// It came from within the profiler's own work, which may hold the buffer's lock: from the host's allocator, say, or from a
    /// handler.
    InOwnWork,
    /// It was longer when it was written than when it was asked: a marker whose payload does not always say the same.
    Overrun,
}

/// How many reasons there are.
pub(super) const REASONS: usize = 3;

/// How many entries are nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct DroppedEntries {
    pub(crate) too_large: u64,
    pub(crate) in_own_work: u64,
    pub(crate) overrun: u64,
}

impl DroppedEntries {
    pub(crate) fn all(self) -> u64 {
        self.too_large + self.in_own_work + self.overrun
    }
}

/// What the buffer did, for the profile's report of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BufferStatistics {
    pub(crate) capacity_bytes: u64,
    pub(crate) put_entries: u64,
    pub(crate) put_bytes: u64,
    pub(crate) dropped: DroppedEntries,
    /// Chunks given up to make room, and the bytes that were in them.
    pub(crate) recycled_chunks: u64,
    pub(crate) recycled_bytes: u64,
    /// Writers that have chunks of their own.
    pub(crate) lanes: u64,
}

/// A chunk that was given out, and to which lane.
#[derive(Debug)]
struct Unreleased {
    chunk: Arc<Chunk>,
    lane: usize,
}

#[derive(Debug)]
pub(super) struct ChunkBook<M> {
    pub(super) session: Generation,
    pub(super) manager: M,
    unreleased: Vec<Unreleased>,
    next_number: u64,
    range_end: u64,
    update: Update,
}

impl<M: ChunkManager> ChunkBook<M> {
    pub(super) fn new(session: Generation, manager: M) -> Self {
        Self {
            session,
            manager,
            unreleased: Vec::new(),
            next_number: 0,
            range_end: 1,
            update: Update::None,
        }
    }

    /// How large a chunk a lane is to get that wants so much, one of so many, with room for an entry of `needed_bytes`. All lanes
    /// together get no more than half of what there is, unless the smallest take more.
    fn chunk_bytes_for(&self, wanted: usize, lanes: usize, needed_bytes: usize) -> usize {
        let (largest, all) = (
            self.manager.largest_chunk_bytes(),
            self.manager.max_total_bytes(),
        );
        let smallest = SMALL_CHUNK_BYTES.min(largest);
        let granted = if wanted == LARGEST {
            largest
        } else {
            let share = (all / 4 / lanes.max(1)).max(1);
            let wanted = wanted.min(1 << share.ilog2()).clamp(smallest, largest);
            let is_within_half = self.manager.unreleased_bytes() + wanted <= all / 2;
            if is_within_half { wanted } else { smallest }
        };
        // Up to the largest in powers of two, so that they can be used again; what is larger has no room.
        granted.max(
            needed_bytes
                .next_power_of_two()
                .min(largest.max(needed_bytes)),
        )
    }

    /// A chunk begins its life in a lane.
    pub(super) fn begin(&mut self, chunk: Chunk, lane: usize) -> WriteRight {
        let range_start = self.range_end;
        self.range_end += chunk.capacity() as u64;
        let (chunk, right) = chunk.begin(ChunkNumber(self.next_number), self.session, range_start);
        self.next_number += 1;
        self.unreleased.push(Unreleased { chunk, lane });
        right
    }

    /// A chunk with room for the entry, for a lane of so many that has none; `None` where there can be none.
    pub(super) fn make_chunk(
        &mut self,
        lane: &Lane,
        lanes: usize,
        block_bytes: usize,
    ) -> Option<WriteRight> {
        // It came while this was waited for. So a lane's chunks are filled in the order of their numbers.
        if let Some(next) = lane.take_next() {
            if next.chunk().session == self.session && next.chunk().capacity() >= block_bytes {
                return Some(next);
            }
            next.finish(TimeStamp::default());
        }
        self.settle();
        let bytes = self.chunk_bytes_for(lane.wanted_bytes(), lanes, block_bytes);
        let chunk = match self.manager.make_room(bytes) {
            Room::Recycled(chunk) => chunk,
            Room::Make => Chunk::new(bytes),
            Room::None => return None,
        };
        Some(self.begin(chunk, lane.index))
    }

    /// Sets the lane's next chunk if it is missing and one can be recycled; where one has to be made, how large.
    pub(super) fn set_next(&mut self, lane: &Lane, lanes: usize) -> Option<usize> {
        if !lane.wants_next() {
            return None;
        }
        let bytes = self.chunk_bytes_for(lane.wanted_bytes(), lanes, 0);
        match self.manager.make_room(bytes) {
            Room::Recycled(chunk) => {
                lane.set_next(self.begin(chunk, lane.index));
                None
            }
            Room::Make => Some(bytes),
            Room::None => None,
        }
    }

    /// Releases the chunks that are done.
    pub(super) fn settle(&mut self) {
        let is_done = |unreleased: &mut Unreleased| unreleased.chunk.life() == ChunkLife::Done;
        let mut done: Vec<_> = self.unreleased.extract_if(.., is_done).collect();
        done.sort_by_key(|unreleased| unreleased.chunk.done_at());
        done.into_iter()
            .for_each(|Unreleased { chunk, .. }| self.manager.release(chunk));
    }

    /// A chunk that was never written to is not used after all.
    pub(super) fn take_back(&mut self, right: WriteRight) {
        let number = right.chunk().number;
        self.manager.forget_unreleased(right.chunk().capacity());
        self.unreleased
            .retain(|unreleased| unreleased.chunk.number != number);
    }

    /// The lanes whose chunks are older than the oldest of those that are complete, once something was given up: they have
    /// gone quiet, and would keep what nobody else remembers.
    pub(super) fn quiet_lanes(&self) -> Vec<usize> {
        if self.manager.discarded().chunks == 0 {
            return Vec::new();
        }
        let oldest = self
            .manager
            .released()
            .front()
            .map(|chunk| chunk.range_start);
        // Where what is in use leaves no room for any, the youngest.
        let Some(since) = oldest.or_else(|| self.filled().map(|chunk| chunk.range_start).max())
        else {
            return Vec::new();
        };
        let is_quiet = |unreleased: &&Unreleased| {
            unreleased.chunk.range_start < since && unreleased.chunk.committed() > 0
        };
        self.unreleased
            .iter()
            .filter(is_quiet)
            .map(|unreleased| unreleased.lane)
            .collect()
    }

    /// All chunks that hold anything.
    fn filled(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        let unreleased = self.unreleased.iter().map(|unreleased| &unreleased.chunk);
        self.manager
            .released()
            .iter()
            .chain(unreleased)
            .filter(|chunk| chunk.committed() > 0)
    }

    /// The same, in the order in which they were begun, each with what is committed of it now. Of each lane it is what was put
    /// until some moment: whether there is anything in a chunk is asked before its lane's earlier ones are looked at, which
    /// are complete if there is.
    pub(super) fn share(&self) -> Vec<(Arc<Chunk>, usize)> {
        let unreleased = self.unreleased.iter().map(|unreleased| &unreleased.chunk);
        let mut chunks: Vec<_> = self
            .manager
            .released()
            .iter()
            .chain(unreleased)
            .cloned()
            .collect();
        chunks.sort_by_key(|chunk| chunk.range_start);
        let newest_first = chunks
            .into_iter()
            .rev()
            .map(|chunk| (chunk.committed(), chunk));
        let mut shared: Vec<_> = newest_first
            .filter(|(bytes, _)| *bytes > 0)
            .map(|(bytes, chunk)| (chunk, bytes))
            .collect();
        shared.reverse();
        shared
    }

    /// The positions of the oldest chunk that holds anything, and where the next one will begin. What ended when the next
    /// chunk's position was `p` is spoken of by none that begins at `p` or later.
    pub(super) fn range(&self) -> Range<u64> {
        let start = self
            .filled()
            .map(|chunk| chunk.range_start)
            .min()
            .unwrap_or(self.range_end);
        start..self.range_end
    }

    /// How many bytes there are.
    pub(super) fn held_bytes(&self) -> u64 {
        self.filled().map(|chunk| chunk.committed() as u64).sum()
    }

    /// From when on nothing is missing, if something is.
    pub(super) fn complete_since(&self) -> Option<TimeStamp> {
        self.manager.discarded().complete_since
    }

    pub(super) fn statistics(&self) -> BufferStatistics {
        let discarded = self.manager.discarded();
        let (mut entries, mut bytes) = (discarded.entries, discarded.bytes);
        for chunk in self.filled() {
            entries += chunk.entries();
            bytes += chunk.committed() as u64;
        }
        BufferStatistics {
            capacity_bytes: self.manager.max_total_bytes() as u64,
            put_entries: entries,
            put_bytes: bytes,
            recycled_chunks: discarded.chunks,
            recycled_bytes: discarded.bytes,
            ..BufferStatistics::default()
        }
    }
}

impl<M: ControlledChunkManager> ChunkBook<M> {
    /// What the manager told of its chunks since the session began.
    pub(super) fn follow_manager(&mut self) -> &Update {
        self.update.fold(self.manager.take_update());
        &self.update
    }
}
