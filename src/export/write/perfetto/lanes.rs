//! Distributes a thread's intervals over tracks, on each of which intervals nest.

use crate::export::write::marker_intervals::MarkerInterval;

/// A thread has at most this many tracks. An interval that fits on none of them becomes an instant.
pub(super) const MAX_LANES: usize = 128;

/// The tracks of a thread, each with the ends of its open intervals, the outermost first.
#[derive(Default)]
pub(super) struct Lanes {
    open_ends: Vec<Vec<i64>>,
}

/// The beginning or the end of an interval on a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Begin {
        lane: usize,
    },
    End {
        lane: usize,
        time_ns: i64,
    },
    /// The interval fits on no track.
    Instant,
}

impl Lanes {
    /// Returns the steps before and of an interval. The intervals must come by their start, and of
    /// those with one start the longest first.
    pub(super) fn add(&mut self, interval: &MarkerInterval) -> Vec<Step> {
        let mut steps = Vec::new();
        for (lane, ends) in self.open_ends.iter_mut().enumerate() {
            while let Some(time_ns) = ends.pop_if(|end| *end <= interval.start_ns) {
                steps.push(Step::End { lane, time_ns });
            }
            if ends.last().is_none_or(|end| interval.end_ns <= *end) {
                ends.push(interval.end_ns);
                steps.push(Step::Begin { lane });
                return steps;
            }
        }
        let lane = self.open_ends.len();
        if lane == MAX_LANES {
            steps.push(Step::Instant);
        } else {
            self.open_ends.push(vec![interval.end_ns]);
            steps.push(Step::Begin { lane });
        }
        steps
    }

    /// Returns the ends of all intervals that are still open.
    pub(super) fn finish(self) -> impl Iterator<Item = Step> {
        let lanes = self.open_ends.into_iter().enumerate();
        lanes.flat_map(|(lane, ends)| {
            let ends = ends.into_iter().rev();
            ends.map(move |time_ns| Step::End { lane, time_ns })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(start_ns: i64, end_ns: i64) -> MarkerInterval {
        MarkerInterval {
            start_ns,
            end_ns,
            first: 0,
            last: None,
        }
    }

    #[test]
    fn overlapping_intervals_are_on_different_tracks() {
        use Step::*;
        let mut lanes = Lanes::default();
        assert_eq!(lanes.add(&interval(0, 10)), [Begin { lane: 0 }]);
        assert_eq!(lanes.add(&interval(0, 5)), [Begin { lane: 0 }]);
        assert_eq!(lanes.add(&interval(4, 6)), [Begin { lane: 1 }]);
        let end = |lane, time_ns| End { lane, time_ns };
        assert_eq!(lanes.add(&interval(5, 10)), [end(0, 5), Begin { lane: 0 }]);
        assert_eq!(
            lanes.add(&interval(10, 12)),
            [end(0, 10), end(0, 10), Begin { lane: 0 }]
        );
        assert!(lanes.finish().eq([end(0, 12), end(1, 6)]));
    }

    #[test]
    fn too_many_overlapping_intervals_become_instants() {
        let mut lanes = Lanes::default();
        for start in 0..MAX_LANES as i64 {
            let steps = lanes.add(&interval(start, start + 1000));
            assert_eq!(
                steps.last(),
                Some(&Step::Begin {
                    lane: start as usize
                })
            );
        }
        assert_eq!(lanes.add(&interval(500, 1200)), [Step::Instant]);
    }
}
