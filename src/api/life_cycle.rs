//! Starting and stopping the profiler.

use crate::api::engine;
use crate::base::{StartError, StartParams};

/// Initialises the profiler on construction and shuts it down on drop: the one line in a program's `main`.
///
/// ```
/// let _profiler = gekkota::AutoProfilerInit::new();
/// // The program. `MOZ_PROFILER_STARTUP=1 MOZ_PROFILER_SHUTDOWN=out-%p.json` profiles it.
/// ```
///
/// Bind it to a name: `let _ = …` drops it at once.
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

/// Gets the profiler ready, and starts it if the environment says so.
///
/// Call it once, early, on the main thread, which it registers as `GeckoMain`; a second call does nothing. It installs
/// fork handlers, and does what the environment asks for: see below.
///
/// # Environment
/// What is wrong with a value is told on standard error, with that variable's usage, and the profiler stays off. A name that
/// begins with `MOZ_PROFILER_` and is none of these is told as well, with the nearest that is one, and otherwise ignored, as
/// is the name of a feature that there is not.
///
#[cfg_attr(has_profiler, doc = crate::control::environment_docs!())]
///
/// Cost: some file reads, about 0.1 ms, and as much again when it starts. Idea: Gecko's `profiler_init`.
pub fn profiler_init() {
    engine::init();
}

/// Stops the profiler and gives everything back, the signals of
/// [`profiler_control_by_signals`](crate::profiler_control_by_signals) first. If it is active and `MOZ_PROFILER_SHUTDOWN`
/// names a file, the profile is saved there first; on standard error it is told which file that is, or why there is none.
///
/// May be called from any thread, but not from a signal's handler; the main thread's registration ends only if it is that one.
/// Afterwards [`profiler_init`] may be called again. State-change callbacks are told `Stopping`, if it is active, and
/// `ShuttingDown`, before the profile is saved. Idea: Gecko's `profiler_shutdown`.
pub fn profiler_shutdown() {
    engine::shutdown();
}

/// Proof that the profiler has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Started;

/// Starts sampling. If the profiler is active, it is stopped first, and what it had recorded is dropped.
///
/// May be called from any thread. Returns once the sampler thread is there: 0.1 to 0.5 ms, most of it for the list of modules.
/// From then on registered threads that the filters select get the signal once an interval while they run; one that sleeps
/// is read from outside, and woken for that only where its stack needs the frame pointer, once for a place. Idea: Gecko's
/// `profiler_start`.
///
/// # Errors
/// [`StartError::BadValue`] names a setting that is out of range, with what was asked and what is accepted;
/// [`StartError::System`] tells what the operating system refused; [`StartError::Unsupported`] that there is no profiler
/// in this build. A running session goes on after the first and the last of these. After the second it may have ended;
/// then state-change callbacks are told [`Stopping`](crate::callback::ProfilingState::Stopping) afterwards.
pub fn profiler_start(params: StartParams) -> Result<Started, StartError> {
    engine::start(&params).map(|_| Started)
}

/// Starts, unless the profiler is active with the same settings already; then the session goes on, paused or not, and keeps
/// what it has recorded.
///
/// Settings are compared after adjustment: a feature that is not available, or that another one implies, makes no
/// difference. Filters are compared as they are, in their order. State-change callbacks are told
/// [`Started`](crate::callback::ProfilingState::Started) only if it did start. Otherwise as [`profiler_start`]. Idea: Gecko's
/// `profiler_ensure_started`, which compares what is asked for with what was adjusted.
///
/// # Errors
/// Those of [`profiler_start`].
pub fn profiler_ensure_started(params: StartParams) -> Result<Started, StartError> {
    engine::ensure_started(&params).map(|_| Started)
}

/// Stops sampling and drops what was recorded; does nothing when the profiler is not active.
///
/// May be called from any thread. State-change callbacks are told [`Stopping`](crate::callback::ProfilingState::Stopping) before; they
/// run on this thread, as do after-sampling callbacks that are left over, after the stop. Beside these it takes until the
/// sampler thread has ended, or is in an after-sampling callback, after which it ends by itself. It notices the stop within
/// an interval, within 2 ms where that is shorter and within 50 ms where it is longer, and waits for no thread that has not
/// answered its last signal.
pub fn profiler_stop() {
    engine::stop();
}
