//! Reads a file whose process has ended, or is still writing. Accepts any bytes.

use std::fmt;
use std::io;
use std::ops::Range;

use crate::buffer::crash_area::area::AreaOwner;
use crate::buffer::crash_area::layout::{
    CHUNK_HEAD_BYTES, ChunkWord, HeadWord, Layout, MAGIC, OWNER_WORDS, PAGE_BYTES, VERSION,
    read_records,
};
use crate::types::{Generation, TimeStamp};
use crate::util::{WORD_BYTES, try_vec};

/// Maximum size of a chunk, in bytes.
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// Heads that are read at once.
const HEADS_AT_ONCE: usize = 1024;

/// Reads bytes from a position of the file, and returns their number.
pub(crate) type ReadAt<'a> = &'a dyn Fn(&mut [u8], u64) -> io::Result<usize>;

/// Why a file cannot be read.
#[derive(Debug)]
pub(crate) enum AreaError {
    /// The operating system's error.
    Io(io::Error),
    /// The file is something else; the words say what was found.
    NotACrashFile(&'static str),
    Version(u64),
    OutOfMemory,
}

impl From<io::Error> for AreaError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for AreaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "got \"{error}\", expected a readable file"),
            Self::NotACrashFile(found) => write!(f, "got {found}, expected a crash file"),
            Self::Version(version) => {
                write!(f, "got version {version}, expected version {VERSION}")
            }
            Self::OutOfMemory => f.write_str("got no memory, expected enough for its chunks"),
        }
    }
}

/// The first page of a file.
#[derive(Debug)]
pub(crate) struct AreaHead {
    words: Vec<u64>,
    layout: Layout,
}

/// A chunk of the file.
#[derive(Debug)]
pub(crate) struct FoundChunk {
    pub(crate) number: u64,
    /// Position of the first byte among all chunks of the session.
    pub(crate) range_start: u64,
    /// The complete bytes.
    pub(crate) bytes: Vec<u8>,
}

/// The chunks of a file.
#[derive(Debug, Default)]
pub(crate) struct FoundChunks {
    /// Oldest first, by the time at which they were begun.
    pub(crate) chunks: Vec<FoundChunk>,
    /// Number of chunks whose heads contradict themselves or others.
    pub(crate) damaged: u64,
}

/// The facts of a file.
#[derive(Debug, Default)]
pub(crate) struct FoundFacts {
    bytes: Vec<u8>,
    /// Where each fact lies in `bytes`, oldest first.
    facts: Vec<Range<usize>>,
    /// Number of words that belong to no fact.
    pub(crate) damaged_words: u64,
}

impl FoundFacts {
    pub(crate) fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.facts.iter().map(|range| &self.bytes[range.clone()])
    }
}

/// Fills all of `bytes`; what the file does not have becomes 0.
fn read_all(read: ReadAt<'_>, bytes: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match read(&mut bytes[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count.min(bytes.len() - filled),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes[filled..].fill(0);
    Ok(filled)
}

fn zeros(length: usize) -> Result<Vec<u8>, AreaError> {
    let mut bytes = try_vec(length).ok_or(AreaError::OutOfMemory)?;
    bytes.resize(length, 0);
    Ok(bytes)
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

impl AreaHead {
    /// Reads the head of a file of this size.
    ///
    /// # Errors
    /// The file is not a crash file of this version, or cannot be read.
    pub(crate) fn read(read: ReadAt<'_>, file_bytes: u64) -> Result<Self, AreaError> {
        let mut page = zeros(PAGE_BYTES)?;
        let got = read_all(read, &mut page, 0)?;
        let words: Vec<u64> = words_of(&page).collect();
        if got == 0 {
            return Err(AreaError::NotACrashFile("an empty file"));
        }
        if words[HeadWord::Magic as usize] != MAGIC {
            return Err(AreaError::NotACrashFile("another kind of file"));
        }
        let version = words[HeadWord::Version as usize];
        if version != VERSION {
            return Err(AreaError::Version(version));
        }
        let size = |word: HeadWord| usize::try_from(words[word as usize]).ok();
        let sizes = size(HeadWord::FactsBytes).zip(size(HeadWord::Pages));
        let layout = sizes.and_then(|(facts, pages)| Layout::new(facts, pages));
        let Some(layout) = layout else {
            return Err(AreaError::NotACrashFile("a damaged head"));
        };
        let is_whole = layout.file_bytes() as u64 == words[HeadWord::FileBytes as usize];
        if got < PAGE_BYTES || layout.file_bytes() as u64 > file_bytes {
            return Err(AreaError::NotACrashFile("a part of a crash file"));
        }
        match is_whole {
            true => Ok(Self { words, layout }),
            false => Err(AreaError::NotACrashFile("a damaged head")),
        }
    }

    fn get(&self, word: HeadWord) -> u64 {
        self.words[word as usize]
    }

    pub(crate) fn owner(&self) -> AreaOwner {
        AreaOwner {
            process: self.get(HeadWord::Process),
            ticks: self.get(HeadWord::ProcessTicks),
        }
    }

    pub(crate) fn session(&self) -> Generation {
        Generation::from_number(self.get(HeadWord::Session))
    }

    /// Returns a word whose meaning the owner knows.
    pub(crate) fn owner_word(&self, index: usize) -> u64 {
        let index = (index < OWNER_WORDS).then_some(HeadWord::Owner as usize + index);
        index.map_or(0, |index| self.words[index])
    }

    /// Returns the time from which on no entry was discarded, if any was.
    pub(crate) fn complete_since(&self) -> Option<TimeStamp> {
        let time = self.get(HeadWord::CompleteSince);
        (time > 0).then_some(TimeStamp(time))
    }

    /// Returns the numbers of discarded chunks, of their bytes and of their entries.
    pub(crate) fn discarded(&self) -> [u64; 3] {
        [
            HeadWord::DiscardedChunks,
            HeadWord::DiscardedBytes,
            HeadWord::DiscardedEntries,
        ]
        .map(|word| self.get(word))
    }

    /// Returns the number of chunks that lay outside of the file.
    pub(crate) fn chunks_outside(&self) -> u64 {
        self.get(HeadWord::ChunksOutside)
    }

    /// Returns the number of facts that were dropped for lack of space.
    pub(crate) fn lost_facts(&self) -> u64 {
        self.get(HeadWord::LostFacts)
    }

    /// Reads the facts. Those of the growing half come last.
    ///
    /// # Errors
    /// The file cannot be read, or there is not enough memory.
    pub(crate) fn read_facts(&self, read: ReadAt<'_>) -> Result<FoundFacts, AreaError> {
        let mut found = FoundFacts::default();
        let active = (self.get(HeadWord::ActiveFacts) & 1) as usize;
        for half in [active ^ 1, active] {
            let range = self.layout.facts(half);
            let used = self.words[HeadWord::UsedFacts as usize + half];
            let used = usize::try_from(used).map_or(range.len(), |used| used.min(range.len()));
            let mut bytes = zeros(used)?;
            read_all(read, &mut bytes, range.start as u64)?;
            let epoch = self.words[HeadWord::FactsEpoch as usize + half];
            let before = found.bytes.len();
            let start = bytes.as_ptr().addr();
            let facts = &mut found.facts;
            found.damaged_words += read_records(&bytes, epoch, |record| {
                let at = before + (record.as_ptr().addr() - start);
                facts.push(at..at + record.len());
            });
            let has_space = found.bytes.try_reserve(bytes.len()).is_ok();
            has_space.then_some(()).ok_or(AreaError::OutOfMemory)?;
            found.bytes.append(&mut bytes);
        }
        Ok(found)
    }

    /// Reads the chunks. Leaves out a chunk that the process recycles during the call.
    ///
    /// # Errors
    /// The file cannot be read, or there is not enough memory.
    pub(crate) fn read_chunks(&self, read: ReadAt<'_>) -> Result<FoundChunks, AreaError> {
        let mut found = FoundChunks::default();
        let mut heads = zeros(HEADS_AT_ONCE * CHUNK_HEAD_BYTES)?;
        // Pages before this one belong to chunks that were found.
        let mut free_from = 0;
        for first in (0..self.layout.pages).step_by(HEADS_AT_ONCE) {
            let count = HEADS_AT_ONCE.min(self.layout.pages - first);
            let bytes = &mut heads[..count * CHUNK_HEAD_BYTES];
            let position = self.layout.chunk_word(first, ChunkWord::Sequence);
            read_all(read, bytes, position as u64)?;
            for (index, head) in bytes.chunks(CHUNK_HEAD_BYTES).enumerate() {
                let head = ChunkHead::of(head);
                if !head.has_content() || head.session() != self.session() {
                    continue;
                }
                let page = first + index;
                let Some(committed) = head.committed_bytes(self.layout.pages - page) else {
                    found.damaged += 1;
                    continue;
                };
                if page < free_from {
                    found.damaged += 1;
                    continue;
                }
                free_from = page + head.pages();
                if committed == 0 {
                    continue;
                }
                let mut bytes = zeros(committed)?;
                let got = read_all(read, &mut bytes, self.layout.page(page) as u64)?;
                bytes.truncate(got);
                if self.is_unchanged(read, page, head)? {
                    let space = found.chunks.try_reserve(1);
                    space.map_err(|_| AreaError::OutOfMemory)?;
                    found.chunks.push(FoundChunk {
                        number: head.word(ChunkWord::Number),
                        range_start: head.word(ChunkWord::RangeStart),
                        bytes,
                    });
                }
            }
        }
        let order = |chunk: &FoundChunk| (chunk.range_start, chunk.number);
        found.chunks.sort_unstable_by_key(order);
        Ok(found)
    }

    /// Returns whether a chunk still has the content that its head described.
    fn is_unchanged(
        &self,
        read: ReadAt<'_>,
        page: usize,
        head: ChunkHead,
    ) -> Result<bool, AreaError> {
        let mut sequence = [0; WORD_BYTES];
        let position = self.layout.chunk_word(page, ChunkWord::Sequence);
        read_all(read, &mut sequence, position as u64)?;
        Ok(u64::from_le_bytes(sequence) == head.word(ChunkWord::Sequence))
    }
}

/// The head of a chunk.
#[derive(Clone, Copy)]
struct ChunkHead([u64; CHUNK_HEAD_BYTES / WORD_BYTES]);

impl ChunkHead {
    fn of(bytes: &[u8]) -> Self {
        let mut words = [0; CHUNK_HEAD_BYTES / WORD_BYTES];
        words
            .iter_mut()
            .zip(words_of(bytes))
            .for_each(|(word, read)| *word = read);
        Self(words)
    }

    fn word(self, word: ChunkWord) -> u64 {
        self.0[word as usize]
    }

    fn has_content(self) -> bool {
        let sequence = self.word(ChunkWord::Sequence);
        sequence > 0 && sequence.is_multiple_of(2)
    }

    fn session(self) -> Generation {
        Generation::from_number(self.word(ChunkWord::Session))
    }

    /// Returns the number of pages, if [`Self::committed_bytes`] has found it possible.
    fn pages(self) -> usize {
        (self.word(ChunkWord::Bytes) as usize).div_ceil(PAGE_BYTES)
    }

    /// Returns the number of complete bytes of a chunk that `max_pages` pages are left for; `None`
    /// if the head contradicts itself.
    fn committed_bytes(self, max_pages: usize) -> Option<usize> {
        let bytes = usize::try_from(self.word(ChunkWord::Bytes)).ok()?;
        let committed = usize::try_from(self.word(ChunkWord::Committed)).ok()?;
        let is_possible = bytes <= MAX_CHUNK_BYTES && bytes.div_ceil(PAGE_BYTES) <= max_pages;
        (is_possible && committed <= bytes).then_some(committed)
    }
}
