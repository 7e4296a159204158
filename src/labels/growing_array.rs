//! Growable arrays of the label stack. While an array grows, a signal handler may read it, and the
//! allocator may push labels.
//!
//! **Contract** (cited below):
//! - *own thread*: only one thread uses an array. Handlers that interrupt this thread only read it;
//! - *matching capacity*: an array of `capacity` elements lies at `start`, or `capacity` is 0. It
//!   is 0 while the array grows: code that the allocator runs then finds no free element, and if
//!   that code closes the array, [`GrowingArray::grow`] still owns the memory;
//! - *freed last*: an array is freed after its address and its capacity were replaced, with
//!   compiler fences between.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence};

use crate::util::try_vec;

/// A growable array that is accessed by its start address and capacity, and never leaves its
/// thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct GrowingArray<T> {
    start: AtomicPtr<T>,
    capacity: AtomicU32,
    not_send: PhantomData<*const T>,
}

impl<T: Copy + Default> GrowingArray<T> {
    /// Creates an array without memory.
    pub(crate) const fn closed() -> Self {
        Self {
            start: AtomicPtr::new(std::ptr::null_mut()),
            capacity: AtomicU32::new(0),
            not_send: PhantomData,
        }
    }

    /// Returns the start address; null without memory. Elements that were written keep their values
    /// when the array grows.
    #[inline(always)]
    pub(crate) fn start(&self) -> *mut T {
        self.start.load(Ordering::Relaxed)
    }

    /// Returns the capacity, in elements; 0 without memory and while the array grows.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Moves the content to an array of at least `wanted` and at most `max` elements. The caller
    /// must read the capacity again to see whether that succeeded. The system may have no memory,
    /// and the application's allocator may even have closed the array.
    #[cold]
    pub(crate) fn grow(&self, wanted: u32, max: u32) {
        let old_capacity = self.capacity();
        if wanted > max || wanted <= old_capacity {
            return;
        }
        self.capacity.store(0, Ordering::Relaxed);
        let old = self.start();
        let capacity = wanted.max(old_capacity.saturating_mul(2)).min(max);
        compiler_fence(Ordering::SeqCst);
        let new: *mut T = new_array(capacity);
        compiler_fence(Ordering::SeqCst);
        if self.start() != old {
            // SAFETY: the new array was never published. The code that closed the array left the
            // old memory to this function, by *matching capacity*.
            unsafe {
                free_array(new, capacity);
                free_array(old, old_capacity);
            }
            return;
        }
        if new.is_null() {
            self.capacity.store(old_capacity, Ordering::Relaxed);
            return;
        }
        if !old.is_null() {
            // SAFETY: *own thread*: both arrays are fully allocated, and they do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(old, new, old_capacity as usize) };
        }
        compiler_fence(Ordering::SeqCst);
        self.start.store(new, Ordering::Relaxed);
        self.capacity.store(capacity, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: *freed last*.
        unsafe { free_array(old, old_capacity) };
    }

    /// Frees the memory. No element may be in use any more.
    pub(crate) fn close(&self) {
        let start = self.start.swap(std::ptr::null_mut(), Ordering::Relaxed);
        let capacity = self.capacity.swap(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if capacity > 0 {
            // SAFETY: *matching capacity* and *freed last*.
            unsafe { free_array(start, capacity) };
        }
    }
}

/// Allocates an array, which the caller must free. Returns null if the memory does not suffice.
fn new_array<T: Copy + Default>(length: u32) -> *mut T {
    let Some(mut array) = try_vec(length as usize) else {
        return std::ptr::null_mut();
    };
    array.resize(length as usize, T::default());
    Box::into_raw(array.into_boxed_slice()).cast()
}

/// Frees an array; does nothing if it is null.
///
/// # Safety
/// - `array` came from `new_array` with this length and is no longer used, or is null.
unsafe fn free_array<T>(array: *mut T, length: u32) {
    if !array.is_null() {
        // SAFETY: by this function's contract.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(array, length as usize)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Huge {
        _words: [u64; 1 << 13],
    }

    impl Default for Huge {
        fn default() -> Self {
            unreachable!("no array of {} bytes was allocated", size_of::<Self>())
        }
    }

    #[test]
    fn grow_without_memory_keeps_the_array() {
        let array = GrowingArray::<Huge>::closed();
        array.grow(u32::MAX, u32::MAX);
        assert_eq!((array.start().is_null(), array.capacity()), (true, 0));
    }

    #[test]
    fn grow_doubles_up_to_maximum_and_keeps_content() {
        let array = GrowingArray::<u64>::closed();
        assert!(array.start().is_null());
        array.grow(4, 100);
        assert_eq!(array.capacity(), 4);
        // SAFETY: the array's first element.
        unsafe { *array.start() = 77 };
        let start = array.start();
        for (wanted, capacity) in [(3, 4), (5, 8), (30, 30), (31, 60), (61, 100), (101, 100)] {
            array.grow(wanted, 100);
            assert_eq!(array.capacity(), capacity, "wanted: {wanted}");
            // SAFETY: the array's first element.
            assert_eq!(unsafe { *array.start() }, 77);
        }
        assert_ne!(array.start(), start);
        array.close();
        array.close();
        assert_eq!((array.start().is_null(), array.capacity()), (true, 0));
    }
}
