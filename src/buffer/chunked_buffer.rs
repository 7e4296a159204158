//! The profile buffer (end of step 9 of 12): puts entries into chunks and hands snapshots to
//! readers.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::buffer::buffer_snapshot::BufferSnapshot;
use crate::buffer::chunk_manager::{ChunkManager, Update, UpdateReader};
use crate::buffer::chunks::{ChunkNumber, ChunkWriter, FreshChunk, HeavyBarrier, block_bytes};
use crate::buffer::crash_area::CrashArea;
use crate::buffer::entries::Entry;
use crate::buffer::lane::{ChunkSource, Lane, Lanes, NewEntry, WANTS_LARGEST_CHUNKS};
use crate::buffer::session_chunks::{
    BufferStatistics, DROP_REASONS, Dropped, DroppedEntries, Headroom, MemoryProbe, NoChunk,
    SessionChunks, capacity_within,
};
use crate::types::{Generation, TimeStamp};
use crate::util::{Guard, LockRank, NamedMutex, holds_any_lock, try_vec};

/// The entries of a session, as blocks in chunks. A block is an entry preceded by its length in
/// ULEB128. Without a session the buffer is empty and accepts no entries.
///
/// Each writer has a lane, and no two lanes share a chunk. The lock protects handing out, taking
/// back and listing chunks. A writer takes it only if its lane has no next chunk, because it filled
/// the current one before the sampler's next maintenance.
#[doc(alias = "ProfileChunkedBuffer")]
#[doc(alias = "ProfileBuffer")]
#[derive(Debug)]
pub(crate) struct ChunkedBuffer {
    state: NamedMutex<State>,
    lanes: Lanes,
    /// Whether a chunk is done, or a lane lacks its next chunk.
    needs_maintenance: AtomicBool,
    /// Number of dropped entries for each reason, indexed by [`Dropped`].
    dropped: [AtomicU64; DROP_REASONS],
    /// Number of the active session, or 0 without one. A hint for callers that do not hold the
    /// lock.
    session: AtomicU64,
    /// Maximum length of a block in the active session, in bytes. Also a hint.
    largest_block_bytes: AtomicUsize,
    /// Size of what the active session keeps outside the chunks, in bytes. It counts towards the
    /// capacity.
    kept_bytes: AtomicUsize,
    /// Whether the last request for a chunk found no memory. Further requests then fail at once,
    /// until the sampler allows the next attempt.
    lacks_memory: AtomicBool,
    /// Number of chunks that the system had no memory for in the active session. A hint.
    refused_chunks: AtomicU64,
    /// Number of calls of [`Self::maintain`] since `lacks_memory` was set.
    calls_without_memory: AtomicUsize,
    heavy_barrier: HeavyBarrier,
    memory_probe: MemoryProbe,
}

/// Number of calls of [`ChunkedBuffer::maintain`] between two attempts to find memory for a chunk.
const CALLS_BETWEEN_ATTEMPTS: usize = 16;

#[derive(Debug)]
struct State {
    /// For each lane that was ever used, whether it has a writer.
    taken: Vec<bool>,
    chunks: Option<SessionChunks>,
}

/// A writer's handle to its lane. After it is dropped, the next writer continues in the same lane
/// and chunk.
#[derive(Debug)]
pub(crate) struct LaneHandle<'a> {
    buffer: &'a ChunkedBuffer,
    lane: &'a Lane,
    one_writer: PhantomData<Cell<()>>,
}

/// A copyable reference to a lane, for the thread that owns the [`LaneHandle`]. Must not be used
/// after the handle is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneRef<'a>(&'a Lane, PhantomData<*const ()>);

impl Drop for LaneHandle<'_> {
    fn drop(&mut self) {
        // If a signal handler that interrupted the profiler has called `exit`, the lane stays
        // taken.
        if !holds_any_lock() {
            self.buffer.give_lane_back(self.lane);
        }
    }
}

impl<'a> LaneHandle<'a> {
    /// Returns the index of the lane in its buffer.
    pub(crate) fn index(&self) -> usize {
        self.lane.index
    }

    pub(crate) fn as_lane_ref(&self) -> LaneRef<'a> {
        LaneRef(self.lane, PhantomData)
    }

    /// Puts an entry of `session` and returns the number of the chunk that holds it. Returns `None`
    /// if that session has ended. Also returns `None`, and counts the entry as dropped, if the
    /// entry is larger than a chunk, or wrote more bytes than it announced.
    #[doc(alias = "ReserveAndPut")]
    #[inline]
    pub(crate) fn put(
        &self,
        session: Generation,
        now: TimeStamp,
        entry: &impl Entry,
    ) -> Option<ChunkNumber> {
        self.buffer
            .put_in_lane(self.as_lane_ref(), session, now, entry)
    }

    /// Puts the entry only if `chunk` is the lane's current chunk and the entry fits. Otherwise
    /// returns `None` and counts nothing.
    pub(crate) fn put_in_chunk(
        &self,
        chunk: ChunkNumber,
        session: Generation,
        now: TimeStamp,
        entry: &impl Entry,
    ) -> Option<ChunkNumber> {
        self.lane.put_in_chunk(
            chunk,
            NewEntry {
                session,
                now,
                entry,
            },
        )
    }

    /// Returns whether entries are dropped for lack of memory: see [`ChunkedBuffer::lacks_memory`].
    pub(crate) fn lacks_memory(&self) -> bool {
        self.buffer.lacks_memory()
    }

    /// Returns whether an entry of `entry_bytes` fits into a chunk.
    pub(crate) fn fits_in_chunk(&self, entry_bytes: usize) -> bool {
        block_bytes(entry_bytes) <= self.buffer.largest_block_bytes()
    }

    /// Finishes the current chunk, so that later entries go into another one.
    pub(crate) fn leave_chunk(&self, now: TimeStamp) {
        self.lane.leave_chunk(now);
        self.buffer.request_maintenance();
    }
}

impl ChunkSource for ChunkedBuffer {
    /// Allocates while holding the lock, so that the application's allocator adds no marker when it
    /// is called from here. That marker would need a chunk, too.
    fn make_chunk(
        &self,
        lane: &Lane,
        session: Generation,
        block_bytes: usize,
    ) -> Option<ChunkWriter> {
        self.make_chunk_with(session, |chunks, lanes| {
            chunks.make_chunk(lane, lanes, block_bytes)
        })
    }

    /// Allocates while holding the lock, like [`Self::make_chunk`].
    fn make_chunk_for_one_entry(
        &self,
        lane: &Lane,
        session: Generation,
        block_bytes: usize,
    ) -> Option<ChunkWriter> {
        self.make_chunk_with(session, |chunks, lanes| {
            chunks.make_chunk_for_one_entry(lane, lanes, block_bytes)
        })
    }

    fn can_hold(&self, session: Generation, block_bytes: usize) -> bool {
        let is_of_session = self.session.load(Ordering::Relaxed) == session.to_number();
        let fits = block_bytes <= self.largest_block_bytes();
        if is_of_session && !fits {
            self.count_dropped(Dropped::TooLarge);
        }
        is_of_session && fits
    }

    fn request_maintenance(&self) {
        self.needs_maintenance.store(true, Ordering::Release);
    }

    fn count_overrun(&self) {
        self.count_dropped(Dropped::Overrun);
    }
}

impl ChunkedBuffer {
    /// Calls `make` with the chunks of `session` and the number of lanes. Counts an entry as
    /// dropped if `make` fails.
    fn make_chunk_with(
        &self,
        session: Generation,
        make: impl FnOnce(&mut SessionChunks, usize) -> Result<ChunkWriter, NoChunk>,
    ) -> Option<ChunkWriter> {
        if self.lacks_memory() {
            self.count_dropped(Dropped::OutOfMemory);
            return None;
        }
        let mut state = self.state.lock();
        let State { taken, chunks } = &mut *state;
        let chunks = chunks.as_mut().filter(|chunks| chunks.session == session)?;
        self.count_kept_bytes(chunks);
        let made = make(chunks, taken.len());
        self.refused_chunks.store(chunks.refused, Ordering::Relaxed);
        match made {
            Ok(_) => {}
            Err(NoChunk::TooLarge) => self.count_dropped(Dropped::TooLarge),
            Err(NoChunk::OutOfMemory) => {
                self.count_dropped(Dropped::OutOfMemory);
                self.calls_without_memory.store(0, Ordering::Relaxed);
                self.lacks_memory.store(true, Ordering::Relaxed);
            }
        }
        made.ok()
    }

    /// Returns whether entries are dropped, because the system has no memory for chunks and no
    /// chunk of the session can be recycled.
    pub(crate) fn lacks_memory(&self) -> bool {
        self.lacks_memory.load(Ordering::Relaxed)
    }

    /// Returns the number of chunks that the system had no memory for in the active session.
    pub(crate) fn refused_chunks(&self) -> u64 {
        self.refused_chunks.load(Ordering::Relaxed)
    }

    /// Allows another attempt to find memory for a chunk, after every [`CALLS_BETWEEN_ATTEMPTS`]
    /// calls.
    fn end_lack_of_memory(&self) {
        let calls = self.calls_without_memory.fetch_add(1, Ordering::Relaxed) + 1;
        if calls.is_multiple_of(CALLS_BETWEEN_ATTEMPTS) {
            if let Some(chunks) = &mut self.state.lock().chunks {
                chunks.headroom.end_refusal();
            }
            self.lacks_memory.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) const fn out_of_session(
        heavy_barrier: HeavyBarrier,
        memory_probe: MemoryProbe,
    ) -> Self {
        let state = State {
            taken: Vec::new(),
            chunks: None,
        };
        Self {
            state: NamedMutex::new("chunk manager", LockRank::ChunkManager, state),
            lanes: Lanes::new(),
            needs_maintenance: AtomicBool::new(false),
            dropped: [const { AtomicU64::new(0) }; DROP_REASONS],
            session: AtomicU64::new(0),
            largest_block_bytes: AtomicUsize::new(0),
            kept_bytes: AtomicUsize::new(0),
            lacks_memory: AtomicBool::new(false),
            refused_chunks: AtomicU64::new(0),
            calls_without_memory: AtomicUsize::new(0),
            heavy_barrier,
            memory_probe,
        }
    }

    /// Returns the active session. A hint, because the lock is not held.
    pub(crate) fn session(&self) -> Option<Generation> {
        let number = self.session.load(Ordering::Relaxed);
        (number != 0).then(|| Generation::from_number(number))
    }

    /// Returns the maximum length of a block, in bytes.
    fn largest_block_bytes(&self) -> usize {
        self.largest_block_bytes.load(Ordering::Relaxed)
    }

    /// Drops all entries and accepts entries of `session` from now on. With an `area`,
    /// the chunks' memory comes from it.
    pub(crate) fn begin_session(
        &self,
        session: Generation,
        capacity_bytes: u64,
        area: Option<Arc<CrashArea>>,
    ) {
        self.begin_session_with(session, capacity_bytes, usize::MAX, area);
    }

    /// Works like [`Self::begin_session`], for chunks of at most this size.
    pub(crate) fn begin_session_with(
        &self,
        session: Generation,
        capacity_bytes: u64,
        max_chunk_bytes: usize,
        area: Option<Arc<CrashArea>>,
    ) {
        let capacity_bytes = usize::try_from(capacity_bytes).unwrap_or(usize::MAX);
        let manager = ChunkManager::new(capacity_bytes).with_chunks_up_to(max_chunk_bytes);
        self.dropped
            .iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
        self.largest_block_bytes
            .store(manager.largest_chunk_bytes(), Ordering::Relaxed);
        self.set_kept_bytes(0);
        self.lacks_memory.store(false, Ordering::Relaxed);
        self.refused_chunks.store(0, Ordering::Relaxed);
        let headroom = Headroom::new(self.memory_probe);
        let chunks = SessionChunks::new(session, manager, headroom, area);
        self.replace_chunks(Some(chunks));
        self.session.store(session.to_number(), Ordering::Relaxed);
        self.request_maintenance();
    }

    /// Drops all entries and accepts no more. A lane with a write in progress keeps its chunk until
    /// its next write, or until the next session begins or ends. On systems without the heavy
    /// barrier, this applies to all lanes.
    pub(crate) fn end_session(&self) {
        self.session.store(0, Ordering::Relaxed);
        self.replace_chunks(None);
    }

    /// Sets the size of what the active session keeps outside the chunks, in bytes. The buffer
    /// discards chunks accordingly when it next needs one, or is maintained.
    pub(crate) fn set_kept_bytes(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.kept_bytes.store(bytes, Ordering::Relaxed);
    }

    fn count_kept_bytes(&self, chunks: &mut SessionChunks) {
        chunks.manager.kept_bytes = self.kept_bytes.load(Ordering::Relaxed);
    }

    pub(crate) fn count_dropped(&self, why: Dropped) {
        self.dropped[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn replace_chunks(&self, chunks: Option<SessionChunks>) {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.chunks, chunks);
        // Without memory for the list, each chunk is freed at once.
        let mut writers = try_vec(2 * state.taken.len()).unwrap_or_default();
        for index in 0..state.taken.len() {
            let lane = self.lanes.get(index);
            lane.reset_wanted_bytes();
            for writer in [lane.take_current(self.heavy_barrier), lane.take_next()] {
                if writers.len() < writers.capacity() {
                    writers.push(writer);
                }
            }
        }
        // Freeing this much memory takes a while, so it is freed after the lock is released.
        drop(state);
        drop((before, writers));
    }

    /// Returns a lane for one writer, for example for a thread's markers.
    pub(crate) fn take_lane(&self) -> LaneHandle<'_> {
        self.take_lane_that_wants(0)
    }

    /// Returns a lane with the largest chunks. It is for a writer whose entries refer to earlier
    /// entries of the same chunk, which saves more bytes in large chunks.
    pub(crate) fn take_lane_for_samples(&self) -> LaneHandle<'_> {
        self.take_lane_that_wants(WANTS_LARGEST_CHUNKS)
    }

    fn take_lane_that_wants(&self, wanted_bytes: usize) -> LaneHandle<'_> {
        let lane = {
            let mut state = self.state.lock();
            let taken = &mut state.taken;
            let index = taken
                .iter()
                .position(|is_taken| !is_taken)
                .unwrap_or_else(|| {
                    taken.push(false);
                    taken.len() - 1
                });
            taken[index] = true;
            self.lanes.get(index)
        };
        lane.set_wanted_bytes(wanted_bytes);
        self.request_maintenance();
        LaneHandle {
            buffer: self,
            lane,
            one_writer: PhantomData,
        }
    }

    fn give_lane_back(&self, lane: &Lane) {
        let mut state = self.state.lock();
        let State { taken, chunks } = &mut *state;
        taken[lane.index] = false;
        // The next writer continues in the current chunk. The chunk after it may be large, so it
        // is returned.
        if let Some(next) = lane.take_next()
            && let Some(chunks) = chunks
                .as_mut()
                .filter(|chunks| chunks.session == next.chunk().session)
        {
            chunks.return_unused(next);
        }
    }

    /// Releases complete chunks to the manager and supplies each lane's next chunk, so that writers
    /// do not have to. Called by the sampler once per tick.
    #[doc(alias = "FulfillChunkRequests")]
    pub(crate) fn maintain(&self) {
        if self.lacks_memory() {
            self.end_lack_of_memory();
        }
        if !self.needs_maintenance.load(Ordering::Relaxed)
            || !self.needs_maintenance.swap(false, Ordering::Acquire)
        {
            return;
        }
        let mut to_allocate = Vec::new();
        let (session, area) = {
            let mut state = self.state.lock();
            let State { taken, chunks } = &mut *state;
            let Some(chunks) = chunks else { return };
            self.count_kept_bytes(chunks);
            chunks.release_done();
            for (index, _) in taken.iter().enumerate().filter(|(_, is_taken)| **is_taken) {
                let lane = self.lanes.get(index);
                if let Some(bytes) = chunks.set_next(lane, taken.len()) {
                    match to_allocate.try_reserve(1) {
                        Ok(()) => to_allocate.push((lane, bytes)),
                        Err(_) => chunks.forget_allocation(bytes),
                    }
                }
            }
            (chunks.session, chunks.area.clone())
        };
        for (lane, bytes) in to_allocate {
            let chunk = FreshChunk::try_new(bytes, area.as_ref()).map(|mut chunk| {
                chunk.touch();
                chunk
            });
            let mut state = self.state.lock();
            let State { taken, chunks } = &mut *state;
            let Some(chunks) = chunks.as_mut().filter(|chunks| chunks.session == session) else {
                return;
            };
            match chunk {
                Some(chunk) if taken[lane.index] && chunks.has_space_for_one() => {
                    lane.set_next(chunks.begin(chunk, lane.index));
                }
                // The lane's writer ended while the chunk was allocated without the lock, or there
                // is not enough memory for a longer list.
                Some(_) => chunks.manager.forget_unreleased(bytes),
                None => chunks.forget_allocation(bytes),
            }
        }
    }

    /// Returns the range from the start of the oldest chunk to the start of the next one. See
    /// `ExpiringList` for its use.
    pub(crate) fn range(&self) -> Range<u64> {
        self.state
            .lock()
            .chunks
            .as_ref()
            .map_or(1..1, SessionChunks::range)
    }

    /// Returns the number of held bytes and the statistics, or `None` without a session.
    pub(crate) fn fill_level(&self) -> Option<(u64, BufferStatistics)> {
        let state = self.state.lock();
        Some((state.chunks.as_ref()?.held_bytes(), self.statistics(&state)))
    }

    fn statistics(&self, state: &State) -> BufferStatistics {
        let dropped = self.dropped.each_ref();
        let dropped = dropped.map(|count| count.load(Ordering::Relaxed));
        BufferStatistics {
            dropped: DroppedEntries(dropped),
            lanes: state.taken.iter().filter(|is_taken| **is_taken).count() as u64,
            kept_bytes: self.kept_bytes.load(Ordering::Relaxed) as u64,
            ..state
                .chunks
                .as_ref()
                .map(SessionChunks::statistics)
                .unwrap_or_default()
        }
    }

    /// Locks the buffer while the process forks.
    pub(crate) fn hold_for_fork(&self) -> BufferForkGuard<'_> {
        BufferForkGuard {
            state: self.state.lock(),
            buffer: self,
        }
    }

    /// Puts an entry into `lane`, a lane of this buffer, like [`LaneHandle::put`]. Called by the
    /// lane's writer. The entry is passed by value, so that a small one stays in registers.
    #[inline(always)]
    pub(crate) fn put_in_lane(
        &self,
        lane: LaneRef<'_>,
        session: Generation,
        now: TimeStamp,
        entry: impl Entry + Copy,
    ) -> Option<ChunkNumber> {
        lane.0.put(
            NewEntry {
                session,
                now,
                entry,
            },
            self,
        )
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) const TEST_SESSION: Generation = Generation::from_number(1);

    #[cfg(any(test, fuzzing))]
    pub(crate) fn for_test(capacity_bytes: u64) -> Self {
        Self::for_test_with_memory(capacity_bytes, |_| true)
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn for_test_with_memory(capacity_bytes: u64, memory_probe: MemoryProbe) -> Self {
        // These tests do not take a chunk out while another thread writes, so they need no barrier.
        let buffer = Self::out_of_session(|| true, memory_probe);
        buffer.begin_session(Self::TEST_SESSION, capacity_bytes, None);
        buffer
    }

    /// Discards chunks that were done at `at_or_before` or earlier, and finishes the current chunks
    /// of idle lanes ([`SessionChunks::idle_lanes`]). Called by the sampler from time to time. The
    /// clock is read after a chunk is taken from its lane, so a chunk is never done before its last
    /// entry.
    #[doc(alias = "DestroyChunksAtOrBefore")]
    pub(crate) fn discard_old(
        &self,
        clock: impl Fn() -> TimeStamp,
        at_or_before: Option<TimeStamp>,
    ) {
        let mut state = self.state.lock();
        let Some(chunks) = &mut state.chunks else {
            return;
        };
        self.count_kept_bytes(chunks);
        // Release full chunks first: a lane that has just moved to its next chunk is not idle.
        chunks.release_done();
        for lane in chunks.idle_lanes() {
            let taken = self.lanes.get(lane).take_current(self.heavy_barrier);
            taken.into_iter().for_each(|writer| writer.finish(clock()));
        }
        chunks.release_done();
        if let Some(time) = at_or_before {
            chunks.manager.destroy_chunks_at_or_before(time);
        }
        chunks.manager.discard_excess();
        chunks.follow_manager();
    }

    /// Limits the chunks to what a system with this much memory left has enough for, and discards the
    /// oldest ones beyond that. Returns the limit, in bytes.
    pub(crate) fn follow_memory(&self, left_bytes: u64) -> u64 {
        let mut state = self.state.lock();
        let Some(chunks) = &mut state.chunks else {
            return u64::MAX;
        };
        let manager = &mut chunks.manager;
        let held_bytes = manager.chunk_bytes() as u64;
        let allowed_bytes = capacity_within(left_bytes.saturating_add(held_bytes));
        manager.allow(usize::try_from(allowed_bytes).unwrap_or(usize::MAX));
        manager.discard_excess();
        allowed_bytes.min(manager.max_bytes as u64)
    }

    /// Returns the changes of the chunks since this reader last asked, folded into one, and the
    /// size of what the session keeps outside the chunks, in bytes. Without a session, returns
    /// [`Update::Final`].
    pub(crate) fn read_update(&self, reader: UpdateReader) -> (Update, u64) {
        let mut state = self.state.lock();
        let Some(chunks) = &mut state.chunks else {
            return (Update::Final, 0);
        };
        chunks.release_done();
        let kept_bytes = self.kept_bytes.load(Ordering::Relaxed);
        (chunks.read_update(reader), kept_bytes as u64)
    }

    /// Discards the chunks that were done at this time or earlier: the memory is for another process
    /// of the family.
    #[doc(alias = "DestroyChunksAtOrBefore")]
    pub(crate) fn destroy_chunks_at_or_before(&self, time: TimeStamp) {
        let mut state = self.state.lock();
        if let Some(chunks) = &mut state.chunks {
            chunks.manager.destroy_chunks_at_or_before(time);
        }
    }

    /// Returns a snapshot of all entries without blocking the writers. A chunk that is discarded
    /// later stays intact in the snapshot.
    pub(crate) fn snapshot(&self) -> BufferSnapshot {
        let mut state = self.state.lock();
        let Some(chunks) = &mut state.chunks else {
            return BufferSnapshot::new(
                Vec::new(),
                None,
                Update::Final,
                BufferStatistics::default(),
            );
        };
        chunks.release_done();
        let update = chunks.follow_manager().clone();
        let (chunks, complete_since) = (chunks.share(), chunks.manager.discarded.complete_since);
        let statistics = self.statistics(&state);
        BufferSnapshot::new(chunks, complete_since, update, statistics)
    }
}

/// Guard that holds the buffer's lock during a fork. The child can end the session through it.
#[derive(Debug)]
pub(crate) struct BufferForkGuard<'a> {
    state: Guard<'a, State>,
    buffer: &'a ChunkedBuffer,
}

impl BufferForkGuard<'_> {
    /// Ends the parent's session in the child of a fork, where only the calling thread exists.
    /// `own_lane` is its lane; all other lanes lose their writers. The lanes' chunks are leaked,
    /// because a thread of the parent may have been changing them during the fork. The caller must
    /// leak the result for the same reason.
    pub(crate) fn abandon_session(mut self, own_lane: Option<usize>) -> AbandonedSession {
        self.buffer.session.store(0, Ordering::Relaxed);
        let abandoned = AbandonedSession {
            _chunks: self.state.chunks.take(),
        };
        // The parent still uses its crash file, whose pages the child shares.
        if let Some(area) = abandoned
            ._chunks
            .as_ref()
            .and_then(|chunks| chunks.area.as_ref())
        {
            area.disown();
        }
        for (index, is_taken) in self.state.taken.iter_mut().enumerate() {
            let lane = self.buffer.lanes.get(index);
            std::mem::forget((lane.take_current_single_threaded(), lane.take_next()));
            *is_taken = Some(index) == own_lane;
            if !*is_taken {
                lane.reset_writer();
            }
        }
        abandoned
    }
}

/// The chunks of a parent's session in the child of a fork.
#[derive(Debug)]
#[must_use = "dropping it frees memory that the parent's threads may have been changing"]
pub(crate) struct AbandonedSession {
    _chunks: Option<SessionChunks>,
}
