//! A thread that announces its sleeps has `Awake` markers between them.

use crate::common::{Read, isolated, work_for_cpu};
use gekkota::{ProfilerSession, StartParams, profiler_thread_sleep, profiler_thread_wake};
use std::time::Duration;

const INTERVAL_START: u64 = 2;
const INTERVAL_END: u64 = 3;

#[test]
fn awake_marker_spans_the_time_between_announced_sleeps() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let body = || {
            gekkota::register_thread("sleeps");
            profiler_thread_sleep();
            // Announced twice, recorded once.
            profiler_thread_sleep();
            profiler_thread_wake();
            profiler_thread_wake();
            work_for_cpu(Duration::from_millis(2));
            profiler_thread_sleep();
            profiler_thread_wake();
        };
        std::thread::spawn(body).join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let markers = read.markers("sleeps");
        let awake: Vec<_> = markers
            .iter()
            .filter(|(name, ..)| name == "Awake")
            .collect();
        let phases: Vec<u64> = awake.iter().map(|marker| marker.3).collect();
        assert_eq!(
            phases,
            [INTERVAL_END, INTERVAL_START, INTERVAL_END, INTERVAL_START]
        );
        assert!(awake.iter().all(|marker| marker.5["type"] == "Awake"));
        let cpu_ms = |index: usize| awake[index].5["CPU Time"].as_f64();
        assert_eq!(
            cpu_ms(0),
            None,
            "the thread did not announce when it woke first"
        );
        assert!(cpu_ms(2).is_some_and(|ms| ms >= 2.0), "{:?}", cpu_ms(2));
        for (index, has_id) in [(0, false), (1, true), (2, false), (3, true)] {
            assert_eq!(awake[index].5["CPU Id"].is_u64(), has_id, "marker {index}");
        }
        let schemas = read.0["meta"]["markerSchema"].as_array().expect("schemas");
        let schema = schemas.iter().find(|schema| schema["name"] == "Awake");
        assert!(schema.is_some(), "the profile describes the type");
    });
}
