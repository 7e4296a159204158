//! Compares two profiles, and tells a change from chance.
//!
//! # Question
//! A function took 50 ms of CPU time a second before and 56 ms after. Is it slower, or does a second
//! run of one program differ as much?
//!
//! # Chance within a run
//! The clock measures the CPU time of a thread; samples divide it among the functions, so a function's
//! time has an error. Successive samples often lie in one call, so they say little more than one sample
//! does, and the error is greater than that of as many independent samples. It is estimated in two
//! ways, and the greater one counts:
//!
//! - *Runs*: successive samples of a thread in one function count as one observation, as in
//!   cluster sampling (Cochran, Sampling Techniques, chapter 9). A run of length `l` adds `l²` to
//!   the variance instead of `l`. Runs that meet by chance are subtracted. Runs notice that
//!   a function was seen in a few calls only. Both profiles are pooled, because without a change
//!   they have the same time; so a function that one of them never shows has an error, too. A function
//!   with all of the time has no such error.
//! - *Slices*: each profile is divided into 64 slices of wall time, and the difference of two
//!   profiles is taken per slice (batch means; Law and Kelton, Simulation Modeling and Analysis,
//!   chapter 9, with the ratio estimator of Cochran, chapter 6). Slices notice slow changes, such
//!   as phases of a program and requests that take long. Phases that both profiles have at the same
//!   time cancel.
//!
//! # Chance between runs
//! Two runs also differ by the layout of memory, by other programs and by the processor's frequency
//! (Mytkowicz and others, Producing Wrong Data Without Doing Anything Obviously Wrong, 2009).
//! One profile cannot show that. So the cost of each function is assumed to vary by 2 % from run to
//! run.
//!
//! # Many functions
//! Of 1,000 functions, 10 differ by more than an error that is exceeded once in 100 times. The
//! bands are wide enough for all functions together (Bonferroni): two profiles without a change
//! have, with a chance of 99 %, no function outside its band. The factor is from Student's
//! distribution, because 64 slices only estimate the error.
//!
//! # The amount of work
//! Times per unit of work compare runs with any load, and functions do not depend on each other.
//!
//! Without a known unit, times a second are compared, and these also change with the work that is done
//! in a second. A program that always works does more work in a second once a function is faster.
//! So does a program that waits equally long after each request. While other programs run, a
//! program gets the processor less often. In these cases, all functions change by the same factor.
//! So a sure change is also a sure change of the share of the *rest*: the function with the
//! greatest sure change is taken out of both profiles. The others are compared by their shares of
//! the remaining time, until no sure change is left. Functions whose time a second changed, but not
//! their share of the rest, have the verdict `moved`.
//!
//! # Regression
//! It is a regression if the functions whose self time surely changed take surely more time, all
//! together. A fix may replace a function by one that needs less time, and a compiler may move code to
//! a new function; neither is a regression. If no self time surely changed, it is one if a total time
//! surely grew and none fell: the change is spread over functions that are called.
//!
//! # What it finds
//! In simulations of 40 functions with 10,000 samples in each profile, a function with at least 8 %
//! of the time becomes slower by 30 %. If a call takes as long as the interval, on average, that
//! function comes first in 98 of 100 comparisons, and is called slower in two of five. More samples
//! help more than anything else: four times as many halve the bands.
//!
//! # Read next
//! [`compare`], then `slices.rs` and `report.rs`.

mod report;
#[cfg(test)]
mod simulation_tests;
mod slices;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io;

use crate::export::diff::report::{DiffRow, FALSE_ALARMS, Values, Verdict};
use crate::export::diff::slices::{
    FunctionSlices, Observed, ProfileSlices, SLICES, Slices, Span, Tracked, is_compared, slice,
};
use crate::export::function_groups::{FunctionGroup, FunctionGroups, GroupNumbers, Grouping};
use crate::export::function_times::{SelfTime, ThreadTimes, TimeCounter};
use crate::export::options::{ExportOptions, SampleWeight};
use crate::model::ProfileModel;

pub(crate) use report::{Diff, DiffOptions};

/// Minimum share of the time a second, in both profiles together, of a function that is compared.
/// Rarer functions would only widen the bands of the others.
const MIN_SHARE: f64 = 0.001;

/// Maximum number of functions that are compared: those with the greatest total time.
const MAX_FUNCTIONS: usize = 2_000;

/// A single change, looked at alone, exceeds this many errors by chance in 5 % of cases.
const LIKELY_ERRORS: f64 = 2.0;

/// Part of the rest that is taken to need the same time a second in both profiles. Without it, nothing
/// could be said of a program with one function. With it, a function with all of the time is faster
/// or slower if its time a second changes by a factor of six or more, and not by two: while other
/// programs run, one run of a program may get the processor twice as long as another run.
const STEADY_PART: f64 = 0.05;

/// Number of values of the whole program: its time, the time per base, wall time and samples.
const WHOLE_VALUES: usize = 4;

/// Compares two profiles.
///
/// # Errors
/// Returns an error if a profile has no time, or no unit of work where one was asked for.
pub(crate) fn compare(
    before: &ProfileModel,
    after: &ProfileModel,
    options: &DiffOptions,
) -> io::Result<Diff> {
    let mut groups = FunctionGroups::default();
    let numbers = [before, after].map(|profile| groups.add(profile, Grouping::AcrossBuilds));
    let (groups, profiles) = (&groups, [before, after]);
    let mut export = options.export.clone();
    if profiles.iter().any(|profile| !profile.meta.has_cpu_deltas) {
        export.weight = SampleWeight::Samples;
    }
    let spans = profiles.map(|profile| Span::of(profile, &export.threads(profile)));
    let (tracked, names) = tracked(profiles, groups, (&numbers, &spans), &export);
    let unit_of_work = options.unit_of_work.as_deref();
    let mut sides = Vec::new();
    for side in 0..2 {
        sides.push(slice(
            (profiles[side], &spans[side]),
            (groups, &numbers[side]),
            (&tracked, names.len()),
            (&export, unit_of_work),
        ));
    }
    let bases = [
        base(&sides[0], "first", unit_of_work)?,
        base(&sides[1], "second", unit_of_work)?,
    ];
    let of_time = |side: &ProfileSlices| base_of(side, side.time);
    let mut comparison = Comparison {
        names,
        sides: [&sides[0].functions, &sides[1].functions],
        rest: unit_of_work
            .is_none()
            .then(|| [of_time(&sides[0]), of_time(&sides[1])]),
        run_to_run: options.run_to_run,
        critical: critical_errors(FALSE_ALARMS, WHOLE_VALUES + count_tests(&sides)),
        bases,
    };
    let of_whole = |of: fn(&ProfileSlices) -> Slices, bases: &[Base; 2]| {
        let [before, after] = [&sides[0], &sides[1]].map(|side| Observed::exact(of(side)));
        comparison.values(&comparison.change(bases, (&before, &after)))
    };
    let undivided = [Base::undivided(), Base::undivided()];
    let time = of_whole(|side| side.time, &undivided);
    let wall = of_whole(|side| side.wall, &undivided);
    let samples = of_whole(|side| side.samples, &undivided);
    let time_per_base = of_whole(|side| side.time, &comparison.bases);
    let units = [comparison.bases[0].sum, comparison.bases[1].sum];
    let (own, changed) = comparison.own();
    Ok(Diff {
        time,
        wall,
        samples,
        time_per_base,
        is_cpu: export.weight == SampleWeight::Cpu,
        work: options.unit_of_work.clone().zip(Some(units)),
        own,
        total: comparison.total(),
        changed,
    })
}

/// Chooses the functions to compare. The choice does not depend on what changed.
fn tracked<'a>(
    profiles: [&ProfileModel; 2],
    groups: &FunctionGroups<'a>,
    (numbers, spans): (&[GroupNumbers; 2], &[Span; 2]),
    options: &ExportOptions,
) -> (Tracked, Vec<FunctionGroup<'a>>) {
    let mut times: HashMap<u32, f64> = HashMap::new();
    let mut all = 0.0;
    for side in 0..2 {
        let (profile, numbers) = (profiles[side], (&numbers[side], groups.len()));
        let mut counter = TimeCounter::new(profile, numbers, options, SelfTime::OfInlinedFunction);
        let mut sum = ThreadTimes::default();
        for index in options.threads(profile) {
            sum.add(&counter.count(&profile.threads[index]));
        }
        let a_second = |ns: u64| ns as f64 / spans[side].length_s();
        all += a_second(sum.all.ns);
        for (&group, time) in &sum.functions {
            *times.entry(group).or_default() += a_second(time.total.ns);
        }
    }
    let is_frequent = |time: f64| time >= MIN_SHARE * all.max(f64::MIN_POSITIVE);
    times.retain(|group, time| is_frequent(*time) && is_compared(groups.get(*group).kind));
    let mut chosen: Vec<(u32, f64)> = times.into_iter().collect();
    chosen.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    chosen.truncate(MAX_FUNCTIONS);
    let mut tracked = vec![None; groups.len()];
    for (number, (group, _)) in chosen.iter().enumerate() {
        tracked[*group as usize] = Some(number as u32);
    }
    let names = chosen.iter().map(|(group, _)| groups.get(*group).clone());
    (tracked, names.collect())
}

/// Returns what a function's time is divided by: units of work, or seconds.
fn base(side: &ProfileSlices, which: &str, unit_of_work: Option<&str>) -> io::Result<Base> {
    let seconds = || side.wall.map(|ns| ns / 1e9);
    let base = base_of(side, unit_of_work.map_or_else(seconds, |_| side.work));
    let error = |text: String| Err(io::Error::new(io::ErrorKind::InvalidData, text));
    match unit_of_work {
        Some(name) if base.time > 0.0 && base.sum <= 0.0 => error(format!(
            "cannot compare by unit of work: got no marker {name:?} in the {which} profile, \
             expected at least one"
        )),
        _ if base.time <= 0.0 || base.sum <= 0.0 => error(format!(
            "cannot compare profiles: got no sampled time in the {which} one, expected some"
        )),
        _ => Ok(base),
    }
}

fn base_of(side: &ProfileSlices, slices: Slices) -> Base {
    let time: f64 = side.time.iter().sum();
    Base {
        slices,
        sum: slices.iter().sum(),
        time,
        sample: side.sample_squares / time,
    }
}

/// Returns the number of functions' values that can show a change. The total time of a function
/// that calls no other one is its self time, and that of a function that only calls others has no
/// self time.
fn count_tests(sides: &[ProfileSlices]) -> usize {
    let functions = || sides[0].functions.iter().zip(&sides[1].functions);
    let sum = |times: (&FunctionSlices, &FunctionSlices)| times.0.own.sum + times.1.own.sum;
    let total = |times: (&FunctionSlices, &FunctionSlices)| times.0.total.sum + times.1.total.sum;
    let with_own = functions().filter(|times| sum(*times) > 0.0).count();
    let with_total = functions()
        .filter(|times| total(*times) > sum(*times))
        .count();
    with_own + with_total
}

/// The functions of both profiles.
struct Comparison<'a> {
    names: Vec<FunctionGroup<'a>>,
    sides: [&'a [FunctionSlices]; 2],
    bases: [Base; 2],
    /// The time of the functions that have not changed, unless the unit of work is known.
    rest: Option<[Base; 2]>,
    run_to_run: f64,
    /// By how many errors a sure change differs from 0.
    critical: f64,
}

/// A function's change, and the verdict on it.
struct Judged {
    number: usize,
    change: Change,
    /// The change of the function's share of the rest; `change` itself if the unit of work is known.
    of_rest: Change,
    verdict: Verdict,
}

impl Comparison<'_> {
    fn change(&self, bases: &[Base; 2], (before, after): (&Observed, &Observed)) -> Change {
        change((before, &bases[0]), (after, &bases[1]), self.run_to_run)
    }

    fn is_sure(&self, change: &Change) -> bool {
        change.errors() > self.critical
    }

    fn values(&self, change: &Change) -> Values {
        Values {
            before: change.before,
            after: change.after,
            band: self.critical * change.error,
        }
    }

    /// Returns the time of the functions that have not changed, with the steady part.
    fn steadied_rest(&self) -> Option<[Base; 2]> {
        let rest = self.rest.as_ref()?;
        let a_second = |side: usize| rest[side].sum / self.bases[side].sum;
        let steady = STEADY_PART * (a_second(0) + a_second(1)) / 2.0;
        Some([0, 1].map(|side| rest[side].plus(&self.bases[side], steady)))
    }

    /// Judges a function's change. A sure one is called `grown` or `fallen`.
    ///
    /// Without a unit of work, all functions take more time a second if the program does more work,
    /// or gets the processor more often. So a sure change is also one of the share of the rest.
    fn judge(
        &self,
        (number, of): (usize, fn(&FunctionSlices) -> &Observed),
        rest: Option<&[Base; 2]>,
        [grown, fallen]: [Verdict; 2],
    ) -> Judged {
        let observed = self.sides.map(|functions| of(&functions[number]));
        let of_base = |bases| self.change(bases, (observed[0], observed[1]));
        let change = of_base(&self.bases);
        let of_rest = rest.map_or(change, of_base);
        let (growth, of_rest_growth) = (change.difference() > 0.0, of_rest.difference() > 0.0);
        let verdict = match (self.is_sure(&change), self.is_sure(&of_rest)) {
            (true, true) if growth && of_rest_growth => grown,
            (true, true) if !growth && !of_rest_growth => fallen,
            (true, _) => Verdict::Moved,
            (false, _) => Verdict::Unclear,
        };
        Judged {
            number,
            change,
            of_rest,
            verdict,
        }
    }

    /// Orders two changes: a sure one first, then the one that is surely greater, a growth before a
    /// fall.
    fn order(&self, one: &Judged, other: &Judged) -> Ordering {
        let key = |judged: &Judged| {
            let (is_sure, change) = (judged.verdict.is_sure(), &judged.of_rest);
            let critical = if is_sure {
                self.critical
            } else {
                LIKELY_ERRORS
            };
            let likely = change.difference().abs() - critical * change.error;
            // Rounded, so that a growth and an equal fall of all else count as equal.
            let likely = (likely.max(0.0) * 1e9).round();
            (is_sure, likely, change.difference() > 0.0, change.errors())
        };
        let (a, b) = (key(one), key(other));
        let by_size = b.0.cmp(&a.0).then(b.1.total_cmp(&a.1));
        // A fall can be what the growth of another share leaves.
        let by_size = match a.1 > 0.0 {
            true => by_size.then(b.2.cmp(&a.2)),
            false => by_size,
        };
        let by_size = by_size.then(b.3.total_cmp(&a.3));
        let [one, other] = [one, other].map(|judged| &self.names[judged.number]);
        let by_name = || one.name.cmp(&other.name);
        by_size
            .then_with(by_name)
            .then_with(|| one.library.cmp(&other.library))
    }

    fn row(&self, judged: &Judged) -> DiffRow {
        let group = &self.names[judged.number];
        DiffRow {
            name: group.name.clone().into_owned(),
            library: group.library.map(str::to_owned),
            values: self.values(&judged.change),
            verdict: judged.verdict,
        }
    }

    /// Compares the functions by self time, one culprit after another. Returns also the time of all
    /// culprits together.
    fn own(&mut self) -> (Vec<DiffRow>, Values) {
        let [before, after] = self.sides;
        let has_own = |number: &usize| before[*number].own.sum + after[*number].own.sum > 0.0;
        let mut left: Vec<usize> = (0..self.names.len()).filter(has_own).collect();
        let mut sums = [(); 2].map(|()| Observed::exact([0.0; SLICES]));
        let mut culprits = Vec::new();
        let verdicts = [Verdict::Slower, Verdict::Faster];
        let others = loop {
            let rest = self.steadied_rest();
            let judge = |&number| self.judge((number, |f| &f.own), rest.as_ref(), verdicts);
            let mut judged: Vec<Judged> = left.iter().map(judge).collect();
            judged.sort_by(|one, other| self.order(one, other));
            if judged.first().is_none_or(|first| !first.verdict.is_sure()) {
                break judged;
            }
            let culprit = judged.swap_remove(0);
            left.retain(|&number| number != culprit.number);
            let times = self.sides.map(|functions| &functions[culprit.number].own);
            sums.iter_mut()
                .zip(times)
                .for_each(|(sum, time)| sum.add(time));
            if let Some(rest) = &self.rest {
                let less = [0, 1].map(|side| rest[side].without(times[side]));
                // Nothing could be compared with a rest without time.
                if less.iter().any(|base| base.sum > 0.0) {
                    self.rest = Some(less);
                }
            }
            culprits.push(culprit);
        };
        let size = |judged: &Judged| judged.change.difference().abs();
        culprits.sort_by(|one, other| size(other).total_cmp(&size(one)));
        let rows = culprits
            .iter()
            .chain(&others)
            .map(|judged| self.row(judged));
        let changed = self.change(&self.bases, (&sums[0], &sums[1]));
        (rows.collect(), self.values(&changed))
    }

    /// Compares the functions by total time. A function and its callers change together, so no
    /// culprit is looked for.
    fn total(&self) -> Vec<DiffRow> {
        let rest = self.steadied_rest();
        let verdicts = [Verdict::Grew, Verdict::Fell];
        let judge = |number| self.judge((number, |f| &f.total), rest.as_ref(), verdicts);
        let mut judged: Vec<Judged> = (0..self.names.len()).map(judge).collect();
        judged.sort_by(|one, other| self.order(one, other));
        judged.iter().map(|judged| self.row(judged)).collect()
    }
}

/// A value in two profiles: a function's time divided by the profile's [`Base`].
#[derive(Clone, Copy, PartialEq, Debug)]
struct Change {
    before: f64,
    after: f64,
    /// Standard error of the difference if nothing has changed.
    error: f64,
}

impl Change {
    fn difference(&self) -> f64 {
        self.after - self.before
    }

    /// Returns the change in errors; 0 without a difference.
    fn errors(&self) -> f64 {
        let difference = self.difference().abs();
        // Sums of the same times in another order differ by less.
        if difference <= 1e-9 * self.before.max(self.after) {
            return 0.0;
        }
        difference / self.error.max(f64::MIN_POSITIVE)
    }
}

/// What a function's time is divided by, in one profile.
#[derive(Clone, Debug)]
struct Base {
    slices: Slices,
    sum: f64,
    /// The time that the functions share.
    time: f64,
    /// Average weight of a sample: the length of the shortest run.
    sample: f64,
}

impl Base {
    /// Returns the base of values that are not divided, and that need no samples.
    fn undivided() -> Self {
        Self {
            slices: [1.0 / SLICES as f64; SLICES],
            sum: 1.0,
            time: f64::INFINITY,
            sample: 0.0,
        }
    }

    /// Returns the base without a function's time.
    fn without(&self, observed: &Observed) -> Self {
        let slice = |at: usize| (self.slices[at] - observed.slices[at]).max(0.0);
        Self {
            slices: std::array::from_fn(slice),
            sum: self.sum - observed.sum,
            time: self.time - observed.sum,
            sample: self.sample,
        }
    }

    /// Adds a multiple of another base to what a function's time is divided by.
    fn plus(&self, other: &Self, factor: f64) -> Self {
        Self {
            slices: std::array::from_fn(|at| self.slices[at] + factor * other.slices[at]),
            sum: self.sum + factor * other.sum,
            ..*self
        }
    }
}

/// Estimates the change of a function, given what its time is divided by in the two profiles.
///
/// `run_to_run` is the standard deviation of a function's cost from run to run, as a share of its
/// cost.
fn change(
    (before, before_base): (&Observed, &Base),
    (after, after_base): (&Observed, &Base),
    run_to_run: f64,
) -> Change {
    let value = |observed: &Observed, base: &Base| observed.sum / base.sum;
    let values = (value(before, before_base), value(after, after_base));
    let of_slices = slice_variance(
        (before, before_base, values.0),
        (after, after_base, values.1),
    );

    // Without a change, both have the same value.
    let sum = before.sum + after.sum;
    let pooled = sum / (before_base.sum + after_base.sum);
    let share = (sum / (before_base.time + after_base.time)).min(1.0);
    let sample = before_base.sample.max(after_base.sample);
    let run = match sum > 0.0 {
        true => (before.run_squares + after.run_squares) / sum,
        false => 0.0,
    };
    // Of samples without any correlation, runs of the share's function have this length, too.
    let without_chance = (1.0 - share) * run - share * sample;
    let run = without_chance.max(sample);
    // The clock measures the time that the functions share: a function that has all of it has no
    // error by chance.
    let of_runs = |base: &Base| {
        let left = (1.0 - pooled * base.sum / base.time).max(0.0);
        pooled * left * run / base.sum
    };
    let of_runs = of_runs(before_base) + of_runs(after_base);

    let between_runs = 2.0 * (run_to_run * pooled).powi(2);
    Change {
        before: values.0,
        after: values.1,
        error: (of_slices.max(of_runs) + between_runs).sqrt(),
    }
}

/// Returns the variance of the difference of two ratios, from the differences in each slice.
fn slice_variance(before: (&Observed, &Base, f64), after: (&Observed, &Base, f64)) -> f64 {
    let part = |(observed, base, value): (&Observed, &Base, f64), at: usize| {
        (observed.slices[at] - value * base.slices[at]) / base.sum
    };
    let squares = (0..SLICES).map(|at| (part(after, at) - part(before, at)).powi(2));
    squares.sum::<f64>() * SLICES as f64 / (SLICES - 1) as f64
}

/// Returns by how many errors a change must differ from 0, so that none of `tests` changes does so
/// by chance, with a probability of `false_alarms` that one does.
fn critical_errors(false_alarms: f64, tests: usize) -> f64 {
    let tail = (false_alarms / tests.max(1) as f64 / 2.0).clamp(1e-12, 0.5);
    student(normal_quantile(tail), (SLICES - 1) as f64)
}

/// Returns the value that a normal variable exceeds with this probability, with an error below
/// 0.0005 (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.23).
fn normal_quantile(tail: f64) -> f64 {
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

/// Converts a normal quantile to that of Student's distribution (Abramowitz and Stegun, 26.7.5).
fn student(x: f64, freedom: f64) -> f64 {
    let x2 = x * x;
    let one = x * (x2 + 1.0) / 4.0;
    let two = x * ((5.0 * x2 + 16.0) * x2 + 3.0) / 96.0;
    let three = x * (((3.0 * x2 + 19.0) * x2 + 17.0) * x2 - 15.0) / 384.0;
    x + one / freedom + two / freedom.powi(2) + three / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (tail, quantile) in [(0.025, 1.959_96), (0.005, 2.575_83), (0.000_05, 3.890_59)] {
            assert!((normal_quantile(tail) - quantile).abs() < 5e-4, "{tail}");
        }
        // Student's distribution with 63 degrees of freedom.
        for (tail, quantile) in [(0.025, 1.998_3), (0.005, 2.656_1)] {
            assert!(
                (student(normal_quantile(tail), 63.0) - quantile).abs() < 1e-3,
                "{tail}"
            );
        }
        assert!(critical_errors(0.01, 100) > critical_errors(0.01, 10));
    }

    fn base(sum: f64) -> Base {
        Base {
            slices: [sum / SLICES as f64; SLICES],
            sum,
            time: sum,
            sample: 1.0,
        }
    }

    /// A function with this many samples in each slice, in runs of this length.
    fn observed(per_slice: f64, run: f64) -> Observed {
        let observed = Observed::exact([per_slice; SLICES]);
        Observed {
            run_squares: observed.sum * run,
            ..observed
        }
    }

    #[test]
    fn longer_runs_and_uneven_slices_widen_the_error() {
        let base = base(6400.0);
        let error =
            |one: &Observed, other: &Observed| change((one, &base), (other, &base), 0.0).error;
        let single = error(&observed(10.0, 1.2), &observed(10.0, 1.2));
        // 640 independent samples of 6,400 in each profile.
        assert!((single - (2.0 * 0.1 * 0.9 / 6400.0_f64).sqrt()).abs() < 1e-9);
        let long = error(&observed(10.0, 20.0), &observed(10.0, 20.0));
        assert!(long > 4.0 * single);
        let mut uneven = observed(10.0, 1.2);
        (0..SLICES).for_each(|at| uneven.slices[at] = if at % 2 == 0 { 20.0 } else { 0.0 });
        assert!(error(&observed(10.0, 1.2), &uneven) > 2.0 * single);
        // Phases that both have at the same times cancel.
        assert_eq!(error(&uneven, &uneven), single);
    }

    #[test]
    fn function_that_one_profile_lacks_has_an_error_in_both() {
        let (few, many) = (base(100.0), base(100_000.0));
        let (missing, present) = (observed(0.0, 0.0), observed(4.6875, 1.0));
        let change = change((&missing, &few), (&present, &many), 0.0);
        // 0.3 % of 100 samples is less than one sample.
        assert!(change.errors() < 1.0, "{change:?}");
    }

    #[test]
    fn function_with_all_of_the_time_has_the_error_of_its_slices_only() {
        let seconds = Base {
            time: 6400.0,
            ..base(64.0)
        };
        let error = |one: &Observed, other: &Observed| {
            change((one, &seconds), (other, &seconds), 0.0).error
        };
        let steady = observed(100.0, 50.0);
        assert_eq!(error(&steady, &steady), 0.0);
        let mut uneven = steady.clone();
        (0..SLICES).for_each(|at| uneven.slices[at] += if at % 2 == 0 { 8.0 } else { -8.0 });
        // A standard deviation of 8 ns per second and slice.
        assert!((error(&steady, &uneven) - (64.0_f64 / 63.0).sqrt()).abs() < 1e-9);
    }
}
