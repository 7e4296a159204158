//! The intervals of a thread's markers, and the fields of markers that name flows.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::Value;

use crate::export::markers::MarkerPairs;
use crate::model::{ProfileModel, TextId, Thread};

/// An interval of a thread: one marker, or the marker that begins it and the one that ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MarkerInterval {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// Index of the interval's only marker or of the marker that begins it. Without a beginning,
    /// the index of the marker that ends it.
    pub(crate) first: usize,
    /// Index of the marker that ends the interval, if it is a different marker.
    pub(crate) last: Option<usize>,
}

/// Returns the intervals of a thread's markers by their start; of those with one start, the longest
/// first.
///
/// Starts and ends belong together as in [`MarkerPairs`]. A beginning without an end lasts until
/// the end of the range, which contains all entries of the thread. An end without a beginning began
/// with the range.
pub(crate) fn marker_intervals(
    thread: &Thread,
    (first_ns, last_ns): (i64, i64),
) -> Vec<MarkerInterval> {
    let intervals = MarkerPairs::of(&thread.markers).map(|pair| {
        let end_ns = pair.end_ns.unwrap_or(last_ns);
        let start_ns = pair.start_ns.unwrap_or(first_ns.min(end_ns));
        MarkerInterval {
            start_ns,
            end_ns: end_ns.max(start_ns),
            first: pair.first,
            last: pair.last,
        }
    });
    let mut intervals: Vec<MarkerInterval> = intervals.collect();
    intervals.sort_unstable_by_key(|one| (one.start_ns, Reverse(one.end_ns), one.first));
    intervals
}

/// What a field says about the flow that it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlowField {
    Continues,
    Ends,
}

/// The fields of markers whose value is the id of a flow.
#[derive(Debug)]
pub(crate) struct FlowFields<'a> {
    profile: &'a ProfileModel,
    /// The fields' keys, by the name of the marker type.
    by_type: HashMap<&'a str, Vec<(String, FlowField)>>,
    /// The fields that were looked up, by id. `None` for a field of another format.
    known: HashMap<(TextId, TextId), Option<FlowField>>,
}

impl<'a> FlowFields<'a> {
    /// Reads the descriptions of all marker types. A description in any other form has no flows.
    pub(crate) fn of(profile: &'a ProfileModel) -> Self {
        let mut by_type = HashMap::new();
        for schema in &profile.marker_schemas {
            let described = serde_json::from_str(&schema.json).unwrap_or(Value::Null);
            // Older descriptions have the fields in `data`.
            let fields = ["fields", "data"].map(|list| described[list].as_array());
            let fields = fields.into_iter().flatten().flatten();
            let flows = fields.filter_map(|field| {
                let flow = match field["format"].as_str()? {
                    "flow-id" => FlowField::Continues,
                    "terminating-flow-id" => FlowField::Ends,
                    _ => return None,
                };
                Some((field["key"].as_str()?.to_owned(), flow))
            });
            let flows: Vec<_> = flows.collect();
            if !flows.is_empty() {
                by_type.insert(schema.name.as_str(), flows);
            }
        }
        Self {
            profile,
            by_type,
            known: HashMap::new(),
        }
    }

    /// Returns what a field of a marker type says about a flow; `None` if it names none.
    pub(crate) fn get(&mut self, type_name: TextId, key: TextId) -> Option<FlowField> {
        let Self {
            profile,
            by_type,
            known,
        } = self;
        if by_type.is_empty() {
            return None;
        }
        *known.entry((type_name, key)).or_insert_with(|| {
            let fields = by_type.get(profile.text(type_name))?;
            let key = profile.text(key);
            let (_, flow) = fields.iter().find(|(known, _)| known == key)?;
            Some(*flow)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Marker, MarkerPhase, MarkerSchema, Markers, Samples};

    fn thread(markers: &[(u32, MarkerPhase, Option<i64>, Option<i64>)]) -> Thread {
        let mut thread = Thread {
            process: 0,
            name: String::new(),
            tid: String::new(),
            is_main: false,
            registered_ns: None,
            unregistered_ns: None,
            asleep_at: None,
            samples: Samples::default(),
            markers: Markers::default(),
        };
        for &(name, phase, start_ns, end_ns) in markers {
            thread.markers.push(Marker {
                name: TextId(name),
                phase,
                start_ns,
                end_ns,
                category: 0,
                payload: None,
            });
        }
        thread
    }

    #[test]
    fn starts_and_ends_are_paired_by_name() {
        use MarkerPhase::*;
        let thread = thread(&[
            (0, Instant, Some(3), None),
            (1, IntervalStart, Some(10), None),
            (2, IntervalStart, Some(10), None),
            (1, IntervalStart, Some(20), None),
            (1, IntervalEnd, None, Some(30)),
            (1, IntervalEnd, None, Some(40)),
            (3, IntervalEnd, None, Some(50)),
            (4, Interval, Some(60), Some(55)),
        ]);
        let intervals = marker_intervals(&thread, (3, 100));
        let found: Vec<_> = intervals
            .iter()
            .map(|interval| {
                (
                    interval.start_ns,
                    interval.end_ns,
                    interval.first,
                    interval.last,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                (3, 50, 6, None),
                (10, 100, 2, None),
                (10, 40, 1, Some(5)),
                (20, 30, 3, Some(4)),
                (60, 60, 7, None),
            ]
        );
    }

    #[test]
    fn flows_are_found_in_both_forms_of_a_description() {
        let mut profile = ProfileModel::default();
        let ids = ["New", "Old", "flow", "end", "url"].map(|text| profile.intern(text));
        let [new, old, flow, end, url] = ids;
        let schema = |name: &str, json: &str| MarkerSchema {
            name: name.into(),
            json: json.into(),
        };
        profile.marker_schemas = vec![
            schema(
                "New",
                r#"{"fields": [{"key": "flow", "format": "flow-id"}, {"key": "url", "format": "url"},
                    {"key": "table", "format": {"type": "table", "columns": []}}]}"#,
            ),
            schema(
                "Old",
                r#"{"data": [{"label": "x", "value": "y"}, {"key": "end", "format": "terminating-flow-id"}]}"#,
            ),
            schema("Broken", "["),
        ];
        let mut flows = FlowFields::of(&profile);
        assert_eq!(flows.get(new, flow), Some(FlowField::Continues));
        assert_eq!(flows.get(old, end), Some(FlowField::Ends));
        assert_eq!(flows.get(new, url), None);
        assert_eq!(flows.get(new, end), None);
    }
}
