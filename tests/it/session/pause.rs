//! Pausing the profiler and pausing only sampling, in every order: the state that the profiler
//! reports, and what it records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{IdleThread, read_until, sample_count};
use crate::common::{
    self, Read, Sleeper, isolated, mark, one_loop, thread_cpu, work_for, work_for_cpu,
};
use gekkota::callback::SamplingState;
use gekkota::{
    ProfilerTime, StartParams, profiler_feature_active, profiler_features_if_active,
    profiler_features_if_active_and_unpaused, profiler_get_buffer_info, profiler_is_active,
    profiler_is_active_and_unpaused, profiler_is_paused, profiler_is_sampling_paused,
    profiler_pause, profiler_pause_sampling, profiler_resume, profiler_resume_sampling,
    profiler_start, profiler_stop,
};

const ENTER: [fn(); 2] = [profiler_pause, profiler_pause_sampling];
const LEAVE: [fn(); 2] = [profiler_resume, profiler_resume_sampling];
const REASONS: [&str; 2] = ["profiler-paused", "collecting"];

/// Returns whether the profiler is active and unpaused, paused, and whether sampling is paused.
fn answers() -> (bool, bool, bool) {
    (
        profiler_is_active_and_unpaused(),
        profiler_is_paused(),
        profiler_is_sampling_paused(),
    )
}

/// Returns the [`answers`] of an active profiler with these pauses.
fn expected(paused: bool, sampling_paused: bool) -> (bool, bool, bool) {
    (!paused, paused, paused || sampling_paused)
}

/// Returns the pauses in a profile: start, end and reason.
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
fn pauses_are_in_the_profiling_log() {
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
fn pause_and_resume_do_nothing_while_inactive() {
    isolated(|| {
        gekkota::register_thread("main of test");
        for call in ENTER.iter().chain(&LEAVE) {
            call();
            assert_eq!(answers(), (false, false, false));
            assert!(!profiler_is_active() && profiler_features_if_active().is_none());
        }
    });
}

/// Begins and ends both pauses in every order, with two calls each.
#[test]
fn pauses_begin_and_end_independently_in_every_order() {
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
                    "a second call does nothing"
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

/// CPU time used so far.
#[derive(Clone, Copy)]
struct CpuTimes {
    /// Of the calling thread.
    thread: Duration,
    /// Of the process.
    process: Duration,
}

impl CpuTimes {
    fn now() -> Self {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel writes to a local.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        Self {
            thread: thread_cpu(),
            process: Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        }
    }

    /// Returns the CPU times between `earlier` and `self`.
    fn since(self, earlier: Self) -> Self {
        Self {
            thread: self.thread - earlier.thread,
            process: self.process - earlier.process,
        }
    }
}

/// Returns the CPU times that the samples of a thread and the counter of the process report from
/// this time on.
fn reported_since(read: &Read, name: &str, time_ms: f64) -> CpuTimes {
    let samples = read
        .samples(name)
        .into_iter()
        .filter(|sample| sample.time_ms >= time_ms);
    let of_thread: u64 = samples.filter_map(|sample| sample.cpu_ns).sum();
    let counters = read.0["counters"].as_array().expect("counters");
    let rows = counters
        .first()
        .and_then(|counter| counter["samples"]["data"].as_array());
    let rows = rows
        .into_iter()
        .flatten()
        .filter(|row| row[0].as_f64().is_some_and(|time| time >= time_ms));
    let of_process: i64 = rows.filter_map(|row| row[1].as_i64()).sum();
    CpuTimes {
        thread: Duration::from_nanos(of_thread),
        process: Duration::from_nanos(u64::try_from(of_process).expect("CPU time only grows")),
    }
}

/// Returns the time of the last marker with this name.
fn marker_ms(read: &Read, name: &str) -> f64 {
    let mut markers = read.markers("main of test").into_iter();
    markers
        .rfind(|marker| marker.0 == name)
        .expect("the marker")
        .1
}

/// Returns the time of the thread's last sample before this time; 0 if there is none.
fn last_sample_before(read: &Read, thread: &str, time_ms: f64) -> f64 {
    let samples = read.samples(thread).into_iter();
    let times = samples
        .map(|sample| sample.time_ms)
        .filter(|&time| time < time_ms);
    times.fold(0.0, f64::max)
}

#[test]
fn pause_leaves_out_samples_markers_and_cpu_time() {
    isolated(|| {
        gekkota::register_thread("main of test");
        const THREADS: [&str; 2] = ["sleeps", "main of test"];
        const MIN_WORK: Duration = Duration::from_millis(300);
        const REPORTED: Duration = Duration::from_millis(10);
        let sleeper = IdleThread::start("sleeps");
        let at_start = CpuTimes::now();
        profiler_start(StartParams::default()).expect("start");
        mark("start");
        read_until("each thread has a sample", |read| {
            work_for_cpu(Duration::from_millis(5));
            let since = marker_ms(read, "start");
            THREADS
                .iter()
                .all(|thread| last_sample_before(read, thread, f64::INFINITY) > since)
        });
        profiler_pause();
        let at_pause = CpuTimes::now();
        assert_eq!(one_loop(), SamplingState::SamplingPaused);
        let paused_at = ProfilerTime::now();
        let put = profiler_get_buffer_info().expect("active").put_entries;
        // More than before the pause, so that the CPU time of the pause would be noticed.
        let before = at_pause.since(at_start);
        work_for_cpu(MIN_WORK.max(before.process * 2));
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
        let pause_ms = ProfilerTime::now().duration_since(paused_at).as_secs_f64() * 1e3;
        let at_resume = CpuTimes::now();
        profiler_resume();
        assert_eq!(one_loop(), SamplingState::SamplingCompleted);
        read_until("samples and CPU times after the pause", |read| {
            work_for_cpu(Duration::from_millis(10));
            let end = paused_ranges(read)[0].1.expect("the pause has ended");
            let reported = reported_since(read, "main of test", end);
            let has_samples = |thread: &&str| {
                let samples = read.samples(thread).into_iter();
                samples.filter(|sample| sample.time_ms >= end).count() > 5
            };
            THREADS.iter().all(has_samples)
                && reported.thread > REPORTED
                && reported.process > REPORTED
        });
        let sleeper_cpu = sleeper.end();
        let read = Read::of_running();
        let after = CpuTimes::now().since(at_resume);
        profiler_stop();

        let (Some(start), Some(end)) = (paused_ranges(&read)[0].0, paused_ranges(&read)[0].1)
        else {
            panic!("{:?}", paused_ranges(&read))
        };
        assert!(
            end - start >= pause_ms,
            "{start} to {end}, for at least {pause_ms} ms"
        );
        for (profile, what) in [(&paused, "in the pause"), (&read, "after the pause")] {
            for thread in THREADS {
                let times: Vec<f64> = profile
                    .samples(thread)
                    .iter()
                    .map(|sample| sample.time_ms)
                    .collect();
                assert!(
                    times.iter().all(|&time| time < start || time >= end),
                    "{what}: {thread} has {times:?}"
                );
                assert!(
                    last_sample_before(profile, thread, start) > marker_ms(profile, "start"),
                    "{what}: {thread} has lost its samples before the pause: {times:?}"
                );
            }
        }
        // The first sample after the pause includes CPU time from before the pause.
        let reported = reported_since(&read, "main of test", end);
        for (what, reported, used) in [
            ("thread", reported.thread, before.thread + after.thread),
            ("process", reported.process, before.process + after.process),
        ] {
            println!("CPU time of the {what}: {reported:?} reported, {used:?} used");
            assert!(
                reported > REPORTED && reported <= used,
                "{what}: {reported:?} reported, {used:?} used outside of the pause"
            );
        }
        let slept = reported_since(&read, "sleeps", end).thread;
        assert!(
            slept <= sleeper_cpu,
            "the sleeper: {slept:?} reported, {sleeper_cpu:?} used"
        );
    });
}

#[test]
fn idle_thread_has_samples_up_to_a_pause() {
    isolated(|| {
        gekkota::register_thread("main of test");
        let sleeper = Sleeper::start("sleeps");
        profiler_start(StartParams::default()).expect("start");
        // The thread may not sleep yet, and then answers the sampler only after the pause.
        common::wait_until("the sleeper has samples up to a pause", || {
            mark("before the last ticks");
            // The sampler ticks at least once after the marker.
            assert_eq!(one_loop(), SamplingState::SamplingCompleted);
            profiler_pause();
            assert_eq!(one_loop(), SamplingState::SamplingPaused);
            let read = Read::of_running();
            profiler_resume();
            let start = paused_ranges(&read).last().and_then(|range| range.0);
            let start = start.expect("the pause has a start");
            sample_count(&read, "sleeps") > 0
                && last_sample_before(&read, "sleeps", start)
                    >= marker_ms(&read, "before the last ticks")
        });
        profiler_stop();
        drop(sleeper);
    });
}

#[test]
fn no_sample_or_marker_lies_within_a_pause() {
    isolated(|| {
        gekkota::register_thread("main of test");
        static END: AtomicBool = AtomicBool::new(false);
        let busy = std::thread::spawn(|| {
            gekkota::register_thread("busy");
            while !END.load(Ordering::Relaxed) {
                mark("busy");
                common::work(100_000);
            }
        });
        let dozes = std::thread::spawn(|| {
            gekkota::register_thread("dozes");
            while !END.load(Ordering::Relaxed) {
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
        read_until("each thread has samples, and one has markers", |read| {
            let mut threads = THREADS.iter();
            threads.all(|thread| sample_count(read, thread) > 50)
                && read.markers("busy").len() > 100
        });
        // Sampling is paused, so no samples are written between the counts and the profile.
        profiler_pause();
        assert_eq!(one_loop(), SamplingState::SamplingPaused);
        let read = Read::of_running();
        profiler_stop();
        END.store(true, Ordering::Relaxed);
        busy.join().expect("thread");
        dozes.join().expect("thread");
        let ranges = paused_ranges(&read);
        assert_eq!(ranges.len(), 151);
        let counted = [
            "captured_samples",
            "remote_samples",
            "same_samples",
            "samples_without_stack",
        ];
        let counted = counted.map(|name| read.count(name));
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
        assert!(markers.len() > 100, "{} markers", markers.len());
        for (_, time, ..) in markers {
            let paused = ranges.iter().filter(|range| range.2 == REASONS[0]);
            let within = paused.clone().find(|range| lies_in(time, range));
            assert!(within.is_none(), "a marker at {time} in {within:?}");
        }
    });
}

#[test]
fn pause_by_another_thread_applies_to_all_threads() {
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
            // The thread may answer later than that loop.
            read_until("the thread has a sample", |read| {
                sample_count(read, "registered in the pause") > 0
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
