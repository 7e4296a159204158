//! Finds what the reader of a session's profile should be warned of.

use crate::counters::PROCESS_CPU;
use crate::json::JsonWriter;
use crate::platform::names_of_other_threads;
use crate::stream::decode::{ProcessStreamingContext, ProfileSource};
use crate::symbols::is_stripped;
use crate::threads::OffThreadRef;
use crate::types::{
    Features, ThreadFilter, ThreadId, Uncovered, Warning, low_coverage, missed_ticks,
    stripped_program, unavailable_features, unmatched_filters, unregistered_main_thread,
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
    let warnings = [
        coverage(source, process, wall_ns),
        missed_ticks(count(source, "missed_ticks"), wall_ns, interval_ns),
        unmatched_filters(&source.unmatched_filters, &names_of_threads(source)),
        has_unregistered_main_thread(source).then(unregistered_main_thread),
        unavailable_features(&source.session.unavailable_features),
        stripped(process).filter(|_| wants_names),
    ];
    warnings.into_iter().flatten().collect()
}

fn count(source: &ProfileSource, name: &str) -> u64 {
    let mut counts = source.counts.iter();
    counts
        .find(|(known, _)| *known == name)
        .map_or(0, |count| count.1)
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
    let threads = process.threads.iter();
    let sampled_ns = threads.map(|thread| thread.samples.cpu_ns()).sum();
    low_coverage((sampled_ns, process_ns, wall_ns), || {
        let missing_ns = process_ns.saturating_sub(sampled_ns);
        uncovered(source, missing_ns)
    })
}

/// Finds why this CPU time may be missing.
fn uncovered(source: &ProfileSource, missing_ns: u64) -> Uncovered {
    let settings = &source.session.settings;
    let unanswered = count(source, "unanswered_ticks");
    // A busy machine leaves some ticks unanswered, too.
    let interval_ns = settings.interval.as_nanos() as u64;
    let is_a_reason = unanswered.saturating_mul(interval_ns) > missing_ns / 4;
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
        too_short: count(source, "unsampled_threads"),
        unanswered: if is_a_reason { unanswered } else { 0 },
        without_clock: count(source, "threads_without_clock"),
        dropped_samples: count(source, "dropped_samples"),
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
