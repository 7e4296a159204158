//! What markers say: the values of their fields, the intervals that they tell, and the context
//! switches of threads.

use std::collections::HashMap;

use crate::json::JsonWriter;
use crate::model::{
    FieldValue, Marker, MarkerPhase, Markers, ProfileModel, STANDS_FOR, TextId, Thread,
};
use crate::util::SharedSort;

/// Returns whether a marker is of this type.
pub(super) fn is_of_type(profile: &ProfileModel, marker: &Marker<'_>, type_name: &str) -> bool {
    let payload = marker.payload;
    payload.is_some_and(|payload| profile.text(payload.type_name) == type_name)
}

/// Returns the value of a marker's field.
pub(super) fn field(profile: &ProfileModel, marker: &Marker<'_>, key: &str) -> Option<FieldValue> {
    let mut fields = marker.payload?.fields.iter();
    let (_, value) = fields.find(|(name, _)| profile.text(*name) == key)?;
    Some(*value)
}

/// Writes the value of a field, and its text rather than the text's number.
pub(super) fn write_value(json: &mut JsonWriter<'_>, profile: &ProfileModel, value: FieldValue) {
    match value {
        FieldValue::Null => json.null(),
        FieldValue::Bool(value) => json.bool(value),
        FieldValue::Integer(value) => json.signed(value),
        FieldValue::Number(value) => json.float(value),
        FieldValue::Text(text) | FieldValue::UniqueText(text) => json.string(profile.text(text)),
        FieldValue::Json(text) => json.splice(profile.text(text)),
    }
}

/// Returns the number of markers that a marker represents, including itself.
pub(crate) fn stands_for(profile: &ProfileModel, marker: &Marker<'_>) -> u64 {
    match field(profile, marker, STANDS_FOR) {
        Some(FieldValue::Integer(number)) => u64::try_from(number).unwrap_or(1).max(1),
        _ => 1,
    }
}

/// Returns whether a marker counts a thread's context switches.
pub(super) fn is_of_switches(profile: &ProfileModel, marker: &Marker<'_>) -> bool {
    is_of_type(profile, marker, "ContextSwitches")
}

/// Returns whether a marker is the interval in which samples had one context.
pub(super) fn is_of_contexts(profile: &ProfileModel, marker: &Marker<'_>) -> bool {
    is_of_type(profile, marker, "SampleContext")
}

/// An interval as its markers tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MarkerPair {
    /// Index of the interval's only marker or of its start marker. Without a start, the index of
    /// the end marker.
    pub(crate) first: usize,
    /// Index of the end marker, if it is a different marker.
    pub(crate) last: Option<usize>,
    /// `None` if the start is missing.
    pub(crate) start_ns: Option<i64>,
    /// `None` if the end is missing.
    pub(crate) end_ns: Option<i64>,
}

/// Iterates over the intervals of markers, in the order of their ends. Those without an end come
/// last, in the order of their starts.
///
/// An end belongs to the last start of the same name that has no end yet.
pub(crate) struct MarkerPairs<'a> {
    markers: &'a Markers,
    next: usize,
    /// The starts without an end yet, by the name of the marker.
    open: HashMap<TextId, Vec<(usize, Option<i64>)>>,
    /// The starts without an end, once all markers were seen; the first one is at the end.
    unended: Vec<(usize, Option<i64>)>,
}

impl<'a> MarkerPairs<'a> {
    pub(crate) fn of(markers: &'a Markers) -> Self {
        Self {
            markers,
            next: 0,
            open: HashMap::new(),
            unended: Vec::new(),
        }
    }
}

impl Iterator for MarkerPairs<'_> {
    type Item = MarkerPair;

    fn next(&mut self) -> Option<MarkerPair> {
        while self.next < self.markers.len() {
            let index = self.next;
            self.next += 1;
            let marker = self.markers.get(index);
            let (first, start_ns) = match marker.phase {
                MarkerPhase::Instant => continue,
                MarkerPhase::Interval => (index, marker.start_ns),
                MarkerPhase::IntervalStart => {
                    let open = self.open.entry(marker.name).or_default();
                    open.push((index, marker.start_ns));
                    continue;
                }
                MarkerPhase::IntervalEnd => {
                    let start = self.open.get_mut(&marker.name).and_then(Vec::pop);
                    start.unwrap_or((index, None))
                }
            };
            return Some(MarkerPair {
                first,
                last: (first != index).then_some(index),
                start_ns,
                end_ns: marker.end_ns,
            });
        }
        if !self.open.is_empty() {
            self.unended = self.open.drain().flat_map(|(_, starts)| starts).collect();
            self.unended.shared_sort_by(|one, other| other.cmp(one));
        }
        let (first, start_ns) = self.unended.pop()?;
        Some(MarkerPair {
            first,
            last: None,
            start_ns,
            end_ns: None,
        })
    }
}

/// The context switches of a thread: sums over its markers that the feature `contextswitches` adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SwitchTotals {
    /// Time in which the thread waited for a processor, in ns; `None` if the kernel did not report
    /// it.
    pub(super) waited_ns: Option<u64>,
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
}

impl SwitchTotals {
    /// Returns the sums of a thread; `None` if it has no such marker.
    pub(super) fn of(profile: &ProfileModel, thread: &Thread) -> Option<Self> {
        let mut totals: Option<Self> = None;
        let markers = thread.markers.iter();
        for marker in markers.filter(|marker| is_of_switches(profile, marker)) {
            totals.get_or_insert_default().add(profile, &marker);
        }
        totals
    }

    /// Returns what one marker says.
    pub(super) fn of_marker(profile: &ProfileModel, marker: &Marker<'_>) -> Self {
        let mut totals = Self::default();
        totals.add(profile, marker);
        totals
    }

    fn add(&mut self, profile: &ProfileModel, marker: &Marker<'_>) {
        let fields = marker.payload.map_or(&[][..], |payload| payload.fields);
        for (key, value) in fields {
            let value = match *value {
                FieldValue::Integer(number) => number as f64,
                FieldValue::Number(number) => number,
                _ => continue,
            };
            let (sum, factor) = match profile.text(*key) {
                // In ms.
                "waited" => (self.waited_ns.get_or_insert_default(), 1e6),
                "voluntary" => (&mut self.voluntary, 1.0),
                "involuntary" => (&mut self.involuntary, 1.0),
                _ => continue,
            };
            // Negative numbers are 0.
            *sum = sum.saturating_add((value * factor).round() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::test_profile::TestProfile;

    #[test]
    fn starts_and_ends_are_paired_by_name() {
        use MarkerPhase::*;
        let mut markers = Markers::default();
        for (name, phase, start_ns, end_ns) in [
            (0, Instant, Some(3), None),
            (1, IntervalStart, Some(10), None),
            (2, IntervalStart, Some(10), None),
            (1, IntervalStart, Some(20), None),
            (1, IntervalEnd, None, Some(30)),
            (1, IntervalEnd, None, Some(40)),
            (3, IntervalEnd, None, Some(50)),
            (4, Interval, Some(60), Some(55)),
            (1, IntervalStart, Some(70), None),
        ] {
            markers.push(Marker {
                name: TextId(name),
                phase,
                start_ns,
                end_ns,
                category: 0,
                payload: None,
            });
        }
        let pairs = MarkerPairs::of(&markers)
            .map(|pair| (pair.first, pair.last, pair.start_ns, pair.end_ns));
        assert_eq!(
            pairs.collect::<Vec<_>>(),
            [
                (3, Some(4), Some(20), Some(30)),
                (1, Some(5), Some(10), Some(40)),
                (6, None, None, Some(50)),
                (7, None, Some(60), Some(55)),
                (2, None, Some(10), None),
                (8, None, Some(70), None),
            ]
        );
    }

    #[test]
    fn totals_are_the_sums_over_all_markers_of_the_type() {
        let mut test = TestProfile::new(1_000_000);
        let thread = test.thread("main");
        test.interval(thread, "other", 0, 5);
        let totals = |test: &TestProfile| SwitchTotals::of(&test.profile, &test.profile.threads[0]);
        assert_eq!(totals(&test), None);
        test.switches(thread, (0, 100), None, [1, 2]);
        let without_waits = SwitchTotals {
            waited_ns: None,
            voluntary: 1,
            involuntary: 2,
        };
        assert_eq!(totals(&test), Some(without_waits));
        test.switches(thread, (100, 200), Some(30), [10, 20]);
        test.switches(thread, (200, 300), Some(5), [0, 0]);
        let all = SwitchTotals {
            waited_ns: Some(35),
            voluntary: 11,
            involuntary: 22,
        };
        assert_eq!(totals(&test), Some(all));
    }
}
