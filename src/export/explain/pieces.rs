//! What a thread did in a time: pieces between its samples.
//!
//! From one sample to the next, the thread ran for as long as its CPU time says. For the rest it
//! waited: for what one of the two samples shows, each for a half if both show a wait; for a
//! processor if both show a running thread. The kernel tells how long the thread waited for a
//! processor, with the feature `contextswitches`; then what is left beyond that are waits too short
//! for a sample.

use crate::export::explanation::TimeKind;
use crate::export::paused_ranges::PausedRange;
use crate::export::switch_totals::{SwitchTotals, is_of_switches};
use crate::model::{ProfileModel, Sample, Samples, StackId, Thread, WeightUnit};

/// A time up to the first sample, or after the last one, counts as the sample's up to this number
/// of intervals.
const MAX_EDGE_INTERVALS: i64 = 2;

/// Time beside a range whose context switches tell of the range, too, in ns.
const BESIDE_NS: i64 = 1_000_000_000;

/// Takes a kind of time, the stack in which it passed, and its length in ns.
pub(super) type Add<'v> = dyn FnMut(TimeKind, Option<StackId>, f64) + 'v;

/// The times of a thread.
pub(super) struct ThreadPieces<'a> {
    profile: &'a ProfileModel,
    thread: &'a Thread,
    pauses: Vec<PausedRange>,
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

/// What a sample shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Running,
    Waiting(TimeKind),
}

impl<'a> ThreadPieces<'a> {
    /// Returns the times of a thread that lie within a range.
    pub(super) fn of(profile: &'a ProfileModel, thread: &'a Thread, within: (i64, i64)) -> Self {
        let mut pieces = Self {
            profile,
            thread,
            pauses: PausedRange::all_of(profile.process_of(thread)),
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
                pieces.visit(start_ns, end_ns, &mut |kind, _, ns| {
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
        pieces
    }

    fn state(&self, sample: &Sample) -> State {
        let profile = self.profile;
        let frame = sample
            .stack
            .map(|stack| profile.frame(profile.stack(stack).1));
        let Some(pair) = frame.and_then(|frame| frame.category) else {
            return State::Running;
        };
        let category = profile.categories.get(usize::from(pair.category));
        let Some(idle) = category.filter(|category| category.name == "Idle") else {
            return State::Running;
        };
        let kind = idle.subcategories.get(usize::from(pair.subcategory));
        State::Waiting(match kind.map_or("", String::as_str) {
            "Lock" => TimeKind::Lock,
            "I/O" => TimeKind::Io,
            "Timer" => TimeKind::Sleep,
            "Work" => TimeKind::Work,
            _ => TimeKind::OtherWait,
        })
    }

    /// Gives the pieces of a time.
    pub(super) fn visit(&mut self, start_ns: i64, end_ns: i64, add: &mut Add<'_>) {
        let samples = &self.thread.samples;
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
                (Some(_), Some(_)) => self.between(index - 1, within, add),
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

    /// Gives a time beside the only sample that is near, and one without a sample.
    fn edge(&self, sample: &Sample, near: (i64, i64), far: (i64, i64), add: &mut Add<'_>) {
        let kind = match self.state(sample) {
            State::Running => TimeKind::Cpu,
            State::Waiting(kind) => kind,
        };
        add(kind, sample.stack, (near.1 - near.0) as f64);
        add(TimeKind::Unknown, None, (far.1 - far.0) as f64);
    }

    /// Gives the part of the time from a sample to the next one that lies within `within`. `index` is
    /// that of the first of them.
    fn between(&self, index: usize, within: (i64, i64), add: &mut Add<'_>) {
        let samples = &self.thread.samples;
        let (before, next) = (&samples.get(index), &samples.get(index + 1));
        let (start_ns, end_ns) = within;
        let gap_ns = (next.time_ns - before.time_ns).max(1) as f64;
        let length_ns = (end_ns - start_ns) as f64;
        if length_ns <= 0.0 {
            return;
        }
        let paused_within = |start_ns: i64, end_ns: i64| {
            let paused = self.pauses.iter();
            let paused_ns: u64 = paused.map(|pause| pause.ns_within(start_ns, end_ns)).sum();
            (paused_ns as f64).min((end_ns - start_ns) as f64)
        };
        let paused_ns = paused_within(start_ns, end_ns);
        add(TimeKind::Unknown, None, paused_ns);
        // The CPU time does not contain that of pauses.
        let gap_ns = (gap_ns - paused_within(before.time_ns, next.time_ns)).max(1.0);
        let share = (length_ns - paused_ns) / gap_ns;
        let states = [self.state(before), self.state(next)];
        let cpu_ns = match (next.cpu_delta_ns, states[1]) {
            (Some(ns), _) => (ns as f64).min(gap_ns),
            (None, State::Running) => gap_ns,
            (None, State::Waiting(_)) => 0.0,
        };
        // A thread that ran before it waited did so where the earlier sample shows it.
        let ran_in = match states {
            [State::Running, State::Waiting(_)] => before.stack,
            _ => next.stack,
        };
        add(TimeKind::Cpu, ran_in, cpu_ns * share);
        let rest_ns = (gap_ns - cpu_ns) * share;
        match states {
            [State::Waiting(first), State::Waiting(second)] => {
                add(first, before.stack, rest_ns / 2.0);
                add(second, next.stack, rest_ns / 2.0);
            }
            [State::Waiting(kind), State::Running] => add(kind, before.stack, rest_ns),
            [State::Running, State::Waiting(kind)] => add(kind, next.stack, rest_ns),
            [State::Running, State::Running] => {
                let told = match samples.count(before) {
                    0 | 1 => self.share_of_processor_waits(next.time_ns),
                    _ => self.share_of_ticks(index, within),
                };
                add(TimeKind::WaitForProcessor, next.stack, rest_ns * told);
                add(TimeKind::OtherWait, next.stack, rest_ns * (1.0 - told));
            }
        }
    }

    /// Returns the mean of [`Self::share_of_processor_waits`] for the ticks that the sample stands for,
    /// as far as they lie within a range that is not empty.
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
