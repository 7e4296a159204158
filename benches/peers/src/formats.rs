//! `formats`: speed of each writer on a profile of 1,000,000 samples, the size of its output, and
//! the memory that it takes.
//!
//! The profile is a real recording (`recording.rs`), saved once as Gecko's JSON with names, and
//! read back: the model that all formats are written from. Each format has a process of its own,
//! which writes it to a sink that only counts. Decoding, names and the model are not part of the
//! time; `stream` measures Gecko's JSON straight from the buffer, and `first_name` the names.
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
//! model. The notes have each format's own. In this program, flate2 compresses with zlib-rs, because a peer asks for
//! that.

use gekkota::Profile;
use gekkota::profile::{Format, SnapshotOptions};

use crate::heap::{allocated_bytes, release_freed};
use crate::memory::peak_above;
use crate::prelude::*;
use crate::recording::{self, CountingSink};

/// Formats that add samples up, so that their size says nothing about the work.
const ADDING_UP: [Format; 5] = [
    Format::Collapsed,
    Format::Svg,
    Format::D3FlameGraphMerged,
    Format::Pprof,
    Format::Text,
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "formats",
    unit: "MB per second (`memory`: peak of the process / the model)",
    goal: "no format below 150 MB per second, and memory <= 2",
    better: f64::max,
    is_met: |study| study.figure("ours") >= 150.0 && study.at_most(&["memory"], 2.0),
    measure: |study| {
        let samples = study.pick(100_000, 1_000_000);
        let file = Temporary::new(".json");
        let path = file.display();
        let recorded = child::run("formats", &[&"record", &path, &samples])?;
        study.add(&recorded);
        study.rounds(study.pick(1, 3), "each format", |study, _| {
            let (mut slowest, mut greatest) = (f64::INFINITY, 0.0_f64);
            for format in Format::all().filter(|format| *format != Format::Gecko) {
                let run = child::run("formats", &[&format.name(), &path])?;
                let rate = number(&run, format.name())?;
                slowest = slowest.min(rate);
                greatest = greatest.max(number(&run, "memory")?);
                study.push(format.name(), rate);
            }
            study.push("ours", slowest);
            study.push("memory", greatest);
            Ok(())
        })
    },
    part: run,
    ..Measurement::LONG
};

/// Arguments: `record`, the file and the number of samples; or a format, and the file.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (what, path) = (arguments.text(0)?, arguments.text(1)?);
    if what == "record" {
        let session = ProfilerSession::start(recording::params())?;
        let recorded = recording::record(&session, arguments.get(2)?)?;
        session.finish()?.save(path)?;
        return Ok(json!({ "note": recorded }));
    }
    let format = Format::from_name(what).ok_or_else(|| format!("unknown format `{what}`"))?;
    let before = allocated_bytes();
    let profile = Profile::read(path)?;
    release_freed();
    let model_bytes = (allocated_bytes() - before) as f64;
    let write = || -> Fallible<u64> {
        let mut sink = CountingSink::default();
        profile.write_with(format, &mut sink, &SnapshotOptions::default())?;
        Ok(sink.bytes)
    };
    // This comes first, when the process has no freed memory that it could reuse.
    let (written, above) = peak_above(write)?;
    let counted = match ADDING_UP.contains(&format) {
        true => std::fs::metadata(path)?.len(),
        false => written?,
    };
    let mut seconds = [0.0; 3];
    for seconds in &mut seconds {
        let begin = Instant::now();
        write()?;
        *seconds = begin.elapsed().as_secs_f64();
    }
    Ok(json!({
        what: counted as f64 / 1e6 / median(&seconds),
        "memory": 1.0 + above as f64 / model_bytes,
    }))
}
