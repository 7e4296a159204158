//! Writers, a reader and a recycler, tried by loom in the orders that they can take with three preemptions at most
//! (`LOOM_MAX_PREEMPTIONS` sets another bound).
//!
//! The lane, the cells that chunks are taken from, the chunks with their bytes, the book and its manager are the real ones;
//! the lock about the book is loom's, and what `ChunkedBuffer` does under its own is written down again. Each byte of a chunk has
//! a cell beside it by which loom sees two that touch it at once.

use std::sync::Arc;

use loom::sync::Mutex as LoomMutex;
use loom::thread::spawn;

use crate::base::{Generation, TimeStamp, explore_model};
use crate::buffer::buffer_snapshot::BufferSnapshot;
use crate::buffer::chunk::{Chunk, WriteRight};
use crate::buffer::chunk_book::{BufferStatistics, ChunkBook};
use crate::buffer::chunk_manager::{ChunkManager, Update};
use crate::buffer::entry::{Entry, EntryCursor};
use crate::buffer::lane::{ChunkSource, Lane, NewEntry};
use crate::buffer::local_limit::ChunkManagerWithLocalLimit;

const SESSION: Generation = Generation::from_number(1);
/// Four chunks of eight bytes; an entry takes four, with its length.
const CAPACITY: usize = 32;

struct World {
    lanes: [Lane; 2],
    book: LoomMutex<Option<ChunkBook<ChunkManagerWithLocalLimit>>>,
}

impl ChunkSource for World {
    fn make_chunk(&self, lane: &Lane, _: Generation, block_bytes: usize) -> Option<WriteRight> {
        let mut book = self.book.lock().expect("no model panics here");
        book.as_mut()?
            .make_chunk(lane, self.lanes.len(), block_bytes)
    }

    fn has_room_for(&self, _: Generation, block_bytes: usize) -> bool {
        block_bytes <= CAPACITY / 4
    }

    fn ask_for_care(&self) {}

    fn count_overrun(&self) {
        panic!("an entry knows its length");
    }
}

impl World {
    fn new() -> Arc<Self> {
        let book = ChunkBook::new(SESSION, ChunkManagerWithLocalLimit::new(CAPACITY));
        Arc::new(Self {
            lanes: [Lane::new(0), Lane::new(1)],
            book: LoomMutex::new(Some(book)),
        })
    }

    /// Entries of a thread say whose they are, and count.
    fn put(&self, lane: usize, number: u8) -> bool {
        let bytes = [b'0' + lane as u8, number, number ^ 0xff];
        let entry = NewEntry {
            session: SESSION,
            now: TimeStamp(number.into()),
            entry: &&bytes[..],
        };
        self.lanes[lane].put(entry, self).is_some()
    }

    fn take_care(&self) {
        let mut book = self.book.lock().expect("no model panics here");
        let Some(book) = book.as_mut() else { return };
        book.settle();
        for lane in &self.lanes {
            if let Some(bytes) = book.set_next(lane, self.lanes.len()) {
                lane.set_next(book.begin(Chunk::new(bytes), lane.index));
            }
        }
    }

    /// What a reader sees: the numbers of one lane's entries, each of which must be whole.
    fn read(&self, lane: usize) -> Vec<u8> {
        let chunks = match &*self.book.lock().expect("no model panics here") {
            Some(book) => book.share(),
            None => return Vec::new(),
        };
        let snapshot = BufferSnapshot::new(chunks, None, Update::None, BufferStatistics::default());
        let mut numbers = Vec::new();
        for block in snapshot.chunks().flatten() {
            let mut entry = block.expect("a whole block").entry;
            let mut byte = || entry.byte().expect("three bytes");
            let (of_lane, number, check) = (byte(), byte(), byte());
            assert_eq!(check, number ^ 0xff, "half an entry");
            if of_lane == b'0' + lane as u8 {
                numbers.push(number);
            }
        }
        numbers
    }

    fn discarded_entries(&self) -> u64 {
        self.book
            .lock()
            .expect("no model panics here")
            .as_ref()
            .map_or(0, |book| book.manager.discarded().entries)
    }
}

fn assert_in_a_row(numbers: &[u8]) {
    assert!(
        numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "{numbers:?}"
    );
}

#[test]
fn a_reader_never_sees_half_an_entry_nor_one_of_another_life() {
    explore_model(["saw all", "saw some", "saw none"], || {
        let world = World::new();
        let (writer, reader) = (Arc::clone(&world), Arc::clone(&world));
        // Six entries are three chunks, of which four there is room for, with those of the other lane.
        let writer = spawn(move || (1..=6).for_each(|number| assert!(writer.put(0, number))));
        let other = Arc::clone(&world);
        let other = spawn(move || (1..=2).for_each(|number| assert!(other.put(1, number))));
        let seen = reader.read(0);
        assert_in_a_row(&seen);
        writer.join().expect("the writer");
        other.join().expect("the other writer");
        let left = world.read(0);
        assert_in_a_row(&left);
        assert_eq!(left.last(), Some(&6));
        let held = left.len() + world.read(1).len();
        assert_eq!(
            held as u64 + world.discarded_entries(),
            8,
            "nothing is lost uncounted"
        );
        match seen.len() {
            0 => "saw none",
            6 => "saw all",
            _ => "saw some",
        }
    });
}

#[test]
fn a_chunk_that_is_read_while_it_is_recycled_stays_as_it_was() {
    explore_model(["recycled under the reader", "recycled after it"], || {
        let world = World::new();
        (1..=4).for_each(|number| assert!(world.put(0, number)));
        let reader = Arc::clone(&world);
        let reader = spawn(move || {
            let chunks = reader
                .book
                .lock()
                .expect("no model panics here")
                .as_ref()
                .expect("a book")
                .share();
            let before = reader.discarded_entries();
            let snapshot =
                BufferSnapshot::new(chunks, None, Update::None, BufferStatistics::default());
            let numbers: Vec<u8> = snapshot
                .chunks()
                .flatten()
                .map(|block| {
                    let mut entry = block.expect("a whole block").entry;
                    entry.byte();
                    entry.byte().expect("a number")
                })
                .collect();
            assert_in_a_row(&numbers);
            reader.discarded_entries() > before
        });
        (5..=12).for_each(|number| assert!(world.put(0, number)));
        let was_recycled = reader.join().expect("the reader");
        if was_recycled {
            "recycled under the reader"
        } else {
            "recycled after it"
        }
    });
}

#[test]
fn the_caretaker_and_the_writer_pass_chunks_without_losing_one() {
    explore_model(["took the next one", "made its own"], || {
        let world = World::new();
        assert!(world.put(0, 1));
        let caretaker = Arc::clone(&world);
        let caretaker = spawn(move || {
            caretaker.take_care();
            caretaker.take_care();
        });
        // The second fills the first chunk, the third needs another.
        (2..=5).for_each(|number| assert!(world.put(0, number)));
        caretaker.join().expect("the caretaker");
        let left = world.read(0);
        assert_in_a_row(&left);
        assert_eq!(
            (left.last(), left.len() as u64 + world.discarded_entries()),
            (Some(&5), 5)
        );
        let had_next = world.lanes[0].take_next().is_some();
        if had_next {
            "took the next one"
        } else {
            "made its own"
        }
    });
}

#[test]
fn the_end_of_a_session_and_a_chunk_taken_back_leave_the_writer_with_nothing_of_others() {
    explore_model(["put all", "put some"], || {
        let world = World::new();
        assert!(world.put(0, 1));
        let stopper = Arc::clone(&world);
        let stopper = spawn(move || {
            // The lane has gone quiet, as it seems: its chunk is taken back.
            stopper.lanes[0]
                .take_current(|| true)
                .into_iter()
                .for_each(|right| right.finish(TimeStamp(9)));
            let book = stopper.book.lock().expect("no model panics here").take();
            drop((
                stopper.lanes[0].take_current(|| true),
                stopper.lanes[0].take_next(),
                book,
            ));
        });
        let put = (2..=4).filter(|&number| world.put(0, number)).count();
        stopper.join().expect("the stopper");
        assert!(world.read(0).is_empty());
        if put == 3 { "put all" } else { "put some" }
    });
}

/// An entry in the midst of which a handler puts another.
struct Interrupted<'a>(&'a World);

impl Entry for Interrupted<'_> {
    fn bytes(&self) -> usize {
        3
    }

    fn write(&self, out: &mut EntryCursor<'_>) {
        assert!(self.0.put(0, 3));
        out.raw(&[b'0', 2, 2 ^ 0xff]);
    }
}

#[test]
fn a_write_that_is_interrupted_loses_nothing_while_its_chunk_is_asked_for() {
    explore_model(
        ["taken back before", "taken back after", "in the midst"],
        || {
            let world = World::new();
            assert!(world.put(0, 1));
            world.take_care();
            let caretaker = Arc::clone(&world);
            let caretaker = spawn(move || {
                let taken = caretaker.lanes[0].take_current(|| true);
                let entries = taken.as_ref().map(|right| right.chunk().entries());
                taken
                    .into_iter()
                    .for_each(|right| right.finish(TimeStamp(9)));
                caretaker.take_care();
                entries
            });
            let entry = Interrupted(&world);
            let entry = NewEntry {
                session: SESSION,
                now: TimeStamp(2),
                entry: &entry,
            };
            assert!(world.lanes[0].put(entry, &*world).is_some());
            let entries = caretaker.join().expect("the caretaker");
            let mut left = world.read(0);
            left.sort_unstable();
            let discarded = world.discarded_entries();
            assert_eq!(left.len() as u64 + discarded, 3, "{left:?}");
            match entries {
                None => "in the midst",
                Some(1) => "taken back before",
                Some(_) => "taken back after",
            }
        },
    );
}
