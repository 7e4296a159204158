//! `tracing_layer`: time of a `tracing` span from creation to close, including entering and leaving
//! it, with `ProfilerLayer` and with `tracing-chrome`: for a span without fields, and for one with
//! a number and a text of 16 bytes.
//!
//! A figure is the whole time of a span, including the registry and the loop; `registry` is a
//! registry without a layer. Each arm is the subscriber of a separate process, and the arms are
//! interleaved from round to round. A run's figure is the median of its process's batches. Ours
//! records in a session at 1,000 Hz, on a registered and sampled thread, with a buffer that is full
//! from the start. `tracing-chrome` writes on a background thread, for which the benchmark waits
//! outside of the measured time. `ours_bare` is the layer without labels and busy times, which
//! `tracing-chrome` does not have; `ours_off` is the layer while the profiler is inactive.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use gekkota::{ProfilerLayer, ProfilerSession, StartParams, ThreadGuard};
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

use crate::batch::{PER_ROUND, batch};
use crate::chrome_trace::ChromeTrace;
use crate::machine::{self, load_note};
use crate::marker_arms::TEXT;
use crate::profile::{engine_of_params, log_of, logged};
use crate::report::{Arm, Report, median};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const CAPACITY_BYTES: u64 = 16 << 20;
/// Rounds of the loop per batch, for a thousand spans.
const ROUNDS: u32 = 125;
const SPANS: u32 = ROUNDS * PER_ROUND;
/// Maximum time of ours, as a share of `tracing-chrome`'s.
const GOAL: f64 = 0.2;

const ARMS: [&str; 5] = [
    "ours",
    "tracing_chrome",
    "registry",
    "ours_bare",
    "ours_off",
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, batches) = if effort.quick { (3, 30) } else { (9, 200) };
    let mut arms = ARMS.map(|name| match name {
        "ours" | "tracing_chrome" => Arm::new(name),
        extra => Arm::extra(extra),
    });
    let mut with_fields = ARMS.map(Arm::extra);
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {SPANS} spans of each kind per arm, interleaved; {}",
        load_note()
    )];
    for round in 0..rounds {
        let mut shares = Vec::new();
        for turn in 0..ARMS.len() {
            let place = (round + turn) % ARMS.len();
            let arguments = [ARMS[place].to_owned(), batches.to_string()];
            let (run, taken) = machine::watch(|| child::run("tracing_layer", &arguments));
            let run = run?;
            let figure = |name: &str| {
                run[name]
                    .as_f64()
                    .ok_or("the child's answer lacks the figure of an arm")
            };
            arms[place].runs.push(figure("plain")?);
            with_fields[place].runs.push(figure("fields")?);
            shares.push(taken.to_string());
        }
        notes.push(format!(
            "round {}: CPUs used by other processes + the hypervisor: {}",
            round + 1,
            shares.join(", ")
        ));
    }
    for (kind, arms) in [("no fields", &arms), ("two fields", &with_fields)] {
        let figures = arms
            .iter()
            .map(|arm| format!("{} {:.0}", arm.name, arm.figure()));
        let [ours, peer, registry, ..] = arms.each_ref().map(Arm::figure);
        notes.push(format!(
            "{kind}: {} ns; ours / tracing_chrome: {:.2}, without the registry's time {:.2}",
            figures.collect::<Vec<_>>().join(", "),
            ours / peer,
            (ours - registry) / (peer - registry)
        ));
    }
    let met = [&arms, &with_fields]
        .iter()
        .all(|arms| arms[0].figure() <= GOAL * arms[1].figure());
    let [ours, others @ ..] = arms;
    Ok(Report {
        unit: "ns per span without fields: created, entered, left and closed",
        ours,
        peers: others.into(),
        floor: None,
        better: f64::min,
        goal: "ours <= 1/5 of tracing_chrome, without fields and with two",
        met,
        notes,
    })
}

/// Runs one round in the child process. Arguments: the arm, and the number of batches.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [arm, batches] = arguments else {
        return Err("expected an arm and the number of batches".into());
    };
    let batches: usize = batches.parse()?;
    match arm.as_str() {
        "ours" => ours(ProfilerLayer::new(), batches),
        "ours_bare" => ours(
            ProfilerLayer::new().labels(false).busy_times(false),
            batches,
        ),
        "ours_off" => {
            set_layer(ProfilerLayer::new())?;
            let _registered = ThreadGuard::register("tracing_layer");
            Ok(run(batches, || ()))
        }
        "registry" => {
            tracing::subscriber::set_global_default(Registry::default())?;
            Ok(run(batches, || ()))
        }
        "tracing_chrome" => {
            let trace = ChromeTrace::start()?;
            let answer = run(batches, || trace.wait_until_written());
            // Two entries per span, and one for the thread's name.
            let expected = 2 * spans(batches) + 1;
            if trace.entries() != expected {
                return Err(format!(
                    "cannot use the figures: tracing-chrome wrote {} entries, expected {expected}",
                    trace.entries()
                )
                .into());
            }
            Ok(answer)
        }
        other => Err(format!("unknown arm `{other}`").into()),
    }
}

fn set_layer(layer: ProfilerLayer) -> Result<(), tracing::subscriber::SetGlobalDefaultError> {
    tracing::subscriber::set_global_default(Registry::default().with(layer))
}

fn ours(layer: ProfilerLayer, batches: usize) -> Result<Value, Box<dyn Error>> {
    set_layer(layer)?;
    let params = StartParams::default()
        .interval(INTERVAL)
        .capacity_bytes(CAPACITY_BYTES);
    let engine = engine_of_params(params.clone())?;
    let session = ProfilerSession::start(params)?;
    let _registered = ThreadGuard::register("tracing_layer");
    // Fills the buffer.
    for _ in 0..CAPACITY_BYTES / u64::from(SPANS) / 16 {
        without_fields();
    }
    let before = put_entries(&session)?;
    let mut answer = run(batches, || ());
    let put = put_entries(&session)? - before;
    drop(session.finish()?);
    if put < spans(batches) {
        return Err(format!(
            "cannot use the figures: got {put} buffer entries, expected at least {}",
            spans(batches)
        )
        .into());
    }
    answer["engine"] = engine.into();
    Ok(answer)
}

fn put_entries(session: &ProfilerSession) -> Result<u64, Box<dyn Error>> {
    Ok(logged(
        &log_of(&session.snapshot()?)?,
        "buffer",
        "put_entries",
    ))
}

/// Returns the number of spans of both kinds, including those of the uncounted batches.
fn spans(batches: usize) -> u64 {
    2 * (batches as u64 + 1) * u64::from(SPANS)
}

fn run(batches: usize, mut after_each: impl FnMut()) -> Value {
    let mut times = [Vec::new(), Vec::new()];
    for batch in 0..=batches {
        for (times, one) in times
            .iter_mut()
            .zip([without_fields as fn() -> f64, with_fields])
        {
            let time = one();
            after_each();
            if batch > 0 {
                times.push(time);
            }
        }
    }
    let [plain, fields] = times.map(|times| median(&times));
    json!({ "plain": plain, "fields": fields })
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
    fn run_part_knows_each_arm() {
        for arm in ARMS {
            let answer = run_in_this_process(arm);
            assert!(!answer.contains("unknown arm"), "{arm}: {answer}");
        }
        assert!(run_in_this_process("another").contains("unknown arm"));
    }

    /// Runs an arm in this process. The first one sets the subscriber; the others fail because
    /// there is one already.
    fn run_in_this_process(arm: &str) -> String {
        run_part(&[arm.to_owned(), "1".to_owned()])
            .map_or_else(|error| error.to_string(), |run| run.to_string())
    }
}
