//! `stream`: how fast a profile of 1,000,000 samples becomes Gecko's JSON, and how much memory that takes.
//!
//! The profile is recorded, not made up: 16 threads with deep stacks that vary run in short bursts until there are so many
//! samples (`recording.rs`); the notes tell how many of them are of threads that ran. `ours` decodes the buffer and writes
//! it without names. `serde_json` has the same profile in memory already, as vectors of rows, strings and tables, and
//! writes those; it has nothing to decode and no stack to find. Both write to a sink that counts; `serde_json_buffered` has
//! 64 KiB of buffer before it, as one would have before a file, and ours has its own. A figure is each one's own bytes by its
//! time.
//!
//! `ours_memory_mb` is by how many MB the process was larger at its largest, while it wrote the profile for the first time,
//! than it was before, when it held the buffer: by `VmHWM`, before anything is read back.
//!
//! Each round is a process of its own with a recording of its own; in it the arms take turns.

use std::error::Error;
use std::io::{BufWriter, Write};
use std::time::Instant;

use gekkota::{Profile, ProfilerSession};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::memory::peak_above;
use crate::recording::{self, CountingSink, THREADS};
use crate::report::{Arm, Report, median};
use crate::rows::Rows;
use crate::{Effort, Outcome, child};

const SAMPLES: u64 = 1_000_000;
const SAMPLES_IN_A_HURRY: u64 = 200_000;
const GOAL_MEMORY_MB: f64 = 64.0;

/// Gives how many bytes it wrote.
type Writing = fn(&Profile, &Rows) -> Result<u64, Box<dyn Error>>;
const ARMS: [(&str, Writing); 3] = [
    ("ours", |profile, _| write_ours(profile)),
    ("serde_json", |_, rows| write_rows(rows)),
    ("serde_json_buffered", |_, rows| write_rows_buffered(rows)),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, samples, turns) = if effort.quick {
        (1, SAMPLES_IN_A_HURRY, 5)
    } else {
        (3, SAMPLES, 7)
    };
    let [mut ours, mut serde, mut buffered] = ARMS.map(|(name, _)| Arm::new(name));
    buffered.aside = true;
    let mut memory = Arm::aside("ours_memory_mb");
    let mut notes = vec![format!(
        "{rounds} rounds, each a recording of {samples} samples of {THREADS} threads and {turns} turns; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let arguments = [samples.to_string(), turns.to_string()];
        let (run, taken) = machine::watch(|| child::run("stream", &arguments));
        let run = run?;
        for arm in [&mut ours, &mut serde, &mut buffered, &mut memory] {
            arm.runs
                .push(run[arm.name].as_f64().ok_or("an arm without a figure")?);
        }
        notes.push(format!(
            "round {round}: {}; processors that others + the hypervisor had: {taken}",
            run["note"].as_str().unwrap_or_default(),
        ));
    }
    if effort.quick {
        notes.push(format!("the goal is for {SAMPLES} samples"));
    }
    let met = ours.figure() >= serde.figure() && memory.figure() <= GOAL_MEMORY_MB;
    Ok(Report {
        unit: "MB of JSON a second",
        ours,
        peers: vec![serde, buffered, memory],
        floor: None,
        better: f64::max,
        goal: "ours >= serde_json from memory, with <= 64 MB above the buffer",
        met,
        notes,
    })
}

/// Its arguments: how many samples, and how many turns.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [samples, turns] = arguments else {
        return Err("a number of samples, and one of turns".into());
    };
    let session = ProfilerSession::start(recording::params())?;
    let told = recording::record(&session, samples.parse()?)?;
    let profile = session.finish()?;

    // First of all, so that there is no freed memory that it could have.
    let (bytes, memory) = peak_above(|| write_ours(&profile))?;
    let (bytes, rows) = (bytes?, Rows::of(&profile)?);
    let mut rates: [Vec<f64>; ARMS.len()] = Default::default();
    for turn in 0..turns.parse::<usize>()? {
        for place in 0..ARMS.len() {
            let arm = (turn + place) % ARMS.len();
            let begin = Instant::now();
            let bytes = ARMS[arm].1(&profile, &rows)?;
            rates[arm].push(bytes as f64 / 1e6 / begin.elapsed().as_secs_f64());
        }
    }
    let (all, rested) = rows.samples().fold((0, 0), |(all, rested), row| {
        (all + 1, rested + u64::from(row.has_rested()))
    });
    let stacks: usize = rows
        .threads
        .iter()
        .map(|thread| thread.stack_table.data.len())
        .sum();
    let mut answer = json!({
        "ours_memory_mb": memory as f64 / 1e6,
        "note": format!(
            "{told}; {all} rows, {:.1} % of them of threads that ran; {stacks} rows of stacks; JSON of {:.1} MB, \
             serde_json's {:.1} MB",
            (all - rested) as f64 * 100.0 / all as f64,
            bytes as f64 / 1e6,
            write_rows(&rows)? as f64 / 1e6,
        ),
    });
    for ((name, _), rates) in ARMS.iter().zip(&rates) {
        answer[*name] = json!(median(rates));
    }
    Ok(answer)
}

fn write_ours(profile: &Profile) -> Result<u64, Box<dyn Error>> {
    let mut sink = CountingSink::default();
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    profile.write_with(Format::Gecko, &mut sink, &options)?;
    Ok(sink.bytes)
}

fn write_rows(rows: &Rows) -> Result<u64, Box<dyn Error>> {
    let mut sink = CountingSink::default();
    serde_json::to_writer(&mut sink, rows)?;
    Ok(sink.bytes)
}

fn write_rows_buffered(rows: &Rows) -> Result<u64, Box<dyn Error>> {
    let mut sink = BufWriter::with_capacity(64 << 10, CountingSink::default());
    serde_json::to_writer(&mut sink, rows)?;
    sink.flush()?;
    Ok(sink.get_ref().bytes)
}
