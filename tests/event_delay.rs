//! How long an event loop keeps its events waiting stands in each sample: the host reports its events.
#![cfg(has_profiler)]

mod common;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{Read, Sample, Sleeper, work_for};
use gekkota::{
    AutoProfilerEvent, MarkerTiming, ProfilerSession, ProfilerTime, StartParams, ThreadGuard,
    add_untyped_marker, gecko_profiler_category,
};

const EVENT: Duration = Duration::from_millis(200);
const INTERVAL_MS: f64 = 1.0;
/// Around a moment at which an event begins or ends: what the sampler finds out on its next tick but one.
const EDGE_MS: f64 = 2.0 * INTERVAL_MS;

type Event = (ProfilerTime, Box<dyn FnOnce() + Send>);

/// A thread with an event loop that tells the profiler of its events.
struct Loop {
    sender: Sender<Event>,
    thread: JoinHandle<()>,
}

impl Loop {
    fn start(name: &'static str) -> Self {
        let (sender, events): (_, Receiver<Event>) = channel();
        let body = move || {
            let _registered = ThreadGuard::register(name);
            for (queued_at, body) in events {
                let _event = AutoProfilerEvent::queued_at(queued_at);
                run_marked(queued_at, body);
            }
        };
        Self { sender, thread: std::thread::spawn(body) }
    }

    fn post(&self, body: impl FnOnce() + Send + 'static) {
        self.sender.send((ProfilerTime::now(), Box::new(body))).expect("it lives");
    }

    /// Waits until everything before is done.
    fn settle(&self) {
        let (done, is_done) = channel();
        self.post(move || done.send(()).expect("it is waited for"));
        is_done.recv().expect("it is done");
    }

    fn end(self) {
        drop(self.sender);
        self.thread.join().expect("the loop ends with its senders");
    }
}

/// Leaves a marker from an event's queueing to its end, and one over its run.
fn run_marked(queued_at: ProfilerTime, body: impl FnOnce()) {
    let begun_at = ProfilerTime::now();
    body();
    for (name, from) in [("queued", queued_at), ("ran", begun_at)] {
        let timing = MarkerTiming::interval_until_now_from(from);
        add_untyped_marker(name, gecko_profiler_category!(Other), timing.into());
    }
}

/// When an event was queued, began and ended, in ms.
#[derive(Clone, Copy, Debug)]
struct Truth {
    queued: f64,
    begun: f64,
    ended: f64,
}

fn truths(read: &Read, thread: &str) -> Vec<Truth> {
    let markers = read.markers(thread);
    let named = |wanted: &str| {
        let found = markers.iter().filter(|marker| marker.0 == wanted);
        found.map(|marker| (marker.1, marker.2.expect("an end"))).collect::<Vec<_>>()
    };
    let runs = named("queued").into_iter().zip(named("ran"));
    runs.map(|((queued, ended), (begun, _))| Truth { queued, begun, ended }).collect()
}

/// Compares each sample with what ran then, but around the moments at which that changes; gives the largest delay.
fn judge(samples: &[Sample], truths: &[Truth]) -> f64 {
    let first = truths.first().expect("an event").begun;
    let (mut largest, mut judged) = (0f64, 0);
    for sample in samples {
        let time = sample.time_ms;
        if truths.iter().any(|truth| [truth.begun, truth.ended].iter().any(|at| (at - time).abs() <= EDGE_MS))
        {
            continue;
        }
        // The innermost event is the one that began last.
        let running = truths.iter().filter(|truth| (truth.begun..truth.ended).contains(&time));
        let running = running.max_by(|one, other| one.begun.total_cmp(&other.begun));
        let expected = (time >= first).then(|| running.map_or(0.0, |truth| time - truth.queued));
        match (expected, sample.event_delay_ms) {
            (None, None) => {}
            (Some(expected), Some(shown)) if (expected - shown).abs() <= 0.1 => {
                largest = largest.max(shown);
            }
            (expected, shown) => panic!("{shown:?} at {time}, where it is {expected:?} in {truths:?}"),
        }
        judged += 1;
    }
    assert!(judged > samples.len() / 2, "{judged} of {} samples lie clear of a change", samples.len());
    largest
}

fn sleep_event() {
    std::thread::sleep(EVENT);
}

fn burn_event() {
    work_for(EVENT);
}

fn quiet() {
    std::thread::sleep(Duration::from_millis(60));
}

#[test]
fn a_sample_tells_how_long_the_loop_keeps_its_events_waiting() {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let without_loop = Sleeper::start("no loop");
    for (name, event) in [("sleeps", sleep_event as fn()), ("burns", burn_event)] {
        let event_loop = Loop::start(name);
        quiet();
        event_loop.post(event);
        event_loop.settle();
        quiet();
        event_loop.end();
    }
    // The second waits for the first; within it there is a loop of its own.
    let queue = Loop::start("queue");
    queue.post(sleep_event);
    queue.post(|| {
        std::thread::sleep(Duration::from_millis(50));
        let queued_at = ProfilerTime::now();
        {
            let _inner = AutoProfilerEvent::queued_at(queued_at);
            run_marked(queued_at, || std::thread::sleep(Duration::from_millis(50)));
        }
        std::thread::sleep(Duration::from_millis(50));
    });
    queue.settle();
    quiet();
    queue.end();
    drop(without_loop);
    let read = Read::from_profile(&session.finish().expect("profile"));

    assert_eq!(read.0["meta"]["sampleUnits"]["eventDelay"], "ms");
    assert!(read.samples("no loop").iter().all(|sample| sample.event_delay_ms.is_none()));
    for (name, least_ms) in [("sleeps", 150.0), ("burns", 150.0), ("queue", 300.0)] {
        let mut truths = truths(&read, name);
        truths.sort_by(|one, other| one.begun.total_cmp(&other.begun));
        let samples = read.samples(name);
        let largest = judge(&samples, &truths);
        println!("{name}: {} samples, up to {largest:.1} ms, {truths:?}", samples.len());
        let longest = truths.iter().map(|truth| truth.ended - truth.queued).fold(0.0, f64::max);
        assert!(largest >= least_ms, "{largest} ms of {longest}");
        for sample in &samples {
            let shown = sample.event_delay_ms.unwrap_or(0.0);
            assert!((0.0..=longest + 2.0 * INTERVAL_MS).contains(&shown), "{shown} ms of {longest}");
        }
        assert!(samples.iter().rev().take(20).all(|sample| sample.event_delay_ms == Some(0.0)));
    }
}
