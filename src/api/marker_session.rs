//! Interval markers that begin in one place and end in another, possibly on another thread.

use crate::api::backend::{self, MarkerPayload};
use crate::markers::{MarkerTiming, NewMarker, ProfilerMarker};
use crate::types::{Generation, ProfilerTime, ProfilingCategoryPair, ThreadId};

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
        if let Some(destination) = backend::marker_destination_in(self.0, ThreadId::UNSPECIFIED)
            .and_then(|place| backend::chosen(&place, name, &timing))
        {
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
