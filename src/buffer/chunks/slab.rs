//! The bytes of a chunk, written and read through shared references.
//!
//! **Contract** of the unsafe functions, upheld by `chunk.rs`:
//! - *no concurrent write*: no byte is written while it is read or while another thread writes it.
//!
//! Held by this file:
//! - *own bytes*: the bytes belong to this slab alone until it is dropped. They come from the
//!   allocator with the layout of an array of bytes, all zero, or are a piece of the crash file, which
//!   the slab keeps. All of them are initialized.
//!
//! Under loom a shadow cell for each byte lets loom detect conflicting accesses.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::buffer::crash_area::{AreaPiece, CrashArea};
use crate::types::{Generation, TimeStamp};

/// Size of all slabs that the allocator has, in bytes.
static ALL_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns the size of all slabs that the allocator has, in bytes.
pub(crate) fn all_slab_bytes() -> usize {
    ALL_BYTES.load(Ordering::Relaxed)
}

/// Memory of a fixed length.
#[derive(Debug)]
pub(crate) struct Slab {
    start: NonNull<UnsafeCell<u8>>,
    length: usize,
    /// The piece of the crash file that has the bytes; `None` if the allocator has them.
    piece: Option<InFile>,
    #[cfg(all(test, loom))]
    watched: Box<[loom::cell::UnsafeCell<()>]>,
}

/// A piece of the crash file.
#[derive(Debug)]
struct InFile {
    piece: AreaPiece,
    /// The number of complete bytes in the file. Lies in the mapping that `piece` keeps.
    committed: NonNull<AtomicU64>,
}

// SAFETY: *own bytes*: a slab belongs to no thread.
unsafe impl Send for Slab {}
// SAFETY: the bytes are accessed only in unsafe functions, whose callers uphold *no concurrent
// write*; the counter is atomic.
unsafe impl Sync for Slab {}

impl Slab {
    /// Allocates a slab whose pages the system has not mapped yet. Returns `None` if the allocation
    /// fails.
    pub(crate) fn try_new(length: usize) -> Option<Self> {
        Some(Self::with_bytes(zeroed(length)?, length, None))
    }

    /// Takes a slab out of the crash file; `None` if that has no space.
    pub(crate) fn try_new_in(area: &Arc<CrashArea>, length: usize) -> Option<Self> {
        let piece = area.take_piece(length)?;
        let (start, committed) = (piece.start().cast(), NonNull::from(piece.committed()));
        let in_file = InFile { piece, committed };
        Some(Self::with_bytes(start, length, Some(in_file)))
    }

    fn with_bytes(start: NonNull<UnsafeCell<u8>>, length: usize, piece: Option<InFile>) -> Self {
        if piece.is_none() {
            ALL_BYTES.fetch_add(length, Ordering::Relaxed);
        }
        Self {
            start,
            length,
            piece,
            #[cfg(all(test, loom))]
            watched: (0..length)
                .map(|_| loom::cell::UnsafeCell::new(()))
                .collect(),
        }
    }

    /// Notes in the crash file that the bytes below `length` are complete. Called by the writer,
    /// after it has written them.
    #[inline(always)]
    pub(crate) fn note_committed(&self, length: usize) {
        if let Some(InFile { committed, .. }) = &self.piece {
            // SAFETY: *own bytes*: the piece keeps the mapping in which the counter lies.
            unsafe { committed.as_ref() }.store(length as u64, Ordering::Release);
        }
    }

    /// Notes in the crash file that a content begins.
    pub(crate) fn note_begin(&self, number: u64, session: Generation, range_start: u64) {
        if let Some(InFile { piece, .. }) = &self.piece {
            piece.begin(number, session, range_start);
        }
    }

    /// Notes in the crash file that the content, of this many entries, is discarded.
    pub(crate) fn note_discarded(&self, done_at: TimeStamp, entries: u64) {
        if let Some(InFile { piece, .. }) = &self.piece {
            piece.discard(done_at, entries);
        }
    }

    fn bytes(&self) -> &[UnsafeCell<u8>] {
        // SAFETY: *own bytes*, and the cells allow writes through a shared reference.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// Writes to every page, so that later writes take no page fault.
    pub(crate) fn touch(&mut self) {
        const PAGE_BYTES: usize = 4096;
        for byte in self.bytes().iter().step_by(PAGE_BYTES) {
            // SAFETY: *own bytes*: `&mut self` excludes every other borrow.
            unsafe { std::hint::black_box(byte.get()).write(0) };
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the `length` bytes from `start` on, for writing. Panics if they exceed the slab.
    ///
    /// # Safety
    /// - *no concurrent write*: while the bytes are borrowed, no other borrow covers any of them.
    #[inline(always)]
    #[expect(
        clippy::mut_from_ref,
        reason = "the caller guarantees that no other borrow covers these bytes"
    )]
    pub(crate) unsafe fn slice_mut(&self, start: usize, length: usize) -> &mut [u8] {
        let bytes = &self.bytes()[start..start + length];
        #[cfg(all(test, loom))]
        self.watched[start..start + length]
            .iter()
            .for_each(|cell| cell.with_mut(|_| ()));
        // SAFETY: `UnsafeCell` allows writes through a shared reference, and by *no concurrent
        // write* no other borrow covers these bytes.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_ptr().cast::<u8>().cast_mut(), length) }
    }

    /// Returns the first `length` bytes. Panics if they exceed the slab.
    ///
    /// # Safety
    /// - *no concurrent write*: while the bytes are borrowed, none of them is written.
    pub(crate) unsafe fn read(&self, length: usize) -> &[u8] {
        let bytes = &self.bytes()[..length];
        #[cfg(all(test, loom))]
        self.watched[..length]
            .iter()
            .for_each(|cell| cell.with(|_| ()));
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`, and by *no concurrent write* the bytes
        // are not written.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), length) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if self.piece.is_some() {
            return;
        }
        ALL_BYTES.fetch_sub(self.length, Ordering::Relaxed);
        if self.length > 0
            && let Ok(layout) = Layout::array::<UnsafeCell<u8>>(self.length)
        {
            // SAFETY: *own bytes*: allocated with this layout, and not used any more.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}

/// Allocates zeroed bytes. Returns `None` if the allocation fails, where `vec!` would abort.
fn zeroed(length: usize) -> Option<NonNull<UnsafeCell<u8>>> {
    if length == 0 {
        return Some(NonNull::dangling());
    }
    let layout = Layout::array::<UnsafeCell<u8>>(length).ok()?;
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { alloc_zeroed(layout) }.cast())
}
