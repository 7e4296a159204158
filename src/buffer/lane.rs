//! Where a thread writes: a chunk of its own, and the next one.
//!
//! Who writes takes the chunk out of its lane, appends, and puts it back: one swap and one store, and nobody waits. Who
//! finds none there goes on with the next chunk. So whoever ends a session, or wants back what lies in a lane that has gone
//! quiet, may take the chunk out as well. An entry that comes from a handler, in the midst of a write, gets a chunk of its own.

#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::atomic::{Ordering, compiler_fence};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, AtomicUsize};

use crate::base::{Generation, TimeStamp};
use crate::buffer::chunk::{WriteRight, block_bytes};
use crate::buffer::chunk_book::LARGEST;
use crate::buffer::entry::Entry;
use crate::buffer::index::ChunkNumber;
use crate::buffer::take_cell::TakeCell;

/// A chunk that was filled in less time was small for its lane, and the next one is twice as large.
const QUICKLY_NS: u64 = 1_000_000_000;
/// After so many the next one is twice as large, too, so that chunks do not become too many to list.
const MANY: usize = 16;

/// An entry on its way into a lane.
#[derive(Debug)]
pub(super) struct NewEntry<'a, E> {
    pub(super) session: Generation,
    pub(super) now: TimeStamp,
    pub(super) entry: &'a E,
}

/// Whence a lane without room gets a chunk.
pub(super) trait ChunkSource {
    /// A chunk of this session with room for such a block, made on the spot; `None` when that session runs no more, or there is
    /// no such chunk.
    fn make_chunk(&self, lane: &Lane, session: Generation, block_bytes: usize) -> Option<WriteRight>;

    /// Whether there are chunks of this session's that are as large as that. What has no room is counted.
    fn has_room_for(&self, session: Generation, block_bytes: usize) -> bool;

    /// A chunk is done, or a lane's next chunk was taken: somebody should look after the lanes.
    fn ask_for_care(&self);
}

/// A writer's place. On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Lane {
    pub(super) index: usize,
    /// Put by the lane's writer alone.
    current: TakeCell,
    /// There before it is needed. Put by the caretaker alone.
    next: TakeCell,
    wanted_bytes: AtomicUsize,
    /// How many chunks of the size that it has were filled.
    filled: AtomicUsize,
    /// The writer has the chunk in its hands. Read and written by its own thread alone, and by a handler on it.
    is_writing: AtomicBool,
}

impl Lane {
    pub(super) fn new(index: usize) -> Self {
        Self {
            index,
            current: TakeCell::empty(),
            next: TakeCell::empty(),
            wanted_bytes: AtomicUsize::new(0),
            filled: AtomicUsize::new(0),
            is_writing: AtomicBool::new(false),
        }
    }

    /// Puts an entry, and gives the chunk that it came to lie in; a chunk of an earlier session is given up for it.
    #[inline]
    pub(super) fn put<E: Entry>(
        &self,
        entry: &NewEntry<'_, E>,
        source: &impl ChunkSource,
    ) -> Option<ChunkNumber> {
        if self.is_writing.load(Ordering::Relaxed) {
            return self.put_from_handler(entry, source);
        }
        self.is_writing.store(true, Ordering::Relaxed);
        // A handler is to find it before the chunk is gone, and until it is back.
        compiler_fence(Ordering::SeqCst);
        let number = self.put_alone(entry, source);
        compiler_fence(Ordering::SeqCst);
        self.is_writing.store(false, Ordering::Relaxed);
        number
    }

    #[inline(always)]
    fn put_alone<E: Entry>(&self, entry: &NewEntry<'_, E>, source: &impl ChunkSource) -> Option<ChunkNumber> {
        let mut current = self.current.take();
        if let Some(right) = &mut current
            && right.chunk().session == entry.session
            && right.append(entry.now, entry.entry)
        {
            let number = right.chunk().number;
            self.give_back(current);
            return Some(number);
        }
        self.put_in_next(current, entry, source)
    }

    /// Puts an entry if it comes to lie in this chunk.
    pub(super) fn put_in_chunk<E: Entry>(
        &self,
        chunk: ChunkNumber,
        entry: &NewEntry<'_, E>,
    ) -> Option<ChunkNumber> {
        let mut current = self.current.take();
        let is_put = current.as_mut().is_some_and(|right| {
            let is_asked_for = right.chunk().session == entry.session && right.chunk().number == chunk;
            is_asked_for && right.append(entry.now, entry.entry)
        });
        self.give_back(current);
        is_put.then_some(chunk)
    }

    #[inline]
    fn give_back(&self, right: Option<WriteRight>) {
        if let Some(right) = right {
            self.current.put(right);
        }
    }

    #[cold]
    fn put_in_next<E: Entry>(
        &self,
        current: Option<WriteRight>,
        entry: &NewEntry<'_, E>,
        source: &impl ChunkSource,
    ) -> Option<ChunkNumber> {
        let block_bytes = block_bytes(entry.entry.bytes());
        let is_too_late = current.as_ref().is_some_and(|right| right.chunk().session.is_after(entry.session));
        if is_too_late || !source.has_room_for(entry.session, block_bytes) {
            // What it has is for entries that can be put.
            self.give_back(current);
            return None;
        }
        if let Some(full) = current {
            self.want_after(&full, entry.now);
            full.finish(entry.now);
        }
        let mut next = self.next_chunk(entry.session, block_bytes, entry.now, source)?;
        let is_put = next.append(entry.now, entry.entry);
        let number = next.chunk().number;
        self.give_back(Some(next));
        is_put.then_some(number)
    }

    /// By a handler of the host's that has interrupted a write: in a chunk for this alone, which goes on the list at once, since
    /// the place of the lane's chunk is the interrupted writer's.
    #[cold]
    fn put_from_handler<E: Entry>(
        &self,
        entry: &NewEntry<'_, E>,
        source: &impl ChunkSource,
    ) -> Option<ChunkNumber> {
        let block_bytes = block_bytes(entry.entry.bytes());
        if !source.has_room_for(entry.session, block_bytes) {
            return None;
        }
        let mut chunk = self.next_chunk(entry.session, block_bytes, entry.now, source)?;
        let is_put = chunk.append(entry.now, entry.entry);
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
        let has_room =
            |right: &WriteRight| right.chunk().session == session && right.chunk().capacity() >= block_bytes;
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
        let was_filled_quickly = chunk.first_used().is_some_and(|first| now.since_ns(first) < QUICKLY_NS);
        let filled = self.filled.load(Ordering::Relaxed) + 1;
        let grows = was_filled_quickly || filled >= MANY;
        self.filled.store(if grows { 0 } else { filled }, Ordering::Relaxed);
        self.set_wanted_bytes(if grows { chunk.capacity() * 2 } else { chunk.capacity() });
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

    /// The chunk that it writes to, unless the writer has it in its hands just now.
    pub(super) fn take_current(&self) -> Option<WriteRight> {
        self.current.take()
    }

    /// For a new writer.
    pub(super) fn set_wanted_bytes(&self, bytes: usize) {
        self.wanted_bytes.store(bytes, Ordering::Relaxed);
    }

    /// In the child of a fork: its writer is gone, perhaps from the midst of a write.
    pub(super) fn lose_writer(&self) {
        self.is_writing.store(false, Ordering::Relaxed);
    }

    /// For a new session: what was needed in the one before says nothing.
    pub(super) fn start_anew(&self) {
        if self.wanted_bytes() != LARGEST {
            self.set_wanted_bytes(0);
        }
    }
}
