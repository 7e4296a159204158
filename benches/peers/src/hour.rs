//! `hour`: how long the default buffer, of 128 MiB, lasts for 8 busy threads at 1,000 Hz before the oldest is given up.
//!
//! The threads have deep stacks that vary (`deep.rs`) and run all the time, as far as there are processors for them. `ours`
//! is the time until the buffer is full at the rate of bytes that was seen; where it was full within the run, the time at
//! which that was. `ours_at_8000` is the same for 8 threads that run at every tick, each on a processor of its own: 8,000
//! samples a second, of as many bytes as an entry of a single sample had here, runs of samples of threads that waited for
//! their turn left out. It is computed, not seen.
//!
//! The long form runs for five minutes and so sees whether four are kept; the quick one extrapolates from 20 seconds.

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
        Arm::aside("ours_at_8000"),
        Arm::aside("bytes_a_second"),
        Arm::aside("samples_a_second"),
        Arm::aside("running_a_second"),
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
            "{}; processors that others + the hypervisor had: {taken}",
            run["note"].as_str().unwrap_or_default()
        ),
    ];
    Ok(Report {
        unit: "minutes that 128 MiB last for 8 busy threads at 1,000 Hz",
        ours,
        peers: others.into(),
        floor: None,
        better: f64::max,
        goal: "ours >= 4 minutes, here and for threads that run at every tick",
        met,
        notes,
    })
}

/// Its argument: how many seconds.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [seconds] = arguments else {
        return Err("a number of seconds".into());
    };
    let time = Duration::from_secs(seconds.parse()?);
    let session =
        ProfilerSession::start(StartParams::default().interval(INTERVAL).filters(["deep"]))?;
    let threads = DeepThreads::start(THREADS, Rhythm::Busy)?;
    let begin = Instant::now();
    let mut full_after = None;
    while begin.elapsed() < time && full_after.is_none() {
        std::thread::sleep(Duration::from_millis(250));
        let info = profiler_get_buffer_info().ok_or("the session has ended")?;
        full_after = (info.recycled_bytes > 0).then(|| begin.elapsed().as_secs_f64());
    }
    let profile = session.finish()?;
    let seconds = begin.elapsed().as_secs_f64();
    drop(threads);

    let log = log_of(&profile)?;
    let count = |name| logged(&log, "sampler", name) as f64;
    let capacity = logged(&log, "buffer", "capacity_bytes") as f64;
    let bytes_a_second = logged(&log, "buffer", "put_bytes") as f64 / seconds;
    let running = count("captured_samples") + count("samples_from_outside");
    let mut answer = json!({
        "ours": full_after.unwrap_or(capacity / bytes_a_second) / 60.0,
        "bytes_a_second": bytes_a_second,
        "samples_a_second": (running + count("same_samples")) / seconds,
        "running_a_second": running / seconds,
    });
    let told = match Entries::of(&log, &SINGLE_SAMPLES) {
        Ok(entries) => {
            let ticks_a_second = 1.0 / INTERVAL.as_secs_f64();
            let full_rate = THREADS as f64 * ticks_a_second * entries.mean_bytes();
            answer["ours_at_8000"] = json!(capacity / full_rate / 60.0);
            format!(
                "{:.1} bytes an entry of a single sample",
                entries.mean_bytes()
            )
        }
        Err(problem) => format!("ours_at_8000 is not available: {problem}"),
    };
    let full = match full_after {
        Some(seconds) => format!("full after {seconds:.1} s"),
        None => "nothing was given up".to_owned(),
    };
    answer["note"] = json!(format!(
        "{seconds:.1} s, {full}; {told}; {} ticks, {} missed",
        count("ticks"),
        count("missed_ticks")
    ));
    Ok(answer)
}
