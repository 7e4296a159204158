//! `spawn`: slowdown of spawning processes and of forks while the profiler samples at 1,000 Hz.
//!
//! The process has 200 MiB of touched memory in small pages, so that copying the page table in a
//! fork takes longer than the interval. A signal makes the kernel restart a fork, so a fork may
//! never finish under a profiler that does not allow for this (gperftools #704). The loops are
//! `std::process::Command::spawn` + `wait` of `/bin/true`, and `fork` + `_exit` + `waitpid`. The
//! spawning thread is sampled.
//!
//! Batches with and without a session are interleaved in one process, in an order that reverses
//! from batch to batch. The figure is the median, over the pairs, of the time with a session
//! divided by the time without: whatever slows the machine for longer than a pair affects both.
//! pprof-rs is measured in the same way, in a separate process.
//!
//! `child_session` and `child_save` are the times, in ms, that a forked child takes for a session of
//! its own, and for one that it saves. The parent has no session then.

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use gekkota::{ProfilerSession, StartParams};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::profile::{count, engine_of_params};
use crate::raw_threads::{fork_and_wait, use_small_pages};
use crate::report::{Arm, Report, median};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const PROGRAM: &str = "/bin/true";
const TOUCHED_BYTES: usize = 200 << 20;
const SPAWNS_PER_BATCH: usize = 50;
const FORKS_PER_BATCH: usize = 10;
/// Number of children with a session of their own.
const CHILDREN: usize = 20;
/// Wait after a profiler's start, until it samples.
const SETTLE: Duration = Duration::from_millis(10);
const GOAL: f64 = 1.05;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, batches) = if effort.quick { (2, 8) } else { (5, 20) };
    let (mut ours, mut ours_fork) = (Arm::new("ours"), Arm::extra("ours_fork"));
    let [mut child_session, mut child_save] = ["child_session", "child_save"].map(Arm::extra);
    let (mut pprof, mut pprof_fork) = (Arm::new("pprof"), Arm::extra("pprof_fork"));
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {SPAWNS_PER_BATCH} spawns and {FORKS_PER_BATCH} forks, with and without a \
         profiler, interleaved; {} MiB touched; {}",
        TOUCHED_BYTES >> 20,
        load_note()
    )];
    for round in 1..=rounds {
        for (profiler, spawn, fork) in [
            ("ours", &mut ours, &mut ours_fork),
            ("pprof", &mut pprof, &mut pprof_fork),
        ] {
            let (run, taken) =
                machine::watch(|| child::run("spawn", &[profiler.to_owned(), batches.to_string()]));
            // A peer may hang, because its handler unwinds even when it interrupts an allocation or
            // a fork.
            let run = match run {
                Err(error) if profiler != "ours" => {
                    notes.push(format!("round {round}: cannot measure {profiler}: {error}"));
                    continue;
                }
                run => run?,
            };
            spawn.runs.extend(run["spawn"]["slowdown"].as_f64());
            fork.runs.extend(run["fork"]["slowdown"].as_f64());
            child_session.runs.extend(run["child_session"].as_f64());
            child_save.runs.extend(run["child_save"].as_f64());
            let pair = |loop_name: &str| {
                let number = |column: &str| run[loop_name][column].as_f64().unwrap_or(f64::NAN);
                format!(
                    "{loop_name} {:.1} µs without, {:.1} with",
                    number("without"),
                    number("with")
                )
            };
            notes.push(format!(
                "round {round}: {profiler}: {}; {}; {} samples; gekkota's engine on this machine: {}; CPUs used by other processes + the hypervisor: {taken}",
                pair("spawn"),
                pair("fork"),
                run["samples"],
                run["engine"].as_str().unwrap_or_default(),
            ));
        }
    }
    let met = [&ours, &ours_fork].iter().all(|arm| arm.figure() <= GOAL);
    let measured = [pprof, ours_fork, pprof_fork, child_session, child_save]
        .into_iter()
        .filter(|arm| !arm.runs.is_empty());
    Ok(Report {
        unit: "time / time without a profiler, of Command::spawn + wait (`…_fork`: of fork + _exit + waitpid; `child_…`: ms of a child)",
        ours,
        peers: measured.collect(),
        floor: None,
        better: f64::min,
        goal: "ours and ours_fork <= 1.05 at 1,000 Hz",
        met,
        notes,
    })
}

/// Runs one round in the child process. Arguments: the profiler, and the number of batches.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [profiler, batches] = arguments else {
        return Err("expected a profiler and the number of batches".into());
    };
    let engine = engine_of_params(StartParams::default().interval(INTERVAL))?;
    use_small_pages()?;
    let touched = std::hint::black_box(vec![1u8; TOUCHED_BYTES]);
    let (mut spawns, mut forks) = (Batches::default(), Batches::default());
    let mut samples = 0;
    for batch in 0..batches.parse::<usize>()? {
        for turn in [false, true] {
            let with = turn != (batch % 2 == 1);
            let running = if with {
                Some(RunningProfiler::start(profiler)?)
            } else {
                None
            };
            std::thread::sleep(SETTLE);
            spawns.time(with, SPAWNS_PER_BATCH, spawn_and_wait)?;
            forks.time(with, FORKS_PER_BATCH, || Ok(fork_and_wait(|| ())?))?;
            if let Some(running) = running {
                samples += running.end()?;
            }
        }
    }
    drop(touched);
    let mut answer = json!({"spawn": spawns.to_json(), "fork": forks.to_json(), "samples": samples, "engine": engine});
    if profiler == "ours" {
        answer["child_session"] = json!(child_ms(false)?);
        answer["child_save"] = json!(child_ms(true)?);
    }
    Ok(answer)
}

/// Returns how long a forked child takes for a session, in ms, and to save it if `saves`.
fn child_ms(saves: bool) -> Result<f64, Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("spawn-{}.json", std::process::id()));
    let body = || {
        let session = ProfilerSession::start(StartParams::default().interval(INTERVAL));
        let profile = session.expect("a session").finish().expect("a profile");
        if saves {
            profile.save(&file).expect("a file");
        }
    };
    let mut children = Batches::default();
    for _ in 0..CHILDREN {
        children.time(true, 1, || Ok(fork_and_wait(body)?))?;
    }
    // There is none if it does not save.
    let _ = std::fs::remove_file(&file);
    Ok(median(&children.with) / 1e3)
}

/// A running profiler.
enum RunningProfiler {
    Ours(ProfilerSession),
    Pprof(pprof::ProfilerGuard<'static>),
}

impl RunningProfiler {
    fn start(profiler: &str) -> Result<Self, Box<dyn Error>> {
        match profiler {
            "ours" => Ok(Self::Ours(ProfilerSession::start(
                StartParams::default().interval(INTERVAL),
            )?)),
            "pprof" => {
                let frequency = 1.0 / INTERVAL.as_secs_f64();
                Ok(Self::Pprof(pprof::ProfilerGuard::new(frequency as i32)?))
            }
            other => Err(format!("unknown profiler `{other}`").into()),
        }
    }

    /// Ends the profiling, and returns the number of samples.
    fn end(self) -> Result<u64, Box<dyn Error>> {
        match self {
            Self::Ours(session) => Ok(count(&session.finish()?, "captured_samples").unwrap_or(0)),
            Self::Pprof(guard) => Ok(guard
                .report()
                .build_unresolved()?
                .data
                .values()
                .sum::<isize>() as u64),
        }
    }
}

fn spawn_and_wait() -> Result<(), Box<dyn Error>> {
    let status = Command::new(PROGRAM).spawn()?.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{PROGRAM} ended with {status}").into())
    }
}

/// Times of the batches, in microseconds per iteration.
#[derive(Debug, Default)]
struct Batches {
    without: Vec<f64>,
    with: Vec<f64>,
}

impl Batches {
    fn time(
        &mut self,
        with: bool,
        turns: usize,
        mut turn: impl FnMut() -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        for _ in 0..turns {
            turn()?;
        }
        let time = start.elapsed().as_secs_f64() * 1e6 / turns as f64;
        if with {
            self.with.push(time)
        } else {
            self.without.push(time)
        }
        Ok(())
    }

    fn slowdown(&self) -> f64 {
        let factors: Vec<f64> = self
            .with
            .iter()
            .zip(&self.without)
            .map(|(with, without)| with / without)
            .collect();
        median(&factors)
    }

    fn to_json(&self) -> Value {
        json!({
            "slowdown": self.slowdown(),
            "without": median(&self.without),
            "with": median(&self.with),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_is_the_median_of_the_pairs() {
        let batches = Batches {
            without: vec![10.0, 80.0, 90.0],
            with: vec![12.0, 84.0, 10.0],
        };
        assert!((batches.slowdown() - 1.05).abs() < 1e-9);
    }

    #[test]
    fn time_divides_by_iterations_and_keeps_both_kinds_apart() {
        let mut batches = Batches::default();
        let turn = || {
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        };
        batches.time(true, 4, turn).expect("no failure");
        assert!(batches.without.is_empty() && batches.with[0] >= 1000.0);
        assert!(batches.time(false, 1, || Err("refused".into())).is_err());
    }

    #[test]
    fn spawn_and_wait_succeeds() {
        spawn_and_wait().expect("/bin/true");
    }
}
