//! Markers are recorded with their times, only on profiled threads and only during the session.

use std::time::Duration;

use crate::common::{Read, isolated, registered_threads_only};
use gekkota::{
    AutoProfilerTextMarker, MarkerOptions, MarkerTiming, ProfilerSession, ProfilerTime,
    add_text_marker, add_untyped_marker, auto_profiler_marker_text, gecko_profiler_category,
};

#[test]
fn markers_are_on_their_thread_at_their_time() {
    isolated(|| {
        let category = gecko_profiler_category!(Network);
        let options = MarkerOptions::default();
        gekkota::register_thread("early");
        add_text_marker("before the start", category, options, "lost");
        assert!(
            AutoProfilerTextMarker::new("before the start", category, options, "lost").is_none()
        );

        let session =
            ProfilerSession::start(registered_threads_only().filters(["markers", "early"]))
                .expect("start");
        let start = ProfilerTime::now();
        let thread = std::thread::spawn(move || {
            add_text_marker("unregistered", category, options, "lost");
            gekkota::register_thread("markers");
            let at = |timing| options.with_timing(timing);
            add_untyped_marker("instant", category, options);
            add_untyped_marker("instant at", category, at(MarkerTiming::instant_at(start)));
            add_text_marker(
                "interval",
                category,
                at(MarkerTiming::interval(
                    start,
                    start.add_microseconds(1500.0),
                )),
                "µ",
            );
            add_untyped_marker(
                "until now",
                category,
                at(MarkerTiming::interval_until_now_from(start)),
            );
            add_untyped_marker("halves", category, at(MarkerTiming::interval_start(start)));
            add_untyped_marker(
                "halves",
                category,
                at(MarkerTiming::interval_end(start.add_microseconds(1.0))),
            );
            {
                auto_profiler_marker_text!("scope", category, options, "of 20 ms");
                std::thread::sleep(Duration::from_millis(20));
            }
            add_text_marker("large", category, options, &"x".repeat(100_000));
            add_text_marker(
                "larger than a chunk",
                category,
                options,
                &"x".repeat(2_000_000),
            );
        });
        thread.join().expect("thread");
        let other = std::thread::spawn(move || {
            gekkota::register_thread("not selected");
            add_untyped_marker("not selected", category, options);
        });
        other.join().expect("thread");
        add_untyped_marker("on early", category, options);
        let read = Read::from_profile(&session.finish().expect("profile"));
        add_text_marker("after the end", category, options, "lost");

        let mut markers = read.markers("markers");
        let last_ms = |marker: &(String, f64, Option<f64>, u64, u64, serde_json::Value)| {
            marker.2.unwrap_or(marker.1)
        };
        assert!(
            markers.is_sorted_by_key(last_ms),
            "markers are sorted by their latest time"
        );
        let expected = [
            "instant",
            "instant at",
            "interval",
            "until now",
            "halves",
            "halves",
            "scope",
            "large",
        ];
        markers
            .sort_by_key(|marker| (expected.iter().position(|name| *name == marker.0), marker.3));
        assert!(markers.iter().map(|marker| marker.0.as_str()).eq(expected));
        let phases: Vec<_> = markers.iter().map(|marker| marker.3).collect();
        assert_eq!(phases, [0, 0, 1, 1, 2, 3, 1, 0]);
        assert!(
            markers.iter().all(|marker| marker.4 == 6),
            "all have the category Network"
        );

        let start_ms = markers[1].1;
        assert!(markers[0].1 >= start_ms && markers[0].2.is_none());
        assert_eq!(
            (markers[2].1, markers[2].5["name"].as_str()),
            (start_ms, Some("µ"))
        );
        assert!(
            (markers[2].2.expect("end") - start_ms - 1.5).abs() < 1e-5,
            "{:?}",
            markers[2]
        );
        assert_eq!(markers[3].1, start_ms);
        assert!(markers[3].2.is_some_and(|end| end >= start_ms));
        assert_eq!((markers[4].1, markers[4].2), (start_ms, None));
        assert!(
            markers[5]
                .2
                .is_some_and(|end| (end - start_ms - 0.001).abs() < 1e-5),
            "{:?}",
            markers[5]
        );
        let scope = markers[6].2.expect("end") - markers[6].1;
        assert!(scope >= 20.0, "{scope} ms");
        assert_eq!(markers[7].5["name"].as_str().map(str::len), Some(100_000));

        assert_eq!(
            read.markers("early")
                .iter()
                .map(|marker| marker.0.as_str())
                .collect::<Vec<_>>(),
            ["on early"]
        );
        assert!(
            !read
                .threads()
                .iter()
                .any(|thread| thread["name"] == "not selected")
        );
        let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
        assert_eq!(
            (&log["dropped_entries"], &log["too_large_entries"]),
            (&1.into(), &1.into()),
            "the marker that is larger than a chunk"
        );
    });
}
