//! A lane: the chunk that one thread writes to, and the next one. And the lanes of a buffer.
//!
//! The writer marks the start of a write, appends to its current chunk and marks the end. This
//! takes only loads and stores, and never blocks. A writer that finds no current chunk continues in
//! the next one. So the end of a session, or the clean-up of an idle lane, can take the chunk out;
//! `writing_cell.rs` describes how. An entry that a signal handler puts during a write goes into a
//! chunk of its own.

#[cfg(not(all(test, loom)))]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
#[cfg(all(test, loom))]
use loom::sync::atomic::AtomicUsize;
use once_cell::race::OnceBox;

use crate::buffer::chunks::{
    ChunkNumber, ChunkWriter, HeavyBarrier, TakeCell, WriteGuard, WritingCell, new_block_bytes,
};
use crate::buffer::entries::Entry;
use crate::types::{Generation, TimeStamp};

/// Fill time below which a lane's next chunk is twice as large, in ns.
const FAST_FILL_NS: u64 = 1_000_000_000;
/// Number of filled chunks of one size after which the next one is twice as large, however slowly
/// they were filled; it keeps the lists of chunks short.
const CHUNKS_BEFORE_GROWTH: usize = 16;

/// Chunk size that a lane requests to get the largest chunks, however many lanes there are.
pub(crate) const WANTS_LARGEST_CHUNKS: usize = usize::MAX;

/// An entry to be put into a lane. Passed by value, so that on the fast path it can stay in
/// registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<E> {
    pub(crate) session: Generation,
    pub(crate) now: TimeStamp,
    pub(crate) entry: E,
}

/// Supplies a full lane with its next chunk.
pub(crate) trait ChunkSource {
    /// Returns a chunk of `session` that can hold a block of `block_bytes`, allocating one if
    /// needed. Returns `None` if that session has ended or no such chunk is available.
    fn make_chunk(
        &self,
        lane: &Lane,
        session: Generation,
        block_bytes: usize,
    ) -> Option<ChunkWriter>;

    /// Allocates a chunk of `session` of the smallest size that holds one block of `block_bytes`.
    /// Returns `None` like [`Self::make_chunk`].
    fn make_chunk_for_one_entry(
        &self,
        lane: &Lane,
        session: Generation,
        block_bytes: usize,
    ) -> Option<ChunkWriter>;

    /// Returns whether chunks of `session` can hold a block of `block_bytes`. Counts a block that
    /// is too large as dropped.
    fn can_hold(&self, session: Generation, block_bytes: usize) -> bool;

    /// Requests maintenance from the sampler, after a chunk is done or a lane's next chunk was
    /// taken.
    fn request_maintenance(&self);

    /// Counts an entry that wrote more bytes than [`Entry::bytes`] returned.
    fn count_overrun(&self);
}

/// Appends to a chunk that was requested with this entry's length.
fn append_to_new<E: Entry + Copy>(
    writer: &mut ChunkWriter,
    entry: NewEntry<E>,
    source: &impl ChunkSource,
) -> bool {
    let is_put = writer.append(entry.now, &entry.entry);
    if !is_put {
        source.count_overrun();
    }
    is_put
}

/// The chunks of one writer.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) index: usize,
    /// The chunk being written. Put by the lane's writer; a thread that took the chunk out may put
    /// it back.
    current: WritingCell,
    /// The chunk to continue in, supplied before it is needed. Put by the sampler only.
    next: TakeCell,
    wanted_bytes: AtomicUsize,
    /// Number of chunks of the current size that were filled.
    filled: AtomicUsize,
}

impl Lane {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            index,
            current: WritingCell::empty(),
            next: TakeCell::empty(),
            wanted_bytes: AtomicUsize::new(0),
            filled: AtomicUsize::new(0),
        }
    }

    /// Puts an entry and returns the number of the chunk that holds it. Replaces the current chunk
    /// if it belongs to an earlier session.
    #[inline(always)]
    pub(crate) fn put<E: Entry + Copy>(
        &self,
        entry: NewEntry<E>,
        source: &impl ChunkSource,
    ) -> Option<ChunkNumber> {
        if self.current.is_writing() {
            return self.put_from_handler(entry, source);
        }
        let mut writing = self.current.begin_write();
        if let Some(mut writer) = writing.chunk()
            && writer.chunk().session == entry.session
            && writer.append(entry.now, &entry.entry)
        {
            return Some(writer.chunk().number);
        }
        self.put_in_next(writing, entry, source)
    }

    /// Puts an entry only if the current chunk is `chunk` and has space for it.
    pub(crate) fn put_in_chunk<E: Entry + Copy>(
        &self,
        chunk: ChunkNumber,
        entry: NewEntry<E>,
    ) -> Option<ChunkNumber> {
        if self.current.is_writing() {
            return None;
        }
        let mut writing = self.current.begin_write();
        let mut writer = writing.chunk()?;
        let is_requested =
            writer.chunk().session == entry.session && writer.chunk().number == chunk;
        (is_requested && writer.append(entry.now, &entry.entry)).then_some(chunk)
    }

    #[cold]
    fn put_in_next<E: Entry + Copy>(
        &self,
        mut writing: WriteGuard<'_>,
        entry: NewEntry<E>,
        source: &impl ChunkSource,
    ) -> Option<ChunkNumber> {
        let block_bytes = new_block_bytes(&entry.entry);
        let is_too_late = writing
            .chunk()
            .is_some_and(|writer| writer.chunk().session.is_after(entry.session));
        // Keep the current chunk if this entry cannot be put anyway.
        if is_too_late || !source.can_hold(entry.session, block_bytes) {
            return None;
        }
        if let Some(full) = writing.replace(None) {
            self.adapt_chunk_size(&full, entry.now);
            full.finish(entry.now);
        }
        let mut next = self.next_chunk(entry.session, block_bytes, entry.now, source)?;
        let is_put = append_to_new(&mut next, entry, source);
        let number = next.chunk().number;
        // Another thread that took the old chunk out may have put it back by now.
        writing
            .replace(Some(next))
            .into_iter()
            .for_each(|other| other.finish(entry.now));
        is_put.then_some(number)
    }

    /// Puts an entry from a signal handler of the application that interrupted a write. The
    /// interrupted writer is using the lane's current chunk, so the entry gets a chunk of its own,
    /// which is done at once. That chunk is small: a busy lane's next chunk is large, and a few
    /// hundred of those would use up the buffer's capacity.
    #[cold]
    fn put_from_handler<E: Entry + Copy>(
        &self,
        entry: NewEntry<E>,
        source: &impl ChunkSource,
    ) -> Option<ChunkNumber> {
        let block_bytes = new_block_bytes(&entry.entry);
        if !source.can_hold(entry.session, block_bytes) {
            return None;
        }
        let mut chunk = source.make_chunk_for_one_entry(self, entry.session, block_bytes)?;
        let is_put = append_to_new(&mut chunk, entry, source);
        let number = chunk.chunk().number;
        chunk.finish(entry.now);
        source.request_maintenance();
        is_put.then_some(number)
    }

    /// Returns the lane's next chunk, or a chunk from `source` if that one does not fit.
    fn next_chunk(
        &self,
        session: Generation,
        block_bytes: usize,
        now: TimeStamp,
        source: &impl ChunkSource,
    ) -> Option<ChunkWriter> {
        let fits = |writer: &ChunkWriter| {
            writer.chunk().session == session && writer.chunk().capacity() >= block_bytes
        };
        let next = match self.next.take() {
            Some(next) if fits(&next) => Some(next),
            unfit => {
                unfit.into_iter().for_each(|unfit| unfit.finish(now));
                source.make_chunk(self, session, block_bytes)
            }
        };
        source.request_maintenance();
        next
    }

    /// Chooses the size of the lane's later chunks after `full` was filled.
    fn adapt_chunk_size(&self, full: &ChunkWriter, now: TimeStamp) {
        let chunk = full.chunk();
        // A chunk that was left because of a large entry may be almost empty.
        let was_filled = chunk.committed() > chunk.capacity() / 2;
        if self.wanted_bytes() == WANTS_LARGEST_CHUNKS || !was_filled {
            return;
        }
        let was_filled_quickly = chunk
            .first_used()
            .is_some_and(|first| now.since_ns(first) < FAST_FILL_NS);
        let filled = self.filled.load(Ordering::Relaxed) + 1;
        let grows = was_filled_quickly || filled >= CHUNKS_BEFORE_GROWTH;
        self.filled
            .store(if grows { 0 } else { filled }, Ordering::Relaxed);
        self.set_wanted_bytes(if grows {
            chunk.capacity() * 2
        } else {
            chunk.capacity()
        });
    }

    /// Returns the desired size of the next chunk, in bytes; 0 for a lane that has not filled a
    /// chunk yet.
    pub(crate) fn wanted_bytes(&self) -> usize {
        self.wanted_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether the next chunk is missing. Called by the sampler.
    pub(crate) fn lacks_next(&self) -> bool {
        self.next.is_empty()
    }

    /// Sets the next chunk, which must be missing. Called by the sampler.
    pub(crate) fn set_next(&self, next: ChunkWriter) {
        debug_assert!(
            self.next.is_empty(),
            "cannot set the next chunk: the lane has one"
        );
        self.next.put(next);
    }

    pub(crate) fn take_next(&self) -> Option<ChunkWriter> {
        self.next.take()
    }

    /// Takes the current chunk out, unless the writer may be writing to it. The caller holds the
    /// buffer's lock.
    pub(crate) fn take_current(&self, heavy_barrier: HeavyBarrier) -> Option<ChunkWriter> {
        self.current.take(heavy_barrier)
    }

    /// Takes the current chunk out even during a write. The calling thread must be the only one, as
    /// in a forked child.
    pub(crate) fn take_current_single_threaded(&self) -> Option<ChunkWriter> {
        self.current.take_single_threaded()
    }

    /// Finishes the current chunk, so that the next entry goes into another one. Called by the
    /// writer.
    pub(crate) fn leave_chunk(&self, now: TimeStamp) {
        if !self.current.is_writing() {
            self.current
                .begin_write()
                .replace(None)
                .into_iter()
                .for_each(|writer| writer.finish(now));
        }
    }

    /// Sets the desired size of the next chunk: see [`Self::wanted_bytes`].
    pub(crate) fn set_wanted_bytes(&self, bytes: usize) {
        self.wanted_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Clears the mark of a write in progress, in the child of a fork, where the writer no longer
    /// exists.
    pub(crate) fn reset_writer(&self) {
        self.current.reset_writer();
    }

    /// Forgets the desired chunk size of the previous session, at the start of a new one.
    pub(crate) fn reset_wanted_bytes(&self) {
        if self.wanted_bytes() != WANTS_LARGEST_CHUNKS {
            self.set_wanted_bytes(0);
        }
    }
}

/// Number of lanes in the first part; each further part has twice as many as the one before.
const FIRST_PART: usize = 16;
const PARTS: usize = 24;

/// Each lane has its own cache lines, which prevents false sharing.
type Part = Box<[OnceBox<CachePadded<Lane>>]>;

/// Lanes by index, allocated on first use.
#[derive(Debug)]
pub(crate) struct Lanes {
    parts: [OnceBox<Part>; PARTS],
}

impl Lanes {
    pub(crate) const fn new() -> Self {
        Self {
            parts: [const { OnceBox::new() }; PARTS],
        }
    }

    /// Returns the lane with this index, allocating it if needed. The caller holds the buffer's
    /// lock.
    pub(crate) fn get(&self, index: usize) -> &Lane {
        let biased = index + FIRST_PART;
        let part = (biased / FIRST_PART).ilog2();
        let length = FIRST_PART << part;
        let lanes = self.parts[part as usize]
            .get_or_init(|| Box::new((0..length).map(|_| OnceBox::new()).collect()));
        lanes[biased - length].get_or_init(|| Box::new(CachePadded::new(Lane::new(index))))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn get_returns_one_fixed_lane_per_index() {
        let lanes = Lanes::new();
        let all: Vec<&Lane> = (0..1000).map(|index| lanes.get(index)).collect();
        for (index, lane) in all.iter().enumerate() {
            assert_eq!(lane.index, index);
            assert!(std::ptr::eq(*lane, lanes.get(index)));
        }
    }
}
