//! Divides a profile's time into slices, and each function's time with it.

use crate::export::function_groups::{FunctionGroups, GroupNumbers};
use crate::export::markers::stands_for;
use crate::export::options::{ExportOptions, sampled_range};
use crate::export::summary::meta_field;
use crate::model::{FunctionKind, MarkerPhase, ProfileModel, RowTicks, Sample, Thread};

/// Number of slices. Enough to estimate an error to 10 %, and few enough that a slice of a short
/// profile is longer than a call.
pub(crate) const SLICES: usize = 64;

/// A quantity in each slice of a profile.
pub(crate) type Slices = [f64; SLICES];

/// The time of one function in a profile, in ns.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) slices: Slices,
    pub(crate) sum: f64,
    /// The sum of the squares of the runs: the times of successive samples of a thread.
    pub(crate) run_squares: f64,
}

impl Observed {
    /// Returns what was counted or measured without samples.
    pub(crate) fn exact(slices: Slices) -> Self {
        Self {
            slices,
            sum: slices.iter().sum(),
            run_squares: 0.0,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let slices = self.slices.iter_mut().zip(&other.slices);
        slices.for_each(|(slice, other)| *slice += other);
        self.sum += other.sum;
        self.run_squares += other.run_squares;
    }
}

/// A function's times, by what counts as its own.
#[derive(Clone, Debug)]
pub(crate) struct FunctionSlices {
    pub(crate) own: Observed,
    pub(crate) total: Observed,
}

/// The slices of a profile.
#[derive(Debug)]
pub(crate) struct ProfileSlices {
    /// By the number of the tracked function.
    pub(crate) functions: Vec<FunctionSlices>,
    /// The time that the functions share, in ns.
    pub(crate) time: Slices,
    /// Wall time without pauses, in ns.
    pub(crate) wall: Slices,
    /// Number of samples.
    pub(crate) samples: Slices,
    /// Units of work.
    pub(crate) work: Slices,
    /// Sum of the squares of the samples' times.
    pub(crate) sample_squares: f64,
}

/// The functions that are compared: for each group, the function's number.
pub(crate) type Tracked = Vec<Option<u32>>;

/// Returns whether functions of this kind are compared. Labels and placeholders run no code.
pub(crate) fn is_compared(kind: FunctionKind) -> bool {
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
        observed.sum += weight;
    }

    fn end(&mut self, observed: &mut Observed) {
        observed.run_squares += self.weight * self.weight;
        self.weight = 0.0;
    }
}

/// The wall time that a profile covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start_ns: i64,
    length_ns: i128,
}

impl Span {
    /// Returns the time of the session, as far as the buffer kept it; without a session, from the
    /// first sample of these threads to the last one.
    pub(crate) fn of(profile: &ProfileModel, threads: &[usize]) -> Self {
        let samples = threads
            .iter()
            .map(|&thread| &profile.threads[thread].samples);
        let sampled = sampled_range(samples);
        let (start_ns, end_ns) = profile.meta.session_ns.or(sampled).unwrap_or_default();
        let kept_ms: Option<f64> = meta_field(profile, "contentEarliestTime");
        let start_ns = kept_ms.map_or(start_ns, |ms| start_ns.max((ms * 1e6) as i64));
        let length_ns = i128::from(end_ns) - i128::from(start_ns) + 1;
        Self {
            start_ns,
            length_ns: length_ns.max(1),
        }
    }

    pub(crate) fn length_s(&self) -> f64 {
        self.length_ns as f64 / 1e9
    }

    /// Returns the slice of a time. One before or after the span is in the first or the last slice.
    fn slice_of(&self, time_ns: i64) -> usize {
        let passed_ns = i128::from(time_ns) - i128::from(self.start_ns);
        (passed_ns * SLICES as i128 / self.length_ns).clamp(0, SLICES as i128 - 1) as usize
    }

    /// Returns the wall time of each slice without pauses, in ns.
    pub(crate) fn wall(&self, profile: &ProfileModel) -> Slices {
        let process = profile.processes.first();
        let begin_ns = |slice: usize| {
            let passed_ns = self.length_ns * slice as i128 / SLICES as i128;
            self.start_ns.saturating_add(passed_ns as i64)
        };
        std::array::from_fn(|slice| {
            let (begin_ns, end_ns) = (begin_ns(slice), begin_ns(slice + 1));
            let paused_ns = process.map_or(0, |process| process.paused_ns(begin_ns, end_ns));
            end_ns.abs_diff(begin_ns).saturating_sub(paused_ns) as f64
        })
    }
}

/// Divides the chosen threads of a profile into slices. CPU time is counted only if the profile has
/// it. A unit of work is a marker named `unit_of_work`, if given.
pub(crate) fn slice(
    (profile, span): (&ProfileModel, &Span),
    (groups, numbers): (&FunctionGroups<'_>, &GroupNumbers),
    (tracked, tracked_count): (&Tracked, usize),
    (options, unit_of_work): (&ExportOptions, Option<&str>),
) -> ProfileSlices {
    let empty = [0.0; SLICES];
    let function = FunctionSlices {
        own: Observed::exact(empty),
        total: Observed::exact(empty),
    };
    let mut slices = ProfileSlices {
        functions: vec![function; tracked_count],
        time: empty,
        wall: span.wall(profile),
        samples: empty,
        work: empty,
        sample_squares: 0.0,
    };
    // The runs of self time, and of total time.
    let mut runs = vec![(Run::default(), Run::default()); tracked_count];
    let mut number = 0;
    let mut places: Vec<(usize, f64)> = Vec::with_capacity(SLICES);
    for index in options.threads(profile) {
        let thread = &profile.threads[index];
        for charged in options.rows(profile, thread) {
            number += 1;
            let sample = &charged.sample;
            let weight = options.weight_ns(profile, &thread.samples, &charged) as f64;
            let count = thread.samples.count(sample) as f64;
            slices.sample_squares += weight * weight / count.max(1.0);
            places.clear();
            match charged.index {
                Some(row) => places.extend(ticks_by_slice(thread.samples.row_ticks(row), span)),
                None => places.push((span.slice_of(sample.time_ns), 1.0)),
            }
            let ticks: f64 = places.iter().map(|(_, ticks)| ticks).sum();
            let add = |value: f64, slices: &mut Slices| {
                for &(at, part) in &places {
                    slices[at] += value * part / ticks;
                }
            };
            add(weight, &mut slices.time);
            add(count, &mut slices.samples);
            let functions = functions_of(profile, (groups, numbers), tracked, sample);
            for (tracked, is_innermost) in functions {
                let tracked = tracked as usize;
                let FunctionSlices { own, total } = &mut slices.functions[tracked];
                let (own_run, total_run) = &mut runs[tracked];
                if is_innermost {
                    own_run.add(number, weight, own);
                    add(weight, &mut own.slices);
                }
                // A recursive function counts once.
                if total_run.last != number {
                    total_run.add(number, weight, total);
                    add(weight, &mut total.slices);
                }
            }
        }
        // The first sample of the next thread continues no run.
        number += 1;
        if let Some(name) = unit_of_work {
            count_work(profile, thread, name, |time_ns, number| {
                slices.work[span.slice_of(time_ns)] += number
            });
        }
    }
    for ((own_run, total_run), function) in runs.iter_mut().zip(&mut slices.functions) {
        own_run.end(&mut function.own);
        total_run.end(&mut function.total);
    }
    slices
}

/// Returns the slices that a row's ticks lie in, and the number of ticks in each.
fn ticks_by_slice(ticks: RowTicks, span: &Span) -> impl Iterator<Item = (usize, f64)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = next;
        if first >= ticks.count {
            return None;
        }
        let at = span.slice_of(ticks.time_ns(first));
        next = ticks.end_of(first, |time_ns| span.slice_of(time_ns) <= at);
        Some((at, (next - first) as f64))
    })
}

/// Returns the compared functions of a sample, and whether each is the innermost one. An
/// inlined function counts like one that is called, so inlining that differs is not a change.
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

/// Passes the end of each marker of this name to `count`, and for how many markers it stands.
fn count_work(
    profile: &ProfileModel,
    thread: &Thread,
    name: &str,
    mut count: impl FnMut(i64, f64),
) {
    for marker in thread.markers.iter() {
        let is_end = marker.end_ns.is_some() || marker.phase == MarkerPhase::Instant;
        if let Some(time_ns) = marker.end_ns.or(marker.start_ns)
            && is_end
            && profile.text(marker.name) == name
        {
            count(time_ns, stands_for(profile, &marker) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::function_groups::Grouping;
    use crate::export::test_profile::TestProfile;
    use crate::model::{FieldValue, Marker, MarkerPayload, STANDS_FOR};

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
        let span = Span::of(&test.profile, &[thread]);
        slice(
            (&test.profile, &span),
            (&groups, &numbers),
            (&tracked, count),
            (&ExportOptions::default(), None),
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
        assert_eq!(
            (thinned.samples, thinned.sample_squares),
            (all.samples, 1001e12)
        );
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
        assert_eq!(thinned.samples.iter().sum::<f64>(), 11.0);
        assert_eq!(thinned.samples, all.samples);
        assert_eq!(thinned.time, all.time);
        assert_eq!(thinned.sample_squares, all.sample_squares);
        for (thinned, all) in thinned.functions.iter().zip(&all.functions) {
            assert_eq!(thinned.own.slices, all.own.slices);
            assert_eq!(thinned.total.sum, all.total.sum);
            assert_eq!(thinned.own.run_squares, all.own.run_squares);
        }
    }

    #[test]
    fn unit_of_work_counts_for_those_that_it_stands_for() {
        let mut test = TestProfile::new(1_000_000);
        let thread = test.thread("main");
        test.interval(thread, "request", 0, 10);
        let number = (test.profile.intern(STANDS_FOR), FieldValue::Integer(8));
        let type_name = test.profile.intern("Text");
        let markers = &mut test.profile.threads[thread].markers;
        let first = Marker {
            payload: None,
            ..markers.get(0)
        };
        markers.push(Marker {
            payload: Some(MarkerPayload {
                type_name,
                fields: &[number],
                stack: None,
            }),
            ..first
        });
        let mut counted = Vec::new();
        let count = |time_ns, number| counted.push((time_ns, number));
        let thread = &test.profile.threads[thread];
        count_work(&test.profile, thread, "request", count);
        assert_eq!(counted, [(10, 1.0), (10, 8.0)]);
    }
}
