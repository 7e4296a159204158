//! Starting and stopping the profiler.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
/// Bind it to a name: `let _ = …` drops it at once. If a profile was asked for, a line on standard
/// error says so.
///
/// # Ends of the program
/// If `MOZ_PROFILER_SHUTDOWN` names a file, or
/// [`save_at_exit`](AutoProfilerInitBuilder::save_at_exit) does, the profile is saved once, whole,
/// however the program ends. So is a report printed, if `MOZ_PROFILER_REPORT=1` or
/// [`report_at_exit`](AutoProfilerInitBuilder::report_at_exit) asks for it. The ends are:
///
/// - The guard is dropped, because `main` returns or panics.
/// - Any thread calls [`std::process::exit`], or C's `exit`. That thread waits for the save.
/// - `SIGINT`, `SIGTERM` or `SIGHUP` ends the program. Its threads run on during the save; then the
///   program ends by that signal. A second Ctrl-C, or a second `SIGINT` or `SIGTERM` a quarter of a
///   second after the first, ends it at once.
/// - The program aborts: [`std::process::abort`], a panic with `panic = "abort"`, a panic in a
///   destructor that runs during a panic, one that would leave an `extern "C"` function, a stack
///   overflow that the standard library notices, `SIGABRT` from outside. The aborting thread waits
///   for the save, and then aborts.
///
/// A signal that the program ignores, as under `nohup`, or handles is left alone. The handler may
/// be installed before or after this guard. It decides what the signal means. If it ends the
/// program by `exit`, or makes `main` return, the profile is saved. If it restores the default
/// action and raises the signal again, the program ends without a profile. The same holds for a
/// program that sets the default action itself.
///
/// These ends cannot be noticed, and lose the profile: `SIGKILL`, `SIGSEGV` and other crashes, any
/// other signal, `_exit`, `quick_exit`, and an `exec` that succeeds, unless
/// [`profiler_prepare_exec`](crate::api::process::profiler_prepare_exec) has prepared it. One that
/// fails changes nothing. A child of `fork` has no profile to save, however it ends.
///
/// If the interrupted code holds a lock that the save needs, such as the allocator's, the save
/// cannot be done. The program then ends without the save, after ten seconds to two minutes.
///
/// Cost of being ready: a sleeping thread, and handlers of the four signals. Both are absent if
/// nothing asks for a profile.
#[doc(alias = "AUTO_PROFILER_INIT")]
#[derive(Debug)]
#[must_use = "the profiler shuts down when this is dropped"]
pub struct AutoProfilerInit {
    begun: Instant,
}

impl AutoProfilerInit {
    /// Calls [`profiler_init`].
    #[expect(
        clippy::new_without_default,
        reason = "a guard with side effects is not a default value"
    )]
    pub fn new() -> Self {
        Self::builder().init()
    }

    /// Returns a builder, for a program that decides in code what to do with the profile.
    pub fn builder() -> AutoProfilerInitBuilder {
        AutoProfilerInitBuilder::default()
    }
}

impl Drop for AutoProfilerInit {
    fn drop(&mut self) {
        let lifetime = self.begun.elapsed();
        stop_serving();
        stop_pushing();
        backend::shutdown_after(lifetime);
    }
}

/// Options of an [`AutoProfilerInit`].
///
/// ```no_run
/// # use gekkota::{AutoProfilerInit, StartParams};
/// # fn main() -> Result<(), gekkota::StartError> {
/// let _profiler = AutoProfilerInit::builder()
///     .save_at_exit("out-%p.json")
///     .report_at_exit()
///     .init();
/// gekkota::profiler_start(StartParams::default())?;
/// // … The profile is saved, and reported, however the program ends.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "only `init` initializes the profiler"]
pub struct AutoProfilerInitBuilder {
    file: Option<PathBuf>,
    reports: bool,
}

impl AutoProfilerInitBuilder {
    /// Saves the last profile to this file at the end of the program: see
    /// [`profiler_save_at_exit`].
    pub fn save_at_exit(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Prints a report about the last profile to standard error at the end of the program, as
    /// `MOZ_PROFILER_REPORT=1` does.
    ///
    /// The variable has precedence: `MOZ_PROFILER_REPORT=0` turns the report off.
    pub fn report_at_exit(mut self) -> Self {
        self.reports = true;
        self
    }

    /// Calls [`profiler_init`], and applies the options. Prints an error to standard error.
    pub fn init(self) -> AutoProfilerInit {
        backend::init_with_end(self.file.as_deref(), self.reports);
        serve_if_asked();
        push_if_asked();
        AutoProfilerInit {
            begun: Instant::now(),
        }
    }
}

/// Saves the last profile to this file at every [end of the
/// program](AutoProfilerInit#ends-of-the-program) that can be noticed, as `MOZ_PROFILER_SHUTDOWN`
/// does.
///
/// In the path, the first `%p` becomes the process id. In the name of the file, the first `%n`
/// becomes the process's name
/// ([`profiler_set_process_name`](crate::api::process::profiler_set_process_name)), and the first
/// `%t` its type. At most 32 characters each of name and type are used. In both, characters other
/// than letters, digits and `-_+` become `_`. The ending selects the format. The profile is that of
/// the running session, or else of the last
/// [`ProfilerSession`](crate::api::session::ProfilerSession) that ended since [`profiler_init`]. A
/// line on standard error names the file or the error. State-change callbacks are called only if
/// the program calls [`profiler_shutdown`].
///
/// `MOZ_PROFILER_SHUTDOWN` has precedence: with another file, or empty for none. A later call
/// replaces the path, and [`profiler_shutdown`] forgets it. A relative path is relative to the
/// current folder.
///
/// The file may belong to another process: the one that started this one with the same file, or one
/// that wrote it while this one ran. Then the process id is added to the name, before its ending,
/// and the line on standard error says so. To that end, a process that has only one thread sets the
/// variable `GEKKOTA_SHUTDOWN_OWNER` for the processes that it starts.
///
/// May be called from any thread. Cost: a thread, and some system calls, on the first call.
///
/// # Errors
/// - [`StartError::System`]: the operating system refused the thread or a signal handler.
/// - [`StartError::Unsupported`]: this build contains no profiler.
pub fn profiler_save_at_exit(path: impl AsRef<Path>) -> Result<(), StartError> {
    backend::save_at_exit(path.as_ref())
}

/// Initializes the profiler, and starts it if the environment says so.
///
/// Call this once, early, on the main thread, which it registers as `GeckoMain`. It also installs
/// fork handlers, and applies the variables below. A second call does nothing, except in a child of
/// `fork`, whose profiler is off until then. A program that gives
/// up rights or enters a user namespace should do so first: see the README. In a program with
/// [`early_start!`](crate::early_start), this takes over the session that runs since before `main`.
///
/// # Environment
/// For a bad value, the profiler prints the error and the variable's usage to standard error, and
/// stays off. An unknown variable that begins with `MOZ_PROFILER_`, and an unknown feature name,
/// are reported and ignored. The report has the most similar known name, if any name is similar.
///
/// A program that runs with more rights than the user who started it, a set-user-id program for
/// example (`AT_SECURE`), reads no variable: that user chose the values.
///
#[cfg_attr(has_profiler, doc = crate::session::environment_docs!())]
///
/// Cost: some file reads, about 0.1 ms; starting adds about as much. Idea: Gecko's `profiler_init`.
pub fn profiler_init() {
    backend::init();
    serve_if_asked();
    push_if_asked();
}

/// Begins to push profiles, if a variable asks for it.
fn push_if_asked() {
    #[cfg(all(has_profiler, feature = "push"))]
    backend::push_of_variables();
}

/// Pushes the remaining data before the session ends.
fn stop_pushing() {
    #[cfg(all(has_profiler, feature = "push"))]
    backend::stop_pushing();
}

/// Begins to serve profiles over HTTP, if a variable asks for it.
fn serve_if_asked() {
    #[cfg(all(has_profiler, feature = "http"))]
    crate::api::endpoints::server::serve_if_asked();
}

/// Ends the server first: its clients' sessions end with the profiler.
fn stop_serving() {
    #[cfg(all(has_profiler, feature = "http"))]
    backend::stop_serving();
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
/// If the program [ends otherwise](AutoProfilerInit#ends-of-the-program), the profile is saved and
/// reported, too, but callbacks are not called.
///
/// May be called from any thread, but not in a signal handler. The main thread's registration ends
/// only if the main thread calls this. [`profiler_init`] may be called again afterwards. Idea:
/// Gecko's `profiler_shutdown`.
pub fn profiler_shutdown() {
    stop_serving();
    stop_pushing();
    backend::shutdown();
}

/// Proof that the profiler has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Started;

impl Started {
    /// Waits until the child processes that have joined record the session, for this time at most.
    /// Returns how many do: see
    /// [`profiler_wait_for_children`](crate::process::profiler_wait_for_children).
    pub fn wait_for_children(self, timeout: Duration) -> usize {
        backend::wait_for_children(timeout)
    }
}

/// Starts a session. If the profiler is active, its session is stopped first, and its data is
/// dropped.
///
/// All threads of the process that the filters select are sampled, except the profiler's own. Those
/// that have not registered are usually found on the first tick of their life, and have the
/// system's name. [`Features::NO_UNREGISTERED_SAMPLING`](crate::Features::NO_UNREGISTERED_SAMPLING)
/// leaves them out. A running thread receives the signal once per interval. The stack of a sleeping
/// thread is read from outside. These wake a sleeping thread nevertheless:
/// - Its stack cannot be unwound without the frame pointer. The sampler wakes it once for each
///   place where it sleeps.
/// - The kernel hides whether the thread sleeps. The sampler wakes it once after it has run.
/// - The kernel hides the thread's CPU clock. The sampler wakes it on every tick.
/// - The thread has not registered, and its stack is deeper than 64 KiB. The sampler wakes it once.
/// - The thread ran since the last tick, and goes to sleep before the signal arrives.
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
