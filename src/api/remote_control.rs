//! Control by signals, and the environment of child processes.

use crate::api::backend;
use crate::types::{ControlSignals, StartError};

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
/// `MOZ_PROFILER_SIGNALS=1`, [`profiler_init`](crate::api::life_cycle::profiler_init) calls this
/// function with the defaults, unless the application has called it before.
///
/// The signal handlers only write one byte to a pipe; a thread of the profiler does the work. A
/// previous handler is called afterwards, with the kernel's arguments.
/// [`profiler_shutdown`](crate::api::life_cycle::profiler_shutdown) restores the previous handler,
/// unless another handler has replaced the profiler's by then. If the signal had no handler before,
/// the profiler's stays installed and does nothing, because the default action would end the
/// process when a late signal arrives. A second call changes the signals and the folder; if it
/// fails, they stay as they were. In the child of a `fork` the signals have no effect on the
/// profiler until the child calls this function.
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
