//! `stream`: speed of writing a profile of 1,000,000 samples as Gecko's JSON, and the memory that
//! this takes.
//!
//! The profile is a real recording: 16 threads with deep, varying stacks run in short bursts until
//! there are enough samples (`recording.rs`). `ours` decodes the buffer and writes it without symbol names. `serde_json` writes the same
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

use std::io::{BufWriter, Write};

use gekkota::Profile;

use crate::memory::peak_above;
use crate::prelude::*;
use crate::profile::write_nameless;
use crate::recording::{self, CountingSink};
use crate::rows::Rows;
use crate::turns::{Arm, Turns};

/// What the arms write.
type Written = (Profile, Rows);

const ARMS: [Arm<Written>; 3] = [
    ("ours", |(profile, _)| rate(|| write_ours(profile))),
    ("serde_json", |(_, rows)| {
        rate(|| {
            let mut sink = CountingSink::default();
            serde_json::to_writer(&mut sink, rows)?;
            Ok(sink.bytes)
        })
    }),
    ("serde_json_buffered", |(_, rows)| {
        rate(|| {
            let mut sink = BufWriter::with_capacity(64 << 10, CountingSink::default());
            serde_json::to_writer(&mut sink, rows)?;
            sink.flush()?;
            Ok(sink.get_ref().bytes)
        })
    }),
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "stream",
    unit: "MB of JSON per second",
    goal: "ours >= serde_json from memory, and ours_memory_mb <= 64, with 1,000,000 samples",
    peers: &["serde_json"],
    better: f64::max,
    is_met: |study| {
        study.figure("ours") >= study.figure("serde_json")
            && study.at_most(&["ours_memory_mb"], 64.0)
    },
    rounds: [1, 3],
    sizes: [&[200000, 5], &[1000000, 7]],
    size_names: &["samples of 16 threads", "turns"],
    part: run,
    ..Measurement::LONG
};

/// Runs one round. Arguments: the arm, which is all, the number of samples, and the number of turns.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let session = ProfilerSession::start(recording::params())?;
    let recorded = recording::record(&session, arguments.get(1)?)?;
    let profile = session.finish()?;
    // This comes first, when the process has no freed memory that it could reuse.
    let (bytes, memory) = peak_above(|| write_ours(&profile))?;
    let (bytes, rows) = (bytes?, Rows::of(&profile)?);
    let mut answer = Turns::run(arguments.get(2)?, &ARMS, &(profile, rows))?.answer();
    // The least of these figures is that of the slowest batch.
    answer["also"] = Value::Null;
    answer["ours_memory_mb"] = (memory as f64 / 1e6).into();
    answer["note"] = format!("{recorded}; {:.1} MB of JSON", bytes as f64 / 1e6).into();
    Ok(answer)
}

/// Returns the megabytes per second of a writer, which returns its bytes.
fn rate(write: impl FnOnce() -> Fallible<u64>) -> Fallible<f64> {
    let begin = Instant::now();
    let bytes = write()?;
    Ok(bytes as f64 / 1e6 / begin.elapsed().as_secs_f64())
}

fn write_ours(profile: &Profile) -> Fallible<u64> {
    let mut sink = CountingSink::default();
    write_nameless(profile, &mut sink)?;
    Ok(sink.bytes)
}
