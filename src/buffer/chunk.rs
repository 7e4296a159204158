//! A slab of bytes with one writer and any number of readers.
//!
//! A chunk's life, which debug builds check:
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | fresh | ready | manager | it gets its number, its session and its range, and a lane |
//! | ready | in use | writer | the first entry is put |
//! | ready, in use | done | who has the right to write | it is full, or its lane has ended or gone quiet |
//! | done | released | manager | it is on the list of those that the oldest is recycled of |
//! | released | given up | manager | it is the oldest, and the limit is reached, or it is too old |
//! | given up | fresh | manager | no reader shares it, and it is used again |
//!
//! **Contract** (cited below):
//! - *one writer*: [`WriteRight::append`] is called by whoever owns the chunk's [`WriteRight`]; there is one for each
//!   chunk, made when the chunk becomes ready;
//! - *committed bytes rest*: bytes below `committed` are written before `committed` is raised (release), and are not
//!   written again while anybody else shares the chunk; readers look only below a `committed` that they loaded
//!   (acquire).

use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::base::{Generation, TimeStamp};
use crate::buffer::entry::{Entry, EntryCursor, number_bytes};
use crate::buffer::index::ChunkNumber;
use crate::buffer::slab::Slab;

/// Where a chunk is in its life.
#[doc(alias = "ProfileBufferChunk::InternalHeader::State")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum ChunkLife {
    Fresh = 0,
    Ready = 1,
    InUse = 2,
    Done = 3,
    Released = 4,
    GivenUp = 5,
}

/// Contiguous memory that holds whole blocks.
#[doc(alias = "ProfileBufferChunk")]
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(super) number: ChunkNumber,
    pub(super) session: Generation,
    /// The position of its first byte among those of all chunks that the session ever had.
    pub(super) range_start: u64,
    life: AtomicU8,
    /// When it was first written to; what else stands here counts only once there are entries.
    first_used_ns: AtomicU64,
    /// The latest moment at which an entry was put.
    last_used_ns: AtomicU64,
    done_ns: AtomicU64,
    entries: AtomicU64,
    committed: AtomicUsize,
    bytes: Slab,
}

/// The right to append to a chunk.
#[derive(Debug)]
pub(super) struct WriteRight {
    chunk: Arc<Chunk>,
}

impl Chunk {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            number: ChunkNumber(0),
            session: Generation::from_number(0),
            range_start: 0,
            life: AtomicU8::new(ChunkLife::Fresh as u8),
            first_used_ns: AtomicU64::new(0),
            last_used_ns: AtomicU64::new(0),
            done_ns: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            committed: AtomicUsize::new(0),
            bytes: Slab::new(bytes),
        }
    }

    /// Touches every page, so that whoever writes waits for none.
    pub(super) fn touch(&mut self) {
        self.bytes.touch();
    }

    /// Gives the chunk, which nobody shares, a new life.
    pub(super) fn begin(
        mut self,
        number: ChunkNumber,
        session: Generation,
        range_start: u64,
    ) -> (Arc<Self>, WriteRight) {
        debug_assert_eq!(self.life(), ChunkLife::Fresh, "only a fresh chunk is begun");
        self.committed = AtomicUsize::new(0);
        self.entries = AtomicU64::new(0);
        self.number = number;
        self.session = session;
        self.range_start = range_start;
        self.set_life(&[ChunkLife::Fresh], ChunkLife::Ready);
        let chunk = Arc::new(self);
        (Arc::clone(&chunk), WriteRight { chunk })
    }

    /// Takes a chunk that was given up to be used again; `None` while a reader shares it, who has it for himself then.
    pub(super) fn recycle(chunk: Arc<Self>) -> Option<Self> {
        debug_assert_eq!(
            chunk.life(),
            ChunkLife::GivenUp,
            "only a chunk that was given up is recycled"
        );
        let chunk = Arc::into_inner(chunk)?;
        chunk.set_life(&[ChunkLife::GivenUp], ChunkLife::Fresh);
        Some(chunk)
    }

    pub(super) fn life(&self) -> ChunkLife {
        match self.life.load(Ordering::Acquire) {
            0 => ChunkLife::Fresh,
            1 => ChunkLife::Ready,
            2 => ChunkLife::InUse,
            3 => ChunkLife::Done,
            4 => ChunkLife::Released,
            _ => ChunkLife::GivenUp,
        }
    }

    fn set_life(&self, from: &[ChunkLife], to: ChunkLife) {
        debug_assert!(
            from.contains(&self.life()),
            "a chunk goes from {:?} to {to:?}",
            self.life()
        );
        self.life.store(to as u8, Ordering::Release);
    }

    /// By the manager, which takes it on its list.
    pub(super) fn set_released(&self) {
        self.set_life(&[ChunkLife::Done], ChunkLife::Released);
    }

    /// By the manager, off whose list it goes.
    pub(super) fn set_given_up(&self) {
        self.set_life(&[ChunkLife::Released], ChunkLife::GivenUp);
    }

    /// Whether it is there for its readers alone.
    pub(super) fn is_given_up(&self) -> bool {
        self.life() == ChunkLife::GivenUp
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// When it was first written to, if it was.
    pub(super) fn first_used(&self) -> Option<TimeStamp> {
        let is_used = self.committed.load(Ordering::Acquire) > 0;
        is_used.then(|| TimeStamp(self.first_used_ns.load(Ordering::Relaxed)))
    }

    /// When nothing was written to it any more, once it is done.
    pub(super) fn done_at(&self) -> TimeStamp {
        TimeStamp(self.done_ns.load(Ordering::Relaxed))
    }

    /// How many entries were committed, a moment ago.
    pub(super) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// How many bytes were committed before this call; whole blocks all.
    pub(super) fn committed(&self) -> usize {
        self.committed.load(Ordering::Acquire)
    }

    /// The bytes that were committed before this call.
    pub(super) fn committed_bytes(&self) -> &[u8] {
        // SAFETY: *committed bytes rest*.
        unsafe { self.bytes.read(self.committed()) }
    }
}

impl WriteRight {
    /// Of a chunk that was in a [`TakeCell`](super::take_cell::TakeCell) or a [`WritingCell`](super::writing_cell::WritingCell), or is
    /// in the latter still, for the length of a write.
    pub(super) fn of_taken(chunk: Arc<Chunk>) -> Self {
        Self { chunk }
    }

    pub(super) fn into_taken(self) -> Arc<Chunk> {
        self.chunk
    }

    pub(super) fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// Gives the right up: nothing is written any more. No entry was put later than the chunk is done, whatever `now` says.
    pub(super) fn finish(self, now: TimeStamp) {
        let last_used_ns = if self.chunk.committed() > 0 {
            self.chunk.last_used_ns.load(Ordering::Relaxed)
        } else {
            0
        };
        self.chunk
            .done_ns
            .store(now.0.max(last_used_ns), Ordering::Relaxed);
        self.chunk
            .set_life(&[ChunkLife::Ready, ChunkLife::InUse], ChunkLife::Done);
    }

    /// Appends a block; false, and nothing changed that anybody sees, when it does not fit.
    #[inline(always)]
    pub(super) fn append<E: Entry>(&mut self, now: TimeStamp, entry: &E) -> bool {
        let chunk = &*self.chunk;
        let start = chunk.committed.load(Ordering::Relaxed);
        let room = chunk.capacity() - start;
        let entry_bytes = if E::IS_COUNTED { entry.bytes() } else { 0 };
        let place_bytes = match E::IS_COUNTED {
            true => block_bytes(entry_bytes),
            false => room.min(MOST_WRITTEN_FIRST),
        };
        if place_bytes > room {
            return false;
        }
        // SAFETY: *one writer*: `&mut self` is the only right, and the place lies above `committed`.
        let place = unsafe { chunk.bytes.place(start, place_bytes) };
        let written = match E::IS_COUNTED {
            true => write_counted(entry, entry_bytes, place),
            false => write_first(entry, place),
        };
        let Some(bytes) = written else { return false };
        if start == 0 {
            chunk.first_used_ns.store(now.0, Ordering::Relaxed);
            chunk.last_used_ns.store(now.0, Ordering::Relaxed);
            chunk.set_life(&[ChunkLife::Ready], ChunkLife::InUse);
        } else if now.0 > chunk.last_used_ns.load(Ordering::Relaxed) {
            chunk.last_used_ns.store(now.0, Ordering::Relaxed);
        }
        chunk
            .entries
            .store(chunk.entries.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        chunk.committed.store(start + bytes, Ordering::Release);
        true
    }
}

#[cfg(any(test, fuzzing))]
impl WriteRight {
    /// Fills an empty chunk with bytes that may be anything.
    pub(super) fn append_raw(&mut self, bytes: &[u8]) {
        self.chunk.set_life(&[ChunkLife::Ready], ChunkLife::InUse);
        // SAFETY: *one writer*: `&mut self` is the only right, and nothing is committed.
        unsafe { self.chunk.bytes.place(0, bytes.len()) }.copy_from_slice(bytes);
        self.chunk.committed.store(bytes.len(), Ordering::Release);
    }
}

/// How long the block of an entry of so many bytes is.
#[inline(always)]
pub(super) const fn block_bytes(entry_bytes: usize) -> usize {
    number_bytes(entry_bytes as u64) + entry_bytes
}

/// How much room an entry needs at the beginning of a chunk.
pub(super) fn new_block_bytes<E: Entry>(entry: &E) -> usize {
    let bytes = entry.bytes();
    if E::IS_COUNTED {
        block_bytes(bytes)
    } else {
        LENGTH_BYTES.saturating_add(bytes)
    }
}

/// The longest block of an entry that is written before its length is known, which then takes three bytes.
const MOST_WRITTEN_FIRST: usize = LENGTH_BYTES + (1 << 21) - 1;
const LENGTH_BYTES: usize = 3;

/// Writes a block of an entry that knows its length to a place of its length.
#[inline(always)]
fn write_counted(entry: &impl Entry, entry_bytes: usize, place: &mut [u8]) -> Option<usize> {
    let bytes = place.len();
    let mut cursor = EntryCursor::new(place);
    cursor.number(entry_bytes as u64);
    entry.write(&mut cursor);
    debug_assert!(
        cursor.left() == 0 && !cursor.is_overrun(),
        "an entry is as long as it says"
    );
    Some(bytes)
}

/// Writes a block of one that does not, to a place that may be longer; gives its length, or nothing where it finds no room.
#[inline(always)]
fn write_first(entry: &impl Entry, place: &mut [u8]) -> Option<usize> {
    let (length_place, entry_place) = place.split_first_chunk_mut::<LENGTH_BYTES>()?;
    let room = entry_place.len();
    let mut cursor = EntryCursor::new(entry_place);
    entry.write(&mut cursor);
    if cursor.is_overrun() {
        return None;
    }
    let length = room - cursor.left();
    *length_place = [
        length as u8 | 0x80,
        (length >> 7) as u8 | 0x80,
        (length >> 14) as u8,
    ];
    Some(LENGTH_BYTES + length)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::leb128::decode;

    const SESSION: Generation = Generation::from_number(1);

    fn begun(bytes: usize, number: u64, range_start: u64) -> (Arc<Chunk>, WriteRight) {
        Chunk::new(bytes).begin(ChunkNumber(number), SESSION, range_start)
    }

    #[test]
    fn parts_are_appended_whole_or_not_at_all() {
        let (chunk, mut right) = begun(8, 3, 100);
        assert_eq!((chunk.life(), chunk.first_used()), (ChunkLife::Ready, None));
        assert!(right.append(TimeStamp(5), &&b"abc"[..]));
        assert!(!right.append(TimeStamp(6), &&b"1234"[..]));
        assert!(right.append(TimeStamp(7), &&b"123"[..]));
        assert!(!right.append(TimeStamp(8), &&b"x"[..]));
        assert_eq!(
            (chunk.committed_bytes(), chunk.entries()),
            (&b"\x03abc\x03123"[..], 2)
        );
        assert_eq!(
            (chunk.life(), chunk.first_used()),
            (ChunkLife::InUse, Some(TimeStamp(5)))
        );
        right.finish(TimeStamp(6));
        assert_eq!(
            (chunk.life(), chunk.done_at()),
            (ChunkLife::Done, TimeStamp(7)),
            "the last entry was put then"
        );
        chunk.set_released();
        assert!(!chunk.is_given_up());
        chunk.set_given_up();
        let shared = Arc::clone(&chunk);
        assert!(Chunk::recycle(chunk).is_none(), "a reader has it");
        let again = Chunk::recycle(shared).expect("nobody else has it");
        let (again, mut right) = again.begin(ChunkNumber(4), SESSION, 200);
        assert_eq!(
            (again.committed_bytes(), again.entries(), again.first_used()),
            (&b""[..], 0, None)
        );
        assert!(right.append(TimeStamp(10), &&b"new"[..]));
        assert_eq!(again.committed_bytes(), b"\x03new");
    }

    /// Knows its length only when it has been written.
    struct WrittenFirst<'a>(&'a [u8]);

    impl Entry for WrittenFirst<'_> {
        const IS_COUNTED: bool = false;

        fn bytes(&self) -> usize {
            self.0.len()
        }

        fn write(&self, out: &mut EntryCursor<'_>) {
            self.0.chunks(1000).for_each(|part| out.raw(part));
        }
    }

    #[test]
    fn what_is_written_first_has_its_length_before_it() {
        let (chunk, mut right) = begun(20_000, 3, 100);
        let bytes: Vec<u8> = (0..17_000u32).map(|index| index as u8).collect();
        let mut expected = Vec::new();
        for length in [1usize, 127, 128, 16_383] {
            assert!(right.append(TimeStamp(5), &WrittenFirst(&bytes[..length])));
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
        assert!(!right.append(
            TimeStamp(6),
            &WrittenFirst(&bytes[..left - LENGTH_BYTES + 1])
        ));
        assert_eq!(
            (chunk.committed(), chunk.first_used(), chunk.entries()),
            (before, first_used, 4)
        );
        assert!(right.append(
            TimeStamp(7),
            &WrittenFirst(&bytes[..left - LENGTH_BYTES - 2])
        ));
        assert!(
            !right.append(TimeStamp(8), &WrittenFirst(b"")),
            "no room for its length"
        );
        assert!(right.append(TimeStamp(8), &&b"x"[..]));
        assert_eq!(chunk.committed(), 20_000);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "from Released to InUse")]
    fn a_released_chunk_is_not_written_to() {
        let (chunk, right) = begun(8, 0, 0);
        right.finish(TimeStamp(1));
        chunk.set_released();
        WriteRight::of_taken(chunk).append(TimeStamp(2), &&b"x"[..]);
    }

    #[test]
    fn a_reader_beside_the_writer_sees_whole_appends() {
        let (chunk, mut right) = begun(1 << 20, 0, 0);
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
            assert!(right.append(TimeStamp(0), &&word[..3]), "room");
        }
        reader.join().expect("the reader saw whole words");
    }
}
