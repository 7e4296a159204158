//! `marker_off`: time to add a marker without a session, compared with a bare relaxed load.
//!
//! A batch is a loop that repeats the same call with constant arguments eight times per round.
//! Something opaque to the compiler follows each call, so that every call checks the state again.
//! `relaxed_load` is the same loop with a load whose result goes to a `black_box`; `empty` is the
//! loop itself, which all figures include. The batches are interleaved in one process, and their
//! order rotates. A run's figure is the median of its arm's batches, and each round is a separate
//! process.
//!
//! `ours_lazy` is `lazy_add_marker!` with a payload whose text would be copied to the heap;
//! `ours_text_scope` is a guard of an interval. The peers' scopes and spans have no listener:
//! puffin is off, fastrace has no reporter and no parent, `tracing` has no subscriber. Tracy's
//! client is not started, and the arm checks this before each zone; a started client always
//! records.

use std::error::Error;

use fastrace::local::LocalSpan;
use gekkota::{
    AutoProfilerTextMarker, MarkerOptions, add_marker, add_text_marker, add_untyped_marker,
    gecko_profiler_category, lazy_add_marker,
};
use serde_json::{Value, json};

use crate::batch::{PER_ROUND, batch, empty, relaxed_load};
use crate::machine::{self, load_note};
use crate::marker_arms::{Loaded, TEXT};
use crate::report::{Arm, Report, least, median};
use crate::{Effort, Outcome, child};

/// Rounds of the loop per batch: a fraction of a millisecond.
const ROUNDS: u32 = 100_000;
const GOAL_NANOSECONDS: f64 = 0.5;

const FLOOR: &str = "relaxed_load";
/// The arms that the goal applies to. The first is `ours` in the report.
const GOAL_ARMS: [&str; 4] = ["ours_text", "ours_untyped", "ours_typed", "ours_lazy"];
/// Arms that are not peers: other forms of ours, and the loop itself.
const EXTRA: [&str; 5] = [
    "ours_untyped",
    "ours_typed",
    "ours_lazy",
    "ours_text_scope",
    "empty",
];

/// Runs a batch and returns the nanoseconds of a call.
type Batch = fn() -> f64;

const ARMS: &[(&str, Batch)] = &[
    ("ours_text", ours_text),
    ("puffin", puffin_off),
    ("fastrace", fastrace_off),
    ("tracing", tracing_off),
    #[cfg(feature = "tracy")]
    ("tracy", tracy_off),
    ("ours_untyped", ours_untyped),
    ("ours_typed", ours_typed),
    ("ours_lazy", ours_lazy),
    ("ours_text_scope", ours_text_scope),
    ("empty", || empty(ROUNDS)),
    (FLOOR, || relaxed_load(ROUNDS)),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, batches) = if effort.quick { (3, 40) } else { (9, 200) };
    let mut arms: Vec<Arm> = ARMS
        .iter()
        .map(|&(name, _)| {
            if EXTRA.contains(&name) {
                Arm::extra(name)
            } else {
                Arm::new(name)
            }
        })
        .collect();
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {} calls per arm, interleaved; {}",
        ROUNDS * PER_ROUND,
        load_note()
    )];
    for round in 1..=rounds {
        let (run, taken) = machine::watch(|| child::run("marker_off", &[batches.to_string()]));
        let run = run?;
        for (index, arm) in arms.iter_mut().enumerate() {
            arm.runs.push(
                run["medians"][index]
                    .as_f64()
                    .ok_or("the child's answer lacks the figure of an arm")?,
            );
        }
        let least = |name: &str| {
            let place = ARMS.iter().position(|(arm, _)| *arm == name);
            place
                .and_then(|place| run["least"][place].as_f64())
                .unwrap_or(f64::NAN)
        };
        let differences = GOAL_ARMS.map(|name| format!("{name} {:.3}", least(name) - least(FLOOR)));
        notes.push(format!(
            "round {round}: fastest batches, ns above the load: {}; CPUs used by other processes + the hypervisor: {taken}",
            differences.join(", ")
        ));
    }
    let figure = |name: &str| {
        arms.iter()
            .find(|arm| arm.name == name)
            .map_or(f64::NAN, Arm::figure)
    };
    let above = GOAL_ARMS.map(|name| figure(name) - figure(FLOOR));
    let differences: Vec<String> = GOAL_ARMS
        .iter()
        .zip(above)
        .map(|(name, above)| format!("{name} {above:.3}"))
        .collect();
    notes.push(format!("ns above the load: {}", differences.join(", ")));
    let ours = arms.remove(0);
    let floor = arms.pop();
    Ok(Report {
        unit: "ns per call without a session, including the loop",
        ours,
        peers: arms,
        floor,
        better: f64::min,
        goal: "ours <= 0.5 ns above a relaxed load: untyped, with a text, with three fields, and lazy",
        met: above.iter().all(|above| *above <= GOAL_NANOSECONDS),
        notes,
    })
}

/// Runs one round in the child process. Argument: the number of batches per arm.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [batches] = arguments else {
        return Err("expected the number of batches".into());
    };
    let mut times = vec![Vec::new(); ARMS.len()];
    for turn in 0..batches.parse::<usize>()? {
        for place in 0..ARMS.len() {
            let place = (turn + place) % ARMS.len();
            times[place].push(ARMS[place].1());
        }
    }
    let of_each =
        |figure: fn(&[f64]) -> f64| times.iter().map(|times| figure(times)).collect::<Vec<_>>();
    Ok(json!({ "medians": of_each(median), "least": of_each(least) }))
}

#[inline(never)]
fn ours_untyped() -> f64 {
    batch!(
        ROUNDS,
        add_untyped_marker(
            "a marker",
            gecko_profiler_category!(Other),
            MarkerOptions::default()
        )
    )
}

#[inline(never)]
fn ours_text() -> f64 {
    batch!(
        ROUNDS,
        add_text_marker(
            "a marker",
            gecko_profiler_category!(Other),
            MarkerOptions::default(),
            TEXT
        )
    )
}

#[inline(never)]
fn ours_typed() -> f64 {
    batch!(ROUNDS, {
        let payload = Loaded {
            bytes: 1,
            share: 0.5,
            file: TEXT.into(),
        };
        add_marker(
            "a marker",
            gecko_profiler_category!(Other),
            MarkerOptions::default(),
            payload,
        );
    })
}

#[inline(never)]
fn ours_lazy() -> f64 {
    batch!(ROUNDS, {
        lazy_add_marker!(
            "a marker",
            gecko_profiler_category!(Other),
            MarkerOptions::default(),
            Loaded {
                bytes: 1,
                share: 0.5,
                file: TEXT.to_owned().into()
            }
        );
    })
}

#[inline(never)]
fn ours_text_scope() -> f64 {
    batch!(
        ROUNDS,
        let _marker = AutoProfilerTextMarker::new(
            "a marker",
            gecko_profiler_category!(Other),
            MarkerOptions::default(),
            TEXT
        )
    )
}

#[inline(never)]
fn puffin_off() -> f64 {
    batch!(ROUNDS, puffin::profile_scope!("a marker", TEXT))
}

#[inline(never)]
fn fastrace_off() -> f64 {
    batch!(
        ROUNDS,
        let _span = LocalSpan::enter_with_local_parent("a marker").with_property(|| ("text", TEXT))
    )
}

#[inline(never)]
fn tracing_off() -> f64 {
    batch!(ROUNDS, let _entered = tracing::info_span!("a marker", text = TEXT).entered())
}

#[cfg(feature = "tracy")]
#[inline(never)]
fn tracy_off() -> f64 {
    batch!(ROUNDS, {
        let zone = tracy_client::Client::running()
            .map(|client| client.span(tracy_client::span_location!("a marker"), 0));
        if let Some(zone) = &zone {
            zone.emit_text(TEXT);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_at_their_expected_places() {
        assert_eq!(ARMS.first().map(|arm| arm.0), Some(GOAL_ARMS[0]));
        assert_eq!(ARMS.last().map(|arm| arm.0), Some(FLOOR));
        for name in GOAL_ARMS.iter().chain(&EXTRA) {
            assert!(ARMS.iter().any(|(arm, _)| arm == name), "{name}");
        }
    }
}
