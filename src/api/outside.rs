//! Control from outside the process, and what other processes are told.

use crate::api::engine;
use crate::base::{ControlSignals, StartError};

/// Lets signals start the profiler, and save and stop.
///
/// ```no_run
/// gekkota::profiler_control_by_signals(gekkota::ControlSignals::new().folder("/var/tmp"))?;
/// # Ok::<(), gekkota::StartError>(())
/// ```
///
/// `kill -USR1 PID` starts it, with the default features, all registered threads, 512 MiB and 1 ms; it is ignored while
/// the profiler is active. `kill -USR2 PID` saves the profile as `profile_default_PID.json`, readable by its owner alone,
/// and stops, whoever had started; where it cannot be saved, the profiler goes on. What was done, or why it was not, is
/// told on standard error in a line. `MOZ_PROFILER_SIGNALS=1` has [`profiler_init`](crate::profiler_init) call this, with the
/// defaults, unless the program has called it before.
///
/// The handlers write a byte to a pipe and no more, whatever the thread is doing; a thread of the profiler's own does the
/// work. A handler that was there before is called after ours, with what the
/// kernel gave but for `si_errno`. [`profiler_shutdown`](crate::profiler_shutdown) puts it
/// back, unless somebody else has put a handler over ours meanwhile; where there was none, ours stays and does nothing, since
/// the default action would end the process for a signal that comes late. Calling this again changes the signals and
/// the folder. In a child of `fork` the signals do nothing of ours, until it is called there.
///
/// A host that closes files which it does not know, as `closefrom` does, closes that pipe as well: the signals are given
/// back then, with a line on standard error, and nothing of the host's is touched. Calling this again begins anew.
///
/// Before this is called, or [`profiler_init`](crate::profiler_init) where the environment asks for it, the signals have their
/// default action, which ends the program; so they have in one that is started by `exec` in this one's place. A profile that
/// was saved before under the same name is replaced.
///
/// May be called from any thread; about 0.1 ms. Idea: Gecko's asynchronous control by POSIX signals.
///
/// # Errors
/// [`StartError::BadValue`] for a signal that is not free for this, for one signal twice, and for one that threads are
/// sampled by; [`StartError::System`] when the system makes no pipe or thread; [`StartError::Unsupported`].
pub fn profiler_control_by_signals(signals: ControlSignals) -> Result<(), StartError> {
    engine::control_by_signals(&signals)
}

/// The environment variables that make a child process, which uses this crate as well, start as this one has.
///
/// ```no_run
/// let mut child = std::process::Command::new("worker");
/// child.envs(gekkota::process::profiler_env_vars_for_child_process());
/// // What the child is to have otherwise comes after.
/// child.env("MOZ_PROFILER_SHUTDOWN", "worker-%p.json");
/// ```
///
/// While the profiler is active: that it starts, with the running session's capacity, duration, interval, features and
/// filters; and that it does not save at its end what this process is to save. While it is not: that it does not start.
/// Capacities outside of 128 MiB to 2 GiB become the nearest in there, and a filter with a comma becomes two. The signal
/// and the engine are not told.
///
/// May be called from any thread; takes the profiler's main lock for a moment.
#[doc(alias = "GetProfilerEnvVarsForChildProcess")]
pub fn profiler_env_vars_for_child_process() -> Vec<(String, String)> {
    engine::env_vars_for_child_process()
}
