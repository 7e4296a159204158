//! Collects what the text summary says of a profile.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::export::function_groups::{FunctionGroup, FunctionGroups, Grouping, OwnCrates};
use crate::export::function_times::{FunctionTime, SelfTime, ThreadTimes, Time, TimeCounter};
use crate::export::markers::{
    MarkerPairs, SwitchTotals, is_of_contexts, is_of_switches, stands_for,
};
use crate::export::options::ExportOptions;
use crate::model::{Counter, FunctionId, FunctionKind, ProfileModel, TextId, Thread, hull};
use crate::types::{BUFFER_MEMORY, PROFILER_SECTION, SAMPLER_CPU, STOP_TIME};
use crate::util::SharedSort;
use serde::de::DeserializeOwned;

/// Number of functions that are kept of each thread.
const MAX_FUNCTIONS_OF_THREAD: usize = 3;
/// Number of markers, and of rows of the smaller tables.
pub(crate) const MAX_OTHERS: usize = 8;
/// Number of marker intervals that are kept between two selections of the slowest ones.
const KEPT_MARKERS: usize = 4096;

/// A function, or a label, with its time.
#[derive(Clone, Debug)]
pub(crate) struct FunctionRow<'a> {
    pub(crate) group: FunctionGroup<'a>,
    pub(crate) time: FunctionTime,
    /// Whether it belongs to the program's own crates.
    pub(crate) is_own: bool,
    /// The innermost label during most of a native function's self time.
    pub(crate) label: Option<Cow<'a, str>>,
}

/// A thread with its times, and its functions by self time.
#[derive(Clone, Debug)]
pub(crate) struct ThreadRow<'a> {
    /// Index in `ProfileModel::threads`.
    pub(crate) thread: usize,
    pub(crate) all: Time,
    pub(crate) cpu_ns: u64,
    pub(crate) idle_samples: u64,
    /// Time in which it waited for a processor; `None` if the profile does not say.
    pub(crate) queued_ns: Option<u64>,
    /// Time from the thread's first sample to the end of its last one, without pauses.
    pub(crate) lifetime_ns: u64,
    /// The functions with the most self time.
    pub(crate) hottest: Vec<FunctionRow<'a>>,
}

/// A marker with a beginning and an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlowMarker {
    pub(crate) duration_ns: u64,
    pub(crate) start_ns: i64,
    pub(crate) thread: usize,
    pub(crate) name: TextId,
}

/// The cost of the profiler.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Cost {
    /// CPU time of the sampler thread.
    pub(crate) cpu_ns: u64,
    pub(crate) buffer_bytes: u64,
    /// Time in which threads were stopped for their samples; `None` in an older profile.
    pub(crate) stopped_ns: Option<u64>,
}

/// What the summary says.
#[derive(Debug, Default)]
pub(crate) struct Facts<'a> {
    pub(crate) sum: ThreadTimes,
    /// The busiest thread first.
    pub(crate) threads: Vec<ThreadRow<'a>>,
    /// Native and script functions, and labels.
    pub(crate) functions: Vec<FunctionRow<'a>>,
    /// The slowest markers, the slowest one first.
    pub(crate) markers: Vec<SlowMarker>,
    /// Number of markers with a beginning and an end.
    pub(crate) interval_count: u64,
    /// Counts of missing data that are not 0, by name.
    pub(crate) losses: BTreeMap<String, u64>,
    /// What the profiler wrote into the profile about its own cost, if it did.
    pub(crate) cost: Option<Cost>,
    /// Time of the first sample or marker, and of the last one.
    pub(crate) span_ns: Option<(i64, i64)>,
}

/// Returns the time from a thread's first sample to the end of its last one, without pauses.
fn lifetime_ns(profile: &ProfileModel, thread: &Thread) -> u64 {
    let Some((begin_ns, end_ns)) = thread.samples.range_ns() else {
        return 0;
    };
    let paused_ns = profile.process_of(thread).paused_ns(begin_ns, end_ns);
    let all_ns = end_ns
        .abs_diff(begin_ns)
        .saturating_add(profile.meta.interval_ns);
    all_ns.saturating_sub(paused_ns)
}

/// Sorts rows by a time, the greatest first, and then by name.
pub(crate) fn sort_by_time(rows: &mut [FunctionRow<'_>], key: impl Fn(&FunctionTime) -> Time) {
    rows.shared_sort_by(|one, other| {
        let number = |row: &FunctionRow<'_>| {
            let time = key(&row.time);
            (time.ns, time.samples)
        };
        let by_number = number(other).cmp(&number(one));
        let by_name = || one.group.name.cmp(&other.group.name);
        by_number
            .then_with(by_name)
            .then_with(|| one.group.library.cmp(&other.group.library))
    });
}

impl<'a> Facts<'a> {
    /// Collects the facts of the threads that the options choose.
    pub(crate) fn collect(profile: &'a ProfileModel, options: &ExportOptions) -> Self {
        let mut facts = Self {
            losses: losses(profile),
            cost: cost(profile),
            ..Self::default()
        };
        let mut groups = FunctionGroups::default();
        let numbers = groups.add(profile, Grouping::ByName);
        let numbers = (&numbers, groups.len());
        let mut counter = TimeCounter::new(profile, numbers, options, SelfTime::OfInlinedFunction);
        let own_crates = OwnCrates::of(profile);
        let mut own_groups = vec![false; groups.len()];
        for (id, function) in (0..).zip(profile.functions()) {
            own_groups[numbers.0.of(FunctionId(id)) as usize] |= own_crates.contain(function);
        }
        let rows = |times: &ThreadTimes| -> Vec<FunctionRow<'a>> {
            let labels = times.main_labels();
            let row = |(&group, &time): (&u32, &FunctionTime)| FunctionRow {
                group: groups.get(group).clone(),
                time,
                is_own: own_groups[group as usize],
                label: labels
                    .get(&group)
                    .map(|&label| groups.get(label).name.clone()),
            };
            times.functions.iter().map(row).collect()
        };
        for index in options.threads(profile) {
            let thread = &profile.threads[index];
            let times = counter.count(thread);
            let mut hottest = rows(&times);
            hottest.retain(|row| row.group.kind == FunctionKind::Native);
            sort_by_time(&mut hottest, |time| time.own);
            hottest.truncate(MAX_FUNCTIONS_OF_THREAD);
            facts.sum.add(&times);
            facts.threads.push(ThreadRow {
                thread: index,
                all: times.all,
                cpu_ns: times.cpu_ns,
                idle_samples: times.idle_samples,
                queued_ns: SwitchTotals::of(profile, thread).and_then(|totals| totals.waited_ns),
                lifetime_ns: lifetime_ns(profile, thread),
                hottest,
            });
            let ranges = [facts.span_ns, thread.range_ns()];
            facts.span_ns = ranges.into_iter().flatten().reduce(hull);
            facts.add_markers(profile, index);
        }
        facts.select_markers(profile);
        facts.functions = rows(&facts.sum);
        // A stable sort: threads without a difference keep their order.
        let busy = |row: &ThreadRow<'_>| Reverse((row.cpu_ns, row.all.samples));
        facts.threads.shared_sort_by_key(busy);
        facts
    }

    /// Adds the intervals of a thread's markers.
    fn add_markers(&mut self, profile: &ProfileModel, thread: usize) {
        let markers = &profile.threads[thread].markers;
        for pair in MarkerPairs::of(markers) {
            let Some((start_ns, end_ns)) = pair.start_ns.zip(pair.end_ns) else {
                continue;
            };
            // The former are as long as the sampler's period, the latter repeat the samples.
            let first = markers.get(pair.first);
            if is_of_switches(profile, &first) || is_of_contexts(profile, &first) {
                continue;
            }
            self.interval_count += stands_for(profile, &first);
            self.markers.push(SlowMarker {
                duration_ns: end_ns.saturating_sub(start_ns).max(0).unsigned_abs(),
                start_ns,
                thread,
                name: first.name,
            });
            if self.markers.len() >= KEPT_MARKERS {
                self.select_markers(profile);
            }
        }
    }

    fn select_markers(&mut self, profile: &ProfileModel) {
        self.markers.shared_sort_by(|one, other| {
            let key = |marker: &SlowMarker| (Reverse(marker.duration_ns), marker.start_ns);
            let by_name = || profile.text(one.name).cmp(profile.text(other.name));
            let by_time = key(one).cmp(&key(other));
            by_time
                .then_with(by_name)
                .then_with(|| one.thread.cmp(&other.thread))
        });
        self.markers.truncate(MAX_OTHERS);
    }

    /// Returns the number of unnamed addresses, and the time in which one was innermost.
    pub(crate) fn unnamed(&self) -> (usize, Time) {
        let mut time = Time::default();
        let unnamed = self.functions.iter().filter(|row| !row.group.is_named);
        let count = unnamed.inspect(|row| time.add(row.time.own)).count();
        (count, time)
    }
}

/// Returns a field of Gecko's `meta` that the model has as JSON.
pub(crate) fn meta_field<T: DeserializeOwned>(profile: &ProfileModel, key: &str) -> Option<T> {
    let mut fields = profile.meta.other.iter();
    let (_, json) = fields.find(|(known, _)| known == key)?;
    serde_json::from_str(json).ok()
}

/// Returns the cost that the profiler wrote into the profile's `extra`.
fn cost(profile: &ProfileModel) -> Option<Cost> {
    let sections: serde_json::Value = meta_field(profile, "extra")?;
    let mut sections = sections.as_array()?.iter();
    let entries = sections.find_map(|section| {
        let is_profiler = section["label"] == PROFILER_SECTION;
        section["entries"].as_array().filter(|_| is_profiler)
    })?;
    let value = |label: &str| {
        let entry = entries.iter().find(|entry| entry["label"] == label)?;
        entry["value"].as_f64().filter(|value| *value >= 0.0)
    };
    let ns = |label| Some((value(label)? * 1e6).round() as u64);
    Some(Cost {
        cpu_ns: ns(SAMPLER_CPU)?,
        stopped_ns: ns(STOP_TIME),
        buffer_bytes: value(BUFFER_MEMORY)? as u64,
    })
}

/// Returns the counts of missing data that the profiler wrote into the profile.
fn losses(profile: &ProfileModel) -> BTreeMap<String, u64> {
    let losses: BTreeMap<String, serde_json::Value> =
        meta_field(profile, "losses").unwrap_or_default();
    let count = |(name, count): (String, serde_json::Value)| Some((name, count.as_u64()?));
    let counts = losses.into_iter().filter_map(count);
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Returns the CPU time of the profile's processes as their own counters measured it, with the
/// threads that were not sampled. `None` without such a counter.
pub(crate) fn process_cpu_ns(profile: &ProfileModel) -> Option<u64> {
    let counters = profile.counters.iter();
    let sum = |counter: &Counter| {
        let deltas = counter.samples.iter().map(|sample| sample.delta);
        deltas.sum::<f64>()
    };
    let all: f64 = counters
        .filter(|counter| counter.is_process_cpu())
        .map(sum)
        .sum();
    (all.is_finite() && all > 0.0).then_some(all as u64)
}
