//! Threads keep the samples that their own timers take, and the sampler collects them some times a
//! second.

use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;

use crate::common::{
    BUSY, Busy, Read, Sleeper, isolated, samples_of, thread_cpu, wait_until, work, work_for_cpu,
};
use crate::sampling::places::is_in;
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

const INTERVAL: Duration = Duration::from_millis(1);
/// Number of samples to see of a thread.
const SAMPLES: usize = 200;
const ALTERNATES: &str = "alternates";

/// Number of intervals that a count may be off: those that had begun at either end.
const TOLERANCE: u64 = 20;

fn params() -> StartParams {
    StartParams::default()
        .interval(INTERVAL)
        .engine(SamplingEngine::BatchedTimers)
}

fn samples_so_far(name: &str) -> usize {
    let read = Read::of_running();
    let found = read.threads().iter().find(|thread| thread["name"] == name);
    found.map_or(0, |thread| samples_of(thread).len())
}

/// Returns whether the kernel has refused timers, so that the session works by signals.
fn is_refused(read: &Read) -> bool {
    let refused = read.count("refused_timers");
    if refused > 0 {
        println!("!!! SKIPPED: the kernel refuses timers");
    }
    refused > 0
}

#[inline(never)]
fn works() {
    let begin = thread_cpu();
    while thread_cpu() - begin < 3 * INTERVAL {
        work(1_000);
    }
    std::hint::black_box(1);
}

#[inline(never)]
fn sleeps() {
    std::thread::sleep(Duration::from_millis(7));
    std::hint::black_box(2);
}

#[test]
fn sampler_wakes_for_few_of_the_ticks() {
    isolated(|| {
        let (busy, sleeper) = (Busy::start_registered(), Sleeper::start("sleeper"));
        let session = ProfilerSession::start(params()).expect("start");
        wait_until("the busy thread has its samples", || {
            samples_so_far(BUSY) >= SAMPLES
        });
        let read = Read::from_profile(&session.finish().expect("profile"));
        drop((busy, sleeper));
        assert_eq!(read.0["meta"]["samplingEngine"], "batched timers");
        if is_refused(&read) {
            return;
        }
        let (collections, unanswered) = (read.count("ticks"), read.count("unanswered_ticks"));
        let of = |name: &str| read.samples(name).len() as u64;
        let (busy, sleeper) = (of(BUSY), of("sleeper"));
        println!(
            "{collections} collections, {sleeper} ticks, {busy} samples of the busy thread, {unanswered} ticks without one"
        );
        // The first ticks and each snapshot may come at any time.
        assert!(3 * collections <= sleeper, "{collections} of {sleeper}");
    });
}

/// What a thread has done, by its own clocks.
struct Spent {
    /// Since the thread's beginning.
    cpu: Duration,
    rest: Duration,
}

/// Runs a thread that begins with `first`, then works and sleeps in turns, until it has this many
/// samples, and returns what it has done and the profile.
fn alternate(first: fn(), samples: usize) -> (Spent, Read) {
    let session = ProfilerSession::start(params()).expect("start");
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let (begin, begin_cpu) = (Instant::now(), thread_cpu());
        gekkota::register_thread(ALTERNATES);
        first();
        while ended.try_recv() == Err(TryRecvError::Empty) {
            works();
            sleeps();
        }
        gekkota::unregister_thread();
        let cpu = thread_cpu();
        let rest = begin.elapsed().saturating_sub(cpu - begin_cpu);
        Spent { cpu, rest }
    });
    wait_until("the thread has its samples", || {
        samples_so_far(ALTERNATES) >= samples
    });
    drop(end);
    let spent = thread.join().expect("thread");
    (
        spent,
        Read::from_profile(&session.finish().expect("profile")),
    )
}

fn intervals(time: Duration) -> u64 {
    (time.as_nanos() / INTERVAL.as_nanos()) as u64
}

/// Checks that no more samples are asleep than the thread's clocks allow. Returns how many samples show
/// the thread at work, and how many intervals it has run.
fn check_division(spent: &Spent, read: &Read) -> [u64; 2] {
    let samples = read.samples(ALTERNATES);
    let working = samples.iter().filter(|sample| is_in(sample, "::works"));
    let working = working.count() as u64;
    let sleeping = samples.len() as u64 - working;
    let cpu_ns: u64 = samples.iter().filter_map(|sample| sample.cpu_ns).sum();
    let (cpu, rest) = (intervals(spent.cpu), intervals(spent.rest));
    let unanswered = read.count("unanswered_ticks");
    println!(
        "{} samples, {working} working, {sleeping} sleeping, {unanswered} ticks without one; the thread had {cpu}          intervals of CPU time and {rest} others; {} collections",
        samples.len(),
        read.count("ticks"),
    );
    // The sampler may read the clock of a thread that is about to end after the thread itself has.
    assert!(intervals(Duration::from_nanos(cpu_ns)) <= cpu + TOLERANCE);
    assert!(
        sleeping <= rest + TOLERANCE,
        "{sleeping} of {rest} intervals"
    );
    [working, cpu]
}

#[test]
fn cpu_clock_divides_the_time_of_a_thread() {
    isolated(|| {
        let (spent, read) = alternate(|| (), 5 * SAMPLES);
        if is_refused(&read) {
            return;
        }
        // While it waits for a processor, it has samples here, too. At the beginning and at the end, and
        // if the sampler is kept from its work for long, it may run without any.
        let [working, cpu] = check_division(&spent, &read);
        assert!(2 * working >= cpu, "{working} of {cpu} intervals");
    });
}

#[test]
fn cpu_time_without_samples_is_not_shown_as_sleep() {
    isolated(|| {
        // The signal cannot reach the thread while it runs.
        let masks = || {
            SigSet::all().thread_block().expect("a mask");
            work_for_cpu(100 * INTERVAL);
        };
        let (spent, read) = alternate(masks, SAMPLES);
        check_division(&spent, &read);
    });
}

#[test]
fn thread_that_wakes_seldom_among_many_has_all_its_samples() {
    isolated(|| {
        let session = ProfilerSession::start(params()).expect("start");
        let sleepers: Vec<_> = (0..100).map(|_| Sleeper::start("sleeper")).collect();
        let last = Sleeper::start("last sleeper");
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            gekkota::register_thread(ALTERNATES);
            // The time is that after which the thread counts as idle for long, several times over.
            while ended.recv_timeout(200 * INTERVAL) == Err(RecvTimeoutError::Timeout) {
                works();
            }
        });
        wait_until("the sleeper has its samples", || {
            samples_so_far("last sleeper") >= 10 * SAMPLES
        });
        drop(end);
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        drop((sleepers, last));
        let [wakes, sleeps] = [ALTERNATES, "last sleeper"].map(|name| read.samples(name).len());
        println!("{wakes} samples of the thread that wakes, {sleeps} of one that sleeps");
        assert!(2 * wakes >= sleeps, "{wakes} of {sleeps}");
    });
}
