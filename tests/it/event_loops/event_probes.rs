//! How long an event loop keeps its events waiting stands in each sample: a watcher posts probes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::loops::{EDGE_MS, EVENT, Loop, Truth, intervals, judge, mark_since};
use crate::common::{
    PanicsAgain, Read, in_forked_child, isolated, thread_names, wait_until, work_for_cpu,
};
use gekkota::event_delay::{EventDelayProbe, profiler_watch_event_loop};
use gekkota::{ProfilerSession, ProfilerTime, StartParams, ThreadGuard};

/// Between a probe's posting and the moment at which the host takes the time, its thread may lose the processor.
const SLACK_MS: f64 = 25.0;
/// When the next probe comes later than this after an answer, nothing is known of the time between.
const LONGEST_PAUSE_MS: f64 = 64.0;

/// How many probes were given to be posted, and have run.
#[derive(Default)]
struct Probes {
    posted: AtomicU64,
    run: AtomicU64,
}

impl Probes {
    fn posted(&self) -> u64 {
        self.posted.load(Ordering::Relaxed)
    }

    /// Waits for so many more.
    fn wait_for(&self, more: u64) {
        let wanted = self.posted() + more;
        wait_until("probes are posted", || self.posted() >= wanted);
    }

    /// In an event: waits until a probe waits for its end.
    fn wait_for_one_in_queue(&self) {
        wait_until("a probe waits", || {
            self.posted() > self.run.load(Ordering::Relaxed)
        });
    }
}

/// Runs a probe, and leaves markers over its time and its answer.
fn run_probe(probes: &Probes, posted_at: ProfilerTime, probe: EventDelayProbe) {
    let answers = ProfilerTime::now();
    probes.run.fetch_add(1, Ordering::Relaxed);
    probe.run();
    mark_since("answer", answers);
    mark_since("probe", posted_at);
}

/// A loop that knows nothing of the profiler. The watch holds `probes`.
fn start_watched_loop(name: &'static str, probes: &Arc<Probes>) -> Loop {
    let probes = Arc::clone(probes);
    Loop::start(move |events, own_sender| {
        let _registered = ThreadGuard::register(name);
        let watch = profiler_watch_event_loop(move |probe| {
            probes.posted.fetch_add(1, Ordering::Relaxed);
            let probes = Arc::clone(&probes);
            let posted_at = ProfilerTime::now();
            // A loop that has ended gives the probe back, and that is the end of the watch.
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

/// The longest delay of a loop that was kept busy for `EVENT`, compared with its probes.
fn longest_delay(read: &Read, name: &str) -> f64 {
    let probes = intervals(read, name, "probe")
        .into_iter()
        .zip(intervals(read, name, "answer"));
    let truth = |((posted, _), answer)| Truth {
        queued: posted,
        begins: (posted, posted),
        ends: answer,
    };
    let truths: Vec<_> = probes.map(truth).collect();
    let end = truths.last().expect("probes").ends.0;
    let mut samples = read.samples(name);
    // The last probe went with the loop.
    samples.retain(|sample| sample.time_ms <= end);
    // The watcher may have lost the processor for so long that nobody can tell here whether it was too long.
    let late = |pair: &&[Truth]| pair[1].queued - pair[0].ends.0 > LONGEST_PAUSE_MS - SLACK_MS;
    for pair in truths.windows(2).filter(late) {
        samples.retain(|sample| !(pair[0].ends.0..pair[1].queued).contains(&sample.time_ms));
    }
    let largest = judge(&samples, &truths, SLACK_MS);
    let longest = truths
        .iter()
        .map(|truth| truth.ends.1 - truth.queued)
        .fold(0.0, f64::max);
    println!(
        "{name}: {} samples, {} probes, up to {largest:.1} ms",
        samples.len(),
        truths.len()
    );
    let shown = samples.iter().filter_map(|sample| sample.event_delay_ms);
    for shown in shown {
        assert!(
            (0.0..=longest + SLACK_MS).contains(&shown),
            "{shown} ms of {longest}"
        );
    }
    let pauses = truths
        .windows(2)
        .map(|pair| pair[1].queued - pair[0].ends.0);
    assert!(
        pauses.fold(f64::MAX, f64::min) >= 8.0,
        "a loop is left alone for a while"
    );
    largest
}

#[test]
fn a_sample_tells_how_long_the_loop_kept_a_probe_waiting() {
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
        loops[0].post(move || {
            sleeping.wait_for_one_in_queue();
            std::thread::sleep(EVENT);
        });
        loops[1].post(move || {
            burning.wait_for_one_in_queue();
            work_for_cpu(EVENT);
        });
        // It waits for a lock.
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().expect("nobody panics");
        let waits = Arc::clone(&lock);
        loops[2].post(move || drop(waits.lock()));
        loops[..2].iter().for_each(Loop::settle);
        wait_until(
            "a profile that is taken meanwhile tells of a loop that is stuck",
            || {
                let last = Read::of_running().samples("stuck").pop();
                last.and_then(|sample| sample.event_delay_ms)
                    .is_some_and(|ms| ms >= 300.0)
            },
        );
        drop(held);
        loops[2].settle();
        probes.iter().for_each(|probes| probes.wait_for(3));

        // Somebody else's loop, whose watch panics, and one whose queue is closed.
        let panicking = std::thread::spawn(|| {
            let _registered = ThreadGuard::register("panics");
            let held = Arc::new(());
            let alive = Arc::clone(&held);
            let _watch = profiler_watch_event_loop(move |probe| {
                let _alive = &alive;
                assert!(format!("{probe:?}").starts_with("EventDelayProbe"));
                // Without a message on the terminal.
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            wait_until("the watch is over", || Arc::strong_count(&held) == 1);
        });
        panicking.join().expect("its panic is not the thread's");
        let closed = Arc::new(Probes::default());
        start_watched_loop("closed", &closed).end();
        wait_until("the watch of a loop that has ended is over", || {
            Arc::strong_count(&closed) == 1
        });
        // A thread that ends while a probe waits for it.
        let leaves = Arc::new(AtomicU64::new(0));
        let posts_of_leaving = Arc::clone(&leaves);
        let leaving = std::thread::spawn(move || {
            let _registered = ThreadGuard::register("leaves");
            let posts = Arc::clone(&posts_of_leaving);
            let post = move |probe| {
                std::mem::forget(probe);
                posts.fetch_add(1, Ordering::Relaxed);
            };
            profiler_watch_event_loop(post).keep();
            wait_until("a probe is posted", || {
                posts_of_leaving.load(Ordering::Relaxed) == 1
            });
            std::thread::sleep(Duration::from_millis(150));
        });
        leaving.join().expect("it only waits");
        wait_until("the watch of a thread that has ended is over", || {
            Arc::strong_count(&leaves) == 1
        });
        assert_eq!(leaves.load(Ordering::Relaxed), 1, "one probe at a time");
        probes.iter().for_each(|probes| probes.wait_for(3));

        let read = Read::from_profile(&session.finish().expect("profile"));
        wait_until("there is no watcher without a session", || !has_watcher());
        let after = probes.each_ref().map(|probes| probes.posted());
        for name in ["sleeps", "burns", "stuck"] {
            let longest = longest_delay(&read, name);
            assert!(longest >= 150.0, "{name}: {longest} ms");
        }
        let left = read
            .samples("leaves")
            .last()
            .expect("samples")
            .event_delay_ms;
        assert!(
            left.is_some_and(|ms| ms >= 50.0),
            "{left:?} ms when the thread ended"
        );

        // Another session goes on with the same watches.
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

/// A loop's thread is stuck while the watcher is held up by another watch, and when its own watch has ended.
#[test]
fn nothing_is_known_of_a_loop_that_nobody_asks() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let stuck_as = |name: &str| {
            let begins = ProfilerTime::now();
            std::thread::sleep(EVENT);
            mark_since(name, begins);
        };
        let asked = std::thread::spawn(move || {
            let _registered = ThreadGuard::register("asked");
            let (sender, probes) = channel();
            let watch = profiler_watch_event_loop(move |probe| _ = sender.send(probe));
            let run_probes = || (0..3).for_each(|_| probes.recv().expect("it is watched").run());
            run_probes();

            let (is_held, holds) = channel::<()>();
            let (release, is_released) = channel::<()>();
            let holder = std::thread::spawn(move || {
                let _registered = ThreadGuard::register("holder");
                let (over, is_over) = channel::<()>();
                let hold = move |_probe| {
                    let _over = &over;
                    is_held.send(()).expect("it is waited for");
                    assert!(is_released.recv().is_err());
                };
                profiler_watch_event_loop(hold).keep();
                assert!(is_over.recv().is_err());
            });
            holds.recv().expect("the watcher is held up");
            probes.try_iter().for_each(EventDelayProbe::run);
            stuck_as("while another post waits");
            drop(release);
            holder.join().expect("it only waits");
            run_probes();

            drop(watch);
            // Until the watcher has let go of it too.
            probes.into_iter().for_each(EventDelayProbe::run);
            stuck_as("without a watch");
        });
        asked.join().expect("it runs its probes");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples("asked");
        assert!(
            samples.iter().any(|sample| sample.event_delay_ms.is_some()),
            "it was asked"
        );
        for name in ["while another post waits", "without a watch"] {
            let (begins, ends) = intervals(&read, "asked", name)[0];
            let is_within = |time: f64| begins + EDGE_MS <= time && time <= ends - EDGE_MS;
            let within: Vec<_> = samples
                .iter()
                .filter(|sample| is_within(sample.time_ms))
                .collect();
            assert!(within.len() >= 100, "{name}: {} samples", within.len());
            for sample in within {
                assert_eq!(sample.event_delay_ms, None, "{name}, at {}", sample.time_ms);
            }
        }
    });
}

/// When it is dropped it panics with what panics again.
struct PanicsTwice;

impl Drop for PanicsTwice {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(PanicsAgain));
    }
}

/// The host's panics may carry, and its functions may hold, what panics when it is dropped.
#[test]
fn panics_that_panic_again_end_their_watch_alone() {
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
            wait_until("the watch is over", || Arc::strong_count(&held) == 1);
            for _ in 0..2 {
                let (sender, probes) = channel();
                let held = PanicsTwice;
                let watch = profiler_watch_event_loop(move |probe: EventDelayProbe| {
                    let _held = &held;
                    let _ = sender.send(probe);
                });
                for _ in 0..3 {
                    probes
                        .recv_timeout(Duration::from_secs(10))
                        .expect("there is a watcher")
                        .run();
                }
                drop(watch);
                probes.into_iter().for_each(EventDelayProbe::run);
            }
            drop(panics);
        });
        panicking.join().expect("the panics are not the thread's");
        drop(session);
    });
}

/// The forking thread's watch goes on in the child, where there are no others.
#[test]
fn go_on_in_a_forked_child() {
    isolated(|| {
        // The handlers of `fork` are there from the first start on.
        drop(ProfilerSession::start(StartParams::default()).expect("start"));
        let _registered = ThreadGuard::register("forks");
        let (sender, probes) = channel();
        let _watch = profiler_watch_event_loop(move |probe| _ = sender.send(probe));
        let found = in_forked_child(|| {
            let session = ProfilerSession::start(StartParams::default()).expect("start");
            for _ in 0..3 {
                probes
                    .recv_timeout(Duration::from_secs(10))
                    .expect("a probe")
                    .run();
            }
            let read = Read::from_profile(&session.finish().expect("profile"));
            format!(
                "{}",
                read.samples("forks")
                    .iter()
                    .any(|sample| sample.event_delay_ms.is_some())
            )
        });
        assert_eq!(found, "true", "its samples tell of its probes");
    });
}
