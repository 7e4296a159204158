//! `bytes_per_sample`: how many bytes of the buffer a sample of a real program takes, at 1,000 Hz.
//!
//! The program is the quick start's work, as it is in the example: two to four workers search and compress text files,
//! others sleep. `ours` are its workers alone, so that the many samples of threads that sleep, of which an entry holds
//! hundreds, do not stand for those that cost something; `ours_whole` is the whole program. The bytes are those of all
//! entries with samples, the lengths before them included, by the samples that are in the profile. A worker that waits for
//! its turn has samples in such runs as well, more of them the busier the machine is; `single` is the mean of the entries
//! that stand for one sample each. `new`, `repeated` and `same` are means of its three kinds: a stack with frames that its
//! chunk has not, a stack that its chunk has, and the thread's last stack. `every_entry` is all that was put, markers and
//! counters too, by the same samples as ours; `depth` is the mean of frames.
//!
//! `gecko` is what Gecko's buffer would take for the same samples of the workers, and `gecko_whole` of the whole program,
//! by the model in `gecko_coding.rs`.
//!
//! Each run is a process of its own; the two take turns.

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

/// What a run of the workers tells, and the arm that it goes to.
const OF_WORKERS: [(&str, &str); 8] = [
    ("ours", "mean"),
    ("gecko", "gecko"),
    ("single", "single"),
    ("new", "sample"),
    ("repeated", "repeated_sample"),
    ("same", "same_sample"),
    ("every_entry", "every_entry"),
    ("depth", "depth"),
];
const OF_WHOLE: [(&str, &str); 2] = [("ours_whole", "mean"), ("gecko_whole", "gecko")];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, seconds) = if effort.quick { (2, 3) } else { (5, 10) };
    let mut workers = OF_WORKERS.map(|(arm, figure)| (arm_of(arm), figure));
    let mut whole = OF_WHOLE.map(|(arm, figure)| (arm_of(arm), figure));
    let mut notes = vec![format!(
        "{rounds} rounds of {seconds} s an arm, in turns; {}",
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
                "round {round}: {}: {}; processors that others + the hypervisor had: {taken}",
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
            "Gecko's coding takes {:.1} times as much for the workers, {:.1} times for the whole program",
            gecko.figure() / ours.figure(),
            whole[1].0.figure() / whole[0].0.figure(),
        ));
    }
    let others = others.into_iter().chain(whole).map(|(arm, _)| arm);
    Ok(Report {
        unit: "bytes of the buffer a sample",
        ours,
        peers: std::iter::once(gecko).chain(others).collect(),
        floor: None,
        better: f64::min,
        goal: "ours <= 40, without runs too, a repeated or same stack <= 16, and 10 times denser than Gecko's coding",
        met,
        notes,
    })
}

/// Ours is compared with Gecko's.
fn arm_of(name: &'static str) -> Arm {
    if ["ours", "gecko"].contains(&name) {
        Arm::new(name)
    } else {
        Arm::aside(name)
    }
}

/// Its arguments: a part of the names of the threads that are profiled, nothing for all; and how many seconds.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [filter, seconds] = arguments else {
        return Err("a filter, and a number of seconds".into());
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
        // Without them the arms that need them stay empty, and the note says why.
        if let Ok(entries) = Entries::of(&log, &[kind]) {
            kinds.push(format!(
                "{} {kind} of {} bytes",
                entries.count, entries.bytes
            ));
            answer[kind] = json!(entries.mean_bytes());
        }
    }
    let told = match Entries::of(&log, &ALL_SAMPLES) {
        Ok(entries) => {
            answer["mean"] = json!(entries.bytes as f64 / samples);
            answer["single"] = json!(Entries::of(&log, &SINGLE_SAMPLES)?.mean_bytes());
            kinds.join(", ")
        }
        Err(problem) => format!("ours is not available: {problem}"),
    };
    answer["note"] = json!(format!(
        "{} samples, {} of them of threads that had not run, of {:.1} native and {:.1} label frames in the mean; {told}; \
         recycled: {} bytes",
        gecko.samples,
        gecko.same_samples,
        gecko.native_frames as f64 / samples,
        gecko.label_frames as f64 / samples,
        logged(&log, "buffer", "recycled_bytes"),
    ));
    Ok(answer)
}
