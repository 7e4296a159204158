//! The intervals of a thread's markers.

use crate::export::marker_pairs::MarkerPairs;
use crate::model::{FieldValue, Markers, TextId, Thread};

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

impl MarkerInterval {
    /// Returns the types, keys and values of all fields, those of the beginning first.
    pub(crate) fn fields(
        &self,
        markers: &Markers,
    ) -> impl Iterator<Item = (TextId, TextId, FieldValue)> {
        let indices = [Some(self.first), self.last].into_iter().flatten();
        let payloads = indices.filter_map(|index| markers.get(index).payload);
        payloads.flat_map(|payload| {
            let fields = payload.fields.iter();
            fields.map(move |(key, value)| (payload.type_name, *key, *value))
        })
    }
}

/// Returns the intervals of a thread's markers by their start; of those with one start, the longest
/// first.
///
/// Starts and ends belong together as in [`MarkerPairs`]. A beginning without an end lasts until the
/// thread's last entry. An end without a beginning began with the thread's first entry.
pub(crate) fn marker_intervals(thread: &Thread) -> Vec<MarkerInterval> {
    let (first_ns, last_ns) = entry_times(thread);
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
    intervals.sort_unstable_by_key(|interval| {
        let MarkerInterval {
            start_ns,
            end_ns,
            first,
            ..
        } = *interval;
        (start_ns, std::cmp::Reverse(end_ns), first)
    });
    intervals
}

/// Returns the times of the first and the last entry of a thread; 0 if it has none.
pub(crate) fn entry_times(thread: &Thread) -> (i64, i64) {
    let samples = &thread.samples;
    let of_samples = samples.len().checked_sub(1).map(|last| {
        let (first, last) = (samples.get(0), samples.get(last));
        [Some(first.time_ns), Some(last.time_ns)]
    });
    let markers = thread.markers.iter();
    let of_markers = markers.map(|marker| [marker.start_ns, marker.end_ns]);
    let times = of_samples.into_iter().chain(of_markers);
    let times = times.flatten().flatten();
    let range = times.fold(None, |range, time| match range {
        None => Some((time, time)),
        Some((first, last)) => Some((time.min(first), time.max(last))),
    });
    range.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Marker, MarkerPhase, Sample, Samples};

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
        thread.samples.push(Sample {
            stack: None,
            time_ns: 100,
            cpu_delta_ns: None,
            event_delay_ns: None,
            weight: 1,
        });
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
        let intervals = marker_intervals(&thread);
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
        assert_eq!(entry_times(&thread), (3, 100));
    }
}
