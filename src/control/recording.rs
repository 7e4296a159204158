//! What a program says of itself while it runs: threads, labels, markers.

use crate::base::{ProfilerTime, ProfilingCategoryPair};
use crate::markers::{MarkerTiming, NewMarker, put_marker};
use crate::platform::{current_stack_pointer, monotonic_now};
use crate::state::{CorePs, RacyFeatures, core_buffer};
use crate::threads::{CurrentThread, register_current_thread, unregister_current_thread};

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

pub(crate) fn register_thread(name: &str) {
    register_current_thread(name);
}

pub(crate) fn unregister_thread() {
    unregister_current_thread();
}

/// The calling thread says that it goes to sleep, or that it is awake.
pub(crate) fn announce_sleep(sleeps: bool) {
    CurrentThread::with(|thread| thread.announce(sleeps));
}

/// Whether the calling thread has said that it sleeps.
pub(crate) fn is_announced_asleep() -> bool {
    CurrentThread::with(|thread| thread.announced_sleep().is_some()).unwrap_or(false)
}

/// Adds a marker to the calling thread, if the running session profiles it.
pub(crate) fn add_marker(
    name: &str,
    category: ProfilingCategoryPair,
    timing: MarkerTiming,
    text: Option<&str>,
) {
    if !RacyFeatures::is_active_and_unpaused() {
        return;
    }
    let now = monotonic_now();
    // Asked again, so that no marker without a time of its own lies in a pause that began meanwhile.
    if !RacyFeatures::is_still_unpaused() {
        return;
    }
    let thread = CurrentThread::with(|thread| thread.is_profiled().then_some(thread.serial)).flatten();
    if let Some(thread) = thread {
        let marker = NewMarker { thread, name, category, timing, text };
        put_marker(core_buffer(), now, CorePs::process_start().monotonic, &marker);
    }
}
