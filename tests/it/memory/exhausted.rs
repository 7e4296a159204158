//! An application that has used up all its memory, and can go on without, is not ended by the
//! profiler.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{MIB, add_markers, buffer_info, end_limit, limit_memory, use_up_memory};
use crate::common::{Read, Sleeper, isolated, wait_until, work};
use gekkota::{
    AutoProfilerLabel, MarkerOptions, ProfilerSession, StartParams, gecko_profiler_category,
};

const TEXT_BYTES: usize = 1000;
/// The text of markers that are added without an allocation.
const TEXT: &str = match std::str::from_utf8(&[b'x'; TEXT_BYTES]) {
    Ok(text) => text,
    Err(_) => panic!("ASCII"),
};

/// Adds markers and labels without an allocation of the test.
fn record() {
    let _label = AutoProfilerLabel::new("label", gecko_profiler_category!(Other));
    for _ in 0..100 {
        gekkota::add_text_marker(
            "M",
            gecko_profiler_category!(Other),
            MarkerOptions::default(),
            TEXT,
        );
    }
}

/// Pushes labels until there are this many, and records with them.
fn record_under_labels(labels: usize) {
    let _label = AutoProfilerLabel::new("one of many", gecko_profiler_category!(Other));
    match labels {
        0 => record(),
        _ => record_under_labels(labels - 1),
    }
}

#[test]
fn session_survives_an_application_that_has_no_memory_left() {
    isolated(|| {
        let params = StartParams::default().capacity_bytes(1 << 30);
        let session = ProfilerSession::start(params).expect("start");
        gekkota::register_thread("writer");
        let _sleeper = Sleeper::start("sleeper");
        let (is_done, barrier) = (AtomicBool::new(false), Barrier::new(2));
        add_markers(0..20_000, TEXT_BYTES);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gekkota::register_thread("busy");
                barrier.wait();
                while !is_done.load(Ordering::Relaxed) {
                    work(1000);
                }
            });
            barrier.wait();
            scope.spawn(|| {
                // The C library ends a program that has no memory for a thread's first destructor.
                gekkota::register_thread("early");
                record();
                gekkota::unregister_thread();
                barrier.wait();
                barrier.wait();
                gekkota::register_thread("late");
                record_under_labels(500);
                gekkota::unregister_thread();
                barrier.wait();
            });
            barrier.wait();
            let before = buffer_info();
            limit_memory(0);
            use_up_memory();
            barrier.wait();
            // Enough for the buffer to recycle its own chunks many times.
            while buffer_info().recycled_bytes < before.recycled_bytes + 64 * MIB {
                record();
            }
            barrier.wait();
            end_limit();
            is_done.store(true, Ordering::Relaxed);
        });
        let samples = || Read::of_running().samples("writer").len();
        let before = samples();
        wait_until("samples are taken again", || {
            work(1_000_000);
            samples() > before
        });
        let read = Read::from_profile(&session.finish().expect("profile"));
        let losses = &read.0["meta"]["losses"];
        println!("{losses}");
        assert!(losses["refused_chunks"].as_u64() > Some(0), "{losses}");
    });
}
