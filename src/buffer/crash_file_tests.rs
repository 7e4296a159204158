//! Tests that a file holds what a buffer holds, at any moment.

use std::sync::{Arc, Mutex};

use crate::buffer::chunked_buffer::{AbandonedSession, ChunkedBuffer};
use crate::buffer::crash_area::{AreaHead, AreaOwner, CrashArea, FoundChunks};
use crate::types::{Generation, TimeStamp};
use crate::util::SharedMemory;

const SESSION: Generation = ChunkedBuffer::TEST_SESSION;
const CAPACITY: u64 = 256 << 10;
const OWNER: AreaOwner = AreaOwner {
    process: 77,
    ticks: 1234,
};

fn area() -> Arc<CrashArea> {
    let bytes = CrashArea::file_bytes(CAPACITY).expect("a size");
    let memory = SharedMemory::for_test(bytes);
    CrashArea::begin(memory, CAPACITY, SESSION, OWNER).expect("an area")
}

fn buffer_in(area: &Arc<CrashArea>) -> ChunkedBuffer {
    let buffer = ChunkedBuffer::out_of_session(|| true, |_| true);
    buffer.begin_session(SESSION, CAPACITY, Some(Arc::clone(area)));
    buffer
}

fn head(area: &CrashArea) -> AreaHead {
    AreaHead::read(&|bytes, at| area.read_at(bytes, at), area.bytes()).expect("a head")
}

/// Reads the chunks as a rescuer does. A file is read in any pieces, memory in whole words.
fn found(area: &CrashArea) -> FoundChunks {
    let mut image = vec![0; area.bytes() as usize];
    area.read_at(&mut image, 0).expect("memory");
    // The copy is consistent, because no thread writes to the area while the test reads it.
    let read = |bytes: &mut [u8], at: u64| {
        bytes.copy_from_slice(&image[at as usize..][..bytes.len()]);
        Ok(bytes.len())
    };
    head(area).read_chunks(&read).expect("chunks")
}

#[test]
fn file_has_the_chunks_of_a_snapshot_while_chunks_are_recycled() {
    let area = area();
    let buffer = buffer_in(&area);
    let lanes = [
        buffer.take_lane(),
        buffer.take_lane_for_samples(),
        buffer.take_lane(),
    ];
    for number in 0..6000u64 {
        let entry = [number as u8 | 1; 200];
        let length = 1 + number as usize * 7 % entry.len();
        let lane = &lanes[number as usize % lanes.len()];
        assert!(
            lane.put(SESSION, TimeStamp(number + 1), &&entry[..length])
                .is_some()
        );
        if number % 40 == 0 {
            buffer.maintain();
        }
        if number % 500 == 0 {
            let snapshot = buffer.snapshot();
            let found = found(&area);
            assert_eq!(found.damaged, 0);
            let bytes: Vec<&[u8]> = found.chunks.iter().map(|chunk| &*chunk.bytes).collect();
            let expected: Vec<&[u8]> = snapshot.bytes_of_chunks().collect();
            assert_eq!(bytes, expected, "after {number}");
            let head = head(&area);
            assert_eq!(head.complete_since(), snapshot.complete_since);
            let [chunks, recycled_bytes, _] = head.discarded();
            let statistics = snapshot.statistics;
            assert_eq!(chunks, statistics.recycled_chunks);
            assert_eq!(recycled_bytes, statistics.recycled_bytes);
        }
    }
    assert!(head(&area).discarded()[0] > 10, "chunks were recycled");
    assert_eq!(head(&area).chunks_outside(), 0);
    drop(lanes);
    buffer.end_session();
    assert_eq!(found(&area).chunks.len(), 0, "the pages are free again");
}

#[test]
fn buffer_goes_on_outside_of_a_full_file() {
    let area = area();
    let mut pieces = Vec::new();
    while let Some(piece) = area.take_piece(4096) {
        pieces.push(piece);
    }
    let buffer = buffer_in(&area);
    let lane = buffer.take_lane();
    assert!(lane.put(SESSION, TimeStamp(1), &&b"entry"[..]).is_some());
    assert_eq!(found(&area).chunks.len(), 0);
    assert!(head(&area).chunks_outside() >= 2);
    assert_eq!(buffer.snapshot().chunks().flatten().count(), 1);
    // A chunk that begins after pages were given back is in the file again.
    pieces.clear();
    lane.leave_chunk(TimeStamp(2));
    buffer.maintain();
    lane.leave_chunk(TimeStamp(3));
    buffer.maintain();
    assert!(lane.put(SESSION, TimeStamp(4), &&b"entry"[..]).is_some());
    lane.leave_chunk(TimeStamp(5));
    buffer.maintain();
    assert!(lane.put(SESSION, TimeStamp(6), &&b"entry"[..]).is_some());
    assert!(!found(&area).chunks.is_empty());
}

#[test]
fn child_of_a_fork_changes_nothing() {
    let area = area();
    let buffer = buffer_in(&area);
    let lane = buffer.take_lane();
    assert!(lane.put(SESSION, TimeStamp(1), &&b"entry"[..]).is_some());
    area.add_fact(b"of the parent");
    let snapshot = buffer.snapshot();
    // A child keeps the chunks for ever. Here a static does, so that nothing counts as leaked.
    static KEPT: Mutex<Option<AbandonedSession>> = Mutex::new(None);
    let abandoned = buffer.hold_for_fork().abandon_session(Some(0));
    *KEPT.lock().expect("no panic") = Some(abandoned);
    area.add_fact(b"of the child");
    area.set_word(0, 7);
    // A profile of the parent is dropped in the child.
    drop(snapshot);
    let chunks = found(&area).chunks;
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].bytes, b"\x05entry");
    assert_eq!(head(&area).owner_word(0), 0);
    let read = |bytes: &mut [u8], at| area.read_at(bytes, at);
    let facts = head(&area).read_facts(&read).expect("facts");
    assert_eq!(facts.all().collect::<Vec<_>>(), [b"of the parent"]);
}

#[test]
fn facts_are_written_again_when_the_space_is_nearly_used_up() {
    let area = area();
    let read_all = || {
        let read = |bytes: &mut [u8], at| area.read_at(bytes, at);
        let facts = head(&area).read_facts(&read).expect("facts");
        assert_eq!(facts.damaged_words, 0);
        facts.all().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let mut rewrites = 0;
    for number in 0..100_000u32 {
        area.add_fact(&number.to_le_bytes());
        if area.wants_rewrite() {
            rewrites += 1;
            area.rewrite_facts(|write| {
                write(b"lasting");
                // Another thread may add a fact during the rewrite.
                area.add_fact(b"meanwhile");
            });
            let facts = read_all();
            assert!(facts.contains(&b"lasting".to_vec()) && facts.contains(&b"meanwhile".to_vec()));
            assert_eq!(facts.last(), Some(&b"lasting".to_vec()));
        }
    }
    assert!(rewrites > 5, "{rewrites}");
    assert_eq!(head(&area).lost_facts(), 0);
    // Without a rewrite, facts are lost and counted.
    for _ in 0..100_000 {
        area.add_fact(b"12345678");
    }
    assert!(head(&area).lost_facts() > 0);
}

#[test]
fn damaged_heads_are_counted_and_give_no_chunk() {
    let area = area();
    let buffer = buffer_in(&area);
    let lane = buffer.take_lane();
    assert!(lane.put(SESSION, TimeStamp(1), &&b"entry"[..]).is_some());
    let mut image = vec![0u8; area.bytes() as usize];
    area.read_at(&mut image, 0).expect("memory");
    let first = found(&area);
    assert_eq!(first.chunks.len(), 1);
    // The position of the head: its sequence, committed bytes, number, position and size.
    let head_of_chunk = image
        .windows(40)
        .position(|words| words[8] == 6 && words[33] == 16 && words[0] == 2)
        .expect("a head");
    let damaged_with = |at: usize, value: u64| {
        let mut image = image.clone();
        image[head_of_chunk + at..][..8].copy_from_slice(&value.to_le_bytes());
        let read = |bytes: &mut [u8], at: u64| {
            bytes.copy_from_slice(&image[at as usize..][..bytes.len()]);
            Ok(bytes.len())
        };
        let found = AreaHead::read(&read, image.len() as u64)
            .and_then(|head| head.read_chunks(&read))
            .expect("chunks");
        (found.chunks.len(), found.damaged)
    };
    for (at, value, expected) in [
        // A chunk that is being changed, and a chunk of another session.
        (0, 3, (0, 0)),
        (40, 9, (0, 0)),
        // More complete bytes than the chunk has, and sizes that no chunk has.
        (8, u64::MAX, (0, 1)),
        (8, 4097, (0, 1)),
        (32, u64::MAX, (0, 1)),
        (32, 2 << 20, (0, 1)),
        (32, 0, (0, 1)),
    ] {
        assert_eq!(damaged_with(at, value), expected, "{at}: {value}");
    }
}
