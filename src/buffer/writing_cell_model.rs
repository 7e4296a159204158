//! A writer and a taker of one cell, tried by loom: less than in `lane_model.rs`, so that what breaks the cell is seen at once.
//!
//! Each byte of a chunk has a cell beside it by which loom sees two that touch it at once.

use std::sync::Arc;

use loom::thread::spawn;

use crate::base::{Generation, TimeStamp, explore_model};
use crate::buffer::chunk::{Chunk, WriteRight};
use crate::buffer::index::ChunkNumber;
use crate::buffer::writing_cell::WritingCell;

fn begin_chunk(number: u64) -> (Arc<Chunk>, WriteRight) {
    Chunk::new(8).begin(ChunkNumber(number), Generation::from_number(1), 0)
}

fn append(right: &mut WriteRight, byte: u8) {
    assert!(right.append(TimeStamp(1), &&[byte][..]));
}

#[test]
fn a_chunk_is_its_writers_or_its_takers_and_never_lost() {
    explore_model(["taken before", "taken after", "left there"], || {
        let (chunk, right) = begin_chunk(1);
        let cell = Arc::new(WritingCell::empty());
        assert!(cell.write().replace(Some(right)).is_none());
        let writer = spawn({
            let cell = Arc::clone(&cell);
            move || {
                let mut writing = cell.write();
                if let Some(mut right) = writing.chunk() {
                    append(&mut right, b'w');
                    return None;
                }
                // None is there, so the writer goes on with another.
                let (next, right) = begin_chunk(2);
                let back = writing.replace(Some(right));
                append(&mut writing.chunk().expect("it was put there"), b'w');
                back.into_iter().for_each(|back| back.finish(TimeStamp(2)));
                Some(next)
            }
        });
        let taken = cell.take(|| true);
        let is_taken = taken.is_some();
        // As its owner: if the writer had it still, loom would see both write.
        taken
            .into_iter()
            .for_each(|mut right| append(&mut right, b't'));
        let next = writer.join().expect("the writer");
        let left = cell.take_alone().map(|right| right.chunk().number);
        match (next, is_taken) {
            (Some(next), _) => {
                assert_eq!(
                    (next.committed_bytes(), left),
                    (&b"\x01w"[..], Some(ChunkNumber(2)))
                );
                if is_taken {
                    "taken before"
                } else {
                    "left there"
                }
            }
            (None, true) => {
                assert_eq!((chunk.committed_bytes(), left), (&b"\x01w\x01t"[..], None));
                "taken after"
            }
            (None, false) => {
                assert_eq!(
                    (chunk.committed_bytes(), left),
                    (&b"\x01w"[..], Some(ChunkNumber(1)))
                );
                "left there"
            }
        }
    });
}
