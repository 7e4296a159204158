//! Ranges of time, and what a thread did in one: pieces between its samples.
//!
//! From one sample to the next, the thread ran for as long as its CPU time says. For the rest it
//! waited: for what one of the two samples shows, each for a half if both show a wait; for a
//! processor if both show a running thread. With the feature `contextswitches`, the kernel tells
//! how long the thread waited for a processor. The remaining time is then waits that are too short
//! for a sample.
//!
//! A sample that another request owns says only whether the thread ran.

use std::ops::Range;

use crate::export::markers::{SwitchTotals, is_of_switches};
use crate::model::{ProfileModel, Sample, StackId, Thread, WeightUnit};
use crate::types::TimeKind;

/// A time up to the first sample, or after the last one, counts as the sample's up to this number
/// of intervals.
const MAX_EDGE_INTERVALS: i64 = 2;

/// Maximum distance, in ns, from a request's times to a marker of context switches that is still
/// used for them.
const BESIDE_NS: i64 = 1_000_000_000;

/// A start and an end, in ns.
pub(crate) type TimeRange = (i64, i64);

/// Takes a kind of time, the stack in which it passed, and its length in ns. CPU time of which no
/// sample shows the stack comes without one.
pub(crate) type Add<'v> = dyn FnMut(TimeKind, Option<StackId>, f64) + 'v;

/// A time that a request spent on a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OnThread {
    pub(crate) range: TimeRange,
    /// The indices of the samples that show the request. They may lie outside the range.
    pub(crate) own: Range<usize>,
}

/// The times of a thread.
pub(crate) struct ThreadPieces<'a> {
    profile: &'a ProfileModel,
    thread: &'a Thread,
    /// When the request was suspended although the samples before and after show it.
    suspended: Vec<TimeRange>,
    /// The ranges for which the kernel tells how long the thread waited for a processor: start, end,
    /// and the share of the time between running samples, by which such a wait explains it.
    switches: Vec<(i64, i64, f64)>,
}

impl OnThread {
    /// Returns a time in which a request had a thread for itself.
    pub(crate) fn whole(thread: &Thread, range: TimeRange) -> Self {
        Self {
            range,
            own: 0..thread.samples.len(),
        }
    }
}

impl<'a> ThreadPieces<'a> {
    /// Returns what a thread did at the times of a request, which are in order.
    pub(crate) fn of(profile: &'a ProfileModel, thread: &'a Thread, all: &[OnThread]) -> Self {
        let first_ns = all.first().map_or(0, |on| on.range.0);
        let within = (first_ns, all.last().map_or(0, |on| on.range.1));
        let mut pieces = Self {
            profile,
            thread,
            suspended: Vec::new(),
            switches: Vec::new(),
        };
        let mut switches: Vec<(i64, i64, [f64; 2])> = Vec::new();
        for marker in thread.markers.iter() {
            let range = marker.start_ns.zip(marker.end_ns);
            let Some((start_ns, end_ns)) = range.filter(|_| is_of_switches(profile, &marker))
            else {
                continue;
            };
            if end_ns < within.0.saturating_sub(BESIDE_NS)
                || start_ns > within.1.saturating_add(BESIDE_NS)
            {
                continue;
            }
            let waited_ns = SwitchTotals::of_marker(profile, &marker).waited_ns;
            switches.extend(waited_ns.map(|waited_ns| {
                let mut between = 0.0;
                let whole = OnThread::whole(thread, (start_ns, end_ns));
                pieces.visit(&whole, &mut |kind, _, ns| {
                    if kind == TimeKind::WaitForProcessor {
                        between += ns;
                    }
                });
                (start_ns, end_ns, [waited_ns as f64, between])
            }));
        }
        switches.sort_by_key(|range| range.0);
        // The kernel counts a wait at its end, so it may be in the next marker: the share is that of
        // a marker and its neighbors.
        let share = |index: usize| {
            let near = &switches[index.saturating_sub(1)..switches.len().min(index + 2)];
            let sum = |part: usize| near.iter().map(|(.., ns)| ns[part]).sum::<f64>();
            (sum(0) / f64::max(sum(1), 1.0)).min(1.0)
        };
        let shares = (0..switches.len()).map(|index| {
            let (start_ns, end_ns, _) = switches[index];
            (start_ns, end_ns, share(index))
        });
        pieces.switches = shares.collect();
        let neighbors = all.windows(2).filter(|pair| pair[0].own == pair[1].own);
        let suspended = neighbors.map(|pair| (pair[0].range.1, pair[1].range.0));
        pieces.suspended = suspended.collect();
        pieces
    }

    /// Gives the pieces of a time.
    pub(crate) fn visit(&self, on: &OnThread, add: &mut Add<'_>) {
        let samples = &self.thread.samples;
        let (start_ns, end_ns) = on.range;
        if end_ns <= start_ns {
            return;
        }
        if samples.is_empty() || samples.weight_unit != WeightUnit::Samples {
            return add(TimeKind::Unknown, None, (end_ns - start_ns) as f64);
        }
        let edge_ns = MAX_EDGE_INTERVALS * self.profile.meta.interval_ns.max(1) as i64;
        let mut index = samples.first_from(start_ns);
        let mut done_ns = start_ns;
        while done_ns < end_ns {
            let next = (index < samples.len()).then(|| samples.get(index));
            let before = index.checked_sub(1).map(|before| samples.get(before));
            let until_ns = next.map_or(end_ns, |next| next.time_ns.min(end_ns));
            let within = (done_ns, until_ns);
            match (before, next) {
                (Some(_), Some(_)) => self.between(index - 1, within, &on.own, add),
                // Before the first sample, and after the last one.
                (None, Some(sample)) => {
                    let from_ns = (sample.time_ns - edge_ns).clamp(done_ns, until_ns);
                    self.edge(&sample, (from_ns, until_ns), (done_ns, from_ns), add);
                }
                (Some(sample), None) => {
                    let to_ns = (sample.time_ns + edge_ns).clamp(done_ns, until_ns);
                    self.edge(&sample, (done_ns, to_ns), (to_ns, until_ns), add);
                }
                (None, None) => break,
            }
            done_ns = until_ns;
            index += 1;
        }
    }

    /// Gives the time near the thread's first or last sample, and the time too far from any sample.
    fn edge(&self, sample: &Sample, near: TimeRange, far: TimeRange, add: &mut Add<'_>) {
        let kind = shown_kind(self.profile, sample);
        add(kind, sample.stack, (near.1 - near.0) as f64);
        add(TimeKind::Unknown, None, (far.1 - far.0) as f64);
    }

    /// Gives the part of the time from a sample to the next one that lies within `within`. `index` is
    /// that of the first of them.
    fn between(&self, index: usize, within: TimeRange, own: &Range<usize>, add: &mut Add<'_>) {
        let samples = &self.thread.samples;
        let (before, next) = (&samples.get(index), &samples.get(index + 1));
        let paused_within = |(start_ns, end_ns): TimeRange| {
            let process = self.profile.process_of(self.thread);
            let paused_ns = process.paused_ns(start_ns, end_ns);
            (paused_ns as f64).min((end_ns - start_ns) as f64)
        };
        let paused_ns = paused_within(within);
        add(TimeKind::Unknown, None, paused_ns);
        let length_ns = (within.1 - within.0) as f64 - paused_ns;
        // The CPU time does not contain that of pauses, and no thread ran for a suspended request.
        let gap = (before.time_ns, next.time_ns);
        let suspended = self.suspended.iter().map(|range| overlap_ns(*range, gap));
        let absent_ns = paused_within(gap) + suspended.sum::<i64>() as f64;
        let gap_ns = ((gap.1 - gap.0) as f64 - absent_ns).max(length_ns).max(1.0);
        let kinds = [before, next].map(|sample| shown_kind(self.profile, sample));
        let runs = kinds.map(|kind| kind == TimeKind::Cpu);
        let cpu_ns = match (next.cpu_delta_ns, runs[1]) {
            (Some(ns), _) => (ns as f64).min(gap_ns),
            (None, true) => gap_ns,
            (None, false) => 0.0,
        };
        let owns = [index, index + 1].map(|index| own.contains(&index));
        let ran = [0, 1].map(|at| owns[at] && runs[at]);
        let cpu_ns = match (ran, runs) {
            // The sample that is not the request's shows a wait, so the thread used all its CPU
            // time in this gap for the request.
            ([true, _], [_, false]) | ([_, true], [false, _]) if owns != [true; 2] => {
                cpu_ns.min(length_ns)
            }
            _ => cpu_ns * length_ns / gap_ns,
        };
        // A thread that ran before it waited did so where the earlier sample shows it.
        let ran_in = match ran {
            [_, true] => next.stack,
            [true, false] => before.stack,
            [false, false] => None,
        };
        add(TimeKind::Cpu, ran_in, cpu_ns);
        let rest_ns = length_ns - cpu_ns;
        let waited = |at: usize, sample: &Sample| {
            let has_waited = owns[at] && !runs[at];
            has_waited.then_some((kinds[at], sample.stack))
        };
        match [waited(0, before), waited(1, next)] {
            [Some(first), Some(second)] => {
                add(first.0, first.1, rest_ns / 2.0);
                add(second.0, second.1, rest_ns / 2.0);
            }
            [Some((kind, stack)), None] | [None, Some((kind, stack))] => add(kind, stack, rest_ns),
            [None, None] => {
                let stack = if owns[1] { next.stack } else { before.stack };
                let told = match samples.count(before) {
                    0 | 1 => self.share_of_processor_waits(next.time_ns).0,
                    _ => self.share_of_ticks(index, within),
                };
                add(TimeKind::WaitForProcessor, stack, rest_ns * told);
                add(TimeKind::OtherWait, stack, rest_ns * (1.0 - told));
            }
        }
    }

    /// Gives the stacks that ran in these times, which are in order, each with the CPU time that is
    /// charged to it.
    pub(crate) fn visit_charged(
        &self,
        all: &[OnThread],
        mut visit: impl FnMut(Option<StackId>, f64),
    ) {
        let samples = &self.thread.samples;
        let charged = self.profile.charged_samples(self.thread);
        for charged in charged.filter(|charged| charged.cpu_ns > 0) {
            let first_ns = charged.sample.time_ns;
            let ticks = charged.index.map(|index| samples.row_ticks(index));
            let count = ticks.map_or(1, |ticks| ticks.count);
            let number_before = |limit_ns: i64| match ticks {
                _ if first_ns >= limit_ns => 0,
                Some(ticks) => ticks.end_of(0, |time_ns| time_ns < limit_ns),
                None => 1,
            };
            let from = all.partition_point(|on| on.range.1 < first_ns);
            let mut within = 0;
            for on in &all[from..] {
                let before = number_before(on.range.0);
                if before == count {
                    break;
                }
                if charged.index.is_none_or(|index| on.own.contains(&index)) {
                    within += number_before(on.range.1.saturating_add(1)) - before;
                }
            }
            let share = within as f64 / count as f64;
            visit(charged.sample.stack, charged.cpu_ns as f64 * share);
        }
    }

    /// Returns the mean of [`Self::share_of_processor_waits`] for the ticks that the sample
    /// represents, as far as they lie within a range. The range must not be empty.
    fn share_of_ticks(&self, index: usize, (start_ns, end_ns): (i64, i64)) -> f64 {
        let ticks = self.thread.samples.row_ticks(index);
        let mut sum = 0.0;
        let mut done_ns = start_ns;
        let mut tick = ticks.end_of(0, |time_ns| time_ns <= start_ns);
        while done_ns < end_ns {
            let (share, same_until_ns) = self.share_of_processor_waits(ticks.time_ns(tick));
            // The time up to a tick has the share of the tick.
            let mut until_ns = end_ns;
            if tick < ticks.count {
                tick = ticks.end_of(tick, |time_ns| time_ns <= same_until_ns);
                until_ns = ticks.time_ns(tick - 1).min(end_ns);
            }
            sum += (until_ns - done_ns) as f64 * share;
            done_ns = until_ns;
        }
        sum / (end_ns - start_ns) as f64
    }

    /// Returns which share of the time between running samples at this time is explained by waits
    /// for a processor, and a time up to which the share is the same. It is all of the time if the
    /// kernel does not tell.
    fn share_of_processor_waits(&self, time_ns: i64) -> (f64, i64) {
        let after = self.switches.partition_point(|range| range.0 < time_ns);
        let next = self.switches.get(after);
        let until_ns = next.map_or(i64::MAX, |range| range.0);
        let range = after.checked_sub(1).map(|index| self.switches[index]);
        let range = range.filter(|(_, end_ns, _)| time_ns <= *end_ns);
        range.map_or((1.0, until_ns), |(_, end_ns, share)| {
            (share, end_ns.min(until_ns))
        })
    }
}

/// Returns what a sample shows: what its thread waited for, or that it ran.
pub(crate) fn shown_kind(profile: &ProfileModel, sample: &Sample) -> TimeKind {
    match sample.stack.and_then(|stack| profile.idle_kind(stack)) {
        None => TimeKind::Cpu,
        Some("Lock") => TimeKind::Lock,
        Some("I/O") => TimeKind::Io,
        Some("Timer") => TimeKind::Sleep,
        Some("Work") => TimeKind::Work,
        Some("Processor") => TimeKind::WaitForProcessor,
        Some(_) => TimeKind::OtherWait,
    }
}

/// Returns how long two ranges overlap, in ns.
pub(crate) fn overlap_ns(one: TimeRange, other: TimeRange) -> i64 {
    let (start_ns, end_ns) = (one.0.max(other.0), one.1.min(other.1));
    end_ns.saturating_sub(start_ns).max(0)
}

/// Sorts ranges, joins those that touch, and drops empty ones.
pub(crate) fn merge(mut ranges: Vec<TimeRange>) -> Vec<TimeRange> {
    ranges.retain(|range| range.0 < range.1);
    ranges.sort_unstable();
    ranges.dedup_by(|range, last| {
        let touches = range.0 <= last.1;
        if touches {
            last.1 = last.1.max(range.1);
        }
        touches
    });
    ranges
}

/// Returns the parts of a range outside of other ranges, which [`merge`] has returned.
pub(crate) fn outside(range: TimeRange, others: &[TimeRange]) -> Vec<TimeRange> {
    let mut parts = Vec::new();
    let mut done_ns = range.0;
    for (start_ns, end_ns) in others.iter().filter(|other| overlap_ns(**other, range) > 0) {
        parts.push((done_ns, *start_ns));
        done_ns = *end_ns;
    }
    parts.push((done_ns, range.1));
    parts.retain(|part| part.0 < part.1);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_outside_of_merged_ranges_are_the_rest() {
        let merged = merge(vec![(7, 9), (1, 3), (2, 5), (5, 6), (4, 4)]);
        assert_eq!(merged, [(1, 6), (7, 9)]);
        assert_eq!(outside((0, 10), &merged), [(0, 1), (6, 7), (9, 10)]);
        assert_eq!(outside((2, 8), &merged), [(6, 7)]);
        assert_eq!(outside((2, 6), &merged), []);
        assert_eq!(outside((9, 11), &merged), [(9, 11)]);
    }
}
