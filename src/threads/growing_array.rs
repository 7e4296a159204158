//! Arrays of the label stack, which grow under the eyes of a handler, and under those of an allocator that pushes labels.
//!
//! **Contract** (cited below):
//! - *own thread*: an array is used by one thread alone, and by handlers that interrupt it and only read;
//! - *beside its capacity*: an array of so many elements stands at the address, or the capacity is 0. It is 0 while the
//!   array grows: whoever has it then from the allocator finds no room, and closing it leaves its memory to the growing;
//! - *freed last*: an array is freed after its address and capacity were replaced, with compiler fences between.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence};

/// An array that is read by its start and capacity, and stays on its thread.
#[derive(Debug)]
#[repr(C)]
pub(super) struct GrowingArray<T> {
    start: AtomicPtr<T>,
    capacity: AtomicU32,
    own_thread: PhantomData<*const T>,
}

impl<T: Copy + Default> GrowingArray<T> {
    /// Without memory.
    pub(super) const fn closed() -> Self {
        Self {
            start: AtomicPtr::new(std::ptr::null_mut()),
            capacity: AtomicU32::new(0),
            own_thread: PhantomData,
        }
    }

    /// Null without memory. What lies below what was filled of it stays so when it is replaced.
    #[inline(always)]
    pub(super) fn start(&self) -> *mut T {
        self.start.load(Ordering::Relaxed)
    }

    /// 0 without memory, and while it grows.
    #[inline(always)]
    pub(super) fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Moves the content to a longer array of so many elements, or of more, and of `most` at most. Whether that came
    /// about tells the capacity: the allocator is the host's, and may even have closed the array meanwhile.
    #[cold]
    pub(super) fn grow(&self, wanted: u32, most: u32) {
        let old_capacity = self.capacity();
        if wanted > most || wanted <= old_capacity {
            return;
        }
        self.capacity.store(0, Ordering::Relaxed);
        let old = self.start();
        let capacity = wanted.max(old_capacity.saturating_mul(2)).min(most);
        compiler_fence(Ordering::SeqCst);
        let new = new_array(capacity);
        compiler_fence(Ordering::SeqCst);
        if self.start() != old {
            // SAFETY: nobody has heard of the new one; the old one was left to this function: *beside its capacity*.
            unsafe {
                free_array(new, capacity);
                free_array(old, old_capacity);
            }
            return;
        }
        if !old.is_null() {
            // SAFETY: *own thread*: both are whole, and two arrays do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(old, new, old_capacity as usize) };
        }
        compiler_fence(Ordering::SeqCst);
        self.start.store(new, Ordering::Relaxed);
        self.capacity.store(capacity, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: *freed last*.
        unsafe { free_array(old, old_capacity) };
    }

    /// Gives the memory back. Nothing of it may be covered any more.
    pub(super) fn close(&self) {
        let start = self.start.swap(std::ptr::null_mut(), Ordering::Relaxed);
        let capacity = self.capacity.swap(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if capacity > 0 {
            // SAFETY: *beside its capacity* and *freed last*.
            unsafe { free_array(start, capacity) };
        }
    }
}

/// An array that nobody owns yet.
fn new_array<T: Copy + Default>(length: u32) -> *mut T {
    Box::into_raw(vec![T::default(); length as usize].into_boxed_slice()).cast()
}

/// # Safety
/// - `array` came from `new_array` with this length and is used no more, or is null.
unsafe fn free_array<T>(array: *mut T, length: u32) {
    if !array.is_null() {
        // SAFETY: by this function's contract.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(array, length as usize)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_by_doubling_up_to_its_most_and_keeps_its_content() {
        let array = GrowingArray::<u64>::closed();
        assert!(array.start().is_null());
        array.grow(4, 100);
        assert_eq!(array.capacity(), 4);
        // SAFETY: the array's first element.
        unsafe { *array.start() = 77 };
        let start = array.start();
        for (wanted, capacity) in [(3, 4), (5, 8), (30, 30), (31, 60), (61, 100), (101, 100)] {
            array.grow(wanted, 100);
            assert_eq!(array.capacity(), capacity, "{wanted} wanted");
            // SAFETY: the array's first element.
            assert_eq!(unsafe { *array.start() }, 77);
        }
        assert_ne!(array.start(), start);
        array.close();
        array.close();
        assert_eq!((array.start().is_null(), array.capacity()), (true, 0));
    }
}
