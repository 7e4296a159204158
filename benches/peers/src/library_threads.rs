//! `library_threads`: share of a program's CPU time that is in named stacks, if libraries make its
//! threads and `main` has the one line of the README.
//!
//! The programs are in `library_programs.rs`. Each creates an `AutoProfilerInit`, as the README says,
//! and the environment variables `MOZ_PROFILER_STARTUP=1` and `MOZ_PROFILER_SHUTDOWN` do the rest:
//! the figures are read from the file that the program saves.
//!
//! A program's figure is the sum of the samples' `threadCPUDelta`, of all threads, divided by the
//! CPU time of the process over the same time without that of the sampler's thread, which the profile
//! reports. Only samples count whose innermost function has a name, and whose stack is whole. `ours`
//! is the least of the four programs.
//!
//! Each run is a separate process; the programs are interleaved.

use gekkota::AutoProfilerInit;

use crate::library_programs::{PROGRAMS, Tree};
use crate::prelude::*;
use crate::profile::{CpuInSamples, threads, zero_ns};
use crate::raw::{monotonic_ns, process_cpu_ns};

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "library_threads",
    unit: "CPU time in whole stacks with a named innermost function / CPU time of the process; `ours` is the least",
    goal: "each program >= 0.95, with the README's one line and the default interval",
    better: f64::max,
    is_met: |study| {
        PROGRAMS
            .iter()
            .all(|(program, _)| study.figure(program) >= 0.95)
    },
    measure: |study| {
        let span_ms = study.pick(1000, 4000);
        let about = format!("{span_ms} ms per program");
        study.rounds(study.pick(2, 5), about, |study, _| {
            let mut least = f64::INFINITY;
            for (program, _) in PROGRAMS {
                let share = run_program(program, span_ms)?;
                least = least.min(share);
                study.push(program, share);
            }
            study.push("ours", least);
            Ok(())
        })
    },
    part: run,
    ..Measurement::NEW
};

fn run_program(name: &str, span_ms: u64) -> Fallible<f64> {
    let saved = Temporary::new(".json");
    let mut command = child::command("library_threads", &[&name, &span_ms])?;
    command
        .env("MOZ_PROFILER_STARTUP", "1")
        .env("MOZ_PROFILER_SHUTDOWN", &*saved);
    let answer = child::answer_of(command)?;
    let profile: Value = serde_json::from_slice(&std::fs::read(&*saved)?)?;
    let number = |name: &str| answer[name].as_u64().ok_or("the run lacks a time");
    share_in_names(&profile, number("cpu_ns")?, number("ended_ns")?)
}

/// Returns the share of a process's CPU time, of `cpu_ns` until a moment of the monotonic clock, that
/// is in named stacks.
fn share_in_names(profile: &Value, cpu_ns: u64, ended_ns: u64) -> Fallible<f64> {
    // The last samples of the span may arrive on the tick after it.
    const LAST_TICK_MS: f64 = 1.0;
    let until_ms = ended_ns.saturating_sub(zero_ns(profile)?) as f64 / 1e6 + LAST_TICK_MS;
    let log = profile["profilingLog"]
        .as_object()
        .and_then(|log| log.values().next());
    let log = log.ok_or("the profile has no log")?;
    let mut sums = CpuInSamples::default();
    for thread in threads(profile) {
        sums.add_thread(thread, until_ms)
            .ok_or("a thread has no samples")?;
    }
    let sampler_ns = log["sampler"]["sampler_cpu_ns"].as_f64().unwrap_or(0.0);
    Ok(sums.named_ns / (cpu_ns as f64 - sampler_ns))
}

/// Runs a program. Arguments: its name, and the time in milliseconds.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let name = arguments.text(0)?;
    let (_, program) = PROGRAMS
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or("unknown program")?;
    let tree = Tree::create()?;
    let _profiler = AutoProfilerInit::new();
    let before_ns = process_cpu_ns();
    let result = program(&tree, Instant::now() + arguments.milliseconds(1)?)?;
    let (cpu_ns, ended_ns) = (process_cpu_ns() - before_ns, monotonic_ns());
    Ok(json!({"cpu_ns": cpu_ns, "ended_ns": ended_ns, "result": result}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_in_names_leaves_out_the_sampler_and_what_follows_the_end() {
        let profile = json!({
            "meta": {"startTimeAsClockMonotonicNanosecondsSinceBoot": 1_000_000},
            "profilingLog": {"7": {"sampler": {"sampler_cpu_ns": 100}}},
            "threads": [{
                "stringTable": ["work"],
                "frameTable": {"schema": {"location": 0}, "data": [[0]]},
                "stackTable": {"schema": {"prefix": 0, "frame": 1}, "data": [[null, 0]]},
                "samples": {
                    "schema": {"stack": 0, "time": 1, "eventDelay": 2, "threadCPUDelta": 3},
                    "data": [[0, 1.0, null, 300], [0, 4.0, null, 150], [0, 9.0, null, 1000]],
                },
            }],
        });
        let run = share_in_names(&profile, 600, 5_000_000).expect("a profile");
        assert_eq!(run, 0.9);
        assert!(share_in_names(&Value::Null, 600, 5_000_000).is_err());
    }
}
