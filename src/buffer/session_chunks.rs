//! The chunks of a session, protected by the buffer's lock: lists them by lane, chooses the size of new
//! ones, and asks whether the system has the memory for another one.
//!
//! A session that used up the last memory of its process would end the process, because most code
//! of the application aborts if an allocation fails. And the recorded data could not be saved,
//! because saving needs memory, too. So a chunk is allocated only if enough memory remains for
//! both.

use std::ops::Range;
use std::sync::Arc;

use crate::buffer::chunk_manager::{ChunkManager, Reservation, Update, UpdateReader};
use crate::buffer::chunks::{Chunk, ChunkNumber, ChunkState, ChunkWriter, FreshChunk};
use crate::buffer::crash_area::CrashArea;
use crate::buffer::lane::{Lane, WANTS_LARGEST_CHUNKS};
use crate::types::{CAPACITY_RANGE_BYTES, Generation, TimeStamp};
use crate::util::try_vec;

/// Number of chunks that are released one by one.
const FEW_CHUNKS: usize = 8;

/// Initial chunk size of a lane, in bytes: small, because a thousand threads with few markers hold
/// two chunks each.
const SMALL_CHUNK_BYTES: usize = 4 << 10;

/// Reason why an entry was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dropped {
    /// The entry exceeds the largest possible chunk.
    TooLarge,
    /// The entry came from inside the profiler, which may hold the buffer's lock: for example from
    /// the application's allocator or from a signal handler.
    Reentrant,
    /// The entry wrote more bytes than it had announced: a marker whose payload serializes
    /// differently each time.
    Overrun,
    /// The system had no memory for a chunk.
    OutOfMemory,
}

/// Number of variants of [`Dropped`].
pub(crate) const DROP_REASONS: usize = 4;

/// Reason why a lane gets no chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoChunk {
    /// No chunk is large enough for the entry.
    TooLarge,
    /// The system has no memory for a chunk, and none of the session's own can be recycled.
    OutOfMemory,
}

/// Numbers of dropped entries, by [`Dropped`] reason.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct DroppedEntries(pub(crate) [u64; DROP_REASONS]);

impl DroppedEntries {
    pub(crate) fn by(self, why: Dropped) -> u64 {
        self.0[why as usize]
    }

    pub(crate) fn all(self) -> u64 {
        self.0.iter().sum()
    }
}

/// Statistics of the buffer, for the profile's metadata.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BufferStatistics {
    pub(crate) capacity_bytes: u64,
    pub(crate) put_entries: u64,
    pub(crate) put_bytes: u64,
    pub(crate) dropped: DroppedEntries,
    /// Number of discarded chunks.
    pub(crate) recycled_chunks: u64,
    /// Bytes that the discarded chunks held.
    pub(crate) recycled_bytes: u64,
    /// Number of chunks that the system had no memory for.
    pub(crate) refused_chunks: u64,
    /// Number of lanes with a writer.
    pub(crate) lanes: u64,
    /// Size of what the session keeps outside the chunks, in bytes.
    pub(crate) kept_bytes: u64,
}

/// An unreleased chunk and the lane that holds it.
#[derive(Debug)]
struct Unreleased {
    chunk: Arc<Chunk>,
    lane: usize,
}

/// The chunks of a session and their manager.
#[derive(Debug)]
pub(crate) struct SessionChunks {
    pub(crate) session: Generation,
    pub(crate) manager: ChunkManager,
    pub(crate) headroom: Headroom,
    /// The crash file that the chunks' memory comes from; `None` without a crash file.
    pub(crate) area: Option<Arc<CrashArea>>,
    /// Number of chunks that the system had no memory for.
    pub(crate) refused: u64,
    unreleased: Vec<Unreleased>,
    next_number: u64,
    range_end: u64,
    update: Update,
    /// The changes since each reader has last asked; `None` before its first question.
    unread: [Option<Update>; UpdateReader::COUNT],
}

impl SessionChunks {
    pub(crate) fn new(
        session: Generation,
        manager: ChunkManager,
        headroom: Headroom,
        area: Option<Arc<CrashArea>>,
    ) -> Self {
        Self {
            session,
            manager,
            headroom,
            area,
            refused: 0,
            unreleased: Vec::new(),
            next_number: 0,
            range_end: 1,
            update: Update::None,
            unread: [const { None }; UpdateReader::COUNT],
        }
    }

    /// Chooses the size of a lane's next chunk, in bytes. The lane wants `wanted` bytes, and needs
    /// space for a block of `needed_bytes`. `lanes` is the number of lanes. Together they get at
    /// most half of the capacity, unless the smallest chunks already exceed that.
    fn chunk_bytes_for(&self, wanted: usize, lanes: usize, needed_bytes: usize) -> usize {
        let (largest, all) = (self.manager.largest_chunk_bytes(), self.manager.max_bytes);
        let smallest = SMALL_CHUNK_BYTES.min(largest);
        let granted = if wanted == WANTS_LARGEST_CHUNKS {
            largest
        } else {
            let share = (all / 4 / lanes.max(1)).max(1);
            let wanted = wanted.min(1 << share.ilog2()).clamp(smallest, largest);
            let is_within_half = self.manager.unreleased_bytes + wanted <= all / 2;
            if is_within_half { wanted } else { smallest }
        };
        // A power of two up to the largest size, so that the chunk can be recycled. For a block
        // larger than that, the manager refuses the size.
        granted.max(
            needed_bytes
                .next_power_of_two()
                .min(largest.max(needed_bytes)),
        )
    }

    /// Numbers a chunk and assigns it to a lane. Returns its writer. The caller has made space in the
    /// list.
    pub(crate) fn begin(&mut self, chunk: FreshChunk, lane: usize) -> ChunkWriter {
        let range_start = self.range_end;
        self.range_end += chunk.capacity() as u64;
        let (chunk, writer) = chunk.begin(ChunkNumber(self.next_number), self.session, range_start);
        self.next_number += 1;
        self.unreleased.push(Unreleased { chunk, lane });
        writer
    }

    /// Returns a chunk that can hold a block of `block_bytes`, for a lane without a current chunk.
    /// `lanes` is the number of lanes.
    pub(crate) fn make_chunk(
        &mut self,
        lane: &Lane,
        lanes: usize,
        block_bytes: usize,
    ) -> Result<ChunkWriter, NoChunk> {
        // The sampler may have supplied the next chunk while this thread waited for the lock. Using
        // it keeps the chunks of the lane's writer in the order of their numbers.
        if let Some(next) = lane.take_next() {
            if next.chunk().session == self.session && next.chunk().capacity() >= block_bytes {
                return Ok(next);
            }
            next.finish(TimeStamp::default());
        }
        let bytes = self.chunk_bytes_for(lane.wanted_bytes(), lanes, block_bytes);
        self.make_chunk_of(bytes, block_bytes, lane)
    }

    /// Returns a chunk of the smallest size that holds one block of `block_bytes`, and leaves the
    /// lane's next chunk in place.
    pub(crate) fn make_chunk_for_one_entry(
        &mut self,
        lane: &Lane,
        lanes: usize,
        block_bytes: usize,
    ) -> Result<ChunkWriter, NoChunk> {
        let bytes = self.chunk_bytes_for(0, lanes, block_bytes);
        self.make_chunk_of(bytes, block_bytes, lane)
    }

    /// Returns a chunk of `bytes`. Without enough memory for it, returns a recycled chunk that
    /// holds `needed_bytes`.
    fn make_chunk_of(
        &mut self,
        bytes: usize,
        needed_bytes: usize,
        lane: &Lane,
    ) -> Result<ChunkWriter, NoChunk> {
        self.release_done();
        if !self.has_space_for_one() {
            self.refused += 1;
            return Err(NoChunk::OutOfMemory);
        }
        let chunk = match self.manager.reserve(bytes) {
            Reservation::Recycled(chunk) => chunk,
            Reservation::Allocate => match self.allocate(bytes) {
                Some(chunk) => chunk,
                None => {
                    self.refused += 1;
                    self.manager
                        .recycle_oldest(needed_bytes)
                        .ok_or(NoChunk::OutOfMemory)?
                }
            },
            Reservation::Unavailable => return Err(NoChunk::TooLarge),
        };
        Ok(self.begin(chunk, lane.index))
    }

    /// Makes space in the list for one more chunk. Returns false if the allocation fails.
    pub(crate) fn has_space_for_one(&mut self) -> bool {
        self.unreleased.try_reserve(1).is_ok()
    }

    /// Returns whether the system has memory for a chunk of `bytes` that the manager has granted.
    /// If not, cancels the grant.
    fn has_memory_for(&mut self, bytes: usize) -> bool {
        let held_bytes = self.manager.chunk_bytes() - bytes;
        let has_memory = self.headroom.allows(bytes, held_bytes) && self.has_space_for_one();
        if !has_memory {
            self.manager.forget_unreleased(bytes);
        }
        has_memory
    }

    fn allocate(&mut self, bytes: usize) -> Option<FreshChunk> {
        if !self.has_memory_for(bytes) {
            return None;
        }
        let chunk = FreshChunk::try_new(bytes, self.area.as_ref());
        if chunk.is_none() {
            self.forget_allocation(bytes);
        }
        chunk
    }

    /// Cancels the grant of a chunk that could not be allocated.
    pub(crate) fn forget_allocation(&mut self, bytes: usize) {
        self.headroom.refuse();
        self.manager.forget_unreleased(bytes);
    }

    /// Sets the lane's next chunk if it is missing and a chunk can be recycled. Returns the size if
    /// the caller has to allocate a chunk instead. Without memory the next chunk stays missing, and
    /// the lane's writer asks again when it needs one.
    pub(crate) fn set_next(&mut self, lane: &Lane, lanes: usize) -> Option<usize> {
        if !(lane.lacks_next() && self.has_space_for_one()) {
            return None;
        }
        let bytes = self.chunk_bytes_for(lane.wanted_bytes(), lanes, 0);
        match self.manager.reserve(bytes) {
            Reservation::Recycled(chunk) => {
                lane.set_next(self.begin(chunk, lane.index));
                None
            }
            Reservation::Allocate => self.has_memory_for(bytes).then_some(bytes),
            Reservation::Unavailable => None,
        }
    }

    /// Hands the chunks that are done over to the manager, in the order in which they were done.
    pub(crate) fn release_done(&mut self) {
        let done_at = |unreleased: &Unreleased| {
            let chunk = &unreleased.chunk;
            (chunk.state() == ChunkState::Done).then(|| chunk.done_at())
        };
        let is_done = |unreleased: &Unreleased| done_at(unreleased).is_some();
        let count = self
            .unreleased
            .iter()
            .filter(|chunk| is_done(chunk))
            .count();
        if count > FEW_CHUNKS
            && let Some(mut done) = try_vec(count)
        {
            self.unreleased.retain(|unreleased| {
                let is_taken = is_done(unreleased) && done.len() < count;
                if is_taken {
                    done.push(Arc::clone(&unreleased.chunk));
                }
                !is_taken
            });
            done.sort_unstable_by_key(|chunk| (chunk.done_at(), chunk.number.0));
            done.into_iter()
                .for_each(|chunk| self.manager.release(chunk));
        }
        // Release the rest one by one, because there may be no memory for a list.
        loop {
            let done = self.unreleased.iter().enumerate();
            let done = done.filter_map(|(index, chunk)| Some((done_at(chunk)?, index)));
            let Some((_, oldest)) = done.min() else {
                return;
            };
            self.manager.release(self.unreleased.remove(oldest).chunk);
        }
    }

    /// Takes back a chunk that was never written to.
    pub(crate) fn return_unused(&mut self, writer: ChunkWriter) {
        let number = writer.chunk().number;
        self.manager.forget_unreleased(writer.chunk().capacity());
        self.unreleased
            .retain(|unreleased| unreleased.chunk.number != number);
    }

    /// Returns the idle lanes: those whose chunk is older than the oldest complete chunk, once any
    /// chunk was discarded. They would keep entries from a time that the rest of the buffer no
    /// longer covers.
    pub(crate) fn idle_lanes(&self) -> Vec<usize> {
        if self.manager.discarded.chunks == 0 {
            return Vec::new();
        }
        let oldest = self
            .manager
            .released()
            .front()
            .map(|chunk| chunk.range_start);
        // If unreleased chunks leave no space for complete ones, compare with the newest chunk.
        let Some(since) = oldest.or_else(|| self.filled().map(|chunk| chunk.range_start).max())
        else {
            return Vec::new();
        };
        let is_idle = |unreleased: &&Unreleased| {
            unreleased.chunk.range_start < since && unreleased.chunk.committed() > 0
        };
        self.unreleased
            .iter()
            .filter(is_idle)
            .map(|unreleased| unreleased.lane)
            .collect()
    }

    /// Returns all chunks that hold an entry.
    fn all(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        let unreleased = self.unreleased.iter().map(|unreleased| &unreleased.chunk);
        self.manager.released().iter().chain(unreleased)
    }

    fn filled(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.all().filter(|chunk| chunk.committed() > 0)
    }

    /// Returns all chunks that hold an entry, in the order in which they were begun, each with its
    /// committed length.
    ///
    /// For each lane the result is a prefix of the entries that its writer put: newer chunks are
    /// checked first, and if one of them holds an entry, the lane's older chunks are complete. The
    /// exception is an entry of a signal handler that interrupted the writer. It has a chunk of its
    /// own, and may be in the result although an older entry of the writer is missing.
    pub(crate) fn share(&self) -> Vec<(Arc<Chunk>, usize)> {
        let mut chunks: Vec<_> = self.all().cloned().collect();
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

    /// Returns the range from the start of the oldest chunk that holds an entry to the start of the
    /// next new chunk. If the range ended at `p` when an object was removed, no chunk that starts
    /// at `p` or later refers to that object.
    pub(crate) fn range(&self) -> Range<u64> {
        let start = self
            .filled()
            .map(|chunk| chunk.range_start)
            .min()
            .unwrap_or(self.range_end);
        start..self.range_end
    }

    /// Returns the number of committed bytes in all chunks.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.filled().map(|chunk| chunk.committed() as u64).sum()
    }

    pub(crate) fn statistics(&self) -> BufferStatistics {
        let discarded = self.manager.discarded;
        let (mut entries, mut bytes) = (discarded.entries, discarded.bytes);
        for chunk in self.filled() {
            entries += chunk.entries();
            bytes += chunk.committed() as u64;
        }
        BufferStatistics {
            capacity_bytes: self.manager.max_bytes as u64,
            put_entries: entries,
            put_bytes: bytes,
            recycled_chunks: discarded.chunks,
            recycled_bytes: discarded.bytes,
            refused_chunks: self.refused,
            ..BufferStatistics::default()
        }
    }

    /// Returns the manager's updates since the session began, folded into one.
    pub(crate) fn follow_manager(&mut self) -> &Update {
        let newer = self.manager.take_update();
        for unread in self.unread.iter_mut().flatten() {
            unread.fold(newer.clone());
        }
        self.update.fold(newer);
        &self.update
    }

    /// Returns the manager's updates since this reader has last asked, or since the session began,
    /// folded into one.
    pub(crate) fn read_update(&mut self, reader: UpdateReader) -> Update {
        self.follow_manager();
        match &mut self.unread[reader as usize] {
            Some(unread) => std::mem::take(unread),
            first => {
                *first = Some(Update::None);
                self.update.clone()
            }
        }
    }
}

/// Asks the system whether it has this many bytes of memory.
pub(crate) type MemoryProbe = fn(usize) -> bool;

/// Memory to leave to the application and to the small allocations of the profiler, in bytes.
const FOR_OTHERS_BYTES: usize = 8 << 20;
/// Memory that saving a chunk may need, as a multiple of the chunk: its decoded rows, and tables
/// that double when they grow. Many distinct texts need the most. A save asks for as much.
const SAVE_FACTOR: usize = 4;
/// Size of the chunks that are allocated after one probe, in bytes.
const STEP_BYTES: usize = 4 << 20;
/// Size of the chunks that are refused after a failed probe without another one, in bytes.
const REFUSED_BYTES: usize = 256 << 10;

/// Returns the capacity, in bytes, for which a system with this much memory left has enough: for a
/// full buffer, for saving it while a second one fills, and for the application's growth.
pub(crate) fn capacity_within(left_bytes: u64) -> u64 {
    const SHARE: u64 = 8;
    (left_bytes / SHARE).max(*CAPACITY_RANGE_BYTES.start())
}

/// The memory that is left for chunks.
#[derive(Debug)]
pub(crate) struct Headroom {
    probe: MemoryProbe,
    /// Size of the chunks that may be allocated without another probe.
    granted_bytes: usize,
    /// Size of the chunks to refuse without another probe.
    refused_bytes: usize,
}

impl Headroom {
    pub(crate) fn new(probe: MemoryProbe) -> Self {
        Self {
            probe,
            granted_bytes: 0,
            refused_bytes: 0,
        }
    }

    /// Returns whether a chunk of `bytes` may be allocated in addition to `held_bytes` of chunks.
    pub(crate) fn allows(&mut self, bytes: usize, held_bytes: usize) -> bool {
        if self.refused_bytes > 0 {
            self.refused_bytes = self.refused_bytes.saturating_sub(bytes);
            return false;
        }
        if let Some(rest) = self.granted_bytes.checked_sub(bytes) {
            self.granted_bytes = rest;
            return true;
        }
        let has_memory_for = |new_bytes: usize| {
            let to_save = held_bytes
                .saturating_add(new_bytes)
                .saturating_mul(SAVE_FACTOR);
            (self.probe)(
                to_save
                    .saturating_add(new_bytes)
                    .saturating_add(FOR_OTHERS_BYTES),
            )
        };
        let with_more = bytes.saturating_add(STEP_BYTES);
        if has_memory_for(with_more) {
            self.granted_bytes = STEP_BYTES;
            return true;
        }
        let is_allowed = has_memory_for(bytes);
        if !is_allowed {
            self.refuse();
        }
        is_allowed
    }

    /// Refuses the next chunks, after an allocation has failed.
    pub(crate) fn refuse(&mut self) {
        (self.granted_bytes, self.refused_bytes) = (0, REFUSED_BYTES);
    }

    /// Probes for the next chunk again.
    pub(crate) fn end_refusal(&mut self) {
        self.refused_bytes = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn allows_a_chunk_only_if_it_can_be_saved() {
        static AVAILABLE: AtomicUsize = AtomicUsize::new(usize::MAX);
        static PROBES: AtomicUsize = AtomicUsize::new(0);
        let mut headroom = Headroom::new(|bytes| {
            PROBES.fetch_add(1, Ordering::Relaxed);
            bytes <= AVAILABLE.load(Ordering::Relaxed)
        });
        let mut count_of_allowed = |chunk: usize, available: usize, max: usize| {
            AVAILABLE.store(available, Ordering::Relaxed);
            PROBES.store(0, Ordering::Relaxed);
            let allowed = (0..max).take_while(|count| headroom.allows(chunk, count * chunk));
            (allowed.count(), PROBES.load(Ordering::Relaxed))
        };
        assert_eq!(count_of_allowed(1 << 20, usize::MAX, 50), (50, 10));
        // What was granted is used up first. The rest of the memory stays for others and for
        // saving.
        assert_eq!(count_of_allowed(1 << 20, 0, 50), (0, 2));
        assert_eq!(
            count_of_allowed(256 << 10, 0, 1),
            (0, 0),
            "no probe after a refusal"
        );
        let available = FOR_OTHERS_BYTES + (1 << 20) * (SAVE_FACTOR * 6 + 1);
        assert_eq!(count_of_allowed(1 << 20, available, 50).0, 6);
        // A chunk that the allocator refuses anyway.
        assert_eq!(count_of_allowed(256 << 10, usize::MAX, 1), (0, 0));
        assert_eq!(count_of_allowed(256 << 10, usize::MAX, 1), (1, 1));
        headroom.refuse();
        assert!(!headroom.allows(1 << 20, 0));
        assert!(headroom.allows(1 << 20, 0));
    }
}
