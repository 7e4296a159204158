//! What a host says of its process: its name, its pages, and what its children recorded.

use crate::api::engine;
use crate::base::{ExitProfileError, Page};

/// Says what the process is called, and optionally which site it works for: for who reads the profile.
///
/// Until it is said, the process is called as its executable is. The viewer shows the site in the place of the name, where
/// there is one. Both may be said again; it stays until
/// [`profiler_shutdown`](crate::profiler_shutdown). From any thread, active or not. Cost: a lock and two copies. Idea:
/// Gecko's function of the same name; `etld1` is the registrable domain, its "eTLD+1".
pub fn profiler_set_process_name(name: &str, etld1: Option<&str>) {
    engine::set_process_name(name, etld1);
}

/// Makes a page known, so that it stands in the profile.
///
/// The viewer offers its tab to look at where some marker says that it belongs to it
/// ([`MarkerOptions::with_inner_window_id`](crate::MarkerOptions::with_inner_window_id)): the threads that have such markers. Its
/// tooltips name the page. Nothing happens with the id 0.
///
/// One that is known with the same id is replaced; its place in the profile stays. From any thread, active or not; it stays
/// until [`profiler_shutdown`](crate::profiler_shutdown). Cost: a lock and a look at each page. Idea: Gecko's function of the
/// same name.
///
/// ```
/// use gekkota::process::{Page, profiler_register_page, profiler_unregister_page};
/// profiler_register_page(Page::new(7, "https://example.org/").tab_id(1));
/// profiler_unregister_page(7);
/// ```
pub fn profiler_register_page(page: Page) {
    engine::register_page(page);
}

/// Says that a page is gone. The profile still has it while the buffer reaches back to its time. Nothing happens if it is not
/// known. From any thread. Cost: a lock and a look at each page.
pub fn profiler_unregister_page(inner_window_id: u64) {
    engine::unregister_page(inner_window_id);
}

/// Forgets all pages, those that the profile still had included. From any thread.
pub fn profiler_clear_all_pages() {
    engine::clear_all_pages();
}

/// Takes the profile of a child process that has ended, in Gecko's format and uncompressed, into every profile that is taken
/// from now on, as long as the buffer reaches back to this moment and the session runs.
///
/// The viewer shows the child's threads beside this process's, and those of the processes in its profile. A profile that is
/// given twice is there twice. [`Profile::summarize`](crate::Profile::summarize) leaves them out. From any thread. Cost: the
/// text is read through, and kept. Idea: Gecko's function of the same name.
///
/// ```no_run
/// let file = std::env::temp_dir().join("child.json");
/// std::process::Command::new("worker")
///     .envs(gekkota::process::profiler_env_vars_for_child_process())
///     // After those, which may say that it saves nothing.
///     .env("MOZ_PROFILER_SHUTDOWN", &file)
///     .status()?;
/// gekkota::process::profiler_received_exit_profile(std::fs::read_to_string(&file)?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ExitProfileError`]: the profiler is not active, or the text is no profile. It is then not kept.
pub fn profiler_received_exit_profile(profile: impl Into<String>) -> Result<(), ExitProfileError> {
    engine::received_exit_profile(profile.into())
}
