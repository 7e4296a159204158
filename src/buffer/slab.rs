//! The bytes of a chunk, written and read through shared references.
//!
//! **Contract** of its unsafe functions, kept by `chunk.rs`:
//! - *apart*: no byte is written while it is read, or while another thread writes it.
//!
//! Under loom each byte has a cell beside it, by which loom finds two that touch a byte at once.

use std::cell::UnsafeCell;

/// Zeroed memory of a fixed length.
#[derive(Debug)]
pub(super) struct Slab {
    bytes: Box<[UnsafeCell<u8>]>,
    #[cfg(all(test, loom))]
    watched: Box<[loom::cell::UnsafeCell<()>]>,
}

// SAFETY: *apart* is asked of whoever touches the bytes.
unsafe impl Sync for Slab {}

impl Slab {
    pub(super) fn new(length: usize) -> Self {
        let zeroed: Box<[u8]> = vec![0; length].into_boxed_slice();
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`. Not by an iterator, which would touch every page at once.
        let bytes = unsafe { Box::from_raw(Box::into_raw(zeroed) as *mut [UnsafeCell<u8>]) };
        Self {
            bytes,
            #[cfg(all(test, loom))]
            watched: (0..length)
                .map(|_| loom::cell::UnsafeCell::new(()))
                .collect(),
        }
    }

    pub(super) fn touch(&mut self) {
        const PAGE_BYTES: usize = 4096;
        for byte in self.bytes.iter_mut().step_by(PAGE_BYTES) {
            *std::hint::black_box(byte.get_mut()) = 0;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The `length` bytes from `start` on, to be written; what does not lie in the slab is a panic.
    ///
    /// # Safety
    /// - *apart*, for as long as the bytes are borrowed: nobody else has any of them.
    #[inline(always)]
    #[expect(
        clippy::mut_from_ref,
        reason = "the caller promises that nobody else has these bytes"
    )]
    pub(super) unsafe fn place(&self, start: usize, length: usize) -> &mut [u8] {
        let place = &self.bytes[start..start + length];
        #[cfg(all(test, loom))]
        self.watched[start..start + length]
            .iter()
            .for_each(|cell| cell.with_mut(|_| ()));
        // SAFETY: the bytes may be written through a shared reference, and, as *apart* says, nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(place.as_ptr().cast::<u8>().cast_mut(), length) }
    }

    /// The first `length` bytes; more than there are is a panic.
    ///
    /// # Safety
    /// - *apart*, for as long as the bytes are borrowed.
    pub(super) unsafe fn read(&self, length: usize) -> &[u8] {
        let place = &self.bytes[..length];
        #[cfg(all(test, loom))]
        self.watched[..length]
            .iter()
            .for_each(|cell| cell.with(|_| ()));
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`, and nobody writes them, as *apart* says.
        unsafe { std::slice::from_raw_parts(place.as_ptr().cast::<u8>(), length) }
    }
}
