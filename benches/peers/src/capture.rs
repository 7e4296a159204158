//! `capture`: share of the CPU time of 2, 8 and 64 busy threads that the samples account for, at
//! 1,000 Hz.
//!
//! A sample of ours accounts for its `threadCPUDelta`, as in Gecko's profiles: the CPU time that
//! its thread used since the previous sample. The figure is the sum of these deltas divided by the
//! CPU time that the threads' own clocks show between the same two moments. With more threads than
//! processors, most ticks find a thread that waits for a processor. Such a sample accounts for
//! nothing, so a plain count of samples would not be a time.
//!
//! This sum hides late samples, because a late sample accounts for a longer time. The notes have the
//! share of the CPU time in samples of more than two intervals, which a viewer can no longer resolve.
//!
//! A peer's figure is its number of samples of the threads × interval, divided by the same CPU
//! time. `ours_by_count` is the same measure: the number of our samples of threads that ran ×
//! interval, divided by that time.
//!
//! Each run is a separate process; the arms are interleaved.

use std::error::Error;
use std::ops::Range;
use std::sync::mpsc::channel;
use std::time::Duration;

use gekkota::{ProfilerSession, StartParams, register_thread};
use serde_json::{Value, json};

use crate::busy::BusyThreads;
use crate::machine::{self, load_note};
use crate::profile::{column, count, engine_of_params, running, threads, to_json};
use crate::raw::{monotonic_ns, thread_id};
use crate::raw_threads;
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
/// Prefix of the busy threads' names.
const BUSY_NAME: &str = "busy ";
/// Time before the measurement: the processors reach their full speed, and each thread gets to run.
const WARM_UP: Duration = Duration::from_millis(500);
/// Time after the measured span for the last samples to arrive: a thread that waits for a processor
/// answers only when it runs.
const LAST_ANSWERS: Duration = Duration::from_millis(300);
const TOLERANCE: f64 = 0.02;

/// Number of threads, and the names of the arms: ours, ours by count, and pprof. The hardest
/// setting comes first: its figures are the compared ones.
const SETTINGS: [(usize, [&str; 3]); 3] = [
    (64, ["ours", "ours_by_count", "pprof"]),
    (
        8,
        [
            "ours_8_threads",
            "ours_by_count_8_threads",
            "pprof_8_threads",
        ],
    ),
    (
        2,
        [
            "ours_2_threads",
            "ours_by_count_2_threads",
            "pprof_2_threads",
        ],
    ),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, span_ms) = if effort.quick { (2, 1000) } else { (3, 6000) };
    let mut arms = SETTINGS.map(|(_, names)| names.map(Arm::extra));
    arms[0] = SETTINGS[0].1.map(Arm::new);
    arms[0][1].extra = true;
    let mut notes = vec![format!(
        "{rounds} rounds of {span_ms} ms per arm and number of threads, interleaved; {}",
        load_note()
    )];
    for round in 1..=rounds {
        for ((count, _), [ours, by_count, pprof]) in SETTINGS.iter().zip(&mut arms) {
            let run = |profiler: &str| {
                child::run(
                    "capture",
                    &[profiler.to_owned(), count.to_string(), span_ms.to_string()],
                )
            };
            let (run_of_ours, taken_from_ours) = machine::watch(|| run("ours"));
            let run_of_ours = run_of_ours?;
            ours.runs.extend(run_of_ours["captured"].as_f64());
            by_count.runs.extend(run_of_ours["by_count"].as_f64());
            let (run_of_pprof, taken_from_pprof) = machine::watch(|| run("pprof"));
            pprof.runs.extend(run_of_pprof?["captured"].as_f64());
            let number = |name: &str| run_of_ours[name].as_f64().unwrap_or(f64::NAN);
            notes.push(format!(
                "round {round}, {count} threads: {:.4} of the CPU time is in samples of ours of more than two \
                 intervals; the threads used {:.2} CPUs; engine: {}; {}; \
                 CPUs used by other processes + the hypervisor: ours {taken_from_ours}, pprof {taken_from_pprof}",
                number("coarse"),
                number("processors"),
                run_of_ours["engine"].as_str().unwrap_or_default(),
                run_of_ours["counts"].as_str().unwrap_or_default(),
            ));
        }
    }
    let met = arms
        .iter()
        .all(|[ours, ..]| (ours.figure() - 1.0).abs() <= TOLERANCE);
    let [[ours, by_count, pprof], fewer @ ..] = arms;
    Ok(Report {
        unit: "CPU time in samples / CPU time used, for 64 busy threads unless the name says otherwise",
        ours,
        peers: [pprof, by_count]
            .into_iter()
            .chain(fewer.into_iter().flatten())
            .collect(),
        floor: None,
        better: closer_to_one,
        goal: "ours within 2 % of 1 with 2, 8 and 64 busy threads at 1,000 Hz",
        met,
        notes,
    })
}

fn closer_to_one(a: f64, b: f64) -> f64 {
    if (b - 1.0).abs() < (a - 1.0).abs() {
        b
    } else {
        a
    }
}

/// Runs one round in the child process. Arguments: the profiler, the number of threads, and the
/// span in milliseconds.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [profiler, threads, span_ms] = arguments else {
        return Err("expected a profiler, the number of threads and the span in ms".into());
    };
    let (threads, span) = (threads.parse()?, Duration::from_millis(span_ms.parse()?));
    match profiler.as_str() {
        "ours" => run_ours(threads, || register_thread(""), span),
        // An arm of `unregistered`.
        "ours_unregistered" => run_ours(threads, || {}, span),
        "pprof" => run_pprof(threads, span),
        other => Err(format!("unknown profiler `{other}`").into()),
    }
}

/// Busy threads whose CPU clocks can be read.
struct ClockedThreads {
    _busy: BusyThreads,
    ids: Vec<i32>,
}

impl ClockedThreads {
    fn start(count: usize, first: fn()) -> Result<Self, Box<dyn Error>> {
        let (id, is_known) = channel();
        let busy = BusyThreads::start(count, move || {
            first();
            // The receiver lives until it has received this.
            let _ = id.send(thread_id());
        })?;
        Ok(Self {
            _busy: busy,
            ids: is_known.iter().take(count).collect(),
        })
    }

    fn read_clocks(&self) -> Result<Vec<Reading>, Box<dyn Error>> {
        let read = |&thread: &i32| {
            Some(Reading {
                thread,
                now_ns: monotonic_ns(),
                cpu_ns: raw_threads::cpu_ns_of(thread)?,
            })
        };
        self.ids
            .iter()
            .map(read)
            .collect::<Option<_>>()
            .ok_or_else(|| "cannot read the CPU clock of a busy thread".into())
    }
}

/// A reading of a thread's CPU clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    thread: i32,
    now_ns: u64,
    cpu_ns: u64,
}

/// A thread's span between two readings, in milliseconds since the profile's start.
struct Span {
    thread: i32,
    time_ms: Range<f64>,
    cpu_ns: u64,
}

fn spans(before: &[Reading], after: &[Reading], zero_ns: u64) -> Vec<Span> {
    let in_ms = |now_ns: u64| now_ns.saturating_sub(zero_ns) as f64 / 1e6;
    before
        .iter()
        .zip(after)
        .map(|(before, after)| Span {
            thread: before.thread,
            time_ms: in_ms(before.now_ns)..in_ms(after.now_ns),
            cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
        })
        .collect()
}

fn cpu_ns_of(spans: &[Span]) -> f64 {
    spans.iter().map(|span| span.cpu_ns as f64).sum()
}

/// Measures with busy threads that each call `first`.
fn run_ours(threads: usize, first: fn(), span: Duration) -> Result<Value, Box<dyn Error>> {
    let params = StartParams::default().interval(INTERVAL);
    // Done before the load starts, because the first session of a process tests which engine is
    // cheaper.
    let engine = engine_of_params(params.clone())?;
    let busy_threads = ClockedThreads::start(threads, first)?;
    let began_ns = monotonic_ns();
    let session = ProfilerSession::start(params)?;
    std::thread::sleep(WARM_UP);
    let before = busy_threads.read_clocks()?;
    std::thread::sleep(span);
    let after = busy_threads.read_clocks()?;
    std::thread::sleep(LAST_ANSWERS);
    let session_ns = monotonic_ns() - began_ns;
    let profile = session.finish()?;
    drop(busy_threads);

    let json = to_json(&profile)?;
    let zero = json["meta"]["startTimeAsClockMonotonicNanosecondsSinceBoot"].as_u64();
    let spans = spans(
        &before,
        &after,
        zero.ok_or("the profile has no start time")?,
    );
    let sums = sum_samples(&json, &spans)?;
    let cpu_ns = cpu_ns_of(&spans);
    let counts: Vec<String> = [
        "ticks",
        "late_ticks",
        "missed_ticks",
        "unanswered_ticks",
        "refused_events",
        "dropped_samples",
        "unregistered_threads",
    ]
    .iter()
    .filter_map(|name| Some(format!("{name} {}", count(&profile, name)?)))
    .collect();
    let wall_ns = spans.first().map_or(f64::NAN, |span| {
        (span.time_ms.end - span.time_ms.start) * 1e6
    });
    Ok(json!({
        "captured": sums.cpu_ns / cpu_ns,
        "by_count": sums.running as f64 * INTERVAL.as_nanos() as f64 / cpu_ns,
        "coarse": sums.coarse_cpu_ns / cpu_ns,
        "processors": cpu_ns / wall_ns,
        "sampler_percent": count(&profile, "sampler_cpu_ns").unwrap_or(0) as f64 * 100.0 / session_ns as f64,
        "engine": engine,
        "counts": counts.join(", "),
    }))
}

fn run_pprof(threads: usize, span: Duration) -> Result<Value, Box<dyn Error>> {
    let busy_threads = ClockedThreads::start(threads, || {})?;
    std::thread::sleep(WARM_UP);
    let frequency = 1.0 / INTERVAL.as_secs_f64();
    let guard = pprof::ProfilerGuard::new(frequency as i32)?;
    let before = busy_threads.read_clocks()?;
    std::thread::sleep(span);
    let after = busy_threads.read_clocks()?;
    let report = guard.report().build_unresolved()?;
    drop(busy_threads);
    let of_busy = report.data.iter().filter(|(stack, _)| {
        stack.thread_name[..stack.thread_name_length].starts_with(BUSY_NAME.as_bytes())
    });
    let samples: isize = of_busy.map(|(_, count)| *count).sum();
    let cpu_ns = cpu_ns_of(&spans(&before, &after, 0));
    Ok(json!({"captured": samples as f64 * INTERVAL.as_nanos() as f64 / cpu_ns}))
}

/// Sums over the samples within the threads' spans.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    /// CPU time that the samples account for.
    cpu_ns: f64,
    /// Number of samples of threads that ran.
    running: u64,
    /// CPU time in samples that account for more than two intervals each.
    coarse_cpu_ns: f64,
}

fn sum_samples(profile: &Value, spans: &[Span]) -> Result<Sums, Box<dyn Error>> {
    let interval_ns = INTERVAL.as_nanos() as f64;
    let mut sums = Sums::default();
    for span in spans {
        let thread =
            threads(profile).find(|thread| thread["tid"].as_i64() == Some(span.thread.into()));
        let thread = thread.ok_or_else(|| format!("the profile has no thread {}", span.thread))?;
        let samples = &thread["samples"];
        let running = running(profile, thread).ok_or("the profile lacks tables")?;
        let (times, deltas) = column(samples, "time")
            .zip(column(samples, "threadCPUDelta"))
            .ok_or("the profile has no sample times or CPU deltas")?;
        for ((time, delta), runs) in times.zip(deltas).zip(running) {
            let (Some(time), Some(delta)) = (time.as_f64(), delta.as_f64()) else {
                continue;
            };
            if span.time_ms.contains(&time) {
                sums.cpu_ns += delta;
                sums.running += u64::from(runs);
                sums.coarse_cpu_ns += if delta > 2.0 * interval_ns {
                    delta
                } else {
                    0.0
                };
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
            "frameTable": {"schema": {"category": 0}, "data": [[0]]},
            "stackTable": {"schema": {"frame": 0}, "data": [[0]]},
        });
        let profile = json!({"meta": {"categories": [{"name": "Other"}]}, "threads": [thread]});
        let span = |thread| Span {
            thread,
            time_ms: 10.0..20.0,
            cpu_ns: 1,
        };
        let expected = Sums {
            cpu_ns: 4e6,
            running: 2,
            coarse_cpu_ns: 3e6,
        };
        assert_eq!(sum_samples(&profile, &[span(7)]).expect("sums"), expected);
        assert!(sum_samples(&profile, &[span(8)]).is_err());
    }

    #[test]
    fn spans_use_the_profiles_time() {
        let before = Reading {
            thread: 7,
            now_ns: 3_000_000,
            cpu_ns: 10,
        };
        let after = Reading {
            thread: 7,
            now_ns: 5_500_000,
            cpu_ns: 35,
        };
        let spans = spans(&[before], &[after], 1_000_000);
        assert_eq!((spans[0].time_ms.clone(), spans[0].cpu_ns), (2.0..4.5, 25));
        assert_eq!(cpu_ns_of(&spans), 25.0);
    }

    #[test]
    fn closer_to_one_returns_the_closer_value() {
        assert_eq!(closer_to_one(1.03, 0.98), 0.98);
        assert_eq!(closer_to_one(1.01, 0.98), 1.01);
    }
}
