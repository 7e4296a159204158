//! Checks that there is memory before code that cannot handle a failed allocation.
//!
//! Most collections, `Box` and `Arc` end the process if an allocation fails. Code that may run
//! while memory is short checks first, and skips the work if the memory is missing.

use std::hint::black_box;

use crate::util::lock::named_locks::as_profiler_work;

/// Memory for the small allocations of a task, such as a registration, in bytes.
pub(crate) const SMALL_TASK_BYTES: usize = 16 << 10;

/// Returns whether the allocator has this many bytes in one piece now. On return they are free for
/// the caller's own allocations, unless another thread uses them up first.
pub(crate) fn allocator_has(bytes: usize) -> bool {
    as_profiler_work(|| {
        let mut memory = Vec::<u8>::new();
        let has_memory = memory.try_reserve_exact(bytes).is_ok();
        // Without this, the compiler may remove the allocation, and take it for a success.
        black_box(&mut memory);
        has_memory
    })
}

/// Returns an empty vector with space for `length` elements; `None` if the allocation fails.
pub(crate) fn try_vec<T>(length: usize) -> Option<Vec<T>> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(length).ok()?;
    Some(vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocator_has_no_more_than_there_are_addresses() {
        assert!(allocator_has(SMALL_TASK_BYTES));
        assert!(!allocator_has(usize::MAX >> 1));
        assert!(try_vec::<u64>(usize::MAX / 16).is_none());
        assert_eq!(try_vec::<u64>(3).map(|vec| vec.capacity()), Some(3));
    }
}
