//! The event delay in samples of a loop that the profiler watches by probes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::loops::{
    Loop, SAMPLES, TOLERANCE_MS, burn_until_released, intervals, mark_since, samples_so_far,
    sleep_until_released,
};
use crate::common::{
    LONGEST_WAIT, PanicsAgain, Read, in_forked_child, isolated, mark, thread_names, wait_until,
};
use gekkota::event_delay::{EventDelayProbe, profiler_watch_event_loop};
use gekkota::{ProfilerSession, ProfilerTime, StartParams, ThreadGuard};

/// Minimum time from an answer to the next probe, in ms.
const SHORTEST_PAUSE_MS: f64 = 8.0;
/// Maximum time from an answer to the next probe, in ms. After a longer pause, the delay in that
/// pause is unknown.
const LONGEST_PAUSE_MS: f64 = 64.0;

/// Number of probes that the watch has posted, and that the loop has run.
#[derive(Default)]
struct Probes {
    posted: AtomicU64,
    run: AtomicU64,
}

impl Probes {
    fn posted(&self) -> u64 {
        self.posted.load(Ordering::Relaxed)
    }

    /// Waits until this many more probes are posted.
    fn wait_for(&self, more: u64) {
        let wanted = self.posted() + more;
        wait_until("probes are posted", || self.posted() >= wanted);
    }

    /// Waits until a probe is pending. Called in an event, which keeps the probe waiting.
    fn wait_for_pending(&self) {
        wait_until("a probe is pending", || {
            self.posted() > self.run.load(Ordering::Relaxed)
        });
    }
}

/// Runs a probe, and records markers from its posting and from its answer until now.
fn run_probe(probes: &Probes, posted_at: ProfilerTime, probe: EventDelayProbe) {
    let answers = ProfilerTime::now();
    probes.run.fetch_add(1, Ordering::Relaxed);
    probe.run();
    mark_since("answer", answers);
    mark_since("probe", posted_at);
}

/// Starts a loop that does not report its events. Its watch holds `probes`.
fn start_watched_loop(name: &'static str, probes: &Arc<Probes>) -> Loop {
    let probes = Arc::clone(probes);
    Loop::start(move |events, own_sender| {
        let _registered = ThreadGuard::register(name);
        let watch = profiler_watch_event_loop(move |probe| {
            probes.posted.fetch_add(1, Ordering::Relaxed);
            let probes = Arc::clone(&probes);
            let posted_at = ProfilerTime::now();
            // After the loop has ended, the channel returns the probe. Its drop ends the watch.
            let _ = own_sender.send((
                posted_at,
                Some(Box::new(move || run_probe(&probes, posted_at, probe))),
            ));
        });
        watch.keep();
        while let Ok((_, Some(body))) = events.recv() {
            body();
        }
        drop(events);
    })
}

fn has_watcher() -> bool {
    thread_names().iter().any(|name| name == "EventWatcher")
}

/// A probe, in ms of the profile.
struct Probe {
    /// After the probe was posted.
    posted: f64,
    /// Before and after the probe was answered.
    answered: (f64, f64),
    /// When the probe was posted, as the first sample while it was pending shows it.
    shown_posted: Option<f64>,
}

/// Compares the delays in the samples of a watched loop with its probes, and returns the longest
/// delay.
fn check_delays(read: &Read, name: &str) -> f64 {
    let posted = intervals(read, name, "probe").into_iter();
    let answered = intervals(read, name, "answer");
    let mut probes: Vec<_> = posted
        .zip(answered)
        .map(|((posted, _), answered)| Probe {
            posted,
            answered,
            shown_posted: None,
        })
        .collect();
    // The last probe may have been posted after the sampler wrote the probes to the profile.
    probes.pop();
    let end = probes.last().expect("probes").answered.0;
    let mut longest = 0f64;
    for sample in read.samples(name) {
        let time = sample.time_ms;
        if time > end {
            break;
        }
        // The first probe that may be unanswered.
        let index = probes.partition_point(|probe| probe.answered.0 < time);
        let answered_before = index.checked_sub(1).map(|before| probes[before].answered);
        let probe = &mut probes[index];
        if answered_before.is_some_and(|(_, answered)| time <= answered + TOLERANCE_MS) {
            continue;
        }
        let is_surely_posted = time > probe.posted + TOLERANCE_MS;
        match (sample.event_delay_ms, answered_before) {
            (None, None) => assert!(!is_surely_posted, "{sample:?}"),
            (None, Some((answered, _))) => assert!(
                !is_surely_posted && probe.posted - answered > LONGEST_PAUSE_MS - TOLERANCE_MS,
                "{sample:?}"
            ),
            (Some(0.0), Some(_)) => assert!(!is_surely_posted, "{sample:?}"),
            (Some(delay), _) => {
                let posted = time - delay;
                let earliest = answered_before.map_or(0.0, |(answered, _)| {
                    answered + SHORTEST_PAUSE_MS - TOLERANCE_MS
                });
                assert!(
                    (earliest..=probe.posted + TOLERANCE_MS).contains(&posted),
                    "{sample:?}: {earliest} to {}",
                    probe.posted
                );
                let shown_posted = *probe.shown_posted.get_or_insert(posted);
                assert!(
                    (posted - shown_posted).abs() <= TOLERANCE_MS,
                    "{sample:?}: posted at {shown_posted}"
                );
                longest = longest.max(delay);
            }
        }
    }
    let pauses = probes
        .windows(2)
        .map(|pair| pair[1].posted - pair[0].answered.0);
    assert!(
        pauses.fold(f64::MAX, f64::min) >= SHORTEST_PAUSE_MS - TOLERANCE_MS,
        "each pause lasts 8 ms"
    );
    println!("{name}: {} probes, up to {longest:.1} ms", probes.len());
    longest
}

/// Waits until the last sample in a snapshot of the running session has at least this delay.
fn wait_for_delay(name: &str, least_ms: f64) {
    wait_until("a snapshot shows the delay of a blocked loop", || {
        let last = samples_so_far(name).pop();
        last.and_then(|sample| sample.event_delay_ms)
            .is_some_and(|ms| ms >= least_ms)
    });
}

#[test]
fn event_delay_is_waiting_time_of_pending_probe() {
    isolated(|| {
        let probes: [Arc<Probes>; 3] = Default::default();
        let loops = ["sleeps", "burns", "stuck"];
        let loops: Vec<_> = loops
            .iter()
            .zip(&probes)
            .map(|(name, probes)| start_watched_loop(name, probes))
            .collect();
        loops.iter().for_each(Loop::settle);
        assert!(
            probes.iter().all(|probes| probes.posted() == 0) && !has_watcher(),
            "no session"
        );

        let session = ProfilerSession::start(StartParams::default()).expect("start");
        probes.iter().for_each(|probes| probes.wait_for(3));
        let of = |index: usize| Arc::clone(&probes[index]);
        let (sleeping, burning) = (of(0), of(1));
        let (release_sleeping, sleeping_released) = channel();
        let (release_burning, burning_released) = channel();
        loops[0].post(move || {
            sleeping.wait_for_pending();
            sleep_until_released(&sleeping_released);
        });
        loops[1].post(move || {
            burning.wait_for_pending();
            burn_until_released(&burning_released);
        });
        // The third loop waits for a lock.
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().expect("no panic with the lock");
        let waits = Arc::clone(&lock);
        loops[2].post(move || drop(waits.lock()));
        wait_for_delay("sleeps", 150.0);
        drop(release_sleeping);
        wait_for_delay("burns", 150.0);
        drop(release_burning);
        loops[..2].iter().for_each(Loop::settle);
        wait_for_delay("stuck", 300.0);
        drop(held);
        loops[2].settle();
        probes.iter().for_each(|probes| probes.wait_for(3));

        // A watch that panics, and one whose queue is closed.
        let panicking = std::thread::spawn(|| {
            let _registered = ThreadGuard::register("panics");
            let held = Arc::new(());
            let alive = Arc::clone(&held);
            let _watch = profiler_watch_event_loop(move |probe| {
                let _alive = &alive;
                assert!(format!("{probe:?}").starts_with("EventDelayProbe"));
                // Unlike `panic!`, prints no message.
                std::panic::resume_unwind(Box::new("the test wants this failure"));
            });
            wait_until("the watch has ended", || Arc::strong_count(&held) == 1);
        });
        panicking.join().expect("the watcher catches the panic");
        let closed = Arc::new(Probes::default());
        start_watched_loop("closed", &closed).end();
        wait_until("the watch of a loop that has ended is dropped", || {
            Arc::strong_count(&closed) == 1
        });
        // A thread that exits while a probe is pending.
        let posts = Arc::new(AtomicU64::new(0));
        let own_posts = Arc::clone(&posts);
        let leaving = std::thread::spawn(move || {
            let _registered = ThreadGuard::register("leaves");
            let posts = Arc::clone(&own_posts);
            let post = move |probe| {
                std::mem::forget(probe);
                posts.fetch_add(1, Ordering::Relaxed);
            };
            profiler_watch_event_loop(post).keep();
            wait_until("a probe is posted", || {
                own_posts.load(Ordering::Relaxed) == 1
            });
            wait_for_delay("leaves", 50.0);
            mark("leaves now");
        });
        leaving.join().expect("the thread only waits");
        wait_until("the watch of a thread that has exited is dropped", || {
            Arc::strong_count(&posts) == 1
        });
        assert_eq!(posts.load(Ordering::Relaxed), 1, "one probe at a time");
        probes.iter().for_each(|probes| probes.wait_for(3));

        let read = Read::from_profile(&session.finish().expect("profile"));
        wait_until("there is no watcher without a session", || !has_watcher());
        let after = probes.each_ref().map(|probes| probes.posted());
        for name in ["sleeps", "burns", "stuck"] {
            let longest = check_delays(&read, name);
            assert!(longest >= 150.0, "{name}: {longest} ms");
        }
        let markers = read.markers("leaves");
        let leaves = markers.iter().find(|marker| marker.0 == "leaves now");
        let leaves_ms = leaves.expect("the marker").1;
        let mut samples = read.samples("leaves");
        samples.retain(|sample| sample.time_ms <= leaves_ms);
        let last = samples.last().expect("samples").event_delay_ms;
        assert!(
            last.is_some_and(|ms| ms >= 50.0),
            "{last:?} ms before the thread exited"
        );

        // The next session continues the same watches.
        loops.iter().for_each(Loop::settle);
        assert_eq!(
            after,
            probes.each_ref().map(|probes| probes.posted()),
            "no session"
        );
        let again = ProfilerSession::start(StartParams::default()).expect("start");
        probes.iter().for_each(|probes| probes.wait_for(2));
        drop(again);
        loops.into_iter().for_each(Loop::end);
    });
}

/// Keeps the loop of the calling thread blocked until the session has samples of it.
fn stay_blocked(thread: &str, name: &str) {
    let begins = ProfilerTime::now();
    let begin_marker = format!("{name} begins");
    mark(&begin_marker);
    std::thread::sleep(Duration::from_millis(2 * LONGEST_PAUSE_MS as u64));
    wait_until("the session has samples of the blocked loop", || {
        let read = Read::of_running();
        let markers = read.markers(thread);
        let begin = markers.iter().find(|marker| marker.0 == begin_marker);
        let begin_ms = begin.expect("the marker").1;
        let samples = read.samples(thread);
        let is_within = |time_ms: f64| time_ms > begin_ms + TOLERANCE_MS;
        let within = samples.iter().filter(|sample| is_within(sample.time_ms));
        within.count() > SAMPLES
    });
    mark_since(name, begins);
}

/// The loop is blocked while another watch's callback blocks the watcher, and after its own watch
/// has ended.
#[test]
fn event_delay_is_unknown_without_probes() {
    const WITHOUT_WATCHER: &str = "while the watcher is blocked";
    const WITHOUT_WATCH: &str = "without a watch";
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let watched = std::thread::spawn(move || {
            let _registered = ThreadGuard::register("watched");
            let (sender, probes) = channel();
            let watch = profiler_watch_event_loop(move |probe| _ = sender.send(probe));
            let run_probes = || (0..3).for_each(|_| probes.recv().expect("a probe").run());
            run_probes();
            let pending = probes.recv().expect("a probe");
            wait_for_delay("watched", TOLERANCE_MS);
            pending.run();

            let (is_held, holds) = channel::<()>();
            let (release, is_released) = channel::<()>();
            let holder = std::thread::spawn(move || {
                let _registered = ThreadGuard::register("holder");
                let (over, is_over) = channel::<()>();
                let hold = move |_probe| {
                    let _over = &over;
                    is_held.send(()).expect("the loop waits");
                    assert!(is_released.recv().is_err());
                };
                profiler_watch_event_loop(hold).keep();
                assert!(is_over.recv().is_err());
            });
            holds.recv().expect("the watcher is blocked");
            probes.try_iter().for_each(EventDelayProbe::run);
            stay_blocked("watched", WITHOUT_WATCHER);
            drop(release);
            holder.join().expect("the thread only waits");
            run_probes();

            drop(watch);
            // Ends when the watcher has dropped the sender, too.
            probes.into_iter().for_each(EventDelayProbe::run);
            stay_blocked("watched", WITHOUT_WATCH);
        });
        watched.join().expect("the thread runs its probes");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples("watched");
        assert!(
            samples.iter().any(|sample| sample.event_delay_ms.is_some()),
            "the delay is known while there are probes"
        );
        for name in [WITHOUT_WATCHER, WITHOUT_WATCH] {
            let (begins, ends) = intervals(&read, "watched", name)[0];
            let is_within =
                |time: f64| begins + TOLERANCE_MS <= time && time <= ends - TOLERANCE_MS;
            let within: Vec<_> = samples
                .iter()
                .filter(|sample| is_within(sample.time_ms))
                .collect();
            assert!(within.len() >= SAMPLES, "{name}: {} samples", within.len());
            for sample in within {
                assert_eq!(sample.event_delay_ms, None, "{name}, at {}", sample.time_ms);
            }
        }
    });
}

/// Panics when it is dropped, with a payload that panics again when it is dropped.
struct PanicsTwice;

impl Drop for PanicsTwice {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(PanicsAgain));
    }
}

#[test]
fn watch_with_panicking_drops_ends_alone() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let panicking = std::thread::spawn(|| {
            let _registered = ThreadGuard::register("panics again");
            let held = Arc::new(());
            let alive = Arc::clone(&held);
            let panics = profiler_watch_event_loop(move |_| {
                let _alive = &alive;
                std::panic::resume_unwind(Box::new(PanicsAgain));
            });
            wait_until("the watch has ended", || Arc::strong_count(&held) == 1);
            for _ in 0..2 {
                let (sender, probes) = channel();
                let held = PanicsTwice;
                let watch = profiler_watch_event_loop(move |probe: EventDelayProbe| {
                    let _held = &held;
                    let _ = sender.send(probe);
                });
                for _ in 0..3 {
                    probes
                        .recv_timeout(LONGEST_WAIT)
                        .expect("the watcher runs")
                        .run();
                }
                drop(watch);
                probes.into_iter().for_each(EventDelayProbe::run);
            }
            drop(panics);
        });
        panicking.join().expect("the profiler catches the panics");
        drop(session);
    });
}

#[test]
fn watch_of_forking_thread_continues_in_child() {
    isolated(|| {
        // The first start registers the handlers of `fork`.
        drop(ProfilerSession::start(StartParams::default()).expect("start"));
        let _registered = ThreadGuard::register("forks");
        let (sender, probes) = channel();
        let _watch = profiler_watch_event_loop(move |probe| _ = sender.send(probe));
        let found = in_forked_child(|| {
            let session = ProfilerSession::start(StartParams::default()).expect("start");
            let next_probe = || probes.recv_timeout(LONGEST_WAIT).expect("a probe");
            (0..2).for_each(|_| next_probe().run());
            let pending = next_probe();
            wait_for_delay("forks", TOLERANCE_MS);
            pending.run();
            let read = Read::from_profile(&session.finish().expect("profile"));
            let samples = read.samples("forks");
            let mut delays = samples.iter().map(|sample| sample.event_delay_ms);
            delays.any(|delay| delay.is_some()).to_string()
        });
        assert_eq!(found, "true", "the samples have event delays");
    });
}
