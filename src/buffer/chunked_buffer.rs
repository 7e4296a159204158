//! The end of stop 9: entries land in chunks.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Generation, Guard, LockRank, NamedMutex, TimeStamp};
use crate::buffer::chunk::{Chunk, WriteRight};
use crate::buffer::chunk_manager::ChunkManagerWithLocalLimit;
use crate::buffer::entry_reader::EntryReader;
use crate::buffer::index::{BlockIndex, ChunkNumber};
use crate::buffer::leb128;

/// What the buffer did, for the profile's report of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BufferStatistics {
    pub(crate) capacity_bytes: u64,
    pub(crate) put_entries: u64,
    pub(crate) put_bytes: u64,
    /// Entries larger than a chunk, which are nowhere.
    pub(crate) dropped_entries: u64,
    /// Chunks emptied to make room, and the bytes that were in them.
    pub(crate) recycled_chunks: u64,
    pub(crate) recycled_bytes: u64,
}

/// The entries of a session: blocks, each an ULEB128 length and so many bytes, in a ring of chunks. Out of session it
/// takes nothing and holds nothing.
#[doc(alias = "ProfileChunkedBuffer")]
#[doc(alias = "ProfileBuffer")]
#[derive(Debug)]
pub(crate) struct ChunkedBuffer {
    state: NamedMutex<Option<State>>,
    dropped_entries: AtomicU64,
}

#[derive(Debug)]
struct State {
    session: Generation,
    manager: ChunkManagerWithLocalLimit,
    current: Option<WriteRight>,
    next_number: u64,
    /// The position after the last byte of the last chunk.
    range_end: u64,
    put_entries: u64,
    put_bytes: u64,
}

impl ChunkedBuffer {
    pub(crate) const fn out_of_session() -> Self {
        Self {
            state: NamedMutex::new("chunk manager", LockRank::ChunkManager, None),
            dropped_entries: AtomicU64::new(0),
        }
    }

    #[cfg(test)]
    pub(crate) const TEST_SESSION: Generation = Generation::from_number(1);

    #[cfg(test)]
    pub(crate) fn for_test(capacity_bytes: u64) -> Self {
        let buffer = Self::out_of_session();
        buffer.begin_session(Self::TEST_SESSION, capacity_bytes);
        buffer
    }

    /// Takes entries of this session from now on, into nothing that was there before.
    pub(crate) fn begin_session(&self, session: Generation, capacity_bytes: u64) {
        let capacity = usize::try_from(capacity_bytes).unwrap_or(usize::MAX);
        self.dropped_entries.store(0, Ordering::Relaxed);
        let state = State {
            session,
            manager: ChunkManagerWithLocalLimit::new(capacity),
            current: None,
            next_number: 0,
            range_end: 1,
            put_entries: 0,
            put_bytes: 0,
        };
        let before = self.state.lock().replace(state);
        drop(before);
    }

    /// Forgets everything, and takes nothing any more.
    pub(crate) fn end_session(&self) {
        let before = self.state.lock().take();
        drop(before);
    }

    /// Holds the buffer still while the process forks.
    pub(crate) fn hold_for_fork(&self) -> BufferForkGuard<'_> {
        BufferForkGuard(self.state.lock())
    }

    /// Puts the parts as one entry of this session, and gives the chunk that it came to lie in. `None` when that session runs
    /// no more, and when the entry is larger than a chunk, which is counted as dropped.
    #[doc(alias = "ReserveAndPut")]
    pub(crate) fn put(&self, session: Generation, now: TimeStamp, parts: &[&[u8]]) -> Option<ChunkNumber> {
        self.put_where(session, now, parts, None)
    }

    /// Puts the entry if it comes to lie in this chunk; `None`, uncounted, when it would not.
    pub(crate) fn put_in_chunk(
        &self,
        session: Generation,
        chunk: ChunkNumber,
        now: TimeStamp,
        parts: &[&[u8]],
    ) -> Option<ChunkNumber> {
        self.put_where(session, now, parts, Some(chunk))
    }

    fn put_where(
        &self,
        session: Generation,
        now: TimeStamp,
        parts: &[&[u8]],
        only: Option<ChunkNumber>,
    ) -> Option<ChunkNumber> {
        let entry_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut head = [0; leb128::MAX_BYTES];
        let head_bytes = leb128::encode(entry_bytes as u64, &mut head);
        let head = &head[..head_bytes];

        let mut state = self.state.lock();
        let state = state.as_mut().filter(|state| state.session == session)?;
        if let Some(chunk) = only
            && state.current.as_ref().map(|right| right.chunk().number) != Some(chunk)
        {
            return None;
        }
        if let Some(chunk) = state.append(head, parts, head_bytes + entry_bytes) {
            return Some(chunk);
        }
        if only.is_some() {
            return None;
        }
        if head_bytes + entry_bytes > state.manager.chunk_bytes() {
            self.dropped_entries.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        state.begin_chunk(now);
        state.append(head, parts, head_bytes + entry_bytes)
    }

    /// Makes the next chunk ready, so that no writer has to. Called by the sampler, once a tick.
    #[doc(alias = "FulfillChunkRequests")]
    pub(crate) fn provide_spare_chunk(&self) {
        let bytes = {
            match self.state.lock().as_ref() {
                Some(state) if state.manager.wants_spare() => state.manager.chunk_bytes(),
                _ => return,
            }
        };
        let fresh = Chunk::new(bytes);
        if let Some(state) = self.state.lock().as_mut() {
            state.manager.provide_spare(fresh);
        }
    }

    /// The positions of the oldest byte that is still there, and after the newest.
    pub(crate) fn range(&self) -> Range<u64> {
        self.state.lock().as_ref().map_or(1..1, State::range)
    }

    /// The same, and what the buffer did so far; `None` out of session.
    pub(crate) fn fill_level(&self) -> Option<(Range<u64>, BufferStatistics)> {
        let state = self.state.lock();
        let state = state.as_ref()?;
        Some((state.range(), self.statistics(state)))
    }

    fn statistics(&self, state: &State) -> BufferStatistics {
        let (recycled_chunks, recycled_bytes) = state.manager.recycled();
        BufferStatistics {
            capacity_bytes: state.manager.max_bytes() as u64,
            put_entries: state.put_entries,
            put_bytes: state.put_bytes,
            dropped_entries: self.dropped_entries.load(Ordering::Relaxed),
            recycled_chunks,
            recycled_bytes,
        }
    }

    /// Shares what is there now. Writers go on; a chunk that is recycled meanwhile stays whole for this reader.
    pub(crate) fn snapshot(&self) -> BufferSnapshot {
        let state = self.state.lock();
        let Some(state) = state.as_ref() else { return BufferSnapshot::default() };
        let chunks = state.chunks().map(|chunk| (Arc::clone(chunk), chunk.committed_bytes().len())).collect();
        BufferSnapshot { chunks, statistics: self.statistics(state) }
    }
}

/// The buffer's lock, held. In the child of a fork the session can be ended through it.
#[derive(Debug)]
pub(crate) struct BufferForkGuard<'a>(Guard<'a, Option<State>>);

impl BufferForkGuard<'_> {
    /// In the child of a fork: a session of the parent's is none of ours. Its memory is left alone, since another
    /// thread may have been in the middle of it.
    pub(crate) fn abandon_session(mut self) {
        std::mem::forget(self.0.take());
    }
}

impl State {
    /// All chunks, oldest first.
    fn chunks(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.manager.released().chain(self.current.as_ref().map(WriteRight::chunk))
    }

    fn range(&self) -> Range<u64> {
        let end = self.current.as_ref().map_or(self.range_end, |right| right.chunk().range_end());
        self.chunks().next().map_or(end, |oldest| oldest.range_start)..end
    }

    fn append(&mut self, head: &[u8], parts: &[&[u8]], bytes: usize) -> Option<ChunkNumber> {
        let right = self.current.as_mut()?;
        let mut all: [&[u8]; 8] = [&[]; 8];
        all[0] = head;
        all.get_mut(1..=parts.len())?.copy_from_slice(parts);
        right.append(&all[..=parts.len()])?;
        self.put_entries += 1;
        self.put_bytes += bytes as u64;
        Some(right.chunk().number)
    }

    fn begin_chunk(&mut self, now: TimeStamp) {
        if let Some(full) = self.current.take() {
            let chunk = full.into_chunk();
            self.range_end = chunk.range_end();
            self.manager.release(chunk);
        }
        let chunk = self.manager.take_chunk();
        self.current = Some(chunk.begin(ChunkNumber(self.next_number), self.range_end, now));
        self.next_number += 1;
    }
}

/// The chunks as they were at one moment, shared with the writers.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferSnapshot {
    chunks: Vec<(Arc<Chunk>, usize)>,
    pub(crate) statistics: BufferStatistics,
}

impl BufferSnapshot {
    /// When the oldest chunk was begun, if older ones were recycled.
    pub(crate) fn earliest_time_after_loss(&self) -> Option<TimeStamp> {
        let (oldest, _) = self.chunks.first()?;
        (oldest.number.0 > 0).then_some(oldest.first_used)
    }

    /// Calls `visit` for each entry, oldest chunk first, in the order in which they were put.
    pub(crate) fn for_each_entry(&self, mut visit: impl FnMut(ChunkNumber, BlockIndex, EntryReader<'_>)) {
        for (chunk, committed) in &self.chunks {
            let bytes = &chunk.committed_bytes()[..*committed];
            let mut rest = bytes;
            while !rest.is_empty() {
                let offset = (bytes.len() - rest.len()) as u64;
                let (Some(entry), Some(block)) =
                    (take_block(&mut rest), BlockIndex::new(chunk.range_start + offset))
                else {
                    debug_assert!(false, "a chunk ends within a block");
                    break;
                };
                visit(chunk.number, block, EntryReader::new(entry));
            }
        }
    }

    /// The entry that begins at `block`, if it is in here.
    pub(crate) fn entry_at(&self, block: BlockIndex) -> Option<EntryReader<'_>> {
        let after = self.chunks.partition_point(|(chunk, _)| chunk.range_start <= block.get());
        let (chunk, committed) = self.chunks.get(after.checked_sub(1)?)?;
        let offset = usize::try_from(block.get() - chunk.range_start).ok()?;
        let mut rest = chunk.committed_bytes().get(offset..*committed)?;
        take_block(&mut rest).map(EntryReader::new)
    }
}

fn take_block<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(leb128::decode(rest)?).ok()?;
    let (entry, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Generation = ChunkedBuffer::TEST_SESSION;

    fn numbers_in(snapshot: &BufferSnapshot) -> Vec<u64> {
        let mut numbers = Vec::new();
        snapshot.for_each_entry(|_, block, mut entry| {
            let number = entry.number().expect("a number");
            assert_eq!(snapshot.entry_at(block).and_then(|mut entry| entry.number()), Some(number));
            numbers.push(number);
        });
        numbers
    }

    fn put_number(buffer: &ChunkedBuffer, number: u64) -> ChunkNumber {
        let mut bytes = [0; leb128::MAX_BYTES];
        let length = leb128::encode(number, &mut bytes);
        buffer.put(SESSION, TimeStamp(number), &[&bytes[..length], &[0; 20]]).expect("fits")
    }

    #[test]
    fn the_oldest_chunks_go_and_the_rest_reads_back_in_order() {
        let buffer = ChunkedBuffer::for_test(4096);
        for number in 0..1000 {
            put_number(&buffer, number);
        }
        let snapshot = buffer.snapshot();
        let numbers = numbers_in(&snapshot);
        let first = numbers[0];
        assert!(first > 0, "something was recycled");
        assert_eq!(numbers, (first..1000).collect::<Vec<_>>());
        let statistics = snapshot.statistics;
        assert_eq!(statistics.put_entries, 1000);
        assert!(statistics.recycled_chunks > 0 && statistics.recycled_bytes > 0);
        assert!(buffer.range().end - buffer.range().start <= 4096);
        assert_eq!(snapshot.earliest_time_after_loss(), Some(TimeStamp(first)));
    }

    #[test]
    fn a_snapshot_stays_whole_while_its_chunks_are_recycled() {
        let buffer = ChunkedBuffer::for_test(4096);
        for number in 0..50 {
            put_number(&buffer, number);
        }
        let snapshot = buffer.snapshot();
        for number in 50..2000 {
            put_number(&buffer, number);
        }
        assert_eq!(numbers_in(&snapshot), (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn an_entry_larger_than_a_chunk_is_dropped_and_counted() {
        let buffer = ChunkedBuffer::for_test(4096);
        put_number(&buffer, 1);
        assert!(buffer.put(SESSION, TimeStamp(0), &[&[0; 2000]]).is_none());
        put_number(&buffer, 2);
        assert_eq!(buffer.snapshot().statistics.dropped_entries, 1);
        assert_eq!(numbers_in(&buffer.snapshot()), [1, 2]);
    }

    #[test]
    fn out_of_session_nothing_is_taken_or_held() {
        let buffer = ChunkedBuffer::for_test(4096);
        put_number(&buffer, 1);
        buffer.end_session();
        assert!(buffer.put(SESSION, TimeStamp(0), &[&[1]]).is_none());
        assert!(numbers_in(&buffer.snapshot()).is_empty());
        let next = Generation::from_number(2);
        buffer.begin_session(next, 4096);
        assert!(buffer.put(SESSION, TimeStamp(0), &[&[2]]).is_none(), "of the session before");
        assert!(buffer.put(next, TimeStamp(0), &[&[3]]).is_some());
        assert_eq!(numbers_in(&buffer.snapshot()), [3]);
    }

    #[test]
    fn an_entry_can_insist_on_its_chunk() {
        let buffer = ChunkedBuffer::for_test(4096);
        let first = put_number(&buffer, 1);
        assert!(buffer.put_in_chunk(SESSION, first, TimeStamp(0), &[&[2]]).is_some());
        while put_number(&buffer, 3) == first {}
        assert!(buffer.put_in_chunk(SESSION, first, TimeStamp(0), &[&[4]]).is_none());
        assert_eq!(buffer.snapshot().statistics.dropped_entries, 0);
    }

    #[test]
    fn the_spare_chunk_keeps_the_limit() {
        let buffer = ChunkedBuffer::for_test(4096);
        for number in 0..1000 {
            put_number(&buffer, number);
            buffer.provide_spare_chunk();
        }
        assert!(buffer.range().end - buffer.range().start <= 4096);
    }

    #[test]
    fn threads_put_side_by_side_and_nothing_is_torn() {
        let buffer = ChunkedBuffer::for_test(1 << 20);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let buffer = &buffer;
                scope.spawn(move || {
                    (0..2000).for_each(|number| _ = put_number(buffer, thread * 10_000 + number))
                });
            }
        });
        let mut numbers = numbers_in(&buffer.snapshot());
        for thread in 0..4 {
            let of_thread = numbers.iter().filter(|&&number| number / 10_000 == thread).copied();
            assert!(of_thread.eq(thread * 10_000..thread * 10_000 + 2000), "in the order of the thread");
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 8000);
    }
}
