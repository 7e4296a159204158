//! `tracing_layer`: time of a `tracing` span from creation to close, including entering and leaving
//! it, with `ProfilerLayer` and with `tracing-chrome`: for a span without fields, and for one with
//! a number and a text of 16 bytes (`…_fields`).
//!
//! A figure is the whole time of a span, including the registry and the loop; `registry` is a
//! registry without a layer. Each arm is the subscriber of a separate process, and the arms are
//! interleaved from round to round. A run's figure is the median of its process's batches. Ours
//! records in a session at 1,000 Hz, on a registered and sampled thread, with a buffer that is full
//! from the start. `tracing-chrome` writes on a background thread, for which the benchmark waits
//! outside of the measured time.

use std::hint::black_box;

use gekkota::ProfilerLayer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

use crate::batch::{PER_ROUND, batch};
use crate::chrome_trace::ChromeTrace;
use crate::marker::{TEXT, check_count, put_entries};
use crate::prelude::*;

const CAPACITY_BYTES: u64 = 16 << 20;
/// Rounds of the loop per batch, for a thousand spans.
const ROUNDS: u32 = 125;
const SPANS: u32 = ROUNDS * PER_ROUND;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "tracing_layer",
    unit: "ns per span without fields: created, entered, left and closed",
    goal: "ours <= 1/5 of tracing_chrome, without fields and with two",
    peers: &["tracing_chrome"],
    is_met: |study| {
        study.at_most(&["ours"], study.figure("tracing_chrome") / 5.0)
            && study.at_most(
                &["ours_fields"],
                study.figure("tracing_chrome_fields") / 5.0,
            )
    },
    rounds: [3, 9],
    sizes: [&[30], &[200]],
    size_names: &["batches of 1,000 spans of each kind per arm"],
    arms: &["ours", "tracing_chrome", "registry"],
    part: run,
    ..Measurement::NEW
};

/// Runs one round. Arguments: the arm, and the number of batches.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (arm, batches) = (arguments.text(0)?, arguments.get(1)?);
    match arm {
        "ours" => ours(batches),
        "registry" => {
            tracing::subscriber::set_global_default(Registry::default())?;
            Ok(run_batches(arm, batches, || ()))
        }
        "tracing_chrome" => {
            let trace = ChromeTrace::start()?;
            let answer = run_batches(arm, batches, || trace.wait_until_written());
            // Two entries per span, and one for the thread's name.
            check_count(arm, trace.entries(), 2 * spans(batches) + 1)?;
            Ok(answer)
        }
        other => Err(format!("unknown arm `{other}`").into()),
    }
}

fn ours(batches: u64) -> Fallible<Value> {
    let registry = Registry::default().with(ProfilerLayer::new());
    tracing::subscriber::set_global_default(registry)?;
    let params = StartParams::default().interval(INTERVAL);
    let session = ProfilerSession::start(params.capacity_bytes(CAPACITY_BYTES))?;
    let _registered = ThreadGuard::register("tracing_layer");
    // Fills the buffer.
    for _ in 0..CAPACITY_BYTES / u64::from(SPANS) / 16 {
        without_fields();
    }
    let before = put_entries(&session)?;
    let answer = run_batches("ours", batches, || ());
    let put = put_entries(&session)? - before;
    drop(session.finish()?);
    check_count("ours", put, spans(batches))?;
    Ok(answer)
}

/// Returns the number of spans of both kinds, including those of the uncounted batches.
fn spans(batches: u64) -> u64 {
    2 * (batches + 1) * u64::from(SPANS)
}

fn run_batches(arm: &str, batches: u64, mut after_each: impl FnMut()) -> Value {
    let mut time = |batch: fn() -> f64| {
        let time = batch();
        after_each();
        time
    };
    let both = (0..=batches).map(|_| (time(without_fields), time(with_fields)));
    // The first batch is not counted.
    let (plain, fields): (Vec<f64>, Vec<f64>) = both.skip(1).unzip();
    json!({ arm: median(&plain), format!("{arm}_fields"): median(&fields) })
}

#[inline(never)]
fn without_fields() -> f64 {
    batch!(ROUNDS, let _entered = tracing::info_span!("a span").entered())
}

#[inline(never)]
fn with_fields() -> f64 {
    let (number, text) = (black_box(123_456), black_box(TEXT));
    batch!(ROUNDS, let _entered = tracing::info_span!("a span", number, text).entered())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_knows_each_arm() {
        for arm in MEASUREMENT.arms {
            let answer = run_in_this_process(arm);
            assert!(!answer.contains("unknown arm"), "{arm}: {answer}");
        }
        assert!(run_in_this_process("another").contains("unknown arm"));
    }

    /// Runs an arm in this process. The first one sets the subscriber; the others fail because
    /// there is one already.
    fn run_in_this_process(arm: &str) -> String {
        run(&Arguments(vec![arm.to_owned(), "1".to_owned()]))
            .map_or_else(|error| error.to_string(), |run| run.to_string())
    }
}
