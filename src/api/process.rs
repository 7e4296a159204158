//! Name and pages of the process in the profile, and the profiles of its child processes.

use std::io;
use std::process::Command;
use std::time::Duration;

use crate::api::backend;
use crate::types::{ExitProfileError, Page};

/// Sets the process's name in the profile, and optionally the site that it works for.
///
/// The default name is that of the executable. If there is a site, the viewer shows it instead of
/// the name. `etld1` is the site's registrable domain, its "eTLD+1". Both can be set again. They
/// last until [`profiler_shutdown`](crate::api::life_cycle::profiler_shutdown).
///
/// May be called from any thread, whether or not the profiler is active. Cost: a lock and two
/// copies. Idea: Gecko's function of the same name.
pub fn profiler_set_process_name(name: &str, etld1: Option<&str>) {
    backend::set_process_name(name, etld1);
}

/// Sets the kind of process in the profile, such as `worker`.
///
/// Each thread in the profile has the kind and the process's name, so that a reader can group
/// processes by kind. The kind is also in the name of the file that a signal saves. The default,
/// and the meaning of an empty text, is `default`, which is Gecko's type for the process that the
/// user started. It can be set again, and lasts until
/// [`profiler_shutdown`](crate::api::life_cycle::profiler_shutdown). The viewer has names of its
/// own for Gecko's types, such as `tab` and `gpu`.
///
/// May be called from any thread, whether or not the profiler is active. Cost: a lock and a copy.
/// Idea: Gecko's `XRE_GetProcessTypeString`.
///
/// ```
/// gekkota::process::profiler_set_process_type("worker");
/// ```
#[doc(alias = "processType", alias = "GeckoProcessType")]
pub fn profiler_set_process_type(process_type: &str) {
    backend::set_process_type(process_type);
}

/// Sets the program's version in the profile.
///
/// The viewer shows the number at the beginning of the version next to the program's name. The
/// whole version is in the further information about the profile. An empty text removes it. It can
/// be set again, and lasts until [`profiler_shutdown`](crate::api::life_cycle::profiler_shutdown).
/// Without it, the profile has the build id of the executable, which tells builds apart, too.
///
/// May be called from any thread, whether or not the profiler is active. Cost: a lock and a copy.
///
/// ```
/// gekkota::process::profiler_set_version(env!("CARGO_PKG_VERSION"));
/// ```
#[doc(alias = "appBuildID")]
pub fn profiler_set_version(version: &str) {
    backend::set_version(version);
}

/// Registers a page, so that the profile lists it.
///
/// The viewer offers the page's tab for selection if a marker belongs to the page
/// ([`MarkerOptions::with_inner_window_id`](crate::markers::MarkerOptions::with_inner_window_id)),
/// and then shows the threads with such markers. Tooltips name the page. A page with the id 0 is
/// ignored. A page replaces one with the same id and takes its place in the profile. It stays until
/// [`profiler_shutdown`](crate::api::life_cycle::profiler_shutdown).
///
/// May be called from any thread, whether or not the profiler is active. Cost: a lock and a search
/// through all pages. Idea: Gecko's function of the same name.
///
/// ```
/// use gekkota::process::{Page, profiler_register_page, profiler_unregister_page};
/// profiler_register_page(Page::new(7, "https://example.org/").tab_id(1));
/// profiler_unregister_page(7);
/// ```
#[doc(alias = "PageInformation")]
pub fn profiler_register_page(page: Page) {
    backend::register_page(page);
}

/// Unregisters a page. Profiles still list it while the buffer reaches back to this moment, within
/// the session's duration, and while all unregistered pages take less than a sixteenth of the
/// session's capacity. Ignores an unknown id.
///
/// May be called from any thread. Cost: a lock and a search through all pages.
pub fn profiler_unregister_page(inner_window_id: u64) {
    backend::unregister_page(inner_window_id);
}

/// Removes all pages, including unregistered ones that profiles would still list. May be called
/// from any thread.
pub fn profiler_clear_all_pages() {
    backend::clear_all_pages();
}

/// Prepares a command, so that the program which it starts joins the session of this process.
///
/// Sets the variables of
/// [`profiler_env_vars_for_child_process`](crate::process::profiler_env_vars_for_child_process).
/// The program joins when it calls [`profiler_init`](crate::profiler_init), if the session has
/// [`StartParams::children`](crate::StartParams::children). A program that does not use this crate
/// is not affected. Call this after the session's start, and set the child's own variables
/// afterwards.
///
/// May be called from any thread. Cost: the profiler's lock for a moment. Returns the command.
///
/// ```no_run
/// use gekkota::{StartParams, process::profiler_command};
///
/// gekkota::profiler_start(StartParams::default().children(true))?;
/// let mut worker = profiler_command(&mut std::process::Command::new("worker")).spawn()?;
/// // … The worker sends its profile when it ends.
/// worker.wait()?;
/// gekkota::profiler_save_profile_to_file("family.json")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn profiler_command(command: &mut Command) -> &mut Command {
    command.envs(backend::env_vars_for_child_process())
}

/// Waits until the child processes that have joined record the session, for this time at most.
/// Returns how many do.
///
/// A child that has been started and has not called [`profiler_init`](crate::profiler_init) yet is
/// not waited for. To wait for a certain number of children, call this until it returns that
/// number. Returns 0 if the session has no [`StartParams::children`](crate::StartParams::children).
///
/// May be called from any thread. Looks once per millisecond. Idea: the promise that Gecko's
/// `profiler_start` returns.
///
/// ```
/// use std::time::Duration;
///
/// let recording = gekkota::process::profiler_wait_for_children(Duration::from_secs(1));
/// assert_eq!(recording, 0, "no child has joined");
/// ```
pub fn profiler_wait_for_children(timeout: Duration) -> usize {
    backend::wait_for_children(timeout)
}

/// Waits until the sampler of each child process that records the session has run, for this time at
/// most. Returns of how many it has.
///
/// Afterwards, each of these children has recorded what its threads did when this was called, for
/// example at a point that a test has brought all of them to. A child whose sampling is paused
/// counts, too. Returns 0 if the session has no
/// [`StartParams::children`](crate::StartParams::children). For this process, see
/// [`profiler_callback_after_sampling`](crate::callback::profiler_callback_after_sampling).
///
/// May be called from any thread. Looks once per millisecond. Idea: Gecko's
/// `ProfilerParent::WaitOnePeriodicSampling`.
///
/// ```
/// use std::time::Duration;
///
/// let sampled = gekkota::process::profiler_wait_for_sampling_of_children(Duration::from_secs(1));
/// assert_eq!(sampled, 0, "no child has joined");
/// ```
#[doc(alias = "WaitOnePeriodicSampling")]
pub fn profiler_wait_for_sampling_of_children(timeout: Duration) -> usize {
    backend::wait_for_sampling_of_children(timeout)
}

/// Prepares a command that replaces the program of this process, so that the profile continues.
///
/// A call of [`exec`](std::os::unix::process::CommandExt::exec) ends the session, and with it all
/// that was recorded. After this call, a program that calls
/// [`profiler_init`](crate::api::life_cycle::profiler_init) starts a session with the same
/// settings, and its profiles contain what was recorded before. The viewer shows one process. Its
/// former main thread is called “main thread before exec”. What was recorded before is kept and
/// dropped like the profile of a child process that has exited
/// ([`profiler_received_exit_profile`]): if it is too long, its older part is left out. Without a
/// session, the call does nothing.
///
/// In a child process that takes part in its parent's session, the parent keeps what was recorded
/// before, and this call passes no file on.
///
/// Sampling is paused from this call on. Drop the result if `exec` fails: the session then
/// continues.
///
/// May be called from any thread. Cost: that of writing the profile with its names, which may take
/// seconds, and a descriptor that the new program closes in `profiler_init`. A process that another
/// thread starts at the same time inherits it, too.
///
/// ```no_run
/// use std::os::unix::process::CommandExt;
/// let mut command = std::process::Command::new(std::env::current_exe()?);
/// let handover = gekkota::process::profiler_prepare_exec(&mut command)?;
/// let error = command.exec();
/// drop(handover);
/// eprintln!("cannot replace the program: {error}");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The error of the file without a name that the profile is written to, in `/var/tmp`, `/tmp` or
/// memory. The command is usable, and the session continues.
pub fn profiler_prepare_exec(command: &mut Command) -> io::Result<ExecHandover> {
    let inner = backend::prepare_exec(command)?;
    Ok(ExecHandover { _inner: inner })
}

/// The profile of a program that is about to be replaced: see [`profiler_prepare_exec`]. Dropping
/// it lets the session go on.
#[derive(Debug)]
#[must_use = "dropping it lets the session go on without the handover"]
pub struct ExecHandover {
    _inner: Option<backend::ExecHandover>,
}

/// Adds the profile of an exited child process to every later profile of this session. The profile
/// must be uncompressed JSON in Gecko's format.
///
/// The session keeps it while the buffer reaches back to this moment, within the session's
/// duration. Together, exit profiles may take a quarter of the session's capacity. Beyond it, the
/// oldest are dropped, and the profile's `meta.losses` counts them. The viewer shows the threads of
/// the child, and of the processes whose profiles it contains, next to those of this process. A
/// profile that is added twice appears twice.
/// [`Profile::summarize`](crate::api::profile::Profile::summarize) leaves such profiles out.
///
/// May be called from any thread. Cost: parses the text once, and keeps it. Idea: Gecko's function
/// of the same name.
///
/// ```no_run
/// let file = std::env::temp_dir().join("child.json");
/// std::process::Command::new("worker")
///     .envs(gekkota::process::profiler_env_vars_for_child_process())
///     // Last, because the variables above may turn saving off.
///     .env("MOZ_PROFILER_SHUTDOWN", &file)
///     .status()?;
/// gekkota::process::profiler_received_exit_profile(std::fs::read_to_string(&file)?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ExitProfileError`] if the profiler is inactive, if the text is not a profile, if it is larger
/// than a quarter of the session's capacity or than 1 GiB, if it contains more than 16 levels of
/// processes within processes, or if there is not enough memory for its copies. The text is
/// dropped.
#[doc(alias = "AddExitProfile")]
#[doc(alias = "ShutdownProfile")]
pub fn profiler_received_exit_profile(profile: impl Into<String>) -> Result<(), ExitProfileError> {
    backend::received_exit_profile(profile.into())
}
