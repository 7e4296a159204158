//! Finds a request in a profile: when it was on which thread.

use std::collections::BTreeMap;
use std::io;

use crate::export::explain::pieces::first_sample_from;
use crate::export::explanation::{TimeKind, Wanted};
use crate::export::marker_pairs::MarkerPairs;
use crate::export::paused_ranges::PausedRange;
use crate::export::switch_totals::{is_of_contexts, is_of_switches};
use crate::model::{FieldValue, Marker, ProfileModel, StackId, Thread};

/// Difference between two times of one marker, by which files may round it, in ns.
const ROUNDING_NS: i64 = 1_000;
/// A span that was left for a smaller share of its length was on its thread all the time.
const MIN_IDLE_SHARE: f64 = 0.02;

/// A longer time without a sample beside a context counts as this number of intervals.
const MAX_GAP_INTERVALS: i64 = 10;

/// A time, in ns.
type Range = (i64, i64);

/// A request in a profile.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) trace_id: Option<u128>,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// When it was on each thread, by the thread's index, in order of time.
    pub(super) on_threads: BTreeMap<usize, Vec<Range>>,
    /// What the times are in which it was on no thread.
    pub(super) kind_of_gaps: TimeKind,
}

impl Found {
    fn new(name: &str, (start_ns, end_ns): Range) -> Self {
        Self {
            name: name.to_owned(),
            trace_id: None,
            start_ns,
            end_ns,
            on_threads: BTreeMap::new(),
            kind_of_gaps: TimeKind::Await,
        }
    }

    /// Returns the times in which the request was on no thread, each with the last stack before it.
    pub(super) fn suspended(&self, profile: &ProfileModel) -> Vec<(Range, Option<StackId>)> {
        let with_index = |(index, ranges): (&usize, &Vec<Range>)| {
            let index = *index;
            ranges.clone().into_iter().map(move |range| (range, index))
        };
        let mut all: Vec<_> = self.on_threads.iter().flat_map(with_index).collect();
        all.sort_unstable();
        let mut gaps = Vec::new();
        let mut done_ns = self.start_ns;
        let mut last_on = None;
        for ((start_ns, end_ns), index) in all {
            if start_ns > done_ns {
                let stack = last_on.and_then(|index| last_stack(profile, index, done_ns));
                gaps.push(((done_ns, start_ns), stack));
            }
            if end_ns > done_ns {
                done_ns = end_ns;
                last_on = Some(index);
            }
        }
        if self.end_ns > done_ns {
            let stack = last_on.and_then(|index| last_stack(profile, index, done_ns));
            gaps.push(((done_ns, self.end_ns), stack));
        }
        gaps
    }
}

/// Returns the threads with their indices. The track of the tasks that wait is none: an interval of
/// it is the wait of one future, and its rows are no samples.
fn threads(profile: &ProfileModel) -> impl Iterator<Item = (usize, &Thread)> {
    let threads = profile.threads.iter().enumerate();
    threads.filter(|(_, thread)| !thread.is_waiting_tasks())
}

/// Returns for how long nothing was sampled within a range, in ns: before the first sample, after
/// the last one, and in pauses.
pub(super) fn unsampled_ns(profile: &ProfileModel, (start_ns, end_ns): Range) -> i64 {
    let edges = threads(profile).filter_map(|(_, thread)| {
        let samples = &thread.samples;
        let last = samples.len().checked_sub(1)?;
        Some((samples.get(0).time_ns, samples.get(last).time_ns, thread))
    });
    let Some((first, last, thread)) =
        edges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1), one.2))
    else {
        return end_ns - start_ns;
    };
    let begin_ns = first.clamp(start_ns, end_ns);
    // The next sample would be an interval later.
    let last = last.saturating_add(profile.meta.interval_ns as i64);
    let until_ns = last.clamp(begin_ns, end_ns);
    let pauses = PausedRange::all_of(profile.process_of(thread));
    let paused = pauses
        .iter()
        .map(|pause| pause.ns_within(begin_ns, until_ns));
    let paused_ns = i64::try_from(paused.sum::<u64>()).unwrap_or(i64::MAX);
    (begin_ns - start_ns) + (end_ns - until_ns) + paused_ns.min(until_ns - begin_ns)
}

/// Returns the stack of a thread's last sample before a time.
fn last_stack(profile: &ProfileModel, thread: usize, time_ns: i64) -> Option<StackId> {
    let samples = &profile.threads[thread].samples;
    let after = first_sample_from(samples, time_ns.saturating_add(1));
    after
        .checked_sub(1)
        .and_then(|last| samples.get(last).stack)
}

fn not_found(got: &str, expected: &str) -> io::Error {
    let text = format!("cannot explain: got {got}, expected {expected}");
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// Finds the request that is wanted.
///
/// # Errors
/// The profile has no such request.
pub(super) fn find(profile: &ProfileModel, wanted: &Wanted) -> io::Result<Found> {
    match wanted {
        Wanted::Trace(trace_id) => find_trace(profile, *trace_id),
        Wanted::Range(thread, start_ns, end_ns) => {
            let is_it = |other: &Thread| other.name == *thread || other.tid == *thread;
            let mut found = threads(profile).filter(|(_, other)| is_it(other));
            let Some((index, _)) = found.next() else {
                return Err(not_found(
                    &format!("the thread {thread:?}"),
                    "the name or the id of a thread of the profile",
                ));
            };
            if end_ns <= start_ns {
                return Err(not_found("an empty range", "an end after the start"));
            }
            let mut found = Found::new("", (*start_ns, *end_ns));
            found.on_threads.insert(index, vec![(*start_ns, *end_ns)]);
            Ok(found)
        }
        Wanted::Between(..) => Err(not_found(
            "times of this process",
            "a profile of this process's session, or a range of `SlowRequest::in_range`",
        )),
        Wanted::Marker(name) => {
            let found = longest_marker(profile, |_| true, name, |_| true);
            found.ok_or_else(|| no_marker(name))
        }
        Wanted::Interval {
            name,
            tid,
            start_ns,
            end_ns,
        } => {
            let is_near = |one: i64, other: &i64| (one - other).abs() <= ROUNDING_NS;
            let is_it = |range: Range| is_near(range.0, start_ns) && is_near(range.1, end_ns);
            let found = longest_marker(profile, |thread| thread.tid == *tid, name, is_it);
            found.ok_or_else(|| no_marker(name))
        }
    }
}

fn no_marker(name: &str) -> io::Error {
    not_found(
        &format!("the marker {name:?}"),
        "the name of an interval of the profile",
    )
}

/// Returns the request of the longest interval with this name, on a thread and with a time that are
/// accepted.
fn longest_marker(
    profile: &ProfileModel,
    is_on: impl Fn(&Thread) -> bool,
    name: &str,
    accepts: impl Fn(Range) -> bool,
) -> Option<Found> {
    let mut longest: Option<(i64, Range, usize, usize)> = None;
    for (index, thread) in threads(profile) {
        if !is_on(thread) {
            continue;
        }
        for pair in MarkerPairs::of(&thread.markers) {
            let (Some(start_ns), Some(end_ns)) = (pair.start_ns, pair.end_ns) else {
                continue;
            };
            let marker = thread.markers.get(pair.first);
            let length_ns = end_ns - start_ns;
            if profile.text(marker.name) == name
                && length_ns > longest.map_or(0, |longest| longest.0)
                && accepts((start_ns, end_ns))
            {
                longest = Some((length_ns, (start_ns, end_ns), index, pair.first));
            }
        }
    }
    let (_, range, index, marker) = longest?;
    let marker = profile.threads[index].markers.get(marker);
    let trace_id = trace_id_of(profile, &marker);
    let mut found = Found::new(name, range);
    found.trace_id = trace_id;
    if let Some(trace_id) = trace_id {
        found.on_threads = on_threads(profile, trace_id, range);
    }
    if found.on_threads.is_empty() {
        let idle_ns = idle_ns(profile, &marker).unwrap_or(0.0);
        if idle_ns < MIN_IDLE_SHARE * (range.1 - range.0) as f64 {
            found.on_threads.insert(index, vec![range]);
        } else {
            // The samples do not tell on which threads the span was entered.
            found.kind_of_gaps = TimeKind::Unknown;
        }
    }
    Some(found)
}

fn find_trace(profile: &ProfileModel, trace_id: u128) -> io::Result<Found> {
    let all = on_threads(profile, trace_id, (i64::MIN, i64::MAX));
    let mut range = None;
    let mut name = String::new();
    for (start_ns, end_ns) in all.values().flatten() {
        let (first, last) = range.unwrap_or((*start_ns, *end_ns));
        range = Some((first.min(*start_ns), last.max(*end_ns)));
    }
    // The longest marker with the id has the request's exact times.
    let mut longest_ns = 0;
    for (_, thread) in threads(profile) {
        for marker in thread.markers.iter() {
            let (Some(start_ns), Some(end_ns)) = (marker.start_ns, marker.end_ns) else {
                continue;
            };
            if end_ns - start_ns > longest_ns
                && !is_of_contexts(profile, &marker)
                && trace_id_of(profile, &marker) == Some(trace_id)
            {
                longest_ns = end_ns - start_ns;
                profile.text(marker.name).clone_into(&mut name);
                range = Some((start_ns, end_ns));
            }
        }
    }
    let Some(range) = range else {
        return Err(not_found(
            &format!("the trace {trace_id:032x}"),
            "the id of a trace in the contexts of samples",
        ));
    };
    let mut found = Found::new(&name, range);
    found.trace_id = Some(trace_id);
    found.on_threads = on_threads(profile, trace_id, range);
    Ok(found)
}

/// Returns when the samples of each thread were in a trace, within a range.
///
/// A time in a context begins between a sample with it and the one before: in the middle, on
/// average. Likewise at its end.
fn on_threads(
    profile: &ProfileModel,
    trace_id: u128,
    within: Range,
) -> BTreeMap<usize, Vec<Range>> {
    let mut all: BTreeMap<usize, Vec<Range>> = BTreeMap::new();
    let interval_ns = profile.meta.interval_ns as i64;
    for (index, thread) in threads(profile) {
        let samples = &thread.samples;
        for marker in thread.markers.iter() {
            if !is_of_contexts(profile, &marker) || trace_id_of(profile, &marker) != Some(trace_id)
            {
                continue;
            }
            let (Some(start_ns), Some(end_ns)) = (marker.start_ns, marker.end_ns) else {
                continue;
            };
            let first = first_sample_from(samples, start_ns);
            let after = first_sample_from(samples, end_ns.saturating_add(1));
            let time_of =
                |index: usize| (index < samples.len()).then(|| samples.get(index).time_ns);
            let before = first.checked_sub(1).and_then(time_of);
            let before_ns = before.map(|before_ns| start_ns - before_ns);
            let after_ns = time_of(after).map(|after_ns| after_ns - end_ns);
            let half = |gap_ns: Option<i64>| {
                gap_ns
                    .unwrap_or(interval_ns)
                    .min(MAX_GAP_INTERVALS * interval_ns)
                    / 2
            };
            let range = (
                (start_ns - half(before_ns)).max(within.0),
                (end_ns + half(after_ns)).min(within.1),
            );
            if range.1 > range.0 {
                all.entry(index).or_default().push(range);
            }
        }
        if let Some(ranges) = all.get_mut(&index) {
            merge(ranges);
        }
    }
    all
}

/// Sorts ranges, and joins those that overlap.
fn merge(ranges: &mut Vec<Range>) {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
    for range in ranges.drain(..) {
        match merged.last_mut() {
            Some(last) if range.0 <= last.1 => last.1 = last.1.max(range.1),
            _ => merged.push(range),
        }
    }
    *ranges = merged;
}

/// Returns the id in a marker's field `trace_id`: a number, or its hexadecimal digits.
fn trace_id_of(profile: &ProfileModel, marker: &Marker<'_>) -> Option<u128> {
    if is_of_switches(profile, marker) {
        return None;
    }
    let fields = marker.payload?.fields.iter();
    let mut of_key = fields.filter(|(key, _)| profile.text(*key) == "trace_id");
    let id = match of_key.next()?.1 {
        FieldValue::Text(text) | FieldValue::UniqueText(text) => {
            let text = profile.text(text).trim_matches('"');
            let digits: String = text.chars().filter(|digit| *digit != '-').collect();
            u128::from_str_radix(&digits, 16).ok()?
        }
        FieldValue::Integer(number) => u128::try_from(number).ok()?,
        _ => return None,
    };
    Some(id).filter(|id| *id != 0)
}

/// Returns for how long a span of `tracing` was not entered, in ns.
fn idle_ns(profile: &ProfileModel, marker: &Marker<'_>) -> Option<f64> {
    let payload = marker.payload?;
    if profile.text(payload.type_name) != "TracingSpan" {
        return None;
    }
    let mut of_key = payload
        .fields
        .iter()
        .filter(|(key, _)| profile.text(*key) == "idle");
    match of_key.next()?.1 {
        FieldValue::Number(ms) => Some(ms * 1e6),
        FieldValue::Integer(ms) => Some(ms as f64 * 1e6),
        _ => None,
    }
}
