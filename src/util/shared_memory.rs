//! Memory of a mapped file, which other processes may read.
//!
//! **Contract** (cited below):
//! - *mapped*: the bytes are mapped for reading and writing until the mapping is dropped, and begin
//!   at a multiple of 8;
//! - *words*: safe code reaches the bytes only as atomic words. Code that takes a pointer by
//!   [`SharedMemory::part`] keeps these bytes apart from the words.

use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Size of a word, in bytes.
pub(crate) const WORD_BYTES: usize = size_of::<u64>();

/// A mapping, which unmaps the memory when it is dropped.
pub(crate) trait Mapping: Debug + Send + Sync {
    /// Makes sure that there is space for stores into these bytes. Returns false if it cannot.
    fn reserve(&self, _position: usize, _bytes: usize) -> bool {
        true
    }

    /// Gives the memory of bytes that nothing refers to back to the system, if that is possible. They are
    /// zero afterwards, or unchanged.
    fn release(&self, _position: usize, _bytes: usize) {}
}

/// The memory of a mapped file.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    start: NonNull<u8>,
    bytes: usize,
    /// Unmaps the memory when it is dropped.
    mapping: Box<dyn Mapping>,
}

// SAFETY: *mapped*, by the process and not by a thread.
unsafe impl Send for SharedMemory {}
// SAFETY: *words*: a shared reference gives out atomic words, and addresses.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Takes over the memory of a mapping.
    ///
    /// # Safety
    /// - *mapped*: as the head of this file says.
    /// - *words*: no code of this process reaches the bytes by other means.
    pub(crate) unsafe fn new(start: NonNull<u8>, bytes: usize, mapping: Box<dyn Mapping>) -> Self {
        debug_assert!(start.cast::<AtomicU64>().is_aligned());
        Self {
            start,
            bytes,
            mapping,
        }
    }

    /// Makes sure that there is space for stores into these bytes: a store without space ends the
    /// process. Returns false if it cannot.
    pub(crate) fn reserve(&self, position: usize, bytes: usize) -> bool {
        self.mapping.reserve(position, bytes)
    }

    /// Gives the memory of these bytes back to the system, if that is possible. Nothing may refer to
    /// them. They are zero afterwards, or unchanged.
    pub(crate) fn release(&self, position: usize, bytes: usize) {
        self.mapping.release(position, bytes);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the word at a position, in bytes. Panics if it is not a multiple of 8, or exceeds the
    /// memory.
    pub(crate) fn word(&self, position: usize) -> &AtomicU64 {
        assert!(position.is_multiple_of(WORD_BYTES));
        let word = self.part(position, WORD_BYTES).cast::<AtomicU64>();
        // SAFETY: *mapped*, so the word is valid and aligned while `self` lives; *words*.
        unsafe { word.as_ref() }
    }

    /// Returns the address of `bytes` bytes from a position on. Panics if they exceed the memory.
    pub(crate) fn part(&self, position: usize, bytes: usize) -> NonNull<u8> {
        let end = position.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes));
        // SAFETY: *mapped*: the position lies inside the mapping.
        unsafe { self.start.add(position) }
    }
}

#[cfg(any(test, fuzzing))]
mod in_tests {
    use super::*;

    impl Mapping for Box<[AtomicU64]> {}

    impl SharedMemory {
        /// Returns zeroed memory that is not mapped from a file.
        pub(crate) fn for_test(bytes: usize) -> Self {
            let words: Box<[AtomicU64]> = (0..bytes.div_ceil(WORD_BYTES))
                .map(|_| AtomicU64::new(0))
                .collect();
            let start = NonNull::from(&words[0]).cast();
            // SAFETY: *mapped* and *words*: the box owns the memory, and nothing else refers to it.
            unsafe { Self::new(start, bytes, Box::new(words)) }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn words_and_parts_lie_inside_the_memory() {
        let memory = SharedMemory::for_test(64);
        memory.word(56).store(7, Ordering::Relaxed);
        assert_eq!(memory.word(56).load(Ordering::Relaxed), 7);
        assert_eq!(
            memory.part(0, 64).addr().get() + 56,
            memory.part(56, 8).addr().get()
        );
        for (position, bytes) in [(57, 8), (64, 8), (usize::MAX, 8)] {
            let outside = AssertUnwindSafe(|| memory.part(position, bytes));
            assert!(catch_unwind(outside).is_err(), "{position}");
        }
        assert!(catch_unwind(AssertUnwindSafe(|| _ = memory.word(4))).is_err());
    }
}
