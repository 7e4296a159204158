//! The allocator that tells the profiler about the application's memory.
//!
//! **Contract** (cited below):
//! - *same call*: the caller of a method upholds the contract of `GlobalAlloc`, and the method
//!   calls the inner allocator's method of the same name with the same arguments;
//! - *freed here*: the hook runs before the inner allocator frees memory, and after it allocates
//!   memory. The hook does not access the memory.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::api::backend::{self, AllocationModes};

/// A global allocator that counts and samples what the program allocates. The work is done by the
/// allocator inside, which is the system's unless another one is given.
///
/// ```
/// use gekkota::memory::ProfilerAllocator;
///
/// #[global_allocator]
/// static ALLOCATOR: ProfilerAllocator = ProfilerAllocator::system();
/// # fn main() {}
/// ```
///
/// With another allocator: `ProfilerAllocator::new(tikv_jemallocator::Jemalloc)`.
///
/// The features of a session say what is recorded:
/// - `memory` ([`Features::MEMORY`](crate::Features::MEMORY)): the counter `malloc`, with the bytes
///   that are allocated, without the profiler's own buffer, and the number of the program's
///   allocations and frees. It begins with 0 when the session begins, and falls below 0 if the
///   program frees more than it allocates;
/// - `nativeallocations` ([`Features::NATIVE_ALLOCATIONS`](crate::Features::NATIVE_ALLOCATIONS)):
///   samples of allocations, with the stacks that allocated and freed them. Each byte has the same
///   chance to be sampled, once in 512 KiB on average
///   ([`allocation_interval_bytes`](crate::StartParams::allocation_interval_bytes)). Each sample
///   has the number of bytes that it represents, so the sums in the profile estimate the true ones.
///   In the viewer, choose “Retained memory”, “Allocated memory” or “Deallocated memory” above the
///   call tree of the main thread, which has the samples of all threads, as in Gecko.
///   [`profiler_heap_snapshot`](crate::memory::profiler_heap_snapshot) has what is alive now.
///
/// A reallocation counts as a free and an allocation. Memory that is not allocated through Rust's
/// global allocator is not seen: that of C libraries, and that of `mmap`.
///
/// May be used on any thread, also in destructors of thread-locals and after a fork. `errno` is
/// kept. Of the profiler's own memory, only the buffer is left out of the counter. The rest is some
/// megabytes in a large program, most of which is allocated in the first moments of the session.
/// Nothing is sampled while the session is paused.
///
/// Without a session: one load more for each call. With `memory`, some nanoseconds for an
/// allocation and its free. A sample takes some microseconds, and the innermost function of its
/// stack is `sample_allocation`, `sample_free` or `sample_move` of this crate. Idea: Gecko's
/// `ProfilerMemoryHooks` and its native allocations; the countdown is that of tcmalloc.
#[doc(alias = "nativeallocations", alias = "memory_hooks")]
#[derive(Clone, Copy, Debug, Default)]
pub struct ProfilerAllocator<A = System>(A);

impl ProfilerAllocator<System> {
    /// Creates an allocator around the system's.
    pub const fn system() -> Self {
        Self(System)
    }
}

impl<A> ProfilerAllocator<A> {
    /// Creates an allocator around another one.
    pub const fn new(inner: A) -> Self {
        Self(inner)
    }

    /// Returns the allocator inside.
    pub const fn inner(&self) -> &A {
        &self.0
    }
}

/// Tells the hook of an allocation that may have failed.
#[inline(always)]
fn note_allocated(modes: AllocationModes, address: *mut u8, size: usize) {
    if !address.is_null() && backend::on_allocated(modes, size) {
        backend::sample_allocation(address as u64, size);
    }
}

/// Tells the hook of a free, before it happens.
#[inline(always)]
fn note_free(modes: AllocationModes, address: *mut u8, size: usize) {
    if backend::on_free(modes, address as u64, size) {
        backend::sample_free(address as u64);
    }
}

// SAFETY: all memory comes from the inner allocator, which is a `GlobalAlloc`: *same call*.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ProfilerAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: *same call*.
        let address = unsafe { self.0.alloc(layout) };
        let modes = backend::allocation_modes();
        if !modes.is_off() {
            note_allocated(modes, address, layout.size());
        }
        address
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: *same call*.
        let address = unsafe { self.0.alloc_zeroed(layout) };
        let modes = backend::allocation_modes();
        if !modes.is_off() {
            note_allocated(modes, address, layout.size());
        }
        address
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        let modes = backend::allocation_modes();
        if !modes.is_off() {
            note_free(modes, address, layout.size());
        }
        // SAFETY: *same call*, *freed here*.
        unsafe { self.0.dealloc(address, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let modes = backend::allocation_modes();
        if modes.is_off() {
            // SAFETY: *same call*.
            return unsafe { self.0.realloc(address, layout, new_size) };
        }
        let freed = match backend::on_free(modes, address as u64, layout.size()) {
            true => backend::sample_move(address as u64),
            false => None,
        };
        // SAFETY: *same call*, *freed here*.
        let new = unsafe { self.0.realloc(address, layout, new_size) };
        if new.is_null() {
            backend::undo_free(address as u64, layout.size(), freed);
        } else {
            note_allocated(modes, new, new_size);
        }
        new
    }
}
