//! The statistics of the sampler's loops, in `profiler_get_buffer_info` and in profiles.

use crate::common::{Read, isolated, one_loop};
use gekkota::profile::ProfilerStats;
use gekkota::{ProfilerSession, StartParams, profiler_get_buffer_info, profiler_get_start_params};
use serde_json::Value;

#[test]
fn buffer_info_counts_each_sampling_loop() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        for _ in 0..5 {
            one_loop();
        }
        gekkota::profiler_pause_sampling();
        // After these loops the sampler has seen the pause, and loops in a pause do not count.
        one_loop();
        one_loop();
        let info = profiler_get_buffer_info().expect("active");
        one_loop();
        assert_eq!(
            profiler_get_buffer_info().expect("active").overheads,
            info.overheads
        );
        let parts = [info.lockings, info.counters, info.threads, info.cleanings];
        let is_ordered = |stats: ProfilerStats| {
            stats.min_ns <= stats.max_ns
                && stats.sum_ns >= stats.max_ns
                && stats.sum_ns <= stats.count * stats.max_ns
        };
        assert!(info.overheads.count >= 5, "{info:?}");
        for stats in parts {
            assert!(is_ordered(stats), "{stats:?}");
            assert_eq!(stats.count, info.overheads.count);
        }
        let sum: u64 = parts.iter().map(|stats| stats.sum_ns).sum();
        assert_eq!(info.overheads.sum_ns, sum);
        // No interval ends with the first loop.
        assert_eq!(info.intervals.count, info.overheads.count - 1);
        assert!(is_ordered(info.intervals));
        drop(session);
    });
}

/// Runs some loops, pauses, and returns the profile with the statistics for the same loops.
fn paused_after_loops(params: StartParams) -> (Value, gekkota::BufferInfo) {
    let session = ProfilerSession::start(params).expect("start");
    for _ in 0..20 {
        one_loop();
    }
    gekkota::profiler_pause_sampling();
    one_loop();
    one_loop();
    let info = profiler_get_buffer_info().expect("active");
    let read = Read::from_profile(&session.finish().expect("a profile"));
    (read.0["profilerOverhead"].clone(), info)
}

fn number(statistics: &Value, key: &str) -> f64 {
    let number = statistics[key].as_f64();
    number.unwrap_or_else(|| panic!("{key} of {statistics}"))
}

/// Whether two numbers are equal but for the rounding of their sums.
fn is_about(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs()) + 1e-6
}

/// Checks the statistics against the durations in microseconds from which they should come.
fn check_spread(statistics: &Value, name: &str, durations: &[f64]) {
    let sum: f64 = durations.iter().sum();
    let min = durations.iter().copied().fold(f64::INFINITY, f64::min);
    let max = durations.iter().copied().fold(0.0, f64::max);
    let expected = [sum / durations.len() as f64, min, max];
    let found = ["mean", "min", "max"].map(|what| number(statistics, &format!("{what}{name}")));
    let is_equal = found
        .iter()
        .zip(expected)
        .all(|(found, expected)| is_about(*found, expected));
    assert!(is_equal, "{name}: {found:?}, expected {expected:?}");
}

#[test]
fn recorded_loops_add_up_to_the_statistics() {
    isolated(|| {
        let params = StartParams::default().record_overheads(true);
        let session = ProfilerSession::start(params.clone()).expect("start");
        assert!(
            profiler_get_start_params()
                .expect("active")
                .record_overheads
        );
        drop(session);
        let (overhead, info) = paused_after_loops(params);
        let schema = serde_json::json!(
            {"time": 0, "locking": 1, "expiredMarkerCleaning": 2, "counters": 3, "threads": 4}
        );
        assert_eq!(overhead["samples"]["schema"], schema);
        let rows = overhead["samples"]["data"].as_array().expect("rows");
        let column = |index: usize| -> Vec<f64> {
            let numbers = rows
                .iter()
                .map(|row| row[index].as_f64().expect("a number"));
            numbers.collect()
        };
        let times = column(0);
        let parts = [1, 2, 3, 4].map(column);
        assert!(times.is_sorted() && times[0] > 0.0);
        assert!(parts.iter().flatten().all(|duration| *duration >= 0.0));
        let sums: Vec<f64> = (0..rows.len())
            .map(|row| parts.iter().map(|part| part[row]).sum())
            .collect();
        let intervals: Vec<f64> = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) * 1e3)
            .collect();

        let statistics = &overhead["statistics"];
        assert_eq!(statistics["samplingCount"], rows.len());
        let names = ["Lockings", "Cleaning", "Counter", "Thread"];
        for (name, durations) in names.into_iter().zip(&parts) {
            check_spread(statistics, name, durations);
        }
        check_spread(statistics, "Overhead", &sums);
        // A time has six decimals, so that a difference of two is rounded.
        let profiled: f64 = intervals.iter().sum();
        assert!((number(statistics, "profiledDuration") - profiled).abs() < 0.01);
        assert!(is_about(
            number(statistics, "overheadDurations"),
            sums.iter().sum()
        ));
        check_percentage(statistics);
        assert_eq!(info.overheads.count, rows.len() as u64);
        let sum_us = info.overheads.sum_ns as f64 / 1e3;
        assert!(is_about(number(statistics, "overheadDurations"), sum_us));
    });
}

/// The viewer shows the percentage as a hundred times this fraction.
fn check_percentage(statistics: &Value) {
    let fraction = number(statistics, "overheadDurations") / number(statistics, "profiledDuration");
    assert!(is_about(number(statistics, "overheadPercentage"), fraction));
}

#[test]
fn profile_without_recorded_loops_has_the_statistics_of_the_session() {
    isolated(|| {
        let (overhead, info) = paused_after_loops(StartParams::default());
        assert_eq!(overhead["samples"]["data"], serde_json::json!([]));
        let statistics = &overhead["statistics"];
        assert_eq!(statistics["samplingCount"], info.overheads.count);
        let all = [
            ("Interval", info.intervals),
            ("Overhead", info.overheads),
            ("Lockings", info.lockings),
            ("Cleaning", info.cleanings),
            ("Counter", info.counters),
            ("Thread", info.threads),
        ];
        for (name, stats) in all {
            let us = |ns: u64| ns as f64 / 1e3;
            let mean = us(stats.sum_ns) / stats.count as f64;
            for (what, expected) in [
                ("mean", mean),
                ("min", us(stats.min_ns)),
                ("max", us(stats.max_ns)),
            ] {
                assert!(
                    is_about(number(statistics, &format!("{what}{name}")), expected),
                    "{name}"
                );
            }
        }
        check_percentage(statistics);
    });
}
