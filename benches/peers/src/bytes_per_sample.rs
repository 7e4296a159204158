//! `bytes_per_sample`: bytes of buffer per sample of a real program, at 1,000 Hz.
//!
//! The program is the workload of the example `quick_start`: two to four workers search and
//! compress text files, other threads sleep. `ours` covers the workers only: one entry can hold
//! hundreds of samples of a sleeping thread, and these would hide the cost of the others.
//! `ours_whole` covers the whole program. The bytes are those of all entries with samples,
//! including their length prefixes, divided by the samples in the profile. A worker that waits for
//! a processor also has such combined entries, more of them on a busier machine. Therefore `single`
//! is the mean size of the entries that hold one sample each. `new`, `repeated` and `same` are the
//! means of its three kinds: a stack with frames that are new to its chunk, a stack that its chunk
//! has already, and the thread's previous stack. `every_entry` is all bytes put into the buffer,
//! including markers and counters, divided by the same samples; `depth` is the mean number of
//! frames.
//!
//! `gecko` is the size of the same worker samples in Gecko's buffer, and `gecko_whole` that of the
//! whole program, by the model in `gecko_coding.rs`.
//!
//! Each run is a separate process; the two kinds of runs alternate.

use std::error::Error;
use std::time::Duration;

use gekkota::{AutoProfilerInit, ProfilerSession, StartParams};
use serde_json::{Value, json};

use crate::gecko_coding::GeckoCoding;
use crate::machine::{self, load_note};
use crate::profile::{ALL_SAMPLES, Entries, SINGLE_SAMPLES, log_of, logged};
use crate::report::{Arm, Report};
use crate::rows::Rows;
use crate::{Effort, Outcome, child, files, workload};

const INTERVAL: Duration = Duration::from_millis(1);
const GOAL_BYTES: f64 = 40.0;
const GOAL_REPEATED_BYTES: f64 = 16.0;
const GOAL_DENSER: f64 = 10.0;

/// The arms that a run of the workers fills, each with its key in the child's answer.
const WORKER_ARMS: [(&str, &str); 8] = [
    ("ours", "mean"),
    ("gecko", "gecko"),
    ("single", "single"),
    ("new", "sample"),
    ("repeated", "repeated_sample"),
    ("same", "same_sample"),
    ("every_entry", "every_entry"),
    ("depth", "depth"),
];
const WHOLE_ARMS: [(&str, &str); 2] = [("ours_whole", "mean"), ("gecko_whole", "gecko")];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, seconds) = if effort.quick { (2, 3) } else { (5, 10) };
    let mut workers = WORKER_ARMS.map(|(arm, figure)| (arm_of(arm), figure));
    let mut whole = WHOLE_ARMS.map(|(arm, figure)| (arm_of(arm), figure));
    let mut notes = vec![format!(
        "{rounds} rounds of {seconds} s per arm, interleaved; {}",
        load_note()
    )];
    for round in 1..=rounds {
        for (filter, arms) in [("worker", &mut workers[..]), ("", &mut whole[..])] {
            let arguments = [filter.to_owned(), seconds.to_string()];
            let (run, taken) = machine::watch(|| child::run("bytes_per_sample", &arguments));
            let run = run?;
            for (arm, figure) in arms {
                arm.runs.extend(run[*figure].as_f64());
            }
            notes.push(format!(
                "round {round}: {}: {}; CPUs used by other processes + the hypervisor: {taken}",
                if filter.is_empty() {
                    "whole"
                } else {
                    "workers"
                },
                run["note"].as_str().unwrap_or_default(),
            ));
        }
    }
    let [(ours, _), (gecko, _), others @ ..] = workers;
    let figure = |name: &str| {
        others
            .iter()
            .find(|(arm, _)| arm.name == name)
            .map_or(f64::NAN, |(arm, _)| arm.figure())
    };
    let met = ours.figure() <= GOAL_BYTES
        && figure("single") <= GOAL_BYTES
        && figure("repeated") <= GOAL_REPEATED_BYTES
        && figure("same") <= GOAL_REPEATED_BYTES
        && gecko.figure() / ours.figure() >= GOAL_DENSER;
    if !ours.runs.is_empty() {
        notes.push(format!(
            "Gecko's encoding takes {:.1} times as many bytes for the workers, {:.1} times for the whole program",
            gecko.figure() / ours.figure(),
            whole[1].0.figure() / whole[0].0.figure(),
        ));
    }
    let others = others.into_iter().chain(whole).map(|(arm, _)| arm);
    Ok(Report {
        unit: "bytes of buffer per sample",
        ours,
        peers: std::iter::once(gecko).chain(others).collect(),
        floor: None,
        better: f64::min,
        goal: "ours and single <= 40, repeated and same <= 16, and 10 times denser than Gecko's encoding",
        met,
        notes,
    })
}

/// Creates an arm. Only `ours` and `gecko` are compared; the others are extra figures.
fn arm_of(name: &'static str) -> Arm {
    if ["ours", "gecko"].contains(&name) {
        Arm::new(name)
    } else {
        Arm::extra(name)
    }
}

/// Runs one round in the child process. Arguments: a part of the names of the threads to profile
/// (empty for all), and the duration in seconds.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [filter, seconds] = arguments else {
        return Err("expected a filter and the number of seconds".into());
    };
    let _profiler = AutoProfilerInit::new();
    let folder = files::default_folder()?;
    let params = StartParams::default().interval(INTERVAL).filters([filter]);
    let session = ProfilerSession::start(params)?;
    workload::run(&folder, Duration::from_secs(seconds.parse()?))?;
    let profile = session.finish()?;
    let log = log_of(&profile)?;
    let gecko = GeckoCoding::of(&Rows::of(&profile)?);
    let samples = gecko.samples as f64;

    let mut answer = json!({
        "gecko": gecko.mean_bytes(),
        "depth": gecko.mean_depth(),
        "every_entry": logged(&log, "buffer", "put_bytes") as f64 / samples,
    });
    let mut kinds = Vec::new();
    for kind in ALL_SAMPLES {
        // If the log lacks these counts, the arms that need them stay empty, and the note says why.
        if let Ok(entries) = Entries::of(&log, &[kind]) {
            kinds.push(format!(
                "{} {kind} of {} bytes",
                entries.count, entries.bytes
            ));
            answer[kind] = json!(entries.mean_bytes());
        }
    }
    let breakdown = match Entries::of(&log, &ALL_SAMPLES) {
        Ok(entries) => {
            answer["mean"] = json!(entries.bytes as f64 / samples);
            answer["single"] = json!(Entries::of(&log, &SINGLE_SAMPLES)?.mean_bytes());
            kinds.join(", ")
        }
        Err(problem) => format!("cannot compute ours: {problem}"),
    };
    answer["note"] = json!(format!(
        "{} samples, {} of them of threads that had not run; mean {:.1} native and {:.1} label frames; {breakdown}; \
         recycled: {} bytes",
        gecko.samples,
        gecko.same_samples,
        gecko.native_frames as f64 / samples,
        gecko.label_frames as f64 / samples,
        logged(&log, "buffer", "recycled_bytes"),
    ));
    Ok(answer)
}
