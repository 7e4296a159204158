//! When the buffer is full the oldest goes, the rest reads back, and the profile says so.
#![cfg(has_profiler)]

mod common;

use std::time::Duration;

use common::{Read, work_for};
use gekkota::{MarkerOptions, ProfilerSession, StartParams, gecko_profiler_category};

#[test]
fn the_oldest_goes_and_the_rest_is_whole() {
    let session = ProfilerSession::start(StartParams::default().capacity_bytes(256 << 10)).expect("start");
    std::thread::spawn(|| {
        gekkota::register_thread("died early");
        work_for(Duration::from_millis(20));
    })
    .join()
    .expect("thread");
    let thread = std::thread::spawn(|| {
        gekkota::register_thread("writer");
        for index in 0..20_000 {
            let text = format!("marker {index} {}", "x".repeat(40));
            gekkota::add_text_marker("M", gecko_profiler_category!(Other), MarkerOptions::default(), &text);
            if index % 100 == 0 {
                work_for(Duration::from_millis(5));
            }
        }
    });
    thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));

    let markers = read.markers("writer");
    let number = |marker: &(String, f64, Option<f64>, u64, u64, serde_json::Value)| -> usize {
        let text = marker.5["name"].as_str().expect("text");
        text.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number")
    };
    let first = number(&markers[0]);
    assert!(first > 10_000, "the oldest are gone; the first is {first}");
    assert_eq!(markers.iter().map(number).collect::<Vec<_>>(), (first..20_000).collect::<Vec<_>>());

    // Every sample that is there has its stack, also the first of each chunk.
    let samples = read.samples("writer");
    assert!(samples.len() > 20, "{}", samples.len());
    let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
    assert_eq!(log["malformed_entries"], 0);
    assert!(log["recycled_chunks"].as_u64().is_some_and(|chunks| chunks > 0), "{log}");
    let earliest = read.0["meta"]["contentEarliestTime"].as_f64().expect("a time");
    assert!(earliest > read.0["meta"]["profilingStartTime"].as_f64().expect("a time"));
    // A sample is written some ticks after its time, more on a busy machine.
    assert!(samples[0].time_ms >= earliest - 100.0, "{} is before {earliest}", samples[0].time_ms);
    assert!(!read.threads().iter().any(|thread| thread["name"] == "died early"), "nothing of it is left");
}
