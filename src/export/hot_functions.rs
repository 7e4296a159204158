//! Computes the time that each thread spent in each function.

#[cfg(has_profiler)]
use std::collections::{HashMap, HashSet};
#[cfg(has_profiler)]
use std::time::Duration;

#[cfg(has_profiler)]
use crate::export::thread_summary::HotFunction;
use crate::export::thread_summary::ThreadSummary;
#[cfg(has_profiler)]
use crate::stream::{
    FrameKind, NamedStacks, ProfileSource, ResolvedThread, ThreadMaps, decode_newest,
};
#[cfg(has_profiler)]
use crate::types::{Features, Symbolicate};
#[cfg(has_profiler)]
use crate::util::ProgressLogger;

/// A type without values: builds without the profiler have no profiles.
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

/// Summarizes each thread, in the order of registration. Looks up the names of all functions, which
/// takes as long as it does when a profile is written. If there is no memory for the whole profile,
/// summarizes the newest part, or nothing.
#[cfg(has_profiler)]
pub(crate) fn summarize(source: &ProfileSource) -> Vec<ThreadSummary> {
    let mut source = source.clone();
    let Ok(process) = decode_newest(&mut source, &ProgressLogger::unwatched()) else {
        return Vec::new();
    };
    let source = &source;
    let named = NamedStacks::with_names(
        source,
        &process,
        Symbolicate::Full,
        &ProgressLogger::unwatched(),
    );
    let mut maps = ThreadMaps::default();
    let of_thread =
        |context| summarize_thread(source, ResolvedThread::new(context, &named, &mut maps));
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
                FrameKind::LabelsLeftOut => scripts.skip_self_time(),
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
        script_functions: scripts.sorted(HotFunction::from_script),
    }
}

/// Accumulates weights by location. The frames of each stack are added from the innermost one
/// outwards.
#[cfg(has_profiler)]
#[derive(Default)]
struct Tally<'a> {
    functions: HashMap<&'a str, (Weight, Weight)>,
    /// Weight of the current stack.
    weight: Weight,
    /// Locations already counted in the current stack.
    seen: HashSet<&'a str>,
    /// Whether the self time of the current stack is already assigned, or belongs to no function.
    has_innermost: bool,
}

#[cfg(has_profiler)]
impl<'a> Tally<'a> {
    fn begin_stack(&mut self, weight: Weight) {
        self.weight = weight;
        self.seen.clear();
        self.has_innermost = false;
    }

    /// Assigns the self time of the current stack to no function, because its innermost function is
    /// unknown.
    fn skip_self_time(&mut self) {
        self.has_innermost = true;
    }

    /// Adds the next frame of the current stack. The first frame with `may_be_innermost` gets the
    /// self time.
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
            ..Self::from_script(name, own, total)
        }
    }

    fn from_script(name: &str, own: Weight, total: Weight) -> Self {
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
