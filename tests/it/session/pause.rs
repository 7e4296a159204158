//! Pausing everything and pausing the sampling, in all orders: what is asked, what is recorded, and when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{self, Read, Sleeper, isolated, mark, one_loop, work_for, work_for_cpu};
use gekkota::callback::SamplingState;
use gekkota::{
    StartParams, profiler_feature_active, profiler_features_if_active,
    profiler_features_if_active_and_unpaused, profiler_get_buffer_info, profiler_is_active,
    profiler_is_active_and_unpaused, profiler_is_paused, profiler_is_sampling_paused,
    profiler_pause, profiler_pause_sampling, profiler_resume, profiler_resume_sampling,
    profiler_start, profiler_stop,
};

const ENTER: [fn(); 2] = [profiler_pause, profiler_pause_sampling];
const LEAVE: [fn(); 2] = [profiler_resume, profiler_resume_sampling];
const REASONS: [&str; 2] = ["profiler-paused", "collecting"];

/// Active and unpaused, paused, sampling paused.
fn answers() -> (bool, bool, bool) {
    (
        profiler_is_active_and_unpaused(),
        profiler_is_paused(),
        profiler_is_sampling_paused(),
    )
}

fn expected(paused: bool, sampling_paused: bool) -> (bool, bool, bool) {
    (!paused, paused, paused || sampling_paused)
}

/// Start, end and reason.
fn paused_ranges(read: &Read) -> Vec<(Option<f64>, Option<f64>, String)> {
    let ranges = read.0["pausedRanges"].as_array().expect("ranges");
    let range = |range: &serde_json::Value| {
        let reason = range["reason"].as_str().expect("a reason").to_owned();
        (
            range["startTime"].as_f64(),
            range["endTime"].as_f64(),
            reason,
        )
    };
    ranges.iter().map(range).collect()
}

fn marker_names(read: &Read) -> Vec<String> {
    read.markers("main of test")
        .into_iter()
        .map(|marker| marker.0)
        .collect()
}

#[test]
fn pauses_are_events_of_the_log() {
    isolated(|| {
        profiler_start(StartParams::default()).expect("start");
        profiler_pause();
        profiler_pause();
        profiler_resume();
        profiler_pause_sampling();
        profiler_resume_sampling();
        let read = Read::of_running();
        profiler_stop();
        let log = &read.0["profilingLog"][std::process::id().to_string()];
        let events = log["events"].as_array().expect("events");
        let names: Vec<_> = events.iter().map(|event| &event["event"]).collect();
        assert_eq!(
            names,
            ["paused", "resumed", "sampling paused", "sampling resumed"]
        );
        let at = |value: &serde_json::Value| value.as_f64().expect("a time");
        assert!(
            events
                .iter()
                .is_sorted_by_key(|event| at(&event["at_TSms"]))
        );
        assert!(at(&log["profilingLogBegin_TSms"]) <= at(&events[0]["at_TSms"]));
        assert_eq!(log["dropped_events"], 0);
    });
}

#[test]
fn nothing_happens_while_inactive() {
    isolated(|| {
        gekkota::register_thread("main of test");
        for call in ENTER.iter().chain(&LEAVE) {
            call();
            assert_eq!(answers(), (false, false, false));
            assert!(!profiler_is_active() && profiler_features_if_active().is_none());
        }
    });
}

/// Both are entered and left in every order, each twice.
#[test]
fn each_pair_of_pauses_in_each_order() {
    isolated(|| {
        gekkota::register_thread("main of test");
        for first_in in 0..2 {
            for first_out in 0..2 {
                profiler_start(StartParams::default()).expect("start");
                let mut on = [false, false];
                let features = profiler_features_if_active().expect("active");
                for (calls, kinds, enters) in [
                    (&ENTER, [first_in, 1 - first_in], true),
                    (&LEAVE, [first_out, 1 - first_out], false),
                ] {
                    for kind in kinds {
                        for _ in 0..2 {
                            calls[kind]();
                            on[kind] = enters;
                            assert_eq!(answers(), expected(on[0], on[1]));
                        }
                        assert_eq!(profiler_features_if_active(), Some(features));
                        assert!(profiler_feature_active(features));
                        assert_eq!(profiler_features_if_active_and_unpaused().is_some(), !on[0]);
                        let wanted = match on {
                            [false, false] => SamplingState::SamplingCompleted,
                            _ => SamplingState::SamplingPaused,
                        };
                        assert_eq!(one_loop(), wanted);
                        mark(if on[0] { "lost" } else { "kept" });
                    }
                }
                let read = Read::of_running();
                let kept = marker_names(&read);
                assert!(
                    !kept.is_empty() && kept.iter().all(|name| name == "kept"),
                    "{kept:?}"
                );
                let ranges = paused_ranges(&read);
                let reasons: Vec<_> = ranges.iter().map(|range| range.2.as_str()).collect();
                assert_eq!(
                    reasons,
                    [REASONS[first_in], REASONS[1 - first_in]],
                    "to do it twice is to do it once"
                );
                let ends = |reason| {
                    ranges
                        .iter()
                        .find(|range| range.2 == reason)
                        .and_then(|range| range.1)
                };
                assert!(
                    ends(REASONS[first_out]) < ends(REASONS[1 - first_out]),
                    "{ranges:?}"
                );
                assert!(ranges.iter().all(|range| range.0 < range.1), "{ranges:?}");
                profiler_pause();
                profiler_pause_sampling();
                profiler_stop();
                assert_eq!(answers(), (false, false, false));
            }
        }
        profiler_start(StartParams::default()).expect("start");
        assert_eq!(
            answers(),
            (true, false, false),
            "a new session begins unpaused"
        );
        assert!(paused_ranges(&Read::of_running()).is_empty());
        profiler_stop();
    });
}

/// How much CPU time the thread's samples and the process's counter were given after this time.
fn cpu_after(read: &Read, name: &str, time_ms: f64) -> (f64, f64) {
    let samples = read
        .samples(name)
        .into_iter()
        .filter(|sample| sample.time_ms >= time_ms);
    let of_thread: u64 = samples.filter_map(|sample| sample.cpu_ns).sum();
    let rows = read.0["counters"][0]["samples"]["data"]
        .as_array()
        .expect("rows")
        .iter();
    let rows = rows.filter(|row| row[0].as_f64().is_some_and(|time| time >= time_ms));
    let of_process: i64 = rows.filter_map(|row| row[1].as_i64()).sum();
    (of_thread as f64 / 1e6, of_process as f64 / 1e6)
}

#[test]
fn what_a_pause_leaves_out() {
    isolated(|| {
        gekkota::register_thread("main of test");
        const PAUSE: Duration = Duration::from_millis(400);
        let sleeper = Sleeper::start("sleeps");
        profiler_start(StartParams::default()).expect("start");
        common::wait_until("the sleeper has samples", || {
            Read::of_running()
                .threads()
                .iter()
                .any(|thread| thread["name"] == "sleeps")
                && !Read::of_running().samples("sleeps").is_empty()
        });
        work_for(Duration::from_millis(100));
        profiler_pause();
        assert_eq!(one_loop(), SamplingState::SamplingPaused);
        let put = profiler_get_buffer_info().expect("active").put_entries;
        work_for(PAUSE);
        mark("lost");
        assert_eq!(
            profiler_get_buffer_info().expect("active").put_entries,
            put,
            "nothing is recorded"
        );
        let paused = Read::of_running();
        let ranges = paused_ranges(&paused);
        assert!(
            matches!(&ranges[..], [(Some(_), None, reason)] if reason == "profiler-paused"),
            "{ranges:?}"
        );
        profiler_resume();
        assert_eq!(one_loop(), SamplingState::SamplingCompleted);
        work_for_cpu(Duration::from_millis(60));
        drop(sleeper);
        let read = Read::of_running();
        profiler_stop();

        let (Some(start), Some(end)) = (paused_ranges(&read)[0].0, paused_ranges(&read)[0].1)
        else {
            panic!("{:?}", paused_ranges(&read))
        };
        assert!(end - start >= PAUSE.as_secs_f64() * 1e3, "{start} to {end}");
        for (profile, what) in [(&paused, "in the pause"), (&read, "after it")] {
            for thread in ["sleeps", "main of test"] {
                let times: Vec<f64> = profile
                    .samples(thread)
                    .iter()
                    .map(|sample| sample.time_ms)
                    .collect();
                assert!(
                    times.iter().all(|&time| time < start || time >= end),
                    "{what}: {thread} has {times:?}"
                );
                let last_before = times
                    .iter()
                    .copied()
                    .filter(|&time| time < start)
                    .fold(0.0, f64::max);
                // A busy machine holds the sampler up, but a thread at rest is written up to the last tick.
                assert!(
                    start - last_before < 100.0,
                    "{what}: {thread} ends {} ms early",
                    start - last_before
                );
            }
        }
        for thread in ["sleeps", "main of test"] {
            let after = read
                .samples(thread)
                .iter()
                .filter(|sample| sample.time_ms >= end)
                .count();
            assert!(after > 5, "{thread} has {after} samples after the pause");
        }
        // The 400 ms of the pause are in neither; what was worked before it and after it is at most 200.
        let (of_thread, of_process) = cpu_after(&read, "main of test", end);
        println!(
            "CPU time after the pause: {of_thread} ms of the thread, {of_process} ms of the process"
        );
        assert!((10.0..250.0).contains(&of_thread), "{of_thread} ms");
        assert!((10.0..300.0).contains(&of_process), "{of_process} ms");
        let (slept, _) = cpu_after(&read, "sleeps", end);
        assert!(slept < 20.0, "{slept} ms");
    });
}

#[test]
fn no_sample_lies_within_any_of_many_pauses() {
    isolated(|| {
        gekkota::register_thread("main of test");
        static ENDS: AtomicBool = AtomicBool::new(false);
        let busy = std::thread::spawn(|| {
            gekkota::register_thread("busy");
            while !ENDS.load(Ordering::Relaxed) {
                mark("busy");
                common::work(100_000);
            }
        });
        let dozes = std::thread::spawn(|| {
            gekkota::register_thread("dozes");
            while !ENDS.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(700));
                common::work(20_000);
            }
        });
        profiler_start(StartParams::default().interval(Duration::from_micros(300))).expect("start");
        for round in 0..150u64 {
            let kind = (round % 2) as usize;
            work_for(Duration::from_micros(1500 + round * 137 % 900));
            ENTER[kind]();
            if round % 25 == 0 {
                Read::of_running();
            }
            work_for(Duration::from_micros(round * 211 % 1700));
            LEAVE[kind]();
        }
        const THREADS: [&str; 3] = ["busy", "dozes", "main of test"];
        // A busy machine gives them their time late.
        common::wait_until("each thread has samples", || {
            let read = Read::of_running();
            THREADS.iter().all(|thread| read.samples(thread).len() > 50)
        });
        // While it pauses nothing is written that the counts would not have.
        profiler_pause();
        assert_eq!(one_loop(), SamplingState::SamplingPaused);
        let read = Read::of_running();
        profiler_stop();
        ENDS.store(true, Ordering::Relaxed);
        busy.join().expect("thread");
        dozes.join().expect("thread");
        let ranges = paused_ranges(&read);
        assert_eq!(ranges.len(), 151);
        let counted = ["captured_samples", "samples_from_outside", "same_samples"]
            .map(|name| read.count(name));
        let written = read
            .threads()
            .iter()
            .map(|thread| common::samples_of(thread).len() as u64);
        assert_eq!(
            written.sum::<u64>(),
            counted.iter().sum::<u64>(),
            "{counted:?}"
        );
        let lies_in = |time: f64, (start, end, _): &(Option<f64>, Option<f64>, String)| {
            start.is_some_and(|start| time > start) && end.is_some_and(|end| time < end)
        };
        for thread in THREADS {
            let samples = read.samples(thread);
            println!("{thread}: {} samples", samples.len());
            for sample in samples {
                let within = ranges.iter().find(|range| lies_in(sample.time_ms, range));
                assert!(
                    within.is_none(),
                    "{thread}: a sample at {} in {within:?}",
                    sample.time_ms
                );
            }
        }
        let markers = read.markers("busy");
        assert!(markers.len() > 100);
        for (_, time, ..) in markers {
            let paused = ranges.iter().filter(|range| range.2 == REASONS[0]);
            let within = paused.clone().find(|range| lies_in(time, range));
            assert!(within.is_none(), "a marker at {time} in {within:?}");
        }
    });
}

#[test]
fn a_pause_of_another_thread_is_seen() {
    isolated(|| {
        gekkota::register_thread("main of test");
        profiler_start(StartParams::default()).expect("start");
        std::thread::spawn(profiler_pause).join().expect("thread");
        assert!(profiler_is_paused());
        std::thread::spawn(|| {
            gekkota::register_thread("registered in the pause");
            mark("lost");
            profiler_resume();
            mark("kept");
            assert_eq!(one_loop(), SamplingState::SamplingCompleted);
            // On a busy machine it may not have come to answer yet.
            common::wait_until("it has samples", || {
                !Read::of_running()
                    .samples("registered in the pause")
                    .is_empty()
            });
        })
        .join()
        .expect("thread");
        assert!(profiler_is_active_and_unpaused());
        let read = Read::of_running();
        profiler_stop();
        let markers: Vec<_> = read
            .markers("registered in the pause")
            .into_iter()
            .map(|marker| marker.0)
            .collect();
        assert_eq!(markers, ["kept"]);
    });
}
