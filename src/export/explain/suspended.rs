//! The times in which a request was on no thread.

use crate::export::explain::on_threads::threads;
use crate::export::explain::pieces::{TimeRange, merge, outside, overlap_ns};
use crate::export::explain::request::{Found, Wait};
use crate::model::{ProfileModel, StackId};
use crate::types::TimeKind;

/// A longer time between two ticks of all threads, in intervals, was not sampled.
const MAX_TICK_INTERVALS: u64 = 10;
/// What stands between the names of futures.
const INSIDE: &str = " \u{2192} ";

/// Where a request's time passed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// In a stack. The stack of a suspended request is the last one before.
    Stack(Option<StackId>),
    /// In futures with these names, the innermost first; none if the profile does not tell.
    Futures(Vec<String>),
}

impl Found {
    /// Gives the times in which the request was on no thread.
    pub(crate) fn visit_suspended(
        &self,
        profile: &ProfileModel,
        add: &mut dyn FnMut(TimeKind, Place, f64),
    ) {
        let on = || self.on_threads.values().flatten();
        let all = merge(on().map(|on| on.range).collect());
        let on_ns: i64 = all.iter().map(|range| range.1 - range.0).sum();
        // What the span was on threads without a sample.
        let mut unseen_ns = self.busy_ns.map_or(0.0, |busy_ns| busy_ns - on_ns as f64);
        for gap in outside(self.range, &all) {
            let last = self.on_threads.iter().flat_map(|(index, on)| {
                let ended = on.partition_point(|on| on.range.1 <= gap.0);
                on[..ended]
                    .last()
                    .map(|on| (on.range.1, *index, on.own.end))
            });
            let stack = last.max().and_then(|(_, index, own_end)| {
                let samples = &profile.threads[index].samples;
                samples.get(own_end.checked_sub(1)?).stack
            });
            self.visit_gap(profile, gap, (stack, &mut unseen_ns), add);
        }
    }

    /// Gives the parts of a time in which no sample shows the request. `stack` is the last one before,
    /// and `unseen_ns` for how long it was on a thread nevertheless.
    fn visit_gap(
        &self,
        profile: &ProfileModel,
        gap: TimeRange,
        (stack, unseen_ns): (Option<StackId>, &mut f64),
        add: &mut dyn FnMut(TimeKind, Place, f64),
    ) {
        let waits = self.waits.iter();
        let waits: Vec<&Wait> = waits
            .filter(|wait| overlap_ns(wait.range, gap) > 0)
            .collect();
        let edges = waits.iter().flat_map(|wait| [wait.range.0, wait.range.1]);
        let mut edges: Vec<i64> = edges.map(|edge| edge.clamp(gap.0, gap.1)).collect();
        edges.sort_unstable();
        for pair in edges.windows(2) {
            let part = (pair[0], pair[1]);
            let active = waits.iter().filter(|wait| overlap_ns(wait.range, part) > 0);
            let mut active: Vec<_> = active.collect();
            // A task that outlives the request is not what the request waits for.
            if active.iter().any(|wait| wait.range.1 <= self.range.1) {
                active.retain(|wait| wait.range.1 <= self.range.1);
            }
            let mut names: Vec<_> = active
                .iter()
                .map(|wait| profile.text(wait.futures))
                .collect();
            names.sort_unstable();
            names.dedup();
            if !names.is_empty() {
                let place = Place::Futures(together(&names));
                add(TimeKind::Await, place, (part.1 - part.0) as f64);
            }
        }
        let waited = merge(waits.iter().map(|wait| wait.range).collect());
        for rest in outside(gap, &waited) {
            let futures_at = |is_it: &dyn Fn(&&&Wait) -> bool| {
                let wait = waits.iter().find(is_it);
                wait.map(|wait| profile.text(wait.futures))
            };
            let before = futures_at(&|wait| wait.range.1 == rest.0);
            let after = futures_at(&|wait| wait.range.0 == rest.1);
            let begins = before.is_some() || self.has_marker && rest.0 == self.range.0;
            let ends = after.is_some() || self.has_marker && rest.1 == self.range.1;
            let length_ns = (rest.1 - rest.0) as f64;
            // Polled from one exact time to the other.
            let is_poll = begins && ends && length_ns <= profile.meta.interval_ns as f64;
            let ran_ns = match is_poll {
                true => length_ns,
                false => unseen_ns.clamp(0.0, length_ns),
            };
            *unseen_ns -= ran_ns;
            let between = Place::Stack(Some(ProfileModel::RAN_BETWEEN_SAMPLES));
            add(TimeKind::Cpu, between, ran_ns);
            let left_ns = length_ns - ran_ns;
            let unknown_ns = (unsampled_ns(profile, rest) as f64).min(left_ns);
            add(TimeKind::Unknown, Place::Stack(None), unknown_ns);
            let place = match before.zip(after) {
                Some((before, after)) => Place::Futures(common(&[before, after])),
                None if before.is_none() && stack.is_some() => Place::Stack(stack),
                None => Place::Futures(Vec::new()),
            };
            add(TimeKind::Await, place, left_ns - unknown_ns);
        }
    }
}

/// Returns how many outer names all of these futures share.
fn common_count(split: &[Vec<&str>]) -> usize {
    let is_shared = |at: &usize| {
        let mut names = split.iter().map(|names| names.get(*at));
        let first = names.next().flatten();
        first.is_some() && names.all(|name| name == first)
    };
    (0..).take_while(is_shared).count()
}

fn split<'a>(futures: &[&'a str]) -> Vec<Vec<&'a str>> {
    let names = |text: &&'a str| text.split(INSIDE).collect();
    futures.iter().map(names).collect()
}

fn innermost_first(names: &[&str]) -> Vec<String> {
    names.iter().rev().map(|name| (*name).to_owned()).collect()
}

/// Returns the names that all of these futures share.
fn common(futures: &[&str]) -> Vec<String> {
    let split = split(futures);
    innermost_first(&split[0][..common_count(&split)])
}

/// Returns the names of futures that wait at the same time. Where they differ, one name has them all.
fn together(futures: &[&str]) -> Vec<String> {
    let split = split(futures);
    let shared = common_count(&split);
    let tails = split.iter().map(|names| &names[shared..]);
    let tails = tails.filter(|tail| !tail.is_empty());
    let tails: Vec<_> = tails
        .map(|tail| innermost_first(tail).join(" \u{2190} "))
        .collect();
    let mut names = innermost_first(&split[0][..shared]);
    if let [only] = futures {
        return innermost_first(&only.split(INSIDE).collect::<Vec<_>>());
    }
    names.insert(0, tails.join(" + "));
    names
}

/// Returns the time within a range without samples, in ns: before the first sample, after the last
/// one, in pauses, and in gaps of the sampler.
pub(crate) fn unsampled_ns(profile: &ProfileModel, range: TimeRange) -> i64 {
    let longest_ns = (MAX_TICK_INTERVALS * profile.meta.interval_ns) as i64;
    let mut sampled: Vec<TimeRange> = Vec::new();
    for (_, thread) in threads(profile) {
        let samples = &thread.samples;
        let first = samples.first_from(range.0).saturating_sub(1);
        let near = first..samples.first_from(range.1);
        sampled.extend(near.map(|index| {
            let ticks = samples.row_ticks(index);
            let [first_ns, next_ns] = [ticks.time_ns(0), ticks.time_ns(ticks.count)];
            let is_gap = next_ns - first_ns > longest_ns.saturating_mul(ticks.count as i64);
            // The next sample would be an interval later.
            let alone_ns = first_ns.saturating_add(profile.meta.interval_ns as i64);
            match is_gap {
                true => (first_ns, alone_ns),
                false => (first_ns, next_ns.max(alone_ns)),
            }
        }));
    }
    let process = profile.processes.first().into_iter();
    let paused = process.flat_map(|process| &process.paused_ranges);
    let paused = paused.map(|pause| {
        let start_ns = pause.start_ns.unwrap_or(i64::MIN);
        (start_ns, pause.end_ns.unwrap_or(i64::MAX))
    });
    let mut absent = outside(range, &merge(sampled));
    absent.extend(paused);
    let absent = merge(absent);
    absent.iter().map(|part| overlap_ns(*part, range)).sum()
}
