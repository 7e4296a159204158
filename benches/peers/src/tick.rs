//! `tick`: time that the application's counters take of each tick.
//!
//! Each arm is a session at 1,000 Hz in a process of its own, with one busy thread: without
//! counters, with 100 that do not change, and with 100 that change before each tick. The profiler
//! itself measures how long a tick reads counters. Process CPU time and memory are not recorded,
//! because they are read on every 20th tick only.
//!
//! `ours` is the additional time for one counter that does not change, and `changing` for one that
//! does; `none` is the time of the step without counters.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gekkota::counter::OwnedProfilerCounter;
use gekkota::{Features, ProfilerSession, StartParams, profiler_get_buffer_info};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const COUNTERS: usize = 100;
const INTERVAL: Duration = Duration::from_millis(1);
const GOAL_NANOSECONDS: f64 = 20.0;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, seconds) = if effort.quick { (3, 1) } else { (9, 3) };
    let mut ours = Arm::new("ours");
    let mut changing = Arm::extra("changing");
    let mut none = Arm::extra("none");
    let mut notes = vec![format!(
        "{rounds} rounds of {seconds} s per arm, interleaved; {COUNTERS} counters; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let run = |counters: usize, changes: bool| {
            let arguments =
                [counters, usize::from(changes), seconds].map(|value| value.to_string());
            let answer = child::run("tick", &arguments)?;
            let ns = answer["step_ns"].as_f64();
            ns.ok_or_else(|| Box::<dyn Error>::from("the child's answer lacks the figure"))
        };
        let (steps, taken) = machine::watch(|| {
            Ok::<_, Box<dyn Error>>([run(0, false)?, run(COUNTERS, false)?, run(COUNTERS, true)?])
        });
        let [without, resting, busy] = steps?;
        none.runs.push(without);
        ours.runs.push((resting - without) / COUNTERS as f64);
        changing.runs.push((busy - without) / COUNTERS as f64);
        notes.push(format!(
            "round {round}: CPUs used by other processes + the hypervisor: {taken}"
        ));
    }
    let met = ours.figure() <= GOAL_NANOSECONDS;
    Ok(Report {
        unit: "ns of a tick for one counter that does not change",
        ours,
        peers: vec![changing, none],
        floor: None,
        better: f64::min,
        goal: "ours <= 20 ns",
        met,
        notes,
    })
}

/// Runs one session in the child process. Arguments: the number of counters, whether they change,
/// and the seconds.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [counters, changes, seconds] = arguments else {
        return Err("expected the number of counters, whether they change, and the seconds".into());
    };
    let counters: Vec<_> = (0..counters.parse()?)
        .map(|index| OwnedProfilerCounter::new(&format!("counter {index}"), "Bench", ""))
        .collect();
    let params = StartParams::default()
        .interval(INTERVAL)
        .features(Features::STACK_WALK | Features::CPU);
    let session = ProfilerSession::start(params)?;
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let steps = Duration::from_secs(seconds.parse()?).as_micros() / INTERVAL.as_micros() * 2;
        for _ in 0..steps {
            if changes == "1" {
                counters.iter().for_each(|counter| counter.add(1));
            }
            std::thread::sleep(INTERVAL / 2);
        }
        ends.store(true, Ordering::Relaxed);
        Ok::<_, Box<dyn Error>>(())
    })?;
    let info = profiler_get_buffer_info().ok_or("the session has ended")?;
    let step_ns = info.counters.sum_ns as f64 / info.counters.count.max(1) as f64;
    drop(session);
    Ok(json!({ "step_ns": step_ns }))
}
