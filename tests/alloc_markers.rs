//! The application's allocator may add markers, with payloads and stacks, without endless
//! recursion. Markers that it adds while the profiler allocates memory for another marker are
//! counted as lost.
#![cfg(has_profiler)]

#[path = "it/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use common::Read;
use gekkota::{
    MarkerOptions, MarkerStack, ProfilerSession, StartParams, add_marker, add_text_marker,
    gecko_profiler_category,
};

gekkota::marker_type! {
    /// An allocation.
    struct Allocated {
        bytes: u64 => "Size", Bytes;
    }
}

struct MarkingAllocator;

thread_local! {
    static IS_MARKED: Cell<bool> = const { Cell::new(false) };
    static MARKERS: Cell<u64> = const { Cell::new(0) };
}

fn mark(bytes: usize) {
    if IS_MARKED.get() {
        MARKERS.set(MARKERS.get() + 2);
        let category = gecko_profiler_category!(Other);
        add_marker(
            "typed",
            category,
            MarkerOptions::default(),
            Allocated {
                bytes: bytes as u64,
            },
        );
        let options = MarkerOptions::from(MarkerStack::Full);
        add_text_marker("with its stack", category, options, "text");
    }
}

// SAFETY: every method delegates to the system's allocator.
unsafe impl GlobalAlloc for MarkingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        mark(layout.size());
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: MarkingAllocator = MarkingAllocator;

/// Number of allocations; more than the pool has memory for at once.
const ALLOCATIONS: usize = 2_000;

#[test]
fn markers_in_the_allocator_are_recorded_or_counted_as_lost() {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let added = std::thread::spawn(|| {
        gekkota::register_thread("allocates");
        IS_MARKED.set(true);
        (0..ALLOCATIONS).for_each(|index| drop(black_box(vec![0u8; index + 1])));
        IS_MARKED.set(false);
        MARKERS.get()
    });
    let added = added.join().expect("the thread does not panic");
    assert!(added >= 2 * ALLOCATIONS as u64);
    let read = Read::from_profile(&session.finish().expect("profile"));
    let markers = read.markers("allocates");
    let count = |name: &str| markers.iter().filter(|marker| marker.0 == name).count() as u64;
    let lost = &read.0["meta"]["losses"]["entries_in_own_work"];
    let lost = lost.as_u64().expect("a count");
    assert!(count("typed") >= ALLOCATIONS as u64 && count("with its stack") >= ALLOCATIONS as u64);
    assert!(lost > 0, "the first marker of a type allocates");
    assert_eq!(count("typed") + count("with its stack") + lost, added);
}
