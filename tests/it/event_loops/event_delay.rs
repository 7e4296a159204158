//! The event delay in samples of a loop that reports its events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::loops::{
    INTERVAL_MS, Loop, LoopState, ProfileClock, SAMPLES, burn_until_released, has_delay,
    samples_so_far, sleep_until_released,
};
use crate::common::{Read, Sleeper, isolated, wait_until};
use gekkota::event_delay::AutoProfilerEvent;
use gekkota::{Features, ProfilerSession, ProfilerTime, StartParams, ThreadGuard};

static POSTED: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Starts a loop that reports its events to the profiler, and waits until its thread is registered.
fn start_loop(name: &'static str) -> Loop {
    let (registered, is_registered) = channel();
    let event_loop = Loop::start(move |events, _| {
        let _registered = ThreadGuard::register(name);
        registered.send(()).expect("the test waits");
        while let Ok((queued_at, Some(body))) = events.recv() {
            let event = AutoProfilerEvent::queued_at(queued_at);
            body();
            drop(event);
            ENDED.fetch_add(1, Ordering::SeqCst);
        }
    });
    is_registered.recv().expect("the thread registers");
    event_loop
}

fn post(event_loop: &Loop, body: impl FnOnce() + Send + 'static) -> ProfilerTime {
    POSTED.fetch_add(1, Ordering::SeqCst);
    event_loop.post(body)
}

/// Waits until all events have ended.
fn wait_until_idle() {
    wait_until("all events have ended", || {
        ENDED.load(Ordering::SeqCst) == POSTED.load(Ordering::SeqCst)
    });
}

/// An event that lasts until `release` is dropped.
struct HeldEvent {
    queued: ProfilerTime,
    begun: Receiver<()>,
    release: Sender<()>,
}

fn post_held(event_loop: &Loop, wait: fn(&Receiver<()>)) -> HeldEvent {
    let (begin, begun) = channel();
    let (release, released) = channel();
    let queued = post(event_loop, move || {
        begin.send(()).expect("the test waits");
        wait(&released);
    });
    HeldEvent {
        queued,
        begun,
        release,
    }
}

fn ms_since(start: ProfilerTime) -> f64 {
    ProfilerTime::now().duration_since(start).as_secs_f64() * 1e3
}

#[test]
fn event_delay_counts_from_queueing_of_running_event() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let clock = ProfileClock::start();
        let without_loop = Sleeper::start("no loop");
        let (mut held, mut loops) = (Vec::new(), Vec::new());
        for (name, wait) in [
            ("sleeps", sleep_until_released as fn(&Receiver<()>)),
            ("burns", burn_until_released),
        ] {
            let event_loop = start_loop(name);
            held.push(clock.hold(name, LoopState::Unknown, |_| true));
            let event = post_held(&event_loop, wait);
            event.begun.recv().expect("the event begins");
            let running = LoopState::Running(event.queued);
            held.push(clock.hold(name, running, has_delay(150.0)));
            drop(event.release);
            wait_until_idle();
            loops.push((name, 150.0, ms_since(event.queued)));
            held.push(clock.hold(name, LoopState::Idle, |_| true));
            event_loop.end();
        }

        // The second event waits for the first, and contains a nested event.
        let queue = start_loop("queue");
        let first = post_held(&queue, sleep_until_released);
        let (reach, reached) = channel();
        let (go_on, goes_on) = channel();
        let second_queued = post(&queue, move || {
            let stay = |nested_queued: Option<ProfilerTime>| {
                reach.send(nested_queued).expect("the test waits");
                goes_on.recv().expect("the test goes on");
            };
            stay(None);
            let nested_queued = ProfilerTime::now();
            let nested = AutoProfilerEvent::queued_at(nested_queued);
            stay(Some(nested_queued));
            drop(nested);
            stay(None);
        });
        first.begun.recv().expect("the event begins");
        // Also shows that a snapshot includes the delay of an event that still runs.
        let running = LoopState::Running(first.queued);
        held.push(clock.hold("queue", running, has_delay(200.0)));
        drop(first.release);
        for least_ms in [200.0, 0.0, 300.0] {
            let nested_queued = reached.recv().expect("the event runs");
            let running = LoopState::Running(nested_queued.unwrap_or(second_queued));
            held.push(clock.hold("queue", running, has_delay(least_ms)));
            go_on.send(()).expect("the event waits");
        }
        wait_until_idle();
        loops.push(("queue", 300.0, ms_since(first.queued)));
        held.push(clock.hold("queue", LoopState::Idle, |_| true));
        queue.end();
        wait_until("the session has samples of a thread without a loop", || {
            samples_so_far("no loop").len() >= SAMPLES
        });
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
        held.iter().for_each(|held| held.check(&read, clock));
        for (name, least_ms, longest_ms) in loops {
            let samples = read.samples(name);
            assert!(has_delay(least_ms)(&samples), "{name}");
            for sample in &samples {
                let shown = sample.event_delay_ms.unwrap_or(0.0);
                assert!(
                    (0.0..=longest_ms + 2.0 * INTERVAL_MS).contains(&shown),
                    "{name}: {shown} ms of {longest_ms}"
                );
            }
            assert_eq!(
                samples.last().and_then(|sample| sample.event_delay_ms),
                Some(0.0),
                "{name} is idle at its end"
            );
        }
    });
}

#[test]
fn samples_without_stacks_have_event_delay() {
    isolated(|| {
        let params = StartParams::default().features(Features::NO_STACK_SAMPLING | Features::CPU);
        let session = ProfilerSession::start(params).expect("start");
        let clock = ProfileClock::start();
        let event_loop = start_loop("no stacks");
        let events = [
            sleep_until_released as fn(&Receiver<()>),
            burn_until_released,
        ]
        .map(|wait| post_held(&event_loop, wait));
        let mut held = Vec::new();
        for (event, least_ms) in events.into_iter().zip([150.0, 350.0]) {
            event.begun.recv().expect("the event begins");
            let running = LoopState::Running(event.queued);
            held.push(clock.hold("no stacks", running, has_delay(least_ms)));
            drop(event.release);
        }
        wait_until_idle();
        held.push(clock.hold("no stacks", LoopState::Idle, |_| true));
        event_loop.end();
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples("no stacks");
        assert!(samples.iter().all(|sample| sample.stack.is_empty()));
        held.iter().for_each(|held| held.check(&read, clock));
        assert!(has_delay(350.0)(&samples));
    });
}

#[test]
fn event_delay_is_zero_before_queueing_time_in_the_future() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let clock = ProfileClock::start();
        let event_loop = start_loop("early");
        let mut held = Vec::new();
        // Until an event has enough samples both before and after the time of its queueing.
        for lead_ms in (0..).map(|attempt: u32| 100.0 * f64::from(1u32 << attempt)) {
            let (begin, begun) = channel();
            let (release, released) = channel();
            let queued = ProfilerTime::now().add_microseconds(lead_ms * 1e3);
            POSTED.fetch_add(1, Ordering::SeqCst);
            event_loop.post_at(queued, move || {
                begin.send(()).expect("the test waits");
                sleep_until_released(&released);
            });
            begun.recv().expect("the event begins");
            let mut before = 0;
            held.push(clock.hold("early", LoopState::Running(queued), |samples| {
                let delays = samples.iter().filter_map(|sample| sample.event_delay_ms);
                before = delays.clone().filter(|&ms| ms == 0.0).count();
                delays.filter(|&ms| ms > 0.0).count() > SAMPLES
            }));
            drop(release);
            wait_until_idle();
            if before > SAMPLES {
                break;
            }
        }
        event_loop.end();
        let read = Read::from_profile(&session.finish().expect("profile"));
        held.iter().for_each(|held| held.check(&read, clock));
    });
}
