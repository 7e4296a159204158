//! Virtual memory that occupies physical memory only where it was touched.
//!
//! **Contract of [`LazyRegion`]** (cited below):
//! - *ours*: the mapping is anonymous and private, is created here, and is unmapped only when the
//!   region is dropped;
//! - *zeroed*: bytes that were never written read as zero, so any part of the region can be
//!   returned to the kernel while its content is not needed;
//! - *one owner*: a region whose parts were taken by `into_parts` is made again from the same parts
//!   by `from_parts`, at most once at a time.

use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

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

    /// Returns the start and the length of the mapping, which then stays until
    /// [`Self::from_parts`] takes it back.
    pub(crate) fn into_parts(self) -> (NonNull<u8>, usize) {
        let region = ManuallyDrop::new(self);
        (region.start, region.bytes)
    }

    /// Takes a mapping back.
    ///
    /// # Safety
    /// - *one owner*: the parts come from [`Self::into_parts`], and no other region has them.
    pub(crate) unsafe fn from_parts(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    #[cfg(test)]
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

/// Size of the parts in which memory is made writable, in bytes. By default the kernel refuses only
/// a single request that exceeds all its memory.
const WRITABLE_PART_BYTES: usize = 256 << 20;

/// Returns whether the process may map `bytes` bytes more, as far as the kernel can tell: within
/// `RLIMIT_AS`, `RLIMIT_DATA` and the kernel's limit of committed memory. Other threads may use the
/// memory up at once. How much of the mapped memory the process may use is another question
/// (`limits.rs`).
///
/// Maps and unmaps that much without touching it, and for that moment it is missing for others. In
/// a process that locks all its future mappings (`mlockall`), writable memory would be taken at
/// once, so only `RLIMIT_AS` and `RLIMIT_MEMLOCK` are asked there.
///
/// Cost: four system calls, and one for each further 256 MiB.
pub(crate) fn is_mappable(bytes: usize) -> bool {
    let Some(length) = NonZeroUsize::new(bytes) else {
        return true;
    };
    // SAFETY: a new anonymous mapping at an address chosen by the kernel does not affect memory in
    // use.
    let mapped =
        unsafe { mmap_anonymous(None, length, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE) };
    let Ok(start) = mapped else {
        return false;
    };
    // Dropping the region unmaps the memory.
    let _region = LazyRegion {
        start: start.cast(),
        bytes,
    };
    // SAFETY: *ours* and *zeroed*: nothing uses the mapping.
    let is_locked = unsafe { madvise(start, bytes, MmapAdvise::MADV_DONTNEED) }.is_err();
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let mut parts = (0..bytes).step_by(WRITABLE_PART_BYTES);
    let mut make_writable = |offset: usize| {
        let part_bytes = WRITABLE_PART_BYTES.min(bytes - offset);
        // SAFETY: as above; the part lies inside the mapping.
        unsafe { mprotect(start.byte_add(offset), part_bytes, protection) }.is_ok()
    };
    is_locked || parts.all(&mut make_writable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_available_as_far_as_addresses_are() {
        assert!(is_mappable(0));
        assert!(is_mappable(1 << 20));
        assert!(!is_mappable(usize::MAX >> 1));
        assert!(!is_mappable(usize::MAX));
    }

    #[test]
    fn region_is_made_again_from_its_parts() {
        let (start, bytes) = LazyRegion::reserve(1 << 16)
            .expect("a mapping")
            .into_parts();
        // SAFETY: *one owner*, and the byte lies inside the mapping, which only this test uses.
        let region = unsafe {
            start.write(7);
            LazyRegion::from_parts(start, bytes)
        };
        assert_eq!((region.start(), region.bytes()), (start, 1 << 16));
    }

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
