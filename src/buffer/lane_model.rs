//! Loom models of writers, a reader and recycling, in all interleavings with at most three
//! preemptions (`LOOM_MAX_PREEMPTIONS` sets another bound).
//!
//! The lanes, their cells, the chunks with their bytes, the session's list of chunks and its
//! manager are the real types. The lock around that list is loom's, and the model repeats what
//! `ChunkedBuffer` does under its own lock. Under loom a shadow cell for each byte of a chunk
//! detects conflicting accesses.

use std::sync::Arc;

use loom::sync::Mutex as LoomMutex;
use loom::thread::spawn;

use crate::buffer::buffer_snapshot::BufferSnapshot;
use crate::buffer::chunk_manager::{ChunkManager, Update};
use crate::buffer::chunks::{ChunkWriter, FreshChunk};
use crate::buffer::entries::{Entry, EntryCursor};
use crate::buffer::lane::{ChunkSource, Lane, NewEntry};
use crate::buffer::session_chunks::{BufferStatistics, Headroom, SessionChunks};
use crate::types::{Generation, TimeStamp};
use crate::util::explore_model;

const SESSION: Generation = Generation::from_number(1);
/// Capacity in bytes: four chunks of eight bytes, each for two entries of four bytes with their
/// length.
const CAPACITY: usize = 32;

struct World {
    lanes: [Lane; 2],
    chunks: LoomMutex<Option<SessionChunks>>,
}

impl ChunkSource for World {
    fn make_chunk(&self, lane: &Lane, _: Generation, block_bytes: usize) -> Option<ChunkWriter> {
        let mut chunks = self.chunks.lock().expect("no model panics here");
        chunks
            .as_mut()?
            .make_chunk(lane, self.lanes.len(), block_bytes)
            .ok()
    }

    fn make_chunk_for_one_entry(
        &self,
        lane: &Lane,
        _: Generation,
        block_bytes: usize,
    ) -> Option<ChunkWriter> {
        let mut chunks = self.chunks.lock().expect("no model panics here");
        chunks
            .as_mut()?
            .make_chunk_for_one_entry(lane, self.lanes.len(), block_bytes)
            .ok()
    }

    fn can_hold(&self, _: Generation, block_bytes: usize) -> bool {
        block_bytes <= CAPACITY / 4
    }

    fn request_maintenance(&self) {}

    fn count_overrun(&self) {
        panic!("an entry wrote more bytes than announced");
    }
}

impl World {
    fn new() -> Arc<Self> {
        let chunks = SessionChunks::new(
            SESSION,
            ChunkManager::new(CAPACITY),
            Headroom::new(|_| true),
            None,
        );
        Arc::new(Self {
            lanes: [Lane::new(0), Lane::new(1)],
            chunks: LoomMutex::new(Some(chunks)),
        })
    }

    /// Puts an entry with the lane, a number and the number's complement.
    fn put(&self, lane: usize, number: u8) -> bool {
        let bytes = [b'0' + lane as u8, number, number ^ 0xff];
        let entry = NewEntry {
            session: SESSION,
            now: TimeStamp(number.into()),
            entry: &&bytes[..],
        };
        self.lanes[lane].put(entry, self).is_some()
    }

    fn maintain(&self) {
        let mut chunks = self.chunks.lock().expect("no model panics here");
        let Some(chunks) = chunks.as_mut() else {
            return;
        };
        chunks.release_done();
        for lane in &self.lanes {
            if let Some(bytes) = chunks.set_next(lane, self.lanes.len()) {
                lane.set_next(chunks.begin(
                    FreshChunk::try_new(bytes, None).expect("memory"),
                    lane.index,
                ));
            }
        }
    }

    /// Reads a snapshot and returns the numbers of one lane's entries. Panics at a torn entry.
    fn read(&self, lane: usize) -> Vec<u8> {
        let chunks = match &*self.chunks.lock().expect("no model panics here") {
            Some(chunks) => chunks.share(),
            None => return Vec::new(),
        };
        let snapshot = BufferSnapshot::new(chunks, None, Update::None, BufferStatistics::default());
        let mut numbers = Vec::new();
        for block in snapshot.chunks().flatten() {
            let mut entry = block.expect("a whole block").entry;
            let mut byte = || entry.byte().expect("three bytes");
            let (of_lane, number, check) = (byte(), byte(), byte());
            assert_eq!(check, number ^ 0xff, "a torn entry");
            if of_lane == b'0' + lane as u8 {
                numbers.push(number);
            }
        }
        numbers
    }

    fn discarded_entries(&self) -> u64 {
        self.chunks
            .lock()
            .expect("no model panics here")
            .as_ref()
            .map_or(0, |chunks| chunks.manager.discarded.entries)
    }
}

fn assert_consecutive(numbers: &[u8]) {
    assert!(
        numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "{numbers:?}"
    );
}

#[test]
fn reader_sees_no_torn_entry_and_none_of_a_recycled_chunk() {
    explore_model(["saw all", "saw some", "saw none"], || {
        let world = World::new();
        let (writer, reader) = (Arc::clone(&world), Arc::clone(&world));
        // Six entries fill three of the four chunks; the other lane uses the rest.
        let writer = spawn(move || (1..=6).for_each(|number| assert!(writer.put(0, number))));
        let other = Arc::clone(&world);
        let other = spawn(move || (1..=2).for_each(|number| assert!(other.put(1, number))));
        let seen = reader.read(0);
        assert_consecutive(&seen);
        writer.join().expect("the writer");
        other.join().expect("the other writer");
        let left = world.read(0);
        assert_consecutive(&left);
        assert_eq!(left.last(), Some(&6));
        let held = left.len() + world.read(1).len();
        assert_eq!(
            held as u64 + world.discarded_entries(),
            8,
            "every lost entry is counted"
        );
        match seen.len() {
            0 => "saw none",
            6 => "saw all",
            _ => "saw some",
        }
    });
}

#[test]
fn chunk_discarded_during_a_read_stays_intact() {
    explore_model(["recycled under the reader", "recycled after it"], || {
        let world = World::new();
        (1..=4).for_each(|number| assert!(world.put(0, number)));
        let reader = Arc::clone(&world);
        let reader = spawn(move || {
            let chunks = reader
                .chunks
                .lock()
                .expect("no model panics here")
                .as_ref()
                .expect("a chunks")
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
            assert_consecutive(&numbers);
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
fn maintenance_and_writer_lose_no_chunk() {
    explore_model(["took the next one", "made its own"], || {
        let world = World::new();
        assert!(world.put(0, 1));
        let maintainer = Arc::clone(&world);
        let maintainer = spawn(move || {
            maintainer.maintain();
            maintainer.maintain();
        });
        // The second entry fills the first chunk; the third one needs another chunk.
        (2..=5).for_each(|number| assert!(world.put(0, number)));
        maintainer.join().expect("the maintainer");
        let left = world.read(0);
        assert_consecutive(&left);
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
fn session_end_and_idle_clean_up_leave_the_writer_no_foreign_chunk() {
    explore_model(["put all", "put some"], || {
        let world = World::new();
        assert!(world.put(0, 1));
        let ender = Arc::clone(&world);
        let ender = spawn(move || {
            // First the clean-up of an idle lane, which takes its chunk out.
            ender.lanes[0]
                .take_current(|| true)
                .into_iter()
                .for_each(|writer| writer.finish(TimeStamp(9)));
            let chunks = ender.chunks.lock().expect("no model panics here").take();
            drop((
                ender.lanes[0].take_current(|| true),
                ender.lanes[0].take_next(),
                chunks,
            ));
        });
        let put = (2..=4).filter(|&number| world.put(0, number)).count();
        ender.join().expect("the ending thread");
        assert!(world.read(0).is_empty());
        if put == 3 { "put all" } else { "put some" }
    });
}

/// An entry during whose write a signal handler puts another one.
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
fn interrupted_write_loses_no_entry_while_its_chunk_is_taken() {
    explore_model(
        ["taken back before", "taken back after", "during the write"],
        || {
            let world = World::new();
            assert!(world.put(0, 1));
            world.maintain();
            let maintainer = Arc::clone(&world);
            let maintainer = spawn(move || {
                let taken = maintainer.lanes[0].take_current(|| true);
                let entries = taken.as_ref().map(|writer| writer.chunk().entries());
                taken
                    .into_iter()
                    .for_each(|writer| writer.finish(TimeStamp(9)));
                maintainer.maintain();
                entries
            });
            let entry = Interrupted(&world);
            let entry = NewEntry {
                session: SESSION,
                now: TimeStamp(2),
                entry: &entry,
            };
            assert!(world.lanes[0].put(entry, &*world).is_some());
            let entries = maintainer.join().expect("the maintainer");
            let mut left = world.read(0);
            left.sort_unstable();
            let discarded = world.discarded_entries();
            assert_eq!(left.len() as u64 + discarded, 3, "{left:?}");
            match entries {
                None => "during the write",
                Some(1) => "taken back before",
                Some(_) => "taken back after",
            }
        },
    );
}
