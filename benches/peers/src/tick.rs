//! `tick`: time that the application's counters take of each tick.
//!
//! Each arm is a session at 1,000 Hz in a process of its own, with one busy thread: without
//! counters, with 100 that do not change, and with 100 that change before each tick. The profiler
//! itself measures how long a tick reads counters. Process CPU time and memory are not recorded,
//! because they are read on every 20th tick only.
//!
//! `ours` is the additional time for one counter that does not change, and `changing` for one that
//! does; `none` is the time of the step without counters.

use std::sync::atomic::{AtomicBool, Ordering};

use gekkota::counter::OwnedProfilerCounter;
use gekkota::{Features, profiler_get_buffer_info};

use crate::prelude::*;

const COUNTERS: usize = 100;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "tick",
    unit: "ns of a tick for one counter that does not change",
    goal: "ours <= 20 ns",
    is_met: |study| study.at_most(&["ours"], 20.0),
    measure: |study| {
        let seconds = study.pick(1, 3);
        let about = format!("{seconds} s per arm; {COUNTERS} counters");
        study.rounds(study.pick(3, 9), about, |study, _| {
            let step = |counters: usize, changes: bool| {
                number(
                    &child::run("tick", &[&counters, &changes, &seconds])?,
                    "step_ns",
                )
            };
            let none = step(0, false)?;
            study.push("none", none);
            for (arm, changes) in [("ours", false), ("changing", true)] {
                study.push(arm, (step(COUNTERS, changes)? - none) / COUNTERS as f64);
            }
            Ok(())
        })
    },
    part: run,
    ..Measurement::NEW
};

/// Runs one session. Arguments: the number of counters, whether they change, and the seconds.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (changes, seconds) = (arguments.get(1)?, arguments.get(2)?);
    let counters: Vec<_> = (0..arguments.get(0)?)
        .map(|index: usize| OwnedProfilerCounter::new(&format!("counter {index}"), "Bench", ""))
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
        let steps = Duration::from_secs(seconds).as_micros() / INTERVAL.as_micros() * 2;
        for _ in 0..steps {
            if changes {
                counters.iter().for_each(|counter| counter.add(1));
            }
            std::thread::sleep(INTERVAL / 2);
        }
        ends.store(true, Ordering::Relaxed);
    });
    let info = profiler_get_buffer_info().ok_or("the session has ended")?;
    let step_ns = info.counters.sum_ns as f64 / info.counters.count.max(1) as f64;
    drop(session);
    Ok(json!({ "step_ns": step_ns }))
}
