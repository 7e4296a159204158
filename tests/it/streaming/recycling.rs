//! A full buffer discards its oldest data. The rest reads back whole, and the profile reports the
//! loss.

use std::time::Duration;

use crate::common::{Read, isolated, wait_until, work_for, work_for_cpu};
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

/// Adds 20,000 markers numbered from `from` on, works now and then, and adds the times of the
/// markers to `times`.
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
fn full_buffer_discards_the_oldest_and_keeps_the_rest_whole() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default().capacity_bytes(256 << 10))
            .expect("start");
        std::thread::spawn(|| {
            gekkota::register_thread("ended early");
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
                .any(|thread| thread["name"] == "ended early")
        };
        assert!(has_early(&Read::from_profile(
            &session.snapshot().expect("profile")
        )));
        let thread = std::thread::spawn(move || {
            gekkota::register_thread("writer");
            let mut times = Vec::new();
            // Discarding all of the ended thread's data takes several rounds if it has samples.
            wait_until("nothing of the ended thread is left", || {
                add_markers(times.len(), &mut times);
                !has_early(&Read::of_running())
            });
            wait_until("the writer has samples", || {
                work_for_cpu(Duration::from_millis(5));
                Read::of_running().samples("writer").len() > 20
            });
            times
        });
        let times = thread.join().expect("thread");
        let end = times.len();
        let before = Read::of_running();
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert!(!has_early(&read), "data of the ended thread is left");

        let markers = read.markers("writer");
        let first = number(&markers[0]);
        assert!(
            first > end - 10_000,
            "the oldest are still there: the first is {first} of {end}"
        );
        assert_eq!(
            markers.iter().map(number).collect::<Vec<_>>(),
            (first..end).collect::<Vec<_>>()
        );

        // Every sample has its stack, including the first of each chunk.
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
        // Nothing later than this time is missing. Some older data may still be there.
        let earliest = |read: &Read| {
            let time = read.0["meta"]["contentEarliestTime"].as_f64();
            time.expect("something was discarded")
        };
        let since_last_missing = times[first].duration_since(times[first - 1]);
        let last_missing = markers[0].1 - since_last_missing.as_secs_f64() * 1e3;
        assert!(
            last_missing <= earliest(&read) + 1e-6,
            "complete since {}, but the marker at {last_missing} is missing",
            earliest(&read)
        );
        // The time is that of a discarded chunk, so it changes only if a chunk is discarded.
        let recycled_chunks = |read: &Read| read.0["meta"]["losses"]["recycled_chunks"].as_u64();
        if recycled_chunks(&read) == recycled_chunks(&before) {
            assert_eq!(earliest(&read), earliest(&before));
        }
        assert!(earliest(&before) <= earliest(&read));
        let taken_at = read.0["meta"]["profilingEndTime"].as_f64();
        assert!(earliest(&read) <= taken_at.expect("a time"));
    });
}
