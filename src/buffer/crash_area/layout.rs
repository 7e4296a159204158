//! Where everything lies in a crash file. All numbers are words of 8 bytes, little-endian.
//!
//! ```text
//! head page   the words of `HeadWord`, those of the owner, and the session's counts
//! facts       two halves, of which one grows: see `facts_log.rs`
//! heads       64 bytes for each page of chunks: the words of `ChunkWord`
//! chunks      pages; a chunk begins with a page, whose head describes it
//! ```

use std::ops::Range;

use crate::util::WORD_BYTES;

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
}
