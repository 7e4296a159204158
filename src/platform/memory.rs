//! Virtual memory that costs only what was touched.
//!
//! **Contract of [`LazyRegion`]** (cited below):
//! - *ours*: the mapping is anonymous and private, made here, and given back only when the region is dropped;
//! - *zeroed*: bytes that nobody wrote read as zero, so any part of it can be given back to the kernel while its
//!   content is not needed.

use std::ptr::NonNull;

/// A private anonymous mapping.
#[derive(Debug)]
pub(crate) struct LazyRegion {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: *ours*: a mapping belongs to the process, not to a thread.
unsafe impl Send for LazyRegion {}
// SAFETY: a shared region gives out nothing but its address and length.
unsafe impl Sync for LazyRegion {}

impl LazyRegion {
    /// Reserves so many bytes, rounded up to pages by the kernel; `None` when it refuses.
    pub(crate) fn reserve(bytes: usize) -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice touches no memory that is in use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        // A first touch must cost one small page, not two MiB. A refusal costs memory and nothing else.
        // SAFETY: the mapping that was just made.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        NonNull::new(start.cast()).map(|start| Self { start, bytes })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the memory behind the bytes from `offset` on back to the kernel; they read as zero afterwards.
    ///
    /// # Safety
    /// - No reference into these bytes lives, and no other thread reads or writes them meanwhile.
    pub(crate) unsafe fn give_back_from(&self, offset: usize) {
        let page = 4096;
        let first = offset.next_multiple_of(page);
        if first < self.bytes {
            // SAFETY: *ours* and *zeroed*: the range lies inside of the mapping, and by this function's contract
            // nobody uses it.
            unsafe {
                libc::madvise(
                    self.start.as_ptr().add(first).cast(),
                    self.bytes - first,
                    libc::MADV_DONTNEED,
                )
            };
        }
    }
}

impl Drop for LazyRegion {
    fn drop(&mut self) {
        // SAFETY: *ours*: made by `reserve` with this length, and nobody can use it after the drop.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_bytes_are_zero_and_given_back_ones_again() {
        let region = LazyRegion::reserve(1 << 20).expect("a mapping");
        assert_eq!(region.bytes(), 1 << 20);
        let last = region.start().as_ptr().wrapping_add((1 << 20) - 1);
        // SAFETY: inside of the mapping, which this test alone uses.
        unsafe {
            assert_eq!(last.read(), 0);
            last.write(7);
            region.give_back_from(1);
            assert_eq!(last.read(), 0);
        }
    }
}
