//! Helpers of the event-loop tests: loops, and periods in which the state of a loop is known.
#![allow(unreachable_pub, reason = "only the tests of event loops use it")]

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use gekkota::{MarkerTiming, ProfilerTime, add_untyped_marker, gecko_profiler_category};

use crate::common::{Read, Sample, one_loop, samples_of, wait_until, work};

/// Number of samples that a test waits for.
pub const SAMPLES: usize = 10;
/// Sampling interval, in ms.
pub const INTERVAL_MS: f64 = 1.0;
/// Tolerance of delays and times, in ms: they are rounded, and two clock readings are not
/// simultaneous.
pub const TOLERANCE_MS: f64 = 0.2;

/// When the event was queued, and its body; an event without a body ends the loop.
pub type Event = (ProfilerTime, Option<Box<dyn FnOnce() + Send>>);

/// A thread with an event loop.
pub struct Loop {
    sender: Sender<Event>,
    thread: JoinHandle<()>,
}

impl Loop {
    /// Starts a thread whose body receives the events, and a sender for events of its own.
    pub fn start(body: impl FnOnce(Receiver<Event>, Sender<Event>) + Send + 'static) -> Self {
        let (sender, events) = channel();
        let own_sender = sender.clone();
        Self {
            sender,
            thread: std::thread::spawn(move || body(events, own_sender)),
        }
    }

    /// Posts an event, and returns when it was queued.
    pub fn post(&self, body: impl FnOnce() + Send + 'static) -> ProfilerTime {
        let queued = ProfilerTime::now();
        self.post_at(queued, body);
        queued
    }

    /// Posts an event that counts as queued at this time.
    pub fn post_at(&self, queued: ProfilerTime, body: impl FnOnce() + Send + 'static) {
        self.sender
            .send((queued, Some(Box::new(body))))
            .expect("the loop runs");
    }

    /// Waits until the loop has reached an event that is queued now.
    pub fn settle(&self) {
        let (done, is_done) = channel();
        self.post(move || done.send(()).expect("the test waits"));
        is_done.recv().expect("the loop runs the event");
    }

    pub fn end(self) {
        self.sender
            .send((ProfilerTime::now(), None))
            .expect("the loop runs");
        self.thread.join().expect("the loop ends");
    }
}

/// Sleeps until the sender is dropped.
pub fn sleep_until_released(released: &Receiver<()>) {
    assert!(released.recv().is_err());
}

/// Uses CPU time until the sender is dropped.
pub fn burn_until_released(released: &Receiver<()>) {
    while released.try_recv() == Err(TryRecvError::Empty) {
        work(1000);
    }
}

/// Records an interval marker of the calling thread from `start` until now.
pub fn mark_since(name: &str, start: ProfilerTime) {
    let timing = MarkerTiming::interval_until_now_from(start);
    add_untyped_marker(name, gecko_profiler_category!(Other), timing.into());
}

/// Returns the thread's interval markers with this name, in ms, sorted by their starts.
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

/// Returns the samples that the running session has of the threads with this name.
pub fn samples_so_far(name: &str) -> Vec<Sample> {
    let read = Read::of_running();
    let threads = read.threads().iter();
    threads
        .filter(|thread| thread["name"] == name)
        .flat_map(samples_of)
        .collect()
}

/// State of a loop, as its samples should show it.
#[derive(Clone, Copy, Debug)]
pub enum LoopState {
    /// The loop has not run any event yet.
    Unknown,
    /// No event runs.
    Idle,
    /// An event runs that was queued at this time.
    Running(ProfilerTime),
}

/// A period in which a loop stayed in one state.
#[derive(Debug)]
pub struct Held {
    thread: &'static str,
    state: LoopState,
    from: ProfilerTime,
    until: ProfilerTime,
}

/// Converts times to those of the profile, by a marker with a known time.
#[derive(Clone, Copy)]
pub struct ProfileClock {
    reference: ProfilerTime,
}

const CLOCK_THREAD: &str = "test";
const CLOCK_MARKER: &str = "reference";

impl ProfileClock {
    /// Registers the calling thread, and records the marker on it. A session must be running.
    pub fn start() -> Self {
        gekkota::register_thread(CLOCK_THREAD);
        let reference = ProfilerTime::now();
        let timing = MarkerTiming::instant_at(reference);
        add_untyped_marker(CLOCK_MARKER, gecko_profiler_category!(Other), timing.into());
        Self { reference }
    }

    /// Converts a time after the start of this clock.
    fn ms(self, read: &Read, time: ProfilerTime) -> f64 {
        let markers = read.markers(CLOCK_THREAD);
        let reference = markers.iter().find(|marker| marker.0 == CLOCK_MARKER);
        let since = time.duration_since(self.reference);
        reference.expect("the marker").1 + since.as_secs_f64() * 1e3
    }

    /// Waits until the session has enough samples of a loop that stays in `state` until this
    /// returns.
    pub fn hold(
        self,
        thread: &'static str,
        state: LoopState,
        mut is_enough: impl FnMut(&[Sample]) -> bool,
    ) -> Held {
        complete_ticks();
        let from = ProfilerTime::now();
        wait_until("the session has samples of the loop", || {
            let read = Read::of_running();
            let from_ms = self.ms(&read, from);
            let mut samples = read.samples(thread);
            samples.retain(|sample| sample.time_ms >= from_ms);
            samples.len() > SAMPLES && is_enough(&samples)
        });
        let until = ProfilerTime::now();
        complete_ticks();
        Held {
            thread,
            state,
            from,
            until,
        }
    }
}

/// Waits until all ticks that have begun are complete. A sample may have the time at which its tick
/// began, and the state at which the sampler looked later.
fn complete_ticks() {
    (0..2).for_each(|_| _ = one_loop());
}

/// Returns a function that tells whether a sample has at least this delay.
pub fn has_delay(least_ms: f64) -> impl FnMut(&[Sample]) -> bool {
    move |samples| {
        let delays = samples.iter().filter_map(|sample| sample.event_delay_ms);
        delays.fold(0.0, f64::max) >= least_ms
    }
}

impl Held {
    /// Checks that all samples of the period show its state.
    pub fn check(&self, read: &Read, clock: ProfileClock) {
        let (from_ms, until_ms) = (clock.ms(read, self.from), clock.ms(read, self.until));
        let queued_ms = match self.state {
            LoopState::Running(queued) => clock.ms(read, queued),
            LoopState::Unknown | LoopState::Idle => 0.0,
        };
        let expected = |time_ms: f64| match self.state {
            LoopState::Unknown => None,
            LoopState::Idle => Some(0.0),
            LoopState::Running(_) => Some((time_ms - queued_ms).max(0.0)),
        };
        let mut samples = read.samples(self.thread);
        samples.retain(|sample| (from_ms..=until_ms).contains(&sample.time_ms));
        assert!(samples.len() >= SAMPLES, "{}: {self:?}", samples.len());
        for sample in &samples {
            let expected = expected(sample.time_ms);
            let is_right = match (expected, sample.event_delay_ms) {
                (Some(expected), Some(shown)) => (expected - shown).abs() <= TOLERANCE_MS,
                (expected, shown) => expected == shown,
            };
            assert!(is_right, "{sample:?} instead of {expected:?}: {self:?}");
        }
    }
}
