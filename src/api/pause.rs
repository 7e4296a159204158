//! Pausing the profiler, or sampling only.

use crate::api::backend;

/// Pauses the session: from now on it records no samples and no markers. Does nothing while the
/// profiler is inactive or already paused.
///
/// The session and its data stay. [`profiler_resume`] continues it, and a new session begins
/// unpaused. Pending samples of idle threads are recorded up to this moment, and no sample's time
/// lies within the pause. CPU time used during the pause belongs to no sample and to no row of the
/// `processCPU` counter. The profile lists the pause in `pausedRanges`, with the reason
/// `profiler-paused`.
///
/// A marker that another thread is adding at this moment is recorded if that thread read the clock
/// before the pause, so no marker with the time of its addition lies within a pause. A marker whose
/// time the application sets may lie within a pause. State-change callbacks are called with
/// [`Pausing`](crate::callback::ProfilingState::Pausing) before the pause, unless the profiler is
/// inactive or already paused.
///
/// Independent of [`profiler_pause_sampling`]. May be called from any thread. Cost: about 2 µs.
/// Idea: Gecko's `profiler_pause`.
pub fn profiler_pause() {
    backend::pause();
}

/// Ends a pause by [`profiler_pause`]. Does nothing while the profiler is inactive or not paused.
///
/// Samples are taken from the sampler's next tick on, within one interval, unless sampling is
/// paused too. State-change callbacks are called with
/// [`Resumed`](crate::callback::ProfilingState::Resumed) afterwards.
///
/// May be called from any thread. Cost: about 2 µs. Idea: Gecko's `profiler_resume`.
pub fn profiler_resume() {
    backend::resume();
}

/// Pauses sampling: from now on the session records no samples and no rows of counters, but still
/// records markers. Does nothing while the profiler is inactive or sampling is already paused.
///
/// In all else, this is like [`profiler_pause`], but independent of it: samples are taken only
/// while neither pause is in effect. In the profile's `pausedRanges`, the reason is `collecting`,
/// the only other reason that the format has. State-change callbacks are not called. Idea: Gecko's
/// `profiler_pause_sampling`.
pub fn profiler_pause_sampling() {
    backend::pause_sampling();
}

/// Ends a pause by [`profiler_pause_sampling`]. Does nothing while the profiler is inactive or
/// sampling is not paused.
///
/// May be called from any thread. Idea: Gecko's `profiler_resume_sampling`.
pub fn profiler_resume_sampling() {
    backend::resume_sampling();
}
