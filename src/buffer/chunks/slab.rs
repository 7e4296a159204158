//! The bytes of a chunk, written and read through shared references.
//!
//! **Contract** of the unsafe functions, upheld by `chunk.rs`:
//! - *no concurrent write*: no byte is written while it is read or while another thread writes it.
//!
//! Under loom a shadow cell for each byte lets loom detect conflicting accesses.

use std::cell::UnsafeCell;

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
    pub(crate) fn new(length: usize) -> Self {
        let zeroed: Box<[u8]> = vec![0; length].into_boxed_slice();
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`. Collecting from an iterator would touch
        // every page here; the cast leaves the zeroed pages untouched.
        let bytes = unsafe { Box::from_raw(Box::into_raw(zeroed) as *mut [UnsafeCell<u8>]) };
        Self {
            bytes,
            #[cfg(all(test, loom))]
            watched: (0..length)
                .map(|_| loom::cell::UnsafeCell::new(()))
                .collect(),
        }
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
