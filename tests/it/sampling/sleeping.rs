//! A thread that sleeps is left alone, and its samples are there all the same.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Read, isolated, work_for};
use gekkota::{ProfilerSession, StartParams};

static INTERRUPTED: AtomicU32 = AtomicU32::new(0);

/// Sleeps in a call that no `SA_RESTART` restarts, and counts how often it was interrupted.
#[inline(never)]
fn sleep_in_poll(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        // SAFETY: no descriptors are given.
        let answer = unsafe { libc::poll(std::ptr::null_mut(), 0, left.as_millis() as i32 + 1) };
        INTERRUPTED.fetch_add((answer == -1).into(), Ordering::Relaxed);
    }
}

#[test]
fn a_sleeping_thread_gets_samples_and_no_signals() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread("sleeper");
            sleep_in_poll(Duration::from_millis(600));
            work_for(Duration::from_millis(50));
            sleep_in_poll(Duration::from_millis(600));
        });
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));

        let samples = read.samples("sleeper");
        let asleep = samples.iter().filter(|sample| {
            sample
                .stack
                .iter()
                .any(|frame| frame.contains("sleep_in_poll"))
        });
        let asleep: Vec<_> = asleep.collect();
        let interrupted = INTERRUPTED.load(Ordering::Relaxed);
        println!(
            "{} samples, {} asleep, {interrupted} interruptions",
            samples.len(),
            asleep.len()
        );
        // On a busy machine the sampler misses ticks; it must not miss most of them.
        assert!(
            asleep.len() > 300,
            "{} samples asleep of {}",
            asleep.len(),
            samples.len()
        );
        // One for each of the two places that it sleeps in, and a few more on a busy machine.
        assert!(
            interrupted <= 6,
            "{interrupted} interruptions in two sleeps"
        );
        let cpu: u64 = asleep.iter().filter_map(|sample| sample.cpu_ns).sum();
        assert!(cpu < 30_000_000, "{cpu} ns of CPU time while asleep");
        assert!(
            samples
                .windows(2)
                .all(|pair| pair[0].time_ms <= pair[1].time_ms)
        );
    });
}

/// Falls asleep in another place after hardly any work.
#[inline(never)]
fn first_place() {
    sleep_in_poll(Duration::from_micros(2500));
    std::hint::black_box(1);
}

#[inline(never)]
fn second_place() {
    sleep_in_poll(Duration::from_millis(30));
    std::hint::black_box(2);
}

#[test]
fn a_thread_is_shown_where_it_sleeps() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread("moves");
            let mut second_ms = 0.0;
            for _ in 0..40 {
                first_place();
                let begin = Instant::now();
                second_place();
                second_ms += begin.elapsed().as_secs_f64() * 1e3;
            }
            second_ms
        });
        let truth_ms = thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples("moves");
        // Each sample stands for the time until the next.
        let shown_ms: f64 = samples
            .windows(2)
            .filter(|pair| {
                pair[0]
                    .stack
                    .iter()
                    .any(|frame| frame.contains("second_place"))
            })
            .map(|pair| pair[1].time_ms - pair[0].time_ms)
            .sum();
        println!("asleep in the second place: {truth_ms:.0} ms in truth, {shown_ms:.0} ms shown");
        let ratio = shown_ms / truth_ms;
        assert!(
            (0.80..=1.10).contains(&ratio),
            "{truth_ms:.0} ms in truth, {shown_ms:.0} ms shown"
        );
    });
}
