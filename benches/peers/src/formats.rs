//! `formats`: speed of each writer on a profile of 1,000,000 samples, the size of its output, and
//! the memory that it takes.
//!
//! The profile is a real recording (`recording.rs`), saved once as Gecko's JSON with names, and
//! read back: the model that all formats but Gecko's are written from. Each format has a process of
//! its own, which writes it to a sink that only counts. Decoding, names and the model are not part of
//! the time; `stream` measures Gecko's JSON straight from the buffer, and `first_name` the names.
//!
//! An arm's figure is the median of the turns, in MB per second; `ours` is the slowest format. What
//! counts as MB depends on what the format does with samples:
//!
//! - A format that contains all samples: the MB that it writes.
//! - A format that adds samples up (`collapsed`, `svg`, `d3-flame-graph-merged`, `pprof`, `text`)
//!   writes little, however much it reads: the MB of the same samples in Gecko's JSON, at some 34
//!   bytes each.
//! - A format for one thread (`cpuprofile`, `js-self-profile`, `d3-flame-graph`) has a sixteenth of
//!   the samples: the MB that it writes.
//!
//! `memory` is the greatest peak of the process while it writes, divided by the memory of the
//! model. The notes have each format's own, with its size and its time, and for pprof the size
//! before compression. In this program, flate2 compresses with zlib-rs, because a peer asks for
//! that.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use flate2::write::MultiGzDecoder;
use gekkota::profile::{Format, SnapshotOptions};
use gekkota::{Profile, ProfilerSession};
use serde_json::{Value, json};

use crate::heap::{allocated_bytes, release_freed};
use crate::machine::{self, load_note};
use crate::memory::peak_above;
use crate::recording::{self, CountingSink};
use crate::report::{Arm, Report, median};
use crate::{Effort, Outcome, child};

const SAMPLES: u64 = 1_000_000;
const QUICK_SAMPLES: u64 = 100_000;
const GOAL_MB_PER_SECOND: f64 = 150.0;
const GOAL_MEMORY: f64 = 2.0;

/// Formats that add samples up, so that their size says nothing about the work.
const ADDING_UP: [Format; 5] = [
    Format::Collapsed,
    Format::Svg,
    Format::D3FlameGraphMerged,
    Format::Pprof,
    Format::Text,
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, samples, turns) = if effort.quick {
        (1, QUICK_SAMPLES, 3)
    } else {
        (3, SAMPLES, 3)
    };
    let file = TemporaryFile::new();
    let path = file.0.to_string_lossy().into_owned();
    let arguments = ["record".to_owned(), path.clone(), samples.to_string()];
    let recorded = child::run("formats", &arguments)?;
    let mut arms: Vec<Arm> = Format::all()
        .filter(|format| *format != Format::Gecko)
        .map(|format| Arm::extra(format.name()))
        .collect();
    let mut memory = Arm::extra("memory");
    let mut notes = vec![
        format!(
            "{rounds} rounds of {turns} turns for each format; {}",
            load_note()
        ),
        format!(
            "the profile: {}",
            recorded["note"].as_str().unwrap_or_default()
        ),
    ];
    for round in 1..=rounds {
        let mut greatest = 0.0_f64;
        let (runs, taken) = machine::watch(|| -> Result<(), Box<dyn Error>> {
            for arm in &mut arms {
                let arguments = [arm.name.to_owned(), path.clone(), turns.to_string()];
                let run = child::run("formats", &arguments)?;
                let figure = |name: &str| {
                    let figure = run[name].as_f64();
                    figure.ok_or("the child's answer lacks a figure")
                };
                arm.runs.push(figure("mb_per_second")?);
                greatest = greatest.max(figure("memory")?);
                if round == 1 {
                    notes.push(format!(
                        "{}: {}",
                        arm.name,
                        run["note"].as_str().unwrap_or_default()
                    ));
                }
            }
            Ok(())
        });
        runs?;
        memory.runs.push(greatest);
        notes.push(format!(
            "round {round}: CPUs used by other processes + the hypervisor: {taken}"
        ));
    }
    let slowest = arms
        .iter()
        .min_by(|one, other| one.figure().total_cmp(&other.figure()));
    let slowest = slowest.ok_or("there are no formats")?;
    notes.push(format!("ours is {}, the slowest", slowest.name));
    let ours = Arm {
        runs: slowest.runs.clone(),
        ..Arm::new("ours")
    };
    let met = ours.figure() >= GOAL_MB_PER_SECOND && memory.figure() <= GOAL_MEMORY;
    arms.push(memory);
    Ok(Report {
        unit: "MB per second (`memory`: peak of the process / the model)",
        ours,
        peers: arms,
        floor: None,
        better: f64::max,
        goal: "no format below 150 MB per second, and memory <= 2",
        met,
        notes,
    })
}

/// Runs a part in the child process. Arguments: `record`, the file and the number of samples; or a
/// format, the file and the number of turns.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    match arguments {
        [what, path, samples] if what == "record" => record(path, samples.parse()?),
        [format, path, turns] => {
            let known = Format::from_name(format);
            let format = known.ok_or_else(|| format!("unknown format `{format}`"))?;
            write(format, path, turns.parse()?)
        }
        _ => Err("expected a format, a file and a number".into()),
    }
}

fn record(path: &str, samples: u64) -> Result<Value, Box<dyn Error>> {
    let session = ProfilerSession::start(recording::params())?;
    let recorded = recording::record(&session, samples)?;
    session.finish()?.save(path)?;
    Ok(json!({
        "note": format!(
            "{recorded}; {:.1} MB of Gecko's JSON",
            std::fs::metadata(path)?.len() as f64 / 1e6
        ),
    }))
}

fn write(format: Format, path: &str, turns: usize) -> Result<Value, Box<dyn Error>> {
    let before = allocated_bytes();
    let profile = Profile::read(path)?;
    release_freed();
    let model_bytes = (allocated_bytes() - before) as f64;

    let options = SnapshotOptions::default();
    // This comes first, when the process has no freed memory that it could reuse.
    let (written, above) = peak_above(|| -> Result<u64, Box<dyn Error>> {
        let mut sink = CountingSink::default();
        profile.write_with(format, &mut sink, &options)?;
        Ok(sink.bytes)
    })?;
    let written = written? as f64;
    let memory = 1.0 + above as f64 / model_bytes;
    let counted = match ADDING_UP.contains(&format) {
        true => std::fs::metadata(path)?.len() as f64,
        false => written,
    };
    let mut seconds = Vec::new();
    for _ in 0..turns {
        let mut sink = CountingSink::default();
        let begin = Instant::now();
        profile.write_with(format, &mut sink, &options)?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    let seconds = median(&seconds);
    let uncompressed = match format {
        Format::Pprof => format!(
            ", {:.1} MB before compression",
            uncompressed_bytes(&profile)? / 1e6
        ),
        _ => String::new(),
    };
    Ok(json!({
        "mb_per_second": counted / 1e6 / seconds,
        "memory": memory,
        "note": format!(
            "{seconds:.3} s, {:.3} MB{uncompressed}, {:.1} MB/s of output; peak {:.1} MB above a model of {:.1} MB",
            written / 1e6,
            written / 1e6 / seconds,
            above as f64 / 1e6,
            model_bytes / 1e6,
        ),
    }))
}

/// Returns the size of a pprof profile before its compression.
fn uncompressed_bytes(profile: &Profile) -> Result<f64, Box<dyn Error>> {
    let mut decoder = MultiGzDecoder::new(CountingSink::default());
    profile.write_with(Format::Pprof, &mut decoder, &SnapshotOptions::default())?;
    decoder.flush()?;
    Ok(decoder.finish()?.bytes as f64)
}

/// The profile that all formats are written from. Dropping this removes the file.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new() -> Self {
        let name = format!("gekkota-peers-formats-{}.json", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // If the recording failed, there is no file.
        let _: io::Result<()> = std::fs::remove_file(&self.0);
    }
}
