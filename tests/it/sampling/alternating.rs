//! A thread that works for 5 ms and waits for 20 ms in turns is shown as it was, and not disturbed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Read, Sample, Sleeper, isolated, work_for};
use gekkota::{AutoProfilerThreadSleep, ProfilerSession, StartParams};

const ROUNDS: u32 = 100;
static INTERRUPTED: AtomicU32 = AtomicU32::new(0);

#[inline(never)]
fn works() {
    work_for(Duration::from_millis(5));
    std::hint::black_box(1);
}

/// `epoll_wait` is never restarted by itself: an interruption is seen.
#[inline(never)]
fn waits(epoll: i32) {
    let end = Instant::now() + Duration::from_millis(20);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        // SAFETY: the kernel writes at most one event to the local.
        let answer = unsafe {
            let mut event: libc::epoll_event = std::mem::zeroed();
            libc::epoll_wait(epoll, &mut event, 1, left.as_millis() as i32 + 1)
        };
        INTERRUPTED.fetch_add((answer == -1).into(), Ordering::Relaxed);
    }
    std::hint::black_box(2);
}

/// Wall time in work and in waiting.
fn alternate(announce: bool) -> (f64, f64) {
    // SAFETY: makes a descriptor.
    let epoll = unsafe { libc::epoll_create1(0) };
    assert!(epoll >= 0);
    let (mut working, mut waiting) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        works();
        let between = Instant::now();
        {
            let _asleep = announce.then(AutoProfilerThreadSleep::new);
            waits(epoll);
        }
        working += (between - begin).as_secs_f64() * 1e3;
        waiting += between.elapsed().as_secs_f64() * 1e3;
    }
    // SAFETY: made above.
    unsafe { libc::close(epoll) };
    (working, waiting)
}

/// Each sample stands for the time until the next.
fn shown_ms(samples: &[Sample], function: &str) -> f64 {
    let pairs = samples
        .windows(2)
        .filter(|pair| pair[0].stack.iter().any(|frame| frame.contains(function)));
    pairs.map(|pair| pair[1].time_ms - pair[0].time_ms).sum()
}

fn check(announce: bool, idle_threads: usize) {
    INTERRUPTED.store(0, Ordering::Relaxed);
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let idle: Vec<_> = (0..idle_threads).map(|_| Sleeper::start("idle")).collect();
    let thread = std::thread::spawn(move || {
        gekkota::register_thread("alternates");
        alternate(announce)
    });
    let (working, waiting) = thread.join().expect("thread");
    drop(idle);
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples("alternates");
    let shown = ["::works", "::waits"].map(|function| shown_ms(&samples, function));
    let interrupted = INTERRUPTED.load(Ordering::Relaxed);
    println!(
        "announced {announce}, beside {idle_threads} idle: worked {working:.0} ms, shown {:.0}; waited {waiting:.0} ms, shown {:.0}; {} samples, \
         {interrupted} interruptions, {} read from outside",
        shown[0],
        shown[1],
        samples.len(),
        read.count("samples_from_outside"),
    );
    // In each of the hundred rounds, half a tick is lost or won at either end; on a busy machine, what the sampler missed.
    let (ticks, missed) = (
        read.count("ticks") as f64,
        read.count("missed_ticks") as f64,
    );
    let tolerance = 0.12 + missed / (ticks + missed);
    for (truth, shown) in [(working, shown[0]), (waiting, shown[1])] {
        assert!(
            (shown / truth - 1.0).abs() < tolerance,
            "{truth:.0} ms in truth, {shown:.0} ms shown"
        );
    }
    let on_neither = samples.iter().filter(|sample| {
        !sample
            .stack
            .iter()
            .any(|frame| frame.contains("::works") || frame.contains("::waits"))
    });
    assert!(on_neither.count() * 50 < samples.len());
    // Once for each place that needs it, and a few more on a busy machine; without any care it would be twenty a round.
    assert!(
        interrupted <= 10,
        "{interrupted} interruptions in {ROUNDS} waits"
    );
}

#[test]
fn a_thread_that_alternates_is_shown_as_it_is() {
    isolated(|| check(false, 0));
}

#[test]
fn a_thread_that_alternates_is_shown_announced() {
    isolated(|| check(true, 0));
}

#[test]
fn a_thread_that_alternates_is_shown_beside_idle_threads() {
    isolated(|| check(false, 16));
}

#[test]
fn a_thread_that_alternates_is_shown_announced_beside_idle_threads() {
    isolated(|| check(true, 16));
}
