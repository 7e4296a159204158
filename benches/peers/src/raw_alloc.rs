//! Calls of allocators, for `alloc` and `alloc_truth`.
//!
//! **Contract** (cited below):
//! - *not empty*: the layout is that of at least one byte;
//! - *once*: a [`Memory`] comes from the allocator that it goes back to, and goes back once.
#![expect(unsafe_code, reason = "calls allocators directly")]

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;

use gekkota::memory::ProfilerAllocator;

/// Counts and samples only in `alloc` and `alloc_truth`. Elsewhere it costs every arm the same
/// load.
#[global_allocator]
pub(crate) static ALLOCATOR: ProfilerAllocator = ProfilerAllocator::system();

/// Memory that an allocator has given.
pub(crate) struct Memory {
    address: *mut u8,
    layout: Layout,
}

/// Allocates at least one byte.
#[inline(always)]
pub(crate) fn allocate(allocator: &impl GlobalAlloc, bytes: usize) -> Memory {
    let layout = Layout::from_size_align(bytes.max(1), 8).expect("a valid layout");
    // SAFETY: *not empty*.
    let address = black_box(unsafe { allocator.alloc(black_box(layout)) });
    Memory { address, layout }
}

/// Gives memory back to the allocator that it came from.
#[inline(always)]
pub(crate) fn free(allocator: &impl GlobalAlloc, memory: Memory) {
    if !memory.address.is_null() {
        // SAFETY: *once*: `Memory` is not `Clone`, and each caller uses one allocator.
        unsafe { allocator.dealloc(memory.address, memory.layout) }
    }
}
