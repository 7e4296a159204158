//! `capture`: share of the CPU time of 2, 8 and 64 busy threads that the samples account for, at
//! 1,000 Hz.
//!
//! A sample of ours accounts for its `threadCPUDelta`, as in Gecko's profiles: the CPU time that
//! its thread used since the previous sample. The figure is the sum of these deltas divided by the
//! CPU time that the threads' own clocks show between the same two moments. With more threads than
//! processors, most ticks find a thread that waits for a processor. Such a sample accounts for
//! nothing, so a plain count of samples would not be a time.
//!
//! A peer's figure is its number of samples of the threads × interval, divided by the same CPU
//! time. `ours_by_count` is the same measure: the number of our samples of threads that ran ×
//! interval, divided by that time.
//!
//! Each run is a separate process; the arms are interleaved.

use std::ops::Range;

use crate::prelude::*;
use crate::profile::{Tables, running, threads, zero_ns};
use crate::raw::{cpu_ns_of, monotonic_ns};
use crate::threads::{BUSY_NAME, Threads, start_busy};

/// Time before the measurement: the processors reach their full speed, and each thread gets to run.
const WARM_UP: Duration = Duration::from_millis(500);
/// Time after the measured span for the last samples to arrive: a thread that waits for a processor
/// answers only when it runs.
const LAST_ANSWERS: Duration = Duration::from_millis(300);

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "capture",
    unit: "CPU time in samples / CPU time used, for as many busy threads as the name says",
    goal: "ours within 2 % of 1 with 2, 8 and 64 busy threads at 1,000 Hz",
    // The hardest setting is the compared one.
    ours: "ours_64",
    peers: &["pprof_64"],
    better: closer_to_one,
    is_met: |study| {
        let settings = ["ours_2", "ours_8", "ours_64"].iter();
        settings
            .map(|arm| study.figure(arm))
            .all(|figure| (figure - 1.0).abs() <= 0.02)
    },
    rounds: [2, 3],
    sizes: [&[1000], &[6000]],
    size_names: &["ms per arm"],
    arms: &[
        "ours_64", "pprof_64", "ours_8", "pprof_8", "ours_2", "pprof_2",
    ],
    part: run,
    ..Measurement::NEW
};

fn closer_to_one(a: f64, b: f64) -> f64 {
    if (b - 1.0).abs() < (a - 1.0).abs() {
        b
    } else {
        a
    }
}

/// Runs one round. Arguments: the arm, whose name ends with the number of threads, and the span in
/// milliseconds. `unregistered_64` and `registered_64` are arms of another measurement.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (arm, span) = (arguments.text(0)?, arguments.milliseconds(1)?);
    let (arm, threads) = arm.split_once('_').ok_or("expected a number of threads")?;
    let threads = threads.parse()?;
    match arm {
        "pprof" => run_pprof(arm, threads, span),
        "unregistered" => run_ours(arm, threads, || {}, span),
        _ => run_ours(arm, threads, || register_thread(""), span),
    }
}

/// A thread's span, and its CPU time.
struct Span {
    thread: i32,
    ns: Range<u64>,
    cpu_ns: f64,
}

/// Watches the threads for a span.
fn watch(threads: &Threads, span: Duration) -> Fallible<Vec<Span>> {
    let read = |&thread: &i32| Some((thread, monotonic_ns(), cpu_ns_of(thread)? as f64));
    let read_all = || -> Fallible<Vec<_>> {
        let readings: Option<_> = threads.ids.iter().map(read).collect();
        readings.ok_or_else(|| "cannot read the CPU clock of a busy thread".into())
    };
    let before = read_all()?;
    std::thread::sleep(span);
    let pairs = before.into_iter().zip(read_all()?);
    let span = |((thread, start, cpu_before), (_, end, cpu_after))| Span {
        thread,
        ns: start..end,
        cpu_ns: cpu_after - cpu_before,
    };
    Ok(pairs.map(span).collect())
}

/// Measures with busy threads that each call `first`.
fn run_ours(arm: &str, threads: usize, first: fn(), span: Duration) -> Fallible<Value> {
    let busy = start_busy(threads, first)?;
    let began_ns = monotonic_ns();
    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
    std::thread::sleep(WARM_UP);
    let spans = watch(&busy, span)?;
    std::thread::sleep(LAST_ANSWERS);
    let session_ns = (monotonic_ns() - began_ns) as f64;
    let profile = session.finish()?;
    drop(busy);

    let sums = sum_samples(&to_json(&profile)?, &spans)?;
    let cpu_ns: f64 = spans.iter().map(|span| span.cpu_ns).sum();
    let counts = Counts::of(&profile);
    let by_count = sums.running as f64 * INTERVAL.as_nanos() as f64 / cpu_ns;
    Ok(json!({
        format!("{arm}_{threads}"): sums.cpu_ns / cpu_ns,
        format!("{arm}_by_count_{threads}"): by_count,
        format!("{arm}_sampler_{threads}"): counts.get("sampler_cpu_ns") * 100.0 / session_ns,
        "also": counts.also(&format!("{arm}_{threads}"), &["ticks", "missed_ticks", "unanswered_ticks", "dropped_samples"]),
    }))
}

fn run_pprof(arm: &str, threads: usize, span: Duration) -> Fallible<Value> {
    let busy = start_busy(threads, || {})?;
    std::thread::sleep(WARM_UP);
    let guard = pprof_rs::start(INTERVAL)?;
    let spans = watch(&busy, span)?;
    let sampled_ns = pprof_rs::samples_of(&guard, BUSY_NAME)? * INTERVAL.as_nanos() as f64;
    let cpu_ns: f64 = spans.iter().map(|span| span.cpu_ns).sum();
    Ok(json!({ format!("{arm}_{threads}"): sampled_ns / cpu_ns }))
}

/// Sums over the samples within the threads' spans.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    /// CPU time that the samples account for.
    cpu_ns: f64,
    /// Number of samples of threads that ran.
    running: u64,
}

fn sum_samples(profile: &Value, spans: &[Span]) -> Fallible<Sums> {
    let zero_ns = zero_ns(profile)? as f64;
    let mut sums = Sums::default();
    for span in spans {
        let mut threads = threads(profile);
        let thread = threads.find(|thread| thread["tid"].as_i64() == Some(span.thread.into()));
        let thread = thread.ok_or_else(|| format!("the profile has no thread {}", span.thread))?;
        let samples = Tables(thread).samples().zip(running(profile, thread));
        let (samples, running) = samples.ok_or("the profile lacks tables")?;
        for (sample, runs) in samples.into_iter().zip(running) {
            let ns = (zero_ns + sample.time_ms * 1e6) as u64;
            if span.ns.contains(&ns) {
                sums.cpu_ns += sample.cpu_ns.unwrap_or(0.0);
                sums.running += u64::from(runs);
            }
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_samples_counts_only_samples_within_the_threads_span() {
        let samples = json!({
            "schema": {"stack": 0, "time": 1, "eventDelay": 2, "threadCPUDelta": 3},
            "data": [[0, 9.5, null, 5e6], [0, 10.5, null, 1e6], [0, 11.5, null, 0], [0, 14.5, null, 3e6], [0, 20.0, null, 1e6]],
        });
        let thread = json!({
            "tid": 7,
            "samples": samples,
            "stringTable": ["work"],
            "frameTable": {"schema": {"location": 0, "category": 0}, "data": [[0]]},
            "stackTable": {"schema": {"prefix": 1, "frame": 0}, "data": [[0]]},
        });
        let profile = json!({"meta": {"startTimeAsClockMonotonicNanosecondsSinceBoot": 5_000_000, "categories": [{"name": "Other"}, {"name": "Idle"}]}, "threads": [thread]});
        let span = |thread| Span {
            thread,
            ns: 15_000_000..25_000_000,
            cpu_ns: 1.0,
        };
        let expected = Sums {
            cpu_ns: 4e6,
            running: 2,
        };
        assert_eq!(sum_samples(&profile, &[span(7)]).expect("sums"), expected);
        assert!(sum_samples(&profile, &[span(8)]).is_err());
    }

    #[test]
    fn closer_to_one_returns_the_closer_value() {
        assert_eq!(closer_to_one(1.03, 0.98), 0.98);
        assert_eq!(closer_to_one(1.01, 0.98), 1.01);
    }
}
