//! Guards that add a marker for the duration of a scope.

use crate::api::backend::{self, MarkerPayload};
use crate::api::markers::stack_of;
use crate::markers::{CowString, FlowStackMarker, StackMarker, Tracing};
use crate::markers::{MarkerOptions, MarkerStack, MarkerTiming, NewMarker, ProfilerMarker};
use crate::types::{Generation, ProfilerTime, ProfilingCategoryPair};

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
            backend::marker_destination_in(self.session, options.timing.thread)
                .and_then(|place| backend::chosen(&place, self.name, &options.timing))
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
            backend::marker_destination_in(self.session, options.timing.thread)
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
