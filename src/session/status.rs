//! Queries about the state of the profiler and of threads.

use crate::session::own_registration::register_if_recorded;
use crate::session::stacks::is_current_thread;
use crate::state::{ACTIVE_PS, RacyFeatures, core_buffer, find_thread};
use crate::threads::OnThreadRef;
use crate::types::{BufferInfo, Features, StartParams, ThreadId, ThreadProfilingFeatures};
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
    let lock = PsLock::acquire();
    let settings = ACTIVE_PS.get(&lock).as_ref()?.session.settings.clone();
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

/// See `profiler_thread_is_being_profiled`.
pub(crate) fn is_thread_being_profiled(any_of: ThreadProfilingFeatures) -> bool {
    let thread_features = || {
        OnThreadRef::with(|thread| {
            thread
                .unlocked_reader_and_atomic_rw_on_thread()
                .profiling_features()
        })
    };
    if !RacyFeatures::is_active_and_unpaused() {
        return false;
    }
    let features = thread_features().or_else(|| {
        register_if_recorded();
        thread_features()
    });
    features.is_some_and(|features| features.intersects(any_of))
}

/// See `profiler_other_thread_is_being_profiled`.
pub(crate) fn is_other_thread_being_profiled(
    thread: ThreadId,
    any_of: ThreadProfilingFeatures,
) -> bool {
    if !RacyFeatures::is_active_and_unpaused() {
        return false;
    }
    if is_current_thread(thread) {
        return is_thread_being_profiled(any_of);
    }
    // Inside the profiler's own work, this thread may already hold the registry's lock.
    if is_any_lock_held_on_current_thread() {
        return false;
    }
    find_thread(thread).is_some_and(|found| {
        found
            .unlocked_const_reader_and_atomic_rw()
            .profiling_features()
            .intersects(any_of)
    })
}

/// Returns whether the calling thread is registered.
pub(crate) fn is_thread_registered() -> bool {
    OnThreadRef::with(|_| ()).is_some()
}
