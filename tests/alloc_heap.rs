//! The global allocator counts and samples the program's memory.
#![cfg(has_profiler)]

#[path = "it/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::RefCell;
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard};

use common::{Read, isolated, one_loop};
use gekkota::memory::{ProfilerAllocator, profiler_heap_snapshot};
use gekkota::profile::Format;
use gekkota::{Features, Profile, ProfilerSession, StartParams, profiler_pause, profiler_resume};
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: ProfilerAllocator = ProfilerAllocator::system();

/// Makes the other tests wait: each test has the only session, and the others allocate little.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn session(features: Features, interval: u64) -> ProfilerSession {
    let params = StartParams::default()
        .features(Features::default_set() | features)
        .allocation_interval_bytes(interval);
    ProfilerSession::start(params).expect("start")
}

#[inline(never)]
fn leaks(count: usize, bytes: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|_| black_box(Vec::with_capacity(bytes)))
        .collect()
}

#[inline(never)]
fn churns(count: usize, bytes: usize) {
    for _ in 0..count {
        drop(black_box(Vec::<u8>::with_capacity(bytes)));
    }
}

/// A sampled allocation or free: the bytes that it stands for, its address, and the names of its
/// stack, innermost first.
#[derive(Debug)]
struct Event {
    bytes: i64,
    address: u64,
    size: u64,
    stack: Vec<String>,
}

fn events(profile: &Profile) -> Vec<Event> {
    let read = Read::from_profile(profile);
    let mut all = Vec::new();
    for thread in read.threads() {
        let strings = thread["stringTable"].as_array().expect("strings");
        let markers = thread["markers"]["data"].as_array().expect("markers");
        for marker in markers {
            let data = &marker[5];
            if data["type"] != "Native allocation" {
                continue;
            }
            assert_eq!(thread["name"], read.threads()[0]["name"]);
            all.push(Event {
                bytes: data["size"].as_i64().expect("a size"),
                address: data["memoryAddress"].as_u64().expect("an address"),
                size: data["sampledSize"].as_u64().expect("a size"),
                stack: stack_of(thread, strings, data),
            });
        }
    }
    all
}

fn stack_of(thread: &Value, strings: &[Value], data: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let sample = &data["stack"]["samples"]["data"][0];
    let mut next = sample[0].as_u64();
    while let Some(stack) = next {
        let row = &thread["stackTable"]["data"][stack as usize];
        let frame = &thread["frameTable"]["data"][row[1].as_u64().expect("a frame") as usize];
        let name = &strings[frame[0].as_u64().expect("a name") as usize];
        names.push(name.as_str().expect("a text").to_owned());
        next = row[0].as_u64();
    }
    names
}

fn is_of(event: &Event, function: &str) -> bool {
    event.stack.iter().any(|name| name.contains(function))
}

fn bytes_of(events: &[Event], function: &str) -> i64 {
    let of_function = events.iter().filter(|event| is_of(event, function));
    of_function.map(|event| event.bytes).sum()
}

#[track_caller]
fn assert_near(value: i64, truth: i64, share: f64) {
    let error = value as f64 / truth as f64 - 1.0;
    assert!(error.abs() < share, "{value} for {truth}");
}

/// Returns the sum of the counter's values, and that of its operations.
fn malloc(profile: &Profile) -> [i64; 2] {
    let read = Read::from_profile(profile);
    let counters = read.0["counters"].as_array().expect("counters");
    let malloc = counters.iter().find(|counter| counter["name"] == "malloc");
    let rows = malloc.expect("a counter")["samples"]["data"]
        .as_array()
        .expect("rows");
    let sum = |column: usize| rows.iter().filter_map(|row| row[column].as_i64()).sum();
    [sum(1), sum(2)]
}

#[test]
fn counter_has_the_operations() {
    let _alone = alone();
    let session = session(Features::MEMORY, 512 << 10);
    let kept = leaks(1000, 100_000);
    churns(5000, 100);
    let profile = session.finish().expect("a profile");
    // The threads of the test harness allocate a little, too.
    let [_, operations] = malloc(&profile);
    assert!((11_000..13_000).contains(&operations), "{operations}");
    drop(kept);
}

#[test]
fn counter_has_the_growth() {
    let _alone = alone();
    let session = session(Features::MEMORY, 512 << 10);
    // The profiler makes its own tables in the first loop and for the first profile.
    one_loop();
    malloc(&session.snapshot().expect("a profile"));
    let before = session.snapshot().expect("a profile");
    let kept = leaks(1000, 100_000);
    let after = session.finish().expect("a profile");
    let [[before, _], [after, _]] = [&before, &after].map(malloc);
    assert_near(after - before, 100_000_000, 0.02);
    drop(kept);
}

/// The profiler's threads and the saving thread free what the others have allocated. In a process of
/// its own: the sessions of other tests may free their last memory late.
#[test]
fn saving_does_not_lower_the_counter() {
    isolated(|| {
        let session = session(Features::MEMORY, 512 << 10);
        one_loop();
        for _ in 0..5 {
            let profile = session.snapshot().expect("a profile");
            let mut text = Vec::new();
            profile
                .write(Format::Gecko, &mut text)
                .expect("a vector never fails");
        }
        // The names that were read are still kept, so the counter is above 0.
        let [bytes, _] = malloc(&session.snapshot().expect("a profile"));
        assert!(bytes > 0, "{bytes}");
    });
}

/// Returns profiles without losses. A sampler that gets no processor for some milliseconds loses
/// stacks of allocations, and the profile counts them.
fn without_losses(record: impl Fn() -> [Profile; 2]) -> [Profile; 2] {
    const ATTEMPTS: u32 = 50;
    let losses = |profile: &Profile| {
        let counts = profile.sampler_counts().into_iter();
        let of_losses = |name: &str| ["lost_marker_stacks", "dropped_allocations"].contains(&name);
        let lost = counts.filter(|(name, _)| of_losses(name));
        lost.map(|(_, count)| count).sum::<u64>()
    };
    for _ in 0..ATTEMPTS {
        let profiles = record();
        let lost: u64 = profiles.iter().map(losses).sum();
        if lost == 0 {
            return profiles;
        }
        eprintln!("{lost} stacks or allocations were lost; recorded once more");
    }
    panic!("each of {ATTEMPTS} profiles has losses");
}

#[test]
fn samples_estimate_what_each_function_has_allocated_and_retained() {
    let _alone = alone();
    let [heap, profile] = without_losses(|| {
        let session = session(Features::NATIVE_ALLOCATIONS, 4 << 10);
        churns(40_000, 100);
        let kept = leaks(4000, 1000);
        one_loop();
        let heap = profiler_heap_snapshot().expect("a snapshot");
        drop(kept);
        churns(1000, 1 << 20);
        [heap, session.finish().expect("a profile")]
    });

    let all = events(&profile);
    let allocated: Vec<_> = all.into_iter().filter(|event| event.bytes > 0).collect();
    // About 1,000 samples each: 15 % are more than four standard deviations.
    assert_near(bytes_of(&allocated, "leaks"), 4_000_000, 0.15);
    assert_near(
        bytes_of(&allocated, "churns"),
        4_000_000 + (1000 << 20),
        0.15,
    );
    let innermost = &allocated
        .iter()
        .find(|event| is_of(event, "leaks"))
        .expect("one")
        .stack;
    // Of the profiler, only what the allocator calls.
    let own = innermost.iter().filter(|name| name.contains("gekkota::"));
    assert!(
        own.clone().all(|name| {
            ["sample_allocation", "note_allocated", "ProfilerAllocator"]
                .iter()
                .any(|known| name.contains(known))
        }),
        "{innermost:?}"
    );
    assert_eq!(innermost.last().map(String::as_str), Some("(root)"));

    let alive = events(&heap);
    assert!(alive.iter().all(|event| event.bytes > 0));
    assert_near(bytes_of(&alive, "leaks"), 4_000_000, 0.15);
    assert_eq!(bytes_of(&alive, "churns"), 0);
    let read = Read::from_profile(&heap);
    assert!(
        read.threads()
            .iter()
            .all(|thread| common::samples_of(thread).is_empty())
    );
    assert_eq!(read.threads().len(), 1);
}

/// Frees on another thread, in another order.
#[inline(never)]
fn frees_all_that_it_grows() {
    let (sender, receiver) = std::sync::mpsc::channel::<Vec<u8>>();
    let freeing = std::thread::spawn(move || receiver.iter().for_each(drop));
    for round in 0..2000 {
        let mut grown = Vec::<u8>::with_capacity(64);
        grown.resize(64 + round % 512, 1);
        grown.shrink_to_fit();
        sender.send(grown).expect("the thread");
    }
    drop(sender);
    freeing.join().expect("a thread");
}

#[test]
fn each_free_of_a_sampled_allocation_is_recorded_once() {
    let _alone = alone();
    let session = session(Features::NATIVE_ALLOCATIONS, 512);
    frees_all_that_it_grows();
    one_loop();
    let alive = events(&profiler_heap_snapshot().expect("a snapshot"));
    let all = events(&session.finish().expect("a profile"));
    let mut live = std::collections::HashMap::new();
    for event in &all {
        if event.bytes > 0 {
            let before = live.insert(event.address, event);
            assert!(before.is_none(), "{event:?} {before:?}");
            assert!(event.size as i64 <= event.bytes);
        } else {
            let allocated = live.remove(&event.address);
            let bytes = allocated.map(|allocated| -allocated.bytes);
            assert_eq!(bytes, Some(event.bytes), "{event:?} {}", all.len());
        }
    }
    assert!(all.len() > 1000, "{}", all.len());
    for event in alive {
        assert!(!is_of(&event, "frees_all_that_it_grows"), "{event:?}");
    }
}

#[test]
fn frees_during_a_pause_and_restarts_are_seen() {
    let _alone = alone();
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                churns(10, 10_000);
            }
        });
        for _ in 0..10 {
            let session = session(Features::MEMORY | Features::NATIVE_ALLOCATIONS, 1024);
            let before = leaks(100, 20_000);
            profiler_pause();
            drop(before);
            let during = leaks(100, 20_000);
            profiler_resume();
            one_loop();
            let alive = events(&profiler_heap_snapshot().expect("a snapshot"));
            assert_eq!(
                bytes_of(&alive, "leaks"),
                0,
                "nothing is sampled in a pause"
            );
            drop(during);
            drop(session);
        }
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn forked_child_has_a_session_of_its_own() {
    let _alone = alone();
    let parents = session(Features::NATIVE_ALLOCATIONS, 1024);
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Holds the locks of the live allocations and of their stacks most of the time.
        scope.spawn(|| {
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                drop(leaks(100, 5000));
                drop(profiler_heap_snapshot());
            }
        });
        for _ in 0..10 {
            common::assert_in_forked_child(|| {
                let session = session(Features::NATIVE_ALLOCATIONS, 1024);
                let kept = leaks(10, 20_000);
                one_loop();
                let alive = events(&profiler_heap_snapshot().expect("a snapshot"));
                drop(kept);
                drop(session);
                (150_000..300_000).contains(&bytes_of(&alive, "leaks"))
            });
        }
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop(parents);
}

thread_local! {
    static LATE: Late = const { Late(RefCell::new(Vec::new())) };
}

/// Allocates and frees when its thread ends.
struct Late(RefCell<Vec<Vec<u8>>>);

impl Drop for Late {
    fn drop(&mut self) {
        self.0.borrow_mut().clear();
        churns(2, 5000);
    }
}

#[test]
fn allocations_of_ending_threads_and_of_1_000_threads_are_counted() {
    let _alone = alone();
    let session = session(Features::MEMORY | Features::NATIVE_ALLOCATIONS, 16 << 10);
    for _ in 0..10 {
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| LATE.with(|late| late.0.borrow_mut().extend(leaks(10, 3000))));
            }
        });
    }
    one_loop();
    let alive = events(&profiler_heap_snapshot().expect("a snapshot"));
    assert_eq!(bytes_of(&alive, "leaks"), 0);
    let all = events(&session.finish().expect("a profile"));
    let allocated: i64 = all
        .iter()
        .filter(|event| event.bytes > 0 && is_of(event, "leaks"))
        .map(|event| event.bytes)
        .sum();
    assert_near(allocated, 30_000_000, 0.15);
    assert!(all.iter().any(|event| is_of(event, "churns")));
}

#[test]
fn zero_huge_and_failed_requests_are_harmless() {
    let _alone = alone();
    let session = session(Features::MEMORY | Features::NATIVE_ALLOCATIONS, 4096);
    let layout = Layout::from_size_align(64 << 10, 16).expect("a layout");
    let huge = isize::MAX as usize - 4096;
    // SAFETY: the layouts are valid, and each address is freed once, with its layout.
    unsafe {
        let address = ALLOCATOR.alloc(layout);
        assert!(!address.is_null());
        assert!(ALLOCATOR.realloc(address, layout, huge).is_null());
        let aligned = Layout::from_size_align(8192, 1 << 16).expect("a layout");
        let other = ALLOCATOR.alloc_zeroed(aligned);
        assert!(other.addr().is_multiple_of(1 << 16));
        ALLOCATOR.dealloc(other, aligned);
        let huge = Layout::from_size_align(huge, 16).expect("a layout");
        assert!(ALLOCATOR.alloc(black_box(huge)).is_null());
        let alive = events(&profiler_heap_snapshot().expect("a snapshot"));
        assert!(alive.iter().any(|event| event.address == address as u64));
        ALLOCATOR.dealloc(address, layout);
        let alive = events(&profiler_heap_snapshot().expect("a snapshot"));
        assert!(!alive.iter().any(|event| event.address == address as u64));
    }
    drop(session);
    assert!(profiler_heap_snapshot().is_none());
}
