//! The intervals of a thread's markers, and which of them nest.

use std::cmp::Reverse;

use crate::export::marker_pairs::MarkerPairs;
use crate::model::{Marker, ProfileModel, TextId, Thread};
use crate::util::NumberMap;

/// The part that an interval plays when calls are estimated from samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Plain,
    /// A task of the thread's event loop. Each call lies in one task.
    Task,
    /// The host calls a function: until it returns, its callers do not change.
    FunctionCall,
}

/// Names of markers, or of their types, that play the part of a task. They are Chrome's names.
const TASKS: &[&str] = &["Task", "RunTask", "RunMicrotasks"];
/// Names of markers, or of their types, that play the part of a function call.
const FUNCTION_CALLS: &[&str] = &["FunctionCall", "EvaluateScript", "EventDispatch"];

/// An interval: a marker, or a pair of markers for its start and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MarkerSpan {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// Index of the marker that describes the interval.
    pub(crate) marker: u32,
    /// Index of the marker for the interval's end, if `marker` is only its start.
    pub(crate) end_marker: Option<u32>,
    pub(crate) role: Role,
}

/// The intervals of a thread. Each list is sorted by start, and a longer interval comes first.
#[derive(Debug, Default)]
pub(crate) struct MarkerSpans {
    /// The intervals with a role. They nest.
    pub(crate) host: Vec<MarkerSpan>,
    /// Other intervals that nest.
    pub(crate) nested: Vec<MarkerSpan>,
    /// Intervals that begin in another one and end after it.
    pub(crate) crossing: Vec<MarkerSpan>,
}

impl MarkerSpans {
    /// Returns the intervals of a thread whose samples and markers lie between these times. An
    /// interval whose start or end is missing begins or ends there.
    pub(crate) fn of(
        profile: &ProfileModel,
        thread: &Thread,
        (start_ns, end_ns): (i64, i64),
    ) -> Self {
        let mut roles = Roles::default();
        let spans = MarkerPairs::of(&thread.markers).map(|pair| {
            let pair_end_ns = pair.end_ns.unwrap_or(end_ns);
            let pair_start_ns = pair.start_ns.unwrap_or(start_ns.min(pair_end_ns));
            MarkerSpan {
                start_ns: pair_start_ns,
                end_ns: pair_end_ns.max(pair_start_ns),
                marker: pair.first as u32,
                end_marker: pair.last.map(|last| last as u32),
                role: Role::Plain,
            }
        });
        let mut spans: Vec<MarkerSpan> = spans.collect();
        for span in &mut spans {
            span.role = roles.of(profile, &thread.markers.get(span.marker as usize));
        }
        spans.sort_by_key(|span| (span.start_ns, Reverse(span.end_ns), span.marker));
        Self::sorted(spans)
    }

    fn sorted(spans: Vec<MarkerSpan>) -> Self {
        let mut lists = Self::default();
        let (mut host_ends, mut nested_ends) = (Vec::new(), Vec::new());
        for mut span in spans {
            if span.role != Role::Plain && nests(&mut host_ends, &span) {
                lists.host.push(span);
                continue;
            }
            span.role = Role::Plain;
            match nests(&mut nested_ends, &span) {
                true => lists.nested.push(span),
                false => lists.crossing.push(span),
            }
        }
        lists
    }
}

/// Adds the end of the next span to those of the spans around it, if the span nests in them.
fn nests(ends: &mut Vec<i64>, span: &MarkerSpan) -> bool {
    while ends.pop_if(|end| *end <= span.start_ns).is_some() {}
    let fits = ends.last().is_none_or(|end| span.end_ns <= *end);
    if fits {
        ends.push(span.end_ns);
    }
    fits
}

/// The role of each name that was looked up. Each name is compared once.
#[derive(Default)]
struct Roles(NumberMap<Role>);

impl Roles {
    fn of(&mut self, profile: &ProfileModel, marker: &Marker<'_>) -> Role {
        let type_name = marker.payload.map(|payload| payload.type_name);
        let names = [Some(marker.name), type_name].into_iter().flatten();
        let mut roles = names.map(|name| self.of_name(profile, name));
        roles
            .find(|role| *role != Role::Plain)
            .unwrap_or(Role::Plain)
    }

    fn of_name(&mut self, profile: &ProfileModel, name: TextId) -> Role {
        *self.0.entry(name.0.into()).or_insert_with(|| {
            let name = profile.text(name);
            if TASKS.contains(&name) {
                Role::Task
            } else if FUNCTION_CALLS.contains(&name) {
                Role::FunctionCall
            } else {
                Role::Plain
            }
        })
    }
}

#[cfg(test)]
#[path = "marker_spans_tests.rs"]
mod tests;
