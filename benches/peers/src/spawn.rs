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

use std::process::Command;

use crate::prelude::*;
use nix::sys::prctl::set_thp_disable;

use crate::raw_threads::fork_and_wait;
use crate::turns::{SETTLING, settled_session};

const PROGRAM: &str = "/bin/true";
const TOUCHED_BYTES: usize = 200 << 20;
const SPAWNS_PER_BATCH: usize = 50;
const FORKS_PER_BATCH: usize = 10;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "spawn",
    unit: "time / time without a profiler, of Command::spawn + wait (`…_fork`: of fork + _exit + waitpid)",
    goal: "ours and ours_fork <= 1.05 at 1,000 Hz",
    peers: &["pprof"],
    is_met: |study| study.at_most(&["ours", "ours_fork"], 1.05),
    rounds: [2, 5],
    sizes: [&[8], &[20]],
    size_names: &["batches of 50 spawns and 10 forks, with a profiler and without"],
    arms: &["ours", "pprof"],
    part: run,
    ..Measurement::NEW
};

/// Runs one round. Arguments: the arm, and the number of batches.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (arm, batches): (_, usize) = (arguments.text(0)?, arguments.get(1)?);
    // Small pages, so that a fork has to copy a page table entry for each.
    set_thp_disable(true)?;
    let touched = std::hint::black_box(vec![1u8; TOUCHED_BYTES]);
    let (mut spawns, mut forks) = (Batches::default(), Batches::default());
    for batch in 0..batches {
        for turn in [false, true] {
            let with = turn != (batch % 2 == 1);
            let session = (with && arm == "ours").then(settled_session).transpose()?;
            let start_pprof = || pprof_rs::start(INTERVAL);
            let guard = (with && arm != "ours").then(start_pprof).transpose()?;
            if session.is_none() {
                std::thread::sleep(SETTLING);
            }
            spawns.time(with, SPAWNS_PER_BATCH, spawn_and_wait)?;
            forks.time(with, FORKS_PER_BATCH, || Ok(fork_and_wait(|| ())?))?;
            drop((session, guard));
        }
    }
    drop(touched);
    Ok(json!({ arm: spawns.slowdown(), format!("{arm}_fork"): forks.slowdown() }))
}

fn spawn_and_wait() -> Fallible<()> {
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
        mut turn: impl FnMut() -> Fallible<()>,
    ) -> Fallible<()> {
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
