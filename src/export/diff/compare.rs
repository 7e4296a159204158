//! Finds the functions whose time changed from one profile to another.

use std::collections::HashMap;
use std::io;

use crate::export::diff::bands::{Base, Change, change, critical_errors};
use crate::export::diff::result::{Diff, DiffOptions, DiffOptionsShown, DiffRow, Verdict};
use crate::export::diff::slices::{
    Denominator, FunctionSlices, Observed, ProfileSlices, SLICES, Tracked, is_compared, slice,
};
use crate::export::function_groups::{FunctionGroup, FunctionGroups, GroupNumbers, Grouping};
use crate::export::function_times::{FunctionTime, SelfTime, ThreadTimes, TimeCounter};
use crate::export::options::{ExportOptions, SampleWeight};
use crate::model::ProfileModel;
use crate::util::{ProgressLocation, ProgressLogger};

/// Minimum share of the time, in both profiles together, of a function that is compared. Rarer
/// functions would only widen the bands of the others.
const MIN_SHARE: f64 = 0.001;

/// Maximum number of functions that are compared: those with the greatest total time.
const MAX_FUNCTIONS: usize = 2_000;

/// A single change, looked at alone, exceeds this many errors by chance in 5 % of cases.
const LIKELY_ERRORS: f64 = 2.0;

/// Compares two profiles.
///
/// # Errors
/// Returns an error if a profile has no time, or no unit of work where one was asked for.
pub(crate) fn compare(
    before: &ProfileModel,
    after: &ProfileModel,
    options: &DiffOptions,
    progress: &ProgressLogger,
) -> io::Result<Diff> {
    let mut groups = FunctionGroups::default();
    let numbers = [before, after].map(|profile| groups.add(profile, Grouping::AcrossBuilds));
    let (groups, profiles) = (&groups, [before, after]);
    let export = export_options(profiles, &options.export);
    let (tracked, names) = tracked(profiles, groups, &numbers, &export);
    let mut sides = Vec::new();
    for (progress, side) in progress.loop_sub_loggers(0..2, ProgressLocation::Samples) {
        sides.push(slice(
            profiles[side],
            (groups, &numbers[side]),
            (&tracked, names.len()),
            (&export, options.unit_of_work.as_deref()),
            &progress,
        ));
    }
    let denominator = match options.unit_of_work {
        Some(_) => Denominator::Work,
        None => Denominator::Time,
    };
    let bases = [
        base(&sides[0], "first", denominator, options)?,
        base(&sides[1], "second", denominator, options)?,
    ];
    let sides_of = [&sides[0].functions[..], &sides[1].functions[..]];
    let comparison = Comparison {
        names,
        sides: sides_of,
        denominator,
        run_to_run: options.run_to_run,
        critical: critical_errors(options.false_alarms, count_tests(sides_of)),
    };
    let work = options.unit_of_work.is_some();
    Ok(Diff {
        own: comparison.own(&bases),
        total: comparison.total(&bases),
        samples: (sides[0].samples, sides[1].samples),
        work: work.then_some((bases[0].sum, bases[1].sum)),
        options: DiffOptionsShown {
            false_alarms: options.false_alarms,
            threshold: options.threshold,
            max_rows: options.max_rows,
        },
    })
}

/// Returns the options with a weight that both profiles have.
fn export_options(profiles: [&ProfileModel; 2], options: &ExportOptions) -> ExportOptions {
    let have_cpu = profiles.iter().all(|profile| profile.meta.has_cpu_deltas);
    ExportOptions {
        weight: if have_cpu {
            options.weight
        } else {
            SampleWeight::Samples
        },
        ..options.clone()
    }
}

/// Chooses the functions to compare. The choice does not depend on what changed.
fn tracked<'a>(
    profiles: [&ProfileModel; 2],
    groups: &FunctionGroups<'a>,
    numbers: &[GroupNumbers; 2],
    options: &ExportOptions,
) -> (Tracked, Vec<FunctionGroup<'a>>) {
    let mut shares: HashMap<u32, f64> = HashMap::new();
    for (profile, numbers) in profiles.into_iter().zip(numbers) {
        let numbers = (numbers, groups.len());
        let mut counter = TimeCounter::new(profile, numbers, options, SelfTime::OfInlinedFunction);
        let mut sum = ThreadTimes::default();
        for index in options.threads(profile) {
            sum.add(&counter.count(&profile.threads[index]));
        }
        let all_ns = (sum.all.ns as f64).max(1.0);
        let share = |time: &FunctionTime| time.total.ns as f64 / all_ns / 2.0;
        for (&group, time) in &sum.functions {
            *shares.entry(group).or_default() += share(time);
        }
    }
    shares.retain(|group, share| *share >= MIN_SHARE && is_compared(groups.get(*group).kind));
    let mut chosen: Vec<(u32, f64)> = shares.into_iter().collect();
    chosen.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    chosen.truncate(MAX_FUNCTIONS);
    let mut tracked = vec![None; groups.len()];
    for (number, (group, _)) in chosen.iter().enumerate() {
        tracked[*group as usize] = Some(number as u32);
    }
    let names = chosen.iter().map(|(group, _)| groups.get(*group).clone());
    (tracked, names.collect())
}

fn base(
    side: &ProfileSlices,
    which: &str,
    denominator: Denominator,
    options: &DiffOptions,
) -> io::Result<Base> {
    let time: f64 = side.time.iter().sum();
    let slices = match denominator {
        Denominator::Time => side.time,
        Denominator::Work => side.work,
    };
    let sum: f64 = slices.iter().sum();
    let error = |text: String| Err(io::Error::new(io::ErrorKind::InvalidData, text));
    if time <= 0.0 {
        return error(format!(
            "cannot compare profiles: got no sampled time in the {which} one, expected some"
        ));
    }
    if sum <= 0.0 {
        let name = options.unit_of_work.as_deref().unwrap_or_default();
        return error(format!(
            "cannot compare by unit of work: got no marker {name:?} in the {which} profile, \
             expected at least one"
        ));
    }
    Ok(Base {
        slices,
        sum,
        time,
        sample: side.sample_squares / time,
    })
}

/// Returns the number of values that can show a change. The total time of a function that calls
/// no other one is its self time, and that of a function that only calls others has no self time.
fn count_tests(sides: [&[FunctionSlices]; 2]) -> usize {
    let [before, after] = sides;
    let functions = || before.iter().zip(after);
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
    denominator: Denominator,
    run_to_run: f64,
    /// By how many errors a sure change differs from 0.
    critical: f64,
}

impl Comparison<'_> {
    fn change(
        &self,
        number: usize,
        bases: &[Base; 2],
        of: impl Fn(&FunctionSlices) -> &Observed,
    ) -> Change {
        let observed = |side: usize| (of(&self.sides[side][number]), &bases[side]);
        change(observed(0), observed(1), self.denominator, self.run_to_run)
    }

    /// Returns by how much a change surely differs from 0. Below 0 if it may be chance.
    fn sure(&self, change: &Change) -> f64 {
        change.difference().abs() - self.critical * change.error
    }

    fn is_sure(&self, change: &Change) -> bool {
        change.errors() > self.critical
    }

    fn row(&self, number: usize, change: &Change, verdict: Verdict, sure_growth: f64) -> DiffRow {
        let group = &self.names[number];
        DiffRow {
            name: group.name.clone().into_owned(),
            library: group.library.map(str::to_owned),
            before: change.before,
            after: change.after,
            band: self.critical * change.error,
            verdict,
            sure_growth,
        }
    }

    /// Orders two changes: the one that is surely greater first, a growth before a fall.
    fn order(&self, one: (usize, &Change), other: (usize, &Change)) -> std::cmp::Ordering {
        let key = |(_, change): (usize, &Change)| {
            let is_sure = self.is_sure(change);
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
        let (one, other) = (&self.names[one.0], &self.names[other.0]);
        let by_name = || one.name.cmp(&other.name);
        by_size
            .then_with(by_name)
            .then_with(|| one.library.cmp(&other.library))
    }

    /// Compares the functions by self time, one culprit after another.
    fn own(&self, bases: &[Base; 2]) -> Vec<DiffRow> {
        let changes = |bases: &[Base; 2], numbers: &[usize]| -> Vec<(usize, Change)> {
            let one = |&number: &usize| (number, self.change(number, bases, |f| &f.own));
            numbers.iter().map(one).collect()
        };
        let [before, after] = self.sides;
        let has_own = |number: &usize| before[*number].own.sum + after[*number].own.sum > 0.0;
        let numbers: Vec<usize> = (0..self.names.len()).collect();
        // By the number of the function.
        let all = changes(bases, &numbers);
        let mut left: Vec<usize> = numbers.into_iter().filter(has_own).collect();
        let mut rest = bases.clone();
        let mut rows = Vec::new();
        loop {
            let mut sure = changes(&rest, &left);
            sure.retain(|(_, change)| self.is_sure(change));
            let first = sure
                .iter()
                .min_by(|a, b| self.order((a.0, &a.1), (b.0, &b.1)));
            let Some(&(number, ref change)) = first else {
                break;
            };
            let (verdict, sure_growth) = match change.difference() > 0.0 {
                true => (Verdict::Slower, self.sure(change)),
                false => (Verdict::Faster, 0.0),
            };
            rows.push(self.row(number, &all[number].1, verdict, sure_growth));
            left.retain(|other| *other != number);
            if self.denominator == Denominator::Time {
                for (base, functions) in rest.iter_mut().zip(self.sides) {
                    base.leave_out(&functions[number].own);
                }
                if rest.iter().any(|base| base.sum <= 0.0) {
                    break;
                }
            }
        }
        let mut others: Vec<_> = left.into_iter().map(|number| &all[number]).collect();
        others.sort_by(|a, b| self.order((a.0, &a.1), (b.0, &b.1)));
        rows.extend(others.into_iter().map(|(number, change)| {
            let is_moved = self.is_sure(change);
            let verdict = if is_moved {
                Verdict::Moved
            } else {
                Verdict::Unclear
            };
            self.row(*number, change, verdict, 0.0)
        }));
        rows
    }

    /// Compares the functions by total time. A function and its callers change together, so no
    /// culprit is looked for.
    fn total(&self, bases: &[Base; 2]) -> Vec<DiffRow> {
        let numbers = 0..self.names.len();
        let mut changes: Vec<(usize, Change)> = numbers
            .map(|number| (number, self.change(number, bases, |f| &f.total)))
            .collect();
        changes.sort_by(|a, b| self.order((a.0, &a.1), (b.0, &b.1)));
        let rows = changes.iter().map(|(number, change)| {
            let (verdict, growth) = match (self.is_sure(change), change.difference() > 0.0) {
                (true, true) => (Verdict::Grew, self.sure(change)),
                (true, false) => (Verdict::Fell, 0.0),
                (false, _) => (Verdict::Unclear, 0.0),
            };
            self.row(*number, change, verdict, growth)
        });
        rows.collect()
    }
}

impl Base {
    /// Leaves out a function's time.
    fn leave_out(&mut self, observed: &Observed) {
        for at in 0..SLICES {
            self.slices[at] = (self.slices[at] - f64::from(observed.slices[at])).max(0.0);
        }
        self.sum -= observed.sum;
        self.time -= observed.sum;
    }
}
