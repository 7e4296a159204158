//! Arrays of the label stack, which grow under a handler's eyes.
//!
//! **Contract** (cited below):
//! - *freed last*: an array is freed after its address was replaced, with compiler fences between; only its own thread, and
//!   handlers that interrupt it, use it.

use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

/// An array that nobody owns yet.
pub(super) fn leak_array<T: Copy>(value: T, length: u32) -> *mut T {
    Box::into_raw(vec![value; length as usize].into_boxed_slice()).cast()
}

/// # Safety
/// - `array` came from `leak_array` with this length and is used no more, or is null.
pub(super) unsafe fn free_array<T>(array: *mut T, length: u32) {
    if !array.is_null() {
        // SAFETY: by this function's contract.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(array, length as usize)) });
    }
}

/// Moves the content to a longer array, publishes that, then frees the old one.
///
/// # Safety
/// - Called on the thread that owns the slot; the array there has `old_length` elements or is null, and `new` has at
///   least as many.
pub(super) unsafe fn replace_array<T: Copy>(place: &AtomicPtr<T>, old_length: u32, new: *mut T) {
    let old = place.load(Ordering::Relaxed);
    if !old.is_null() {
        // SAFETY: by this function's contract; two arrays of `leak_array` do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(old, new, old_length as usize) };
    }
    compiler_fence(Ordering::SeqCst);
    place.store(new, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    // SAFETY: *freed last*.
    unsafe { free_array(old, old_length) };
}
