//! `unregistered`: cost and coverage of threads that have not registered, beside the same threads
//! registered, at 1,000 Hz.
//!
//! - 1,000 threads sleep, as in `idle`. The figure is the CPU time of the sampler's thread, as the
//!   session counts it, in percent of one processor; the compared figure is that of the same threads
//!   registered. `start` is the sampler's CPU time in ms from the session's start until the span, 2 s
//!   later: it finds the threads, and captures the first stack of each. What the threads themselves
//!   use to register is not included.
//! - 64 threads are busy, as in `capture`. `busy` is the sampler's CPU time in percent of one
//!   processor, from the session's start on, and `captured` the CPU time in samples divided by the
//!   CPU time that the threads' own clocks show. pprof-rs's is its number of samples × interval,
//!   divided by that time, and so is `ours_by_count`, with our samples of threads that ran.
//! - 64 threads share a fixed amount of work. `added` is the user and system time of the whole
//!   process above that of the same process without a session, in percent of the latter: what the
//!   user of a program sees. It has the noise of the difference of two large numbers.
//!
//! Each run is a separate process; the arms are interleaved.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gekkota::{ProfilerSession, StartParams, register_thread};
use serde_json::{Value, json};

use crate::busy::SharedWork;
use crate::machine::{self, load_note};
use crate::raw::process_cpu_ns;
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const BUSY_THREADS: usize = 64;
const GOAL_RATIO: f64 = 1.1;
const GOAL_CAPTURED: f64 = 0.98;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, idle_ms, busy_ms, portions) = if effort.quick {
        (2, 1500, 800, 60_000)
    } else {
        (5, 6000, 4000, 300_000)
    };
    let (mut ours, mut registered) = (Arm::new("ours"), Arm::new("registered"));
    let [mut start, mut start_registered] = ["start", "start_registered"].map(Arm::extra);
    let [mut busy, mut busy_registered] = ["busy", "busy_registered"].map(Arm::extra);
    let mut captured = ["captured", "captured_registered", "captured_pprof"].map(Arm::extra);
    let mut by_count = ["ours_by_count", "registered_by_count"].map(Arm::extra);
    let mut added = ["added", "added_registered", "added_pprof"].map(Arm::extra);
    let mut notes = vec![format!(
        "{rounds} rounds per arm, interleaved: 1,000 sleeping threads for {idle_ms} ms, {BUSY_THREADS} busy ones for \
         {busy_ms} ms, {BUSY_THREADS} with {portions} portions of work; {}",
        load_note()
    )];
    for round in 1..=rounds {
        for (arm, start, part) in [
            (&mut ours, &mut start, "ours_unregistered"),
            (&mut registered, &mut start_registered, "ours"),
        ] {
            let arguments = [part.to_owned(), idle_ms.to_string()];
            let (run, taken) = machine::watch(|| child::run("idle", &arguments));
            let run = run?;
            arm.runs.extend(run["percent"].as_f64());
            start.runs.extend(run["before_span_ms"].as_f64());
            notes.push(format!(
                "round {round}: sleeping, {}: {}; CPUs used by other processes + the hypervisor: {taken}",
                arm.name,
                run["note"].as_str().unwrap_or_default(),
            ));
        }
        let [ours_captured, registered_captured, pprof_captured] = &mut captured;
        let [ours_by_count, registered_by_count] = &mut by_count;
        for (arm, of_ours, part) in [
            (
                ours_captured,
                Some((&mut busy, ours_by_count)),
                "ours_unregistered",
            ),
            (
                registered_captured,
                Some((&mut busy_registered, registered_by_count)),
                "ours",
            ),
            (pprof_captured, None, "pprof"),
        ] {
            let arguments = [
                part.to_owned(),
                BUSY_THREADS.to_string(),
                busy_ms.to_string(),
            ];
            let (run, taken) = machine::watch(|| child::run("capture", &arguments));
            // A peer may hang in its signal handler.
            let run = match run {
                Err(error) if part == "pprof" => {
                    notes.push(format!("round {round}: cannot measure pprof: {error}"));
                    continue;
                }
                run => run?,
            };
            arm.runs.extend(run["captured"].as_f64());
            if let Some((sampler, by_count)) = of_ours {
                sampler.runs.extend(run["sampler_percent"].as_f64());
                by_count.runs.extend(run["by_count"].as_f64());
            }
            notes.push(format!(
                "round {round}: busy, {}: {}; CPUs used by other processes + the hypervisor: {taken}",
                arm.name,
                run["counts"].as_str().unwrap_or("no counts"),
            ));
        }
        let work = |profiler: &str| {
            child::run("unregistered", &[profiler.to_owned(), portions.to_string()])
        };
        let bare_s = number(&work("none")?, "cpu_s");
        for (arm, profiler) in added.iter_mut().zip(["ours", "registered", "pprof"]) {
            match work(profiler) {
                Err(error) if profiler == "pprof" => {
                    notes.push(format!("round {round}: cannot measure pprof: {error}"));
                }
                run => arm
                    .runs
                    .push((number(&run?, "cpu_s") / bare_s - 1.0) * 100.0),
            }
        }
        notes.push(format!(
            "round {round}: the work takes {bare_s:.3} s of CPU time without a session"
        ));
    }
    let is_cheap = |ours: &Arm, registered: &Arm| ours.figure() <= GOAL_RATIO * registered.figure();
    let met = is_cheap(&ours, &registered)
        && is_cheap(&busy, &busy_registered)
        && captured[0].figure() >= GOAL_CAPTURED;
    let measured = [start, start_registered, busy, busy_registered]
        .into_iter()
        .chain(captured)
        .chain(by_count)
        .chain(added)
        .filter(|arm| !arm.runs.is_empty());
    Ok(Report {
        unit: "sampler's CPU time in % of one CPU, with 1,000 sleeping threads and (`busy…`) 64 busy ones; `start…`: in ms at the \
               session's start; `captured…`: \
               CPU time in samples / CPU time used; `added…`: CPU time that the profiler adds to a program, in %",
        ours,
        peers: [registered].into_iter().chain(measured).collect(),
        floor: None,
        better: f64::min,
        goal: "ours <= 1.1 × registered, busy <= 1.1 × busy_registered, and captured >= 0.98",
        met,
        notes,
    })
}

fn number(run: &Value, name: &str) -> f64 {
    run[name].as_f64().unwrap_or(f64::NAN)
}

/// Runs a fixed amount of work on 64 threads in the child process. Arguments: the profiler, and the
/// number of portions.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [profiler, portions] = arguments else {
        return Err("expected a profiler and the number of portions".into());
    };
    let first: fn() = match profiler.as_str() {
        "registered" => || register_thread(""),
        _ => || {},
    };
    let before_ns = process_cpu_ns();
    let (session, guard) = match profiler.as_str() {
        "none" => (None, None),
        "pprof" => {
            let frequency = 1.0 / INTERVAL.as_secs_f64();
            (None, Some(pprof::ProfilerGuard::new(frequency as i32)?))
        }
        _ => {
            let params = StartParams::default().interval(INTERVAL);
            (Some(ProfilerSession::start(params)?), None)
        }
    };
    let work = Arc::new(SharedWork::new(portions.parse()?));
    let sum = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..BUSY_THREADS)
        .map(|_| {
            let (work, sum) = (Arc::clone(&work), Arc::clone(&sum));
            std::thread::spawn(move || {
                first();
                sum.fetch_add(work.take_part(), Ordering::Relaxed);
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    let cpu_ns = process_cpu_ns() - before_ns;
    drop(guard);
    if let Some(session) = session {
        session.finish()?;
    }
    Ok(json!({"cpu_s": cpu_ns as f64 / 1e9, "result": sum.load(Ordering::Relaxed)}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_the_same_with_and_without_a_profiler() {
        let run = |profiler: &str| {
            let run = run_part(&[profiler.to_owned(), "500".to_owned()]).expect("a run");
            assert!(number(&run, "cpu_s") > 0.0);
            run["result"].as_u64().expect("a result")
        };
        let bare = run("none");
        assert_eq!([run("ours"), run("registered")], [bare; 2]);
    }
}
