//! `idle`: cost of the profiler while 1,000 registered threads sleep, at 1,000 Hz.
//!
//! The figure is the CPU time of the sampler's thread, as the session counts it, in percent of one
//! processor. The threads sleep in `poll`,
//! `futex`, `nanosleep` and `read`, in equal parts, from before the session's start until after its
//! end. Once the session has settled, only the profiler could wake them. So every context switch
//! that the kernel counts in them over the span, voluntary or not, is caused by the profiler. Calls
//! that returned `EINTR` are counted, too.
//!
//! The floor is a thread that only sleeps from tick to tick, prepared as our sampler is. pprof-rs
//! is not a peer here: it follows the process's CPU time, so while all threads sleep, it is idle.
//!
//! Each run is a separate process; the arms are interleaved.

use crate::prelude::*;
use crate::raw::{monotonic_ns, prepare_sampler_thread, sleep_until_ns, thread_cpu_ns};
use crate::sleepers::Sleepers;

const THREADS: usize = 1000;
/// Wait after a session's start, until the profiler has found that every thread sleeps.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "idle",
    unit: "% of one CPU, with 1,000 sleeping threads",
    goal: "ours <= 5 % of one CPU, and no wake-up in any thread, at 1,000 Hz",
    floor: "sleeper",
    is_met: |study| study.at_most(&["ours"], 5.0) && study.at_most(&["ours_disturbed"], 0.0),
    rounds: [2, 3],
    sizes: [&[1500], &[8000]],
    size_names: &["ms after 2 s, with 1,000 threads"],
    arms: &["ours", "sleeper"],
    part: run,
    ..Measurement::NEW
};

/// Runs one round. Arguments: the arm, and the span in milliseconds. `unregistered` and
/// `registered` are arms of another measurement.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (arm, span) = (arguments.text(0)?, arguments.milliseconds(1)?);
    match arm {
        "sleeper" => Ok(json!({ arm: run_sleeper(span)? })),
        "unregistered" => run_ours(arm, || {}, span),
        _ => run_ours(arm, || register_thread(""), span),
    }
}

/// Measures with sleeping threads that each call `first`.
fn run_ours(arm: &str, first: fn(), span: Duration) -> Fallible<Value> {
    let sleepers = Sleepers::start(THREADS, first)?;
    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
    std::thread::sleep(SETTLE);
    let disturbed = || -> Fallible<u64> { Ok(sleepers.switches()? + sleepers.interrupted()) };
    let disturbed_before = disturbed()?;
    let counts_before = Counts::of(&session.snapshot()?);
    let before = monotonic_ns();
    std::thread::sleep(span);
    let after = monotonic_ns();
    let profile = session.finish()?;
    let counts = Counts::of(&profile).since(&counts_before);
    Ok(json!({
        arm: counts.get("sampler_cpu_ns") * 100.0 / (after - before) as f64,
        format!("{arm}_start_ms"): counts_before.get("sampler_cpu_ns") / 1e6,
        format!("{arm}_disturbed"): disturbed()? - disturbed_before,
        "also": counts.also(arm, &["ticks", "missed_ticks", "captured_samples", "remote_samples"]),
    }))
}

/// Returns the CPU time of a thread that only sleeps from tick to tick, in percent.
fn run_sleeper(span: Duration) -> Fallible<f64> {
    let thread = std::thread::spawn(move || {
        prepare_sampler_thread();
        let start = monotonic_ns();
        let (cpu_before, mut next) = (thread_cpu_ns(), start);
        while next < start + span.as_nanos() as u64 {
            next += INTERVAL.as_nanos() as u64;
            sleep_until_ns(next);
        }
        (thread_cpu_ns() - cpu_before) as f64 * 100.0 / (monotonic_ns() - start) as f64
    });
    Ok(thread.join().map_err(|_| "the sleeper panicked")?)
}
