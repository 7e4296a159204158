//! `hour`: how long the default buffer of 128 MiB lasts for 8 busy threads at 1,000 Hz, until the
//! oldest samples are discarded.
//!
//! The threads have deep, varying stacks (`deep.rs`) and run all the time, as far as there are
//! processors for them. `ours` is the time until the buffer is full: the measured time if it filled
//! up during the run, otherwise extrapolated from the measured rate. `ours_at_8000` is computed for
//! 8 threads that run at every tick, each on its own processor: 8,000 samples a second, with the
//! mean size that single-sample entries had here. Combined entries, from threads that waited for a
//! processor, are left out of that mean.
//!
//! A full run takes five minutes, and so shows whether the buffer holds four. The quick one
//! extrapolates from 20 seconds.

use gekkota::profiler_get_buffer_info;

use crate::deep::{self, Rhythm};
use crate::prelude::*;
use crate::profile::{Entries, SINGLE_SAMPLES, log_of, logged};

const THREADS: usize = 8;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "hour",
    unit: "minutes that a buffer of 128 MiB lasts for 8 busy threads at 1,000 Hz",
    goal: "ours and ours_at_8000 >= 4 minutes",
    better: f64::max,
    is_met: |study| study.figure("ours").min(study.figure("ours_at_8000")) >= 4.0,
    rounds: [1, 1],
    sizes: [&[20], &[300]],
    size_names: &["s of 8 threads"],
    part: run,
    ..Measurement::LONG
};

/// Arguments: the arm, and the duration in seconds.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let time = Duration::from_secs(arguments.get(1)?);
    let session =
        ProfilerSession::start(StartParams::default().interval(INTERVAL).filters(["deep"]))?;
    let threads = deep::start(THREADS, Rhythm::Busy)?;
    let begin = Instant::now();
    let mut full_after = None;
    while begin.elapsed() < time && full_after.is_none() {
        std::thread::sleep(Duration::from_millis(250));
        let info = profiler_get_buffer_info().ok_or("the session ended early")?;
        full_after = (info.recycled_bytes > 0).then(|| begin.elapsed().as_secs_f64());
    }
    let profile = session.finish()?;
    let seconds = begin.elapsed().as_secs_f64();
    drop(threads);

    let log = log_of(&profile)?;
    let capacity = logged(&log, "buffer", "capacity_bytes") as f64;
    let bytes_a_second = logged(&log, "buffer", "put_bytes") as f64 / seconds;
    let single_bytes = Entries::of(&log, &SINGLE_SAMPLES)?.mean_bytes();
    let full_rate = THREADS as f64 / INTERVAL.as_secs_f64() * single_bytes;
    Ok(json!({
        "ours": full_after.unwrap_or(capacity / bytes_a_second) / 60.0,
        "ours_at_8000": capacity / full_rate / 60.0,
        "also": {
            "bytes_a_second": bytes_a_second,
            "single_bytes": single_bytes,
            "full_after_s": full_after,
            "missed_ticks": logged(&log, "sampler", "missed_ticks"),
        },
    }))
}
