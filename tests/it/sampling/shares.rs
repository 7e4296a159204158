//! The profile shows the truth: two functions that share the time about 3 to 1, as the program itself measures it.

use std::time::{Duration, Instant};

use crate::common::{Read, isolated, thread_cpu, work};
use gekkota::{ProfilerSession, StartParams};

const CPU_TIME: Duration = Duration::from_secs(5);
/// Beside others the CPU time takes longer to come by, but not for ever.
const PATIENCE: Duration = Duration::from_secs(60);
const THREE_ROUNDS: u64 = 30_000;
const ONE_ROUNDS: u64 = 10_000;

#[inline(never)]
fn three_parts() -> u64 {
    work(THREE_ROUNDS)
}

#[inline(never)]
fn one_part() -> u64 {
    work(ONE_ROUNDS)
}

/// What the program knows of itself.
struct Truth {
    /// How long the two functions took, waiting for a processor included.
    three: Duration,
    one: Duration,
    cpu: Duration,
}

/// The turns have no fixed length, since one that fits the interval would show the profiler the same moment of it again and
/// again. Nothing between them enters the kernel: a thread whose time slice is over loses its processor there, so that it
/// would wait at the ends of the functions, and in the longer one more often than in the other.
fn run() -> Truth {
    let (begin, cpu_begin) = (Instant::now(), thread_cpu());
    let mut spent = [Duration::ZERO; 2];
    let mut seed = 12345u64;
    while thread_cpu() - cpu_begin < CPU_TIME && begin.elapsed() < PATIENCE {
        for _ in 0..50 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let turns = 1 + (seed >> 33) % 20;
            for (function, spent) in [three_parts, one_part].into_iter().zip(&mut spent) {
                let before = Instant::now();
                for _ in 0..turns {
                    std::hint::black_box(function());
                }
                *spent += before.elapsed();
            }
        }
    }
    let [three, one] = spent;
    Truth {
        three,
        one,
        cpu: thread_cpu() - cpu_begin,
    }
}

#[test]
fn shares_and_sums_are_those_that_the_program_measures() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let truth = std::thread::spawn(|| {
            gekkota::register_thread("busy");
            // The sampler notices the thread within a tick; from then on it is sampled.
            std::thread::sleep(Duration::from_millis(20));
            run()
        });
        let truth = truth.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));

        let samples = read.samples("busy");
        let of = |name: &str| {
            let has = |stack: &[String]| stack.iter().any(|frame| frame.contains(name));
            let matching: Vec<_> = samples.iter().filter(|sample| has(&sample.stack)).collect();
            let cpu_ns: u64 = matching
                .iter()
                .map(|sample| sample.cpu_ns.expect("CPU time"))
                .sum();
            (matching.len(), Duration::from_nanos(cpu_ns))
        };
        let (three_samples, three_shown) = of("three_parts");
        let (one_samples, one_shown) = of("one_part");

        let percent = |part: f64, other: f64| 100.0 * part / (part + other);
        let seconds =
            |part: Duration, other: Duration| percent(part.as_secs_f64(), other.as_secs_f64());
        let (worked, shown) = (
            percent(THREE_ROUNDS as f64, ONE_ROUNDS as f64),
            seconds(three_shown, one_shown),
        );
        let (took, by_count) = (
            seconds(truth.three, truth.one),
            percent(three_samples as f64, one_samples as f64),
        );
        println!(
            "share of three_parts: {worked:.2} % of the work, {shown:.2} % of the CPU time shown; {took:.2} % of the time, \
         {by_count:.2} % of the samples"
        );
        assert!(
            (worked - shown).abs() <= 3.0,
            "{worked:.2} % of the work, shown {shown:.2} %"
        );
        // The viewer's tree counts samples. A machine that was too busy to take them says nothing of that.
        if three_samples + one_samples > 3000 {
            assert!(
                (took - by_count).abs() <= 3.0,
                "{took:.2} % of the time, {by_count:.2} % of the samples"
            );
        }

        let awake = samples
            .iter()
            .filter(|sample| sample.cpu_ns.is_some_and(|cpu| cpu > 0))
            .count();
        let sampled = Duration::from_millis(awake as u64);
        let shown: Duration = samples
            .iter()
            .filter_map(|sample| sample.cpu_ns)
            .map(Duration::from_nanos)
            .sum();
        println!(
            "CPU time: measured {:?}, in the samples {shown:?}, samples with CPU time x interval {sampled:?}",
            truth.cpu
        );
        let ratio = shown.as_secs_f64() / truth.cpu.as_secs_f64();
        assert!(
            (0.98..=1.02).contains(&ratio),
            "measured {:?}, in the samples {shown:?}",
            truth.cpu
        );
    });
}
