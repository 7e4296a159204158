//! `churn`: time that `register_thread` and `unregister_thread` add to creating and joining a
//! thread.
//!
//! There are four kinds of batches: create + register + unregister + join while the profiler runs
//! at 1,000 Hz, create + join without a profiler, and the two other combinations. They are
//! interleaved in one process, and their order rotates. The figure is the median, over the turns,
//! of the difference between the two batches' medians: whatever slows the machine for longer than a
//! turn affects both. `ours_without_session` is the cost for a program that contains the profiler and
//! does not use it. `session_alone` is the cost of sampling the thread that creates the others, which
//! do not register.

use gekkota::unregister_thread;

use crate::prelude::*;
use crate::turns::{Arm, SETTLING, Turns, settled_session};

const THREADS_PER_BATCH: usize = 2000;

/// Whether a batch's threads register, and whether a session runs.
const ARMS: [Arm<()>; 4] = [
    ("plain", |_| batch(false, false)),
    ("ours", |_| batch(true, true)),
    ("ours_without_session", |_| batch(true, false)),
    ("session_alone", |_| batch(false, true)),
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "churn",
    unit: "µs per thread, above create + join without a profiler",
    goal: "ours <= 3 µs with the profiler running at 1,000 Hz",
    is_met: |study| study.at_most(&["ours"], 3.0),
    rounds: [3, 7],
    sizes: [&[8], &[40]],
    size_names: &["batches of 2,000 threads per combination"],
    part: run,
    ..Measurement::NEW
};

/// Runs one round. Arguments: the arm, which is all, and the number of batches per combination.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let turns = Turns::run(arguments.get(1)?, &ARMS, &())?;
    let plain = &turns.0[0].1;
    let mut answer = json!({ "also": { "plain": median(plain) } });
    for (arm, times) in &turns.0[1..] {
        answer[arm] = json!(median_difference(times, plain));
    }
    Ok(answer)
}

/// Runs a batch, and returns the median of the microseconds that each thread took.
fn batch(registers: bool, in_session: bool) -> Fallible<f64> {
    let session = in_session.then(settled_session).transpose()?;
    if session.is_none() {
        std::thread::sleep(SETTLING);
    }
    let mut microseconds = Vec::with_capacity(THREADS_PER_BATCH);
    for _ in 0..THREADS_PER_BATCH {
        let start = Instant::now();
        let thread = std::thread::Builder::new().spawn(move || {
            if registers {
                register_thread("churn");
                unregister_thread();
            }
        })?;
        thread.join().map_err(|_| "a thread panicked")?;
        microseconds.push(start.elapsed().as_secs_f64() * 1e6);
    }
    drop(session);
    Ok(median(&microseconds))
}

/// Returns the median of the pairwise differences.
fn median_difference(values: &[f64], others: &[f64]) -> f64 {
    let pairs = values.iter().zip(others);
    median(
        &pairs
            .map(|(value, other)| value - other)
            .collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_difference_ignores_a_slow_turn() {
        assert_eq!(
            median_difference(&[33.0, 53.5, 34.0], &[30.0, 50.0, 31.0]),
            3.0
        );
    }
}
