//! Functions that add markers.

use crate::api::backend::{self, MarkerPayload};
use crate::markers::{
    MarkerBacktrace, MarkerDestination, MarkerOptions, MarkerStack, MarkerTiming, NewMarker,
    ProfilerMarker,
};
use crate::types::{Features, ProfilerTime, ProfilingCategoryPair, StackFeatures};

impl ProfilerTime {
    /// Returns the current time. Cost: 10 to 20 ns, without a system call.
    pub fn now() -> Self {
        backend::now()
    }
}

/// Adds a marker without data.
///
/// Does nothing unless the profiler is active, is not paused, and profiles the thread. The first
/// marker of a thread that has not registered registers it: see
/// [`register_thread`](crate::register_thread). The name may be empty, and may contain quotes and
/// control characters; the profile escapes them.
///
/// May be called from any thread. In the steady state this takes no lock, makes no system call and
/// allocates nothing. Cost: about 20 ns, and 10 ns for the clock; one load while the profiler is
/// inactive. Idea: Gecko's `PROFILER_MARKER_UNTYPED`.
#[doc(alias = "PROFILER_MARKER_UNTYPED")]
#[inline(always)]
pub fn add_untyped_marker(name: &str, category: ProfilingCategoryPair, options: MarkerOptions) {
    if backend::is_active_and_unpaused() {
        add(name, category, options, None);
    }
}

/// Adds a marker with a text, otherwise like [`add_untyped_marker`].
///
/// [`lazy_add_text_marker!`](crate::marker::lazy_add_text_marker) evaluates the text only if the
/// marker is recorded.
#[doc(alias = "PROFILER_MARKER_TEXT")]
#[inline(always)]
pub fn add_text_marker(
    name: &str,
    category: ProfilingCategoryPair,
    options: MarkerOptions,
    text: &str,
) {
    if backend::is_active_and_unpaused() {
        add(name, category, options, Some(text));
    }
}

/// Adds a marker with a payload of a type that implements [`ProfilerMarker`], otherwise like
/// [`add_untyped_marker`].
///
/// `serde` encodes the payload into the buffer. If the type's code returns an error or panics, the
/// payload is omitted, and the marker's name says so. The first marker of a type allocates, and
/// makes some system calls. [`lazy_add_marker!`](crate::lazy_add_marker) evaluates the payload only
/// if the marker is recorded. Idea: Gecko's `profiler_add_marker`, whose Rust binding looks up each
/// type under a lock.
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
    if backend::is_active_and_unpaused() {
        // Moved, so that a call while the profiler is inactive stores nothing on the stack.
        let payload = payload;
        add(name, category, options, &payload);
    }
}

#[inline(always)]
fn add(
    name: &str,
    category: ProfilingCategoryPair,
    options: MarkerOptions,
    payload: impl MarkerPayload,
) {
    // Copied, so that a call while the profiler is inactive stores nothing on the stack.
    let (category, timing) = (category.indices().0, options.timing);
    let mut marker = NewMarker {
        name,
        category,
        timing: &timing,
        stack: 0,
    };
    if options.stack != MarkerStack::NoStack {
        if let Some(destination) = backend::destination_with_stack(name, &timing) {
            marker.stack = stack_of(&destination, options.stack);
            payload.put(&destination, &marker);
        }
    } else if timing == MarkerTiming::instant_now() {
        payload.add_now(name, category);
    } else {
        payload.add(None, &marker);
    }
}

/// Captures a marker's stack if `stack` requests that, and returns the stack's number, or 0 for
/// none. Inlined into the application's function, so that the stack begins there.
#[inline(always)]
pub(super) fn stack_of(destination: &MarkerDestination, stack: MarkerStack) -> u64 {
    match stack {
        MarkerStack::NoStack => 0,
        MarkerStack::Full => backend::record_own_stack(destination, StackFeatures::FULL),
        MarkerStack::NonNative => backend::record_own_stack(destination, StackFeatures::LABELS),
        MarkerStack::Backtrace(MarkerBacktrace(number)) => number,
    }
}

/// Returns whether the running session records markers of the calling thread now: `false` while the
/// profiler is inactive or paused.
///
/// Cost: one relaxed load while the profiler is inactive.
#[doc(alias = "profiler_thread_is_being_profiled_for_markers")]
#[inline]
pub fn records_markers_of_current_thread() -> bool {
    backend::is_active_and_unpaused()
        && backend::is_thread_being_profiled(crate::types::ThreadProfilingFeatures::MARKERS)
}

/// Returns whether a marker with these options would be recorded now.
#[doc(hidden)]
#[inline]
pub fn would_record(options: &MarkerOptions) -> bool {
    backend::is_active_and_unpaused()
        && backend::marker_destination(options.timing.thread).is_some()
}

/// Returns whether the session records the frequent markers of flows, which need the feature
/// `flows`.
#[doc(hidden)]
#[inline]
pub fn records_flows() -> bool {
    backend::features_if_active_and_unpaused()
        .is_some_and(|features| features.contains(Features::FLOWS))
}
