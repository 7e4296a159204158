//! The profile shows the truth: two functions that share the time about 3 to 1, as the program itself measures it.
#![cfg(has_profiler)]

mod common;

use std::time::{Duration, Instant};

use common::{Read, thread_cpu, work};
use gekkota::{ProfilerSession, StartParams};

const SECONDS: u64 = 5;

#[inline(never)]
fn three_parts() -> u64 {
    work(30_000)
}

#[inline(never)]
fn one_part() -> u64 {
    work(10_000)
}

/// CPU time of the two functions, and of the whole. The turns have no fixed length, since one that fits the interval
/// would show the profiler the same moment of it again and again.
fn run(time: Duration) -> [Duration; 3] {
    let begin = thread_cpu();
    let mut spent = [Duration::ZERO; 2];
    let end = Instant::now() + time;
    let mut seed = 12345u64;
    while Instant::now() < end {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let turns = 100 + (seed >> 33) % 400;
        for (function, spent) in [three_parts, one_part].into_iter().zip(&mut spent) {
            let before = thread_cpu();
            for _ in 0..turns {
                std::hint::black_box(function());
            }
            *spent += thread_cpu() - before;
        }
    }
    [spent[0], spent[1], thread_cpu() - begin]
}

#[test]
fn shares_and_sums_are_those_that_the_program_measures() {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let truth = std::thread::spawn(|| {
        gekkota::register_thread("busy");
        // The sampler notices the thread within a tick; from then on it is sampled.
        std::thread::sleep(Duration::from_millis(20));
        run(Duration::from_secs(SECONDS))
    });
    let [three, one, whole] = truth.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));

    let samples = read.samples("busy");
    let of = |name: &str| {
        let has = |stack: &[String]| stack.iter().any(|frame| frame.contains(name));
        let matching: Vec<_> = samples.iter().filter(|sample| has(&sample.stack)).collect();
        let cpu_ns: u64 = matching.iter().map(|sample| sample.cpu_ns.expect("CPU time")).sum();
        (matching.len(), Duration::from_nanos(cpu_ns))
    };
    let (three_samples, three_shown) = of("three_parts");
    let (one_samples, one_shown) = of("one_part");

    let percent = |part: Duration, other: Duration| 100.0 * part.as_secs_f64() / (part + other).as_secs_f64();
    let (truth, shown) = (percent(three, one), percent(three_shown, one_shown));
    let by_count = 100.0 * three_samples as f64 / (three_samples + one_samples) as f64;
    println!(
        "share of three_parts: measured {truth:.2} %, shown {shown:.2} % by CPU time, {by_count:.2} % by samples"
    );
    assert!((truth - shown).abs() <= 3.0, "measured {truth:.2} %, shown {shown:.2} %");
    // The viewer's tree counts samples. A machine that was too busy to take them says nothing of that.
    if three_samples + one_samples > 3000 {
        assert!((truth - by_count).abs() <= 3.0, "measured {truth:.2} %, {by_count:.2} % by samples");
    }

    let awake = samples.iter().filter(|sample| sample.cpu_ns.is_some_and(|cpu| cpu > 0)).count();
    let sampled = Duration::from_millis(awake as u64);
    let shown: Duration = samples.iter().filter_map(|sample| sample.cpu_ns).map(Duration::from_nanos).sum();
    println!(
        "CPU time: measured {whole:?}, in the samples {shown:?}, samples with CPU time x interval {sampled:?}"
    );
    let ratio = shown.as_secs_f64() / whole.as_secs_f64();
    assert!((0.98..=1.02).contains(&ratio), "measured {whole:?}, in the samples {shown:?}");
}
