//! Functions that add markers, and guards that add one for the duration of a scope.

use crate::api::backend::{self, MarkerPayload};
use crate::markers::{
    CowString, FlowStackMarker, MarkerBacktrace, MarkerDestination, MarkerOptions, MarkerStack,
    MarkerTiming, NewMarker, ProfilerMarker, StackMarker, Tracing,
};
use crate::types::{
    Features, Generation, ProfilerTime, ProfilingCategoryPair, StackFeatures, ThreadId,
};

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
///
/// There is no `AddMarkerToBuffer`, and no buffer of one chunk for it
/// (`ProfileBufferChunkManagerSingle`): Gecko uses both only to carry a single stack, and a stack
/// here is a [`ProfilerBacktrace`](crate::stack::ProfilerBacktrace).
#[doc(alias = "PROFILER_MARKER")]
#[doc(alias = "AddMarkerToBuffer")]
#[doc(alias = "ProfileBufferChunkManagerSingle")]
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
        if let Some(destination) = backend::chosen_destination(None, name, &timing) {
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
        && backend::marker_destination(None, options.timing.thread).is_some()
}

/// Returns whether the session records the frequent markers of flows, which need the feature
/// `flows`.
#[doc(hidden)]
#[inline]
pub fn records_flows() -> bool {
    backend::features_if_active_and_unpaused()
        .is_some_and(|features| features.contains(Features::FLOWS))
}

/// Adds one interval marker with a text when it is dropped. The interval begins at construction.
///
/// The marker goes to the thread that drops the guard, unless the options name another thread.
/// Usually made by [`auto_profiler_marker_text!`](crate::auto_profiler_marker_text). Idea: Gecko's
/// `AUTO_PROFILER_MARKER_TEXT`.
#[doc(alias = "AUTO_PROFILER_MARKER_TEXT")]
#[derive(Debug)]
#[must_use = "the marker is added when this is dropped"]
pub struct AutoProfilerTextMarker<'a> {
    name: &'a str,
    category: ProfilingCategoryPair,
    options: MarkerOptions,
    text: &'a str,
    start: ProfilerTime,
    session: Generation,
}

impl<'a> AutoProfilerTextMarker<'a> {
    /// Begins the interval. Returns `None` if no session records markers of the thread in
    /// `options`, which is the calling one by default.
    ///
    /// Of the timing in `options`, only the thread and the window id are used. An interval that
    /// outlasts its session is not recorded.
    #[inline]
    pub fn new(
        name: &'a str,
        category: ProfilingCategoryPair,
        options: MarkerOptions,
        text: &'a str,
    ) -> Option<Self> {
        if !backend::is_active() {
            return None;
        }
        let session = backend::session_that_records_markers(options.timing.thread)?;
        Some(Self {
            name,
            category,
            options,
            text,
            start: ProfilerTime::now(),
            session,
        })
    }
}

impl Drop for AutoProfilerTextMarker<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let options = self
            .options
            .with_timing(MarkerTiming::interval_until_now_from(self.start));
        let mut marker = NewMarker {
            name: self.name,
            category: self.category.indices().0,
            timing: &options.timing,
            stack: 0,
        };
        if options.stack == MarkerStack::NoStack {
            Some(self.text).add(Some(self.session), &marker);
        } else if let Some(destination) =
            backend::chosen_destination(Some(self.session), self.name, &options.timing)
        {
            marker.stack = stack_of(&destination, options.stack);
            Some(self.text).put(&destination, &marker);
        }
    }
}

/// The two markers of an interval, for its start and its end, with the same payload.
#[derive(Debug)]
struct Halves<'a, T: ProfilerMarker + Clone + 'static> {
    name: &'a str,
    category: ProfilingCategoryPair,
    options: MarkerOptions,
    payload: T,
    session: Generation,
}

impl<'a, T: ProfilerMarker + Clone + 'static> Halves<'a, T> {
    #[inline(always)]
    fn begin(
        name: &'a str,
        category: ProfilingCategoryPair,
        options: MarkerOptions,
        payload: T,
    ) -> Option<Self> {
        if !backend::is_active() {
            return None;
        }
        let session = backend::session_that_records_markers(options.timing.thread)?;
        let halves = Self {
            name,
            category,
            options,
            payload,
            session,
        };
        halves.add(MarkerTiming::interval_start(ProfilerTime::now()));
        Some(halves)
    }

    #[inline(always)]
    fn end(&self) {
        self.add(MarkerTiming::interval_end(ProfilerTime::now()));
    }

    #[inline(always)]
    fn add(&self, timing: MarkerTiming) {
        let options = self.options.with_timing(timing);
        if let Some(destination) =
            backend::marker_destination(Some(self.session), options.timing.thread)
        {
            let marker = NewMarker {
                name: self.name,
                category: self.category.indices().0,
                timing: &options.timing,
                stack: stack_of(&destination, options.stack),
            };
            (&self.payload).put(&destination, &marker);
        }
    }
}

/// Adds a marker for the start of an interval when it is constructed, and one for the end when it
/// is dropped.
///
/// A profile that is taken inside the interval already shows its beginning. Usually made by
/// [`auto_profiler_marker!`](crate::auto_profiler_marker). Idea: Gecko's `AUTO_PROFILER_MARKER`.
#[doc(alias = "AUTO_PROFILER_MARKER")]
#[derive(Debug)]
#[must_use = "the marker of the interval's end is added when this is dropped"]
pub struct AutoProfilerMarker<'a>(Halves<'a, StackMarker>);

impl<'a> AutoProfilerMarker<'a> {
    /// Adds the marker of the interval's start. Returns `None` if no session records markers of the
    /// thread in `options`, which is the calling one by default.
    #[inline(always)]
    pub fn new(
        name: &'a str,
        category: ProfilingCategoryPair,
        options: MarkerOptions,
    ) -> Option<Self> {
        Halves::begin(name, category, options, StackMarker()).map(Self)
    }
}

impl Drop for AutoProfilerMarker<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Adds a marker for the start of an interval when it is constructed, and one for the end when it
/// is dropped, each with a payload of one word.
///
/// Exists for code that was written for Mozilla's crate. Usually made by
/// [`auto_profiler_marker_tracing!`](crate::gecko_profiler::auto_profiler_marker_tracing).
#[derive(Debug)]
#[must_use = "the marker of the interval's end is added when this is dropped"]
pub struct AutoProfilerTracingMarker<'a>(Halves<'a, Tracing>);

impl<'a> AutoProfilerTracingMarker<'a> {
    /// Adds the marker of the interval's start. Returns `None` if no session records markers of the
    /// thread in `options`, which is the calling one by default.
    #[inline(always)]
    pub fn new(
        name: &'a str,
        category: ProfilingCategoryPair,
        options: MarkerOptions,
        payload: CowString,
    ) -> Option<Self> {
        Halves::begin(name, category, options, Tracing(payload)).map(Self)
    }
}

impl Drop for AutoProfilerTracingMarker<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Adds a marker of a flow for the start of an interval when it is constructed, and one for the end
/// when it is dropped.
///
/// Usually made by [`auto_profiler_flow_marker!`](crate::marker::auto_profiler_flow_marker).
#[derive(Debug)]
#[must_use = "the marker of the interval's end is added when this is dropped"]
pub struct AutoProfilerFlowMarker<'a>(Halves<'a, FlowStackMarker>);

impl<'a> AutoProfilerFlowMarker<'a> {
    /// Adds the marker of the interval's start. Returns `None` if no session records markers of the
    /// thread in `options`, which is the calling one by default.
    #[inline(always)]
    pub fn new(
        name: &'a str,
        category: ProfilingCategoryPair,
        options: MarkerOptions,
        payload: FlowStackMarker,
    ) -> Option<Self> {
        Halves::begin(name, category, options, payload).map(Self)
    }
}

impl Drop for AutoProfilerFlowMarker<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A session that recorded the markers of a thread at the time of construction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkerSession(Generation);

impl MarkerSession {
    /// Returns the session that records markers of the calling thread, paused or not. Cost: one
    /// load while the profiler is inactive.
    #[inline]
    pub(crate) fn of_this_thread() -> Option<Self> {
        backend::session_that_records_markers(ThreadId::UNSPECIFIED).map(Self)
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Self(crate::types::Generation::next())
    }

    /// Adds an interval from `start` until now on the calling thread's track, if the session still
    /// runs and records markers of this thread. In that case, calls `payload` with the end of the
    /// interval.
    pub(crate) fn add_interval_until_now<T: ProfilerMarker + 'static>(
        self,
        name: &str,
        category: ProfilingCategoryPair,
        start: ProfilerTime,
        payload: impl FnOnce(ProfilerTime) -> T,
    ) {
        let timing = MarkerTiming::interval_until_now_from(start);
        if let Some(destination) = backend::chosen_destination(Some(self.0), name, &timing) {
            let payload = payload(backend::destination_time(&destination));
            let marker = NewMarker {
                name,
                category: category.indices().0,
                timing: &timing,
                stack: 0,
            };
            (&payload).put(&destination, &marker);
        }
    }
}
