//! `idle_bytes`: bytes of buffer per sleeping thread and second, at 1,000 Hz.
//!
//! The threads sleep in `poll`, `futex`, `nanosleep` and `read`, in equal parts, from before the
//! session's start until after its end, and only they are profiled. `ours` is for 1,000 threads,
//! `ours_one` for a single one: the bytes of all entries with samples that were put into the buffer
//! during the span, including their length prefixes, divided by threads and seconds. They include
//! what the snapshots at both ends add, because taking a snapshot brings the buffer up to date.
//! `every_entry` is all bytes that were put, including the counters of the process's CPU time and
//! memory, which have a value every 20 ms and belong to no thread.
//!
//! `gecko` is the size of the same samples in Gecko's buffer: its entries for a repeated sample, by
//! the model in `gecko_coding.rs`.
//!
//! Each run is a separate process; the two kinds of runs alternate.

use std::error::Error;
use std::time::{Duration, Instant};

use gekkota::{Profile, ProfilerSession, StartParams, register_thread};
use serde_json::{Value, json};

use crate::gecko_coding::SAME_SAMPLE_BYTES;
use crate::machine::{self, load_note};
use crate::profile::{ALL_SAMPLES, Entries, log_of, logged};
use crate::report::{Arm, Report};
use crate::sleepers::Sleepers;
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const THREADS: usize = 1000;
const NAME: &str = "sleeper";
/// Wait after the session's start, until the profiler has found that every thread sleeps.
const SETTLE: Duration = Duration::from_secs(2);
const GOAL_BYTES: f64 = 64.0;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, span_ms) = if effort.quick { (2, 2000) } else { (3, 10_000) };
    let (mut ours, mut gecko) = (Arm::new("ours"), Arm::new("gecko"));
    let mut every_entry = Arm::extra("every_entry");
    let [mut ours_one, mut every_entry_one] = ["ours_one", "every_entry_one"].map(Arm::extra);
    let mut notes = vec![format!(
        "{rounds} rounds of {span_ms} ms after {SETTLE:?}, alternately with {THREADS} threads and one; {}",
        load_note()
    )];
    for round in 1..=rounds {
        for (threads, ours, every_entry) in [
            (THREADS, &mut ours, &mut every_entry),
            (1, &mut ours_one, &mut every_entry_one),
        ] {
            let arguments = [threads.to_string(), span_ms.to_string()];
            let (run, taken) = machine::watch(|| child::run("idle_bytes", &arguments));
            let run = run?;
            ours.runs.extend(run["samples"].as_f64());
            every_entry.runs.extend(run["every_entry"].as_f64());
            if threads == THREADS {
                gecko.runs.extend(run["gecko"].as_f64());
            }
            notes.push(format!(
                "round {round}, {threads} threads: {}; CPUs used by other processes + the hypervisor: {taken}",
                run["note"].as_str().unwrap_or_default(),
            ));
        }
    }
    let met = [&ours, &ours_one]
        .iter()
        .all(|arm| arm.figure() <= GOAL_BYTES);
    Ok(Report {
        unit: "bytes of buffer per sleeping thread and second",
        ours,
        peers: vec![gecko, ours_one, every_entry, every_entry_one],
        floor: None,
        better: f64::min,
        goal: "ours and ours_one <= 64 bytes, at 1,000 Hz",
        met,
        notes,
    })
}

/// Runs one round in the child process. Arguments: the number of threads, and the span in
/// milliseconds.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [threads, span_ms] = arguments else {
        return Err("expected the number of threads and the span in ms".into());
    };
    let threads: usize = threads.parse()?;
    let _sleepers = Sleepers::start(threads, || register_thread(NAME))?;
    let session =
        ProfilerSession::start(StartParams::default().interval(INTERVAL).filters([NAME]))?;
    std::thread::sleep(SETTLE);
    let (before, begin) = (session.snapshot()?, Instant::now());
    std::thread::sleep(Duration::from_millis(span_ms.parse()?));
    let (after, seconds) = (session.finish()?, begin.elapsed().as_secs_f64());
    let (before, after) = (BufferState::of(&before)?, BufferState::of(&after)?);

    let per_thread_second = |bytes: u64| bytes as f64 / threads as f64 / seconds;
    let same_samples = after.same_samples - before.same_samples;
    let mut answer = json!({
        "every_entry": per_thread_second(after.put_bytes - before.put_bytes),
        "gecko": per_thread_second(same_samples * SAME_SAMPLE_BYTES),
    });
    let entries = match (before.samples, after.samples) {
        (Ok(before), Ok(after)) => {
            answer["samples"] = json!(per_thread_second(after.bytes - before.bytes));
            format!(
                "{} entries of {} bytes",
                after.count - before.count,
                after.bytes - before.bytes
            )
        }
        (Err(problem), _) | (_, Err(problem)) => format!("cannot compute ours: {problem}"),
    };
    answer["note"] = json!(format!(
        "{same_samples} samples of idle threads and {} others in {seconds:.1} s; {entries}",
        after.other_samples - before.other_samples,
    ));
    Ok(answer)
}

/// State of the buffer at the time of a snapshot.
struct BufferState {
    samples: Result<Entries, String>,
    put_bytes: u64,
    same_samples: u64,
    other_samples: u64,
}

impl BufferState {
    fn of(profile: &Profile) -> Result<Self, Box<dyn Error>> {
        let log = log_of(profile)?;
        if logged(&log, "buffer", "recycled_bytes") > 0 {
            return Err(
                "cannot measure: the buffer was full, so it no longer holds all entries".into(),
            );
        }
        let count = |name| logged(&log, "sampler", name);
        Ok(Self {
            samples: Entries::of(&log, &ALL_SAMPLES),
            put_bytes: logged(&log, "buffer", "put_bytes"),
            same_samples: count("same_samples"),
            other_samples: count("captured_samples") + count("remote_samples"),
        })
    }
}
