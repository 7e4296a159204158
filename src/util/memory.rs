//! Checks that there is memory before code that cannot handle a failed allocation.
//!
//! Most collections, `Box` and `Arc` end the process if an allocation fails. Code that may run
//! while memory is short checks first, and skips the work if the memory is missing.

use std::collections::HashMap;
use std::hint::black_box;

use crate::util::lock::as_profiler_work;

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

/// Returns an empty vector with space for `length` elements; `None` if there is no memory.
pub(crate) fn try_vec<T>(length: usize) -> Option<Vec<T>> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(length).ok()?;
    Some(vec)
}

/// Returns how much memory a vector takes if it grows by `more` elements, in bytes; 0 if it has
/// space for them. While it grows, its old memory is still in use.
pub(crate) fn vec_growth_bytes<T>(vec: &Vec<T>, more: usize) -> usize {
    if vec.capacity() - vec.len() >= more {
        return 0;
    }
    vec.capacity()
        .saturating_mul(2)
        .saturating_mul(size_of::<T>())
}

/// Returns how much memory a string takes if it grows by `more` bytes: see [`vec_growth_bytes`].
pub(crate) fn string_growth_bytes(string: &String, more: usize) -> usize {
    if string.capacity() - string.len() >= more {
        return 0;
    }
    let doubled = string.capacity().saturating_mul(2);
    doubled.max(string.len().saturating_add(more))
}

/// Returns how much memory a map takes if it grows by `more` entries: see [`vec_growth_bytes`].
pub(crate) fn map_growth_bytes<K, V, S>(map: &HashMap<K, V, S>, more: usize) -> usize {
    if map.capacity() - map.len() >= more {
        return 0;
    }
    // A map has a byte for each slot, and up to 8/7 slots for an entry.
    let slot_bytes = (size_of::<(K, V)>() + 1) * 8 / 7;
    map.capacity().saturating_mul(2).saturating_mul(slot_bytes)
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

    #[test]
    fn growth_is_twice_the_capacity_when_the_space_is_used_up() {
        let mut vec = Vec::<u64>::with_capacity(100);
        vec.push(1);
        assert_eq!(
            (vec_growth_bytes(&vec, 99), vec_growth_bytes(&vec, 100)),
            (0, 1600)
        );
        let mut map = HashMap::<u64, u32>::with_capacity(100);
        map.insert(1, 1);
        let free = map.capacity() - 1;
        assert_eq!(map_growth_bytes(&map, free), 0);
        assert!(map_growth_bytes(&map, free + 1) >= 2 * map.capacity() * 17);
    }
}
