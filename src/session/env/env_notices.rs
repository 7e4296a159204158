//! Notices to the person who set the variables, and the look of a text on that person's terminal.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use crate::platform::{StandardStream, is_terminal, terminal_columns};
use crate::session::env::environment::{
    crash_file, hands_out_profiles, has_shutdown_variable, is_switched_on, shutdown_path, variable,
    wants_report, wants_signals,
};
use crate::session::env::environment_table::{FILTERS, HELP, REPORT, SHUTDOWN, STARTUP};
use crate::session::env::notices;
use crate::session::family::family;
use crate::state::RacyFeatures;
use crate::types::{Look, Warning, unmatched_filters};
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

/// Width of a terminal that does not say how wide it is.
const USUAL_COLUMNS: usize = 80;

/// Returns the look that fits the stream: colors and a width for a terminal, and a plain text for
/// anything else.
///
/// `COLUMNS` overrides the width that the terminal reports. A terminal gets no colors if `NO_COLOR`
/// is set to anything, or if `TERM` is `dumb` or not set.
pub(crate) fn look_on(stream: StandardStream) -> Look {
    if !is_terminal(stream) {
        return Look::Plain;
    }
    let value_of = |name: &str| {
        let value = variable(name).filter(|value| !value.is_empty());
        value.map(|value| value.to_string_lossy().into_owned())
    };
    terminal_look(value_of, terminal_columns(stream))
}

fn terminal_look(value_of: impl Fn(&str) -> Option<String>, reported: Option<usize>) -> Look {
    let chosen = value_of("COLUMNS").and_then(|columns| columns.trim().parse().ok());
    let chosen = chosen.filter(|&columns| columns > 0);
    Look::Terminal {
        columns: chosen.or(reported).unwrap_or(USUAL_COLUMNS),
        has_colors: value_of("NO_COLOR").is_none()
            && value_of("TERM").is_some_and(|term| term != "dumb"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_choose_width_and_colors() {
        let look = |variables: &[(&str, &str)], reported| {
            let value_of = |name: &str| {
                let mut known = variables.iter().filter(|(known, _)| *known == name);
                known.next().map(|(_, value)| (*value).to_owned())
            };
            match terminal_look(value_of, reported) {
                Look::Terminal {
                    columns,
                    has_colors,
                } => (columns, has_colors),
                Look::Plain => panic!("a terminal"),
            }
        };
        let xterm = ("TERM", "xterm");
        assert_eq!(look(&[xterm], Some(132)), (132, true));
        assert_eq!(look(&[xterm], None), (80, true));
        assert_eq!(look(&[xterm, ("COLUMNS", "60")], Some(132)), (60, true));
        assert_eq!(look(&[xterm, ("COLUMNS", "0")], Some(132)), (132, true));
        assert_eq!(look(&[xterm, ("COLUMNS", "wide")], None), (80, true));
        assert_eq!(look(&[xterm, ("NO_COLOR", "0")], None), (80, false));
        assert_eq!(look(&[("TERM", "dumb")], None), (80, false));
        assert_eq!(look(&[], None), (80, false));
    }
}
