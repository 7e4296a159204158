//! Divides a profile's time into slices, and each function's time with it.

use crate::export::function_groups::{FunctionGroups, GroupNumbers};
use crate::export::options::ExportOptions;
use crate::model::{FunctionKind, MarkerPhase, ProfileModel, RowTicks, Sample, Thread};
use crate::util::{ProgressLocation, ProgressLogger};

/// Number of slices. Enough to estimate an error to 10 %, and few enough that a slice of a short
/// profile is longer than a call.
pub(super) const SLICES: usize = 64;

/// What a function's time is divided by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Denominator {
    /// All sampled time: the function's share.
    Time,
    /// A number of units of work.
    Work,
}

/// The time of one function in a profile, in ns.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// By slice.
    pub(super) slices: Vec<f32>,
    pub(super) sum: f64,
    /// The sum of the squares of the runs: the times of successive samples of a thread.
    pub(super) run_squares: f64,
}

/// A function's times, by what counts as its own.
#[derive(Clone, Debug, Default)]
pub(super) struct FunctionSlices {
    pub(super) own: Observed,
    pub(super) total: Observed,
}

/// The slices of a profile.
#[derive(Debug)]
pub(super) struct ProfileSlices {
    /// By the number of the tracked function.
    pub(super) functions: Vec<FunctionSlices>,
    /// All sampled time.
    pub(super) time: [f64; SLICES],
    /// Units of work.
    pub(super) work: [f64; SLICES],
    /// Sum of the squares of the samples' times.
    pub(super) sample_squares: f64,
    pub(super) samples: u64,
}

/// The functions that are compared: for each group, the function's number.
pub(super) type Tracked = Vec<Option<u32>>;

/// Returns whether functions of this kind are compared. Labels and placeholders run no code.
pub(super) fn is_compared(kind: FunctionKind) -> bool {
    matches!(kind, FunctionKind::Native | FunctionKind::Script)
}

/// A run of successive samples in a function.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Number of the last sample, from 1 on.
    last: u64,
    weight: f64,
}

impl Run {
    /// Adds a sample. Ends the run and begins the next one unless the samples are successive.
    fn add(&mut self, sample: u64, weight: f64, observed: &mut Observed) {
        if self.last + 1 != sample {
            self.end(observed);
        }
        self.last = sample;
        self.weight += weight;
    }

    fn end(&mut self, observed: &mut Observed) {
        observed.run_squares += self.weight * self.weight;
        self.weight = 0.0;
    }
}

/// Divides the chosen threads of a profile into slices. A unit of work is a marker named
/// `unit_of_work`, if given.
pub(super) fn slice(
    profile: &ProfileModel,
    (groups, numbers): (&FunctionGroups<'_>, &GroupNumbers),
    (tracked, tracked_count): (&Tracked, usize),
    (options, unit_of_work): (&ExportOptions, Option<&str>),
    progress: &ProgressLogger,
) -> ProfileSlices {
    let empty = || Observed {
        slices: vec![0.0; SLICES],
        ..Observed::default()
    };
    let function = || FunctionSlices {
        own: empty(),
        total: empty(),
    };
    let mut slices = ProfileSlices {
        functions: (0..tracked_count).map(|_| function()).collect(),
        time: [0.0; SLICES],
        work: [0.0; SLICES],
        sample_squares: 0.0,
        samples: 0,
    };
    let threads = options.threads(profile);
    let of_span = slice_of_time(profile, &threads);
    // The runs of self time, and of total time.
    let mut runs = vec![(Run::default(), Run::default()); tracked_count];
    let mut number = 0;
    let mut places: Vec<(usize, f64)> = Vec::with_capacity(SLICES);
    for (progress, index) in progress.loop_sub_loggers(threads, ProgressLocation::Samples) {
        let thread = &profile.threads[index];
        let rows = progress.watch(
            options.rows(profile, thread),
            thread.samples.len(),
            ProgressLocation::Samples,
        );
        for row in rows {
            number += 1;
            let weight = options.weight_ns(profile, &thread.samples, &row) as f64;
            let count = thread.samples.count(&row.sample);
            slices.samples = slices.samples.saturating_add(count);
            slices.sample_squares += weight * weight / count.max(1) as f64;
            let ticks = row.ticks(&thread.samples);
            places.clear();
            places.extend(slices_of_ticks(ticks, &of_span, weight));
            for &(at, part) in &places {
                slices.time[at] += part;
            }
            let functions = functions_of(profile, (groups, numbers), tracked, &row.sample);
            for (tracked, is_innermost) in functions {
                let tracked = tracked as usize;
                let FunctionSlices { own, total } = &mut slices.functions[tracked];
                let (own_run, total_run) = &mut runs[tracked];
                if is_innermost {
                    own_run.add(number, weight, own);
                    add_parts(&mut own.slices, &places);
                    own.sum += weight;
                }
                // A recursive function counts once.
                if total_run.last != number {
                    total_run.add(number, weight, total);
                    add_parts(&mut total.slices, &places);
                    total.sum += weight;
                }
            }
        }
        // The first sample of the next thread continues no run.
        number += 1;
        if let Some(name) = unit_of_work {
            count_work(profile, thread, name, |time_ns| {
                slices.work[of_span(time_ns)] += 1.0
            });
        }
    }
    for ((own_run, total_run), function) in runs.iter_mut().zip(&mut slices.functions) {
        own_run.end(&mut function.own);
        total_run.end(&mut function.total);
    }
    slices
}

/// Returns the slices that a row's ticks lie in, and the part of the row's time that each has.
fn slices_of_ticks(
    ticks: RowTicks,
    of_span: &impl Fn(i64) -> usize,
    weight: f64,
) -> impl Iterator<Item = (usize, f64)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = next;
        if first >= ticks.count {
            return None;
        }
        let at = of_span(ticks.time_ns(first));
        next = ticks.end_of(first, |time_ns| of_span(time_ns) <= at);
        Some((at, weight * (next - first) as f64 / ticks.count as f64))
    })
}

fn add_parts(slices: &mut [f32], parts: &[(usize, f64)]) {
    for &(at, part) in parts {
        slices[at] += part as f32;
    }
}

/// Returns the compared functions of a sample, and whether each is the innermost one. An
/// inlined function counts like one that is called, so a compiler's other choice is no change.
fn functions_of<'a>(
    profile: &'a ProfileModel,
    (groups, numbers): (&'a FunctionGroups<'_>, &'a GroupNumbers),
    tracked: &'a Tracked,
    sample: &Sample,
) -> impl Iterator<Item = (u32, bool)> + 'a {
    let frames = profile.stack_frames(sample.stack);
    let groups_of = frames.map(|frame| numbers.of(profile.frame(frame).function));
    let compared = groups_of.filter(|group| is_compared(groups.get(*group).kind));
    let innermost = compared
        .enumerate()
        .map(|(depth, group)| (group, depth == 0));
    innermost.filter_map(|(group, is_innermost)| {
        let tracked = tracked[group as usize]?;
        Some((tracked, is_innermost))
    })
}

/// Returns the function from a time to its slice of the time of all samples.
fn slice_of_time(profile: &ProfileModel, threads: &[usize]) -> impl Fn(i64) -> usize + use<> {
    let (mut start, mut end) = (i64::MAX, i64::MIN);
    for &thread in threads {
        let samples = &profile.threads[thread].samples;
        if let Some(last) = samples.len().checked_sub(1) {
            start = start.min(samples.get(0).time_ns);
            end = end.max(samples.get(last).time_ns);
        }
    }
    move |time_ns| {
        let span = i128::from(end) - i128::from(start) + 1;
        let offset = i128::from(time_ns) - i128::from(start);
        (offset * SLICES as i128 / span.max(1)).clamp(0, SLICES as i128 - 1) as usize
    }
}

fn count_work(profile: &ProfileModel, thread: &Thread, name: &str, mut count: impl FnMut(i64)) {
    for marker in thread.markers.iter() {
        let is_end = marker.end_ns.is_some() || marker.phase == MarkerPhase::Instant;
        if let Some(time_ns) = marker.end_ns.or(marker.start_ns)
            && is_end
            && profile.text(marker.name) == name
        {
            count(time_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::function_groups::Grouping;
    use crate::export::test_profile::TestProfile;

    /// Returns the slices of a profile of these samples: time in ms, function, and weight.
    fn slices_of(samples: &[(i64, &str, i64)]) -> ProfileSlices {
        let mut test = TestProfile::new(1_000_000);
        let thread = test.thread("main");
        for (index, &(time_ms, name, weight)) in samples.iter().enumerate() {
            test.sample(thread, &[name], None);
            let samples = &mut test.profile.threads[thread].samples;
            samples.update(index, |sample| {
                (sample.time_ns, sample.weight) = (time_ms * 1_000_000, weight);
            });
        }
        let mut groups = FunctionGroups::default();
        let numbers = groups.add(&test.profile, Grouping::ByName);
        let count = groups.len();
        let tracked = (0..count as u32).map(Some).collect();
        slice(
            &test.profile,
            (&groups, &numbers),
            (&tracked, count),
            (&ExportOptions::default(), None),
            &ProgressLogger::unwatched(),
        )
    }

    #[test]
    fn ticks_of_a_long_row_lie_in_the_slices_of_their_times() {
        let waits = (1..1000).map(|time_ms| (time_ms, "wait", 1));
        let all = [(0, "work", 1)].into_iter().chain(waits);
        let all: Vec<_> = all.chain([(1000, "work", 1)]).collect();
        let thinned = [
            (0, "work", 1),
            (1, "wait", 998),
            (999, "wait", 1),
            (1000, "work", 1),
        ];
        let (all, thinned) = (slices_of(&all), slices_of(&thinned));
        assert_eq!(thinned.time, all.time);
        assert_eq!((thinned.samples, thinned.sample_squares), (1001, 1001e12));
        for (thinned, all) in thinned.functions.iter().zip(&all.functions) {
            assert_eq!(thinned.own.slices, all.own.slices);
            assert_eq!(thinned.total.slices, all.total.slices);
            assert_eq!(thinned.own.run_squares, all.own.run_squares);
        }
    }

    #[test]
    fn row_counts_for_the_samples_of_its_weight() {
        let waits = (1..10).map(|time_ms| (time_ms, "wait", 1));
        let all = [(0, "work", 1)].into_iter().chain(waits);
        let all: Vec<_> = all.chain([(10, "work", 1)]).collect();
        let (all, thinned) = (
            slices_of(&all),
            slices_of(&[(0, "work", 1), (1, "wait", 9), (10, "work", 1)]),
        );
        assert_eq!(thinned.samples, 11);
        assert_eq!(thinned.samples, all.samples);
        assert_eq!(thinned.time, all.time);
        assert_eq!(thinned.sample_squares, all.sample_squares);
        for (thinned, all) in thinned.functions.iter().zip(&all.functions) {
            assert_eq!(thinned.own.slices, all.own.slices);
            assert_eq!(thinned.total.sum, all.total.sum);
            assert_eq!(thinned.own.run_squares, all.own.run_squares);
        }
    }
}
