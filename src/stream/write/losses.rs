//! Reports missing data to the reader of a profile: in `meta`, and by the same names in
//! `profilingLog`.

use crate::json::JsonWriter;
use crate::stream::decode::ProcessStreamingContext;
use crate::stream::decode::ProfileSource;

/// The session's counts of missing or incomplete samples, and of the causes.
const SAMPLER_LOSSES: &[&str] = &[
    "missed_ticks",
    "ticks_without_memory",
    "unanswered_ticks",
    "refused_signals",
    "refused_events",
    "handler_replacements",
    "truncated_samples",
    "too_deep_samples",
    "threads_without_stacks",
    "threads_without_clock",
    "lost_waits",
    "left_out_wait_intervals",
    "lost_marker_stacks",
    "dropped_samples",
    "dropped_ended_threads",
    "dropped_empty_threads",
    "dropped_ended_pages",
    "dropped_exit_profiles",
    "lost_code_names",
    "unread_perf_map_bytes",
    "sampler_panics",
];

/// Returns the buffer's capacity, and the number and bytes of the entries put into it, by name.
pub(crate) fn buffer_counts(source: &ProfileSource) -> [(&'static str, u64); 3] {
    let buffer = &source.buffer.statistics;
    [
        ("capacity_bytes", buffer.capacity_bytes),
        ("put_entries", buffer.put_entries),
        ("put_bytes", buffer.put_bytes),
    ]
}

/// Returns the losses of the buffer and of the decoder, by name.
pub(crate) fn buffer_losses(
    source: &ProfileSource,
    process: &ProcessStreamingContext,
) -> [(&'static str, u64); 14] {
    let buffer = &source.buffer.statistics;
    [
        // The sum of the four counts that follow: see `DroppedEntries`.
        ("dropped_entries", buffer.dropped.all()),
        ("too_large_entries", buffer.dropped.too_large),
        ("entries_in_own_work", buffer.dropped.in_own_work),
        ("overrun_entries", buffer.dropped.overrun),
        ("entries_without_memory", buffer.dropped.without_memory),
        // Chunks that the system had no memory for. The oldest were recycled instead, if possible.
        ("refused_chunks", buffer.refused_chunks),
        // The oldest chunks, which are recycled for new entries.
        ("recycled_chunks", buffer.recycled_chunks),
        ("recycled_bytes", buffer.recycled_bytes),
        ("malformed_entries", process.entry_counts.malformed),
        // Entries of ended threads that the session has dropped.
        (
            "entries_without_thread",
            process.entry_counts.without_thread,
        ),
        // The oldest entries, left out because the memory did not suffice to write them.
        ("left_out_bytes", source.buffer.left_out_bytes),
        // Rows of idle threads, left out if the profile would have too many rows.
        ("left_out_idle_rows", process.left_out_idle_rows),
        // Ticks that the sampler left out to limit its CPU time, and that samples count for.
        ("left_out_ticks", process.left_out_ticks()),
        // Markers beyond the limit of their name, which other markers represent.
        ("left_out_markers", process.marker_types.left_out),
    ]
}

/// Writes each count of missing data, including zeros.
pub(crate) fn write_losses(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    process: &ProcessStreamingContext,
) {
    json.object(|json| {
        let of_buffer = buffer_losses(source, process);
        let of_sampler = source
            .counts
            .iter()
            .filter(|(name, _)| SAMPLER_LOSSES.contains(name));
        for (name, count) in of_buffer.iter().chain(of_sampler) {
            json.key(name).unsigned(*count);
        }
    });
}
