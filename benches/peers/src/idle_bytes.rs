//! `idle_bytes`: bytes of buffer per sleeping thread and second, at 1,000 Hz.
//!
//! The threads sleep in `poll`, `futex`, `nanosleep` and `read`, in equal parts, from before the
//! session's start until after its end, and only they are profiled. `ours` is for 1,000 threads,
//! `ours_one` for a single one: the bytes of all entries with samples that were put into the buffer
//! during the span, including their length prefixes, divided by threads and seconds. They include
//! what the snapshots at both ends add, because taking a snapshot brings the buffer up to date.
//!
//! `gecko` is the size of the same samples in Gecko's buffer: its entries for a repeated sample, by
//! the model in `gecko_coding.rs`.
//!
//! Each run is a separate process; the two kinds of runs alternate.

use gekkota::Profile;

use crate::gecko_coding::SAME_SAMPLE_BYTES;
use crate::prelude::*;
use crate::profile::{ALL_SAMPLES, Entries, log_of, logged};
use crate::sleepers::Sleepers;

const NAME: &str = "sleeper";
/// Wait after the session's start, until the profiler has found that every thread sleeps.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "idle_bytes",
    unit: "bytes of buffer per sleeping thread and second",
    goal: "ours and ours_one <= 64 bytes, at 1,000 Hz",
    peers: &["gecko"],
    is_met: |study| study.at_most(&["ours", "ours_one"], 64.0),
    rounds: [2, 3],
    sizes: [&[2000], &[10000]],
    size_names: &["ms after 2 s"],
    arms: &["ours", "ours_one"],
    part: run,
    ..Measurement::NEW
};

/// Runs one round. Arguments: the arm, and the span in milliseconds.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (arm, span) = (arguments.text(0)?, arguments.milliseconds(1)?);
    let (threads, gecko) = match arm {
        "ours" => (1000, "gecko"),
        _ => (1, "gecko_one"),
    };
    let _sleepers = Sleepers::start(threads, || register_thread(NAME))?;
    let session =
        ProfilerSession::start(StartParams::default().interval(INTERVAL).filters([NAME]))?;
    std::thread::sleep(SETTLE);
    let (before, begin) = (session.snapshot()?, Instant::now());
    std::thread::sleep(span);
    let (after, seconds) = (session.finish()?, begin.elapsed().as_secs_f64());
    let (before, after) = (sizes(&before)?, sizes(&after)?);
    let grown = |place: usize| (after[place] - before[place]) as f64 / threads as f64 / seconds;
    Ok(json!({ arm: grown(0), gecko: grown(1) }))
}

/// Returns the bytes of the buffer's entries with samples, and those that Gecko would have.
fn sizes(profile: &Profile) -> Fallible<[u64; 2]> {
    let log = log_of(profile)?;
    if logged(&log, "buffer", "recycled_bytes") > 0 {
        return Err(
            "cannot measure: the buffer was full, so it no longer holds all entries".into(),
        );
    }
    let samples = logged(&log, "sampler", "same_samples");
    Ok([
        Entries::of(&log, &ALL_SAMPLES)?.bytes,
        samples * SAME_SAMPLE_BYTES,
    ])
}
