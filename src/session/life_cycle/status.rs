//! Queries about the state of the profiler.

use crate::session::running::running_session;
use crate::state::{ACTIVE_PS, RacyFeatures, core_buffer};
use crate::types::{BufferInfo, Features, StartParams};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

#[inline]
pub(crate) fn is_active() -> bool {
    RacyFeatures::is_active()
}

#[inline]
pub(crate) fn is_active_and_unpaused() -> bool {
    RacyFeatures::is_active_and_unpaused()
}

#[inline]
pub(crate) fn is_paused() -> bool {
    RacyFeatures::is_paused()
}

#[inline]
pub(crate) fn is_sampling_paused() -> bool {
    RacyFeatures::is_sampling_paused()
}

#[inline]
pub(crate) fn features_if_active() -> Option<Features> {
    RacyFeatures::features_if_active()
}

#[inline]
pub(crate) fn features_if_active_and_unpaused() -> Option<Features> {
    RacyFeatures::features_if_active_and_unpaused()
}

/// See `profiler_get_start_params`.
pub(crate) fn start_params() -> Option<StartParams> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    let settings = running_session()?.1.settings.clone();
    Some(StartParams {
        capacity_bytes: settings.capacity_bytes,
        interval: settings.interval,
        max_cpu_percent: settings.max_cpu_percent(),
        max_markers_per_second: settings.max_markers_per_second,
        features: settings.features,
        filters: settings.filters,
        signal: Some(settings.signal),
        duration: settings.duration,
        allocation_interval_bytes: settings.allocation_interval_bytes,
        active_tab_id: settings.active_tab_id,
        record_overheads: settings.records_overheads,
        children: settings.has_children,
        control_signals: None,
        crash_file: settings.crash_file,
    })
}

/// See `profiler_get_buffer_info`.
pub(crate) fn buffer_info() -> Option<BufferInfo> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    let lock = PsLock::acquire();
    let overheads = ACTIVE_PS.get(&lock).as_ref()?.session.overheads.read();
    let (held_bytes, statistics) = core_buffer().fill_level()?;
    let range_end = 1 + statistics.put_bytes;
    Some(BufferInfo {
        range_start: range_end.saturating_sub(held_bytes),
        range_end,
        capacity_bytes: statistics.capacity_bytes,
        put_entries: statistics.put_entries,
        dropped_entries: statistics.dropped.all(),
        recycled_bytes: statistics.recycled_bytes,
        intervals: overheads.intervals,
        overheads: overheads.overheads,
        lockings: overheads.lockings,
        cleanings: overheads.cleanings,
        counters: overheads.counters,
        threads: overheads.threads,
    })
}
