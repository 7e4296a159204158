//! Metrics of the crate `metrics` are tracks of the profile.

use gekkota::profile::Format;
use gekkota::{ProfilerRecorder, ProfilerSession, StartParams};
use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
    with_local_recorder,
};
use serde_json::Value;

use crate::common::counters::{self, counters_of, sums};
use crate::common::{Read, isolated, one_loop};

/// Runs `body` in a session, with its metrics in the profile. Returns the profile.
fn recorded(recorder: &ProfilerRecorder, body: impl FnOnce()) -> Read {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    with_local_recorder(recorder, body);
    Read::from_profile(&session.finish().expect("a profile"))
}

/// Returns the value and the number of operations of the only track with this name.
fn track(read: &Read, name: &str) -> [i64; 2] {
    sums(counters::counter(&read.0, name))
}

#[test]
fn metrics_of_all_threads_are_tracks_with_labels() {
    isolated(|| {
        let recorder = ProfilerRecorder::new();
        let read = recorded(&recorder, || {
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let recorder = &recorder;
                    let method = if thread % 2 == 0 { "GET" } else { "POST" };
                    scope.spawn(move || {
                        with_local_recorder(recorder, || {
                            for _ in 0..1000 {
                                counter!("requests", "method" => method).increment(3);
                                gauge!("queue").increment(2);
                                gauge!("queue").decrement(1);
                                histogram!("sizes").record(10);
                            }
                            counter!("all").increment(1);
                        });
                    });
                }
            });
            one_loop();
            histogram!("sizes").record_many(-5, 4);
            gauge!("level", "path" => "a\"b", "k" => "v").set(40);
            gauge!("level", "path" => "a\"b", "k" => "v").set(-7);
        });
        assert_eq!(track(&read, "requests{method=\"GET\"}"), [6000, 2000]);
        assert_eq!(track(&read, "requests{method=\"POST\"}"), [6000, 2000]);
        assert_eq!(track(&read, "all"), [4, 4]);
        assert_eq!(track(&read, "queue"), [4000, 0]);
        assert_eq!(track(&read, "sizes"), [40_000 - 20, 4004]);
        assert_eq!(track(&read, "level{path=\"a\\\"b\",k=\"v\"}"), [-7, 0]);
        assert_eq!(counters::counter(&read.0, "all")["category"], "Metrics");
    });
}

#[test]
fn absolute_value_of_a_counter_only_raises_it() {
    isolated(|| {
        let read = recorded(&ProfilerRecorder::new(), || {
            let seen = counter!("seen");
            seen.absolute(100);
            seen.absolute(90);
            seen.increment(5);
            seen.absolute(110);
        });
        assert_eq!(track(&read, "seen"), [110, 3]);
    });
}

#[test]
fn session_counts_totals_from_its_start_and_shows_whole_levels() {
    isolated(|| {
        let recorder = ProfilerRecorder::new();
        with_local_recorder(&recorder, || {
            counter!("requests").increment(1000);
            gauge!("queue").set(50);
            histogram!("times").record(2.5);
        });
        let read = recorded(&recorder, || {
            counter!("requests").increment(1);
            gauge!("queue").increment(1);
            histogram!("times").record(0.5);
        });
        assert_eq!(track(&read, "requests"), [1, 1]);
        assert_eq!(track(&read, "queue"), [51, 0]);
        assert_eq!(track(&read, "times (millionths)"), [500_000, 1]);
    });
}

#[test]
fn unit_of_a_metric_decides_the_unit_of_its_track() {
    isolated(|| {
        // The processed format has counters only with a thread. A brief session may find no thread.
        gekkota::register_thread("metrics");
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        with_local_recorder(&ProfilerRecorder::new(), || {
            describe_histogram!("query", Unit::Seconds, "time of a query");
            describe_counter!("sent", Unit::Kibibytes, "what was sent");
            describe_gauge!("cache", Unit::Bytes, "size of the cache");
            describe_gauge!("used", Unit::Percent, "");
            for micros in [1.25, 0.5, 1.25] {
                histogram!("query").record(micros / 1e6);
            }
            histogram!("query").record(std::time::Duration::from_millis(1));
            counter!("sent").increment(3);
            gauge!("cache").set(1_000_000);
            gauge!("used").set(12.75);
            one_loop();
        });
        let profile = session.finish().expect("a profile");
        let read = Read::from_profile(&profile);
        assert_eq!(track(&read, "query (ns)"), [1_003_000, 4]);
        assert_eq!(track(&read, "sent"), [3072, 1]);
        assert_eq!(track(&read, "cache"), [1_000_000, 0]);
        assert_eq!(track(&read, "used (%)"), [13, 0]);
        assert_eq!(track(&read, "used (millionths)"), [12_750_000, 0]);
        let description = |name| &counters::counter(&read.0, name)["description"];
        assert_eq!(description("query (ns)"), "time of a query");
        assert_eq!(description("used (%)"), "gauge");
        let mut bytes = Vec::new();
        profile
            .write(Format::Processed, &mut bytes)
            .expect("a text");
        let processed: Value = serde_json::from_slice(&bytes).expect("JSON");
        let display = |name| &counters::counter(&processed, name)["display"];
        assert_eq!(display("cache")["unit"], "bytes");
        assert_eq!(display("cache")["graphType"], "line-accumulated");
        assert_eq!(display("sent")["unit"], "bytes");
        assert_eq!(display("query (ns)")["graphType"], "line-rate");
    });
}

#[test]
fn fractions_are_a_second_track_from_the_first_one_on() {
    isolated(|| {
        let read = recorded(&ProfilerRecorder::new(), || {
            let (load, times) = (gauge!("load"), histogram!("times"));
            gauge!("whole").set(2.0);
            load.set(2.0);
            times.record(3.0);
            one_loop();
            load.increment(0.375);
            load.set(f64::NAN);
            load.increment(f64::INFINITY);
            times.record(f64::NAN);
            for _ in 0..1000 {
                times.record(0.0004);
            }
            times.record(2);
        });
        assert_eq!(track(&read, "load"), [2, 0]);
        assert_eq!(track(&read, "load (millionths)"), [2_375_000, 0]);
        assert_eq!(track(&read, "times"), [5, 1002]);
        assert_eq!(track(&read, "times (millionths)"), [2_400_000, 1001]);
        assert_eq!(counters_of(&read.0, "whole").len(), 1);
        assert!(counters_of(&read.0, "whole (millionths)").is_empty());
    });
}

#[test]
fn metrics_beyond_the_maximum_are_counted() {
    isolated(|| {
        let recorder = ProfilerRecorder::new();
        let read = recorded(&recorder, || {
            for number in 0..8_000 {
                counter!("many", "number" => number.to_string()).increment(1);
            }
            gauge!("further").set(1);
            gauge!("further").set(1);
            counter!("x".repeat(3000)).increment(1);
            counter!("many", "number" => "7999").increment(1);
        });
        let not_recorded = "metrics that are not recorded";
        assert_eq!(track(&read, not_recorded), [3, 3]);
        assert_eq!(track(&read, "many{number=\"7999\"}"), [2, 2]);
        assert!(counters_of(&read.0, "further").is_empty());
        let counters = read.0["counters"].as_array().expect("counters").iter();
        let metrics = counters.filter(|counter| counter["category"] == "Metrics");
        assert_eq!(metrics.count(), 8_001);

        drop(recorder);
        let read = recorded(&ProfilerRecorder::new(), || gauge!("further").set(1));
        assert_eq!(track(&read, "further"), [1, 0]);
    });
}

#[test]
fn installed_recorder_gets_the_metrics_of_every_thread() {
    isolated(|| {
        ProfilerRecorder::new().install().expect("it is the first");
        assert!(ProfilerRecorder::new().install().is_err());
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| counter!("work").increment(2));
        thread.join().expect("no panic");
        counter!("work").increment(3);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert_eq!(track(&read, "work"), [5, 2]);
    });
}
