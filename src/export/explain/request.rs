//! Finds a request in a profile: when it was on which thread, and when it waited.

use std::collections::{BTreeMap, HashMap};
use std::io;

use crate::export::explain::on_threads::{Exact, by_contexts, by_label, threads};
use crate::export::explain::pieces::{OnThread, TimeRange};
use crate::export::markers::{MarkerPairs, field, is_of_contexts, is_of_switches, is_of_type};
use crate::model::{FieldValue, Marker, ProfileModel, TextId, Thread, hull};
use crate::types::Wanted;

/// Difference between two times of one marker, by which files may round it, in ns.
const ROUNDING_NS: i64 = 1_000;
/// A span that was left for a smaller share of its length was on its thread all the time.
const MIN_IDLE_SHARE: f64 = 0.02;

/// A time in which a future of the request waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    pub(crate) range: TimeRange,
    /// The names of the futures, outermost first.
    pub(crate) futures: TextId,
}

/// A request in a profile.
#[derive(Default, Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) trace_id: Option<u128>,
    pub(crate) range: TimeRange,
    /// Whether the range is that of a marker.
    pub(crate) has_marker: bool,
    /// When it was on each thread, by the thread's index, in order of time.
    pub(crate) on_threads: BTreeMap<usize, Vec<OnThread>>,
    pub(crate) waits: Vec<Wait>,
    /// For how long it was on threads, if its span tells.
    pub(crate) busy_ns: Option<f64>,
}

/// A marker's interval.
struct Interval<'a> {
    range: TimeRange,
    /// Index of the marker's thread.
    thread: usize,
    marker: Marker<'a>,
}

/// What a profile says of one request.
#[derive(Default)]
struct Evidence<'a> {
    /// When samples had its context, by the thread's index.
    contexts: BTreeMap<usize, Vec<TimeRange>>,
    waits: Vec<Wait>,
    longest: Option<Interval<'a>>,
}

fn not_found(got: &str, expected: &str) -> io::Error {
    let text = format!("cannot explain: got {got}, expected {expected}");
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// Finds the request that is wanted.
///
/// # Errors
/// The profile has no such request.
pub(crate) fn find(profile: &ProfileModel, wanted: &Wanted) -> io::Result<Found> {
    match wanted {
        Wanted::Trace(trace_id) => {
            let evidence = Evidence::of_trace(profile, *trace_id);
            evidence.found(profile, *trace_id).ok_or_else(|| {
                not_found(
                    &format!("the trace {trace_id:032x}"),
                    "the id of a trace in the contexts of samples, in waits or in markers",
                )
            })
        }
        Wanted::Range(thread, start_ns, end_ns) => {
            let is_it = |other: &Thread| other.name == *thread || other.tid == *thread;
            let mut found = threads(profile).filter(|(_, other)| is_it(other));
            let Some((index, thread)) = found.next() else {
                return Err(not_found(
                    &format!("the thread {thread:?}"),
                    "the name or the id of a thread of the profile",
                ));
            };
            if end_ns <= start_ns {
                return Err(not_found("an empty range", "an end after the start"));
            }
            let range = (*start_ns, *end_ns);
            Ok(Found {
                range,
                on_threads: BTreeMap::from([(index, vec![OnThread::whole(thread, range)])]),
                ..Found::default()
            })
        }
        Wanted::Between(..) => Err(not_found(
            "times of this process",
            "a profile of this process's session, or a range of `SlowRequest::in_range`",
        )),
        Wanted::Marker(name) => longest_marker(profile, |_| true, name, |_| true),
        Wanted::Interval {
            name,
            tid,
            start_ns,
            end_ns,
        } => {
            let is_near = |one: i64, other: &i64| (one - other).abs() <= ROUNDING_NS;
            let is_it = |range: TimeRange| is_near(range.0, start_ns) && is_near(range.1, end_ns);
            longest_marker(profile, |thread| thread.tid == *tid, name, is_it)
        }
    }
}

/// Returns the request of the longest interval with this name, on a thread and with a time that are
/// accepted.
///
/// # Errors
/// There is no such interval.
fn longest_marker(
    profile: &ProfileModel,
    is_on: impl Fn(&Thread) -> bool,
    name: &str,
    accepts: impl Fn(TimeRange) -> bool,
) -> io::Result<Found> {
    let mut longest: Option<Interval<'_>> = None;
    for (index, thread) in threads(profile).filter(|(_, thread)| is_on(thread)) {
        for pair in MarkerPairs::of(&thread.markers) {
            let Some(range) = pair.start_ns.zip(pair.end_ns) else {
                continue;
            };
            let marker = thread.markers.get(pair.first);
            if profile.text(marker.name) == name && accepts(range) {
                Interval::keep_longer(&mut longest, range, index, marker);
            }
        }
    }
    let Some(longest) = longest else {
        return Err(not_found(
            &format!("the marker {name:?}"),
            "the name of an interval of the profile",
        ));
    };
    let trace_id = trace_id_of(profile, &longest.marker);
    let evidence = match trace_id {
        Some(trace_id) => Evidence::of_trace(profile, trace_id),
        None => Evidence::of_span(profile, &longest.marker),
    };
    Ok(evidence.found_in(profile, &longest, trace_id))
}

impl<'a> Interval<'a> {
    fn keep_longer(
        longest: &mut Option<Self>,
        range: TimeRange,
        thread: usize,
        marker: Marker<'a>,
    ) {
        let known_ns = longest
            .as_ref()
            .map_or(0, |known| known.range.1 - known.range.0);
        if range.1 - range.0 > known_ns {
            *longest = Some(Self {
                range,
                thread,
                marker,
            });
        }
    }

    fn name(&self, profile: &ProfileModel) -> String {
        profile.text(self.marker.name).to_owned()
    }
}

impl<'a> Evidence<'a> {
    /// Returns what has the id of a trace.
    fn of_trace(profile: &'a ProfileModel, trace_id: u128) -> Self {
        let mut evidence = Self::default();
        for (index, thread) in profile.threads.iter().enumerate() {
            for marker in thread.markers.iter() {
                let Some(range) = marker.start_ns.zip(marker.end_ns) else {
                    continue;
                };
                if trace_id_of(profile, &marker) != Some(trace_id) {
                    continue;
                }
                if thread.is_waiting_tasks() {
                    evidence.add_wait(profile, range, &marker);
                } else if is_of_contexts(profile, &marker) {
                    evidence.contexts.entry(index).or_default().push(range);
                } else {
                    Interval::keep_longer(&mut evidence.longest, range, index, marker);
                }
            }
        }
        evidence
    }

    /// Returns the waits of a span of `tracing` without ids, and of the spans inside of it.
    fn of_span(profile: &'a ProfileModel, span: &Marker<'_>) -> Self {
        let mut evidence = Self::default();
        let Some(own) = text_of(profile, span, "span").filter(|_| is_span(profile, span)) else {
            return evidence;
        };
        let all = || threads(profile).flat_map(|(_, thread)| thread.markers.iter());
        let spans = all().filter(|marker| is_span(profile, marker));
        let parent = |marker: Marker<'_>| {
            let ids = ["span", "parent"].map(|key| text_of(profile, &marker, key));
            Some((ids[0]?, ids[1]?))
        };
        let parents: HashMap<&str, &str> = spans.filter_map(parent).collect();
        let tracks = profile.threads.iter();
        let tracks = tracks.filter(|track| track.is_waiting_tasks());
        for marker in tracks.flat_map(|track| track.markers.iter()) {
            let mut around = text_of(profile, &marker, "span_id");
            // Only a damaged file has a cycle.
            for _ in 0..parents.len() {
                match around {
                    Some(span) if span != own => around = parents.get(span).copied(),
                    _ => break,
                }
            }
            let range = marker.start_ns.zip(marker.end_ns);
            if let Some(range) = range.filter(|_| around == Some(own)) {
                evidence.add_wait(profile, range, &marker);
            }
        }
        evidence
    }

    fn add_wait(&mut self, profile: &ProfileModel, range: TimeRange, marker: &Marker<'_>) {
        if let Some(FieldValue::Text(futures) | FieldValue::UniqueText(futures)) =
            field(profile, marker, "futures")
        {
            self.waits.push(Wait { range, futures });
        }
    }

    /// Returns the request that has this trace.
    fn found(mut self, profile: &ProfileModel, trace_id: u128) -> Option<Found> {
        let ranges = self.contexts.values().flatten();
        let ranges = ranges.chain(self.waits.iter().map(|wait| &wait.range));
        let seen = ranges.copied().reduce(hull);
        let longest = self.longest.take();
        if let Some(longest) = &longest
            // A marker that begins later is that of a part.
            && seen.is_none_or(|seen| {
                longest.range.0 <= seen.0.saturating_add(profile.meta.interval_ns as i64)
            })
        {
            return Some(self.found_in(profile, longest, Some(trace_id)));
        }
        let on_threads = by_contexts(profile, &self.contexts, &self.exact(None));
        let on = on_threads.values().flatten().map(|on| on.range);
        let waited = self.waits.iter().map(|wait| wait.range);
        let of_marker = longest.as_ref().map(|longest| longest.range);
        Some(Found {
            name: longest.map_or_else(String::new, |longest| longest.name(profile)),
            trace_id: Some(trace_id),
            range: on.chain(waited).chain(of_marker).reduce(hull)?,
            on_threads,
            waits: self.waits,
            ..Found::default()
        })
    }

    /// Returns the request that an interval is.
    fn found_in(
        self,
        profile: &ProfileModel,
        interval: &Interval<'_>,
        trace_id: Option<u128>,
    ) -> Found {
        let Interval { range, thread, .. } = *interval;
        let exact = self.exact(Some(range));
        let mut on_threads = by_contexts(profile, &self.contexts, &exact);
        let length_ns = (range.1 - range.0) as f64;
        let idle_ns = idle_ns(profile, &interval.marker);
        let is_on_thread = match idle_ns {
            Some(idle_ns) => idle_ns < MIN_IDLE_SHARE * length_ns,
            None => on_threads.is_empty() && self.waits.is_empty(),
        };
        if is_on_thread {
            on_threads.insert(
                thread,
                vec![OnThread::whole(&profile.threads[thread], range)],
            );
        } else if trace_id.is_none() {
            on_threads = by_label(profile, interval.marker.name, &exact);
        }
        Found {
            name: interval.name(profile),
            trace_id,
            range,
            has_marker: true,
            on_threads,
            waits: self.waits,
            busy_ns: idle_ns.map(|idle_ns| length_ns - idle_ns),
        }
    }

    /// Returns the times that are known exactly.
    fn exact(&self, within: Option<TimeRange>) -> Exact {
        Exact::new(self.waits.iter().map(|wait| wait.range).collect(), within)
    }
}

fn is_span(profile: &ProfileModel, marker: &Marker<'_>) -> bool {
    is_of_type(profile, marker, "TracingSpan")
}

fn text_of<'a>(profile: &'a ProfileModel, marker: &Marker<'_>, key: &str) -> Option<&'a str> {
    match field(profile, marker, key)? {
        FieldValue::Text(text) | FieldValue::UniqueText(text) => Some(profile.text(text)),
        _ => None,
    }
}

/// Returns the id in a marker's field `trace_id`: a number, or its hexadecimal digits.
fn trace_id_of(profile: &ProfileModel, marker: &Marker<'_>) -> Option<u128> {
    if is_of_switches(profile, marker) {
        return None;
    }
    let id = match field(profile, marker, "trace_id")? {
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
    if !is_span(profile, marker) {
        return None;
    }
    match field(profile, marker, "idle")? {
        FieldValue::Number(ms) => Some(ms * 1e6),
        FieldValue::Integer(ms) => Some(ms as f64 * 1e6),
        _ => None,
    }
}
