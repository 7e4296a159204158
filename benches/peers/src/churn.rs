//! `churn`: what `register_thread` and `unregister_thread` add to making a thread and joining it.
//!
//! Batches of make + register + unregister + join while the profiler runs at 1,000 Hz, of make + join without any
//! profiler, and of the two other pairings take turns within one process, and their order is turned from turn to turn. The
//! figure is the median over the turns of the one batch's median less the other's: whatever slows the machine for longer
//! than a turn is in both. The pairing "registers, no session" tells what a program pays
//! that carries the profiler and does not use it; "does not register, in a session" what sampling the thread that makes
//! the others costs it.

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
/// From a session's start until it samples.
const SETTLE: Duration = Duration::from_millis(10);
const GOAL_MICROSECONDS: f64 = 3.0;

/// What a batch's threads do, and in what.
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
        "make + join",
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
        Arm::aside("ours_without_session"),
        Arm::aside("session_alone"),
    ];
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {THREADS_PER_BATCH} threads a pairing, in turns; {}",
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
                    .ok_or("a pairing without a figure")?,
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
            "round {round}: µs: {}; {} samples of them and of the thread that makes them; engine: {}; processors that others + the \
             hypervisor had: {taken}",
            each.join("; "),
            run["samples"],
            run["engine"].as_str().unwrap_or_default(),
        ));
    }
    let met = ours.figure() <= GOAL_MICROSECONDS;
    Ok(Report {
        unit: "µs a thread, above make + join without a profiler",
        ours,
        peers: others.into(),
        floor: None,
        better: f64::min,
        goal: "ours <= 3 µs with the profiler running at 1,000 Hz",
        met,
        notes,
    })
}

/// Its argument: how many batches of each pairing.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [batches] = arguments else {
        return Err("a number of batches".into());
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

/// Microseconds of each thread.
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
        thread.join().map_err(|_| "a thread has panicked")?;
        microseconds.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(microseconds)
}

/// Of the pairs, the one value less the other.
fn median_difference(values: &[f64], others: &[f64]) -> f64 {
    let differences: Vec<f64> = values
        .iter()
        .zip(others)
        .map(|(value, other)| value - other)
        .collect();
    median(&differences)
}

/// The value that this part of all are at most; NaN of nothing.
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
    fn percentiles_are_values() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&values, 1.0), 200.0);
        assert_eq!(percentile(&[4.0], 0.99), 4.0);
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn a_slow_turn_is_slow_for_both() {
        assert_eq!(
            median_difference(&[33.0, 53.5, 34.0], &[30.0, 50.0, 31.0]),
            3.0
        );
    }

    #[test]
    fn what_is_compared_with_comes_first() {
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
