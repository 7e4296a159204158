//! Loom model of one writer and one taker of a [`WritingCell`].
//!
//! It is smaller than `lane_model.rs`, so that a fault of the cell shows up without the rest of the
//! lane. Under loom a shadow cell for each byte of a chunk detects conflicting accesses.

use std::sync::Arc;

use loom::thread::spawn;

use crate::buffer::chunks::chunk::{Chunk, ChunkNumber, ChunkWriter};
use crate::buffer::chunks::writing_cell::WritingCell;
use crate::types::{Generation, TimeStamp};
use crate::util::explore_model;

fn begin_chunk(number: u64) -> (Arc<Chunk>, ChunkWriter) {
    Chunk::new(8).begin(ChunkNumber(number), Generation::from_number(1), 0)
}

fn append(chunk_writer: &mut ChunkWriter, byte: u8) {
    assert!(chunk_writer.append(TimeStamp(1), &&[byte][..]));
}

#[test]
fn chunk_belongs_to_the_writer_or_the_taker_and_is_never_lost() {
    explore_model(["taken before", "taken after", "left there"], || {
        let (chunk, chunk_writer) = begin_chunk(1);
        let cell = Arc::new(WritingCell::empty());
        assert!(cell.begin_write().replace(Some(chunk_writer)).is_none());
        let writer = spawn({
            let cell = Arc::clone(&cell);
            move || {
                let mut writing = cell.begin_write();
                if let Some(mut chunk_writer) = writing.chunk() {
                    append(&mut chunk_writer, b'w');
                    return None;
                }
                // The cell is empty, so the writer continues with another chunk.
                let (next, chunk_writer) = begin_chunk(2);
                let back = writing.replace(Some(chunk_writer));
                append(&mut writing.chunk().expect("it was put there"), b'w');
                back.into_iter().for_each(|back| back.finish(TimeStamp(2)));
                Some(next)
            }
        });
        let taken = cell.take(|| true);
        let is_taken = taken.is_some();
        // The taker owns the chunk now: if the writer still used it, loom would report both writes.
        taken
            .into_iter()
            .for_each(|mut chunk_writer| append(&mut chunk_writer, b't'));
        let next = writer.join().expect("the writer");
        let left = cell
            .take_single_threaded()
            .map(|chunk_writer| chunk_writer.chunk().number);
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
