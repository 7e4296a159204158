//! What the tests of event delays share: loops, what was true of them, and the comparison with what the profile shows.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of it")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use gekkota::{MarkerTiming, ProfilerTime, add_untyped_marker, gecko_profiler_category};

use crate::common::{Read, Sample};

pub const EVENT: Duration = Duration::from_millis(200);
pub const INTERVAL_MS: f64 = 1.0;
/// Around a moment at which an event begins or ends: what the sampler finds out on its next tick but one.
pub const EDGE_MS: f64 = 2.0 * INTERVAL_MS;

/// When it was queued, and what is to be done; nothing is the loop's end.
pub type Event = (ProfilerTime, Option<Box<dyn FnOnce() + Send>>);

/// A thread with an event loop.
pub struct Loop {
    pub sender: Sender<Event>,
    thread: JoinHandle<()>,
}

impl Loop {
    /// Its body is given what comes, and a way to send itself something.
    pub fn start(body: impl FnOnce(Receiver<Event>, Sender<Event>) + Send + 'static) -> Self {
        let (sender, events) = channel();
        let own_sender = sender.clone();
        Self {
            sender,
            thread: std::thread::spawn(move || body(events, own_sender)),
        }
    }

    pub fn post(&self, body: impl FnOnce() + Send + 'static) {
        self.sender
            .send((ProfilerTime::now(), Some(Box::new(body))))
            .expect("it lives");
    }

    /// Waits until everything before is done.
    pub fn settle(&self) {
        let (done, is_done) = channel();
        self.post(move || done.send(()).expect("it is waited for"));
        is_done.recv().expect("it is done");
    }

    pub fn end(self) {
        self.sender
            .send((ProfilerTime::now(), None))
            .expect("it lives");
        self.thread.join().expect("the loop ends");
    }
}

/// Leaves a marker over so much of the calling thread's time.
pub fn mark_since(name: &str, start: ProfilerTime) {
    let timing = MarkerTiming::interval_until_now_from(start);
    add_untyped_marker(name, gecko_profiler_category!(Other), timing.into());
}

/// An event that counted, in ms: when it was queued, and between which times it began and ended to count.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    pub queued: f64,
    pub begins: (f64, f64),
    pub ends: (f64, f64),
}

/// A thread's interval markers of this name, in ms, in the order of their beginnings.
pub fn intervals(read: &Read, thread: &str, name: &str) -> Vec<(f64, f64)> {
    let markers = read
        .markers(thread)
        .into_iter()
        .filter(|marker| marker.0 == name);
    let mut intervals: Vec<_> = markers
        .map(|marker| (marker.1, marker.2.expect("an end")))
        .collect();
    intervals.sort_by(|one, other| one.0.total_cmp(&other.0));
    intervals
}

/// Compares each sample with what counted then, but around the moments at which that changes, and gives the largest delay.
/// None may be off by more than `slack_ms`, and only one in ten by more than a fifth of a millisecond.
pub fn judge(samples: &[Sample], truths: &[Truth], slack_ms: f64) -> f64 {
    let first = truths.first().expect("an event").begins.0;
    let (mut largest, mut judged, mut precise) = (0f64, 0, 0);
    for sample in samples {
        let time = sample.time_ms;
        let is_near = |(from, to): (f64, f64)| (from - EDGE_MS..=to + EDGE_MS).contains(&time);
        if truths
            .iter()
            .any(|truth| is_near(truth.begins) || is_near(truth.ends))
        {
            continue;
        }
        // The innermost event is the one that began last.
        let running = truths
            .iter()
            .filter(|truth| (truth.begins.0..truth.ends.1).contains(&time));
        let running = running.max_by(|one, other| one.begins.0.total_cmp(&other.begins.0));
        let expected = (time >= first).then(|| running.map_or(0.0, |truth| time - truth.queued));
        let off_ms = match (expected, sample.event_delay_ms) {
            (None, None) => 0.0,
            (Some(expected), Some(shown)) => (expected - shown).abs(),
            (None, Some(shown)) if shown <= slack_ms && slack_ms > 0.0 => shown,
            (expected, shown) => {
                panic!("{shown:?} at {time}, where it is {expected:?} in {truths:?}")
            }
        };
        assert!(
            off_ms <= slack_ms.max(0.2),
            "{sample:?}, where it is {expected:?} in {truths:?}"
        );
        largest = largest.max(sample.event_delay_ms.unwrap_or(0.0));
        precise += usize::from(off_ms <= 0.2);
        judged += 1;
    }
    assert!(
        judged > samples.len() / 2,
        "{judged} of {} samples lie clear of a change",
        samples.len()
    );
    assert!(
        precise >= judged / 10 * 9,
        "{precise} of {judged} samples are right to 0.2 ms"
    );
    largest
}
