//! When the buffer is full the oldest goes, the rest reads back, and the profile says so.

use std::time::Duration;

use crate::common::{Read, isolated, work_for};
use gekkota::{
    MarkerOptions, MarkerTiming, ProfilerSession, ProfilerTime, StartParams,
    gecko_profiler_category,
};

type Marker = (String, f64, Option<f64>, u64, u64, serde_json::Value);

fn number(marker: &Marker) -> usize {
    let text = marker.5["name"].as_str().expect("text");
    text.split(' ')
        .nth(1)
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// Adds markers with their numbers, from this one on, and works now and then. Adds the times of the markers to `times`.
fn add_markers(from: usize, times: &mut Vec<ProfilerTime>) {
    for index in from..from + 20_000 {
        let text = format!("marker {index} {}", "x".repeat(40));
        let time = ProfilerTime::now();
        times.push(time);
        gekkota::add_text_marker(
            "M",
            gecko_profiler_category!(Other),
            MarkerOptions {
                timing: MarkerTiming::instant_at(time),
                ..MarkerOptions::default()
            },
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
            let mut times = Vec::new();
            // Until the samples from the beginning are gone as well, of which there are few.
            for _ in 0..30 {
                add_markers(times.len(), &mut times);
                if !has_early(&Read::of_running()) {
                    break;
                }
            }
            times
        });
        let times = thread.join().expect("thread");
        let end = times.len();
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
        // From then on nothing is missing: the last marker that is gone was added before. Some of what is left may be older.
        let earliest = read.0["meta"]["contentEarliestTime"]
            .as_f64()
            .expect("a time");
        let since_last_missing = times[first].duration_since(times[first - 1]);
        let last_missing = markers[0].1 - since_last_missing.as_secs_f64() * 1e3;
        assert!(
            last_missing <= earliest + 1e-6,
            "{earliest}, the last missing marker {last_missing}"
        );
        assert!(earliest <= markers[markers.len() - 1].1, "{earliest}");
    });
}
