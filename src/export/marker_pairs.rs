//! The intervals of markers: a marker that is one, or the markers for its start and its end.

use std::collections::HashMap;

use crate::export::payloads::field;
use crate::model::{FieldValue, Marker, MarkerPhase, Markers, ProfileModel, STANDS_FOR, TextId};
use crate::util::SharedSort;

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

/// Returns the number of markers that a marker represents, including itself.
pub(crate) fn stands_for(profile: &ProfileModel, marker: &Marker<'_>) -> u64 {
    match field(profile, marker, STANDS_FOR) {
        Some(FieldValue::Integer(number)) => u64::try_from(number).unwrap_or(1).max(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Marker;

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
}
