//! Many threads on two processors: both engines show them alike, and the samples of each are in the order of their times.

use std::time::Duration;

use crate::common::{Read, isolated, samples_of, use_processors, work_for};
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

const BUSY: usize = 16;
const TIME: Duration = Duration::from_millis(1200);

fn profile_of(engine: SamplingEngine, threads: &[(&'static str, fn())]) -> Read {
    let session = ProfilerSession::start(StartParams::default().engine(engine)).expect("start");
    let spawn = |&(name, body): &(&'static str, fn())| {
        std::thread::spawn(move || {
            gekkota::register_thread(name);
            body();
        })
    };
    let threads: Vec<_> = threads.iter().map(spawn).collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("thread"));
    Read::from_profile(&session.finish().expect("profile"))
}

fn busy() {
    work_for(TIME);
}

fn alternates() {
    for _ in 0..TIME.as_millis() / 12 {
        work_for(Duration::from_millis(2));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn sleeps_shortly() {
    for _ in 0..TIME.as_millis() {
        std::thread::sleep(Duration::from_micros(900));
    }
}

fn check_order(read: &Read, engine: SamplingEngine) {
    for thread in read.threads() {
        let times: Vec<_> = samples_of(thread)
            .iter()
            .map(|sample| sample.time_ms)
            .collect();
        let back = times.windows(2).position(|pair| pair[0] > pair[1]);
        assert!(
            back.is_none(),
            "{engine:?}, {}: {:?} of {}",
            thread["name"],
            back.map(|at| (at, &times[at..at + 2])),
            times.len()
        );
    }
}

/// Samples of the busy threads, for each tick and thread.
fn share_of_ticks(engine: SamplingEngine) -> f64 {
    let read = profile_of(engine, &[("busy", busy as fn()); BUSY]);
    check_order(&read, engine);
    let busy = || {
        read.threads()
            .iter()
            .filter(|thread| thread["name"] == "busy")
    };
    assert_eq!(busy().count(), BUSY);
    let samples: usize = busy().map(|thread| samples_of(thread).len()).sum();
    let share = samples as f64 / (BUSY as u64 * read.count("ticks")) as f64;
    println!(
        "{engine:?}: {samples} samples of {BUSY} busy threads, {share:.2} for each tick and thread; {} ticks, {} missed, {} \
         unanswered, {} timers refused",
        read.count("ticks"),
        read.count("missed_ticks"),
        read.count("unanswered_ticks"),
        read.count("refused_timers"),
    );
    share
}

#[test]
fn many_threads_on_two_processors_are_shown_alike() {
    isolated(|| {
        use_processors(2);
        let [signals, timers] =
            [SamplingEngine::Signals, SamplingEngine::LocalTimers].map(share_of_ticks);
        assert!(
            timers > signals / 2.0 && timers < signals * 2.0,
            "{signals:.2} by signals, {timers:.2} by timers"
        );
    });
}

#[test]
fn many_threads_on_two_processors_are_shown_in_order() {
    isolated(|| {
        use_processors(2);
        for engine in [SamplingEngine::Signals, SamplingEngine::LocalTimers] {
            let bodies = [
                ("busy", busy as fn()),
                ("alternates", alternates),
                ("sleeps", sleeps_shortly),
            ];
            check_order(&profile_of(engine, &bodies.repeat(4)), engine);
        }
    });
}
