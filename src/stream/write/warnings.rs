//! Finds what the reader of a session's profile should be warned of.

use std::collections::BTreeMap;

use crate::buffer::Dropped;
use crate::counters::PROCESS_CPU;
use crate::json::JsonWriter;
use crate::platform::{names_of_other_threads, thread_cpu_ns};
use crate::stream::decode::{FrameKey, ProcessStreamingContext, ProfileSource};
use crate::symbols::is_stripped;
use crate::threads::OffThreadRef;
use crate::types::{
    Features, LackOfMemory, NoStack, ThreadFilter, ThreadId, Uncovered, Warning, late_signals,
    little_memory, low_coverage, missed_ticks, replaced_handler, stripped_program,
    unavailable_features, unmatched_filters, unregistered_main_thread, without_stacks,
};

/// Returns the warnings about a profile. `wants_names` is whether its functions are to have names,
/// and `has_memory_for_names` whether they can.
///
/// Reads the process's list of threads and the head of the program's file, if that may matter.
pub(crate) fn warnings_about(
    source: &ProfileSource,
    process: &ProcessStreamingContext,
    wants_names: bool,
    has_memory_for_names: bool,
) -> Vec<Warning> {
    let settings = &source.session.settings;
    let buffer = &source.buffer.statistics;
    let wall_ns = source.taken_at.since_ns(source.session.started_at);
    let interval_ns = settings.interval.as_nanos() as u64;
    let cpu_times = CpuTimes::of(process);
    let warnings = [
        coverage(source, process, cpu_times.all_ns, wall_ns),
        without_stacks(cpu_times.all_ns, &cpu_times.without_stack),
        replaced_handler(settings.signal, source.session.signal()),
        late_ticks(source),
        missed_ticks(source.count("missed_ticks"), wall_ns, interval_ns),
        unmatched_filters(&source.unmatched_filters, &names_of_threads(source)),
        has_unregistered_main_thread(source).then(unregistered_main_thread),
        unavailable_features(&source.session.unavailable_features),
        stripped(process).filter(|_| wants_names && has_memory_for_names),
        little_memory(&LackOfMemory {
            withheld_bytes: source.count("withheld_capacity_bytes"),
            recycled_bytes: buffer.recycled_bytes,
            unrecorded_entries: buffer.dropped.by(Dropped::OutOfMemory),
            left_out_bytes: source.buffer.left_out_bytes,
            lacks_names: wants_names && !has_memory_for_names,
        }),
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
    let (counter, rows) = counters.find(|(counter, _)| counter.id == PROCESS_CPU.id)?;
    let process_ns = source
        .counter_rows(counter, rows)
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
        let innermost = |stack: u32| &frames[process.stacks.stacks()[stack as usize].1 as usize];
        let reason = |stack| match innermost(stack) {
            FrameKey::NoStack(reason) if *reason != NoStack::RanBetween => Some(*reason),
            _ => None,
        };
        let has_run = |stack| !matches!(innermost(stack), FrameKey::Waiting(..));
        let mut times = Self::default();
        for thread in &process.threads {
            // The number of samples that ran, in all and by reason. They share the CPU time.
            let (mut ran, mut by_reason) = (0, BTreeMap::<NoStack, u64>::new());
            let mut thread_ns: u64 = 0;
            for (stack, cpu_ns, weight) in thread.samples.cpu_times() {
                thread_ns = thread_ns.saturating_add(cpu_ns);
                let weight = if cpu_ns > 0 && has_run(stack) {
                    weight
                } else {
                    0
                };
                ran += weight;
                if let Some(reason) = reason(stack).filter(|_| weight > 0) {
                    *by_reason.entry(reason).or_default() += weight;
                }
            }
            times.all_ns = times.all_ns.saturating_add(thread_ns);
            for (reason, samples) in by_reason {
                let cpu_ns = u128::from(thread_ns) * u128::from(samples) / u128::from(ran);
                let (sum_ns, names) = times.without_stack.entry(reason).or_default();
                *sum_ns = sum_ns.saturating_add(cpu_ns as u64);
                names.push(thread.thread.unlocked_const_reader_and_atomic_rw().name());
            }
        }
        times
    }
}

/// Warns of ticks that came late where threads have no events of their CPU clocks.
fn late_ticks(source: &ProfileSource) -> Option<Warning> {
    let count = |name| source.count(name);
    let (late, missed) = (count("delayed_ticks"), count("missed_ticks"));
    let is_replaced = source.session.signal() != source.session.settings.signal;
    // Where the system has refused the first event, no other thread has asked for one.
    let threads = match (count("threads_with_events"), count("refused_events")) {
        (_, 0) => return None,
        (0, _) => "all".to_owned(),
        (_, _) if is_replaced => "all".to_owned(),
        (_, refused) => refused.to_string(),
    };
    late_signals(late + missed, count("ticks") + missed, &threads)
}

/// Finds why CPU time may be missing.
fn uncovered(source: &ProfileSource) -> Uncovered {
    let settings = &source.session.settings;
    let (missed, ticks) = (source.count("missed_ticks"), source.count("ticks"));
    let filter = ThreadFilter::new(&settings.filters);
    let unselected = source.unselected_threads.iter();
    let unselected = unselected.map(|(id, name)| (*id, name.clone(), false));
    let others = other_threads(source).into_iter().map(|(id, name)| {
        let is_selected = filter.selects(&name, id, source.process);
        (id, name, is_selected)
    });
    let mut by_selection = [false, true].map(|_| (Vec::new(), 0));
    for (id, name, is_selected) in unselected.chain(others) {
        let (names, cpu_ns) = &mut by_selection[usize::from(is_selected)];
        names.push(name);
        // A past process has no clocks.
        let live = source.past.is_none().then_some(id);
        *cpu_ns += live.and_then(thread_cpu_ns).unwrap_or(0);
    }
    for (names, _) in &mut by_selection {
        names.sort_unstable();
        names.dedup();
    }
    let [unselected, unsampled] = by_selection;
    let short_ns = source.threads.iter().filter_map(|thread| {
        let thread = thread.unlocked_const_reader_and_atomic_rw();
        let has_no_sample = !thread.has_entries_in(source.session.generation);
        let used_ns = thread
            .cpu_at_end_ns()?
            .checked_sub(thread.cpu_at_begin_ns()?);
        used_ns.filter(|_| has_no_sample)
    });
    let short_ns: Vec<u64> = short_ns.collect();
    let too_short = (
        source.count("unsampled_threads") + short_ns.len() as u64,
        short_ns.iter().sum(),
    );
    Uncovered {
        unselected,
        unsampled,
        has_filters: !settings.filters.is_empty(),
        samples_unregistered: !settings
            .features
            .contains(Features::NO_UNREGISTERED_SAMPLING),
        too_short,
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
