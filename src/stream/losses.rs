//! What the profile lacks, for whoever reads it: in `meta`, and by the same names in `profilingLog`.

use crate::json::JsonWriter;
use crate::stream::decode::ProcessStreamingContext;
use crate::stream::source::ProfileSource;

/// The session's counts of samples that are missing or not whole, and of why.
const OF_SAMPLER: &[&str] = &[
    "missed_ticks",
    "unanswered_ticks",
    "refused_signals",
    "refused_timers",
    "handler_replacements",
    "truncated_samples",
    "threads_without_stacks",
    "lost_marker_stacks",
    "dropped_samples",
    "sampler_panics",
];

/// What the buffer did, by name.
pub(super) fn buffer_counts(source: &ProfileSource) -> [(&'static str, u64); 3] {
    let buffer = &source.buffer.statistics;
    [
        ("capacity_bytes", buffer.capacity_bytes),
        ("put_entries", buffer.put_entries),
        ("put_bytes", buffer.put_bytes),
    ]
}

/// What the buffer and its reader lost, by name.
pub(super) fn buffer_losses(
    source: &ProfileSource,
    process: &ProcessStreamingContext,
) -> [(&'static str, u64); 8] {
    let buffer = &source.buffer.statistics;
    [
        // All of those that follow: see `Dropped`.
        ("dropped_entries", buffer.dropped.all()),
        ("too_large_entries", buffer.dropped.too_large),
        ("entries_in_own_work", buffer.dropped.in_own_work),
        ("overrun_entries", buffer.dropped.overrun),
        // The oldest, to make room.
        ("recycled_chunks", buffer.recycled_chunks),
        ("recycled_bytes", buffer.recycled_bytes),
        ("malformed_entries", process.entry_counts.malformed),
        // Of threads that did not run, as the profile has too many rows.
        ("left_out_idle_rows", process.left_out_idle_rows),
    ]
}

/// Writes each count of something that is missing, zeros included.
pub(super) fn write_losses(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    process: &ProcessStreamingContext,
) {
    json.object(|json| {
        let of_buffer = buffer_losses(source, process);
        let of_sampler = source
            .counts
            .iter()
            .filter(|(name, _)| OF_SAMPLER.contains(name));
        for (name, count) in of_buffer.iter().chain(of_sampler) {
            json.key(name).unsigned(*count);
        }
    });
}
