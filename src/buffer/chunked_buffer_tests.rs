//! Writers, readers and recycling beside each other, with the real chunks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Generation, TimeStamp};
use crate::buffer::buffer_snapshot::BufferSnapshot;
use crate::buffer::chunk_manager::ChunkManager;
use crate::buffer::chunked_buffer::{ChunkedBuffer, LaneHandle};
use crate::buffer::entry::{Entry, EntryCursor};
use crate::buffer::entry_kind::EntryKind;
use crate::buffer::entry_reader::EntryReader;
use crate::buffer::entry_writer::EntryHead;
use crate::buffer::index::ChunkNumber;
use crate::buffer::single::ChunkManagerSingle;

const SESSION: Generation = ChunkedBuffer::TEST_SESSION;

fn numbers_in(snapshot: &BufferSnapshot) -> Vec<u64> {
    let mut numbers = Vec::new();
    for block in snapshot.chunks().flatten() {
        let mut block = block.expect("well formed");
        let number_of = |entry: &mut EntryReader<'_>| entry.kind().and_then(|_| entry.number());
        let number = number_of(&mut block.entry).expect("a number");
        assert_eq!(
            snapshot
                .entry_at(block.index)
                .and_then(|mut entry| number_of(&mut entry)),
            Some(number)
        );
        numbers.push(number);
    }
    numbers
}

fn put_number<M: ChunkManager>(lane: &LaneHandle<'_, M>, number: u64) -> Option<ChunkNumber> {
    let mut head = EntryHead::new(EntryKind::Counter);
    lane.put(
        SESSION,
        TimeStamp(number),
        &head.number(number).with(&[0; 20]),
    )
}

fn put_bytes(
    lane: &LaneHandle<'_>,
    session: Generation,
    now: u64,
    tail: &[u8],
) -> Option<ChunkNumber> {
    lane.put(
        session,
        TimeStamp(now),
        &EntryHead::new(EntryKind::Counter).with(tail),
    )
}

#[test]
fn the_oldest_chunks_go_and_the_rest_reads_back_in_order() {
    let buffer = ChunkedBuffer::for_test(4096);
    let lane = buffer.take_lane();
    for number in 0..1000 {
        put_number(&lane, number).expect("fits");
        if number % 7 == 0 {
            buffer.take_care();
        }
    }
    let snapshot = buffer.snapshot();
    let numbers = numbers_in(&snapshot);
    let first = numbers[0];
    assert!(first > 0, "something was recycled");
    assert_eq!(numbers, (first..1000).collect::<Vec<_>>());
    let statistics = snapshot.statistics;
    assert_eq!(statistics.put_entries, 1000);
    assert!(statistics.recycled_chunks > 0 && statistics.recycled_bytes > 0);
    let (held_bytes, _) = buffer.fill_level().expect("in session");
    assert!(held_bytes <= 4096 && held_bytes + statistics.recycled_bytes == statistics.put_bytes);
    let memory = snapshot.chunk_memory();
    assert!(
        memory.unreleased_bytes + memory.released_bytes <= 4096,
        "{memory:?}"
    );
    let complete_since = snapshot.complete_since().expect("something is missing");
    assert_eq!(
        complete_since,
        TimeStamp(first),
        "its chunk was begun when the last one was full"
    );
}

#[test]
fn a_lane_that_has_just_gone_on_to_its_next_chunk_is_not_quiet() {
    let buffer = ChunkedBuffer::for_test(4096);
    let (slow, fast) = (buffer.take_lane(), buffer.take_lane());
    let first = put_number(&slow, 0).expect("fits");
    (1..500).for_each(|number| _ = put_number(&fast, number).expect("fits"));
    assert!(
        buffer.snapshot().statistics.recycled_chunks > 0,
        "the slow one's chunk is the oldest"
    );
    // Its next chunk is there, so that nobody looks after the full one.
    buffer.take_care();
    let next =
        (500..1000).find_map(|number| put_number(&slow, number).filter(|&chunk| chunk != first));
    assert!(next.is_some());
    buffer.discard_old(|| TimeStamp(1000), None);
    assert_eq!(put_number(&slow, 1000), next, "it goes on there");
}

#[test]
fn a_snapshot_stays_whole_while_its_chunks_are_recycled() {
    let buffer = ChunkedBuffer::for_test(4096);
    let lane = buffer.take_lane();
    (0..50).for_each(|number| _ = put_number(&lane, number).expect("fits"));
    let snapshot = buffer.snapshot();
    let before = numbers_in(&snapshot);
    (50..2000).for_each(|number| _ = put_number(&lane, number).expect("fits"));
    assert_eq!(numbers_in(&snapshot), before);
    assert_eq!(before, (0..50).collect::<Vec<_>>());
}

#[test]
fn a_reader_lets_go_of_chunks_and_tells_what_was_given_up_meanwhile() {
    let buffer = ChunkedBuffer::for_test(4096);
    let lane = buffer.take_lane();
    (0..100).for_each(|number| _ = put_number(&lane, number).expect("fits"));
    let mut snapshot = buffer.snapshot();
    let chunks = snapshot.chunks().len();
    assert!(chunks > 2 && snapshot.given_up_bytes() == 0);
    let bytes: u64 = snapshot
        .chunks()
        .flatten()
        .map(|block| block.expect("well formed").bytes)
        .sum();
    // The last of them is written to still.
    (100..2000).for_each(|number| _ = put_number(&lane, number).expect("fits"));
    assert_eq!(snapshot.given_up_bytes(), bytes);
    let last = numbers_in(&snapshot).last().copied();
    snapshot.retain_chunks((1..=chunks).map(|number| number == chunks));
    assert_eq!(
        (snapshot.chunks().len(), snapshot.given_up_bytes()),
        (1, bytes)
    );
    assert_eq!(
        numbers_in(&snapshot).last().copied(),
        last,
        "what is kept can be read"
    );
    drop(lane);
}

/// An entry in whose midst the process forks; it is written on the parent's side.
struct Forks<'a, F>(&'a ChunkedBuffer, F);

impl<F: Fn(&ChunkedBuffer)> Entry for Forks<'_, F> {
    fn bytes(&self) -> usize {
        1
    }

    fn write(&self, out: &mut EntryCursor<'_>) {
        drop(self.0.hold_for_fork().abandon_session(None));
        (self.1)(self.0);
        out.byte(EntryKind::Counter as u8);
    }
}

#[test]
fn in_a_forked_child_a_lane_is_as_new_whatever_its_writer_was_in_the_midst_of() {
    let buffer = ChunkedBuffer::for_test(64 << 10);
    let parents = buffer.take_lane();
    let in_child = |buffer: &ChunkedBuffer| {
        buffer.begin_session(SESSION, 64 << 10);
        let lane = buffer.take_lane();
        assert_eq!(lane.index(), 0, "it is the one that was left");
        let chunk = put_number(&lane, 1).expect("fits");
        assert_eq!(put_number(&lane, 2), Some(chunk));
        assert!(
            lane.put_in_chunk(
                chunk,
                SESSION,
                TimeStamp(3),
                &[EntryKind::Counter as u8, 3].as_slice()
            )
            .is_some()
        );
        assert_eq!(numbers_in(&buffer.snapshot()), [1, 2, 3]);
        buffer.end_session();
    };
    assert!(
        parents
            .put(SESSION, TimeStamp(0), &Forks(&buffer, in_child))
            .is_some()
    );
}

#[test]
fn an_entry_larger_than_a_chunk_is_counted_and_nowhere() {
    let buffer = ChunkedBuffer::for_test(64 << 10);
    let lane = buffer.take_lane();
    assert_eq!(put_bytes(&lane, SESSION, 0, &[1; 20_000]), None);
    let chunk = put_number(&lane, 7).expect("fits");
    (0..10).for_each(|_| assert_eq!(put_bytes(&lane, SESSION, 0, &[1; 20_000]), None));
    assert_eq!(
        put_number(&lane, 7),
        Some(chunk),
        "what the lane has stays its own"
    );
    // Larger than the small chunks that a lane has at first.
    assert!(put_bytes(&lane, SESSION, 0, &[9; 16_000]).is_some());
    assert!(put_number(&lane, 8).is_some());
    let snapshot = buffer.snapshot();
    assert_eq!(
        (numbers_in(&snapshot), snapshot.statistics.dropped.too_large),
        (vec![7, 7, 9, 8], 11)
    );
}

#[test]
fn nothing_is_put_out_of_session_or_for_another_session() {
    let buffer = ChunkedBuffer::for_test(4096);
    let lane = buffer.take_lane();
    assert!(put_number(&lane, 1).is_some());
    let other = Generation::from_number(2);
    assert_eq!(put_bytes(&lane, other, 0, &[1]), None);
    assert_eq!(numbers_in(&buffer.snapshot()), [1]);
    buffer.end_session();
    assert_eq!(put_number(&lane, 2), None);
    assert!(numbers_in(&buffer.snapshot()).is_empty() && buffer.fill_level().is_none());
    buffer.begin_session(other, 4096);
    assert_eq!(put_number(&lane, 3), None);
    assert!(put_bytes(&lane, other, 0, &[4]).is_some());
    let snapshot = buffer.snapshot();
    assert_eq!(
        (numbers_in(&snapshot), snapshot.statistics.dropped.all()),
        (vec![4], 0)
    );
}

/// An entry in the midst of which a handler puts another.
struct Interrupted<'a> {
    lane: &'a LaneHandle<'a>,
    own: u64,
    others: u64,
}

impl Entry for Interrupted<'_> {
    fn bytes(&self) -> usize {
        Entry::bytes(EntryHead::new(EntryKind::Counter).number(self.own))
    }

    fn write(&self, out: &mut EntryCursor<'_>) {
        put_number(self.lane, self.others).expect("fits");
        EntryHead::new(EntryKind::Counter)
            .number(self.own)
            .write(out);
    }
}

#[test]
fn an_entry_that_interrupts_another_is_there_beside_it_and_neither_is_older_than_it_is() {
    let buffer = ChunkedBuffer::for_test(1 << 20);
    let lane = buffer.take_lane();
    put_number(&lane, 1).expect("fits");
    let mut expected = vec![1];
    for number in (1000..1100).step_by(2) {
        buffer.take_care();
        let entry = Interrupted {
            lane: &lane,
            own: number,
            others: number + 1,
        };
        lane.put(SESSION, TimeStamp(number), &entry).expect("fits");
        expected.extend([number, number + 1]);
    }
    buffer.take_care();
    let memory = buffer.snapshot().chunk_memory();
    assert_eq!(
        memory.unreleased_bytes,
        2 * 4096,
        "the lane's chunk and its next one, and no other"
    );
    buffer.discard_old(|| TimeStamp(1100), Some(TimeStamp(502)));
    let mut numbers = numbers_in(&buffer.snapshot());
    numbers.sort_unstable();
    assert_eq!(numbers, expected);
}

#[test]
fn an_entry_that_comes_too_late_takes_nothing_from_the_session_that_runs() {
    let buffer = ChunkedBuffer::for_test(4096);
    let lane = buffer.take_lane();
    let other = Generation::from_number(2);
    buffer.begin_session(other, 4096);
    let chunk = put_bytes(&lane, other, 0, &[1]).expect("fits");
    buffer.take_care();
    let before = buffer.snapshot().chunk_memory().unreleased_bytes;
    (0..10).for_each(|_| assert_eq!(put_bytes(&lane, SESSION, 0, &[1]), None));
    assert_eq!(put_bytes(&lane, other, 0, &[1]), Some(chunk));
    buffer.take_care();
    assert_eq!(buffer.snapshot().chunk_memory().unreleased_bytes, before);
}

#[test]
fn an_entry_goes_into_the_chunk_that_it_was_made_for_or_nowhere() {
    let buffer = ChunkedBuffer::for_test(4096);
    let lane = buffer.take_lane_for_samples();
    let first = put_number(&lane, 0).expect("fits");
    let put_in_first = |lane: &LaneHandle<'_>| {
        let head = EntryHead::new(EntryKind::Counter);
        lane.put_in_chunk(first, SESSION, TimeStamp(0), &head.with(&[9; 100]))
    };
    let put = (0..100)
        .take_while(|_| put_in_first(&lane).is_some())
        .count();
    assert!(
        (5..=10).contains(&put),
        "as many as a chunk of 1,024 bytes holds: {put}"
    );
    // It was only asked for: what fits still goes there.
    assert_eq!(put_bytes(&lane, SESSION, 0, &[1]), Some(first));
    lane.leave_chunk(TimeStamp(0));
    let second = put_number(&lane, 1).expect("fits");
    assert!(second != first && put_in_first(&lane).is_none());
    assert_eq!(buffer.snapshot().statistics.dropped.all(), 0);
}

#[test]
fn the_next_chunk_is_there_before_it_is_needed_and_grows_with_what_is_written() {
    const CAPACITY: u64 = 16 << 20;
    let buffer = ChunkedBuffer::for_test(CAPACITY);
    let lane = buffer.take_lane();
    buffer.take_care();
    let unreleased = |buffer: &ChunkedBuffer| buffer.snapshot().chunk_memory().unreleased_bytes;
    assert_eq!(unreleased(&buffer), 4096, "a small one");
    let entry = [1; 1000];
    let mut largest = 0;
    for time in 0..10_000u64 {
        put_bytes(&lane, SESSION, time, &entry).expect("fits");
        buffer.take_care();
        largest = largest.max(unreleased(&buffer));
    }
    assert_eq!(largest, 2 << 20, "two of the largest");
    // Slowly filled, they stay as they are, until they have become many.
    let slow = buffer.take_lane();
    let before = unreleased(&buffer);
    let put_slowly = |times: std::ops::Range<u64>| {
        for time in times {
            put_bytes(&slow, SESSION, time * 300_000_000, &entry).expect("fits");
            buffer.take_care();
        }
        unreleased(&buffer)
    };
    assert_eq!(put_slowly(0..60), before + 2 * 4096);
    assert!(put_slowly(60..80) > before + 2 * 4096);
    assert!(put_slowly(80..10_000) <= CAPACITY / 2);
}

#[test]
fn a_thousand_lanes_take_no_more_than_half() {
    const CAPACITY: u64 = 32 << 20;
    let buffer = ChunkedBuffer::for_test(CAPACITY);
    let lanes: Vec<_> = (0..1000).map(|_| buffer.take_lane()).collect();
    buffer.take_care();
    let memory = buffer.snapshot().chunk_memory();
    assert_eq!(memory.unreleased_bytes, 1000 * 4096);
    for round in 0..40 {
        for lane in &lanes {
            (0..8).for_each(|_| _ = put_bytes(lane, SESSION, round, &[1; 1000]).expect("fits"));
        }
        buffer.take_care();
        let memory = buffer.snapshot().chunk_memory();
        assert!(
            memory.unreleased_bytes <= CAPACITY / 2 + 4096,
            "{memory:?} in round {round}"
        );
        assert!(
            memory.unreleased_bytes + memory.released_bytes <= CAPACITY,
            "{memory:?}"
        );
    }
}

#[test]
fn the_next_writer_goes_on_where_the_last_one_ended() {
    let buffer = ChunkedBuffer::for_test(1 << 20);
    let chunks: Vec<_> = (0..100)
        .map(|number| {
            let lane = buffer.take_lane();
            buffer.take_care();
            put_number(&lane, number).expect("fits")
        })
        .collect();
    assert!(chunks.iter().all(|chunk| *chunk == chunks[0]), "{chunks:?}");
    assert_eq!(numbers_in(&buffer.snapshot()).len(), 100);
    assert_eq!(buffer.snapshot().statistics.lanes, 0);
    assert_eq!(
        buffer.snapshot().chunk_memory().unreleased_bytes,
        4096,
        "nobody's next chunk is kept"
    );
}

#[test]
fn a_lane_that_has_gone_quiet_keeps_nothing_that_nobody_else_remembers() {
    let buffer = ChunkedBuffer::for_test(4096);
    let (quiet, busy) = (buffer.take_lane(), buffer.take_lane());
    put_number(&quiet, 0).expect("fits");
    let start = buffer.range().start;
    for number in 1..1000 {
        put_number(&busy, number).expect("fits");
        if number % 10 == 0 {
            buffer.discard_old(|| TimeStamp(number), None);
            buffer.take_care();
        }
    }
    assert!(!numbers_in(&buffer.snapshot()).contains(&0));
    assert!(buffer.range().start > start);
    put_number(&quiet, 2000).expect("it goes on in another chunk");
    assert!(numbers_in(&buffer.snapshot()).contains(&2000));
}

#[test]
fn what_is_older_than_a_time_is_given_up() {
    let buffer = ChunkedBuffer::for_test(64 << 10);
    let lane = buffer.take_lane();
    (0..1000).for_each(|number| _ = put_number(&lane, number).expect("fits"));
    assert_eq!(numbers_in(&buffer.snapshot()).len(), 1000);
    buffer.discard_old(|| TimeStamp(1000), Some(TimeStamp(500)));
    let snapshot = buffer.snapshot();
    let numbers = numbers_in(&snapshot);
    assert!((1..=501).contains(&numbers[0]), "{}", numbers[0]);
    assert_eq!(numbers, (numbers[0]..1000).collect::<Vec<_>>());
    assert!(
        snapshot
            .complete_since()
            .is_some_and(|time| time <= TimeStamp(500))
    );
}

#[test]
fn a_buffer_of_one_chunk_keeps_what_came_first() {
    let buffer: ChunkedBuffer<ChunkManagerSingle> = ChunkedBuffer::out_of_session(|| true);
    buffer.begin_with(SESSION, ChunkManagerSingle::new(256));
    let lane = buffer.take_lane_for_samples();
    let put: Vec<u64> = (0..100)
        .take_while(|&number| put_number(&lane, number).is_some())
        .collect();
    assert!((8..=12).contains(&put.len()), "{put:?}");
    assert_eq!(put_number(&lane, 1000), None, "there is no second chunk");
    assert_eq!(numbers_in(&buffer.share()), put);
    let other = buffer.take_lane();
    assert_eq!(put_number(&other, 7), None, "nor one for another writer");
    assert!(buffer.share().statistics.dropped.all() >= 2);
}

#[test]
fn threads_put_side_by_side_and_nothing_is_torn() {
    const THREADS: u64 = 4;
    const EACH: u64 = 20_000;
    let buffer = ChunkedBuffer::for_test(64 << 20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let buffer = &buffer;
                scope.spawn(move || {
                    let lane = buffer.take_lane();
                    (0..EACH).for_each(|number| {
                        _ = put_number(&lane, thread * 1_000_000 + number).expect("fits")
                    });
                })
            })
            .collect();
        let (buffer, done) = (&buffer, &done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                buffer.take_care();
                // Whoever reads sees of each thread the first so many.
                let mut of_threads: BTreeMap<u64, u64> = BTreeMap::new();
                for number in numbers_in(&buffer.snapshot()) {
                    let next = of_threads.entry(number / 1_000_000).or_default();
                    assert_eq!(number % 1_000_000, *next);
                    *next += 1;
                }
            }
        });
        writers
            .into_iter()
            .for_each(|writer| writer.join().expect("a writer"));
        done.store(true, Ordering::Relaxed);
    });
    let mut numbers = numbers_in(&buffer.snapshot());
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len() as u64, THREADS * EACH);
}

#[test]
fn a_reader_sees_nothing_of_a_chunk_without_all_of_the_chunk_before() {
    const OTHERS: u64 = 500;
    for round in 0..200 {
        let buffer = ChunkedBuffer::for_test(64 << 20);
        let lane = buffer.take_lane();
        put_number(&lane, 0).expect("fits");
        // Between the lane's chunk and its next one there are many, so that a reader takes a while from one to the other.
        let others: Vec<_> = (0..OTHERS).map(|_| buffer.take_lane()).collect();
        others
            .iter()
            .for_each(|lane| _ = put_number(lane, 1_000_000).expect("fits"));
        buffer.take_care();
        let goes = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let goes = &goes;
            scope.spawn(move || {
                while !goes.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                (1..250).for_each(|number| _ = put_number(&lane, number).expect("fits"));
            });
            std::thread::sleep(std::time::Duration::from_micros(200));
            goes.store(true, Ordering::Relaxed);
            (0..round).for_each(|_| std::hint::spin_loop());
            let mut numbers = numbers_in(&buffer.snapshot());
            numbers.retain(|&number| number < 1_000_000);
            assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
        });
    }
}
