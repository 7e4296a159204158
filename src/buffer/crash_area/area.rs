//! A session's file as its process writes it.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::buffer::crash_area::layout::{
    CHUNK_HEAD_BYTES, ChunkWord, FactsWriter, HeadWord, Layout, MAGIC, OWNER_WORDS, PAGE_BYTES,
    VERSION,
};
use crate::types::{Generation, TimeStamp};
use crate::util::{SharedMemory, WORD_BYTES};

/// The process that writes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AreaOwner {
    pub(crate) process: u64,
    /// The time at which the kernel started the process, in ticks since the boot.
    pub(crate) ticks: u64,
}

/// The mapped file of a session. The chunks of the session and the session itself share it.
#[derive(Debug)]
pub(crate) struct CrashArea {
    memory: SharedMemory,
    layout: Layout,
    pages: PageMap,
    /// Whether this process may write: false in the child of a fork, which has the same pages.
    is_own: AtomicBool,
    /// Number of used bytes from which on the facts should be written again.
    rewrite_at: AtomicUsize,
}

impl CrashArea {
    /// Returns the size of the file for a buffer of this capacity, in bytes; `None` if it is too
    /// large.
    pub(crate) fn file_bytes(capacity_bytes: u64) -> Option<usize> {
        Some(Layout::for_capacity(capacity_bytes)?.file_bytes())
    }

    /// Begins a file, whose memory is zeroed and has the size for this capacity. Returns `None` if
    /// it has another size, or if there is not enough memory.
    pub(crate) fn begin(
        memory: SharedMemory,
        capacity_bytes: u64,
        session: Generation,
        owner: AreaOwner,
    ) -> Option<Arc<Self>> {
        Self::begin_with(
            memory,
            Layout::for_capacity(capacity_bytes)?,
            session,
            owner,
        )
    }

    /// Begins a file with this layout.
    pub(crate) fn begin_with(
        memory: SharedMemory,
        layout: Layout,
        session: Generation,
        owner: AreaOwner,
    ) -> Option<Arc<Self>> {
        if memory.bytes() != layout.file_bytes() {
            return None;
        }
        let area = Self {
            pages: PageMap::try_new(layout.pages)?,
            memory,
            layout,
            is_own: AtomicBool::new(true),
            rewrite_at: AtomicUsize::new(layout.facts_bytes / 2),
        };
        for (word, value) in [
            (HeadWord::Version, VERSION),
            (HeadWord::FileBytes, layout.file_bytes() as u64),
            (HeadWord::FactsBytes, layout.facts_bytes as u64),
            (HeadWord::Pages, layout.pages as u64),
            (HeadWord::Session, session.to_number()),
            (HeadWord::Process, owner.process),
            (HeadWord::ProcessTicks, owner.ticks),
        ] {
            area.head(word).store(value, Ordering::Relaxed);
        }
        area.head(HeadWord::Magic).store(MAGIC, Ordering::Release);
        Some(Arc::new(area))
    }

    fn head(&self, word: HeadWord) -> &AtomicU64 {
        self.memory.word(word.at(0))
    }

    /// Returns whether this process may write to the file.
    fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Makes this process write no more, in the child of a fork.
    pub(crate) fn disown(&self) {
        self.is_own.store(false, Ordering::Relaxed);
    }

    /// Sets a word whose meaning the owner knows. A word beyond the last one is dropped.
    pub(crate) fn set_word(&self, index: usize, value: u64) {
        if index < OWNER_WORDS && self.is_own() {
            let word = self.memory.word(HeadWord::Owner.at(index));
            word.store(value, Ordering::Release);
        }
    }

    fn facts(&self, half: usize) -> FactsWriter<'_> {
        FactsWriter {
            memory: &self.memory,
            layout: self.layout,
            half,
        }
    }

    fn active_half(&self) -> usize {
        (self.head(HeadWord::ActiveFacts).load(Ordering::Acquire) & 1) as usize
    }

    /// Appends a fact. Without space for it, counts it as lost.
    pub(crate) fn add_fact(&self, fact: &[u8]) {
        if self.is_own() && !self.facts(self.active_half()).append(fact) {
            self.head(HeadWord::LostFacts)
                .fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns whether [`Self::rewrite_facts`] should be called: few bytes are left.
    pub(crate) fn wants_rewrite(&self) -> bool {
        self.facts(self.active_half()).used() >= self.rewrite_at.load(Ordering::Relaxed)
    }

    /// Replaces all facts by those that `write` passes to its argument. Facts that other threads add
    /// during the call are kept. Called by one thread at a time.
    pub(crate) fn rewrite_facts(&self, write: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        if !self.is_own() {
            return;
        }
        let half = self.active_half() ^ 1;
        let facts = self.facts(half);
        facts.begin();
        let mut lost = 0;
        write(&mut |fact| lost += u64::from(!facts.append(fact)));
        self.head(HeadWord::LostFacts)
            .fetch_add(lost, Ordering::Relaxed);
        // What remains is used up by half before the next time.
        let used = facts.used();
        let left = self.layout.facts_bytes - used.min(self.layout.facts_bytes);
        self.rewrite_at.store(used + left / 2, Ordering::Relaxed);
        self.head(HeadWord::ActiveFacts)
            .store(half as u64, Ordering::Release);
    }

    /// Returns the size of the file, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.bytes() as u64
    }

    /// Reads bytes from a position as a reader of the file does, and returns their number. Both must
    /// be multiples of 8.
    ///
    /// # Errors
    /// None; the result is that of reading a file.
    pub(crate) fn read_at(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        let left = self.memory.bytes().saturating_sub(position);
        let (words, _) = bytes.as_chunks_mut::<WORD_BYTES>();
        let count = words.len().min(left / WORD_BYTES);
        for (index, word) in words.iter_mut().take(count).enumerate() {
            let stored = self.memory.word(position + index * WORD_BYTES);
            *word = stored.load(Ordering::Acquire).to_le_bytes();
        }
        Ok(count * WORD_BYTES)
    }

    /// Reserves the space of a chunk that begins with this page, and of its head.
    fn reserve_chunk(&self, first: usize, bytes: usize) -> bool {
        let head = self.layout.chunk_word(first, ChunkWord::Sequence);
        self.memory.reserve(head, CHUNK_HEAD_BYTES)
            && self.memory.reserve(self.layout.page(first), bytes)
    }

    /// Takes the memory of a chunk of `bytes`. Returns `None`, and counts it, if the file has no
    /// space for it.
    pub(crate) fn take_piece(self: &Arc<Self>, bytes: usize) -> Option<AreaPiece> {
        let pages = bytes.div_ceil(PAGE_BYTES).next_power_of_two();
        let taken = Some(bytes).filter(|&bytes| bytes > 0 && self.is_own());
        let first = taken.and_then(|_| {
            let first = self.pages.take(pages)?;
            let has_space = self.reserve_chunk(first, bytes);
            if !has_space {
                self.pages.give_back(first, pages);
            }
            has_space.then_some(first)
        });
        let Some(first) = first else {
            self.head(HeadWord::ChunksOutside)
                .fetch_add(1, Ordering::Relaxed);
            return None;
        };
        Some(AreaPiece {
            area: Arc::clone(self),
            first,
            pages,
            bytes,
        })
    }
}

/// The memory of one chunk, with its head. Dropping it gives the memory back.
#[derive(Debug)]
pub(crate) struct AreaPiece {
    area: Arc<CrashArea>,
    first: usize,
    pages: usize,
    bytes: usize,
}

impl AreaPiece {
    fn head(&self, word: ChunkWord) -> &AtomicU64 {
        let position = self.area.layout.chunk_word(self.first, word);
        self.area.memory.word(position)
    }

    /// Returns the address of the chunk's bytes, which no other piece has.
    pub(crate) fn start(&self) -> NonNull<u8> {
        let position = self.area.layout.page(self.first);
        self.area.memory.part(position, self.bytes)
    }

    /// Returns the number of complete bytes, as the file says.
    pub(crate) fn committed(&self) -> &AtomicU64 {
        self.head(ChunkWord::Committed)
    }

    /// Begins a content.
    pub(crate) fn begin(&self, number: u64, session: Generation, range_start: u64) {
        if !self.area.is_own() {
            return;
        }
        self.end();
        for (word, value) in [
            (ChunkWord::Committed, 0),
            (ChunkWord::Number, number),
            (ChunkWord::RangeStart, range_start),
            (ChunkWord::Bytes, self.bytes as u64),
            (ChunkWord::Session, session.to_number()),
        ] {
            self.head(word).store(value, Ordering::Relaxed);
        }
        let sequence = self.head(ChunkWord::Sequence);
        sequence.store(sequence.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Ends the content: from now on, a reader of the file takes the bytes for garbage.
    pub(crate) fn end(&self) {
        let sequence = self.head(ChunkWord::Sequence);
        let now = sequence.load(Ordering::Relaxed);
        if now.is_multiple_of(2) && self.area.is_own() {
            sequence.store(now + 1, Ordering::Release);
            // No byte may change before the mark is set.
            std::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// Ends the content of a chunk that the buffer discards, and notes what is lost with it.
    pub(crate) fn discard(&self, done_at: TimeStamp, entries: u64) {
        if !self.area.is_own() {
            return;
        }
        let bytes = self.committed().load(Ordering::Relaxed);
        let area = &self.area;
        area.head(HeadWord::CompleteSince)
            .fetch_max(done_at.0, Ordering::Relaxed);
        for (word, number) in [
            (HeadWord::DiscardedChunks, 1),
            (HeadWord::DiscardedBytes, bytes),
            (HeadWord::DiscardedEntries, entries),
        ] {
            area.head(word).fetch_add(number, Ordering::Relaxed);
        }
        self.end();
    }
}

impl Drop for AreaPiece {
    fn drop(&mut self) {
        self.end();
        if self.area.is_own() {
            let position = self.area.layout.page(self.first);
            self.area.memory.release(position, self.pages * PAGE_BYTES);
        }
        self.area.pages.give_back(self.first, self.pages);
    }
}

#[cfg(any(test, fuzzing))]
impl CrashArea {
    /// Returns memory and the layout of a small file with space for one chunk of `bytes`.
    pub(crate) fn memory_for_test(bytes: usize) -> (SharedMemory, Layout) {
        let pages = bytes.div_ceil(PAGE_BYTES).next_power_of_two();
        let layout = Layout::new(1 << 17, pages).expect("a layout");
        (SharedMemory::for_test(layout.file_bytes()), layout)
    }
}

#[cfg(any(test, fuzzing))]
impl AreaPiece {
    /// Returns where the bytes lie in the file.
    pub(crate) fn position_for_test(&self) -> usize {
        self.area.layout.page(self.first)
    }
}

const BITS: usize = u64::BITS as usize;

/// A bit for each page, set while the page is in use.
#[derive(Debug)]
struct PageMap {
    words: Box<[AtomicU64]>,
    /// The word at which the next search begins.
    next: AtomicUsize,
}

impl PageMap {
    /// Creates a map of free pages. Returns `None` if the allocation fails.
    fn try_new(pages: usize) -> Option<Self> {
        let count = pages.div_ceil(BITS);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.extend((0..count).map(|word| {
            let used = pages - word * BITS;
            // The last word has bits for pages that do not exist.
            AtomicU64::new(if used < BITS { u64::MAX << used } else { 0 })
        }));
        Some(Self {
            words: words.into_boxed_slice(),
            next: AtomicUsize::new(0),
        })
    }

    /// Takes `pages` adjacent pages, a power of two, and returns the first one. Returns `None` if
    /// none are free.
    fn take(&self, pages: usize) -> Option<usize> {
        let start = self.next.load(Ordering::Relaxed) % self.words.len().max(1);
        let from_start = (start..self.words.len()).chain(0..start);
        let step = (pages / BITS).max(1);
        let mut places = from_start.filter(|word| word.is_multiple_of(step));
        let first = places.find_map(|word| match pages < BITS {
            true => self.take_in_word(word, pages),
            false => self.take_words(word, step).then_some(word * BITS),
        })?;
        self.next.store(first / BITS, Ordering::Relaxed);
        Some(first)
    }

    fn take_in_word(&self, word: usize, pages: usize) -> Option<usize> {
        let mask = (1u64 << pages) - 1;
        let is_free = |used: u64, at: usize| used & (mask << at) == 0;
        let place = |used| (0..BITS).step_by(pages).find(|&at| is_free(used, at));
        let with_place = |used| Some(used | mask << place(used)?);
        let taken = self.words[word].fetch_update(Ordering::AcqRel, Ordering::Acquire, with_place);
        Some(word * BITS + place(taken.ok()?)?)
    }

    fn take_words(&self, first: usize, count: usize) -> bool {
        let Some(words) = self.words.get(first..first + count) else {
            return false;
        };
        let take = |word: &AtomicU64| {
            let taken = word.compare_exchange(0, u64::MAX, Ordering::AcqRel, Ordering::Acquire);
            taken.is_ok()
        };
        let taken = words.iter().take_while(|word| take(word)).count();
        if taken < count {
            words[..taken]
                .iter()
                .for_each(|word| word.store(0, Ordering::Release));
        }
        taken == count
    }

    /// Gives back what [`Self::take`] returned.
    fn give_back(&self, first: usize, pages: usize) {
        // The lowest free pages are taken first, so that a process does not walk through the whole file.
        self.next.fetch_min(first / BITS, Ordering::Relaxed);
        let (word, at) = (first / BITS, first % BITS);
        if pages < BITS {
            let mask = ((1u64 << pages) - 1) << at;
            self.words[word].fetch_and(!mask, Ordering::AcqRel);
        } else {
            self.words[word..word + pages / BITS]
                .iter()
                .for_each(|word| word.store(0, Ordering::Release));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn pages_are_taken_once_aligned_and_again_after_they_were_given_back() {
        for pages in [1, 63, 64, 65, 1000, 1024] {
            let map = PageMap::try_new(pages).expect("memory");
            let mut taken = Vec::new();
            for count in [256, 64, 32, 4, 1] {
                while let Some(first) = map.take(count) {
                    assert!(first.is_multiple_of(count) && first + count <= pages);
                    taken.push((first, count));
                }
            }
            let all: Vec<usize> = taken
                .iter()
                .flat_map(|&(first, count)| first..first + count)
                .collect();
            assert_eq!(all.len(), pages);
            assert_eq!(all.iter().collect::<HashSet<_>>().len(), pages);
            taken
                .iter()
                .for_each(|&(first, count)| map.give_back(first, count));
            let again = (0..pages / 64).filter_map(|_| map.take(64));
            assert_eq!(again.count(), pages / 64);
        }
    }

    #[test]
    fn threads_never_share_a_page() {
        let map = PageMap::try_new(512).expect("memory");
        let owners: Vec<AtomicUsize> = (0..512).map(|_| AtomicUsize::new(0)).collect();
        let use_pages = |thread: usize| {
            for round in 0..2000usize {
                let count = 1 << ((round + thread) % 8);
                let Some(first) = map.take(count) else {
                    continue;
                };
                let own = &owners[first..first + count];
                own.iter()
                    .for_each(|owner| assert_eq!(owner.swap(thread, Ordering::AcqRel), 0));
                own.iter()
                    .for_each(|owner| assert_eq!(owner.swap(0, Ordering::AcqRel), thread));
                map.give_back(first, count);
            }
        };
        std::thread::scope(|scope| {
            (1..=4).for_each(|thread| _ = scope.spawn(move || use_pages(thread)));
        });
    }
}
