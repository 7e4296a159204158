//! A slab of bytes with one writer and any number of readers.
//!
//! The states of a chunk, whose transitions debug builds check:
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | fresh | ready | manager | the chunk gets a number, a session, a range and a lane |
//! | ready | in use | writer | the first entry is put |
//! | ready, in use | done | [`ChunkWriter`]'s owner | it is full or left, or its lane is idle |
//! | done | released | manager | the manager adds it to its list of complete chunks |
//! | released | discarded | manager | it is too old, or it is the oldest and the limit is reached |
//! | discarded | fresh | manager | no reader shares it, and it is recycled |
//!
//! **Contract** (cited below):
//! - *one writer*: only the owner of a chunk's [`ChunkWriter`] calls [`ChunkWriter::append`]. Each
//!   chunk has one such writer, created when the chunk becomes ready.
//! - *committed bytes are final*: bytes below `committed` are written before `committed` is raised
//!   (release), and are not written again while a reader shares the chunk. Readers access only
//!   bytes below a `committed` that they loaded (acquire).

use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::buffer::chunks::slab::Slab;
use crate::buffer::crash_area::CrashArea;
use crate::buffer::entries::{Entry, EntryCursor, number_bytes};
use crate::types::{Generation, TimeStamp};
use crate::util::{SMALL_TASK_BYTES, allocator_has};

/// Number of a chunk within its session, counted from 0. A recycled chunk gets a new number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ChunkNumber(pub(crate) u64);

/// State of a chunk; the table at the top of this file lists the transitions.
#[doc(alias = "ProfileBufferChunk::InternalHeader::State")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ChunkState {
    Fresh = 0,
    Ready = 1,
    InUse = 2,
    Done = 3,
    Released = 4,
    Discarded = 5,
}

/// Contiguous memory that holds whole blocks. Unlike Gecko's, it has no process id: a child process
/// writes a profile of its own. If the session has a crash file, the bytes lie in it, and the number
/// of complete bytes is there, too.
#[doc(alias = "ProfileBufferChunk")]
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) number: ChunkNumber,
    pub(crate) session: Generation,
    /// Position of the first byte, counted over all chunks that the session ever had.
    pub(crate) range_start: u64,
    state: AtomicU8,
    /// Time of the first append; stale until the chunk holds an entry.
    first_used_ns: AtomicU64,
    /// Latest time of an append; stale until the chunk holds an entry.
    last_used_ns: AtomicU64,
    done_ns: AtomicU64,
    entries: AtomicU64,
    committed: AtomicUsize,
    bytes: Slab,
}

/// The only handle that can append to a chunk.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    chunk: Arc<Chunk>,
}

/// A fresh chunk with one owner.
#[derive(Debug)]
pub(crate) struct FreshChunk(Arc<Chunk>);

impl FreshChunk {
    /// Takes a chunk out of the crash file, if it exists and has space, or else allocates a chunk.
    /// Returns `None` if there is not enough memory.
    pub(crate) fn try_new(bytes: usize, area: Option<&Arc<CrashArea>>) -> Option<Self> {
        let in_file = area.and_then(|area| Slab::try_new_in(area, bytes));
        let chunk = Chunk::of_slab(in_file.or_else(|| Slab::try_new(bytes))?);
        // The `Arc` cannot be allocated fallibly.
        allocator_has(SMALL_TASK_BYTES).then(|| Self(Arc::new(chunk)))
    }

    /// Touches every page, so that the writer takes no page fault.
    pub(crate) fn touch(&mut self) {
        if let Some(chunk) = Arc::get_mut(&mut self.0) {
            chunk.bytes.touch();
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Makes the chunk ready to be written.
    pub(crate) fn begin(
        mut self,
        number: ChunkNumber,
        session: Generation,
        range_start: u64,
    ) -> (Arc<Chunk>, ChunkWriter) {
        if let Some(chunk) = Arc::get_mut(&mut self.0) {
            debug_assert_eq!(chunk.state(), ChunkState::Fresh, "cannot begin the chunk");
            chunk.committed = AtomicUsize::new(0);
            chunk.entries = AtomicU64::new(0);
            chunk.number = number;
            chunk.session = session;
            chunk.range_start = range_start;
            chunk.bytes.note_begin(number.0, session, range_start);
            chunk.set_state(&[ChunkState::Fresh], ChunkState::Ready);
        }
        (Arc::clone(&self.0), ChunkWriter { chunk: self.0 })
    }
}

impl Chunk {
    fn of_slab(bytes: Slab) -> Self {
        Self {
            number: ChunkNumber(0),
            session: Generation::from_number(0),
            range_start: 0,
            state: AtomicU8::new(ChunkState::Fresh as u8),
            first_used_ns: AtomicU64::new(0),
            last_used_ns: AtomicU64::new(0),
            done_ns: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            committed: AtomicUsize::new(0),
            bytes,
        }
    }

    /// Creates a complete chunk with these bytes, whatever they are. Returns `None` if there is no
    /// memory.
    pub(crate) fn of_bytes(
        bytes: &[u8],
        number: ChunkNumber,
        session: Generation,
        range_start: u64,
    ) -> Option<Arc<Self>> {
        let fresh = FreshChunk::try_new(bytes.len(), None)?;
        let (chunk, mut writer) = fresh.begin(number, session, range_start);
        writer.append_raw(bytes);
        Some(chunk)
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn new(bytes: usize) -> Self {
        Self::of_slab(Slab::try_new(bytes).expect("memory"))
    }

    /// Makes a new chunk ready to be written.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn begin(
        self,
        number: ChunkNumber,
        session: Generation,
        range_start: u64,
    ) -> (Arc<Self>, ChunkWriter) {
        FreshChunk(Arc::new(self)).begin(number, session, range_start)
    }

    /// Makes a discarded chunk fresh again, without an allocation. Returns `None` while a reader
    /// shares the chunk; that reader then frees it.
    pub(crate) fn recycle(mut chunk: Arc<Self>) -> Option<FreshChunk> {
        debug_assert_eq!(
            chunk.state(),
            ChunkState::Discarded,
            "cannot recycle the chunk"
        );
        Arc::get_mut(&mut chunk)?.set_state(&[ChunkState::Discarded], ChunkState::Fresh);
        Some(FreshChunk(chunk))
    }

    pub(crate) fn state(&self) -> ChunkState {
        match self.state.load(Ordering::Acquire) {
            0 => ChunkState::Fresh,
            1 => ChunkState::Ready,
            2 => ChunkState::InUse,
            3 => ChunkState::Done,
            4 => ChunkState::Released,
            _ => ChunkState::Discarded,
        }
    }

    fn set_state(&self, from: &[ChunkState], to: ChunkState) {
        debug_assert!(
            from.contains(&self.state()),
            "cannot change a chunk from {:?} to {to:?}: expected one of {from:?}",
            self.state()
        );
        self.state.store(to as u8, Ordering::Release);
    }

    /// Marks the chunk as released. Called by the manager when it adds the chunk to its list.
    pub(crate) fn set_released(&self) {
        self.set_state(&[ChunkState::Done], ChunkState::Released);
    }

    /// Marks the chunk as discarded. Called by the manager when it removes the chunk from its list.
    pub(crate) fn set_discarded(&self) {
        self.bytes.note_discarded(self.done_at(), self.entries());
        self.set_state(&[ChunkState::Released], ChunkState::Discarded);
    }

    /// Returns whether only readers still hold the chunk.
    pub(crate) fn is_discarded(&self) -> bool {
        self.state() == ChunkState::Discarded
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the time of the first append, or `None` while the chunk is empty.
    pub(crate) fn first_used(&self) -> Option<TimeStamp> {
        let is_used = self.committed.load(Ordering::Acquire) > 0;
        is_used.then(|| TimeStamp(self.first_used_ns.load(Ordering::Relaxed)))
    }

    /// Returns the latest time of an append; valid once the chunk holds an entry.
    pub(crate) fn last_used(&self) -> TimeStamp {
        TimeStamp(self.last_used_ns.load(Ordering::Relaxed))
    }

    /// Returns the time at which the chunk was done; valid from that state on.
    pub(crate) fn done_at(&self) -> TimeStamp {
        TimeStamp(self.done_ns.load(Ordering::Relaxed))
    }

    /// Returns the number of committed entries; may lag behind a concurrent writer.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that were committed before this call, always whole blocks.
    pub(crate) fn committed(&self) -> usize {
        self.committed.load(Ordering::Acquire)
    }

    /// Returns the bytes that were committed before this call.
    pub(crate) fn committed_bytes(&self) -> &[u8] {
        // SAFETY: *committed bytes are final*.
        unsafe { self.bytes.read(self.committed()) }
    }
}

impl ChunkWriter {
    /// Creates the writer of a chunk that was taken out of a `TakeCell` or a `WritingCell`. During
    /// a write, the chunk may still be in its `WritingCell`.
    pub(crate) fn from_chunk(chunk: Arc<Chunk>) -> Self {
        Self { chunk }
    }

    pub(crate) fn into_chunk(self) -> Arc<Chunk> {
        self.chunk
    }

    pub(crate) fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// Ends writing and marks the chunk as done, at `now` or at the time of its last entry if that
    /// is later.
    pub(crate) fn finish(self, now: TimeStamp) {
        let last_used_ns = if self.chunk.committed() > 0 {
            self.chunk.last_used_ns.load(Ordering::Relaxed)
        } else {
            0
        };
        self.chunk
            .done_ns
            .store(now.0.max(last_used_ns), Ordering::Relaxed);
        self.chunk
            .set_state(&[ChunkState::Ready, ChunkState::InUse], ChunkState::Done);
    }

    /// Appends a block. Returns false if it does not fit; readers see no change then.
    #[inline(always)]
    pub(crate) fn append<E: Entry>(&mut self, now: TimeStamp, entry: &E) -> bool {
        let chunk = &*self.chunk;
        let start = chunk.committed.load(Ordering::Relaxed);
        let space = chunk.capacity() - start;
        let entry_bytes = if E::HAS_CHEAP_LENGTH {
            entry.bytes()
        } else {
            0
        };
        let target_bytes = match E::HAS_CHEAP_LENGTH {
            true => block_bytes(entry_bytes),
            false => space.min(MAX_LENGTH_LAST_BYTES),
        };
        if target_bytes > space {
            return false;
        }
        // SAFETY: *one writer*: `&mut self` is the chunk's only writer, and these bytes lie above
        // `committed`.
        let target = unsafe { chunk.bytes.slice_mut(start, target_bytes) };
        let written = match E::HAS_CHEAP_LENGTH {
            true => write_length_first(entry, entry_bytes, target),
            false => write_length_last(entry, target),
        };
        let Some(bytes) = written else { return false };
        if start == 0 {
            chunk.first_used_ns.store(now.0, Ordering::Relaxed);
            chunk.last_used_ns.store(now.0, Ordering::Relaxed);
            chunk.set_state(&[ChunkState::Ready], ChunkState::InUse);
        } else if now.0 > chunk.last_used_ns.load(Ordering::Relaxed) {
            chunk.last_used_ns.store(now.0, Ordering::Relaxed);
        }
        chunk
            .entries
            .store(chunk.entries.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        chunk.committed.store(start + bytes, Ordering::Release);
        chunk.bytes.note_committed(start + bytes);
        true
    }

    /// Fills an empty chunk with arbitrary bytes.
    fn append_raw(&mut self, bytes: &[u8]) {
        self.chunk
            .set_state(&[ChunkState::Ready], ChunkState::InUse);
        // SAFETY: *one writer*: `&mut self` is the chunk's only writer, and the chunk is empty, so
        // these bytes lie above `committed`.
        unsafe { self.chunk.bytes.slice_mut(0, bytes.len()) }.copy_from_slice(bytes);
        self.chunk.committed.store(bytes.len(), Ordering::Release);
    }
}

/// Returns the length of the block that holds an entry of `entry_bytes`, in bytes.
#[inline(always)]
pub(crate) const fn block_bytes(entry_bytes: usize) -> usize {
    number_bytes(entry_bytes as u64) + entry_bytes
}

/// Returns the number of bytes that an entry needs in an empty chunk.
pub(crate) fn new_block_bytes<E: Entry>(entry: &E) -> usize {
    let bytes = entry.bytes();
    if E::HAS_CHEAP_LENGTH {
        block_bytes(bytes)
    } else {
        LENGTH_BYTES.saturating_add(bytes)
    }
}

/// Maximum length of a block whose entry is written before its length, in bytes: the length then
/// takes [`LENGTH_BYTES`], which hold 21 bits.
const MAX_LENGTH_LAST_BYTES: usize = LENGTH_BYTES + (1 << 21) - 1;
/// Bytes reserved for a length that is written after its entry.
const LENGTH_BYTES: usize = 3;

/// Writes the length, then the entry, to `target`, which is exactly as long as the block.
#[inline(always)]
fn write_length_first(entry: &impl Entry, entry_bytes: usize, target: &mut [u8]) -> Option<usize> {
    let bytes = target.len();
    let mut cursor = EntryCursor::new(target);
    cursor.number(entry_bytes as u64);
    entry.write(&mut cursor);
    debug_assert!(
        cursor.left() == 0 && !cursor.is_overrun(),
        "an entry wrote a different number of bytes than `Entry::bytes` returned"
    );
    Some(bytes)
}

/// Writes the entry to `target` and then its length in front of it. `target` may be longer than the
/// block. Returns the block's length, or `None` if the block does not fit.
#[inline(always)]
fn write_length_last(entry: &impl Entry, target: &mut [u8]) -> Option<usize> {
    let (length_target, entry_target) = target.split_first_chunk_mut::<LENGTH_BYTES>()?;
    let space = entry_target.len();
    let mut cursor = EntryCursor::new(entry_target);
    entry.write(&mut cursor);
    if cursor.is_overrun() {
        return None;
    }
    let length = space - cursor.left();
    *length_target = [
        length as u8 | 0x80,
        (length >> 7) as u8 | 0x80,
        (length >> 14) as u8,
    ];
    Some(LENGTH_BYTES + length)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::entries::leb128::decode;

    const SESSION: Generation = Generation::from_number(1);

    fn begun(bytes: usize, number: u64, range_start: u64) -> (Arc<Chunk>, ChunkWriter) {
        Chunk::new(bytes).begin(ChunkNumber(number), SESSION, range_start)
    }

    #[test]
    fn append_adds_a_whole_block_or_nothing() {
        let (chunk, mut writer) = begun(8, 3, 100);
        assert_eq!(
            (chunk.state(), chunk.first_used()),
            (ChunkState::Ready, None)
        );
        assert!(writer.append(TimeStamp(5), &&b"abc"[..]));
        assert!(!writer.append(TimeStamp(6), &&b"1234"[..]));
        assert!(writer.append(TimeStamp(7), &&b"123"[..]));
        assert!(!writer.append(TimeStamp(8), &&b"x"[..]));
        assert_eq!(
            (chunk.committed_bytes(), chunk.entries()),
            (&b"\x03abc\x03123"[..], 2)
        );
        assert_eq!(
            (chunk.state(), chunk.first_used()),
            (ChunkState::InUse, Some(TimeStamp(5)))
        );
        writer.finish(TimeStamp(6));
        assert_eq!(
            (chunk.state(), chunk.done_at()),
            (ChunkState::Done, TimeStamp(7)),
            "done no earlier than the last entry"
        );
        chunk.set_released();
        assert!(!chunk.is_discarded());
        chunk.set_discarded();
        let shared = Arc::clone(&chunk);
        assert!(Chunk::recycle(chunk).is_none(), "a reader shares it");
        let again = Chunk::recycle(shared).expect("the only reference");
        let (again, mut writer) = again.begin(ChunkNumber(4), SESSION, 200);
        assert_eq!(
            (again.committed_bytes(), again.entries(), again.first_used()),
            (&b""[..], 0, None)
        );
        assert!(writer.append(TimeStamp(10), &&b"new"[..]));
        assert_eq!(again.committed_bytes(), b"\x03new");
    }

    /// An entry whose length is known only after it is written.
    struct LengthLast<'a>(&'a [u8]);

    impl Entry for LengthLast<'_> {
        const HAS_CHEAP_LENGTH: bool = false;

        fn bytes(&self) -> usize {
            self.0.len()
        }

        fn write(&self, out: &mut EntryCursor<'_>) {
            self.0.chunks(1000).for_each(|part| out.raw(part));
        }
    }

    #[test]
    fn entry_written_before_its_length_has_its_length_in_front() {
        let (chunk, mut writer) = begun(20_000, 3, 100);
        let bytes: Vec<u8> = (0..17_000u32).map(|index| index as u8).collect();
        let mut expected = Vec::new();
        for length in [1usize, 127, 128, 16_383] {
            assert!(writer.append(TimeStamp(5), &LengthLast(&bytes[..length])));
            let (read, length_bytes) =
                decode(&chunk.committed_bytes()[expected.len()..]).expect("a number");
            assert_eq!((read, length_bytes), (length as u64, LENGTH_BYTES));
            expected.extend_from_slice(&chunk.committed_bytes()[expected.len()..][..LENGTH_BYTES]);
            expected.extend_from_slice(&bytes[..length]);
        }
        assert_eq!(
            (chunk.committed_bytes(), chunk.entries()),
            (&expected[..], 4)
        );
        let left = 20_000 - expected.len();
        let (first_used, before) = (chunk.first_used(), chunk.committed());
        assert!(!writer.append(TimeStamp(6), &LengthLast(&bytes[..left - LENGTH_BYTES + 1])));
        assert_eq!(
            (chunk.committed(), chunk.first_used(), chunk.entries()),
            (before, first_used, 4)
        );
        assert!(writer.append(TimeStamp(7), &LengthLast(&bytes[..left - LENGTH_BYTES - 2])));
        assert!(
            !writer.append(TimeStamp(8), &LengthLast(b"")),
            "its length does not fit"
        );
        assert!(writer.append(TimeStamp(8), &&b"x"[..]));
        assert_eq!(chunk.committed(), 20_000);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "from Released to InUse")]
    fn append_to_a_released_chunk_panics() {
        let (chunk, writer) = begun(8, 0, 0);
        writer.finish(TimeStamp(1));
        chunk.set_released();
        ChunkWriter::from_chunk(chunk).append(TimeStamp(2), &&b"x"[..]);
    }

    #[test]
    fn concurrent_reader_sees_only_whole_blocks() {
        let (chunk, mut writer) = begun(1 << 20, 0, 0);
        let reader = std::thread::spawn(move || {
            loop {
                let bytes = chunk.committed_bytes();
                assert_eq!(bytes.len() % 4, 0);
                for (index, block) in bytes.chunks_exact(4).enumerate() {
                    let word = (index as u32).to_le_bytes();
                    assert_eq!(block, [3, word[0], word[1], word[2]]);
                }
                if bytes.len() == 1 << 20 {
                    return;
                }
            }
        });
        for index in 0..1u32 << 18 {
            let word = index.to_le_bytes();
            assert!(writer.append(TimeStamp(0), &&word[..3]), "it fits");
        }
        reader.join().expect("the reader");
    }
}
