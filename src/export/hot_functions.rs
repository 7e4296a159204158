//! Which functions each thread's time was spent in.

use std::time::Duration;

#[cfg(has_profiler)]
use std::collections::{HashMap, HashSet};

#[cfg(has_profiler)]
use crate::base::{Features, ProgressLogger};
#[cfg(has_profiler)]
use crate::stream::{
    FrameKind, NamedStacks, ProcessStreamingContext, ProfileSource, ResolvedThread,
};

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
    /// The functions of scripts, by the CPU time in which each was the innermost one of its stack's script frames: what the
    /// interpreter does for a function is the function's own. A sample that had no room for the innermost ones counts for
    /// no function's own time.
    pub script_functions: Vec<HotFunction>,
}

/// What a thread spent on one function.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HotFunction {
    /// Its name, or its address where it has none. A script's function is named as the viewer names it, with its file and
    /// where it begins: `name (file:line:column)`.
    pub name: String,
    /// The file name of the library or executable that it is in, if its name is known; none for a script's function.
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
        self.samples = self.samples.saturating_add(other.samples);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

/// Each thread's summary, in the order of registration. Names every function, as writing the profile does.
#[cfg(has_profiler)]
pub(crate) fn summarize(source: &ProfileSource) -> Vec<ThreadSummary> {
    let process = ProcessStreamingContext::decode(source, &ProgressLogger::unwatched());
    let named = NamedStacks::with_names(source, &process, &ProgressLogger::unwatched());
    let of_thread = |context| summarize_thread(source, ResolvedThread::new(context, &named));
    process.threads.iter().map(of_thread).collect()
}

#[cfg(has_profiler)]
fn summarize_thread(source: &ProfileSource, mut thread: ResolvedThread<'_>) -> ThreadSummary {
    let settings = &source.session.settings;
    let interval_ns = settings.interval.as_nanos() as u64;
    let has_cpu = settings.features.contains(Features::CPU);
    let mut by_stack: Vec<Weight> = Vec::new();
    let mut cpu_ns = 0u64;
    for (row, samples) in thread.context.samples.first_rows() {
        let row_cpu_ns = row.cpu_delta_ns.unwrap_or(0);
        cpu_ns = cpu_ns.saturating_add(row_cpu_ns);
        let ns = if has_cpu {
            row_cpu_ns
        } else {
            interval_ns.saturating_mul(samples)
        };
        let stack = thread.stack_of(row.stack) as usize;
        if stack >= by_stack.len() {
            by_stack.resize(stack + 1, Weight::default());
        }
        by_stack[stack].add(Weight {
            samples: samples as usize,
            ns,
        });
    }

    let mut truncated_samples = 0;
    let (mut functions, mut scripts) = (Tally::default(), Tally::default());
    for (stack, weight) in by_stack
        .iter()
        .enumerate()
        .filter(|(_, weight)| weight.samples > 0)
    {
        if thread.is_truncated(stack as u32) {
            truncated_samples += weight.samples;
        }
        functions.begin_stack(*weight);
        scripts.begin_stack(*weight);
        let mut next = Some(stack as u32);
        while let Some(stack) = next {
            let (prefix, kind, location) = thread.stack_parts(stack);
            next = prefix;
            match kind {
                FrameKind::Structure | FrameKind::Label { .. } => {}
                FrameKind::LabelsLeftOut => scripts.leave_innermost_out(),
                FrameKind::Function => functions.add(location, true),
                FrameKind::Inlined => functions.add(location, false),
                FrameKind::Script { .. } => scripts.add(location, true),
            }
        }
    }

    let samples = thread.context.samples.rows();
    ThreadSummary {
        name: thread
            .context
            .thread
            .unlocked_const_reader()
            .info()
            .name
            .clone(),
        samples: samples as usize,
        sampled: Duration::from_nanos(interval_ns.saturating_mul(samples)),
        cpu: Duration::from_nanos(cpu_ns),
        truncated_samples,
        functions: functions.sorted(HotFunction::new),
        script_functions: scripts.sorted(HotFunction::of_script),
    }
}

/// Weights by location, from stacks that are gone through from the innermost frame on.
#[cfg(has_profiler)]
#[derive(Default)]
struct Tally<'a> {
    functions: HashMap<&'a str, (Weight, Weight)>,
    /// Of the current stack.
    weight: Weight,
    seen: HashSet<&'a str>,
    has_innermost: bool,
}

#[cfg(has_profiler)]
impl<'a> Tally<'a> {
    fn begin_stack(&mut self, weight: Weight) {
        self.weight = weight;
        self.seen.clear();
        self.has_innermost = false;
    }

    /// The current stack's innermost function is not known.
    fn leave_innermost_out(&mut self) {
        self.has_innermost = true;
    }

    /// The next frame; the first that `may_be_innermost` has the stack's own time.
    fn add(&mut self, location: &'a str, may_be_innermost: bool) {
        let (own, total) = self.functions.entry(location).or_default();
        if may_be_innermost && !self.has_innermost {
            own.add(self.weight);
            self.has_innermost = true;
        }
        if self.seen.insert(location) {
            total.add(self.weight);
        }
    }

    fn sorted(self, named: impl Fn(&str, Weight, Weight) -> HotFunction) -> Vec<HotFunction> {
        let function = |(location, (own, total))| named(location, own, total);
        let mut functions: Vec<HotFunction> = self.functions.into_iter().map(function).collect();
        functions.sort_by(|one, other| {
            let key = |function: &HotFunction| {
                (
                    function.self_time,
                    function.self_samples,
                    function.total_time,
                )
            };
            key(other)
                .cmp(&key(one))
                .then_with(|| one.name.cmp(&other.name))
        });
        functions
    }
}

#[cfg(has_profiler)]
impl HotFunction {
    fn new(location: &str, own: Weight, total: Weight) -> Self {
        let parts = location
            .strip_suffix(')')
            .and_then(|location| location.rsplit_once(" (in "));
        let (name, library) = parts.map_or((location, None), |(name, library)| {
            (name, Some(library.to_owned()))
        });
        Self {
            library,
            ..Self::of_script(name, own, total)
        }
    }

    fn of_script(name: &str, own: Weight, total: Weight) -> Self {
        Self {
            name: name.to_owned(),
            library: None,
            self_time: Duration::from_nanos(own.ns),
            total_time: Duration::from_nanos(total.ns),
            self_samples: own.samples,
            total_samples: total.samples,
        }
    }
}
