//! What the profiler is doing. Every answer may be out of date at once.

use crate::api::engine;
use crate::base::{BufferInfo, Features, StartParams};

/// Whether the profiler is active: one relaxed load, from any thread. The answer may be out of date at once.
#[inline]
pub fn profiler_is_active() -> bool {
    engine::is_active()
}

/// Whether the profiler is active and [`profiler_pause`](crate::profiler_pause) does not hold it up, so that markers are
/// recorded: one relaxed load, from any thread. Whether the sampling is paused does not matter.
#[inline]
pub fn profiler_is_active_and_unpaused() -> bool {
    engine::is_active_and_unpaused()
}

/// Whether [`profiler_pause`](crate::profiler_pause) holds the profiler up: one relaxed load, from any thread. False when
/// it is not active.
#[inline]
pub fn profiler_is_paused() -> bool {
    engine::is_paused()
}

/// Whether no samples are taken, since [`profiler_pause`](crate::profiler_pause) or
/// [`profiler_pause_sampling`](crate::profiler_pause_sampling) holds them up: one relaxed load, from any thread. False when
/// the profiler is not active.
#[inline]
pub fn profiler_is_sampling_paused() -> bool {
    engine::is_sampling_paused()
}

/// Whether the profiler is active with this feature, or with all of these: one relaxed load, from any thread.
#[inline]
pub fn profiler_feature_active(features: Features) -> bool {
    engine::features_if_active().is_some_and(|active| active.contains(features))
}

/// The features that the profiler is active with: what was asked for, less what is not available here, and what that
/// implies. `None` when it is not active. One relaxed load, from any thread.
#[inline]
pub fn profiler_features_if_active() -> Option<Features> {
    engine::features_if_active()
}

/// The same; `None` also while [`profiler_pause`](crate::profiler_pause) holds the profiler up.
#[inline]
pub fn profiler_features_if_active_and_unpaused() -> Option<Features> {
    engine::features_if_active_and_unpaused()
}

/// What this build can record on this machine; the same as [`Features::available`]. Some ns, from any thread.
pub fn profiler_get_available_features() -> Features {
    Features::available()
}

/// What the running session was started with, after adjustment: features that are not available are gone, those that are
/// implied are there, and the signal is the one that is used. `None` when the profiler is not active.
///
/// [`profiler_ensure_started`](crate::profiler_ensure_started) with these changes nothing, while they are the running
/// session's; [`profiler_start`](crate::profiler_start) begins another session like it. From any thread; takes the
/// profiler's lock for a moment.
pub fn profiler_get_start_params() -> Option<StartParams> {
    engine::start_params()
}

/// How full the running session's buffer is; `None` when the profiler is not active.
///
/// From any thread; takes the profiler's and the buffer's lock for a moment. Idea: Gecko's `profiler_get_buffer_info`,
/// whose capacity counts entries of 8 bytes; here everything is in bytes.
pub fn profiler_get_buffer_info() -> Option<BufferInfo> {
    engine::buffer_info()
}
