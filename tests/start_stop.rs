//! A thousand starts and stops leave nothing behind.
#![cfg(has_profiler)]

mod common;

use std::time::Duration;

use gekkota::{StartParams, profiler_start, profiler_stop};

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).expect(folder).count()
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("maps").lines().count()
}

#[test]
fn a_thousand_sessions_leak_neither_threads_nor_memory_nor_descriptors() {
    // Memory that the C library keeps for each thread that was, it does not give back.
    // SAFETY: sets a number of the allocator's.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    let worker = std::thread::spawn(|| {
        gekkota::register_thread("busy");
        common::work_for(Duration::from_millis(100));
        std::thread::park();
        gekkota::unregister_thread();
    });
    let cycle = || {
        profiler_start(StartParams::default()).expect("start");
        gekkota::add_text_marker("m", gekkota::gecko_profiler_category!(Other), Default::default(), "text");
        profiler_stop();
    };
    (0..50).for_each(|_| cycle());
    // The one trial of the engines outlasts the first sessions.
    common::wait_until("the trial is over", || {
        let threads = std::fs::read_dir("/proc/self/task").expect("threads");
        let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
        threads.flatten().filter_map(|thread| name(thread).ok()).all(|name| name.trim() != "EngineTrial")
    });
    let before = (entries("/proc/self/task"), entries("/proc/self/fd"), resident_kib(), mappings());
    (0..1000).for_each(|_| cycle());
    // A thread that was joined may stand there for a moment.
    common::wait_until("the samplers are gone", || entries("/proc/self/task") <= before.0);
    let after = (entries("/proc/self/task"), entries("/proc/self/fd"), resident_kib(), mappings());
    println!("threads, descriptors, resident KiB, mappings: {before:?}, then {after:?}");
    assert_eq!((before.0, before.1), (after.0, after.1));
    assert!(after.2 < before.2 + 4096, "resident memory went from {} to {} KiB", before.2, after.2);
    assert!(after.3 < before.3 + 20, "mappings went from {} to {}", before.3, after.3);
    profiler_stop();
    profiler_stop();
    worker.thread().unpark();
    worker.join().expect("thread");

    a_stop_is_soon_also_with_a_long_interval();
}

fn a_stop_is_soon_also_with_a_long_interval() {
    profiler_start(StartParams::default().interval(Duration::from_secs(10))).expect("start");
    std::thread::sleep(Duration::from_millis(20));
    let begin = std::time::Instant::now();
    profiler_stop();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}
