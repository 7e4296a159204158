//! Virtual memory that occupies physical memory only where it was touched.
//!
//! **Contract of [`LazyRegion`]** (cited below):
//! - *ours*: the mapping is anonymous and private, is created here, and is unmapped only when the
//!   region is dropped;
//! - *zeroed*: bytes that were never written read as zero, so any part of the region can be
//!   returned to the kernel while its content is not needed.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// A private anonymous mapping.
#[derive(Debug)]
pub(crate) struct LazyRegion {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: *ours*: a mapping belongs to the process, not to a thread.
unsafe impl Send for LazyRegion {}
// SAFETY: a shared region exposes only its address and length.
unsafe impl Sync for LazyRegion {}

impl LazyRegion {
    /// Reserves `bytes` bytes, which the kernel rounds up to pages. Returns `None` if the kernel
    /// refuses.
    pub(crate) fn reserve(bytes: usize) -> Option<Self> {
        let length = NonZeroUsize::new(bytes)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address chosen by the kernel does not affect memory
        // in use.
        let start = unsafe { mmap_anonymous(None, length, protection, flags) }.ok()?;
        // The first touch must cost one small page, not 2 MiB. A refusal only costs memory.
        // SAFETY: the range is the mapping created above.
        let _ = unsafe { madvise(start, bytes, MmapAdvise::MADV_NOHUGEPAGE) };
        Some(Self {
            start: start.cast(),
            bytes,
        })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory of all whole pages from `offset` on to the kernel. Their bytes then read
    /// as zero.
    ///
    /// # Safety
    /// - No reference into these bytes is alive, and no other thread accesses them during the call.
    pub(crate) unsafe fn discard_from(&self, offset: usize) {
        let page = 4096;
        let first = offset.next_multiple_of(page);
        if first < self.bytes {
            // SAFETY: *ours* and *zeroed*: the range lies inside the mapping, and by this
            // function's contract it is not in use.
            let _ = unsafe {
                madvise(
                    self.start.add(first).cast(),
                    self.bytes - first,
                    MmapAdvise::MADV_DONTNEED,
                )
            };
        }
    }
}

impl Drop for LazyRegion {
    fn drop(&mut self) {
        // SAFETY: *ours*: `reserve` created the mapping with this length, and it is not used after
        // the drop.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lazy_region_reads_zero_when_untouched_or_discarded() {
        let region = LazyRegion::reserve(1 << 20).expect("a mapping");
        assert_eq!(region.bytes(), 1 << 20);
        let last = region.start().as_ptr().wrapping_add((1 << 20) - 1);
        // SAFETY: the byte lies inside the mapping, which only this test uses.
        unsafe {
            assert_eq!(last.read(), 0);
            last.write(7);
            region.discard_from(1);
            assert_eq!(last.read(), 0);
        }
    }
}
