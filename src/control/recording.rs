//! What a program says of itself while it runs: threads, labels, markers.

use crate::base::{
    Generation, ProfilerTime, ProfilingCategoryPair, ThreadProfilingFeatures,
    is_any_lock_held_on_current_thread,
};
use crate::buffer::Dropped;
use crate::markers::{MarkerTiming, NewMarker, put_marker};
use crate::platform::{current_stack_pointer, monotonic_now};
use crate::state::{CorePs, REGISTRATION_HOOKS, RacyFeatures, core_buffer, prepare_own_lane, put_entry};
use crate::threads::{OnThreadRef, register_current_thread, unregister_current_thread};

pub(crate) use crate::threads::{
    LabelToken, ScriptFunction, move_script_frame, pop_labels, push_label, push_label_with_text,
    push_script_frame, register_script_function,
};
pub(crate) use crate::unwind::{CodeRangeToken, register_code_range, unregister_code_range};

pub(crate) fn now() -> ProfilerTime {
    ProfilerTime::from_monotonic_ns(monotonic_now().0)
}

#[inline(always)]
pub(crate) fn stack_pointer() -> u64 {
    current_stack_pointer()
}

/// Not in the midst of the profiler's own work: the host's allocator, say, called by it.
pub(crate) fn register_thread(name: &str) {
    if !is_any_lock_held_on_current_thread() {
        register_current_thread(name, REGISTRATION_HOOKS);
        prepare_own_lane();
    }
}

/// The same.
pub(crate) fn unregister_thread() {
    if !is_any_lock_held_on_current_thread() {
        unregister_current_thread();
    }
}

/// The calling thread says that it goes to sleep, or that it is awake.
pub(crate) fn announce_sleep(sleeps: bool) {
    OnThreadRef::with(|thread| thread.unlocked_reader_and_atomic_rw_on_thread().announce(sleeps));
}

/// Whether the calling thread has said that it sleeps.
pub(crate) fn is_announced_asleep() -> bool {
    let is_asleep = |thread: OnThreadRef<'_>| {
        thread.unlocked_reader_and_atomic_rw_on_thread().announced_sleep().is_some()
    };
    OnThreadRef::with(is_asleep).unwrap_or(false)
}

/// Adds a marker to the calling thread, if the running session records any of it.
pub(crate) fn add_marker(
    name: &str,
    category: ProfilingCategoryPair,
    timing: MarkerTiming,
    text: Option<&str>,
) {
    put_marker_of(None, name, category, timing, text);
}

/// The same, if it is this session that runs still.
pub(crate) fn add_marker_of(
    session: Generation,
    name: &str,
    category: ProfilingCategoryPair,
    timing: MarkerTiming,
    text: Option<&str>,
) {
    put_marker_of(Some(session), name, category, timing, text);
}

/// The session that records markers of the calling thread, be it in a pause.
pub(crate) fn session_that_records_markers() -> Option<Generation> {
    let of_thread = |thread: OnThreadRef<'_>| {
        let thread = thread.unlocked_reader_and_atomic_rw_on_thread();
        thread.session_that_records(ThreadProfilingFeatures::MARKERS)
    };
    if RacyFeatures::is_active() { OnThreadRef::with(of_thread).flatten() } else { None }
}

fn put_marker_of(
    only: Option<Generation>,
    name: &str,
    category: ProfilingCategoryPair,
    timing: MarkerTiming,
    text: Option<&str>,
) {
    let Some(since) = RacyFeatures::recording() else { return };
    let now = monotonic_now();
    // Asked again, so that the time lies in no pause that has begun meanwhile, even if it has ended too. A time that the
    // host gives is the host's, and may lie in one.
    if !RacyFeatures::still_records(since) {
        return;
    }
    let recorded = OnThreadRef::with(|thread| {
        let thread = thread.unlocked_reader_and_atomic_rw_on_thread();
        let session = thread.session_that_records(ThreadProfilingFeatures::MARKERS)?;
        only.is_none_or(|only| only == session).then(|| (session, thread.info().serial))
    });
    if let Some((session, thread)) = recorded.flatten() {
        // In the midst of the profiler's own work: the host's allocator, say, called by it, or the host's handler of a signal.
        if is_any_lock_held_on_current_thread() {
            core_buffer().count_dropped(Dropped::InOwnWork);
            return;
        }
        let marker = NewMarker { session, thread, name, category, timing, text };
        put_marker(put_entry, now, CorePs::process_start().monotonic, &marker);
    }
}
