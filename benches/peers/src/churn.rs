//! `churn`: time that `register_thread` and `unregister_thread` add to creating and joining a
//! thread.
//!
//! There are four kinds of batches: create + register + unregister + join while the profiler runs
//! at 1,000 Hz, create + join without a profiler, and the two other combinations. They are
//! interleaved in one process, and their order rotates. The figure is the median, over the turns,
//! of the difference between the two batches' medians: whatever slows the machine for longer than a
//! turn affects both. The combination "registers, no session" is the cost for a program that
//! contains the profiler and does not use it. The combination "does not register, in a session" is
//! the cost of sampling the thread that creates the others.

use std::error::Error;
use std::time::{Duration, Instant};

use gekkota::{ProfilerSession, StartParams, register_thread, unregister_thread};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::profile::{count, engine_of_params};
use crate::report::{Arm, Report, median};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const THREADS_PER_BATCH: usize = 2000;
/// Wait after a session's start, until it samples.
const SETTLE: Duration = Duration::from_millis(10);
const GOAL_MICROSECONDS: f64 = 3.0;

/// Whether a batch's threads register, and whether a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pairing {
    registers: bool,
    in_session: bool,
}

const PLAIN: usize = 0;
const PAIRINGS: [(Pairing, &str); 4] = [
    (
        Pairing {
            registers: false,
            in_session: false,
        },
        "create + join",
    ),
    (
        Pairing {
            registers: true,
            in_session: true,
        },
        "registers, in a session",
    ),
    (
        Pairing {
            registers: true,
            in_session: false,
        },
        "registers, no session",
    ),
    (
        Pairing {
            registers: false,
            in_session: true,
        },
        "does not register, in a session",
    ),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, batches) = if effort.quick { (3, 8) } else { (7, 40) };
    let mut ours = Arm::new("ours");
    let mut others = [
        Arm::extra("ours_without_session"),
        Arm::extra("session_alone"),
    ];
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {THREADS_PER_BATCH} threads per combination, interleaved; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let (run, taken) = machine::watch(|| child::run("churn", &[batches.to_string()]));
        let run = run?;
        for (arm, pairing) in std::iter::once(&mut ours)
            .chain(&mut others)
            .zip(PLAIN + 1..)
        {
            arm.runs.push(
                run["above_plain"][pairing]
                    .as_f64()
                    .ok_or("the child's answer lacks the figure of a combination")?,
            );
        }
        let each: Vec<String> = PAIRINGS
            .iter()
            .enumerate()
            .map(|(place, (_, name))| {
                let number = |column: &str| run[column][place].as_f64().unwrap_or(f64::NAN);
                format!(
                    "{name} {:.2}, mean {:.2}, p99 {:.1}",
                    number("medians"),
                    number("means"),
                    number("p99s")
                )
            })
            .collect();
        notes.push(format!(
            "round {round}: µs: {}; {} samples of these threads and their creator; engine: {}; CPUs used by other processes + the \
             hypervisor: {taken}",
            each.join("; "),
            run["samples"],
            run["engine"].as_str().unwrap_or_default(),
        ));
    }
    let met = ours.figure() <= GOAL_MICROSECONDS;
    Ok(Report {
        unit: "µs per thread, above create + join without a profiler",
        ours,
        peers: others.into(),
        floor: None,
        better: f64::min,
        goal: "ours <= 3 µs with the profiler running at 1,000 Hz",
        met,
        notes,
    })
}

/// Runs one round in the child process. Argument: the number of batches per combination.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [batches] = arguments else {
        return Err("expected the number of batches".into());
    };
    let engine = engine_of_params(StartParams::default().interval(INTERVAL))?;
    let mut times: [Vec<f64>; PAIRINGS.len()] = Default::default();
    let mut batch_medians: [Vec<f64>; PAIRINGS.len()] = Default::default();
    let mut samples = 0;
    for batch in 0..batches.parse::<usize>()? {
        for turn in 0..PAIRINGS.len() {
            let place = (batch + turn) % PAIRINGS.len();
            let (pairing, _) = PAIRINGS[place];
            let session = match pairing.in_session {
                true => Some(ProfilerSession::start(
                    StartParams::default().interval(INTERVAL),
                )?),
                false => None,
            };
            std::thread::sleep(SETTLE);
            let batch = run_batch(pairing)?;
            batch_medians[place].push(median(&batch));
            times[place].extend(batch);
            if let Some(session) = session {
                let profile = session.finish()?;
                samples += count(&profile, "captured_samples").unwrap_or(0);
            }
        }
    }
    Ok(json!({
        "above_plain": batch_medians.each_ref().map(|medians| median_difference(medians, &batch_medians[PLAIN])),
        "medians": times.each_ref().map(|times| median(times)),
        "means": times.each_ref().map(|times| times.iter().sum::<f64>() / times.len() as f64),
        "p99s": times.each_ref().map(|times| percentile(times, 0.99)),
        "samples": samples,
        "engine": engine,
    }))
}

/// Runs a batch and returns the microseconds that each thread took.
fn run_batch(pairing: Pairing) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut microseconds = Vec::with_capacity(THREADS_PER_BATCH);
    for _ in 0..THREADS_PER_BATCH {
        let start = Instant::now();
        let thread = std::thread::Builder::new().spawn(move || {
            if pairing.registers {
                register_thread("churn");
                unregister_thread();
            }
        })?;
        thread.join().map_err(|_| "a thread panicked")?;
        microseconds.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(microseconds)
}

/// Returns the median of the pairwise differences.
fn median_difference(values: &[f64], others: &[f64]) -> f64 {
    let differences: Vec<f64> = values
        .iter()
        .zip(others)
        .map(|(value, other)| value - other)
        .collect();
    median(&differences)
}

/// Returns the value that a share `part` of all values does not exceed, or NaN without values.
fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() as f64 * part).ceil() as usize;
    sorted
        .get(place.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_returns_one_of_the_values() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&values, 1.0), 200.0);
        assert_eq!(percentile(&[4.0], 0.99), 4.0);
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn median_difference_ignores_a_slow_turn() {
        assert_eq!(
            median_difference(&[33.0, 53.5, 34.0], &[30.0, 50.0, 31.0]),
            3.0
        );
    }

    #[test]
    fn pairings_start_with_the_two_compared_ones() {
        assert_eq!(
            PAIRINGS[PLAIN].0,
            Pairing {
                registers: false,
                in_session: false
            }
        );
        assert_eq!(
            PAIRINGS[PLAIN + 1].0,
            Pairing {
                registers: true,
                in_session: true
            }
        );
    }
}
