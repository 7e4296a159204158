//! The application's allocator may push labels, even while it allocates memory for the label stack.
//! It overwrites memory before freeing it.
#![cfg(has_profiler)]

#[path = "it/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::OnceLock;

use common::Read;
use common::sampled::{start_counter, work_until_sampled};
use gekkota::script::{AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_function};
use gekkota::stack::{ProfilerBacktrace, StackFeatures, StackFrame, profiler_capture_backtrace};
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams};

struct LabelingAllocator;

thread_local! {
    static IS_LABELED: Cell<bool> = const { Cell::new(false) };
    static PUSHES: Cell<u64> = const { Cell::new(0) };
}
static FUNCTION: OnceLock<ScriptFunction> = OnceLock::new();
const NESTED: usize = 150;
/// Longer than the initial memory of the label stack.
const LONG: &str = match str::from_utf8(&[b'x'; 600]) {
    Ok(text) => text,
    Err(_) => panic!(),
};

/// Calls `body` with labels. Only the pushes may allocate here.
fn labeled<T>(body: impl FnOnce() -> T) -> T {
    if !IS_LABELED.get() {
        return body();
    }
    let category = gekkota::gecko_profiler_category!(GCCC);
    PUSHES.set(PUSHES.get() + 1);
    let _label = AutoProfilerLabel::new("allocator", category);
    let _dynamic = AutoProfilerLabel::with_dynamic("allocator's", LONG, category);
    let _script = FUNCTION
        .get()
        .map(|&function| AutoProfilerScriptFrame::new(function));
    body()
}

// SAFETY: every method delegates to the system's allocator.
unsafe impl GlobalAlloc for LabelingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of this method.
        labeled(|| unsafe { System.alloc(layout) })
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of this method.
        labeled(|| unsafe {
            pointer.write_bytes(0xa5, layout.size());
            System.dealloc(pointer, layout);
        });
    }
}

#[global_allocator]
static ALLOCATOR: LabelingAllocator = LabelingAllocator;

fn text_of(number: usize) -> &'static str {
    ["first", "second text", "third and longer text"][number % 3]
}

/// Pushes two labels, copies the labels of the thread, and recurses. The copies are kept, so each
/// of them needs new memory. At the end, the innermost call compares all copies.
fn nest(number: usize, copies: &mut Vec<ProfilerBacktrace>) {
    let category = gekkota::gecko_profiler_category!(Other);
    let _dynamic = AutoProfilerLabel::with_dynamic("nested", text_of(number), category);
    let _label = AutoProfilerLabel::new("fixed", category);
    copies.push(profiler_capture_backtrace().expect("memory"));
    if number + 1 < NESTED {
        nest(number + 1, copies);
        return;
    }
    work_until_sampled(50);
    for (newest, copy) in copies.iter().enumerate() {
        let expected = (0..=newest).rev().flat_map(|number| {
            [
                ("fixed".to_owned(), false),
                (format!("nested {}", text_of(number)), true),
            ]
            .map(|(text, is_sensitive)| StackFrame::Label { text, is_sensitive })
        });
        let stack = copy.resolve_with(StackFeatures::LABELS);
        assert!(
            stack.frames().iter().cloned().eq(expected),
            "{newest}: {:?}",
            stack.frames()
        );
    }
}

#[test]
fn allocator_that_pushes_labels_corrupts_nothing() {
    start_counter();
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    FUNCTION.get_or_init(|| profiler_register_script_function("collect", "collector.script", 1, 0));
    let thread = std::thread::spawn(|| {
        IS_LABELED.set(true);
        for _ in 0..3 {
            // Each registration allocates the initial memory of the label stack.
            gekkota::register_thread("labeled allocations");
            nest(0, &mut Vec::new());
            gekkota::unregister_thread();
        }
        IS_LABELED.set(false);
        PUSHES.get()
    });
    assert!(thread.join().expect("thread") > 1000);
    let read = Read::from_profile(&session.finish().expect("profile"));
    let threads = read
        .threads()
        .iter()
        .filter(|thread| thread["name"] == "labeled allocations");
    let samples: Vec<_> = threads.flat_map(common::samples_of).collect();
    let whole = samples.iter().filter(|sample| {
        let fixed = sample
            .stack
            .iter()
            .filter(|frame| *frame == "fixed")
            .count();
        let texts = sample
            .stack
            .iter()
            .filter(|frame| frame.starts_with("nested "))
            .map(String::as_str);
        fixed == NESTED
            && texts
                .enumerate()
                .all(|(number, text)| text["nested ".len()..] == *text_of(number))
    });
    let whole = whole.count();
    assert!(
        whole > 100,
        "{whole} of {} samples have all labels",
        samples.len()
    );
}
