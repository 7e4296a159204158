//! Puts the explanation of a request together.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::Duration;

use crate::export::explain::pieces::ThreadPieces;
use crate::export::explain::request::{Found, find, unsampled_ns};
use crate::export::explain::stacks::StackTexts;
use crate::export::explanation::{
    ExplainedPart, ExplainedStack, Explanation, TimeKind, ViewerRange, Wanted,
};
use crate::model::{ProfileModel, StackId};

/// The times of one kind, by stack, in ns.
type ByStack = HashMap<Option<StackId>, f64>;

/// Explains the request that is wanted.
///
/// # Errors
/// The profile has no such request.
pub(crate) fn explain(profile: &ProfileModel, wanted: &Wanted) -> io::Result<Explanation> {
    let found = find(profile, wanted)?;
    let mut times: BTreeMap<TimeKind, ByStack> = BTreeMap::new();
    let mut add = |kind, stack, ns: f64| {
        if ns > 0.0 {
            *times.entry(kind).or_default().entry(stack).or_default() += ns;
        }
    };
    let mut threads: Vec<(usize, f64)> = Vec::new();
    for (index, ranges) in &found.on_threads {
        let mut pieces = ThreadPieces::of(
            profile,
            &profile.threads[*index],
            (found.start_ns, found.end_ns),
        );
        let mut on_thread = 0.0;
        for (start_ns, end_ns) in ranges {
            on_thread += (end_ns - start_ns) as f64;
            pieces.visit(*start_ns, *end_ns, &mut add);
        }
        threads.push((*index, on_thread));
    }
    for (range, stack) in found.suspended(profile) {
        let unknown_ns = unsampled_ns(profile, range);
        add(TimeKind::Unknown, None, unknown_ns as f64);
        add(
            found.kind_of_gaps,
            stack,
            (range.1 - range.0 - unknown_ns) as f64,
        );
    }
    threads.sort_by(|one, other| other.1.total_cmp(&one.1));
    let names = threads
        .iter()
        .map(|(index, _)| profile.threads[*index].name.clone());
    let mut texts = StackTexts::of(profile);
    let mut parts = Vec::new();
    for kind in TimeKind::ALL {
        if let Some(by_stack) = times.remove(&kind) {
            parts.push(part(kind, &by_stack, &mut texts));
        }
    }
    let Found {
        name,
        trace_id,
        start_ns,
        end_ns,
        ..
    } = found;
    Ok(Explanation {
        name,
        trace_id,
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

fn duration(ns: f64) -> Duration {
    // Negative values become 0.
    Duration::from_nanos(ns.round() as u64)
}

fn part(kind: TimeKind, by_stack: &ByStack, texts: &mut StackTexts<'_>) -> ExplainedPart {
    // Stacks that differ only in what the text leaves out are one.
    let mut merged: HashMap<_, f64> = HashMap::new();
    for (stack, ns) in by_stack {
        *merged.entry(texts.key(*stack, kind)).or_default() += ns;
    }
    let mut merged: Vec<_> = merged.into_iter().collect();
    merged.sort_by(|(key, ns), (other_key, other_ns)| {
        other_ns.total_cmp(ns).then_with(|| key.cmp(other_key))
    });
    let stacks = merged.iter().map(|(key, ns)| {
        let (functions, inside) = texts.names(key);
        ExplainedStack {
            functions,
            inside,
            time: duration(*ns),
        }
    });
    ExplainedPart {
        kind,
        // In this order, so that the sum is the same each time.
        time: duration(merged.iter().map(|(_, ns)| ns).sum()),
        stacks: stacks.collect(),
    }
}
