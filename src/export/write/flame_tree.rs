//! The tree that flame graphs and collapsed stacks show: threads, and below them the functions that
//! they called, merged by name.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use crate::export::options::ExportOptions;
use crate::export::run_loops::is_run_loop;
use crate::model::{CallNodes, ChargedSample, FunctionId, ProfileModel, Thread, WeightUnit};
use crate::util::{NumberMap, SharedSort, pair_key};

/// Replacement for an empty name.
pub(crate) const UNNAMED: &str = "(unnamed)";

/// The interval of a profile that does not state one, in ns.
const USUAL_INTERVAL_NS: u64 = 1_000_000;

/// The name of a node: two labels are equal if their names are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FlameLabel {
    /// The threads of this name, by the number of the name.
    Threads(u32),
    /// The functions of one name. This is the first of them in the tree.
    Function(FunctionId),
}

/// A node with the values of its samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlameNode {
    pub(crate) label: FlameLabel,
    /// 0 for threads.
    pub(crate) depth: usize,
    /// Samples whose stack ends here.
    pub(crate) own: u64,
    /// Samples whose stack goes through here; never 0.
    pub(crate) total: u64,
}

/// What the values of a tree count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlameUnit {
    Samples,
    /// CPU time, in multiples of an interval in ns.
    CpuIntervals(u64),
    Milliseconds,
    Bytes,
}

/// A tree of call nodes. Each node comes before its children, and all of its descendants follow it
/// before any other node. The order does not depend on that of the samples.
pub(crate) struct FlameTree<'a> {
    profile: &'a ProfileModel,
    thread_names: Vec<String>,
    pub(crate) unit: FlameUnit,
    pub(crate) nodes: Vec<FlameNode>,
}

impl<'a> FlameTree<'a> {
    /// Returns the tree of the threads that the options choose. Threads of the same name share a
    /// node.
    pub(crate) fn of(profile: &'a ProfileModel, options: &ExportOptions) -> Self {
        let threads = options.threads(profile);
        let unit = unit_of(profile, options, &threads);
        let mut builder = Builder::default();
        for index in threads {
            builder.add_thread(profile, options, unit, &profile.threads[index]);
        }
        Self {
            nodes: builder.to_nodes(profile, unit),
            profile,
            thread_names: builder.thread_names,
            unit,
        }
    }

    pub(crate) fn name(&self, label: FlameLabel) -> &str {
        match label {
            FlameLabel::Threads(name) => &self.thread_names[name as usize],
            FlameLabel::Function(function) => match self.profile.function_name(function) {
                "" => UNNAMED,
                name => name,
            },
        }
    }

    /// Returns the sum of all samples.
    pub(crate) fn total(&self) -> u64 {
        let threads = self.nodes.iter().filter(|node| node.depth == 0);
        threads.fold(0, |sum, node| sum.saturating_add(node.total))
    }
}

/// Returns the name of a thread in views of several threads. If the profile has several processes,
/// the name says which one the thread belongs to.
pub(crate) fn thread_label<'a>(profile: &ProfileModel, thread: &'a Thread) -> Cow<'a, str> {
    let name = match thread.name.as_str() {
        "" => Cow::Owned(format!("thread {}", thread.tid)),
        name => Cow::Borrowed(name),
    };
    if profile.processes.len() < 2 {
        return name;
    }
    let process = profile.process_of(thread);
    Cow::Owned(format!("{name} ({} {})", process.name, process.pid))
}

fn unit_of(profile: &ProfileModel, options: &ExportOptions, threads: &[usize]) -> FlameUnit {
    if options.counts_cpu(profile) {
        return FlameUnit::CpuIntervals(match profile.meta.interval_ns {
            0 => USUAL_INTERVAL_NS,
            interval_ns => interval_ns,
        });
    }
    let first = threads.first().map(|index| &profile.threads[*index]);
    match first.map_or(WeightUnit::Samples, |thread| thread.samples.weight_unit) {
        WeightUnit::Samples => FlameUnit::Samples,
        WeightUnit::Milliseconds => FlameUnit::Milliseconds,
        WeightUnit::Bytes => FlameUnit::Bytes,
    }
}

/// Returns what a row adds to its node: ns for CPU time.
fn value_of(unit: FlameUnit, row: &ChargedSample) -> u64 {
    match unit {
        FlameUnit::CpuIntervals(_) => row.cpu_ns,
        FlameUnit::Samples | FlameUnit::Milliseconds | FlameUnit::Bytes => {
            row.sample.weight.max(0).unsigned_abs()
        }
    }
}

/// A node before the nodes are in order.
struct Draft {
    /// `None` for threads.
    parent: Option<u32>,
    label: FlameLabel,
    own: u64,
}

#[derive(Default)]
struct Builder {
    thread_names: Vec<String>,
    drafts: Vec<Draft>,
    by_thread_name: HashMap<String, u32>,
    /// By the caller's draft and the name.
    by_call: NumberMap<u32>,
    /// The first function of each name.
    by_name: NumberMap<FunctionId>,
}

impl Builder {
    fn add_thread(
        &mut self,
        profile: &ProfileModel,
        options: &ExportOptions,
        unit: FlameUnit,
        thread: &Thread,
    ) {
        let thread_draft = self.thread_draft(&thread_label(profile, thread));
        let calls = CallNodes::of(profile, thread);
        let mut drafts: Vec<u32> = Vec::with_capacity(calls.nodes().len());
        for call in calls.nodes() {
            let draft = match options.folds_runtime && is_run_loop(profile, call.function) {
                true => thread_draft,
                false => {
                    let parent = call.parent.map_or(thread_draft, |id| drafts[id.0 as usize]);
                    self.function_draft(profile, parent, call.function)
                }
            };
            drafts.push(draft);
        }
        for row in options.rows(profile, thread) {
            let node = row.sample.stack.and_then(|stack| calls.node_of(stack));
            let draft = node.map_or(thread_draft, |id| drafts[id.0 as usize]);
            let own = &mut self.drafts[draft as usize].own;
            *own = own.saturating_add(value_of(unit, &row));
        }
    }

    fn push(drafts: &mut Vec<Draft>, parent: Option<u32>, label: FlameLabel) -> u32 {
        drafts.push(Draft {
            parent,
            label,
            own: 0,
        });
        drafts.len() as u32 - 1
    }

    fn thread_draft(&mut self, name: &str) -> u32 {
        let Self {
            thread_names,
            drafts,
            ..
        } = self;
        let draft = self.by_thread_name.entry(name.to_owned());
        *draft.or_insert_with(|| {
            thread_names.push(name.to_owned());
            let label = FlameLabel::Threads(thread_names.len() as u32 - 1);
            Self::push(drafts, None, label)
        })
    }

    fn function_draft(&mut self, profile: &ProfileModel, parent: u32, id: FunctionId) -> u32 {
        let name = profile.function(id).name;
        let first = *self.by_name.entry(name.0.into()).or_insert(id);
        let drafts = &mut self.drafts;
        let draft = self.by_call.entry(pair_key(parent, name.0));
        *draft.or_insert_with(|| Self::push(drafts, Some(parent), FlameLabel::Function(first)))
    }

    /// Returns the drafts by their parents. Siblings lie together, the last one first: threads in
    /// the profile's order, functions by name.
    fn sorted(&self, profile: &ProfileModel) -> Vec<u32> {
        // Names are compared once each, instead of once for each pair of siblings.
        let mut by_name: Vec<FunctionId> = self.by_name.values().copied().collect();
        by_name.shared_sort_by_key(|function| profile.function_name(*function));
        let ranks = by_name.iter().zip(0..);
        let ranks: NumberMap<u32> = ranks.map(|(id, rank)| (id.0.into(), rank)).collect();
        let rank = |draft: &Draft| match draft.label {
            FlameLabel::Threads(_) => 0,
            FlameLabel::Function(function) => ranks[&function.0.into()],
        };
        let mut ids: Vec<u32> = (0..self.drafts.len() as u32).collect();
        ids.shared_sort_by_cached_key(|id| {
            let draft = &self.drafts[*id as usize];
            (draft.parent, Reverse(rank(draft)), Reverse(*id))
        });
        ids
    }

    /// Returns the nodes in their order.
    fn to_nodes(&self, profile: &ProfileModel, unit: FlameUnit) -> Vec<FlameNode> {
        let drafts = &self.drafts;
        let sorted = self.sorted(profile);
        let parent_of = |id: u32| drafts[id as usize].parent;
        let children = |parent: Option<u32>| {
            let first = sorted.partition_point(|id| parent_of(*id) < parent);
            let children = sorted[first..].iter().copied();
            children.take_while(move |id| parent_of(*id) == parent)
        };
        let mut nodes: Vec<FlameNode> = Vec::with_capacity(drafts.len());
        // The first sibling is popped first.
        let mut open: Vec<(u32, usize)> = children(None).map(|id| (id, 0)).collect();
        while let Some((id, depth)) = open.pop() {
            let draft = &drafts[id as usize];
            nodes.push(FlameNode {
                label: draft.label,
                depth,
                own: draft.own,
                total: 0,
            });
            open.extend(children(Some(id)).map(|id| (id, depth + 1)));
        }
        if let FlameUnit::CpuIntervals(interval_ns) = unit {
            count_intervals(&mut nodes, interval_ns);
        }
        add_totals(&mut nodes);
        nodes.retain(|node| node.total > 0);
        nodes
    }
}

/// Adds the values of all nodes to their callers.
fn add_totals(nodes: &mut [FlameNode]) {
    // The sum of the nodes of each depth that have not met their parent yet.
    let mut sums: Vec<u64> = Vec::new();
    for node in nodes.iter_mut().rev() {
        sums.resize(sums.len().max(node.depth + 2), 0);
        let children = std::mem::take(&mut sums[node.depth + 1]);
        node.total = node.own.saturating_add(children);
        sums[node.depth] = sums[node.depth].saturating_add(node.total);
    }
}

/// A sum of times that becomes a whole count, in parts.
#[derive(Default)]
struct Share {
    sum_ns: u64,
    count: u64,
    /// The part that has become counts.
    done_ns: u64,
    done_count: u64,
}

impl Share {
    /// Returns the count of the next part.
    fn take(&mut self, ns: u64) -> u64 {
        self.done_ns = self.done_ns.saturating_add(ns);
        let (sum, done) = (u128::from(self.sum_ns.max(1)), u128::from(self.done_ns));
        let twice = (2 * done).saturating_mul(self.count.into()) + sum;
        let done_count = (twice / (2 * sum)) as u64;
        done_count - std::mem::replace(&mut self.done_count, done_count)
    }
}

/// Converts the nodes' own times to counts of an interval. The sum of all nodes, and that of the
/// nodes with one label, are never more than one count from the exact sum.
fn count_intervals(nodes: &mut [FlameNode], interval_ns: u64) {
    let mut shares: Vec<Share> = Vec::new();
    let mut by_label: HashMap<FlameLabel, usize> = HashMap::new();
    for node in nodes.iter() {
        let index = *by_label.entry(node.label).or_insert(shares.len());
        if index == shares.len() {
            shares.push(Share::default());
        }
        let sum_ns = &mut shares[index].sum_ns;
        *sum_ns = sum_ns.saturating_add(node.own);
    }
    let sum_ns = shares.iter().map(|share| share.sum_ns);
    let sum_ns = sum_ns.fold(0, u64::saturating_add);
    let mut all = Share {
        sum_ns,
        count: sum_ns.saturating_add(interval_ns / 2) / interval_ns,
        ..Share::default()
    };
    for share in &mut shares {
        share.count = all.take(share.sum_ns);
    }
    for node in nodes {
        node.own = shares[by_label[&node.label]].take(node.own);
    }
}

#[cfg(test)]
#[path = "flame_tree_tests.rs"]
mod tests;
