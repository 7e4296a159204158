//! With a limit, some markers of a name are left out, and the recorded ones count for them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::typed_markers::typed_markers;
use crate::common::{Read, isolated};
use gekkota::profile::Format;
use gekkota::{
    AutoProfilerTextMarker, MarkerOptions, MarkerStack, MarkerTiming, ProfilerSession,
    ProfilerTime, ProfilingCategoryPair, StartParams, add_text_marker, add_untyped_marker,
};

const OTHER: ProfilingCategoryPair = ProfilingCategoryPair::Other(None);
/// Markers of each name that the test adds.
const ADDED: u64 = 20_000;

/// Returns the options of an interval that has just ended.
fn just_took(time: Duration) -> MarkerOptions {
    let end = ProfilerTime::now();
    let start = end.subtract_microseconds(time.as_micros() as f64);
    MarkerTiming::interval(start, end).into()
}

/// Returns the number of recorded markers of each name, and the number of markers that they stand for.
fn counts(read: &Read) -> BTreeMap<String, (u64, u64)> {
    let mut counts = BTreeMap::<_, (u64, u64)>::new();
    for marker in typed_markers(read, "adds") {
        let number = marker.fields.get("standsFor");
        let number = number.map_or(1, |number| number.as_u64().expect("a number"));
        assert!(number.is_power_of_two(), "{marker:?}");
        let count = counts.entry(marker.name).or_default();
        *count = (count.0 + 1, count.1 + number);
    }
    counts
}

#[test]
fn recorded_markers_stand_for_those_that_were_left_out() {
    isolated(|| {
        gekkota::register_thread("adds");
        let params = StartParams::default().max_markers_per_second(8);
        let session = ProfilerSession::start(params).expect("start");
        let asked = gekkota::profiler_get_start_params().expect("active");
        assert_eq!(asked.max_markers_per_second, 8);
        let with_stack = MarkerOptions {
            stack: MarkerStack::Full,
            ..MarkerOptions::default()
        };
        for _ in 0..ADDED {
            add_untyped_marker("plain", OTHER, MarkerOptions::default());
            add_text_marker("text", OTHER, MarkerOptions::default(), "a text");
            add_text_marker("with stack", OTHER, with_stack, "a text");
            add_text_marker("quick", OTHER, just_took(Duration::from_micros(10)), "");
            drop(AutoProfilerTextMarker::new(
                "guard", OTHER, with_stack, "a text",
            ));
        }
        for _ in 0..3 {
            add_text_marker("quick", OTHER, just_took(Duration::from_secs(1)), "slow");
        }
        for _ in 0..50 {
            add_untyped_marker(
                "halves",
                OTHER,
                MarkerTiming::interval_start(ProfilerTime::now()).into(),
            );
            add_untyped_marker(
                "halves",
                OTHER,
                MarkerTiming::interval_end(ProfilerTime::now()).into(),
            );
        }
        let profile = session.finish().expect("a profile");
        let read = Read::from_profile(&profile);
        let counts = counts(&read);
        println!("{counts:?}");
        for name in ["plain", "text", "with stack", "quick", "guard"] {
            let (recorded, stand_for) = counts[name];
            assert!(
                recorded < ADDED / 10 && stand_for > recorded,
                "{name}: {counts:?}"
            );
        }
        assert_eq!(counts["halves"], (100, 100));
        let slow = typed_markers(&read, "adds");
        let slow = slow
            .iter()
            .filter(|marker| marker.fields.get("name").is_some_and(|name| name == "slow"));
        assert_eq!(slow.count(), 3);

        let left_out: u64 = counts.values().map(|(recorded, all)| all - recorded).sum();
        assert_eq!(read.0["meta"]["losses"]["left_out_markers"], left_out);
        // Markers that are left out take no stack.
        let stacks = profile.sampler_counts();
        let stacks = stacks.iter().find(|(name, _)| *name == "marker_stacks");
        assert_eq!(
            stacks.expect("the count").1,
            counts["with stack"].0 + counts["guard"].0
        );

        // The other readers get the same fields.
        if cfg!(feature = "formats") {
            let mut chrome = Vec::new();
            profile
                .write(Format::ChromeTrace, &mut chrome)
                .expect("a trace");
            let chrome: serde_json::Value = serde_json::from_slice(&chrome).expect("JSON");
            let events = chrome["traceEvents"].as_array().expect("events");
            let plain = events.iter().filter(|event| event["name"] == "plain");
            let number = |event: &serde_json::Value| {
                event["args"]["data"]["standsFor"].as_u64().unwrap_or(1)
            };
            assert_eq!(plain.map(number).sum::<u64>(), counts["plain"].1);
        }
    });
}
