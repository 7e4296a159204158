//! A thread that has captured some backtraces captures more of them without allocating.
#![cfg(has_profiler)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use gekkota::stack::{ProfilerBacktrace, profiler_capture_backtrace};
use gekkota::{AutoProfilerLabel, gecko_profiler_category, register_thread};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every method delegates to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of calls of the allocator by `body`, on this thread.
fn allocations_of(body: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    body();
    ALLOCATIONS.get() - before
}

#[inline(never)]
fn capture() -> ProfilerBacktrace {
    black_box(profiler_capture_backtrace().expect("a backtrace"))
}

/// Captures a backtrace below `depth` calls, since the memory for a backtrace depends on its depth.
#[inline(never)]
fn recurse(depth: usize) -> ProfilerBacktrace {
    let padding = black_box([depth; 64]);
    let backtrace = if depth == 0 {
        capture()
    } else {
        recurse(depth - 1)
    };
    black_box(&padding);
    backtrace
}

fn in_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new()
        .stack_size(16 << 20)
        .spawn(body)
        .expect("spawn")
        .join()
        .expect("the thread does not panic")
}

#[test]
fn repeated_backtraces_do_not_allocate() {
    in_a_thread(|| {
        register_thread("captures");
        let _label =
            AutoProfilerLabel::with_dynamic("label", "dynamic", gecko_profiler_category!(Other));
        let mut kept: Vec<ProfilerBacktrace> = Vec::with_capacity(8);
        let mut capture_some = || {
            for depth in [0, 1, 10, 100, 1000] {
                kept.push(recurse(depth));
            }
            kept.clear();
        };
        assert!(
            allocations_of(&mut capture_some) > 0,
            "the first backtraces allocate"
        );
        let allocations = allocations_of(|| (0..1000).for_each(|_| capture_some()));
        assert_eq!(allocations, 0);
    });
    // On another thread, only the first backtrace may allocate, for the bounds of the stack.
    in_a_thread(|| {
        drop(recurse(100));
        assert_eq!(allocations_of(|| drop(recurse(100))), 0);
    });
}
