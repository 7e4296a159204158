//! Puts the explanation of a request together.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::export::explain::pieces::{OnThread, ThreadPieces};
use crate::export::explain::request::find;
use crate::export::explain::stacks::StackTexts;
use crate::export::explain::suspended::Place;
use crate::model::{ProfileModel, StackId, Thread};
use crate::types::{ExplainedPart, ExplainedStack, Explanation, TimeKind, ViewerRange, Wanted};

/// Placeholder for the name of a future that the profile does not name.
const UNKNOWN_FUTURE: &str = "(unknown future)";

/// Times in ns, by their places.
type ByPlace = BTreeMap<Place, f64>;

/// Explains the request that is wanted.
///
/// # Errors
/// The profile has no such request.
pub(crate) fn explain(profile: &ProfileModel, wanted: &Wanted) -> io::Result<Explanation> {
    let found = find(profile, wanted)?;
    let mut times: BTreeMap<TimeKind, ByPlace> = BTreeMap::new();
    let mut add = |kind, place, ns: f64| {
        if ns > 0.0 {
            *times.entry(kind).or_default().entry(place).or_default() += ns;
        }
    };
    let mut threads: Vec<(usize, f64)> = Vec::new();
    for (index, on) in &found.on_threads {
        visit_thread(profile, &profile.threads[*index], on, &mut add);
        let lengths = on.iter().map(|on| (on.range.1 - on.range.0) as f64);
        threads.push((*index, lengths.sum()));
    }
    found.visit_suspended(profile, &mut add);
    threads.sort_by(|one, other| other.1.total_cmp(&one.1));
    let names = threads
        .iter()
        .map(|(index, _)| profile.threads[*index].name.clone());
    let texts = StackTexts::of(profile);
    let mut parts = Vec::new();
    for kind in TimeKind::ALL {
        if let Some(by_place) = times.remove(&kind) {
            parts.push(part(kind, by_place, &texts));
        }
    }
    let (start_ns, end_ns) = found.range;
    Ok(Explanation {
        name: found.name,
        trace_id: found.trace_id,
        threads: names.collect(),
        start: duration(start_ns as f64),
        length: duration((end_ns - start_ns) as f64),
        viewer_range: profile.meta.session_ns.map(|(session_ns, _)| ViewerRange {
            start: duration((start_ns - session_ns) as f64),
            end: duration((end_ns - session_ns) as f64),
        }),
        parts,
    })
}

/// Gives what a thread did for the request. The clock says for how long it ran, and the samples in
/// which stacks.
fn visit_thread(
    profile: &ProfileModel,
    thread: &Thread,
    on: &[OnThread],
    add: &mut dyn FnMut(TimeKind, Place, f64),
) {
    let pieces = ThreadPieces::of(profile, thread, on);
    let mut all_ns = 0.0;
    let mut seen: BTreeMap<Option<StackId>, f64> = BTreeMap::new();
    for on in on {
        pieces.visit(on, &mut |kind, stack, ns| match (kind, stack) {
            (TimeKind::Cpu, stack) => {
                all_ns += ns;
                if stack.is_some() {
                    *seen.entry(stack).or_default() += ns;
                }
            }
            (kind, stack) => add(kind, Place::Stack(stack), ns),
        });
    }
    let mut charged: BTreeMap<Option<StackId>, f64> = BTreeMap::new();
    pieces.visit_charged(on, |stack, ns| *charged.entry(stack).or_default() += ns);
    let between = BTreeMap::from([(Some(ProfileModel::RAN_BETWEEN_SAMPLES), 1.0)]);
    for shares in [charged, seen, between] {
        let sum: f64 = shares.values().sum();
        if sum > 0.0 {
            for (stack, share) in shares {
                add(TimeKind::Cpu, Place::Stack(stack), all_ns * share / sum);
            }
            return;
        }
    }
}

fn duration(ns: f64) -> Duration {
    // Negative values become 0.
    Duration::from_nanos(ns.round() as u64)
}

fn part(kind: TimeKind, by_place: ByPlace, texts: &StackTexts<'_>) -> ExplainedPart {
    // Stacks that differ only in what the text leaves out are one.
    let mut merged: BTreeMap<_, f64> = BTreeMap::new();
    for (place, ns) in by_place {
        let key = match place {
            Place::Stack(stack) => (texts.names(stack, kind), false),
            Place::Futures(names) if names.is_empty() => {
                ((vec![UNKNOWN_FUTURE.to_owned()], Vec::new()), true)
            }
            Place::Futures(names) => ((names, Vec::new()), true),
        };
        *merged.entry(key).or_default() += ns;
    }
    let mut merged: Vec<_> = merged.into_iter().collect();
    merged.sort_by(|(_, ns), (_, other_ns)| other_ns.total_cmp(ns));
    ExplainedPart {
        kind,
        // In this order, so that the sum is the same each time.
        time: duration(merged.iter().map(|(_, ns)| ns).sum()),
        stacks: merged
            .into_iter()
            .map(|(((functions, inside), are_futures), ns)| ExplainedStack {
                functions,
                inside,
                are_futures,
                time: duration(ns),
            })
            .collect(),
    }
}
