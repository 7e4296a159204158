//! Where a thread writes: a chunk of its own, and the next one.
//!
//! Who writes says so, appends to the chunk that is there, and says that it is done: loads and stores, and nobody waits. Who
//! finds none there goes on with the next chunk. So whoever ends a session, or wants back what lies in a lane that has gone
//! quiet, may take the chunk out; `writing_cell.rs` tells how. An entry that comes from a handler, in the midst of a write, gets a
//! chunk of its own.

#[cfg(not(all(test, loom)))]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

#[cfg(all(test, loom))]
use loom::sync::atomic::AtomicUsize;

use crate::base::{Generation, TimeStamp};
use crate::buffer::chunk::{WriteRight, new_block_bytes};
use crate::buffer::chunk_book::LARGEST;
use crate::buffer::entry::Entry;
use crate::buffer::index::ChunkNumber;
use crate::buffer::take_cell::TakeCell;
use crate::buffer::writing_cell::{HeavyBarrier, Writing, WritingCell};

/// A chunk that was filled in less time was small for its lane, and the next one is twice as large.
const QUICKLY_NS: u64 = 1_000_000_000;
/// After so many the next one is twice as large, too, so that chunks do not become too many to list.
const MANY: usize = 16;

/// An entry on its way into a lane: passed on as a copy, so that while all goes well it need not be in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry<E> {
    pub(super) session: Generation,
    pub(super) now: TimeStamp,
    pub(super) entry: E,
}

/// Whence a lane without room gets a chunk.
pub(super) trait ChunkSource {
    /// A chunk of this session with room for such a block, made on the spot; `None` when that session runs no more, or there is
    /// no such chunk.
    fn make_chunk(
        &self,
        lane: &Lane,
        session: Generation,
        block_bytes: usize,
    ) -> Option<WriteRight>;

    /// Whether there are chunks of this session's that are as large as that. What has no room is counted.
    fn has_room_for(&self, session: Generation, block_bytes: usize) -> bool;

    /// A chunk is done, or a lane's next chunk was taken: somebody should look after the lanes.
    fn ask_for_care(&self);

    /// An entry was longer when it was written than it had said.
    fn count_overrun(&self);
}

/// To a chunk that was asked for with this entry's length.
fn append_to_new<E: Entry + Copy>(
    right: &mut WriteRight,
    entry: NewEntry<E>,
    source: &impl ChunkSource,
) -> bool {
    let is_put = right.append(entry.now, &entry.entry);
    if !is_put {
        source.count_overrun();
    }
    is_put
}

/// A writer's place. On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Lane {
    pub(super) index: usize,
    /// Put by the lane's writer; whoever took the chunk out may put that one back, too.
    current: WritingCell,
    /// There before it is needed. Put by the caretaker alone.
    next: TakeCell,
    wanted_bytes: AtomicUsize,
    /// How many chunks of the size that it has were filled.
    filled: AtomicUsize,
}

impl Lane {
    pub(super) fn new(index: usize) -> Self {
        Self {
            index,
            current: WritingCell::empty(),
            next: TakeCell::empty(),
            wanted_bytes: AtomicUsize::new(0),
            filled: AtomicUsize::new(0),
        }
    }

    /// Puts an entry, and gives the chunk that it came to lie in; a chunk of an earlier session is given up for it.
    #[inline(always)]
    pub(super) fn put<E: Entry + Copy>(
        &self,
        entry: NewEntry<E>,
        source: &impl ChunkSource,
    ) -> Option<ChunkNumber> {
        if self.current.is_writing() {
            return self.put_from_handler(entry, source);
        }
        let mut writing = self.current.write();
        if let Some(mut right) = writing.chunk()
            && right.chunk().session == entry.session
            && right.append(entry.now, &entry.entry)
        {
            return Some(right.chunk().number);
        }
        self.put_in_next(writing, entry, source)
    }

    /// Puts an entry if it comes to lie in this chunk.
    pub(super) fn put_in_chunk<E: Entry + Copy>(
        &self,
        chunk: ChunkNumber,
        entry: NewEntry<E>,
    ) -> Option<ChunkNumber> {
        if self.current.is_writing() {
            return None;
        }
        let mut writing = self.current.write();
        let mut right = writing.chunk()?;
        let is_asked_for = right.chunk().session == entry.session && right.chunk().number == chunk;
        (is_asked_for && right.append(entry.now, &entry.entry)).then_some(chunk)
    }

    #[cold]
    fn put_in_next<E: Entry + Copy>(
        &self,
        mut writing: Writing<'_>,
        entry: NewEntry<E>,
        source: &impl ChunkSource,
    ) -> Option<ChunkNumber> {
        let block_bytes = new_block_bytes(&entry.entry);
        let is_too_late = writing
            .chunk()
            .is_some_and(|right| right.chunk().session.is_after(entry.session));
        // What it has is for entries that can be put.
        if is_too_late || !source.has_room_for(entry.session, block_bytes) {
            return None;
        }
        if let Some(full) = writing.replace(None) {
            self.want_after(&full, entry.now);
            full.finish(entry.now);
        }
        let mut next = self.next_chunk(entry.session, block_bytes, entry.now, source)?;
        let is_put = append_to_new(&mut next, entry, source);
        let number = next.chunk().number;
        // One that was taken out may have come back meanwhile.
        writing
            .replace(Some(next))
            .into_iter()
            .for_each(|other| other.finish(entry.now));
        is_put.then_some(number)
    }

    /// By a handler of the host's that has interrupted a write: in a chunk for this alone, which goes on the list at once, since
    /// the place of the lane's chunk is the interrupted writer's.
    #[cold]
    fn put_from_handler<E: Entry + Copy>(
        &self,
        entry: NewEntry<E>,
        source: &impl ChunkSource,
    ) -> Option<ChunkNumber> {
        let block_bytes = new_block_bytes(&entry.entry);
        if !source.has_room_for(entry.session, block_bytes) {
            return None;
        }
        let mut chunk = self.next_chunk(entry.session, block_bytes, entry.now, source)?;
        let is_put = append_to_new(&mut chunk, entry, source);
        let number = chunk.chunk().number;
        chunk.finish(entry.now);
        is_put.then_some(number)
    }

    /// The next chunk, or one that is made on the spot.
    fn next_chunk(
        &self,
        session: Generation,
        block_bytes: usize,
        now: TimeStamp,
        source: &impl ChunkSource,
    ) -> Option<WriteRight> {
        let has_room = |right: &WriteRight| {
            right.chunk().session == session && right.chunk().capacity() >= block_bytes
        };
        let next = match self.next.take() {
            Some(next) if has_room(&next) => Some(next),
            unfit => {
                unfit.into_iter().for_each(|unfit| unfit.finish(now));
                source.make_chunk(self, session, block_bytes)
            }
        };
        source.ask_for_care();
        next
    }

    /// How large the chunks are to be from now on.
    fn want_after(&self, full: &WriteRight, now: TimeStamp) {
        let chunk = full.chunk();
        // One that a large entry had no room in may be almost empty.
        let was_filled = chunk.committed() > chunk.capacity() / 2;
        if self.wanted_bytes() == LARGEST || !was_filled {
            return;
        }
        let was_filled_quickly = chunk
            .first_used()
            .is_some_and(|first| now.since_ns(first) < QUICKLY_NS);
        let filled = self.filled.load(Ordering::Relaxed) + 1;
        let grows = was_filled_quickly || filled >= MANY;
        self.filled
            .store(if grows { 0 } else { filled }, Ordering::Relaxed);
        self.set_wanted_bytes(if grows {
            chunk.capacity() * 2
        } else {
            chunk.capacity()
        });
    }

    /// How large its next chunk should be; 0 for one that has filled none.
    pub(super) fn wanted_bytes(&self) -> usize {
        self.wanted_bytes.load(Ordering::Relaxed)
    }

    /// By the caretaker: whether the next chunk is missing.
    pub(super) fn wants_next(&self) -> bool {
        self.next.is_empty()
    }

    /// By the caretaker, where the next chunk is missing.
    pub(super) fn set_next(&self, next: WriteRight) {
        debug_assert!(self.next.is_empty(), "there is a next chunk already");
        self.next.put(next);
    }

    pub(super) fn take_next(&self) -> Option<WriteRight> {
        self.next.take()
    }

    /// The chunk that it writes to, unless the writer writes just now. By whoever has the buffer's lock.
    pub(super) fn take_current(&self, heavy_barrier: HeavyBarrier) -> Option<WriteRight> {
        self.current.take(heavy_barrier)
    }

    /// The same where no other thread is.
    pub(super) fn take_current_alone(&self) -> Option<WriteRight> {
        self.current.take_alone()
    }

    /// By the writer: it writes no more to the chunk that it has.
    pub(super) fn leave_chunk(&self, now: TimeStamp) {
        if !self.current.is_writing() {
            self.current
                .write()
                .replace(None)
                .into_iter()
                .for_each(|right| right.finish(now));
        }
    }

    /// For a new writer.
    pub(super) fn set_wanted_bytes(&self, bytes: usize) {
        self.wanted_bytes.store(bytes, Ordering::Relaxed);
    }

    /// In the child of a fork: its writer is gone, perhaps from the midst of a write.
    pub(super) fn lose_writer(&self) {
        self.current.lose_writer();
    }

    /// For a new session: what was needed in the one before says nothing.
    pub(super) fn start_anew(&self) {
        if self.wanted_bytes() != LARGEST {
            self.set_wanted_bytes(0);
        }
    }
}
