//! When a request was on which thread.
//!
//! Its own samples show the request. Between one of them and a sample that is not its own, it came
//! or went. A wait tells exactly when, and so does the request's marker. Otherwise the CPU time tells
//! how long a thread ran that had nothing else to do. If nothing tells, it is the middle, which is
//! right on average.

use std::collections::BTreeMap;

use crate::export::explain::pieces::{OnThread, TimeRange, merge, outside, shown_kind};
use crate::model::{FunctionKind, ProfileModel, Samples, TextId, Thread};
use crate::types::TimeKind;

/// Returns the threads with their indices. The track of the waiting tasks is not a thread: each of
/// its intervals is the wait of one future, and its rows are not samples.
pub(crate) fn threads(profile: &ProfileModel) -> impl Iterator<Item = (usize, &Thread)> {
    let threads = profile.threads.iter().enumerate();
    threads.filter(|(_, thread)| !thread.is_waiting_tasks())
}

/// Maximum time without a sample before or after a context, in intervals. A longer time counts as
/// the maximum.
const MAX_GAP_INTERVALS: i64 = 10;

/// The times of a request that are known exactly.
#[derive(Debug)]
pub(crate) struct Exact {
    waits: Vec<TimeRange>,
    within: Option<TimeRange>,
    /// When it may have come to a thread: at the end of each wait, and at its begin.
    comes_ns: Vec<i64>,
    /// When it may have left a thread.
    leaves_ns: Vec<i64>,
}

impl Exact {
    /// `within` is the range of the request's marker.
    pub(crate) fn new(waits: Vec<TimeRange>, within: Option<TimeRange>) -> Self {
        let sorted = |times: &dyn Fn(&TimeRange) -> i64, own: Option<i64>| {
            let mut times: Vec<i64> = waits.iter().map(times).chain(own).collect();
            times.sort_unstable();
            times
        };
        Self {
            comes_ns: sorted(&|wait| wait.1, within.map(|range| range.0)),
            leaves_ns: sorted(&|wait| wait.0, within.map(|range| range.1)),
            waits,
            within,
        }
    }

    /// Returns the last time between two times when the request came to a thread.
    fn comes(&self, from_ns: i64, to_ns: i64) -> Option<i64> {
        let after = self.comes_ns.partition_point(|time_ns| *time_ns <= to_ns);
        let time_ns = self.comes_ns[..after].last().copied();
        time_ns.filter(|time_ns| *time_ns >= from_ns)
    }

    /// Returns the first time between two times when the request left a thread.
    fn leaves(&self, from_ns: i64, to_ns: i64) -> Option<i64> {
        let first = self.leaves_ns.partition_point(|time_ns| *time_ns < from_ns);
        let time_ns = self.leaves_ns.get(first).copied();
        time_ns.filter(|time_ns| *time_ns <= to_ns)
    }
}

/// Returns when a request was on threads whose samples had its contexts at these times.
pub(crate) fn by_contexts(
    profile: &ProfileModel,
    contexts: &BTreeMap<usize, Vec<TimeRange>>,
    exact: &Exact,
) -> BTreeMap<usize, Vec<OnThread>> {
    let of_thread = |(&index, contexts): (&usize, &Vec<TimeRange>)| {
        let samples = &profile.threads[index].samples;
        let mut seen: Vec<OnThread> = Vec::new();
        let mut contexts = contexts.clone();
        contexts.sort_unstable();
        for context in contexts {
            let first = samples.first_from(context.0);
            let after = samples.first_from(context.1.saturating_add(1));
            // A row also represents ticks after its own time.
            let own = first.min(after.saturating_sub(1))..after;
            match seen.last_mut() {
                // Two contexts of one request, without another sample in between.
                Some(last) if last.own.end >= own.start => {
                    last.range.1 = last.range.1.max(context.1);
                    last.own.end = last.own.end.max(own.end);
                }
                _ => seen.push(OnThread {
                    range: context,
                    own,
                }),
            }
        }
        let on = seen
            .iter()
            .flat_map(|seen| extended(profile, samples, seen, exact));
        (index, on.collect::<Vec<_>>())
    };
    let all = contexts.iter().map(of_thread);
    all.filter(|(_, on)| !on.is_empty()).collect()
}

/// Returns the times on a thread around and between these own samples.
fn extended(
    profile: &ProfileModel,
    samples: &Samples,
    seen: &OnThread,
    exact: &Exact,
) -> Vec<OnThread> {
    let (first_ns, last_ns) = seen.range;
    let interval_ns = profile.meta.interval_ns as i64;
    let longest_ns = MAX_GAP_INTERVALS * interval_ns;
    let own = &seen.own;
    let get = |index: usize| (index < samples.len()).then(|| samples.get(index));
    // What a thread did after a wait that was not the request's was for the request.
    let ran_ns = |waiting: Option<usize>, ran: Option<usize>, read: Option<usize>| {
        let kind = |index: Option<usize>| Some(shown_kind(profile, &get(index?)?));
        let slept = |kind| !matches!(kind, TimeKind::Cpu | TimeKind::WaitForProcessor);
        let is_alone = kind(waiting).is_some_and(slept) && kind(ran) == Some(TimeKind::Cpu);
        let cpu_ns = get(read?)?.cpu_delta_ns.filter(|_| is_alone)?;
        i64::try_from(cpu_ns).ok()
    };
    let before = own.start.checked_sub(1);
    let before_ns = before.map(|before| samples.row_ticks(before).last_ns());
    let after_ns = get(own.end).map(|after| after.time_ns);
    let gaps_ns = [
        before_ns.map(|before_ns| first_ns.saturating_sub(before_ns)),
        after_ns.map(|after_ns| after_ns.saturating_sub(last_ns)),
    ];
    let [to_first_ns, from_last_ns] = gaps_ns.map(|gap_ns| gap_ns.unwrap_or(longest_ns).max(0));
    let half_ns = |gap_ns: Option<i64>| gap_ns.unwrap_or(interval_ns).min(longest_ns) / 2;
    let last = own.end.checked_sub(1);
    let start_ns = exact
        .comes(first_ns.saturating_sub(to_first_ns), first_ns)
        .unwrap_or_else(|| {
            let ran_ns = ran_ns(before, Some(own.start), Some(own.start));
            first_ns - ran_ns.map_or(half_ns(gaps_ns[0]), |ran_ns| ran_ns.min(to_first_ns))
        });
    let end_ns = exact
        .leaves(last_ns, last_ns.saturating_add(from_last_ns))
        .unwrap_or_else(|| {
            let ran_ns = ran_ns(Some(own.end), last, Some(own.end));
            last_ns + ran_ns.map_or(half_ns(gaps_ns[1]), |ran_ns| ran_ns.min(from_last_ns))
        });
    let (from_ns, to_ns) = exact.within.unwrap_or((i64::MIN, i64::MAX));
    let range = (start_ns.max(from_ns), end_ns.min(to_ns));
    // A wait of another task of the request lies around samples.
    let is_between_samples = |wait: &&TimeRange| {
        let next = samples.first_from(wait.0);
        let is_before = get(next).is_none_or(|next| next.time_ns >= wait.1);
        let last = next.checked_sub(1);
        is_before && last.is_none_or(|last| samples.row_ticks(last).last_ns() <= wait.0)
    };
    let inside = exact.waits.iter();
    let inside = inside.filter(|wait| wait.0 >= range.0 && wait.1 <= range.1);
    let suspended = merge(inside.filter(is_between_samples).copied().collect());
    let parts = outside(range, &suspended).into_iter();
    let part = |range| OnThread {
        range,
        own: own.clone(),
    };
    parts.map(part).collect()
}

/// Returns when a span of `tracing` was on threads, by its label: it was polled in the times outside
/// of its waits. A time in which several threads came below such a label is left out.
pub(crate) fn by_label(
    profile: &ProfileModel,
    name: TextId,
    exact: &Exact,
) -> BTreeMap<usize, Vec<OnThread>> {
    let mut all: BTreeMap<usize, Vec<OnThread>> = BTreeMap::new();
    let Some(within) = exact.within else {
        return all;
    };
    let has_label = |samples: &Samples, index: usize| {
        let frames = profile.stack_frames(samples.get(index).stack);
        let mut functions = frames.map(|frame| profile.function(profile.frame(frame).function));
        functions.any(|function| function.kind == FunctionKind::Label && function.name == name)
    };
    for polled in outside(within, &merge(exact.waits.clone())) {
        let runs = |(index, thread): (usize, &Thread)| {
            let samples = &thread.samples;
            let mut runs: Vec<OnThread> = Vec::new();
            let first = samples.first_from(polled.0);
            let after = samples.first_from(polled.1.saturating_add(1));
            for own in (first..after).filter(|own| has_label(samples, *own)) {
                match runs.last_mut().filter(|run| run.own.end == own) {
                    Some(run) => run.own.end += 1,
                    None => runs.push(OnThread {
                        range: polled,
                        own: own..own + 1,
                    }),
                }
            }
            // Below such a label before and after, it was another request's.
            let beside = [first.checked_sub(1), Some(after)].into_iter().flatten();
            let mut beside = beside.filter(|index| *index < samples.len());
            let touches = |index: usize| {
                let mut runs = runs.iter().map(|run| &run.own);
                runs.any(|own| own.start == index + 1 || own.end == index)
            };
            let is_other = beside.any(|index| touches(index) && has_label(samples, index));
            (!runs.is_empty() && !is_other).then_some((index, runs))
        };
        let mut candidates = threads(profile).filter_map(runs);
        if let (Some((index, runs)), None) = (candidates.next(), candidates.next()) {
            let samples = &profile.threads[index].samples;
            for mut run in runs {
                let last_ns = samples.row_ticks(run.own.end - 1).last_ns();
                run.range = (samples.get(run.own.start).time_ns, last_ns.min(polled.1));
                let on = extended(profile, samples, &run, exact);
                all.entry(index).or_default().extend(on);
            }
        }
    }
    all
}
