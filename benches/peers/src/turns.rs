//! Batches of several arms, in turns within one process.

use std::time::Duration;

use gekkota::{ProfilerSession, StartParams, ThreadGuard};
use serde_json::{Map, Value};

use crate::numbers::{least, median};
use crate::study::{Fallible, INTERVAL};

/// An arm: its name, and a function that runs a batch and returns its figure. The function gets
/// what all arms share.
pub(crate) type Arm<C> = (&'static str, fn(&C) -> Fallible<f64>);

/// The figures of all batches, by arm.
pub(crate) struct Turns(pub(crate) Vec<(&'static str, Vec<f64>)>);

impl Turns {
    /// Runs this many batches of each arm. In each turn, another arm comes first.
    pub(crate) fn run<C>(batches: usize, arms: &[Arm<C>], shared: &C) -> Fallible<Self> {
        let mut turns: Vec<_> = arms.iter().map(|(name, _)| (*name, Vec::new())).collect();
        for batch in 0..batches {
            for turn in 0..arms.len() {
                let place = (batch + turn) % arms.len();
                turns[place].1.push(arms[place].1(shared)?);
            }
        }
        Ok(Self(turns))
    }

    /// Returns the medians as a part's answer, and the fastest batches as further figures.
    pub(crate) fn answer(&self) -> Value {
        let of_each = |prefix: &str, figure: fn(&[f64]) -> f64| -> Map<String, Value> {
            let arms = self.0.iter();
            arms.map(|(name, runs)| (format!("{prefix}{name}"), figure(runs).into()))
                .collect()
        };
        let mut answer = of_each("", median);
        answer.insert("also".to_owned(), of_each("fastest_", least).into());
        answer.into()
    }
}

/// Time before a batch, with and without a session: long enough for a session to sample.
pub(crate) const SETTLING: Duration = Duration::from_millis(10);

/// Starts a session at 1,000 Hz, and waits until it samples.
pub(crate) fn settled_session() -> Fallible<ProfilerSession> {
    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
    std::thread::sleep(SETTLING);
    Ok(session)
}

/// Runs a batch on the calling thread, registered and in a session that samples it.
pub(crate) fn in_session(batch: impl FnOnce() -> f64) -> Fallible<f64> {
    let _registered = ThreadGuard::register("a thread");
    let session = settled_session()?;
    let time = batch();
    drop(session.finish()?);
    Ok(time)
}

/// Runs a batch on the calling thread, registered and without a session.
pub(crate) fn registered(batch: impl FnOnce() -> f64) -> Fallible<f64> {
    let _registered = ThreadGuard::register("a thread");
    Ok(batch())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::batch::batch;
    use crate::numbers::percentile;

    #[test]
    fn batch_returns_the_time_of_one_repetition() {
        let start = Instant::now();
        let time = batch!(3, std::thread::sleep(Duration::from_millis(1)));
        let whole = start.elapsed().as_secs_f64() * 1e9;
        assert!((1e6..=whole / 24.0).contains(&time), "{time} of {whole}");
    }

    #[test]
    fn median_and_percentile_return_expected_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&values, 1.0), 200.0);
        assert_eq!(percentile(&[4.0], 0.99), 4.0);
        assert!(percentile(&[], 0.5).is_nan());
    }
}
