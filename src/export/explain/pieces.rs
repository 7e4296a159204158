//! What a thread did in a time: pieces between its samples.
//!
//! From one sample to the next, the thread ran for as long as its CPU time says. For the rest it
//! waited: for what one of the two samples shows, each for a half if both show a wait; for a
//! processor if both show a running thread. With the feature `contextswitches`, the kernel tells
//! how long the thread waited for a processor. The remaining time is then waits that are too short
//! for a sample.
//!
//! A sample that another request owns says only whether the thread ran.

use std::ops::Range;

use crate::export::explain::ranges::{TimeRange, overlap_ns};
use crate::export::markers::{SwitchTotals, is_of_switches};
use crate::model::{ProfileModel, Sample, Samples, StackId, Thread, WeightUnit};
use crate::types::TimeKind;

/// A time up to the first sample, or after the last one, counts as the sample's up to this number
/// of intervals.
const MAX_EDGE_INTERVALS: i64 = 2;

/// Maximum distance, in ns, from a request's times to a marker of context switches that is still
/// used for them.
const BESIDE_NS: i64 = 1_000_000_000;

/// Takes a kind of time, the stack in which it passed, and its length in ns. CPU time of which no
/// sample shows the stack comes without one.
pub(super) type Add<'v> = dyn FnMut(TimeKind, Option<StackId>, f64) + 'v;

/// A time that a request spent on a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct OnThread {
    pub(super) range: TimeRange,
    /// The indices of the samples that show the request. They may lie outside the range.
    pub(super) own: Range<usize>,
}

/// The times of a thread.
pub(super) struct ThreadPieces<'a> {
    profile: &'a ProfileModel,
    thread: &'a Thread,
    /// When the request was suspended although the samples before and after show it.
    suspended: Vec<TimeRange>,
    /// The ranges for which the kernel tells how long the thread waited for a processor: start, end,
    /// and the share of the time between running samples, by which such a wait explains it.
    switches: Vec<(i64, i64, f64)>,
}

/// Returns the index of the first sample at or after a time.
pub(super) fn first_sample_from(samples: &Samples, time_ns: i64) -> usize {
    let (mut low, mut high) = (0, samples.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match samples.get(middle).time_ns < time_ns {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

/// Returns the time of a row's last tick.
pub(super) fn last_tick_ns(samples: &Samples, index: usize) -> i64 {
    let ticks = samples.row_ticks(index);
    ticks.time_ns(ticks.count - 1)
}

/// What a sample shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Running,
    Waiting(TimeKind),
}

impl State {
    pub(super) fn of(profile: &ProfileModel, sample: &Sample) -> Self {
        let frame = sample
            .stack
            .map(|stack| profile.frame(profile.stack(stack).1));
        let Some(pair) = frame.and_then(|frame| frame.category) else {
            return Self::Running;
        };
        let category = profile.categories.get(usize::from(pair.category));
        let Some(idle) = category.filter(|category| category.name == "Idle") else {
            return Self::Running;
        };
        let kind = idle.subcategories.get(usize::from(pair.subcategory));
        Self::Waiting(match kind.map_or("", String::as_str) {
            "Lock" => TimeKind::Lock,
            "I/O" => TimeKind::Io,
            "Timer" => TimeKind::Sleep,
            "Work" => TimeKind::Work,
            "Processor" => TimeKind::WaitForProcessor,
            _ => TimeKind::OtherWait,
        })
    }
}

impl<'a> ThreadPieces<'a> {
    /// Returns what a thread did at the times of a request, which are in order.
    pub(super) fn of(profile: &'a ProfileModel, thread: &'a Thread, all: &[OnThread]) -> Self {
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
            if !is_of_switches(profile, &marker) {
                continue;
            }
            let (Some(start_ns), Some(end_ns)) = (marker.start_ns, marker.end_ns) else {
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
                let whole = OnThread {
                    range: (start_ns, end_ns),
                    own: 0..thread.samples.len(),
                };
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
    pub(super) fn visit(&self, on: &OnThread, add: &mut Add<'_>) {
        let samples = &self.thread.samples;
        let (start_ns, end_ns) = on.range;
        if end_ns <= start_ns {
            return;
        }
        if samples.is_empty() || samples.weight_unit != WeightUnit::Samples {
            return add(TimeKind::Unknown, None, (end_ns - start_ns) as f64);
        }
        let edge_ns = MAX_EDGE_INTERVALS * self.profile.meta.interval_ns.max(1) as i64;
        let mut index = first_sample_from(samples, start_ns);
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
        let kind = match State::of(self.profile, sample) {
            State::Running => TimeKind::Cpu,
            State::Waiting(kind) => kind,
        };
        add(kind, sample.stack, (near.1 - near.0) as f64);
        add(TimeKind::Unknown, None, (far.1 - far.0) as f64);
    }

    /// Gives the part of the time from a sample to the next one that lies within `within`. `index` is
    /// that of the first of them.
    fn between(&self, index: usize, within: TimeRange, own: &Range<usize>, add: &mut Add<'_>) {
        let samples = &self.thread.samples;
        let (before, next) = (&samples.get(index), &samples.get(index + 1));
        let paused_within = |(start_ns, end_ns): TimeRange| {
            let paused = self.profile.process_of(self.thread).paused_ranges.iter();
            let paused_ns: u64 = paused.map(|pause| pause.ns_within(start_ns, end_ns)).sum();
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
        let states = [before, next].map(|sample| State::of(self.profile, sample));
        let cpu_ns = match (next.cpu_delta_ns, states[1]) {
            (Some(ns), _) => (ns as f64).min(gap_ns),
            (None, State::Running) => gap_ns,
            (None, State::Waiting(_)) => 0.0,
        };
        let owns = [index, index + 1].map(|index| own.contains(&index));
        let ran = [0, 1].map(|at| owns[at] && states[at] == State::Running);
        let cpu_ns = match (ran, states) {
            // The sample that is not the request's shows a wait, so the thread used all its CPU
            // time in this gap for the request.
            ([true, _], [_, State::Waiting(_)]) | ([_, true], [State::Waiting(_), _])
                if owns != [true; 2] =>
            {
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
        let waited = |at: usize, sample: &Sample| match states[at] {
            State::Waiting(kind) if owns[at] => Some((kind, sample.stack)),
            _ => None,
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
                    0 | 1 => self.share_of_processor_waits(next.time_ns),
                    _ => self.share_of_ticks(index, within),
                };
                add(TimeKind::WaitForProcessor, stack, rest_ns * told);
                add(TimeKind::OtherWait, stack, rest_ns * (1.0 - told));
            }
        }
    }

    /// Gives the stacks that ran in these times, which are in order, each with the CPU time that is
    /// charged to it.
    pub(super) fn visit_charged(
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
            let (share, same_until_ns) = self.share_and_end(ticks.time_ns(tick));
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
    /// for a processor; all of it if the kernel does not tell.
    fn share_of_processor_waits(&self, time_ns: i64) -> f64 {
        self.share_and_end(time_ns).0
    }

    /// Returns [`Self::share_of_processor_waits`], and a time up to which it is the same.
    fn share_and_end(&self, time_ns: i64) -> (f64, i64) {
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
