//! `idle`: cost of the profiler while 1,000 registered threads sleep, at 1,000 Hz.
//!
//! The figure is the CPU time of the sampler's thread, as the session counts it, in percent of one
//! processor. The notes have the whole process's CPU time as a check. The threads sleep in `poll`,
//! `futex`, `nanosleep` and `read`, in equal parts, from before the session's start until after its
//! end. Once the session has settled, only the profiler could wake them. So every context switch
//! that the kernel counts in them over the span, voluntary or not, is caused by the profiler. Calls
//! that returned `EINTR` are counted as well; those before the span are counted separately.
//!
//! The floor is a thread that only sleeps from tick to tick, prepared as our sampler is. pprof-rs
//! follows the process's CPU time: while all threads sleep, it does nothing and takes no samples.
//!
//! Each run is a separate process; the arms are interleaved.

use std::error::Error;
use std::time::Duration;

use gekkota::{Profile, ProfilerSession, StartParams, register_thread};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::memory::resident_bytes;
use crate::profile::{count, engine_of_params};
use crate::raw::{
    monotonic_ns, prepare_sampler_thread, process_cpu_ns, sleep_until_ns, thread_cpu_ns,
};
use crate::report::{Arm, Report};
use crate::sleepers::{STACK_BYTES, Sleepers, Wakes};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const THREADS: usize = 1000;
/// Wait after a session's start, until the profiler has found that every thread sleeps.
const SETTLE: Duration = Duration::from_secs(2);
const GOAL_PERCENT: f64 = 5.0;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, span_ms) = if effort.quick { (2, 1500) } else { (3, 8000) };
    let mut ours = Arm::new("ours");
    let (mut pprof, mut sleeper) = (Arm::new("pprof"), Arm::new("sleeper"));
    let mut notes = vec![
        format!(
            "{rounds} rounds of {span_ms} ms per arm after {SETTLE:?}, interleaved; {THREADS} threads, stacks of {} KiB; {}",
            STACK_BYTES >> 10,
            load_note()
        ),
        "pprof follows CPU time: while all threads sleep, it does nothing and takes no samples"
            .to_owned(),
    ];
    let mut disturbed = 0;
    for round in 1..=rounds {
        for arm in [&mut ours, &mut pprof, &mut sleeper] {
            let arguments = [arm.name.to_owned(), span_ms.to_string()];
            let (run, taken) = machine::watch(|| child::run("idle", &arguments));
            let run = run?;
            arm.runs.extend(run["percent"].as_f64());
            if arm.name == "ours" {
                disturbed += run["wake_ups"].as_u64().unwrap_or(1)
                    + run["interrupted"].as_u64().unwrap_or(1);
            }
            notes.push(format!(
                "round {round}: {}: {}; CPUs used by other processes + the hypervisor: {taken}",
                arm.name,
                run["note"].as_str().unwrap_or_default(),
            ));
        }
    }
    let met = ours.figure() <= GOAL_PERCENT && disturbed == 0;
    Ok(Report {
        unit: "% of one CPU, with 1,000 sleeping threads",
        ours,
        peers: vec![pprof],
        floor: Some(sleeper),
        better: f64::min,
        goal: "ours <= 5 % of one CPU, and no wake-up in any thread, at 1,000 Hz",
        met,
        notes,
    })
}

/// Runs one round in the child process. Arguments: the arm, and the span in milliseconds.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [arm, span_ms] = arguments else {
        return Err("expected an arm and the span in ms".into());
    };
    let span = Duration::from_millis(span_ms.parse()?);
    match arm.as_str() {
        "ours" => run_ours(|| register_thread(""), span),
        // An arm of `unregistered`.
        "ours_unregistered" => run_ours(|| {}, span),
        "pprof" => run_pprof(span),
        "sleeper" => run_sleeper(span),
        other => Err(format!("unknown arm `{other}`").into()),
    }
}

/// Measures with sleeping threads that each call `first`.
fn run_ours(first: fn(), span: Duration) -> Result<Value, Box<dyn Error>> {
    let params = StartParams::default().interval(INTERVAL);
    let engine = engine_of_params(params.clone())?;
    let bare_bytes = resident_bytes();
    let sleepers = Sleepers::start(THREADS, first)?;
    let registered_bytes = resident_bytes();
    let session = ProfilerSession::start(params)?;
    std::thread::sleep(SETTLE);

    let switches_before = sleepers.switches()?;
    let interrupted_before = sleepers.interrupted();
    let counts_before = Counts::of(&session.snapshot()?);
    let (cpu_before, before) = (process_cpu_ns(), monotonic_ns());
    std::thread::sleep(span);
    let (cpu_after, after) = (process_cpu_ns(), monotonic_ns());
    let profile = session.finish()?;
    let counts = Counts::of(&profile).since(&counts_before);
    let switches = sleepers.switches()?;

    let percent = |cpu_ns: u64| cpu_ns as f64 * 100.0 / (after - before) as f64;
    let Wakes { switches, threads } = Wakes::between(&switches_before, &switches);
    let interrupted = sleepers.interrupted() - interrupted_before;
    let note = format!(
        "engine: {engine}; {switches} wake-ups in {threads} threads, {interrupted} calls interrupted, and \
         {interrupted_before} before the span; {} ticks of {:.1} µs of CPU time, {} missed; {} captured and {} remote \
         samples, including this program's main thread; {:.2} % by the process's clock; resident MiB above the start: \
         {:.1} with the threads, {:.1} once registered, {:.1} at the end of the session",
        counts.ticks,
        counts.sampler_cpu_ns as f64 / 1e3 / counts.ticks as f64,
        counts.missed_ticks,
        counts.captured_samples,
        counts.remote_samples,
        percent(cpu_after - cpu_before),
        mib(sleepers.bytes_before_registering.saturating_sub(bare_bytes)),
        mib(registered_bytes.saturating_sub(bare_bytes)),
        mib(resident_bytes().saturating_sub(bare_bytes)),
    );
    Ok(json!({
        "percent": percent(counts.sampler_cpu_ns),
        "before_span_ms": counts_before.sampler_cpu_ns as f64 / 1e6,
        "wake_ups": switches,
        "interrupted": interrupted,
        "note": note,
    }))
}

fn run_pprof(span: Duration) -> Result<Value, Box<dyn Error>> {
    let sleepers = Sleepers::start(THREADS, || {})?;
    let frequency = 1.0 / INTERVAL.as_secs_f64();
    let guard = pprof::ProfilerGuard::new(frequency as i32)?;
    std::thread::sleep(SETTLE);
    let (switches_before, interrupted_before) = (sleepers.switches()?, sleepers.interrupted());
    let (cpu_before, before) = (process_cpu_ns(), monotonic_ns());
    std::thread::sleep(span);
    let (cpu_after, after) = (process_cpu_ns(), monotonic_ns());
    let Wakes { switches, threads } = Wakes::between(&switches_before, &sleepers.switches()?);
    let interrupted = sleepers.interrupted() - interrupted_before;
    drop(guard);
    let percent = (cpu_after - cpu_before) as f64 * 100.0 / (after - before) as f64;
    let note = format!("{switches} wake-ups in {threads} threads, {interrupted} calls interrupted");
    Ok(json!({"percent": percent, "note": note}))
}

fn run_sleeper(span: Duration) -> Result<Value, Box<dyn Error>> {
    let interval = INTERVAL.as_nanos() as u64;
    let thread = std::thread::spawn(move || {
        prepare_sampler_thread();
        let start = monotonic_ns();
        let (cpu_before, mut next, mut ticks) = (thread_cpu_ns(), start, 0u64);
        while next < start + span.as_nanos() as u64 {
            next += interval;
            sleep_until_ns(next);
            ticks += 1;
        }
        let (cpu_ns, ns) = (thread_cpu_ns() - cpu_before, monotonic_ns() - start);
        (cpu_ns as f64 * 100.0 / ns as f64, ticks)
    });
    let (percent, ticks) = thread.join().map_err(|_| "the sleeper panicked")?;
    Ok(json!({"percent": percent, "note": format!("{ticks} ticks")}))
}

/// Counters of the session.
struct Counts {
    ticks: u64,
    missed_ticks: u64,
    captured_samples: u64,
    remote_samples: u64,
    sampler_cpu_ns: u64,
}

impl Counts {
    fn of(profile: &Profile) -> Self {
        let count = |name| count(profile, name).unwrap_or(0);
        Self {
            ticks: count("ticks"),
            missed_ticks: count("missed_ticks"),
            captured_samples: count("captured_samples"),
            remote_samples: count("remote_samples"),
            sampler_cpu_ns: count("sampler_cpu_ns"),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            ticks: self.ticks - before.ticks,
            missed_ticks: self.missed_ticks - before.missed_ticks,
            captured_samples: self.captured_samples - before.captured_samples,
            remote_samples: self.remote_samples - before.remote_samples,
            sampler_cpu_ns: self.sampler_cpu_ns - before.sampler_cpu_ns,
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
