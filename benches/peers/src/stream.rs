//! `stream`: speed of writing a profile of 1,000,000 samples as Gecko's JSON, and the memory that
//! this takes.
//!
//! The profile is a real recording: 16 threads with deep, varying stacks run in short bursts until
//! there are enough samples (`recording.rs`). The notes have the share of samples of threads that
//! ran. `ours` decodes the buffer and writes it without symbol names. `serde_json` writes the same
//! profile from memory, where it lies as vectors of rows, strings and tables. So it has nothing to
//! decode and no stacks to deduplicate. Both write to a sink that only counts.
//! `serde_json_buffered` has a buffer of 64 KiB before the sink, as for a file; ours has its own. A
//! figure is the number of bytes that the arm wrote, divided by its time.
//!
//! `ours_memory_mb` is the increase of the process's peak memory (`VmHWM`), in MB, while it wrote
//! the profile for the first time, above its memory with the full buffer. It is read before the
//! profile is parsed back.
//!
//! Each round is a separate process with its own recording, in which the arms are interleaved.

use std::error::Error;
use std::io::{BufWriter, Write};
use std::time::Instant;

use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{Profile, ProfilerSession};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::memory::peak_above;
use crate::recording::{self, CountingSink, THREADS};
use crate::report::{Arm, Report, median};
use crate::rows::Rows;
use crate::{Effort, Outcome, child};

const SAMPLES: u64 = 1_000_000;
const QUICK_SAMPLES: u64 = 200_000;
const GOAL_MEMORY_MB: f64 = 64.0;

/// Writes the profile and returns the number of bytes.
type Writing = fn(&Profile, &Rows) -> Result<u64, Box<dyn Error>>;
const ARMS: [(&str, Writing); 3] = [
    ("ours", |profile, _| write_ours(profile)),
    ("serde_json", |_, rows| write_rows(rows)),
    ("serde_json_buffered", |_, rows| write_rows_buffered(rows)),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, samples, turns) = if effort.quick {
        (1, QUICK_SAMPLES, 5)
    } else {
        (3, SAMPLES, 7)
    };
    let [mut ours, mut serde, mut buffered] = ARMS.map(|(name, _)| Arm::new(name));
    buffered.extra = true;
    let mut memory = Arm::extra("ours_memory_mb");
    let mut notes = vec![format!(
        "{rounds} rounds, each a recording of {samples} samples of {THREADS} threads and {turns} turns; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let arguments = [samples.to_string(), turns.to_string()];
        let (run, taken) = machine::watch(|| child::run("stream", &arguments));
        let run = run?;
        for arm in [&mut ours, &mut serde, &mut buffered, &mut memory] {
            arm.runs.push(
                run[arm.name]
                    .as_f64()
                    .ok_or("the child's answer lacks the figure of an arm")?,
            );
        }
        notes.push(format!(
            "round {round}: {}; CPUs used by other processes + the hypervisor: {taken}",
            run["note"].as_str().unwrap_or_default(),
        ));
    }
    if effort.quick {
        notes.push(format!("the goal applies to {SAMPLES} samples"));
    }
    let met = ours.figure() >= serde.figure() && memory.figure() <= GOAL_MEMORY_MB;
    Ok(Report {
        unit: "MB of JSON per second",
        ours,
        peers: vec![serde, buffered, memory],
        floor: None,
        better: f64::max,
        goal: "ours >= serde_json from memory, and ours_memory_mb <= 64",
        met,
        notes,
    })
}

/// Runs one round in the child process. Arguments: the number of samples, and the number of turns.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [samples, turns] = arguments else {
        return Err("expected the number of samples and the number of turns".into());
    };
    let session = ProfilerSession::start(recording::params())?;
    let recorded = recording::record(&session, samples.parse()?)?;
    let profile = session.finish()?;

    // This comes first, when the process has no freed memory that it could reuse.
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
    let (all, idle) = rows.samples().fold((0, 0), |(all, idle), row| {
        (all + 1, idle + u64::from(row.was_idle()))
    });
    let stacks: usize = rows
        .threads
        .iter()
        .map(|thread| thread.stack_table.data.len())
        .sum();
    let mut answer = json!({
        "ours_memory_mb": memory as f64 / 1e6,
        "note": format!(
            "{recorded}; {all} sample rows, {:.1} % of them of threads that ran; {stacks} stack rows; {:.1} MB of JSON, \
             {:.1} MB by serde_json",
            (all - idle) as f64 * 100.0 / all as f64,
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
