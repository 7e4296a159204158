//! The host's allocator may push labels itself, also while the label stack asks it for memory; what it frees is overwritten.
#![cfg(has_profiler)]

#[path = "it/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

use common::{Read, work_for_cpu};
use gekkota::script::{AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_function};
use gekkota::stack::{ProfilerBacktrace, StackFeatures, StackFrame, profiler_capture_backtrace};
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams};

struct LabelsItsWork;

thread_local! {
    static IS_LABELLED: Cell<bool> = const { Cell::new(false) };
    static PUSHES: Cell<u64> = const { Cell::new(0) };
}
static FUNCTION: OnceLock<ScriptFunction> = OnceLock::new();
const NESTED: usize = 150;
/// Longer than what the stack begins with has room for.
const LONG: &str = match str::from_utf8(&[b'x'; 600]) {
    Ok(text) => text,
    Err(_) => panic!(),
};

/// Pushes, calls, pops: nothing here asks for memory, but the pushes may.
fn labelled<T>(body: impl FnOnce() -> T) -> T {
    if !IS_LABELLED.get() {
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

// SAFETY: the system's allocator does the work; what is freed is the caller's to overwrite.
unsafe impl GlobalAlloc for LabelsItsWork {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        labelled(|| unsafe { System.alloc(layout) })
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        labelled(|| unsafe {
            pointer.write_bytes(0xa5, layout.size());
            System.dealloc(pointer, layout);
        });
    }
}

#[global_allocator]
static ALLOCATOR: LabelsItsWork = LabelsItsWork;

fn text_of(number: usize) -> &'static str {
    ["first", "second text", "third and longer text"][number % 3]
}

/// Pushes two labels and goes on within them. Each time the labels that are there are copied, into memory that is new since
/// the copies before are kept; in the end they are read back.
fn nest(number: usize, copies: &mut Vec<ProfilerBacktrace>) {
    let category = gekkota::gecko_profiler_category!(Other);
    let _dynamic = AutoProfilerLabel::with_dynamic("host", text_of(number), category);
    let _label = AutoProfilerLabel::new("host's own", category);
    copies.push(profiler_capture_backtrace().expect("memory"));
    if number + 1 < NESTED {
        nest(number + 1, copies);
        return;
    }
    work_for_cpu(Duration::from_millis(100));
    for (newest, copy) in copies.iter().enumerate() {
        let expected = (0..=newest).rev().flat_map(|number| {
            [
                ("host's own".to_owned(), false),
                (format!("host {}", text_of(number)), true),
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
fn an_allocator_may_push_labels() {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    FUNCTION.get_or_init(|| profiler_register_script_function("collect", "collector.script", 1, 0));
    let thread = std::thread::spawn(|| {
        IS_LABELLED.set(true);
        for _ in 0..3 {
            // The stack's first memory is asked for by each registration.
            gekkota::register_thread("labels its memory");
            nest(0, &mut Vec::new());
            gekkota::unregister_thread();
        }
        IS_LABELLED.set(false);
        PUSHES.get()
    });
    assert!(thread.join().expect("thread") > 1000);
    let read = Read::from_profile(&session.finish().expect("profile"));
    let threads = read
        .threads()
        .iter()
        .filter(|thread| thread["name"] == "labels its memory");
    let samples: Vec<_> = threads.flat_map(common::samples_of).collect();
    let whole = samples.iter().filter(|sample| {
        let own = sample
            .stack
            .iter()
            .filter(|frame| *frame == "host's own")
            .count();
        let texts = sample
            .stack
            .iter()
            .filter(|frame| frame.starts_with("host "))
            .map(String::as_str);
        own == NESTED
            && texts
                .enumerate()
                .all(|(number, text)| text["host ".len()..] == *text_of(number))
    });
    let whole = whole.count();
    assert!(
        whole > 100,
        "{whole} of {} samples have all labels",
        samples.len()
    );
}
