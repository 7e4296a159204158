//! A thread that has taken some backtraces takes more without an allocation.
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

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `body` called the allocator on this thread.
fn allocations_of(body: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    body();
    ALLOCATIONS.get() - before
}

#[inline(never)]
fn takes_it() -> ProfilerBacktrace {
    black_box(profiler_capture_backtrace().expect("a backtrace"))
}

/// Deep enough for memory of another size.
#[inline(never)]
fn recurse(depth: usize) -> ProfilerBacktrace {
    let padding = black_box([depth; 64]);
    let backtrace = if depth == 0 {
        takes_it()
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
        .expect("the thread's asserts hold")
}

#[test]
fn once_some_were_taken_no_more_is_allocated() {
    in_a_thread(|| {
        register_thread("allocates nothing");
        let _label =
            AutoProfilerLabel::with_dynamic("label", "dynamic", gecko_profiler_category!(Other));
        let mut kept: Vec<ProfilerBacktrace> = Vec::with_capacity(8);
        let mut take_some = || {
            for depth in [0, 1, 10, 100, 1000] {
                kept.push(recurse(depth));
            }
            kept.clear();
        };
        assert!(
            allocations_of(&mut take_some) > 0,
            "the first ones need memory"
        );
        let allocations = allocations_of(|| (0..1000).for_each(|_| take_some()));
        assert_eq!(allocations, 0);
    });
    // Another thread needs its bounds, and no memory.
    in_a_thread(|| {
        drop(recurse(100));
        assert_eq!(allocations_of(|| drop(recurse(100))), 0);
    });
}
