//! The bytes of a chunk, written and read through shared references.
//!
//! **Contract** of the unsafe functions, upheld by `chunk.rs`:
//! - *no concurrent write*: no byte is written while it is read or while another thread writes it.
//!
//! *zeroed*: the memory of a slab comes from the allocator with the layout of its bytes, all zero.
//!
//! Under loom a shadow cell for each byte lets loom detect conflicting accesses.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size of all slabs that exist, in bytes.
static ALL_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns the size of all slabs that exist, in bytes.
pub(crate) fn all_slab_bytes() -> usize {
    ALL_BYTES.load(Ordering::Relaxed)
}

/// Zeroed memory of a fixed length.
#[derive(Debug)]
pub(crate) struct Slab {
    bytes: Box<[UnsafeCell<u8>]>,
    #[cfg(all(test, loom))]
    watched: Box<[loom::cell::UnsafeCell<()>]>,
}

// SAFETY: the bytes are accessed only in unsafe functions, whose callers uphold *no concurrent
// write*.
unsafe impl Sync for Slab {}

impl Slab {
    /// Allocates a slab whose pages the system has not mapped yet; `None` if there is no memory.
    pub(crate) fn try_new(length: usize) -> Option<Self> {
        let bytes = zeroed(length)?;
        ALL_BYTES.fetch_add(length, Ordering::Relaxed);
        Some(Self {
            bytes,
            #[cfg(all(test, loom))]
            watched: (0..length)
                .map(|_| loom::cell::UnsafeCell::new(()))
                .collect(),
        })
    }

    /// Writes to every page, so that later writes take no page fault.
    pub(crate) fn touch(&mut self) {
        const PAGE_BYTES: usize = 4096;
        for byte in self.bytes.iter_mut().step_by(PAGE_BYTES) {
            *std::hint::black_box(byte.get_mut()) = 0;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
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
        let bytes = &self.bytes[start..start + length];
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
        let bytes = &self.bytes[..length];
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
        ALL_BYTES.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// Allocates zeroed bytes. Returns `None` if there is no memory, where `vec!` would abort.
fn zeroed(length: usize) -> Option<Box<[UnsafeCell<u8>]>> {
    if length == 0 {
        return Some(Box::default());
    }
    let layout = Layout::array::<UnsafeCell<u8>>(length).ok()?;
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout) }.cast::<UnsafeCell<u8>>();
    if start.is_null() {
        return None;
    }
    // SAFETY: *zeroed*: just allocated with the layout of such a slice, and zero is a valid byte.
    Some(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, length)) })
}
