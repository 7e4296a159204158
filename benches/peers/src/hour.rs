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

use std::error::Error;
use std::time::{Duration, Instant};

use gekkota::{ProfilerSession, StartParams, profiler_get_buffer_info};
use serde_json::{Value, json};

use crate::deep::{DeepThreads, Rhythm};
use crate::machine::{self, load_note};
use crate::profile::{Entries, SINGLE_SAMPLES, log_of, logged};
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const THREADS: usize = 8;
const INTERVAL: Duration = Duration::from_millis(1);
const GOAL_MINUTES: f64 = 4.0;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let seconds = if effort.quick { 20 } else { 300 };
    let mut ours = Arm::new("ours");
    let mut others = [
        Arm::extra("ours_at_8000"),
        Arm::extra("bytes_a_second"),
        Arm::extra("samples_a_second"),
        Arm::extra("running_a_second"),
    ];
    let load = load_note();
    let (run, taken) = machine::watch(|| child::run("hour", &[seconds.to_string()]));
    let run = run?;
    ours.runs.extend(run["ours"].as_f64());
    for arm in &mut others {
        arm.runs.extend(run[arm.name].as_f64());
    }
    let met = ours.figure() >= GOAL_MINUTES && others[0].figure() >= GOAL_MINUTES;
    let notes = vec![
        format!("{seconds} s of {THREADS} threads; {load}"),
        format!(
            "{}; CPUs used by other processes + the hypervisor: {taken}",
            run["note"].as_str().unwrap_or_default()
        ),
    ];
    Ok(Report {
        unit: "minutes that a buffer of 128 MiB lasts for 8 busy threads at 1,000 Hz",
        ours,
        peers: others.into(),
        floor: None,
        better: f64::max,
        goal: "ours and ours_at_8000 >= 4 minutes",
        met,
        notes,
    })
}

/// Runs in the child process. Argument: the duration in seconds.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [seconds] = arguments else {
        return Err("expected the number of seconds".into());
    };
    let time = Duration::from_secs(seconds.parse()?);
    let session =
        ProfilerSession::start(StartParams::default().interval(INTERVAL).filters(["deep"]))?;
    let threads = DeepThreads::start(THREADS, Rhythm::Busy)?;
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
    let count = |name| logged(&log, "sampler", name) as f64;
    let capacity = logged(&log, "buffer", "capacity_bytes") as f64;
    let bytes_a_second = logged(&log, "buffer", "put_bytes") as f64 / seconds;
    let running = count("captured_samples") + count("remote_samples");
    let mut answer = json!({
        "ours": full_after.unwrap_or(capacity / bytes_a_second) / 60.0,
        "bytes_a_second": bytes_a_second,
        "samples_a_second": (running + count("same_samples")) / seconds,
        "running_a_second": running / seconds,
    });
    let single_samples = match Entries::of(&log, &SINGLE_SAMPLES) {
        Ok(entries) => {
            let ticks_a_second = 1.0 / INTERVAL.as_secs_f64();
            let full_rate = THREADS as f64 * ticks_a_second * entries.mean_bytes();
            answer["ours_at_8000"] = json!(capacity / full_rate / 60.0);
            format!("{:.1} bytes per single-sample entry", entries.mean_bytes())
        }
        Err(problem) => format!("cannot compute ours_at_8000: {problem}"),
    };
    let full = match full_after {
        Some(seconds) => format!("full after {seconds:.1} s"),
        None => "nothing was discarded".to_owned(),
    };
    answer["note"] = json!(format!(
        "{seconds:.1} s, {full}; {single_samples}; {} ticks, {} missed",
        count("ticks"),
        count("missed_ticks")
    ));
    Ok(answer)
}
