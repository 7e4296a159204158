//! Many threads on few processors: each of them is sampled, with times in order, by events of its CPU
//! clock and without them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{
    Read, Sample, Sleeper, isolated, samples_of, use_processors, wait_until, work,
};
use gekkota::{ProfilerSession, StartParams};

const BUSY: usize = 16;
/// Number of samples to see of each thread.
const SAMPLES: usize = 20;

static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Records these threads until each has enough samples.
fn profile_of(signal: i32, threads: &[(&'static str, fn())]) -> Read {
    IS_OVER.store(false, Ordering::Relaxed);
    let session = ProfilerSession::start(StartParams::default().signal(signal)).expect("start");
    let spawn = |&(name, body): &(&'static str, fn())| {
        std::thread::spawn(move || {
            gekkota::register_thread(name);
            while !IS_OVER.load(Ordering::Relaxed) {
                body();
            }
        })
    };
    let is_of_test = |name: &serde_json::Value| threads.iter().any(|(known, _)| name == known);
    let running: Vec<_> = threads.iter().map(spawn).collect();
    wait_until("each thread has its samples", || {
        let read = Read::of_running();
        let rows = |thread: &serde_json::Value| {
            let rows = thread["samples"]["data"].as_array();
            rows.expect("samples").len()
        };
        let enough = read
            .threads()
            .iter()
            .filter(|thread| is_of_test(&thread["name"]) && rows(thread) >= SAMPLES);
        enough.count() == threads.len()
    });
    IS_OVER.store(true, Ordering::Relaxed);
    running
        .into_iter()
        .for_each(|thread| thread.join().expect("thread"));
    Read::from_profile(&session.finish().expect("profile"))
}

fn busy() {
    work(100_000);
}

fn alternates() {
    work(1_000_000);
    std::thread::sleep(Duration::from_millis(10));
}

fn sleeps_shortly() {
    std::thread::sleep(Duration::from_micros(900));
}

fn check_order(read: &Read, signal: i32) {
    for thread in read.threads() {
        let times: Vec<_> = samples_of(thread)
            .iter()
            .map(|sample| sample.time_ms)
            .collect();
        let back = times.windows(2).position(|pair| pair[0] > pair[1]);
        assert!(
            back.is_none(),
            "signal {signal}, {}: {:?} of {}",
            thread["name"],
            back.map(|at| (at, &times[at..at + 2])),
            times.len()
        );
    }
}

/// The usual signal, with which threads have events if the kernel allows them, and a real-time signal, with
/// which they have none.
fn signals() -> [i32; 2] {
    [libc::SIGURG, libc::SIGRTMIN() + 1]
}

#[test]
fn busy_threads_on_two_processors_are_all_sampled() {
    isolated(|| {
        use_processors(2);
        for signal in signals() {
            let read = profile_of(signal, &[("busy", busy as fn()); BUSY]);
            check_order(&read, signal);
            println!(
                "signal {signal}: {} ticks, {} missed, {} unanswered, {} events refused",
                read.count("ticks"),
                read.count("missed_ticks"),
                read.count("unanswered_ticks"),
                read.count("refused_events"),
            );
        }
    });
}

#[test]
fn samples_of_threads_on_two_processors_are_in_order() {
    isolated(|| {
        use_processors(2);
        for signal in signals() {
            let bodies = [
                ("busy", busy as fn()),
                ("alternates", alternates),
                ("sleeps", sleeps_shortly),
            ];
            check_order(&profile_of(signal, &bodies.repeat(4)), signal);
        }
    });
}

/// Without events, each tick of a thread has a sample or is counted as unanswered.
#[test]
fn ticks_of_threads_that_wait_for_a_processor_are_sampled_or_counted() {
    /// Number of ticks of each busy thread that may be neither: those of the requests that are
    /// pending when the thread's first and last samples are taken.
    const UNCOUNTED: u64 = 8;
    isolated(|| {
        use_processors(1);
        let [_, signal] = signals();
        let sleeper = Sleeper::start("sleeper");
        let read = profile_of(signal, &[("busy 1", busy as fn()), ("busy 2", busy)]);
        drop(sleeper);
        // A thread that sleeps has a sample on each tick.
        let ticks = read.samples("sleeper");
        let (mut expected, mut found) = (0, 0);
        for thread in ["busy 1", "busy 2"] {
            let samples = read.samples(thread);
            let (first, last) = (samples[0].time_ms, samples[samples.len() - 1].time_ms);
            let is_within = |tick: &&Sample| tick.time_ms > first && tick.time_ms <= last;
            expected += ticks.iter().filter(is_within).count() as u64;
            found += samples.len() as u64 - 1;
        }
        let unanswered = read.count("unanswered_ticks");
        println!("{expected} ticks, {found} samples, {unanswered} unanswered");
        assert!(
            found + unanswered + 2 * UNCOUNTED >= expected,
            "of {expected} ticks {found} have samples, and {unanswered} are counted"
        );
    });
}
