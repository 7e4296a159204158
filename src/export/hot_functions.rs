//! Which functions each thread's time was spent in.

use std::time::Duration;

#[cfg(has_profiler)]
use std::collections::{HashMap, HashSet};

#[cfg(has_profiler)]
use crate::base::Features;
#[cfg(has_profiler)]
use crate::stream::{FrameKind, ProcessStreamingContext, ProfileSource, ResolvedThread, name_addresses};

/// What a profile says of one thread.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThreadSummary {
    /// The name that it was registered with; `GeckoMain` for the main thread.
    pub name: String,
    /// How many samples the profile holds of it.
    pub samples: usize,
    /// The time that these samples stand for: so many intervals.
    pub sampled: Duration,
    /// The CPU time of the thread in them; zero without the feature `cpu`.
    pub cpu: Duration,
    /// Samples whose stack could not be followed to its root.
    pub truncated_samples: usize,
    /// The functions in its stacks, by the CPU time spent in themselves, the greatest first.
    pub functions: Vec<HotFunction>,
}

/// What a thread spent on one function.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HotFunction {
    /// Its name, or its address where it has none.
    pub name: String,
    /// The file name of the library or executable that it is in, if its name is known.
    pub library: Option<String>,
    /// CPU time while it was the innermost function. What was inlined into it counts as its own. Without the feature
    /// `cpu`, one interval a sample.
    pub self_time: Duration,
    /// CPU time while it was anywhere in the stack, counted once a sample.
    pub total_time: Duration,
    /// Samples in which it was the innermost function, or something inlined into it.
    pub self_samples: usize,
    /// Samples in which it was anywhere in the stack.
    pub total_samples: usize,
}

/// There is nothing to make a profile from.
#[cfg(not(has_profiler))]
#[derive(Debug)]
pub(crate) enum ProfileSource {}

#[cfg(not(has_profiler))]
pub(crate) fn summarize(source: &ProfileSource) -> Vec<ThreadSummary> {
    match *source {}
}

#[cfg(has_profiler)]
#[derive(Clone, Copy, Default)]
struct Weight {
    samples: usize,
    ns: u64,
}

#[cfg(has_profiler)]
impl Weight {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.ns += other.ns;
    }
}

/// Each thread's summary, in the order of registration. Names every function, as writing the profile does.
#[cfg(has_profiler)]
pub(crate) fn summarize(source: &ProfileSource) -> Vec<ThreadSummary> {
    let process = ProcessStreamingContext::decode(source);
    let names = name_addresses(source, &process);
    let of_thread =
        |context| summarize_thread(source, &ResolvedThread::new(source, &process, context, &names));
    process.threads.iter().map(of_thread).collect()
}

#[cfg(has_profiler)]
fn summarize_thread(source: &ProfileSource, thread: &ResolvedThread<'_>) -> ThreadSummary {
    let settings = &source.session.settings;
    let interval_ns = settings.interval.as_nanos() as u64;
    let has_cpu = settings.features.contains(Features::CPU);
    let mut by_stack = vec![Weight::default(); thread.stack_count()];
    let mut cpu_ns = 0;
    for row in thread.context.samples.iter() {
        cpu_ns += row.cpu_delta_ns.unwrap_or(0);
        let ns = if has_cpu { row.cpu_delta_ns.unwrap_or(0) } else { interval_ns };
        by_stack[thread.stack_of(row.stack) as usize].add(Weight { samples: 1, ns });
    }

    let mut functions: HashMap<&str, (Weight, Weight)> = HashMap::new();
    let mut truncated_samples = 0;
    for (stack, weight) in by_stack.iter().enumerate().filter(|(_, weight)| weight.samples > 0) {
        if thread.is_truncated(stack as u32) {
            truncated_samples += weight.samples;
        }
        let mut seen = HashSet::new();
        let mut is_innermost = true;
        let mut next = Some(stack as u32);
        while let Some(stack) = next {
            let (prefix, kind, location) = thread.stack_parts(stack);
            next = prefix;
            if !matches!(kind, FrameKind::Function | FrameKind::Inlined) {
                continue;
            }
            let (own, total) = functions.entry(location).or_default();
            if is_innermost && kind == FrameKind::Function {
                own.add(*weight);
                is_innermost = false;
            }
            if seen.insert(location) {
                total.add(*weight);
            }
        }
    }

    let mut functions: Vec<HotFunction> = functions
        .into_iter()
        .map(|(location, (own, total))| HotFunction::new(location, own, total))
        .collect();
    functions.sort_by(|one, other| {
        let key = |function: &HotFunction| (function.self_time, function.self_samples, function.total_time);
        key(other).cmp(&key(one)).then_with(|| one.name.cmp(&other.name))
    });
    let samples = thread.context.samples.len();
    ThreadSummary {
        name: thread.context.thread.name.clone(),
        samples,
        sampled: Duration::from_nanos(interval_ns.saturating_mul(samples as u64)),
        cpu: Duration::from_nanos(cpu_ns),
        truncated_samples,
        functions,
    }
}

#[cfg(has_profiler)]
impl HotFunction {
    fn new(location: &str, own: Weight, total: Weight) -> Self {
        let parts = location.strip_suffix(')').and_then(|location| location.rsplit_once(" (in "));
        let (name, library) =
            parts.map_or((location, None), |(name, library)| (name, Some(library.to_owned())));
        Self {
            name: name.to_owned(),
            library,
            self_time: Duration::from_nanos(own.ns),
            total_time: Duration::from_nanos(total.ns),
            self_samples: own.samples,
            total_samples: total.samples,
        }
    }
}
