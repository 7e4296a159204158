//! Tests of concurrent writers, readers and recycling.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::buffer::buffer_snapshot::BufferSnapshot;
use crate::buffer::chunked_buffer::{ChunkedBuffer, LaneHandle};
use crate::buffer::chunks::ChunkNumber;
use crate::buffer::entries::{Entry, EntryCursor, EntryHead, EntryKind, EntryReader};
use crate::buffer::session_chunks::Dropped;
use crate::types::{Generation, TimeStamp};

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

fn put_number(lane: &LaneHandle<'_>, number: u64) -> Option<ChunkNumber> {
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
fn full_buffer_discards_the_oldest_chunks_and_reads_back_the_rest_in_order() {
    let buffer = ChunkedBuffer::for_test(4096);
    let lane = buffer.take_lane();
    for number in 0..1000 {
        put_number(&lane, number).expect("fits");
        if number % 7 == 0 {
            buffer.maintain();
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
    let memory = snapshot.chunk_memory;
    assert!(
        memory.unreleased_bytes + memory.released_bytes <= 4096,
        "{memory:?}"
    );
    let complete_since = snapshot.complete_since.expect("something is missing");
    assert_eq!(
        complete_since,
        TimeStamp(first),
        "the previous chunk was done when this entry was put"
    );
}

#[test]
fn lane_that_just_moved_to_its_next_chunk_is_not_idle() {
    let buffer = ChunkedBuffer::for_test(4096);
    let (slow, fast) = (buffer.take_lane(), buffer.take_lane());
    let first = put_number(&slow, 0).expect("fits");
    (1..500).for_each(|number| _ = put_number(&fast, number).expect("fits"));
    assert!(
        buffer.snapshot().statistics.recycled_chunks > 0,
        "the slow lane's chunk is the oldest"
    );
    // Supply the slow lane's next chunk, so that filling the current one requests no maintenance.
    buffer.maintain();
    let next =
        (500..1000).find_map(|number| put_number(&slow, number).filter(|&chunk| chunk != first));
    assert!(next.is_some());
    buffer.discard_old(|| TimeStamp(1000), None);
    assert_eq!(put_number(&slow, 1000), next, "the lane keeps its chunk");
}

#[test]
fn snapshot_stays_intact_while_its_chunks_are_recycled() {
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
fn snapshot_drops_chunks_and_counts_the_discarded_bytes() {
    let buffer = ChunkedBuffer::for_test(4096);
    let lane = buffer.take_lane();
    (0..100).for_each(|number| _ = put_number(&lane, number).expect("fits"));
    let mut snapshot = buffer.snapshot();
    let chunks = snapshot.chunks().len();
    assert!(chunks > 2 && snapshot.discarded_bytes() == 0);
    let bytes: u64 = snapshot
        .chunks()
        .flatten()
        .map(|block| block.expect("well formed").bytes)
        .sum();
    // The last chunk is still being written.
    (100..2000).for_each(|number| _ = put_number(&lane, number).expect("fits"));
    assert_eq!(snapshot.discarded_bytes(), bytes);
    let last = numbers_in(&snapshot).last().copied();
    snapshot.retain_chunks((1..=chunks).map(|number| number == chunks));
    assert_eq!(
        (snapshot.chunks().len(), snapshot.discarded_bytes()),
        (1, bytes)
    );
    assert_eq!(
        numbers_in(&snapshot).last().copied(),
        last,
        "kept chunks can be read"
    );
    drop(lane);
}

/// An entry during whose write the process forks. The parent then completes the write.
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
fn lane_is_usable_in_a_forked_child_after_a_write_in_progress() {
    let buffer = ChunkedBuffer::for_test(64 << 10);
    let parents = buffer.take_lane();
    let in_child = |buffer: &ChunkedBuffer| {
        buffer.begin_session(SESSION, 64 << 10, None);
        let lane = buffer.take_lane();
        assert_eq!(lane.index(), 0, "the abandoned lane is reused");
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
fn entry_larger_than_a_chunk_is_dropped_and_counted() {
    let buffer = ChunkedBuffer::for_test(64 << 10);
    let lane = buffer.take_lane();
    assert_eq!(put_bytes(&lane, SESSION, 0, &[1; 20_000]), None);
    let chunk = put_number(&lane, 7).expect("fits");
    (0..10).for_each(|_| assert_eq!(put_bytes(&lane, SESSION, 0, &[1; 20_000]), None));
    assert_eq!(
        put_number(&lane, 7),
        Some(chunk),
        "the lane keeps its chunk"
    );
    // Larger than a lane's initial chunk.
    assert!(put_bytes(&lane, SESSION, 0, &[9; 16_000]).is_some());
    assert!(put_number(&lane, 8).is_some());
    let snapshot = buffer.snapshot();
    assert_eq!(
        (
            numbers_in(&snapshot),
            snapshot.statistics.dropped.by(Dropped::TooLarge)
        ),
        (vec![7, 7, 9, 8], 11)
    );
}

#[test]
fn without_memory_own_chunks_are_recycled_then_entries_are_dropped_until_there_is_memory() {
    static HAS_MEMORY: AtomicBool = AtomicBool::new(true);
    let buffer =
        ChunkedBuffer::for_test_with_memory(64 << 20, |_| HAS_MEMORY.load(Ordering::Relaxed));
    let lane = buffer.take_lane();
    let put = |numbers: std::ops::Range<u64>| {
        numbers
            .filter(|&number| put_number(&lane, number).is_some())
            .count()
    };
    assert_eq!(put(0..1000), 1000);
    let before = buffer.snapshot();
    HAS_MEMORY.store(false, Ordering::Relaxed);
    // The snapshot shares the chunks, so discarding them would free no memory. What was granted
    // before is used up first.
    let mut next = 1000;
    while put(next..next + 1000) > 0 {
        next += 1000;
        buffer.maintain();
    }
    assert!(buffer.lacks_memory());
    let statistics = buffer.snapshot().statistics;
    assert_eq!(
        (statistics.refused_chunks, statistics.recycled_chunks),
        (1, 0)
    );
    assert!(statistics.dropped.by(Dropped::OutOfMemory) >= 1000);
    assert_eq!(
        statistics.dropped.all(),
        statistics.dropped.by(Dropped::OutOfMemory)
    );
    drop(before);
    // The sampler allows an attempt from time to time. Then the oldest chunks are recycled.
    assert_eq!(put(0..1), 0);
    (0..16).for_each(|_| buffer.maintain());
    assert_eq!(put(1_000_000..1_050_000), 50_000);
    let full = buffer.snapshot().statistics;
    assert!(full.refused_chunks > 1 && full.recycled_chunks > 0);
    assert_eq!(
        full.dropped.by(Dropped::OutOfMemory),
        statistics.dropped.by(Dropped::OutOfMemory) + 1
    );
    let held = |buffer: &ChunkedBuffer| buffer.fill_level().expect("in session").0;
    let held_before = held(&buffer);
    HAS_MEMORY.store(true, Ordering::Relaxed);
    assert_eq!(put(2_000_000..2_050_000), 50_000);
    assert!(held(&buffer) >= held_before, "the buffer grows again");
}

#[test]
fn older_half_of_a_snapshot_is_left_out_and_counted() {
    let buffer = ChunkedBuffer::for_test(64 << 10);
    let lane = buffer.take_lane();
    (0..300).for_each(|number| _ = put_number(&lane, number).expect("fits"));
    let mut snapshot = buffer.snapshot();
    let (bytes, chunks) = (snapshot.bytes(), snapshot.chunks().len());
    assert!(chunks >= 2 && snapshot.complete_since.is_none());
    assert!(snapshot.leave_out_older_half());
    assert_eq!(snapshot.chunks().len(), chunks - chunks / 2);
    assert_eq!(snapshot.bytes() + snapshot.left_out_bytes, bytes);
    let first = numbers_in(&snapshot)[0];
    assert_eq!(snapshot.complete_since, Some(TimeStamp(first - 1)));
    while snapshot.leave_out_older_half() {}
    assert_eq!(snapshot.chunks().len(), 1, "one chunk is always left");
}

#[test]
fn put_without_a_session_or_for_another_session_returns_none() {
    let buffer = ChunkedBuffer::for_test(4096);
    let lane = buffer.take_lane();
    assert!(put_number(&lane, 1).is_some());
    let other = Generation::from_number(2);
    assert_eq!(put_bytes(&lane, other, 0, &[1]), None);
    assert_eq!(numbers_in(&buffer.snapshot()), [1]);
    buffer.end_session();
    assert_eq!(put_number(&lane, 2), None);
    assert!(numbers_in(&buffer.snapshot()).is_empty() && buffer.fill_level().is_none());
    buffer.begin_session(other, 4096, None);
    assert_eq!(put_number(&lane, 3), None);
    assert!(put_bytes(&lane, other, 0, &[4]).is_some());
    let snapshot = buffer.snapshot();
    assert_eq!(
        (numbers_in(&snapshot), snapshot.statistics.dropped.all()),
        (vec![4], 0)
    );
}

/// An entry during whose write a signal handler puts another one.
struct Interrupted<'a> {
    lane: &'a LaneHandle<'a>,
    own: u64,
    handlers: u64,
}

impl Entry for Interrupted<'_> {
    fn bytes(&self) -> usize {
        Entry::bytes(EntryHead::new(EntryKind::Counter).number(self.own))
    }

    fn write(&self, out: &mut EntryCursor<'_>) {
        put_number(self.lane, self.handlers).expect("fits");
        EntryHead::new(EntryKind::Counter)
            .number(self.own)
            .write(out);
    }
}

#[test]
fn interrupting_and_interrupted_entries_are_both_kept_with_their_times() {
    let buffer = ChunkedBuffer::for_test(1 << 20);
    let lane = buffer.take_lane();
    put_number(&lane, 1).expect("fits");
    let mut expected = vec![1];
    for number in (1000..1100).step_by(2) {
        buffer.maintain();
        let entry = Interrupted {
            lane: &lane,
            own: number,
            handlers: number + 1,
        };
        lane.put(SESSION, TimeStamp(number), &entry).expect("fits");
        expected.extend([number, number + 1]);
    }
    buffer.maintain();
    let memory = buffer.snapshot().chunk_memory;
    assert_eq!(
        memory.unreleased_bytes,
        2 * 4096,
        "only the lane's current and next chunks"
    );
    buffer.discard_old(|| TimeStamp(1100), Some(TimeStamp(502)));
    let mut numbers = numbers_in(&buffer.snapshot());
    numbers.sort_unstable();
    assert_eq!(numbers, expected);
}

#[test]
fn interrupting_entries_use_little_of_the_capacity() {
    let buffer = ChunkedBuffer::for_test(64 << 20);
    let lane = buffer.take_lane_for_samples();
    let mut expected = Vec::new();
    for number in (1000..3000).step_by(2) {
        buffer.maintain();
        let entry = Interrupted {
            lane: &lane,
            own: number,
            handlers: number + 1,
        };
        lane.put(SESSION, TimeStamp(number), &entry).expect("fits");
        expected.extend([number, number + 1]);
    }
    let mut numbers = numbers_in(&buffer.snapshot());
    numbers.sort_unstable();
    assert_eq!(numbers, expected, "nothing is discarded");
    assert!(buffer.snapshot().chunk_memory.released_bytes <= 1000 * 4096);
}

#[test]
fn late_entry_of_a_previous_session_uses_no_chunk_of_the_active_one() {
    let buffer = ChunkedBuffer::for_test(4096);
    let lane = buffer.take_lane();
    let other = Generation::from_number(2);
    buffer.begin_session(other, 4096, None);
    let chunk = put_bytes(&lane, other, 0, &[1]).expect("fits");
    buffer.maintain();
    let before = buffer.snapshot().chunk_memory.unreleased_bytes;
    (0..10).for_each(|_| assert_eq!(put_bytes(&lane, SESSION, 0, &[1]), None));
    assert_eq!(put_bytes(&lane, other, 0, &[1]), Some(chunk));
    buffer.maintain();
    assert_eq!(buffer.snapshot().chunk_memory.unreleased_bytes, before);
}

#[test]
fn put_in_chunk_puts_only_into_the_requested_chunk() {
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
    // A failed `put_in_chunk` leaves the chunk open: a smaller entry still goes there.
    assert_eq!(put_bytes(&lane, SESSION, 0, &[1]), Some(first));
    lane.leave_chunk(TimeStamp(0));
    let second = put_number(&lane, 1).expect("fits");
    assert!(second != first && put_in_first(&lane).is_none());
    assert_eq!(buffer.snapshot().statistics.dropped.all(), 0);
}

#[test]
fn next_chunk_is_supplied_in_advance_and_grows_with_the_write_rate() {
    const CAPACITY: u64 = 16 << 20;
    let buffer = ChunkedBuffer::for_test(CAPACITY);
    let lane = buffer.take_lane();
    buffer.maintain();
    let unreleased = |buffer: &ChunkedBuffer| buffer.snapshot().chunk_memory.unreleased_bytes;
    assert_eq!(unreleased(&buffer), 4096, "an initial chunk");
    let entry = [1; 1000];
    let mut largest = 0;
    for time in 0..10_000u64 {
        put_bytes(&lane, SESSION, time, &entry).expect("fits");
        buffer.maintain();
        largest = largest.max(unreleased(&buffer));
    }
    assert_eq!(largest, 2 << 20, "two of the largest chunks");
    // Chunks that fill slowly keep their size until there are many of them.
    let slow = buffer.take_lane();
    let before = unreleased(&buffer);
    let put_slowly = |times: std::ops::Range<u64>| {
        for time in times {
            put_bytes(&slow, SESSION, time * 300_000_000, &entry).expect("fits");
            buffer.maintain();
        }
        unreleased(&buffer)
    };
    assert_eq!(put_slowly(0..60), before + 2 * 4096);
    assert!(put_slowly(60..80) > before + 2 * 4096);
    assert!(put_slowly(80..10_000) <= CAPACITY / 2);
}

#[test]
fn thousand_lanes_use_at_most_half_of_the_capacity() {
    const CAPACITY: u64 = 32 << 20;
    let buffer = ChunkedBuffer::for_test(CAPACITY);
    let lanes: Vec<_> = (0..1000).map(|_| buffer.take_lane()).collect();
    buffer.maintain();
    let memory = buffer.snapshot().chunk_memory;
    assert_eq!(memory.unreleased_bytes, 1000 * 4096);
    for round in 0..40 {
        for lane in &lanes {
            (0..8).for_each(|_| _ = put_bytes(lane, SESSION, round, &[1; 1000]).expect("fits"));
        }
        buffer.maintain();
        let memory = buffer.snapshot().chunk_memory;
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
fn next_writer_continues_in_the_chunk_of_the_previous_one() {
    let buffer = ChunkedBuffer::for_test(1 << 20);
    let chunks: Vec<_> = (0..100)
        .map(|number| {
            let lane = buffer.take_lane();
            buffer.maintain();
            put_number(&lane, number).expect("fits")
        })
        .collect();
    assert!(chunks.iter().all(|chunk| *chunk == chunks[0]), "{chunks:?}");
    assert_eq!(numbers_in(&buffer.snapshot()).len(), 100);
    assert_eq!(buffer.snapshot().statistics.lanes, 0);
    assert_eq!(
        buffer.snapshot().chunk_memory.unreleased_bytes,
        4096,
        "a lane without a writer keeps no next chunk"
    );
}

#[test]
fn idle_lane_keeps_no_entry_older_than_the_rest_of_the_buffer() {
    let buffer = ChunkedBuffer::for_test(4096);
    let (quiet, busy) = (buffer.take_lane(), buffer.take_lane());
    put_number(&quiet, 0).expect("fits");
    let start = buffer.range().start;
    for number in 1..1000 {
        put_number(&busy, number).expect("fits");
        if number % 10 == 0 {
            buffer.discard_old(|| TimeStamp(number), None);
            buffer.maintain();
        }
    }
    assert!(!numbers_in(&buffer.snapshot()).contains(&0));
    assert!(buffer.range().start > start);
    put_number(&quiet, 2000).expect("it continues in another chunk");
    assert!(numbers_in(&buffer.snapshot()).contains(&2000));
}

#[test]
fn discard_old_discards_chunks_done_by_the_given_time() {
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
            .complete_since
            .is_some_and(|time| time <= TimeStamp(500))
    );
}

#[test]
fn concurrent_writers_lose_and_tear_no_entry() {
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
                buffer.maintain();
                // A reader sees a prefix of each thread's entries.
                let mut next_by_thread: BTreeMap<u64, u64> = BTreeMap::new();
                for number in numbers_in(&buffer.snapshot()) {
                    let next = next_by_thread.entry(number / 1_000_000).or_default();
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
fn snapshot_with_entries_of_a_chunk_has_all_of_the_lanes_previous_chunk() {
    const OTHERS: u64 = 500;
    for round in 0..200 {
        let buffer = ChunkedBuffer::for_test(64 << 20);
        let lane = buffer.take_lane();
        put_number(&lane, 0).expect("fits");
        // Many chunks of other lanes lie between this lane's chunk and its next one, so that a
        // snapshot takes a while to get from one to the other.
        let others: Vec<_> = (0..OTHERS).map(|_| buffer.take_lane()).collect();
        others
            .iter()
            .for_each(|lane| _ = put_number(lane, 1_000_000).expect("fits"));
        buffer.maintain();
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
