//! Notices to the person who set the variables.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use crate::session::env::environment::{
    crash_file, hands_out_profiles, has_shutdown_variable, is_switched_on, shutdown_path,
    wants_report, wants_signals,
};
use crate::session::env::environment_table::{FILTERS, HELP, REPORT, SHUTDOWN, STARTUP};
use crate::session::family_events::family;
use crate::session::notices;
use crate::session::save::missing_folder;
use crate::state::RacyFeatures;
use crate::types::{Warning, unmatched_filters, unregistered_main_thread};
use crate::util::is_any_lock_held_on_current_thread;

/// Prints the problems, with the usage of the affected variables only: the usage of all variables
/// would hide the problems.
pub(crate) fn notify_problems(problems: &[String]) {
    let problems = problems.join("");
    notices::notify(&format!(
        "cannot start the profiler:\n{problems}  {HELP}=1 lists all variables"
    ));
}

/// Whether a notice that the variables' session is not saved is still to be written.
static UNSAVED: AtomicU8 = AtomicU8::new(NOT_STARTED);
const NOT_STARTED: u8 = 0;
/// The variables started a session.
const STARTED: u8 = 1;
/// A notice has said that the session is lost unless the application saves it, or need not say it.
const SAID: u8 = 2;

/// Notes that the variables have started the profiler.
pub(crate) fn note_start() {
    // An empty value is reported by `read`, unless a parent process intends it. Who takes profiles while
    // the program runs, or asks for a crash file, does not expect another one at its end.
    let is_said = has_shutdown_variable() || hands_out_profiles() || crash_file().is_some();
    UNSAVED.store(if is_said { SAID } else { STARTED }, Ordering::Relaxed);
}

/// Warns that the variables have started the profiler, but its profile will be lost unless the
/// application saves it.
pub(crate) fn notify_if_unsaved() {
    let is_invited = || family().is_some_and(|family| family.parents_invitation().is_some());
    let is_untold = UNSAVED.load(Ordering::Relaxed) == STARTED && RacyFeatures::is_active();
    if is_untold
        && shutdown_path().is_none()
        && !wants_signals()
        && !wants_report()
        && !is_invited()
    {
        UNSAVED.store(SAID, Ordering::Relaxed);
        notices::notify(&format!(
            "profiling, but the profile is lost unless the program saves it; {SHUTDOWN}=<file> saves \
             it when the program ends, and {REPORT}=1 prints a report then"
        ));
    }
}

/// Warns that the variables have started the profiler, but the profile lacks the main thread.
pub(crate) fn notify_unregistered_main_thread() {
    notices::notify(&unregistered_main_thread().text);
}

/// Warns that the application has dropped the session that the variables started before `main`.
pub(crate) fn notify_early_session_dropped() {
    notices::notify(
        "the program has started another session, which drops what was recorded since before main; \
         profiler_ensure_started with the same settings keeps it",
    );
}

/// Warns that the session which the variables started is still running at the end of the program.
/// Called if nothing saves the profile at the end. Allocates nothing: the thread that calls `exit` may
/// have interrupted the allocator.
pub(crate) fn notify_if_left_running() {
    if RacyFeatures::is_active()
        && !is_any_lock_held_on_current_thread()
        && UNSAVED
            .compare_exchange(STARTED, SAID, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    {
        notices::notify_left_running();
    }
}

/// Forgets that the variables have started a session.
pub(crate) fn forget_start() {
    UNSAVED.store(NOT_STARTED, Ordering::Relaxed);
}

/// Warns that an `AutoProfilerInit` was dropped as soon as it was made, which a short program does, and
/// one that does not bind it to a name. Only if the variables or the application ask for a profile.
pub(crate) fn notify_if_short_lived(lifetime: Duration) {
    /// Longer than from a construction to the drop of its value, and shorter than most programs.
    const SHORT: Duration = Duration::from_micros(10);
    let is_asked = UNSAVED.load(Ordering::Relaxed) != NOT_STARTED || shutdown_path().is_some();
    if lifetime < SHORT && is_asked && RacyFeatures::is_active() {
        notices::notify(&format!(
            "the AutoProfilerInit was dropped after {lifetime:.0?}, which ended the profile; if the \
             program runs on, expected `let _profiler = AutoProfilerInit::new();`, because `let _ = …` \
             drops it at once"
        ));
    }
}

/// Says that the profiler does not start because the filters select other processes.
pub(crate) fn notify_other_processes_selected(filters: &[String]) {
    let filters = filters.join(",");
    notices::notify(&format!(
        "not profiling: {FILTERS}={filters} selects only other processes"
    ));
}

/// Whether a report was printed, which has the warnings about its session.
static IS_REPORT_PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints the report that the user asked for.
pub(crate) fn print_report(report: &str) {
    notices::print_report(report);
    IS_REPORT_PRINTED.store(true, Ordering::Relaxed);
}

/// Prints the warning about filters that have selected no thread of a session. `threads` are the
/// names of the program's threads now.
pub(crate) fn notify_unmatched_filters(filters: &[String], threads: &[String]) {
    if !IS_REPORT_PRINTED.load(Ordering::Relaxed)
        && let Some(warning) = unmatched_filters(filters, threads)
    {
        notices::notify(&warning.text);
    }
}

/// Prints the warnings about the last profile of the process, once, if the variables started the
/// profiler. They are not printed if a report is: the report has them. The start and the end of a
/// session have printed those about the main thread and the filters.
pub(crate) fn notify_warnings(warnings: &[Warning]) {
    static ARE_PRINTED: AtomicBool = AtomicBool::new(false);
    let is_for_user = is_switched_on(STARTUP) && !wants_report();
    let untold = warnings
        .iter()
        .filter(|warning| !warning.is_told_elsewhere() && !warning.is_about_load);
    if is_for_user && !warnings.is_empty() && !ARE_PRINTED.swap(true, Ordering::Relaxed) {
        untold.for_each(|warning| notices::notify(&warning.text));
    }
}

/// Warns that a session could not record everything for lack of memory.
pub(crate) fn notify_out_of_memory(refused_chunks: u64) {
    notices::notify(&format!(
        "cannot record everything: got no memory for {refused_chunks} chunks of the buffer, \
         expected as much as its capacity; meta.losses of the profile counts what is missing"
    ));
}

/// Warns that a profile can probably not be saved at shutdown, while there is time to create the
/// folder.
pub(crate) fn notify_if_not_savable(path: &Path) {
    let problem = match (missing_folder(path), path.is_dir()) {
        (Some(folder), _) => format!("the folder {} does not exist", folder.display()),
        (None, true) => "it is a folder, expected the path of a file".to_owned(),
        (None, false) => return,
    };
    notices::notify(&format!(
        "the profile cannot be saved as {} unless that changes: {problem}",
        path.display()
    ));
}

/// Warns that no profile can be saved or reported at shutdown.
pub(crate) fn notify_no_profile_at_shutdown(path: Option<&Path>, is_forked: bool) {
    let reason = match is_switched_on(STARTUP) {
        true if is_forked => {
            "the profiler does not run in a child of fork before the child calls profiler_init"
                .to_owned()
        }
        true => "it was not started, or the program has stopped it".to_owned(),
        false => format!("{STARTUP}=1 starts it when the program creates its AutoProfilerInit"),
    };
    let action = match path {
        Some(path) => format!("save a profile as {}", path.display()),
        None => "print a report".to_owned(),
    };
    notices::notify(&format!(
        "cannot {action}: the profiler is not running; {reason}"
    ));
}
