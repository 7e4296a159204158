//! A snapshot of the buffer that shares its chunks with the writers.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::buffer::chunk_manager::{ChunkMemory, Update};
use crate::buffer::chunks::{Chunk, ChunkNumber};
use crate::buffer::entries::{EntryReader, leb128};
use crate::buffer::session_chunks::BufferStatistics;
use crate::types::{Generation, TimeStamp};
use crate::util::try_vec;

/// The buffer's content at one moment: chunks in the order in which they were begun, each with its
/// committed length.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferSnapshot {
    chunks: Vec<(Arc<Chunk>, usize)>,
    /// The time from which on all entries are present, if chunks were discarded. Some earlier entries
    /// may also be present.
    pub(crate) complete_since: Option<TimeStamp>,
    pub(crate) chunk_memory: ChunkMemory,
    /// Bytes in the chunks that this snapshot dropped after the session had discarded them.
    dropped_discarded_bytes: u64,
    /// Bytes in the chunks that were left out because there was not enough memory to write them.
    pub(crate) left_out_bytes: u64,
    pub(crate) statistics: BufferStatistics,
    /// What an earlier snapshot had.
    seen: Arc<SnapshotEnds>,
}

/// Where the chunks of a snapshot end: their committed lengths, by the position of their first byte.
#[derive(Debug, Default)]
pub(crate) struct SnapshotEnds(HashMap<u64, usize>);

impl SnapshotEnds {
    fn of(&self, chunk: &Chunk) -> usize {
        self.0.get(&chunk.range_start).copied().unwrap_or(0)
    }
}

/// Error for a block that is empty or exceeds its chunk. The rest of the chunk cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MalformedBlock;

impl BufferSnapshot {
    pub(crate) fn new(
        chunks: Vec<(Arc<Chunk>, usize)>,
        complete_since: Option<TimeStamp>,
        update: Update,
        statistics: BufferStatistics,
    ) -> Self {
        let chunk_memory = match update {
            Update::Changed { memory, .. } => memory,
            Update::None | Update::Final => ChunkMemory::default(),
        };
        Self {
            chunks,
            complete_since,
            chunk_memory,
            dropped_discarded_bytes: 0,
            left_out_bytes: 0,
            statistics,
            seen: Arc::default(),
        }
    }

    /// Returns where the chunks end, for [`Self::mark_seen`] of a later snapshot of the session.
    pub(crate) fn ends(&self) -> SnapshotEnds {
        let chunks = self.chunks.iter();
        SnapshotEnds(
            chunks
                .map(|(chunk, committed)| (chunk.range_start, *committed))
                .collect(),
        )
    }

    /// Marks the entries that an earlier snapshot had: they are not [new](Block::is_new). Leaves out
    /// the chunks that have no new ones.
    pub(crate) fn mark_seen(&mut self, seen: Arc<SnapshotEnds>) {
        self.chunks
            .retain(|(chunk, committed)| seen.of(chunk) < *committed);
        self.seen = seen;
    }

    /// Creates a snapshot of these chunks, whatever their bytes are, in this order. Returns `None` if
    /// there is not enough memory.
    pub(crate) fn of_complete(
        chunks: Vec<Vec<u8>>,
        complete_since: Option<TimeStamp>,
        statistics: BufferStatistics,
    ) -> Option<Self> {
        let mut range_start = 1;
        let mut shared = try_vec(chunks.len())?;
        for (number, bytes) in chunks.into_iter().enumerate() {
            let number = ChunkNumber(number as u64);
            let session = Generation::from_number(0);
            let chunk = Chunk::of_bytes(&bytes, number, session, range_start)?;
            range_start += bytes.len() as u64;
            shared.push((chunk, bytes.len()));
        }
        let mut snapshot = Self::new(shared, complete_since, Update::None, statistics);
        snapshot.chunk_memory.released_bytes = range_start - 1;
        Some(snapshot)
    }

    /// Drops the chunks for which `keeps` yields false, in the order of [`Self::chunks`]. The
    /// memory of a dropped chunk is freed once the session has discarded the chunk, too.
    pub(crate) fn retain_chunks(&mut self, mut keeps: impl Iterator<Item = bool>) {
        self.chunks.retain(|(chunk, committed)| {
            let is_kept = keeps.next().unwrap_or(true);
            if !is_kept && chunk.is_discarded() {
                self.dropped_discarded_bytes += *committed as u64;
            }
            is_kept
        });
    }

    /// Leaves out, for lack of memory, the half of the chunks that were written to least recently.
    /// Returns false if that would leave none.
    pub(crate) fn leave_out_older_half(&mut self) -> bool {
        let half = self.chunks.len() / 2;
        self.chunks
            .sort_unstable_by_key(|(chunk, _)| chunk.last_used());
        for (chunk, committed) in self.chunks.drain(..half) {
            self.complete_since = self.complete_since.max(Some(chunk.last_used()));
            self.left_out_bytes += committed as u64;
        }
        self.chunks
            .sort_unstable_by_key(|(chunk, _)| chunk.range_start);
        half > 0
    }

    /// Returns the number of bytes in all chunks.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks
            .iter()
            .map(|(_, committed)| *committed as u64)
            .sum()
    }

    /// Returns the number of bytes in this snapshot's chunks that the session has discarded. A
    /// chunk dropped by [`Self::retain_chunks`] counts only if the session had discarded it before.
    pub(crate) fn discarded_bytes(&self) -> u64 {
        let given_up = self.chunks.iter().filter(|(chunk, _)| chunk.is_discarded());
        self.dropped_discarded_bytes
            + given_up
                .map(|(_, committed)| *committed as u64)
                .sum::<u64>()
    }

    /// Returns the entries of each chunk. Each chunk can be decoded without the others.
    pub(crate) fn chunks(&self) -> impl ExactSizeIterator<Item = ChunkEntries<'_>> {
        self.chunks.iter().map(|(chunk, committed)| {
            let bytes = &chunk.committed_bytes()[..*committed];
            ChunkEntries {
                position: chunk.range_start,
                new_from: chunk.range_start + self.seen.of(chunk) as u64,
                rest: bytes,
            }
        })
    }

    /// Returns the entry that begins at `block`, if the snapshot holds it.
    pub(crate) fn entry_at(&self, block: BlockIndex) -> Option<EntryReader<'_>> {
        let after = self
            .chunks
            .partition_point(|(chunk, _)| chunk.range_start <= block.get());
        let (chunk, committed) = self.chunks.get(after.checked_sub(1)?)?;
        let offset = usize::try_from(block.get() - chunk.range_start).ok()?;
        let mut rest = chunk.committed_bytes().get(offset..*committed)?;
        take_block(&mut rest)
    }
}

/// The entries of one chunk, in the order in which they were put.
#[derive(Debug)]
pub(crate) struct ChunkEntries<'a> {
    /// Position of the first byte of `rest`.
    position: u64,
    /// Entries before this position were in an earlier snapshot.
    new_from: u64,
    rest: &'a [u8],
}

/// An entry in its chunk.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) index: BlockIndex,
    /// Length of the block, including its length field.
    pub(crate) bytes: u64,
    /// Whether no earlier snapshot had it: see [`BufferSnapshot::mark_seen`].
    pub(crate) is_new: bool,
    pub(crate) entry: EntryReader<'a>,
}

impl<'a> Iterator for ChunkEntries<'a> {
    type Item = Result<Block<'a>, MalformedBlock>;

    // Inlined, so that the parts of a block stay in registers.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let before = self.rest.len();
        let (Some(entry), Some(index)) =
            (take_block(&mut self.rest), BlockIndex::new(self.position))
        else {
            self.rest = &[];
            return Some(Err(MalformedBlock));
        };
        let bytes = (before - self.rest.len()) as u64;
        let is_new = self.position >= self.new_from;
        self.position += bytes;
        Some(Ok(Block {
            index,
            bytes,
            is_new,
            entry,
        }))
    }
}

/// Position of a block's first byte, counted from 1 over all chunks that the session ever had.
#[doc(alias = "ProfileBufferBlockIndex")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BlockIndex(NonZeroU64);

impl BlockIndex {
    pub(crate) const fn new(position: u64) -> Option<Self> {
        match NonZeroU64::new(position) {
            Some(position) => Some(Self(position)),
            None => None,
        }
    }

    pub(crate) const fn get(self) -> u64 {
        self.0.get()
    }
}

#[inline(always)]
fn take_block<'a>(rest: &mut &'a [u8]) -> Option<EntryReader<'a>> {
    let (length, count) = leb128::decode(rest)?;
    let length = usize::try_from(length).ok()?;
    let from_entry = rest.get(count..)?;
    let entry = EntryReader::at_front(from_entry, length).filter(|_| length > 0)?;
    *rest = from_entry.get(length..)?;
    Some(entry)
}

/// Access to the raw bytes of chunks, for tests and fuzzing.
#[cfg(any(test, fuzzing))]
impl BufferSnapshot {
    #[cfg(all(test, not(loom)))]
    pub(crate) fn bytes_of_chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks
            .iter()
            .map(|(chunk, committed)| &chunk.committed_bytes()[..*committed])
    }

    pub(crate) fn of_bytes(chunks: &[&[u8]]) -> Self {
        let chunks = chunks.iter().map(|bytes| bytes.to_vec()).collect();
        Self::of_complete(chunks, None, BufferStatistics::default()).expect("memory")
    }
}
