//! Queries about the state of the profiler and of threads. An answer may be out of date as soon as
//! it is returned.

use crate::api::backend;
use crate::types::{
    BufferInfo, Features, ProcessId, StartParams, ThreadId, ThreadProfilingFeatures,
};

/// Returns whether the profiler is active, paused or not.
///
/// May be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_is_active() -> bool {
    backend::is_active()
}

/// Returns whether the profiler is active and not paused by
/// [`profiler_pause`](crate::api::life_cycle::profiler_pause), so that it records markers. A pause
/// of sampling only does not count.
///
/// May be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_is_active_and_unpaused() -> bool {
    backend::is_active_and_unpaused()
}

/// Returns whether [`profiler_pause`](crate::api::life_cycle::profiler_pause) has paused the
/// profiler; `false` while it is inactive.
///
/// May be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_is_paused() -> bool {
    backend::is_paused()
}

/// Returns whether sampling is paused, by
/// [`profiler_pause`](crate::api::life_cycle::profiler_pause) or by
/// [`profiler_pause_sampling`](crate::api::life_cycle::profiler_pause_sampling); `false` while the
/// profiler is inactive.
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
/// These are the requested features without the unavailable ones, plus the features that they
/// imply. May be called from any thread. Cost: one relaxed load.
#[inline]
pub fn profiler_features_if_active() -> Option<Features> {
    backend::features_if_active()
}

/// Returns the features of the running session, or `None` while the profiler is inactive or paused
/// by [`profiler_pause`](crate::api::life_cycle::profiler_pause).
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
/// Adjusted features lack the unavailable ones and include the implied ones. The signal is the one
/// in use. Passing the result to
/// [`profiler_ensure_started`](crate::api::life_cycle::profiler_ensure_started) keeps the running
/// session. Passing it to [`profiler_start`](crate::api::life_cycle::profiler_start) starts another
/// session like it. May be called from any thread. Cost: the profiler's lock for a moment.
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

/// Returns whether the running session records any of these features for the calling thread.
///
/// `false` while the profiler is inactive or paused, and on a thread that the session does not
/// select. A thread that has not registered is registered by this call, as by its first marker,
/// unless the session excludes such threads; then the answer is `false`. As in Gecko, the answer
/// considers only the thread. It is `true` even if the session records such data of no thread, for
/// example without [`Features::CPU`] or while sampling is paused.
///
/// Use it to skip work that is only needed for the profile. Cost: one load; while the profiler is
/// active, also a lookup of the thread's registration. Idea: Gecko's function of the same name.
///
/// ```
/// use gekkota::thread::{ThreadProfilingFeatures, profiler_thread_is_being_profiled};
/// if profiler_thread_is_being_profiled(ThreadProfilingFeatures::MARKERS) {
///     // Compute the marker's data.
/// }
/// ```
pub fn profiler_thread_is_being_profiled(any_of: ThreadProfilingFeatures) -> bool {
    backend::is_thread_being_profiled(any_of)
}

/// Returns whether the running session records any of these features for a given thread.
///
/// [`ThreadId::UNSPECIFIED`] is the calling thread. `false` for an unregistered thread. Otherwise
/// like [`profiler_thread_is_being_profiled`].
///
/// Cost: while the profiler is active, a lock and a search through all registered threads. Idea:
/// Gecko's `profiler_thread_is_being_profiled(aThreadId, …)`.
pub fn profiler_other_thread_is_being_profiled(
    thread: ThreadId,
    any_of: ThreadProfilingFeatures,
) -> bool {
    backend::is_other_thread_being_profiled(thread, any_of)
}

/// Returns whether the profiler is active and the calling thread is registered, even if the session
/// does not select the thread.
///
/// Cost: one load; while the profiler is active, also a lookup of the thread's registration.
pub fn profiler_is_active_and_thread_is_registered() -> bool {
    backend::is_active() && backend::is_thread_registered()
}

/// Returns whether the calling thread holds one of the profiler's own locks.
///
/// That happens when the profiler calls the application's code: its allocator, for example, or a
/// `pthread_atfork` handler between the profiler's own. In such code, markers are dropped, and
/// functions that take a lock do nothing or return an error. Do not take stacks on demand there,
/// and do not register script functions, or register or drop code ranges: these calls can
/// deadlock. Code that may run there checks this function first.
///
/// May be called anywhere. Cost: one load. Idea: Gecko's function of the same name.
pub fn profiler_is_locked_on_current_thread() -> bool {
    backend::is_locked_on_current_thread()
}

/// Returns the kernel's id of this process. Cost: one system call.
pub fn profiler_current_process_id() -> ProcessId {
    ProcessId::from_number(i32::try_from(std::process::id()).unwrap_or_default())
}

/// Returns the kernel's id of the thread that `main` runs on, or [`ThreadId::UNSPECIFIED`] if this
/// build contains no profiler. Cost: one load, and one system call before the first session.
pub fn profiler_main_thread_id() -> ThreadId {
    backend::main_thread_id()
}

/// Returns whether the calling thread is the one that `main` runs on. Cost: that of
/// [`profiler_current_thread_id`](crate::thread::profiler_current_thread_id).
#[doc(alias = "profiler_init_main_thread_id")]
pub fn profiler_is_main_thread() -> bool {
    backend::is_main_thread()
}
