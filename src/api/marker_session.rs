//! Intervals that are begun in one place and ended in another, maybe on another thread.

use crate::api::engine;
use crate::base::{ProfilerTime, ProfilingCategoryPair, ThreadId};
use crate::markers::{MarkerTiming, ProfilerMarker};

/// The session that recorded markers of a thread when it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkerSession(engine::Generation);

impl MarkerSession {
    /// That of the calling thread, be it in a pause. Cost: one load where no profiler is active.
    #[inline]
    pub(crate) fn of_this_thread() -> Option<Self> {
        engine::session_that_records_markers(ThreadId::UNSPECIFIED).map(Self)
    }

    #[cfg(all(test, has_profiler))]
    pub(crate) fn for_test() -> Self {
        Self(crate::base::Generation::next())
    }

    /// Adds an interval from `start` until now, on the calling thread's track, if the session still runs and records markers of
    /// this thread. The payload is told when now is, and is made only then.
    pub(crate) fn add_interval_until_now<T: ProfilerMarker + 'static>(
        self,
        name: &str,
        category: ProfilingCategoryPair,
        start: ProfilerTime,
        payload: impl FnOnce(ProfilerTime) -> T,
    ) {
        if let Some(place) = engine::place_of_marker_in(self.0, ThreadId::UNSPECIFIED) {
            let timing = MarkerTiming::interval_until_now_from(start);
            let payload = payload(engine::time_of_place(&place));
            engine::put_typed_marker(&place, name, category.indices(), &timing, 0, &payload);
        }
    }
}
