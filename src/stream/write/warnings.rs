//! Finds what the reader of a session's profile should be warned of.

use std::collections::BTreeMap;

use crate::counters::PROCESS_CPU;
use crate::json::JsonWriter;
use crate::platform::names_of_other_threads;
use crate::stream::decode::{FrameKey, ProcessStreamingContext, ProfileSource};
use crate::symbols::is_stripped;
use crate::threads::OffThreadRef;
use crate::types::{
    Features, NoStack, ThreadFilter, ThreadId, Uncovered, Warning, late_signals, low_coverage,
    missed_ticks, stripped_program, unavailable_features, unmatched_filters,
    unregistered_main_thread, without_stacks,
};

/// Returns the warnings about a profile. `wants_names` is whether its functions are to have names.
///
/// Reads the process's list of threads and the head of the program's file, if that may matter.
pub(crate) fn warnings_about(
    source: &ProfileSource,
    process: &ProcessStreamingContext,
    wants_names: bool,
) -> Vec<Warning> {
    let settings = &source.session.settings;
    let wall_ns = source.taken_at.since_ns(source.session.started_at);
    let interval_ns = settings.interval.as_nanos() as u64;
    let cpu_times = CpuTimes::of(process);
    let warnings = [
        coverage(source, process, cpu_times.all_ns, wall_ns),
        without_stacks(cpu_times.all_ns, &cpu_times.without_stack),
        late_ticks(source),
        missed_ticks(source.count("missed_ticks"), wall_ns, interval_ns),
        unmatched_filters(&source.unmatched_filters, &names_of_threads(source)),
        has_unregistered_main_thread(source).then(unregistered_main_thread),
        unavailable_features(&source.session.unavailable_features),
        stripped(process).filter(|_| wants_names),
    ];
    warnings.into_iter().flatten().collect()
}

/// Returns whether the session samples the main thread, which has not registered.
fn has_unregistered_main_thread(source: &ProfileSource) -> bool {
    source.threads.iter().any(|thread| {
        thread.unlocked_const_reader().info().is_main
            && !thread.unlocked_const_reader_and_atomic_rw().is_registered()
    })
}

/// Returns the names of the program's threads, for a warning about filters; none if no filter needs
/// it.
fn names_of_threads(source: &ProfileSource) -> Vec<String> {
    if source.unmatched_filters.is_empty() {
        return Vec::new();
    }
    let selected = source.threads.iter();
    let selected = selected.map(|thread| thread.unlocked_const_reader_and_atomic_rw().name());
    let unselected = source.unselected_threads.iter();
    let mut names: Vec<String> = unselected
        .map(|(_, name)| name.clone())
        .chain(selected)
        .chain(other_threads(source).into_iter().map(|(_, name)| name))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn coverage(
    source: &ProfileSource,
    process: &ProcessStreamingContext,
    sampled_ns: u64,
    wall_ns: u64,
) -> Option<Warning> {
    if !source.session.settings.features.contains(Features::CPU) {
        return None;
    }
    let mut counters = process.counters.iter();
    let (_, rows) = counters.find(|(counter, _)| counter.id == PROCESS_CPU.id)?;
    // Growth before the oldest remaining row belongs to no row.
    let begins_late = source.earliest_ns_of_process().is_some();
    let deltas = rows.deltas().skip(usize::from(begins_late));
    let process_ns = deltas
        .map(|(_, growth)| growth.count.max(0).unsigned_abs())
        .sum();
    low_coverage((sampled_ns, process_ns, wall_ns), || uncovered(source))
}

/// The CPU time of the sampled threads, in ns.
#[derive(Default)]
struct CpuTimes {
    all_ns: u64,
    /// That of samples without a stack, and the names of their threads.
    without_stack: BTreeMap<NoStack, (u64, Vec<String>)>,
}

impl CpuTimes {
    fn of(process: &ProcessStreamingContext) -> Self {
        let frames = process.stacks.frames();
        let reason = |stack: u32| match frames[process.stacks.stacks()[stack as usize].1 as usize] {
            FrameKey::NoStack(reason) if reason != NoStack::RanBetween => Some(reason),
            _ => None,
        };
        let mut times = Self::default();
        for thread in &process.threads {
            for (stack, cpu_ns) in thread.samples.cpu_times() {
                times.all_ns = times.all_ns.saturating_add(cpu_ns);
                let Some(reason) = reason(stack).filter(|_| cpu_ns > 0) else {
                    continue;
                };
                let (sum_ns, names) = times.without_stack.entry(reason).or_default();
                *sum_ns = sum_ns.saturating_add(cpu_ns);
                let name = thread.thread.unlocked_const_reader_and_atomic_rw().name();
                if names.last() != Some(&name) {
                    names.push(name);
                }
            }
        }
        times
    }
}

/// Warns of ticks that came late where threads have no events of their CPU clocks.
fn late_ticks(source: &ProfileSource) -> Option<Warning> {
    let count = |name| source.count(name);
    let is_by_signals = count("threads_with_events") == 0 && count("refused_events") > 0;
    let (late, missed) = (count("late_ticks"), count("missed_ticks"));
    late_signals(late + missed, count("ticks") + missed).filter(|_| is_by_signals)
}

/// Finds why CPU time may be missing.
fn uncovered(source: &ProfileSource) -> Uncovered {
    let settings = &source.session.settings;
    let (missed, ticks) = (source.count("missed_ticks"), source.count("ticks"));
    let filter = ThreadFilter::new(&settings.filters);
    let unselected = source.unselected_threads.iter();
    let mut unselected: Vec<String> = unselected.map(|(_, name)| name.clone()).collect();
    let mut unsampled = Vec::new();
    for (id, name) in other_threads(source) {
        match filter.selects(&name, id, source.process) {
            true => unsampled.push(name),
            false => unselected.push(name),
        }
    }
    for names in [&mut unselected, &mut unsampled] {
        names.sort_unstable();
        names.dedup();
    }
    Uncovered {
        unselected,
        unsampled,
        samples_unregistered: !settings
            .features
            .contains(Features::NO_UNREGISTERED_SAMPLING),
        too_short: source.count("unsampled_threads"),
        missed_percent: 100 * missed / (missed + ticks).max(1),
        without_clock: source.count("threads_without_clock"),
        dropped_samples: source.count("dropped_samples"),
    }
}

/// Returns the threads of the process that neither the session nor the application has registered.
fn other_threads(source: &ProfileSource) -> Vec<(ThreadId, String)> {
    if source.past.is_some() {
        return Vec::new();
    }
    let id = |thread: &OffThreadRef| thread.unlocked_const_reader_and_atomic_rw().tid();
    let mut known: Vec<ThreadId> = source.threads.iter().map(id).collect();
    known.extend(source.unselected_threads.iter().map(|(id, _)| *id));
    names_of_other_threads(known)
}

fn stripped(process: &ProcessStreamingContext) -> Option<Warning> {
    let mut modules = process.modules.iter();
    let program = modules.find(|module| module.image.is_executable)?;
    let path = program.image.path.to_string_lossy();
    is_stripped(program).then(|| stripped_program(&path))
}

/// Writes the warnings, each with its name and its text.
pub(super) fn write_warnings(json: &mut JsonWriter<'_>, warnings: &[Warning]) {
    json.array(|json| {
        for Warning { name, text, .. } in warnings {
            json.object(|json| {
                json.key("name").string(name);
                json.key("text").string(text);
            });
        }
    });
}
