//! Starting, pausing and stopping the profiler, by calls, by a guard and by signals, and callbacks on
//! changes of its state.

use std::panic::Location;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::api::backend;
use crate::api::profile::Profile;
use crate::types::{
    ControlSignals, Generation, ProfilingState, ProfilingStates, SamplingState, StartError,
    StartParams, StreamError, WhileOtherRuns,
};

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
#[doc(alias = "MOZ_PROFILER_HELP")]
#[doc(alias = "MOZ_PROFILER_STARTUP")]
#[doc(alias = "MOZ_PROFILER_SHUTDOWN")]
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
        stop_serving_and_pushing();
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
        serve_and_push_if_asked();
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
/// the running session, or else of the last [`ProfilerSession`] that ended since [`profiler_init`].
/// A line on standard error names the file or the error. State-change callbacks are called only if
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
    serve_and_push_if_asked();
}

/// Serves and pushes profiles, if variables ask for that.
fn serve_and_push_if_asked() {
    #[cfg(all(has_profiler, feature = "http"))]
    crate::api::endpoints::server::serve_if_asked();
    #[cfg(all(has_profiler, feature = "push"))]
    backend::push_of_variables();
}

fn stop_serving_and_pushing() {
    // First, because the sessions of the server's clients end with the profiler.
    #[cfg(all(has_profiler, feature = "http"))]
    backend::stop_serving();
    // Pushes the remaining data before the session ends.
    #[cfg(all(has_profiler, feature = "push"))]
    backend::stop_pushing();
}

/// Stops the profiler and releases its resources, beginning with the signals of
/// [`profiler_control_by_signals`].
///
/// If `MOZ_PROFILER_SHUTDOWN` names a file, the profile is saved there first: the running
/// session's, or else that of the last [`ProfilerSession`] that ended since [`profiler_init`]. A
/// relative path is relative to the folder that was current when [`profiler_init`] was called. A
/// line on standard error names the file or the error. With `MOZ_PROFILER_REPORT=1`, a report about
/// the same profile follows. Before both, state-change callbacks are called with `Stopping`, if the
/// profiler is active, and with `ShuttingDown`.
///
/// If the program [ends otherwise](AutoProfilerInit#ends-of-the-program), the profile is saved and
/// reported, too, but callbacks are not called.
///
/// May be called from any thread, but not in a signal handler. The main thread's registration ends
/// only if the main thread calls this. [`profiler_init`] may be called again afterwards. Idea:
/// Gecko's `profiler_shutdown`.
pub fn profiler_shutdown() {
    stop_serving_and_pushing();
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

/// A running session. Dropping it stops the profiler, unless another call has started a new session
/// since.
///
/// A session that is dropped without [`finish`](Self::finish) loses its data, with one exception.
/// If the application called [`profiler_init`] with `MOZ_PROFILER_SHUTDOWN` or
/// `MOZ_PROFILER_REPORT` set, the profile of the last `ProfilerSession` that ended is kept.
/// [`profiler_shutdown`] saves or reports the kept profile if no session runs at that time. Until
/// then the profile occupies the memory of its data.
///
/// Declare the session after [`AutoProfilerInit`], so that the session is dropped first.
///
/// ```no_run
/// # fn work() {}
/// let session = gekkota::ProfilerSession::start(gekkota::StartParams::default())?;
/// work();
/// session.finish()?.save("work.profile.json")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # If another session runs
///
/// A process has one session at a time. What a start does while another session runs depends on the
/// other session:
///
/// | the running session was started by | [`start`](Self::start) | [`start_in_turn`](Self::start_in_turn) |
/// |---|---|---|
/// | another `ProfilerSession` | returns [`StartError::SessionRuns`], which names the file and the line of the other call | waits until that session has ended |
/// | [`profiler_start`], a variable, or a control signal | replaces it, as [`profiler_start`] does | likewise |
///
/// [`profiler_start`] replaces every running session, as in Gecko. A `ProfilerSession` whose
/// session was replaced has no profile: its [`finish`](Self::finish) fails.
///
/// # Tests and benchmarks
///
/// The tests of one binary run on several threads of one process. A test that needs a session of
/// its own takes its turn. A session records all threads of the process, including those of tests
/// that run at the same time. Give the test's threads names of their own, and let the session
/// record only these:
///
/// ```
/// use gekkota::{ProfilerSession, StartParams, ThreadGuard};
///
/// # fn parse(text: &str) -> usize { text.len() }
/// // In a program, this is a function with `#[test]`.
/// fn parse_calls_the_lexer() {
///     let _registered = ThreadGuard::register("parser test");
///     let params = StartParams::default().filters(["parser test"]);
///     let session = ProfilerSession::start_in_turn(params).expect("a profiler");
///     parse(&"1 + ".repeat(1_000));
///     // Keep the profile of a failed test, or look at it here.
///     let profile = session.finish().expect("nothing else calls profiler_start here");
///     assert!(profile.summarize().len() <= 1);
/// }
/// # if gekkota::Features::available() != gekkota::Features::NONE {
/// # parse_calls_the_lexer();
/// # parse_calls_the_lexer();
/// # }
/// ```
///
/// The number of samples and their shares differ from run to run, so a test should not depend on
/// them. In a benchmark, start the session before the measured loop and finish it after the loop:
/// to start, to stop and to write a profile takes milliseconds. Compare two versions of a program
/// with [`Profile::diff`], which knows chance from change. The example `criterion_profiler` records
/// a profile of each Criterion benchmark.
///
#[derive(Debug)]
#[must_use = "the profiler stops when this is dropped"]
#[doc(alias = "SamplerThread")]
pub struct ProfilerSession {
    generation: Generation,
    /// The profile that [`finish`](Self::finish) took.
    finished: Option<Box<backend::FrozenProfile>>,
}

impl ProfilerSession {
    /// Starts a session, as [`profiler_start`] does, unless the session of another
    /// `ProfilerSession` runs.
    ///
    /// # Errors
    /// Those of [`profiler_start`], and
    /// [`StartError::SessionRuns`].
    #[track_caller]
    pub fn start(params: StartParams) -> Result<Self, StartError> {
        Self::start_at(params, Location::caller(), WhileOtherRuns::Fail)
    }

    /// Starts a session as [`start`](Self::start) does, after waiting until no session of another
    /// `ProfilerSession` runs.
    ///
    /// Several waiting calls go on in no particular order. The wait has no limit: a guard that is
    /// leaked, by [`std::mem::forget`] for example, ends its turn only when another call stops the
    /// profiler. A panic that drops a guard ends the guard's turn. The child of a fork has no
    /// session, so a call there does not wait for a guard of the parent.
    ///
    /// # Errors
    /// Those of [`profiler_start`]. If the calling thread
    /// itself started the running session, [`StartError::SessionRuns`], because the wait would
    /// never end.
    #[track_caller]
    pub fn start_in_turn(params: StartParams) -> Result<Self, StartError> {
        Self::start_at(params, Location::caller(), WhileOtherRuns::Wait)
    }

    fn start_at(
        params: StartParams,
        place: &'static Location<'static>,
        while_other_runs: WhileOtherRuns,
    ) -> Result<Self, StartError> {
        let generation = backend::start_guarded(&params, place, while_other_runs)?;
        Ok(Self {
            generation,
            finished: None,
        })
    }

    /// Takes the profile so far. The session continues.
    ///
    /// Cost: copies lists, and shares the buffer's memory. The costly work happens when the profile
    /// is written.
    ///
    /// # Errors
    /// [`StreamError::Inactive`] if another call has stopped or restarted the profiler.
    pub fn snapshot(&self) -> Result<Profile, StreamError> {
        backend::freeze(Some(self.generation))
            .map(Profile::of_session)
            .ok_or(StreamError::Inactive)
    }

    /// Takes the whole profile, and ends the session.
    ///
    /// # Errors
    /// [`StreamError::Inactive`] if another call has stopped or restarted the profiler.
    pub fn finish(mut self) -> Result<Profile, StreamError> {
        let profile = self.snapshot();
        let taken = profile.as_ref().ok().and_then(Profile::as_session);
        self.finished = taken.cloned().map(Box::new);
        profile
    }
}

impl Drop for ProfilerSession {
    fn drop(&mut self) {
        backend::end_guarded_session(self.generation, self.finished.take().map(|taken| *taken));
    }
}

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

/// Adds a callback for changes to any of `states`, until [`profiler_remove_state_change_callback`]
/// removes it by its id.
///
/// | State | When the callback is called |
/// |---|---|
/// | [`AlreadyActive`] | by this function, for the new callback only, if the profiler is active |
/// | [`Started`] | after a start or a restart |
/// | [`Pausing`], [`Resumed`] | before a pause, and after it; not for a call that changes nothing, and not for a pause of sampling only |
/// | [`GeneratingProfile`] | before each profile is taken |
/// | [`Stopping`] | before a stop; not before a restart, but after a restart that failed and ended the old session |
/// | [`ShuttingDown`] | in `profiler_shutdown`, after `Stopping` and before the file or report of the environment is written |
/// | [`RemovingCallback`] | by the function that removes the callback |
///
/// The thread that changes the state calls the callbacks, in the order in which they were added,
/// and waits for them. Callbacks outlive sessions and a shutdown. `id` may be any number. A
/// callback with the id 0 is never removed. Two callbacks may share an id, and are then removed
/// together.
///
/// A callback holds no lock of the profiler and may call any of its functions. If a callback
/// changes the state, the callbacks for that change run before it continues. To prevent endless
/// recursion, a callback is not called for a state that it is already handling on the same thread,
/// and calls nest at most 16 deep. Threads that change the state at the same time call the
/// callbacks at the same time. A panic of a callback is caught, and the profiler proceeds.
///
/// May be called from any thread. Cost: the profiler's lock for a moment. Idea: Gecko's
/// `profiler_add_state_change_callback`, which reports `Pausing` even if nothing changes, and whose
/// callbacks may not add or remove callbacks.
///
/// [`AlreadyActive`]: ProfilingState::AlreadyActive
/// [`Started`]: ProfilingState::Started
/// [`Pausing`]: ProfilingState::Pausing
/// [`Resumed`]: ProfilingState::Resumed
/// [`GeneratingProfile`]: ProfilingState::GeneratingProfile
/// [`Stopping`]: ProfilingState::Stopping
/// [`ShuttingDown`]: ProfilingState::ShuttingDown
/// [`RemovingCallback`]: ProfilingState::RemovingCallback
pub fn profiler_add_state_change_callback(
    states: ProfilingStates,
    callback: impl Fn(ProfilingState) + Send + Sync + 'static,
    id: u64,
) {
    backend::add_state_change_callback(states, id, Box::new(callback));
}

/// Removes all callbacks with this id, and calls them with
/// [`RemovingCallback`](ProfilingState::RemovingCallback). Ignores an unknown id, and 0.
///
/// Another thread may still be running such a callback when this function returns. May be called
/// from any thread. Cost: the profiler's lock for a moment. Idea: Gecko's
/// `profiler_remove_state_change_callback`.
pub fn profiler_remove_state_change_callback(id: u64) {
    backend::remove_state_change_callback(id);
}

/// Calls `callback` once, after the next complete sampling loop. Returns `false`, and drops the
/// callback without calling it, if the profiler is inactive or stopping, if its sampler has failed,
/// or if the system refuses to create a thread.
///
/// The argument reports the outcome of the loop. With
/// [`SamplingCompleted`](SamplingState::SamplingCompleted), the buffer contains a sample, taken
/// after this call, of every profiled thread that has answered. To ensure that, the callback runs
/// after the tick that follows the loop, at most three intervals from now. In a pause, and in a
/// session without stack sampling, it runs directly after the loop.
///
/// Callbacks run in the order in which they were added, one after the other, on a thread of the
/// profiler, where all signals but those of faults are blocked. They hold no lock, and may call any
/// function of the profiler, including those that start or stop it. Sampling continues while a
/// callback runs. A stop does not wait for a running callback. Callbacks that have not begun when
/// the session ends are called on the thread that ends it, before that call returns: with
/// [`JustStopped`](SamplingState::JustStopped), unless their loop was already complete. Pending
/// callbacks are lost in the child of a `fork`. A panic of a callback is caught.
///
/// May be called from any thread. Cost: the profiler's lock for a moment; the first callback of a
/// session creates the thread. Idea: Gecko's `profiler_callback_after_sampling`.
pub fn profiler_callback_after_sampling(
    callback: impl FnOnce(SamplingState) + Send + 'static,
) -> bool {
    backend::callback_after_sampling(Box::new(callback))
}

/// Lets one signal start the profiler, and another save the profile and stop the profiler.
///
/// ```no_run
/// gekkota::profiler_control_by_signals(gekkota::ControlSignals::new().folder("/var/tmp"))?;
/// # Ok::<(), gekkota::StartError>(())
/// ```
///
/// By default, `kill -USR1 PID` starts the profiler with the default features, all registered
/// threads, 512 MiB and 1 ms, and is ignored while the profiler is active. `kill -USR2 PID` saves
/// the profile as `profile_TYPE_PID.json`, readable only by its owner, where the type is that of
/// [`profiler_set_process_type`](crate::api::process::profiler_set_process_type), or `default`.
/// Then it stops the session, whichever call started it. A profile of that name is replaced. If
/// saving fails, the session continues. A line on standard error reports each result. With
/// `MOZ_PROFILER_SIGNALS=1`, [`profiler_init`] calls this function with the defaults, unless the
/// application has called it before.
///
/// The signal handlers only write one byte to a pipe; a thread of the profiler does the work. A
/// previous handler is called afterwards, with the kernel's arguments. [`profiler_shutdown`]
/// restores the previous handler, unless another handler has replaced the profiler's by then. If
/// the signal had no handler before, the profiler's stays installed and does nothing, because the
/// default action would end the process when a late signal arrives. A second call changes the
/// signals and the folder; if it fails, they stay as they were. In the child of a `fork` the
/// signals have no effect on the profiler until the child calls this function.
///
/// If the application closes unknown files, as `closefrom` does, it also closes the pipe. The
/// profiler then restores the signals and prints a line to standard error. It does not touch the
/// application's files. Another call sets up the control again.
///
/// Until this function is called, directly or by `profiler_init`, the signals have their default
/// action, which ends the process. `exec` restores that action.
///
/// May be called from any thread. Cost: about 0.1 ms. Idea: Gecko's asynchronous control by POSIX
/// signals.
///
/// # Errors
/// - [`StartError::BadValue`]: a signal cannot be used for control, serves both purposes, or is the
///   sampling signal.
/// - [`StartError::ControlSystem`]: the operating system refused a call, for example to create a
///   pipe or a thread.
/// - [`StartError::Unsupported`]: this build contains no profiler.
pub fn profiler_control_by_signals(signals: ControlSignals) -> Result<(), StartError> {
    backend::control_by_signals(&signals)
}

/// Returns the environment variables that start the profiler in a child process with this session's
/// settings, if the child uses this crate too.
///
/// ```no_run
/// let mut child = std::process::Command::new("worker");
/// child.envs(gekkota::process::profiler_env_vars_for_child_process());
/// // Add the child's own variables afterwards.
/// child.env("MOZ_PROFILER_SHUTDOWN", "worker-%p.json");
/// ```
///
/// While the profiler is active, the variables start the child's profiler with the session's
/// capacity, duration, interval, features, filters and tab id, and keep it from saving to this
/// process's file. While it is inactive, they keep the child's profiler from starting. Limits: the
/// capacity is clamped to 128 MiB … 2 GiB and rounded up to a power of two, a filter that contains
/// a comma becomes two, and the signal is not passed on.
///
/// If child processes take part in the session
/// ([`StartParams::children`](crate::StartParams::children)), the variables `GEKKOTA_FAMILY` and
/// `GEKKOTA_FAMILY_CAPACITY` let the child find this process, and start with the exact capacity.
/// [`profiler_command`](crate::process::profiler_command) sets all of them.
///
/// A program that runs with more rights than the user who started it always passes an empty
/// `MOZ_PROFILER_SHUTDOWN`, so that its children do not save to a file that this user chose.
///
/// May be called from any thread. Cost: the profiler's lock for a moment.
#[doc(alias = "GetProfilerEnvVarsForChildProcess")]
pub fn profiler_env_vars_for_child_process() -> Vec<(String, String)> {
    backend::env_vars_for_child_process()
}
