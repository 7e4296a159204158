//! `hand_over`: CPU time of a program whose threads sleep after each few microseconds, as those of a
//! busy server do, relative to the time without a profiler.
//!
//! Eight pairs of threads hand one byte back and forth. What a profiler does at each sleep and each
//! wake of a thread shows here, and in no measurement of threads that compute. The figure is the CPU
//! time of the process for a round trip, divided by that without a profiler in the same round.
//!
//! Each run is a separate process; the arms are interleaved.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::prelude::*;
use crate::raw::process_cpu_ns;
use crate::threads::Threads;

const PAIRS: usize = 8;
/// Wait after the start, until the profiler has settled.
const SETTLE: Duration = Duration::from_millis(500);
const ARMS: [&str; 5] = ["none", "ours", "ours_always_on", "pprof", "none_again"];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "hand_over",
    unit: "CPU time of a round trip between two threads / without a profiler, 8 pairs, at 1,000 Hz",
    goal: "ours <= 1.25, ours_always_on <= 1.05",
    floor: "none_again",
    peers: &["pprof"],
    is_met: |study| study.at_most(&["ours"], 1.25) && study.at_most(&["ours_always_on"], 1.05),
    measure: |study| {
        let span_ms = study.pick(700, 2000);
        study.rounds(
            study.pick(3, 15),
            format!("{span_ms} ms per arm"),
            |study, _| {
                let mut none = f64::NAN;
                for arm in ARMS {
                    let ns = number(&child::run("hand_over", &[&arm, &span_ms])?, "ns")?;
                    match arm {
                        "none" => none = ns,
                        _ => study.push(arm, ns / none),
                    }
                }
                study.push("ns_none", none);
                Ok(())
            },
        )
    },
    part: run,
    ..Measurement::NEW
};

/// Runs one arm. Arguments: the arm, and the span in milliseconds.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (arm, span) = (arguments.text(0)?, arguments.milliseconds(1)?);
    let trips = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..PAIRS {
        let (near, far) = UnixStream::pair()?;
        let (near, far) = (Arc::new(near), Arc::new(far));
        let answers = move |_| {
            register_thread("answers");
            Arc::clone(&far)
        };
        threads.push(Threads::start(1, "answers", answers, |stream| {
            let mut byte = [0];
            let mut stream = &**stream;
            if stream.read_exact(&mut byte).is_ok() {
                // At the end the other side is gone.
                let _ = stream.write_all(&byte);
            }
        })?);
        let trips = Arc::clone(&trips);
        let asks = move |_| {
            register_thread("asks");
            (Arc::clone(&near), Arc::clone(&trips))
        };
        threads.push(Threads::start(1, "asks", asks, |(stream, trips)| {
            let mut byte = [0];
            let mut stream = &**stream;
            if stream.write_all(&byte).is_ok() && stream.read_exact(&mut byte).is_ok() {
                trips.fetch_add(1, Ordering::Relaxed);
            }
        })?);
    }
    let params = match arm {
        "ours" => Some(StartParams::default().interval(INTERVAL)),
        "ours_always_on" => Some(StartParams::always_on()),
        _ => None,
    };
    let _session = params.map(ProfilerSession::start).transpose()?;
    let _pprof = (arm == "pprof")
        .then(|| pprof_rs::start(INTERVAL))
        .transpose()?;
    std::thread::sleep(SETTLE);
    let before = (process_cpu_ns(), trips.load(Ordering::Relaxed));
    std::thread::sleep(span);
    let ns = process_cpu_ns() - before.0;
    let done = trips.load(Ordering::Relaxed) - before.1;
    // Those that ask end before those that answer, because a thread that waits for a byte hears
    // nothing else.
    while let Some(last) = threads.pop() {
        drop(last);
    }
    Ok(json!({ "ns": ns as f64 / done as f64 }))
}
