//! Markers: what happened, with a time.

use crate::api::engine;
use crate::base::{ProfilerTime, ProfilingCategoryPair};
use crate::markers::{MarkerOptions, MarkerTiming};

impl ProfilerTime {
    /// Now. About 20 ns, without a system call.
    pub fn now() -> Self {
        engine::now()
    }
}

/// Adds a marker without data to the calling thread.
///
/// Does nothing unless the profiler is active and profiles this thread, which costs one load to find out. Allocates
/// nothing. Idea: Gecko's `PROFILER_MARKER_UNTYPED`.
#[doc(alias = "PROFILER_MARKER_UNTYPED")]
#[inline]
pub fn add_untyped_marker(name: &str, category: ProfilingCategoryPair, options: MarkerOptions) {
    engine::add_marker(name, category, options.timing, None);
}

/// Adds a marker with a text to the calling thread, otherwise as [`add_untyped_marker`].
#[doc(alias = "PROFILER_MARKER_TEXT")]
#[inline]
pub fn add_text_marker(name: &str, category: ProfilingCategoryPair, options: MarkerOptions, text: &str) {
    engine::add_marker(name, category, options.timing, Some(text));
}

/// An interval with a text: one marker, added when the guard is dropped, from the guard's making until then.
///
/// It goes to the thread that drops it. Usually made by
/// [`auto_profiler_marker_text!`](crate::auto_profiler_marker_text). Idea: Gecko's `AUTO_PROFILER_MARKER_TEXT`.
#[doc(alias = "AUTO_PROFILER_MARKER_TEXT")]
#[derive(Debug)]
#[must_use = "the marker is added when this is dropped"]
pub struct AutoProfilerTextMarker<'a> {
    name: &'a str,
    category: ProfilingCategoryPair,
    options: MarkerOptions,
    text: &'a str,
    start: ProfilerTime,
    session: engine::Generation,
}

impl<'a> AutoProfilerTextMarker<'a> {
    /// Begins the interval; `None` when no session records markers of this thread. The timing in the options is not used. An
    /// interval that outlasts its session is in none.
    #[inline]
    pub fn new(
        name: &'a str,
        category: ProfilingCategoryPair,
        options: MarkerOptions,
        text: &'a str,
    ) -> Option<Self> {
        let session = engine::session_that_records_markers()?;
        Some(Self { name, category, options, text, start: ProfilerTime::now(), session })
    }
}

impl Drop for AutoProfilerTextMarker<'_> {
    fn drop(&mut self) {
        let options = self.options.with_timing(MarkerTiming::interval_until_now_from(self.start));
        let timing = options.timing;
        engine::add_marker_of(self.session, self.name, self.category, timing, Some(self.text));
    }
}
