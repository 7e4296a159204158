//! When the buffer is full the oldest goes, the rest reads back, and the profile says so.

use std::time::Duration;

use crate::common::{Read, isolated, work_for};
use gekkota::{MarkerOptions, ProfilerSession, StartParams, gecko_profiler_category};

type Marker = (String, f64, Option<f64>, u64, u64, serde_json::Value);

fn number(marker: &Marker) -> usize {
    let text = marker.5["name"].as_str().expect("text");
    text.split(' ')
        .nth(1)
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// Markers with their numbers, from this one on, and some work.
fn add_markers(from: usize) {
    for index in from..from + 20_000 {
        let text = format!("marker {index} {}", "x".repeat(40));
        gekkota::add_text_marker(
            "M",
            gecko_profiler_category!(Other),
            MarkerOptions::default(),
            &text,
        );
        if index % 100 == 0 {
            work_for(Duration::from_millis(5));
        }
    }
}

#[test]
fn the_oldest_goes_and_the_rest_is_whole() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default().capacity_bytes(256 << 10))
            .expect("start");
        std::thread::spawn(|| {
            gekkota::register_thread("died early");
            gekkota::add_text_marker(
                "M",
                gecko_profiler_category!(Other),
                MarkerOptions::default(),
                "early",
            );
            work_for(Duration::from_millis(20));
        })
        .join()
        .expect("thread");
        let has_early = |read: &Read| {
            read.threads()
                .iter()
                .any(|thread| thread["name"] == "died early")
        };
        assert!(has_early(&Read::from_profile(
            &session.snapshot().expect("profile")
        )));
        let thread = std::thread::spawn(move || {
            gekkota::register_thread("writer");
            let mut end = 0;
            // Until the samples from the beginning are gone as well, of which there are few.
            for _ in 0..30 {
                add_markers(end);
                end += 20_000;
                if !has_early(&Read::of_running()) {
                    break;
                }
            }
            end
        });
        let end = thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert!(!has_early(&read), "nothing of it is left");

        let markers = read.markers("writer");
        let first = number(&markers[0]);
        assert!(
            first > end - 10_000,
            "the oldest are gone; the first is {first} of {end}"
        );
        assert_eq!(
            markers.iter().map(number).collect::<Vec<_>>(),
            (first..end).collect::<Vec<_>>()
        );

        // Every sample that is there has its stack, also the first of each chunk.
        let samples = read.samples("writer");
        assert!(samples.len() > 20, "{}", samples.len());
        assert!(samples.iter().all(|sample| !sample.stack.is_empty()));
        assert!(samples.is_sorted_by_key(|sample| sample.time_ms));
        let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
        assert_eq!(log["malformed_entries"], 0);
        assert!(
            log["recycled_chunks"]
                .as_u64()
                .is_some_and(|chunks| chunks > 0),
            "{log}"
        );
        assert_eq!(
            read.0["meta"]["losses"]["recycled_chunks"],
            log["recycled_chunks"]
        );
        assert_eq!(
            read.0["meta"]["losses"]["recycled_bytes"],
            log["recycled_bytes"]
        );
        let held = ["unreleased_chunk_bytes", "released_chunk_bytes"]
            .map(|name| log[name].as_u64().expect(name));
        assert!(held.iter().sum::<u64>() <= 256 << 10, "{held:?}");
        // From then on nothing is missing: the first marker that is left was put at once after the last that is gone.
        let earliest = read.0["meta"]["contentEarliestTime"]
            .as_f64()
            .expect("a time");
        let is_complete_since = (markers[0].1 - earliest).abs() < 0.001;
        assert!(
            is_complete_since || samples[0].time_ms > earliest,
            "{earliest}, the first marker {}",
            markers[0].1
        );
    });
}
