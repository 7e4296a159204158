//! Where everything lies in a crash file. All numbers are words of 8 bytes, little-endian.
//!
//! ```text
//! head page   the words of `HeadWord`, those of the owner, and the session's counts
//! facts       two halves, of which one grows
//! heads       64 bytes for each page of chunks: the words of `ChunkWord`
//! chunks      pages; a chunk begins with a page, whose head describes it
//! record      length:u32 checksum:u32 bytes, up to a multiple of 8
//! ```
//!
//! The facts are what a rescuer must know that is not in the chunks. This folder knows records of
//! bytes, not their meaning. Any thread appends without a lock: it reserves space, writes the bytes,
//! and then the first word. A thread that dies in between leaves a gap. The reader finds the next
//! record behind it by its checksum.
//!
//! When a half is nearly full, its owner writes all facts that still matter into the other half.
//! Until that is done, the reader has the first half. Afterwards both halves have valid facts, and
//! a fact of the growing half replaces one of the other.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::util::{SharedMemory, WORD_BYTES};

/// Size of the units in which the file is divided, in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Size of a chunk's head, in bytes: a cache line of its own.
pub(crate) const CHUNK_HEAD_BYTES: usize = 64;
/// The first word of each crash file. Written last, so a file without it was never complete.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"gekkota\xc5");
/// Version of the layout and of the facts.
pub(crate) const VERSION: u64 = 3;

/// Bounds of one half of the facts, in bytes.
const FACTS_BYTES: std::ops::RangeInclusive<u64> = (256 << 10)..=(8 << 20);
/// Part of the capacity that one half of the facts takes, within these bounds.
const FACTS_DIVISOR: u64 = 32;
/// Space in addition to the capacity, in bytes and as a part of the capacity: unreleased chunks may
/// exceed it, readers may share discarded chunks, and free pages may lie apart.
const SPARE_BYTES: u64 = 1 << 20;
const SPARE_DIVISOR: u64 = 8;

/// Words at the beginning of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum HeadWord {
    Magic = 0,
    Version = 1,
    FileBytes = 2,
    /// Size of one half of the facts, in bytes.
    FactsBytes = 3,
    /// Number of pages for chunks.
    Pages = 4,
    Session = 5,
    /// Id of the process that writes the file, and the time at which the kernel started it, in
    /// ticks since the boot.
    Process = 6,
    ProcessTicks = 7,
    /// The half of the facts that grows.
    ActiveFacts = 16,
    /// For each half, how many bytes are used, and how often the half was begun.
    UsedFacts = 17,
    FactsEpoch = 19,
    /// Number of facts that were dropped for lack of space.
    LostFacts = 21,
    /// Time at which the last discarded chunk was done, in ns; 0 for none.
    CompleteSince = 22,
    DiscardedChunks = 23,
    DiscardedBytes = 24,
    DiscardedEntries = 25,
    /// Number of chunks that lie outside of the file, because it had no space.
    ChunksOutside = 26,
    /// The first of [`OWNER_WORDS`] words that mean nothing to this folder.
    Owner = 32,
}

/// Number of words whose meaning the owner of the area knows.
pub(crate) const OWNER_WORDS: usize = PAGE_BYTES / WORD_BYTES - HeadWord::Owner as usize;

impl HeadWord {
    /// Returns the position of this word, or of a later one, in bytes.
    pub(crate) const fn at(self, index: usize) -> usize {
        (self as usize + index) * WORD_BYTES
    }
}

/// Words of a chunk's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum ChunkWord {
    /// Odd while the chunk has no content; 0 before the first. Otherwise it counts the contents.
    Sequence = 0,
    /// Number of bytes that are complete.
    Committed = 1,
    /// Number of the chunk in its session.
    Number = 2,
    /// Position of the first byte: see `Chunk::range_start`.
    RangeStart = 3,
    /// Size of the chunk, in bytes.
    Bytes = 4,
    Session = 5,
}

/// The positions in a file of some size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Size of one half of the facts, in bytes.
    pub(crate) facts_bytes: usize,
    /// Number of pages for chunks.
    pub(crate) pages: usize,
}

impl Layout {
    /// Returns the layout for a buffer of this capacity, in bytes; `None` if it exceeds the
    /// addresses.
    pub(crate) fn for_capacity(capacity_bytes: u64) -> Option<Self> {
        let (least, most) = FACTS_BYTES.into_inner();
        let facts = (capacity_bytes / FACTS_DIVISOR).clamp(least, most);
        let spare = SPARE_BYTES.checked_add(capacity_bytes / SPARE_DIVISOR)?;
        let chunks = capacity_bytes.checked_add(spare)?;
        Self::new(
            usize::try_from(facts).ok()?.next_multiple_of(PAGE_BYTES),
            usize::try_from(chunks).ok()?.div_ceil(PAGE_BYTES),
        )
    }

    /// Returns the layout with these sizes; `None` if a file cannot have it.
    pub(crate) fn new(facts_bytes: usize, pages: usize) -> Option<Self> {
        let heads = pages.checked_mul(CHUNK_HEAD_BYTES)?;
        let chunks = pages.checked_mul(PAGE_BYTES)?;
        let facts = facts_bytes.checked_mul(2)?;
        let most = isize::MAX as usize - 2 * PAGE_BYTES;
        let all = facts.checked_add(heads)?.checked_add(chunks)?;
        let is_valid = facts_bytes.is_multiple_of(PAGE_BYTES) && all <= most;
        is_valid.then_some(Self { facts_bytes, pages })
    }

    /// Returns the bytes of a half of the facts.
    pub(crate) fn facts(&self, half: usize) -> Range<usize> {
        let start = PAGE_BYTES + half * self.facts_bytes;
        start..start + self.facts_bytes
    }

    /// Returns the position of a word of the head of the chunk that begins with this page, in bytes.
    pub(crate) fn chunk_word(&self, page: usize, word: ChunkWord) -> usize {
        self.facts(1).end + page * CHUNK_HEAD_BYTES + word as usize * WORD_BYTES
    }

    /// Returns the position of a page, in bytes.
    pub(crate) fn page(&self, page: usize) -> usize {
        let heads = self.facts(1).end + self.pages * CHUNK_HEAD_BYTES;
        heads.next_multiple_of(PAGE_BYTES) + page * PAGE_BYTES
    }

    /// Returns the size of the file, in bytes.
    pub(crate) fn file_bytes(&self) -> usize {
        self.page(self.pages)
    }
}

/// Maximum length of a record, in bytes. The owner cuts longer facts.
pub(crate) const MAX_RECORD_BYTES: usize = 60 << 10;

/// Bytes of records that the reader checks in total, as a multiple of the size of a half.
const CHECK_FACTOR: usize = 8;

/// Appends records to a half of the facts.
#[derive(Clone, Copy)]
pub(super) struct FactsWriter<'a> {
    pub(super) memory: &'a SharedMemory,
    pub(super) layout: Layout,
    pub(super) half: usize,
}

impl FactsWriter<'_> {
    /// Empties the half.
    pub(super) fn begin(self) {
        let used = self.memory.word(HeadWord::UsedFacts.at(self.half));
        used.store(0, Ordering::Release);
        let epoch = self.memory.word(HeadWord::FactsEpoch.at(self.half));
        epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how many bytes are used.
    pub(super) fn used(self) -> usize {
        let used = self.memory.word(HeadWord::UsedFacts.at(self.half));
        used.load(Ordering::Relaxed) as usize
    }

    /// Appends a record. Returns false if the half has no space for it.
    pub(super) fn append(self, bytes: &[u8]) -> bool {
        if bytes.is_empty() || bytes.len() > MAX_RECORD_BYTES {
            return false;
        }
        let needed = WORD_BYTES + bytes.len().next_multiple_of(WORD_BYTES);
        let used = self.memory.word(HeadWord::UsedFacts.at(self.half));
        let size = self.layout.facts_bytes as u64;
        let grown = |used: u64| Some(used + needed as u64).filter(|&end| end <= size);
        let Ok(at) = used.fetch_update(Ordering::AcqRel, Ordering::Acquire, grown) else {
            return false;
        };
        let position = self.layout.facts(self.half).start + at as usize;
        if !self.memory.reserve(position, needed) {
            return false;
        }
        // A record of an earlier epoch may lie here.
        self.memory.word(position).store(0, Ordering::Release);
        for (index, part) in bytes.chunks(WORD_BYTES).enumerate() {
            let mut word = [0; WORD_BYTES];
            word[..part.len()].copy_from_slice(part);
            let target = self.memory.word(position + (index + 1) * WORD_BYTES);
            target.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        let epoch = self.memory.word(HeadWord::FactsEpoch.at(self.half));
        let checksum = checksum(bytes, epoch.load(Ordering::Acquire));
        let first = u64::from(checksum) << 32 | bytes.len() as u64;
        self.memory.word(position).store(first, Ordering::Release);
        true
    }
}

fn checksum(bytes: &[u8], epoch: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&epoch.to_le_bytes());
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Calls `take` with each record of a half, whose used bytes these are. Returns how many words
/// belong to no record.
pub(super) fn read_records<'a>(half: &'a [u8], epoch: u64, mut take: impl FnMut(&'a [u8])) -> u64 {
    let mut budget = half.len().saturating_mul(CHECK_FACTOR);
    let (mut rest, mut skipped) = (half, 0);
    while let Some((first, after)) = rest.split_first_chunk::<WORD_BYTES>() {
        let first = u64::from_le_bytes(*first);
        let (length, expected) = (first as u32 as usize, (first >> 32) as u32);
        let record = after.get(..length).filter(|record| {
            let is_possible = !record.is_empty() && length <= MAX_RECORD_BYTES && length <= budget;
            if is_possible {
                budget -= length;
            }
            is_possible && checksum(record, epoch) == expected
        });
        match record {
            Some(record) => {
                take(record);
                let end = length.next_multiple_of(WORD_BYTES);
                rest = after.get(end..).unwrap_or_default();
            }
            None => {
                skipped += 1;
                rest = after;
            }
        }
    }
    skipped
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another_and_the_size_is_bounded_by_the_capacity() {
        for capacity in [256u64 << 10, 1 << 20, (128 << 20) + 5, 2 << 30] {
            let layout = Layout::for_capacity(capacity).expect("a layout");
            assert_eq!(layout.facts(0).start, PAGE_BYTES);
            assert_eq!(layout.facts(0).end, layout.facts(1).start);
            assert_eq!(
                layout.chunk_word(0, ChunkWord::Sequence),
                layout.facts(1).end
            );
            let last_head = layout.chunk_word(layout.pages - 1, ChunkWord::Sequence);
            assert!(last_head + CHUNK_HEAD_BYTES <= layout.page(0));
            let bytes = layout.file_bytes() as u64;
            assert!(bytes > capacity + capacity / 8);
            assert!(bytes < capacity + capacity / 4 + (19 << 20), "{capacity}");
            assert_eq!(Layout::new(layout.facts_bytes, layout.pages), Some(layout));
        }
    }

    #[test]
    fn layout_that_no_file_can_have_is_refused() {
        assert_eq!(Layout::for_capacity(u64::MAX), None);
        for (facts, pages) in [
            (usize::MAX, 1),
            (4097, 1),
            (4096, usize::MAX),
            (4096, 1 << 60),
        ] {
            assert_eq!(Layout::new(facts, pages), None, "{facts} {pages}");
        }
    }

    fn area() -> (SharedMemory, Layout) {
        let layout = Layout::new(1 << 16, 1).expect("a layout");
        (SharedMemory::for_test(layout.file_bytes()), layout)
    }

    fn bytes_of(memory: &SharedMemory, layout: Layout, half: usize) -> (Vec<u8>, u64) {
        let start = layout.facts(half).start;
        let word = |at| memory.word(at).load(Ordering::Relaxed);
        let used = word(HeadWord::UsedFacts.at(half)) as usize;
        let words = (0..used).step_by(WORD_BYTES);
        let bytes = words.flat_map(|at| word(start + at).to_le_bytes());
        (bytes.collect(), word(HeadWord::FactsEpoch.at(half)))
    }

    fn records((bytes, epoch): &(Vec<u8>, u64)) -> (Vec<Vec<u8>>, u64) {
        let mut all = Vec::new();
        let skipped = read_records(bytes, *epoch, |record| all.push(record.to_vec()));
        (all, skipped)
    }

    #[test]
    fn records_of_any_length_are_read_back_until_the_half_is_full() {
        let (memory, layout) = area();
        let writer = FactsWriter {
            memory: &memory,
            layout,
            half: 1,
        };
        let mut expected = Vec::new();
        for length in (1..).step_by(37) {
            let record = vec![length as u8; length];
            if !writer.append(&record) {
                break;
            }
            expected.push(record);
        }
        assert!(expected.len() > 30);
        assert!(!writer.append(&[]) && !writer.append(&[0; MAX_RECORD_BYTES + 1]));
        assert_eq!(records(&bytes_of(&memory, layout, 1)), (expected, 0));
        assert_eq!(records(&bytes_of(&memory, layout, 0)), (vec![], 0));
        // An emptied half has none of its old records.
        writer.begin();
        assert_eq!(writer.used(), 0);
        assert!(writer.append(b"new"));
        assert_eq!(
            records(&bytes_of(&memory, layout, 1)),
            (vec![b"new".to_vec()], 0)
        );
    }

    #[test]
    fn record_behind_a_gap_is_found() {
        let (memory, layout) = area();
        let writer = FactsWriter {
            memory: &memory,
            layout,
            half: 0,
        };
        assert!(
            writer.append(b"first")
                && writer.append(b"damaged, and long")
                && writer.append(b"last")
        );
        let (mut bytes, epoch) = bytes_of(&memory, layout, 0);
        bytes[16..24].fill(0);
        let expected = vec![b"first".to_vec(), b"last".to_vec()];
        assert_eq!(records(&(bytes.clone(), epoch)), (expected, 4));
        // In another epoch none of them is valid.
        assert_eq!(records(&(bytes, epoch + 1)).0.len(), 0);
    }
}
