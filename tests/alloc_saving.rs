//! Memory for writing a profile, in addition to its buffer: the amount depends on what the profile
//! shows, and on how often.
#![cfg(has_profiler)]

#[path = "it/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;

use common::{Read, isolated, mark};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{
    Features, MarkerOptions, MarkerStack, Profile, ProfilerSession, StartParams, add_text_marker,
    auto_profiler_label_dynamic, gecko_profiler_category, register_thread,
};

/// What a thread has allocated.
#[derive(Clone, Copy, Default)]
struct Allocated {
    calls: u64,
    /// All bytes that were requested.
    bytes: u64,
    /// Bytes that are in use now, and the most that ever were.
    in_use: i64,
    peak: i64,
}

thread_local! {
    static ALLOCATED: Cell<Allocated> = const { Cell::new(Allocated { calls: 0, bytes: 0, in_use: 0, peak: 0 }) };
}

fn count(requested: usize, change: i64) {
    let mut allocated = ALLOCATED.get();
    allocated.calls += 1;
    allocated.bytes += requested as u64;
    allocated.in_use += change;
    allocated.peak = allocated.peak.max(allocated.in_use);
    ALLOCATED.set(allocated);
}

struct Counting;

// SAFETY: every method delegates to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), layout.size() as i64);
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), layout.size() as i64);
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes, bytes as i64 - layout.size() as i64);
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn write(profile: &Profile, out: &mut dyn Write) {
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    let written = profile.write_with(Format::Gecko, out, &options);
    written.expect("the writer never fails");
}

/// Returns what the calling thread allocates while it writes the profile.
fn allocated_for(profile: &Profile) -> Allocated {
    ALLOCATED.set(Allocated::default());
    write(profile, &mut std::io::sink());
    ALLOCATED.get()
}

/// Starts a session that records no samples, so that only markers are in the buffer.
fn start_without_samples() -> ProfilerSession {
    let params = StartParams::default()
        .capacity_bytes(64 << 20)
        .features(Features::NO_STACK_SAMPLING);
    ProfilerSession::start(params).expect("start")
}

fn add_text(text: &str, options: MarkerOptions) {
    add_text_marker("M", gecko_profiler_category!(Other), options, text);
}

#[test]
fn distinct_texts_are_neither_copied_nor_allocated_one_by_one() {
    const TEXTS: u64 = 190_000;
    isolated(|| {
        let session = start_without_samples();
        register_thread("main");
        let mut text_bytes = 0;
        for number in 0..TEXTS {
            let text = format!("request {number} of the customer {}", number * 7919);
            text_bytes += text.len() as i64;
            add_text(&text, MarkerOptions::default());
        }
        let allocated = allocated_for(&session.finish().expect("profile"));
        assert!(allocated.calls < TEXTS / 50, "{} calls", allocated.calls);
        assert!(
            allocated.peak < 2 * text_bytes,
            "{} bytes for {text_bytes} bytes of texts",
            allocated.peak
        );
    });
}

#[test]
fn thread_costs_nothing_for_stacks_of_other_threads() {
    const STACKS: usize = 4000;
    const THREADS: u64 = 300;
    isolated(|| {
        let session = start_without_samples();
        register_thread("main");
        for number in 0..STACKS {
            let text = number.to_string();
            auto_profiler_label_dynamic!("step", &text, Other);
            add_text("with a stack", MarkerStack::Full.into());
            if number % 500 == 0 {
                // The sampler writes the stacks for a profile. Too many pending ones would be lost.
                drop(session.snapshot());
            }
        }
        let before = allocated_for(&session.snapshot().expect("profile"));
        for _ in 0..THREADS {
            let thread = std::thread::spawn(|| {
                register_thread("short");
                mark("here");
            });
            thread.join().expect("thread");
        }
        let profile = session.finish().expect("profile");
        let after = allocated_for(&profile);
        let mut text = Vec::new();
        write(&profile, &mut text);
        let read = Read::from_text(&text);
        assert_eq!(read.0["meta"]["losses"]["lost_marker_stacks"], 0);
        let stacks = read.thread("main")["stackTable"]["data"]
            .as_array()
            .map(Vec::len);
        assert!(stacks.is_some_and(|stacks| stacks > STACKS), "{stacks:?}");
        let of_thread = (after.bytes - before.bytes) / THREADS;
        // The index of each stack takes 4 bytes or more.
        assert!(of_thread < STACKS as u64 * 4 / 2, "{of_thread} bytes");
    });
}
