//! Starting and stopping the profiler.

use crate::api::backend;
use crate::types::{StartError, StartParams};

/// Initializes the profiler on construction, and shuts it down on drop: the one line in an
/// application's `main`.
///
/// ```
/// let _profiler = gekkota::AutoProfilerInit::new();
/// // With `MOZ_PROFILER_STARTUP=1 MOZ_PROFILER_SHUTDOWN=out-%p.json`, the application is profiled
/// // from here on.
/// ```
///
/// Bind it to a name: `let _ = …` drops it at once. It is not dropped, and so saves no profile, if
/// the application ends by `std::process::exit`, by `abort` or by a signal. Call
/// [`profiler_shutdown`] before `exit`. For a signal, call it on a thread that waits for the
/// signal, not in a handler.
#[doc(alias = "AUTO_PROFILER_INIT")]
#[derive(Debug)]
#[must_use = "the profiler shuts down when this is dropped"]
pub struct AutoProfilerInit(());

impl AutoProfilerInit {
    /// Calls [`profiler_init`].
    #[expect(
        clippy::new_without_default,
        reason = "a guard with side effects is not a default value"
    )]
    pub fn new() -> Self {
        profiler_init();
        Self(())
    }
}

impl Drop for AutoProfilerInit {
    fn drop(&mut self) {
        profiler_shutdown();
    }
}

/// Initializes the profiler, and starts it if the environment says so.
///
/// Call this once, early, on the main thread, which it registers as `GeckoMain`. It also installs
/// fork handlers, and applies the variables below. A second call does nothing. A program that gives
/// up rights or enters a user namespace should do so first: see the README.
///
/// # Environment
/// For a bad value, the profiler prints the error and the variable's usage to standard error, and
/// stays off. An unknown variable that begins with `MOZ_PROFILER_`, and an unknown feature name,
/// are reported with the nearest known name, and ignored.
///
/// A program that runs with more rights than the user who started it, a set-user-id program for
/// example (`AT_SECURE`), reads no variable: that user chose the values.
///
#[cfg_attr(has_profiler, doc = crate::session::environment_docs!())]
///
/// Cost: some file reads, about 0.1 ms; starting adds about as much. Idea: Gecko's `profiler_init`.
pub fn profiler_init() {
    backend::init();
}

/// Stops the profiler and releases its resources, beginning with the signals of
/// [`profiler_control_by_signals`](crate::api::remote_control::profiler_control_by_signals).
///
/// If `MOZ_PROFILER_SHUTDOWN` names a file, the profile is saved there first: the running
/// session's, or else that of the last [`ProfilerSession`](crate::api::session::ProfilerSession)
/// that ended since [`profiler_init`]. A relative path is relative to the folder that was current
/// when [`profiler_init`] was called. A line on standard error names the file or the error. With
/// `MOZ_PROFILER_REPORT=1`, a report about the same profile follows. Before both, state-change
/// callbacks are called with `Stopping`, if the profiler is active, and with `ShuttingDown`.
///
/// May be called from any thread, but not in a signal handler. The main thread's registration ends
/// only if the main thread calls this. [`profiler_init`] may be called again afterwards. Idea:
/// Gecko's `profiler_shutdown`.
pub fn profiler_shutdown() {
    backend::shutdown();
}

/// Proof that the profiler has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Started;

/// Starts a session. If the profiler is active, its session is stopped first, and its data is
/// dropped.
///
/// All threads of the process that the filters select are sampled, except the profiler's own. Those
/// that have not registered are found on the first tick of their life, and have the system's name.
/// [`Features::NO_UNREGISTERED_SAMPLING`](crate::Features::NO_UNREGISTERED_SAMPLING) leaves them out.
/// A running thread receives the signal once per interval. The stack of a sleeping thread is read from outside. Three causes
/// wake a sleeping thread nevertheless:
/// - Its stack cannot be unwound without the frame pointer. The sampler wakes it once for each
///   place where it sleeps.
/// - The kernel hides whether the thread sleeps. The sampler wakes it once after it has run.
/// - The kernel hides the thread's CPU clock. The sampler wakes it on every tick.
///
/// May be called from any thread. Returns when the sampler thread runs, after 0.1 to 0.5 ms, or 2.5
/// ms in a process with 200 libraries. Most of that time reads the list of modules. Idea: Gecko's
/// `profiler_start`.
///
/// # Errors
/// - [`StartError::BadValue`]: a setting is out of range. The error names the setting, its value
///   and the accepted range.
/// - [`StartError::System`]: the operating system refused a call.
/// - [`StartError::ControlSystem`]: the operating system refused a call that the [control
///   signals](StartParams::control_signals) of `params` need.
/// - [`StartError::Unsupported`]: this build contains no profiler.
///
/// A running session continues after `BadValue`, `ControlSystem` and `Unsupported`. After `System`
/// it may have ended; then state-change callbacks are called with
/// [`Stopping`](crate::callback::ProfilingState::Stopping).
pub fn profiler_start(params: StartParams) -> Result<Started, StartError> {
    backend::start(&params).map(|_| Started)
}

/// Starts a session, unless one with the same settings is running. A running session with the same
/// settings keeps its data, and stays paused if it is paused.
///
/// Settings are compared after adjustment, so a feature that is unavailable, or implied by another
/// one, makes no difference. Filters are compared literally and in order. State-change callbacks
/// are called with [`Started`](crate::callback::ProfilingState::Started) only if a session was
/// started. Otherwise like [`profiler_start`]. Idea: Gecko's `profiler_ensure_started`, which
/// compares the requested settings with the adjusted settings of the running session.
///
/// # Errors
/// Those of [`profiler_start`].
pub fn profiler_ensure_started(params: StartParams) -> Result<Started, StartError> {
    backend::ensure_started(&params).map(|_| Started)
}

/// Stops the session and drops its data. Does nothing while the profiler is inactive.
///
/// May be called from any thread. State-change callbacks are called with
/// [`Stopping`](crate::callback::ProfilingState::Stopping) before the stop, and pending
/// after-sampling callbacks after it, both on this thread. Apart from these callbacks the call
/// waits until the sampler thread has ended. The sampler checks for a stop once per interval, and
/// at least every 50 ms. The call does not wait for a thread that has not answered its last signal,
/// nor for an after-sampling callback that is running; the thread of the callbacks ends by itself
/// after that callback.
pub fn profiler_stop() {
    backend::stop();
}
