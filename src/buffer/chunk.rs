//! A slab of bytes with one writer and any number of readers.
//!
//! **Contract** (cited below):
//! - *one writer*: [`Chunk::append`] is called by the holder of the buffer's mutex, which owns the chunk's
//!   [`WriteRight`]; there is one for each chunk;
//! - *committed bytes rest*: bytes below `committed` are written before `committed` is raised (release), and are not
//!   written again while anybody else shares the chunk; readers look only below a `committed` that they loaded
//!   (acquire).

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::TimeStamp;
use crate::buffer::index::ChunkNumber;

/// Contiguous memory that holds whole blocks.
#[doc(alias = "ProfileBufferChunk")]
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) number: ChunkNumber,
    /// The position of its first byte among all bytes that were ever put.
    pub(super) range_start: u64,
    /// When it was first written to.
    pub(super) first_used: TimeStamp,
    committed: AtomicUsize,
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: *one writer* and *committed bytes rest*: no byte is read and written at once.
unsafe impl Sync for Chunk {}

/// The right to append to a chunk.
#[derive(Debug)]
pub(super) struct WriteRight {
    chunk: Arc<Chunk>,
}

impl Chunk {
    pub(super) fn new(bytes: usize) -> Self {
        let zeroed: Box<[u8]> = vec![0; bytes].into_boxed_slice();
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`. Not by an iterator, which would touch every page at once.
        let bytes = unsafe { Box::from_raw(Box::into_raw(zeroed) as *mut [UnsafeCell<u8>]) };
        Self {
            number: ChunkNumber(0),
            range_start: 0,
            first_used: TimeStamp::default(),
            committed: AtomicUsize::new(0),
            bytes,
        }
    }

    /// Empties the chunk for a new life. `self` is owned, so nobody shares it.
    pub(super) fn begin(mut self, number: ChunkNumber, range_start: u64, now: TimeStamp) -> WriteRight {
        *self.committed.get_mut() = 0;
        self.number = number;
        self.range_start = range_start;
        self.first_used = now;
        WriteRight { chunk: Arc::new(self) }
    }

    /// The position after its last committed byte.
    pub(super) fn range_end(&self) -> u64 {
        self.range_start + self.committed_bytes().len() as u64
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that were committed before this call, whole blocks all.
    pub(super) fn committed_bytes(&self) -> &[u8] {
        let committed = self.committed.load(Ordering::Acquire);
        // SAFETY: *committed bytes rest*; `UnsafeCell<u8>` has the layout of `u8`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast::<u8>(), committed) }
    }
}

impl WriteRight {
    pub(super) fn chunk(&self) -> &Arc<Chunk> {
        &self.chunk
    }

    /// Gives the right up: the chunk is complete.
    pub(super) fn into_chunk(self) -> Arc<Chunk> {
        self.chunk
    }

    /// Appends the parts as one, and gives the offset of the first byte; `None`, and nothing changed, when they do not
    /// fit.
    pub(super) fn append(&mut self, parts: &[&[u8]]) -> Option<usize> {
        let start = self.chunk.committed.load(Ordering::Relaxed);
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > self.chunk.capacity() - start {
            return None;
        }
        let mut end = start;
        for part in parts {
            // SAFETY: *one writer*: `&mut self` is the only right, and the target lies above `committed`, inside of
            // the slab, since all parts together fit.
            unsafe {
                let target = self.chunk.bytes.as_ptr().add(end).cast::<u8>().cast_mut();
                std::ptr::copy_nonoverlapping(part.as_ptr(), target, part.len());
            }
            end += part.len();
        }
        self.chunk.committed.store(end, Ordering::Release);
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_appended_whole_or_not_at_all() {
        let mut right = Chunk::new(8).begin(ChunkNumber(3), 100, TimeStamp(5));
        assert_eq!(right.append(&[b"ab", b"", b"cd"]), Some(0));
        assert_eq!(right.append(&[b"12345"]), None);
        assert_eq!(right.append(&[b"1234"]), Some(4));
        assert_eq!(right.append(&[b"x"]), None);
        assert_eq!(right.chunk().committed_bytes(), b"abcd1234");
        let chunk = Arc::try_unwrap(right.into_chunk()).expect("unshared");
        let again = chunk.begin(ChunkNumber(4), 200, TimeStamp(6));
        assert_eq!(again.chunk().committed_bytes(), b"");
    }

    #[test]
    fn a_reader_beside_the_writer_sees_whole_appends() {
        let mut right = Chunk::new(1 << 20).begin(ChunkNumber(0), 0, TimeStamp(0));
        let chunk = Arc::clone(right.chunk());
        let reader = std::thread::spawn(move || {
            loop {
                let bytes = chunk.committed_bytes();
                assert_eq!(bytes.len() % 4, 0);
                for (index, word) in bytes.chunks_exact(4).enumerate() {
                    assert_eq!(word, (index as u32).to_le_bytes());
                }
                if bytes.len() == 1 << 20 {
                    return;
                }
            }
        });
        for index in 0..1u32 << 18 {
            let word = index.to_le_bytes();
            right.append(&[&word[..1], &word[1..]]).expect("room");
        }
        reader.join().expect("the reader saw whole words");
    }
}
