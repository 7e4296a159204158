//! Pausing the profiler, and the sampling alone.

use crate::api::engine;

/// Pauses: no samples and no markers from now on. Does nothing when the profiler is not active, or pauses already.
///
/// The session and what it has recorded stay; [`profiler_resume`] goes on with it, and a new session begins unpaused. What
/// was held back of threads at rest is recorded up to this moment, and no sample's time lies within the pause. CPU time that
/// is spent in it belongs to no sample and to no row of the `processCPU` counter. The profile lists it in `pausedRanges`,
/// by the reason `profiler-paused`.
///
/// Independent of [`profiler_pause_sampling`]. May be called from any thread; about a µs. Of markers that other threads are
/// adding at this moment, those may still be recorded for which the clock was read before the pause; so none that has the
/// time at which it was added lies within a pause. One with a time that the host gives may. State-change callbacks are told
/// [`Pausing`](crate::callback::ProfilingState::Pausing) before, unless it pauses already. Idea: Gecko's `profiler_pause`.
pub fn profiler_pause() {
    engine::pause();
}

/// Goes on after [`profiler_pause`]; does nothing when the profiler is not active or does not pause.
///
/// May be called from any thread; about a µs. Samples come from the sampler's next tick on, within one interval, if the
/// sampling is not paused as well. State-change callbacks are told [`Resumed`](crate::callback::ProfilingState::Resumed) after it.
/// Idea: Gecko's `profiler_resume`.
pub fn profiler_resume() {
    engine::resume();
}

/// Pauses the sampling: no samples, and no rows of counters, from now on; markers go on. Does nothing when the profiler is
/// not active, or pauses its sampling already.
///
/// Otherwise as [`profiler_pause`], of which it is independent: samples are taken only when neither pause is on. In the
/// profile's `pausedRanges` its reason is `collecting`, the only other one that the format has. No callback is told.
/// Idea: Gecko's `profiler_pause_sampling`.
pub fn profiler_pause_sampling() {
    engine::pause_sampling();
}

/// Goes on after [`profiler_pause_sampling`]; does nothing when the profiler is not active or does not pause its sampling.
///
/// Idea: Gecko's `profiler_resume_sampling`.
pub fn profiler_resume_sampling() {
    engine::resume_sampling();
}
