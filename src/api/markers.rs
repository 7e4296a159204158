//! Markers: what happened, with a time.

use crate::api::engine;
use crate::base::{Features, ProfilerTime, ProfilingCategoryPair, StackFeatures};
use crate::markers::{MarkerBacktrace, MarkerOptions, MarkerStack, MarkerTiming, ProfilerMarker};

impl ProfilerTime {
    /// Now. 10 to 20 ns, without a system call.
    pub fn now() -> Self {
        engine::now()
    }
}

/// Adds a marker without data.
///
/// Does nothing unless the profiler is active and profiles the thread, which costs one load to find out where it is not.
/// From any thread, also in the midst of anything: in the steady state no lock, no system call and no allocation.
/// The name may be empty, or have quotes and control characters: it comes out as it is.
///
/// Cost: about 20 ns beside 10 of the clock. Idea: Gecko's `PROFILER_MARKER_UNTYPED`.
#[doc(alias = "PROFILER_MARKER_UNTYPED")]
#[inline(always)]
pub fn add_untyped_marker(name: &str, category: ProfilingCategoryPair, options: MarkerOptions) {
    if engine::is_active_and_unpaused() {
        // Of their own, so that where nothing records nothing is stored to refer to.
        let (category, timing) = (category.indices(), options.timing);
        if options.stack != MarkerStack::NoStack {
            if let Some(place) = engine::place_of_marker(timing.thread) {
                let stack = stack_of(&place, options.stack);
                engine::put_untyped_marker(&place, name, category, &timing, stack);
            }
        } else if timing == MarkerTiming::instant_now() {
            engine::add_untyped_marker_now(name, category);
        } else {
            engine::add_untyped_marker_at(None, name, category, &timing);
        }
    }
}

/// Adds a marker with a text, otherwise as [`add_untyped_marker`].
///
/// [`lazy_add_text_marker!`](crate::marker::lazy_add_text_marker) makes the text only where there is somebody to read it.
#[doc(alias = "PROFILER_MARKER_TEXT")]
#[inline(always)]
pub fn add_text_marker(
    name: &str,
    category: ProfilingCategoryPair,
    options: MarkerOptions,
    text: &str,
) {
    if engine::is_active_and_unpaused() {
        // Of their own, so that where nothing records nothing is stored to refer to.
        let (category, timing) = (category.indices(), options.timing);
        if options.stack != MarkerStack::NoStack {
            if let Some(place) = engine::place_of_marker(timing.thread) {
                let stack = stack_of(&place, options.stack);
                engine::put_text_marker(&place, name, category, &timing, stack, text);
            }
        } else if timing == MarkerTiming::instant_now() {
            engine::add_text_marker_now(name, category, text);
        } else {
            engine::add_text_marker_at(None, name, category, &timing, text);
        }
    }
}

/// Adds a marker with a payload of a type of the host's, otherwise as [`add_untyped_marker`].
///
/// The payload is coded into the buffer as `serde` has it; one whose type refuses to, or panics, is left out, and the marker's name
/// says so. The first of a type allocates, and makes some system calls. [`lazy_add_marker!`](crate::lazy_add_marker) makes the payload
/// only where there is somebody to read it. Idea: Gecko's `profiler_add_marker`, whose Rust binding looks each type up under a lock.
#[doc(alias = "PROFILER_MARKER")]
#[doc(alias = "profiler_add_marker")]
#[inline(always)]
pub fn add_marker<T>(
    name: &str,
    category: ProfilingCategoryPair,
    options: MarkerOptions,
    payload: T,
) where
    T: ProfilerMarker + 'static,
{
    if engine::is_active_and_unpaused() {
        // Of their own, so that where nothing records nothing is stored to refer to.
        let (category, timing) = (category.indices(), options.timing);
        let payload = payload;
        if options.stack != MarkerStack::NoStack {
            if let Some(place) = engine::place_of_marker(timing.thread) {
                let stack = stack_of(&place, options.stack);
                engine::put_typed_marker(&place, name, category, &timing, stack, &payload);
            }
        } else if timing == MarkerTiming::instant_now() {
            engine::add_typed_marker_now(name, category, &payload);
        } else {
            engine::add_typed_marker_at(None, name, category, &timing, &payload);
        }
    }
}

/// The number of a marker's stack. Inlined into the host's function, so that the stack begins there.
#[inline(always)]
pub(super) fn stack_of(place: &engine::MarkerPlace, stack: MarkerStack) -> u64 {
    match stack {
        MarkerStack::NoStack => 0,
        MarkerStack::Full => engine::record_own_stack(place, StackFeatures::FULL),
        MarkerStack::NonNative => engine::record_own_stack(place, StackFeatures::LABELS),
        MarkerStack::Backtrace(MarkerBacktrace(number)) => number,
    }
}

/// Returns whether the running session records markers of the calling thread now: `false` while the profiler is
/// inactive or paused.
///
/// Cost: one relaxed load while the profiler is inactive.
#[doc(alias = "profiler_thread_is_being_profiled_for_markers")]
#[inline]
pub fn records_markers_of_current_thread() -> bool {
    engine::is_active_and_unpaused()
        && engine::is_thread_being_profiled(crate::base::ThreadProfilingFeatures::MARKERS)
}

/// Whether a marker with these options would be recorded now.
#[doc(hidden)]
#[inline]
pub fn would_record(options: &MarkerOptions) -> bool {
    engine::is_active_and_unpaused() && engine::place_of_marker(options.timing.thread).is_some()
}

/// Whether markers of flows are recorded, which are many: `flows` is among the session's features.
#[doc(hidden)]
#[inline]
pub fn records_flows() -> bool {
    engine::features_if_active_and_unpaused()
        .is_some_and(|features| features.contains(Features::FLOWS))
}
