//! Explains where the time of a request went.
//!
//! A request is on one thread, or on several ones after each other and suspended in between, as the
//! contexts of the samples and the waits of futures tell. `request.rs` finds its markers, contexts and
//! waits. `on_threads.rs` turns them into times on threads. `pieces.rs` determines what a thread
//! did in such a time, and `suspended.rs` determines where the request waited otherwise. This file
//! combines all results, and finds the names of stacks.

#[cfg(test)]
mod explainer_tests;
mod on_threads;
mod pieces;
mod request;
mod suspended;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::export::explain::pieces::{OnThread, ThreadPieces};
use crate::export::explain::request::find;
use crate::export::explain::suspended::Place;
use crate::export::function_groups::{FunctionGroups, GroupNumbers, Grouping, OwnCrates};
use crate::export::function_names::one_line;
use crate::export::run_loops::is_run_loop;
use crate::model::{FunctionId, FunctionKind, ProfileModel, StackId, Thread};
use crate::types::{ExplainedPart, ExplainedStack, Explanation, TimeKind, ViewerRange, Wanted};

/// Placeholder for the name of a future that the profile does not name.
const UNKNOWN_FUTURE: &str = "(unknown future)";
/// Maximum number of functions of a stack in a text.
const MAX_FUNCTIONS: usize = 8;

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

/// Finds the functions that represent a stack: those of the program's own crates, and what they called.
struct StackTexts<'a> {
    profile: &'a ProfileModel,
    groups: FunctionGroups<'a>,
    numbers: GroupNumbers,
    /// Whether a function is the program's own.
    own: Vec<bool>,
}

impl<'a> StackTexts<'a> {
    fn of(profile: &'a ProfileModel) -> Self {
        let mut groups = FunctionGroups::default();
        let numbers = groups.add(profile, Grouping::ByName);
        let crates = OwnCrates::of(profile);
        let functions = profile.functions().iter();
        let own = functions.map(|function| {
            crates.contain(function)
                || matches!(function.kind, FunctionKind::Label | FunctionKind::Script)
        });
        Self {
            profile,
            groups,
            numbers,
            own: own.collect(),
        }
    }

    /// Returns the names of the functions that represent a stack, the innermost first, and the
    /// names of functions that the innermost one called. Functions of the runtime are left out. For
    /// a suspended task, the functions that wait in the kernel are left out, too.
    fn names(&self, stack: Option<StackId>, kind: TimeKind) -> (Vec<String>, Vec<String>) {
        let profile = self.profile;
        let function_of = |frame| profile.frame(frame).function;
        let functions = profile.stack_frames(stack).map(function_of);
        let functions = functions.take_while(|function| !is_run_loop(profile, *function));
        let functions: Vec<_> = functions.collect();
        let name = |function: &FunctionId| {
            let group = self.groups.get(self.numbers.of(*function));
            one_line(&group.name).into_owned()
        };
        let is_code =
            |function: &&FunctionId| profile.function(**function).kind != FunctionKind::Structure;
        let code: Vec<_> = functions.iter().filter(is_code).collect();
        let is_own = |function: &&&FunctionId| self.own[function.0 as usize];
        let first_own = code.iter().position(|function| is_own(&function));
        let mut names: Vec<_> = match first_own {
            Some(_) => code
                .iter()
                .filter(is_own)
                .map(|function| name(function))
                .collect(),
            None => code.iter().map(|function| name(function)).collect(),
        };
        // Merges a function that calls itself, and a function next to a label of the same name.
        names.dedup();
        names.truncate(MAX_FUNCTIONS);
        if names.is_empty() {
            // A placeholder for code, such as a note that a sample is missing.
            let mut notes = functions
                .iter()
                .filter(|function| !profile.is_root(**function));
            names.push(notes.next().map_or_else(|| "(no stack)".to_owned(), name));
        }
        let mut inside = Vec::new();
        if let Some(first_own) = first_own.filter(|first| *first > 0 && kind != TimeKind::Await) {
            inside = [first_own - 1, 0].map(|at| name(code[at])).to_vec();
            inside.dedup();
        }
        (names, inside)
    }
}
