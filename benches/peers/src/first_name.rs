//! `first_name`: time from `profiler_save_profile_to_file` to the file, with the first names of the
//! process.
//!
//! Eight threads with deep, varied stacks work for 10 s (2 s with `--quick`) and are sampled every
//! millisecond: 12 to 40 calls deep, and below that in the standard library, regex, flate2 and
//! serde_json. Then they end, as at the end of a program, and the profile is saved twice in the
//! same session. The program has all its debug information; the notes say how much.
//!
//! `ours` is the first save, in full. `names` is the first save with `Symbolicate::NamesOnly`, in
//! another process. `second` and `second_names` are the second saves, minus `writing`: a save of
//! the same session without names. So they are what is left of the names' time, and of the longer
//! text. `while_busy` is a first save in full while the eight threads still work, so it gets only a
//! share of the processors.
//!
//! Each run is a process of its own; the kinds of runs alternate. The program's file is in the
//! system's cache. The profile goes to a temporary folder.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gekkota::profile::{SnapshotOptions, Symbolicate};
use gekkota::{AutoProfilerInit, ProfilerSession, StartParams, profiler_save_profile_to_file};
use serde_json::{Value, json};

use crate::deep::{DeepThreads, Rhythm};
use crate::machine::{self, load_note};
use crate::own_program::OwnProgram;
use crate::profile::{column, threads, to_json};
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const THREADS: usize = 8;
const INTERVAL: Duration = Duration::from_millis(1);
const RECORDING: Duration = Duration::from_secs(10);
const QUICK_RECORDING: Duration = Duration::from_secs(2);
const GOAL_SECONDS: f64 = 3.0;
const GOAL_NAMES_SECONDS: f64 = 1.0;
const GOAL_SECOND_SECONDS: f64 = 0.2;

/// The kinds of runs, each with the figures of its answer and their arms.
const RUNS: [(&str, &[(&str, &str)]); 3] = [
    (
        "full",
        &[
            ("first", "ours"),
            ("second", "second"),
            ("writing", "writing"),
        ],
    ),
    ("names", &[("first", "names"), ("second", "second_names")]),
    ("busy", &[("first", "while_busy")]),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, recording) = if effort.quick {
        (2, QUICK_RECORDING)
    } else {
        (5, RECORDING)
    };
    let mut arms: Vec<Arm> = RUNS
        .iter()
        .flat_map(|(_, arms)| arms.iter())
        .map(|(_, arm)| Arm::extra(arm))
        .collect();
    let program = OwnProgram::read()?;
    let mut notes = vec![format!(
        "{rounds} runs of each kind, each {recording:?} of {THREADS} threads; {:.1} MB of debug information; {}",
        program.debug_bytes as f64 / 1e6,
        load_note()
    )];
    for round in 1..=rounds {
        for (kind, figures) in RUNS {
            let arguments = [kind.to_owned(), recording.as_millis().to_string()];
            let (run, taken) = machine::watch(|| child::run("first_name", &arguments));
            let run = run?;
            for (figure, name) in figures {
                let arm = arms.iter_mut().find(|arm| arm.name == *name);
                if let Some(arm) = arm {
                    arm.runs.extend(run[*figure].as_f64());
                }
            }
            notes.push(format!(
                "round {round}: {kind}: {}; CPUs used by other processes + the hypervisor: {taken}",
                run["note"].as_str().unwrap_or_default(),
            ));
        }
    }
    let figure = |name: &str| {
        let arm = arms.iter().find(|arm| arm.name == name);
        arm.map_or(f64::NAN, Arm::figure)
    };
    let met = figure("ours") <= GOAL_SECONDS
        && figure("names") <= GOAL_NAMES_SECONDS
        && figure("second") <= GOAL_SECOND_SECONDS
        && figure("second_names") <= GOAL_SECOND_SECONDS;
    let mut ours = arms.remove(0);
    ours.extra = false;
    Ok(Report {
        unit: "seconds from the call to the file",
        ours,
        peers: arms,
        floor: None,
        better: f64::min,
        goal: "ours <= 3, names <= 1, second and second_names <= 0.2",
        met,
        notes,
    })
}

/// Runs one recording in the child process. Arguments: the kind of run, and the milliseconds.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [kind, recording] = arguments else {
        return Err("expected a kind of run and the number of milliseconds".into());
    };
    let _profiler = AutoProfilerInit::new();
    let session =
        ProfilerSession::start(StartParams::default().interval(INTERVAL).filters(["deep"]))?;
    let working = DeepThreads::start(THREADS, Rhythm::Jobs)?;
    std::thread::sleep(Duration::from_millis(recording.parse()?));
    let working = (kind == "busy").then_some(working);

    let file = TemporaryFile::new();
    let save = || -> Result<(), Box<dyn Error>> {
        if kind == "names" {
            let options = SnapshotOptions::default().symbolicate(Symbolicate::NamesOnly);
            session.snapshot()?.save_with(&file.0, &options)?;
        } else {
            profiler_save_profile_to_file(&file.0)?;
        }
        Ok(())
    };
    let first = file.time(save)?;
    let bytes = std::fs::metadata(&file.0)?.len();
    drop(working);
    let again = file.time(save)?;
    let writing = file.time(|| {
        let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
        Ok(session.snapshot()?.save_with(&file.0, &options)?)
    })?;

    let rows = to_json(&session.finish()?)?;
    let count = |table: &str, name: &str| -> usize {
        let columns = threads(&rows).filter_map(|thread| column(&thread[table], name));
        columns.map(|column| column.count()).sum()
    };
    Ok(json!({
        "first": first,
        "second": again - writing,
        "writing": writing,
        "note": format!(
            "first {first:.3} s, second {again:.3}, without names {writing:.3}; {:.1} MB, {} samples, {} rows of stacks, {} of \
             frames",
            bytes as f64 / 1e6,
            count("samples", "time"),
            count("stackTable", "frame"),
            count("frameTable", "location"),
        ),
    }))
}

/// A temporary file. Dropping this removes it.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new() -> Self {
        let name = format!("gekkota-peers-first-name-{}.json", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// Removes the file, and returns the seconds that it takes to create it again.
    fn time(
        &self,
        save: impl FnOnce() -> Result<(), Box<dyn Error>>,
    ) -> Result<f64, Box<dyn Error>> {
        remove(&self.0);
        let begin = Instant::now();
        save()?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    // Before the first save, there is none.
    let _ = std::fs::remove_file(path);
}
