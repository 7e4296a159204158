//! Queries of the profiler's state. An answer may be out of date as soon as it is returned.

use crate::api::backend;
use crate::types::{BufferInfo, Features, StartParams};

/// Returns whether the profiler is active, paused or not.
///
/// May be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_is_active() -> bool {
    backend::is_active()
}

/// Returns whether the profiler is active and not paused by
/// [`profiler_pause`](crate::api::pause::profiler_pause), so that it records markers. A pause of sampling only
/// does not count.
///
/// May be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_is_active_and_unpaused() -> bool {
    backend::is_active_and_unpaused()
}

/// Returns whether [`profiler_pause`](crate::api::pause::profiler_pause) has paused the profiler; `false` while
/// it is inactive.
///
/// May be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_is_paused() -> bool {
    backend::is_paused()
}

/// Returns whether sampling is paused, by [`profiler_pause`](crate::api::pause::profiler_pause) or by
/// [`profiler_pause_sampling`](crate::api::pause::profiler_pause_sampling); `false` while the profiler is
/// inactive.
///
/// May be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_is_sampling_paused() -> bool {
    backend::is_sampling_paused()
}

/// Returns whether the profiler is active with all of these features.
///
/// May be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_feature_active(features: Features) -> bool {
    backend::features_if_active().is_some_and(|active| active.contains(features))
}

/// Returns the features of the running session, or `None` while the profiler is inactive.
///
/// These are the requested features without the unavailable ones, plus those that they imply. May
/// be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_features_if_active() -> Option<Features> {
    backend::features_if_active()
}

/// Returns the features of the running session, or `None` while the profiler is inactive or paused
/// by [`profiler_pause`](crate::api::pause::profiler_pause).
///
/// May be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_features_if_active_and_unpaused() -> Option<Features> {
    backend::features_if_active_and_unpaused()
}

/// Returns the features that this build supports on this machine, which are
/// [`Features::available`].
///
/// May be called from any thread. Cost: some ns.
pub fn profiler_get_available_features() -> Features {
    Features::available()
}

/// Returns the settings of the running session, after adjustment, or `None` while the profiler is
/// inactive.
///
/// Adjusted features lack the unavailable ones and include those that are implied. The signal is
/// the one in use. Passing the result to
/// [`profiler_ensure_started`](crate::api::life_cycle::profiler_ensure_started) keeps the running session. Passing
/// it to [`profiler_start`](crate::api::life_cycle::profiler_start) starts another session like it. May be called
/// from any thread. Cost: the profiler's lock for a moment.
pub fn profiler_get_start_params() -> Option<StartParams> {
    backend::start_params()
}

/// Returns the fill level of the running session's buffer, in bytes, or `None` while the profiler
/// is inactive.
///
/// May be called from any thread. Cost: the profiler's and the buffer's lock for a moment. Idea:
/// Gecko's `profiler_get_buffer_info`, which counts entries of 8 bytes.
pub fn profiler_get_buffer_info() -> Option<BufferInfo> {
    backend::buffer_info()
}
