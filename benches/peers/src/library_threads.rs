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

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use gekkota::AutoProfilerInit;
use serde_json::{Value, json};

use crate::library_programs::Program;
use crate::machine::{self, load_note};
use crate::profile::{CpuInSamples, threads};
use crate::raw::{monotonic_ns, process_cpu_ns};
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const GOAL: f64 = 0.95;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, span_ms) = if effort.quick { (2, 1000) } else { (5, 4000) };
    let mut ours = Arm::new("ours");
    let mut arms = Program::NAMES.map(Arm::extra);
    let mut notes = vec![format!(
        "{rounds} rounds of {span_ms} ms per program, interleaved; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let mut least = f64::INFINITY;
        for arm in &mut arms {
            let (run, taken) = machine::watch(|| run_program(arm.name, span_ms));
            let run = run?;
            arm.runs.push(run.named);
            least = least.min(run.named);
            notes.push(format!(
                "round {round}: {}: {}; CPUs used by other processes + the hypervisor: {taken}",
                arm.name, run.note
            ));
        }
        ours.runs.push(least);
    }
    let met = arms.iter().all(|arm| arm.figure() >= GOAL);
    Ok(Report {
        unit: "CPU time in whole stacks with a named innermost function / CPU time of the process; `ours` is the least",
        ours,
        peers: arms.into(),
        floor: None,
        better: f64::max,
        goal: "each program >= 0.95, with the README's one line and the default interval",
        met,
        notes,
    })
}

struct Run {
    /// Share of the CPU time in named stacks.
    named: f64,
    note: String,
}

/// A file that is removed at the end.
struct SavedProfile(PathBuf);

impl Drop for SavedProfile {
    fn drop(&mut self) {
        // If this fails, the file stays among the temporary files.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run_program(name: &str, span_ms: u64) -> Result<Run, Box<dyn Error>> {
    let file = format!("gekkota-peers-{}-{name}.json", std::process::id());
    let saved = SavedProfile(std::env::temp_dir().join(file));
    let variables = [
        ("MOZ_PROFILER_STARTUP", "1".as_ref()),
        ("MOZ_PROFILER_SHUTDOWN", saved.0.as_os_str()),
    ];
    let arguments = [name.to_owned(), span_ms.to_string()];
    let answer = child::run_with_variables("library_threads", &arguments, &variables)?;
    let profile: Value = serde_json::from_slice(&std::fs::read(&saved.0)?)?;
    let number = |name: &str| {
        answer[name]
            .as_u64()
            .ok_or_else(|| format!("the run has no {name}"))
    };
    summarize(&profile, number("cpu_ns")?, number("ended_ns")?)
}

/// Returns the shares of a process's CPU time, of `cpu_ns` until a moment of the monotonic clock.
fn summarize(profile: &Value, cpu_ns: u64, ended_ns: u64) -> Result<Run, Box<dyn Error>> {
    let zero_ns = profile["meta"]["startTimeAsClockMonotonicNanosecondsSinceBoot"]
        .as_u64()
        .ok_or("the profile has no start time")?;
    // The last samples of the span may arrive on the tick after it.
    const LAST_TICK_MS: f64 = 1.0;
    let until_ms = ended_ns.saturating_sub(zero_ns) as f64 / 1e6 + LAST_TICK_MS;
    let log = profile["profilingLog"]
        .as_object()
        .and_then(|log| log.values().next())
        .ok_or("the profile has no log")?;
    let count = |name: &str| log["sampler"][name].as_u64().unwrap_or(0);
    let mut sums = CpuInSamples::default();
    for thread in threads(profile) {
        sums.add_thread(thread, until_ms)
            .ok_or("a thread has no samples")?;
    }
    let sampler_ns = count("sampler_cpu_ns") as f64;
    let used_ns = cpu_ns as f64 - sampler_ns;
    let note = format!(
        "{:.2} s of CPU time and {:.3} s of the sampler; {:.4} of the former in samples, {:.4} in truncated stacks; {} \
         threads; {} of {} ticks missed, {} threads found, {} of them without a sample",
        used_ns / 1e9,
        sampler_ns / 1e9,
        sums.all_ns / used_ns,
        sums.truncated_ns / used_ns,
        threads(profile).count(),
        count("missed_ticks"),
        count("ticks"),
        count("unregistered_threads"),
        count("unsampled_threads"),
    );
    Ok(Run {
        named: sums.named_ns / used_ns,
        note,
    })
}

/// Runs a program in the child process. Arguments: its name, and the time in milliseconds.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [name, span_ms] = arguments else {
        return Err("expected a program and the time in ms".into());
    };
    let program = Program::prepare(name)?;
    let _profiler = AutoProfilerInit::new();
    let before_ns = process_cpu_ns();
    let result = program.run(Duration::from_millis(span_ms.parse()?))?;
    let (cpu_ns, ended_ns) = (process_cpu_ns() - before_ns, monotonic_ns());
    Ok(json!({"cpu_ns": cpu_ns, "ended_ns": ended_ns, "result": result}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summarize_leaves_out_the_sampler_and_what_follows_the_end() {
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
        let run = summarize(&profile, 600, 5_000_000).expect("a profile");
        assert_eq!(run.named, 0.9);
        assert!(summarize(&Value::Null, 600, 5_000_000).is_err());
    }
}
