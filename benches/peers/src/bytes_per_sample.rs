//! `bytes_per_sample`: bytes of buffer per sample of a real program, at 1,000 Hz.
//!
//! The program is the workload of the example `quick_start`: two to four workers search and
//! compress text files, other threads sleep. `ours` covers the workers only: one entry can hold
//! hundreds of samples of a sleeping thread, and these would hide the cost of the others. The bytes
//! are those of all entries with samples, including their length prefixes, divided by the samples in
//! the profile. A worker that waits for a processor also has such combined entries, more of them on a
//! busier machine. Therefore `single` is the mean size of the entries that hold one sample each.
//! `repeated` and `same` are the means of two of its kinds: a stack that its chunk has already, and
//! the thread's previous stack. `depth` is the mean number of frames.
//!
//! `gecko` is the size of the same samples in Gecko's buffer, by the model in `gecko_coding.rs`.

use gekkota::AutoProfilerInit;

use crate::gecko_coding::GeckoCoding;
use crate::prelude::*;
use crate::profile::{ALL_SAMPLES, Entries, SINGLE_SAMPLES, log_of};
use crate::{files, workload};

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "bytes_per_sample",
    unit: "bytes of buffer per sample",
    goal: "ours and single <= 40, repeated and same <= 16, and 10 times denser than Gecko's encoding",
    peers: &["gecko"],
    is_met: |study| {
        study.at_most(&["ours", "single"], 40.0)
            && study.at_most(&["repeated", "same"], 16.0)
            && study.at_most(&["ours"], study.figure("gecko") / 10.0)
    },
    rounds: [2, 5],
    sizes: [&[3], &[10]],
    size_names: &["s"],
    part: run,
    ..Measurement::NEW
};

/// Runs one round. Arguments: the arm, and the duration in seconds.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let _profiler = AutoProfilerInit::new();
    let folder = files::default_folder()?;
    let params = StartParams::default()
        .interval(INTERVAL)
        .filters(["worker"]);
    let session = ProfilerSession::start(params)?;
    workload::run(&folder, Duration::from_secs(arguments.get(1)?))?;
    let profile = session.finish()?;
    let log = log_of(&profile)?;
    let gecko = GeckoCoding::of(&to_json(&profile)?).ok_or("the profile lacks a table")?;
    let mean = |kinds: &[&str]| Entries::of(&log, kinds).map(Entries::mean_bytes);
    Ok(json!({
        "ours": Entries::of(&log, &ALL_SAMPLES)?.bytes as f64 / gecko.samples as f64,
        "gecko": gecko.mean_bytes(),
        "single": mean(&SINGLE_SAMPLES)?,
        "repeated": mean(&["repeated_sample"])?,
        "same": mean(&["same_sample"])?,
        "depth": gecko.mean_depth(),
        "also": { "samples": gecko.samples, "same_samples": gecko.same_samples },
    }))
}
