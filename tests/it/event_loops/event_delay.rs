//! How long an event loop keeps its events waiting stands in each sample: the host reports its events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::loops::{EDGE_MS, EVENT, INTERVAL_MS, Loop, Truth, intervals, judge, mark_since};
use crate::common::{Read, Sleeper, isolated, wait_until, work_for_cpu};
use gekkota::event_delay::AutoProfilerEvent;
use gekkota::{Features, ProfilerSession, ProfilerTime, StartParams, ThreadGuard};

/// A loop that tells the profiler of its events.
fn start_loop(name: &'static str) -> Loop {
    Loop::start(move |events, _| {
        let _registered = ThreadGuard::register(name);
        while let Ok((queued_at, Some(body))) = events.recv() {
            run_event(queued_at, body);
        }
    })
}

static LAST_EVENT: AtomicU64 = AtomicU64::new(0);

/// Runs an event, and leaves markers of its number over its beginning, its end, and its time from when it was queued.
fn run_event(queued_at: ProfilerTime, body: impl FnOnce()) {
    let number = LAST_EVENT.fetch_add(1, Ordering::Relaxed);
    let begins = ProfilerTime::now();
    let event = AutoProfilerEvent::queued_at(queued_at);
    mark_since(&format!("begins {number}"), begins);
    body();
    let ends = ProfilerTime::now();
    drop(event);
    mark_since(&format!("ends {number}"), ends);
    mark_since(&format!("queued {number}"), queued_at);
}

/// What these markers tell of a thread's events, in the order in which they began.
fn truths(read: &Read, thread: &str) -> Vec<Truth> {
    let the_one = |name: &str, number: u64| {
        intervals(read, thread, &format!("{name} {number}"))
            .first()
            .copied()
    };
    let truth = |number| {
        let begins = the_one("begins", number)?;
        let (queued, _) = the_one("queued", number).expect("it ended");
        Some(Truth {
            queued,
            begins,
            ends: the_one("ends", number).expect("it ended"),
        })
    };
    (0..LAST_EVENT.load(Ordering::Relaxed))
        .filter_map(truth)
        .collect()
}

fn sleep_event() {
    std::thread::sleep(EVENT);
}

fn burn_event() {
    work_for_cpu(EVENT);
}

fn quiet() {
    std::thread::sleep(Duration::from_millis(60));
}

#[test]
fn a_sample_tells_how_long_the_loop_keeps_its_events_waiting() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let without_loop = Sleeper::start("no loop");
        for (name, event) in [("sleeps", sleep_event as fn()), ("burns", burn_event)] {
            let event_loop = start_loop(name);
            quiet();
            event_loop.post(event);
            event_loop.settle();
            quiet();
            event_loop.end();
        }
        // The second waits for the first; within it there is a loop of its own.
        let queue = start_loop("queue");
        queue.settle();
        let (end, is_to_end) = std::sync::mpsc::channel::<()>();
        queue.post(move || assert!(is_to_end.recv().is_err()));
        queue.post(|| {
            std::thread::sleep(Duration::from_millis(50));
            run_event(ProfilerTime::now(), || {
                std::thread::sleep(Duration::from_millis(50))
            });
            std::thread::sleep(Duration::from_millis(50));
        });
        wait_until(
            "a profile that is taken within an event tells of it",
            || {
                let last = Read::of_running().samples("queue").pop();
                last.and_then(|sample| sample.event_delay_ms)
                    .is_some_and(|ms| ms >= 200.0)
            },
        );
        drop(end);
        queue.settle();
        quiet();
        queue.end();
        drop(without_loop);
        let read = Read::from_profile(&session.finish().expect("profile"));

        assert_eq!(read.0["meta"]["sampleUnits"]["eventDelay"], "ms");
        let without_loop = read.samples("no loop");
        assert!(
            !without_loop.is_empty()
                && without_loop
                    .iter()
                    .all(|sample| sample.event_delay_ms.is_none())
        );
        for (name, least_ms) in [("sleeps", 150.0), ("burns", 150.0), ("queue", 300.0)] {
            let truths = truths(&read, name);
            let samples = read.samples(name);
            let largest = judge(&samples, &truths, 0.0);
            println!(
                "{name}: {} samples, up to {largest:.1} ms, {truths:?}",
                samples.len()
            );
            let longest = truths
                .iter()
                .map(|truth| truth.ends.1 - truth.queued)
                .fold(0.0, f64::max);
            assert!(largest >= least_ms, "{largest} ms of {longest}");
            for sample in &samples {
                let shown = sample.event_delay_ms.unwrap_or(0.0);
                assert!(
                    (0.0..=longest + 2.0 * INTERVAL_MS).contains(&shown),
                    "{shown} ms of {longest}"
                );
            }
            assert_eq!(
                samples.last().and_then(|sample| sample.event_delay_ms),
                Some(0.0),
                "the loop waits"
            );
        }
    });
}

#[test]
fn samples_without_stacks_tell_it_too() {
    isolated(|| {
        let params = StartParams::default().features(Features::NO_STACK_SAMPLING | Features::CPU);
        let session = ProfilerSession::start(params).expect("start");
        let event_loop = start_loop("no stacks");
        event_loop.post(sleep_event);
        event_loop.post(burn_event);
        event_loop.settle();
        quiet();
        event_loop.end();
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples("no stacks");
        assert!(samples.iter().all(|sample| sample.stack.is_empty()));
        // The sampler may lose the processor between a tick's time and its look.
        let largest = judge(&samples, &truths(&read, "no stacks"), 25.0);
        assert!(largest >= 350.0, "{largest} ms");
    });
}

#[test]
fn an_event_counts_from_when_its_time_has_come() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let early = std::thread::spawn(|| {
            let _registered = ThreadGuard::register("early");
            let begins = ProfilerTime::now();
            let queued_at = begins.add_microseconds(200_000.0);
            let event = AutoProfilerEvent::queued_at(queued_at);
            mark_since("begins", begins);
            std::thread::sleep(2 * EVENT);
            let ends = ProfilerTime::now();
            drop(event);
            mark_since("ends", ends);
        });
        early.join().expect("it only sleeps");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let the_one = |name: &str| intervals(&read, "early", name)[0];
        let (begins, ends) = (the_one("begins"), the_one("ends"));
        let queued = begins.0 + 200.0;
        let mut samples = read.samples("early");
        samples.retain(|sample| {
            begins.1 + EDGE_MS <= sample.time_ms && sample.time_ms <= ends.0 - EDGE_MS
        });
        for sample in &samples {
            let shown = sample.event_delay_ms.expect("it has events");
            let expected = (sample.time_ms - queued).max(0.0);
            assert!(
                (shown - expected).abs() <= 0.2,
                "{shown} ms at {}, queued {queued}",
                sample.time_ms
            );
        }
        let shown_at = |is_before: bool| {
            samples
                .iter()
                .filter(move |sample| (sample.time_ms < queued) == is_before)
        };
        assert!(
            shown_at(true).count() >= 100 && shown_at(false).count() >= 100,
            "{} samples",
            samples.len()
        );
    });
}
