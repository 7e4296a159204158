//! The end of stop 9: entries land in chunks.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::base::{Generation, Guard, LockRank, NamedMutex, TimeStamp};
use crate::buffer::buffer_snapshot::BufferSnapshot;
use crate::buffer::chunk::{Chunk, WriteRight, block_bytes};
use crate::buffer::chunk_book::{
    BufferStatistics, ChunkBook, Dropped, DroppedEntries, LARGEST, REASONS,
};
use crate::buffer::chunk_manager::{ChunkManager, ControlledChunkManager, Update};
use crate::buffer::entry::Entry;
use crate::buffer::index::ChunkNumber;
use crate::buffer::lane::{ChunkSource, Lane, NewEntry};
use crate::buffer::lanes::Lanes;
use crate::buffer::local_limit::ChunkManagerWithLocalLimit;
use crate::buffer::writing_cell::HeavyBarrier;

/// The entries of a session: blocks, each an ULEB128 length and so many bytes, in chunks. Out of session it takes nothing and
/// holds nothing.
///
/// Each writer has a lane, and no two write to the same chunk. The lock is for whoever gives chunks out, takes them back or
/// lists them; a writer takes it where its lane has no next chunk, because it was filled sooner than the sampler came by.
#[doc(alias = "ProfileChunkedBuffer")]
#[doc(alias = "ProfileBuffer")]
#[derive(Debug)]
pub(crate) struct ChunkedBuffer<M = ChunkManagerWithLocalLimit> {
    state: NamedMutex<State<M>>,
    lanes: Lanes,
    /// A chunk is done, or a lane lacks its next one.
    needs_care: AtomicBool,
    /// By [`Dropped`].
    dropped: [AtomicU64; REASONS],
    /// The number of the session that runs, or of none, and the size of its largest chunk: a hint, for whoever asks without the
    /// lock.
    session: AtomicU64,
    largest_block_bytes: AtomicUsize,
    heavy_barrier: HeavyBarrier,
}

#[derive(Debug)]
struct State<M> {
    /// Which of the lanes have a writer, of those that ever had one.
    taken: Vec<bool>,
    book: Option<ChunkBook<M>>,
}

/// A writer's lane. When it is dropped the next writer goes on there, in the same chunk.
#[derive(Debug)]
pub(crate) struct LaneHandle<'a, M: ChunkManager = ChunkManagerWithLocalLimit> {
    buffer: &'a ChunkedBuffer<M>,
    lane: &'a Lane,
    one_writer: PhantomData<Cell<()>>,
}

/// A lane as its writer may keep it beside the handle, on the same thread; of no use once that is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneRef<'a>(&'a Lane, PhantomData<*const ()>);

impl<M: ChunkManager> Drop for LaneHandle<'_, M> {
    fn drop(&mut self) {
        self.buffer.give_lane_back(self.lane);
    }
}

impl<'a, M: ChunkManager> LaneHandle<'a, M> {
    /// Which lane of its buffer.
    pub(crate) fn index(&self) -> usize {
        self.lane.index
    }

    pub(crate) fn as_lane_ref(&self) -> LaneRef<'a> {
        LaneRef(self.lane, PhantomData)
    }

    /// Puts an entry of this session, and gives the chunk that it came to lie in. `None` when that session runs no more, and
    /// when the entry is larger than a chunk, which is counted as dropped.
    #[doc(alias = "ReserveAndPut")]
    #[inline]
    pub(crate) fn put(
        &self,
        session: Generation,
        now: TimeStamp,
        entry: &impl Entry,
    ) -> Option<ChunkNumber> {
        self.lane.put(
            NewEntry {
                session,
                now,
                entry,
            },
            self.buffer,
        )
    }

    /// Puts the entry if it comes to lie in this chunk; `None`, uncounted, when it would not.
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

    /// Whether a chunk has room for an entry of so many bytes.
    pub(crate) fn may_put(&self, entry_bytes: usize) -> bool {
        block_bytes(entry_bytes) <= self.buffer.largest_block_bytes()
    }

    /// What is put from now on lies in another chunk than what was put before.
    pub(crate) fn leave_chunk(&self, now: TimeStamp) {
        self.lane.leave_chunk(now);
        self.buffer.ask_for_care();
    }
}

impl<M: ChunkManager> ChunkSource for ChunkedBuffer<M> {
    /// Under the lock, so that an allocator of the host's, called from here, adds no marker, for which there would be no chunk
    /// either.
    fn make_chunk(
        &self,
        lane: &Lane,
        session: Generation,
        block_bytes: usize,
    ) -> Option<WriteRight> {
        let mut state = self.state.lock();
        let State { taken, book } = &mut *state;
        let book = book.as_mut().filter(|book| book.session == session)?;
        let made = book.make_chunk(lane, taken.len(), block_bytes);
        if made.is_none() {
            self.count_dropped(Dropped::TooLarge);
        }
        made
    }

    fn has_room_for(&self, session: Generation, block_bytes: usize) -> bool {
        let is_of_session = self.session.load(Ordering::Relaxed) == session.to_number();
        let has_room = block_bytes <= self.largest_block_bytes();
        if is_of_session && !has_room {
            self.count_dropped(Dropped::TooLarge);
        }
        is_of_session && has_room
    }

    fn ask_for_care(&self) {
        self.needs_care.store(true, Ordering::Release);
    }

    fn count_overrun(&self) {
        self.count_dropped(Dropped::Overrun);
    }
}

impl<M: ChunkManager> ChunkedBuffer<M> {
    pub(crate) const fn out_of_session(heavy_barrier: HeavyBarrier) -> Self {
        let state = State {
            taken: Vec::new(),
            book: None,
        };
        Self {
            state: NamedMutex::new("chunk manager", LockRank::ChunkManager, state),
            lanes: Lanes::new(),
            needs_care: AtomicBool::new(false),
            dropped: [const { AtomicU64::new(0) }; REASONS],
            session: AtomicU64::new(0),
            largest_block_bytes: AtomicUsize::new(0),
            heavy_barrier,
        }
    }

    /// The session that runs, for whoever asks without the lock: a hint.
    pub(crate) fn session(&self) -> Option<Generation> {
        let number = self.session.load(Ordering::Relaxed);
        (number != 0).then(|| Generation::from_number(number))
    }

    /// So long is the longest entry that can be put, with its length.
    fn largest_block_bytes(&self) -> usize {
        self.largest_block_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn begin_with(&self, session: Generation, manager: M) {
        self.dropped
            .iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
        self.largest_block_bytes
            .store(manager.largest_chunk_bytes(), Ordering::Relaxed);
        self.replace_book(Some(ChunkBook::new(session, manager)));
        self.session.store(session.to_number(), Ordering::Relaxed);
        self.ask_for_care();
    }

    /// Forgets everything, and takes nothing any more. A writer that is putting an entry at this very moment keeps its chunk
    /// until its lane is written to again, or the next session begins or ends; so do all where the system has no barrier.
    pub(crate) fn end_session(&self) {
        self.session.store(0, Ordering::Relaxed);
        self.replace_book(None);
    }

    pub(crate) fn count_dropped(&self, why: Dropped) {
        self.dropped[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn dropped(&self) -> DroppedEntries {
        let count = |why: Dropped| self.dropped[why as usize].load(Ordering::Relaxed);
        DroppedEntries {
            too_large: count(Dropped::TooLarge),
            in_own_work: count(Dropped::InOwnWork),
            overrun: count(Dropped::Overrun),
        }
    }

    fn replace_book(&self, book: Option<ChunkBook<M>>) {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.book, book);
        let rights: Vec<_> = (0..state.taken.len())
            .flat_map(|index| {
                let lane = self.lanes.get(index);
                lane.start_anew();
                [lane.take_current(self.heavy_barrier), lane.take_next()]
            })
            .collect();
        // It is much memory, and nobody else need wait for its end.
        drop(state);
        drop((before, rights));
    }

    /// A lane for one writer, for a thread's markers for example.
    pub(crate) fn take_lane(&self) -> LaneHandle<'_, M> {
        self.take_lane_that_wants(0)
    }

    /// A lane for a writer whose entries refer to those before them, and take less in large chunks.
    pub(crate) fn take_lane_for_samples(&self) -> LaneHandle<'_, M> {
        self.take_lane_that_wants(LARGEST)
    }

    fn take_lane_that_wants(&self, wanted_bytes: usize) -> LaneHandle<'_, M> {
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
        self.ask_for_care();
        LaneHandle {
            buffer: self,
            lane,
            one_writer: PhantomData,
        }
    }

    fn give_lane_back(&self, lane: &Lane) {
        let mut state = self.state.lock();
        let State { taken, book } = &mut *state;
        taken[lane.index] = false;
        // The chunk that it has begun is filled by the next writer; that after it may be large.
        if let Some(next) = lane.take_next()
            && let Some(book) = book
                .as_mut()
                .filter(|book| book.session == next.chunk().session)
        {
            book.take_back(next);
        }
    }

    /// Puts complete chunks on the manager's list, and makes every lane's next chunk ready, so that no writer has to. Called by
    /// the sampler, once a tick.
    #[doc(alias = "FulfillChunkRequests")]
    pub(crate) fn take_care(&self) {
        if !self.needs_care.load(Ordering::Relaxed)
            || !self.needs_care.swap(false, Ordering::Acquire)
        {
            return;
        }
        let mut to_make = Vec::new();
        let session = {
            let mut state = self.state.lock();
            let State { taken, book } = &mut *state;
            let Some(book) = book else { return };
            book.settle();
            for (index, _) in taken.iter().enumerate().filter(|(_, is_taken)| **is_taken) {
                let lane = self.lanes.get(index);
                to_make.extend(book.set_next(lane, taken.len()).map(|bytes| (lane, bytes)));
            }
            book.session
        };
        for (lane, bytes) in to_make {
            let mut chunk = Chunk::new(bytes);
            chunk.touch();
            let mut state = self.state.lock();
            let State { taken, book } = &mut *state;
            let Some(book) = book.as_mut().filter(|book| book.session == session) else {
                return;
            };
            if taken[lane.index] {
                lane.set_next(book.begin(chunk, lane.index));
            } else {
                // Its writer has ended meanwhile.
                book.manager.forget_unreleased(bytes);
            }
        }
    }

    /// Where the oldest chunk begins and where the next one will: see `WhileBuffered`.
    pub(crate) fn range(&self) -> Range<u64> {
        self.state
            .lock()
            .book
            .as_ref()
            .map_or(1..1, ChunkBook::range)
    }

    /// How many bytes there are, and what the buffer did so far; `None` out of session.
    pub(crate) fn fill_level(&self) -> Option<(u64, BufferStatistics)> {
        let state = self.state.lock();
        Some((state.book.as_ref()?.held_bytes(), self.statistics(&state)))
    }

    fn statistics(&self, state: &State<M>) -> BufferStatistics {
        BufferStatistics {
            dropped: self.dropped(),
            lanes: state.taken.iter().filter(|is_taken| **is_taken).count() as u64,
            ..state
                .book
                .as_ref()
                .map(ChunkBook::statistics)
                .unwrap_or_default()
        }
    }

    #[cfg(test)]
    pub(super) fn share(&self) -> BufferSnapshot {
        let state = self.state.lock();
        let Some(book) = &state.book else {
            return BufferSnapshot::default();
        };
        BufferSnapshot::new(
            book.share(),
            book.complete_since(),
            Update::None,
            self.statistics(&state),
        )
    }

    /// Holds the buffer still while the process forks.
    pub(crate) fn hold_for_fork(&self) -> BufferForkGuard<'_, M> {
        BufferForkGuard {
            state: self.state.lock(),
            buffer: self,
        }
    }
}

impl ChunkedBuffer {
    /// What [`LaneHandle::put`] does, with a lane of this buffer's, by its writer. An entry that is made of few words comes in registers.
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
        // Nobody writes while another takes.
        let buffer = Self::out_of_session(|| true);
        buffer.begin_session(Self::TEST_SESSION, capacity_bytes);
        buffer
    }

    /// Takes entries of this session from now on, into nothing that was there before.
    pub(crate) fn begin_session(&self, session: Generation, capacity_bytes: u64) {
        let capacity = usize::try_from(capacity_bytes).unwrap_or(usize::MAX);
        self.begin_with(session, ChunkManagerWithLocalLimit::new(capacity));
    }
}

impl<M: ControlledChunkManager> ChunkedBuffer<M> {
    /// Gives up what is complete and was so at that time or before, and takes back from lanes that have gone quiet what is older
    /// than all else. Called by the sampler, now and then. The clock is read once nobody writes there any more, so that what is
    /// there is no younger.
    #[doc(alias = "DestroyChunksAtOrBefore")]
    pub(crate) fn discard_old(
        &self,
        clock: impl Fn() -> TimeStamp,
        at_or_before: Option<TimeStamp>,
    ) {
        let mut state = self.state.lock();
        let Some(book) = &mut state.book else { return };
        // A lane that has just gone on to its next chunk has not gone quiet.
        book.settle();
        for lane in book.quiet_lanes() {
            let taken = self.lanes.get(lane).take_current(self.heavy_barrier);
            taken.into_iter().for_each(|right| right.finish(clock()));
        }
        book.settle();
        if let Some(time) = at_or_before {
            book.manager.destroy_chunks_at_or_before(time);
        }
        book.follow_manager();
    }

    /// Shares what is there now. Writers go on; a chunk that is recycled meanwhile stays whole for this reader.
    pub(crate) fn snapshot(&self) -> BufferSnapshot {
        let mut state = self.state.lock();
        let Some(book) = &mut state.book else {
            return BufferSnapshot::new(
                Vec::new(),
                None,
                Update::Final,
                BufferStatistics::default(),
            );
        };
        book.settle();
        let update = book.follow_manager().clone();
        let (chunks, complete_since) = (book.share(), book.complete_since());
        let statistics = self.statistics(&state);
        BufferSnapshot::new(chunks, complete_since, update, statistics)
    }
}

/// The buffer's lock, held. In the child of a fork the session can be ended through it.
#[derive(Debug)]
pub(crate) struct BufferForkGuard<'a, M = ChunkManagerWithLocalLimit> {
    state: Guard<'a, State<M>>,
    buffer: &'a ChunkedBuffer<M>,
}

impl<M> BufferForkGuard<'_, M> {
    /// In the child of a fork: a session of the parent's is none of ours, and of its writers there is one, with this lane. Their
    /// memory is left alone, since they may have been in the middle of it; so is what this gives.
    pub(crate) fn abandon_session(mut self, own_lane: Option<usize>) -> AbandonedSession<M> {
        self.buffer.session.store(0, Ordering::Relaxed);
        let abandoned = AbandonedSession {
            _book: self.state.book.take(),
        };
        for (index, is_taken) in self.state.taken.iter_mut().enumerate() {
            let lane = self.buffer.lanes.get(index);
            std::mem::forget((lane.take_current_alone(), lane.take_next()));
            *is_taken = Some(index) == own_lane;
            if !*is_taken {
                lane.lose_writer();
            }
        }
        abandoned
    }
}

/// What a fork's child has of its parent's session.
#[derive(Debug)]
#[must_use = "it is dropped in the middle of its parent's work"]
pub(crate) struct AbandonedSession<M> {
    _book: Option<ChunkBook<M>>,
}
