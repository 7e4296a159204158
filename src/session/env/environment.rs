//! Reads the profiler's environment variables.
//!
//! A library must not end the application: for an invalid value, it prints a notice and the
//! variable's usage to standard error, and does not start the profiler.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::platform::{self, has_rights_of_another_user};
use crate::session::env::environment_table::{
    CHILDREN, CRASH_FILE, DUMP_SIGNAL, FEATURES, GECKO_ONLY, HELP, HTTP, HTTP_TOKEN, NO_BASE, PUSH,
    PUSH_INTERVAL, PUSH_QUEUE, PUSH_TOKEN, RECORD_OVERHEADS, REPORT, Reading, SET_BY_PARENT,
    SHUTDOWN, SIGNALS, STARTUP, SYMBOLICATE, UPLOAD_DIR, VARIABLES, Variable, help_text, is_on,
    nearest_name, setting_values,
};
use crate::session::env::notices;
use crate::session::family::{CAPACITY_VARIABLE, FAMILY_VARIABLE, family};
use crate::session::running::running_session;
use crate::state::SessionSettings;
use crate::types::{CAPACITY_RANGE_BYTES, StartParams, signal_number};
use crate::util::{PsCell, PsLock, is_any_lock_held_on_current_thread};

/// Prefix of all variables except [`UPLOAD_DIR`].
const PREFIX: &str = "MOZ_PROFILER_";

/// The action that the environment requests at start-up.
#[derive(Debug, PartialEq)]
pub(crate) enum StartUp {
    Off,
    Start(StartParams),
    /// Descriptions of the invalid values, each with its variable's usage.
    Problems(Vec<String>),
}

/// Returns the value of a variable, if it is set.
///
/// A program with the rights of another user reads no variable. The user who started it chose the
/// values, and could let the program replace a file that this user may not write.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    if has_rights_of_another_user() {
        return None;
    }
    platform::variable(name)
}

/// Returns the names of all variables that the program may read: see [`variable`].
fn variable_names() -> Vec<OsString> {
    if has_rights_of_another_user() {
        return Vec::new();
    }
    platform::variable_names()
}

pub(crate) fn raw_value_of(name: &str) -> Option<String> {
    variable(name).map(|value| value.to_string_lossy().into_owned())
}

pub(crate) fn is_switched_on(name: &str) -> bool {
    raw_value_of(name).is_some_and(|value| is_on(&value))
}

pub(crate) fn path_in(name: &str) -> Option<PathBuf> {
    variable(name)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

/// The current folder when [`read`] ran: the application may change it later.
static START_FOLDER: PsCell<Option<PathBuf>> = PsCell::new(None);

/// The file that the application asked for in code, with an absolute path.
static FILE_OF_APPLICATION: PsCell<Option<PathBuf>> = PsCell::new(None);

/// Sets the file for the last profile that the variable does not override.
pub(crate) fn set_file_of_application(path: Option<&Path>) {
    // The application may change the current folder later. Only an empty path has no absolute one.
    let path = path.and_then(|path| std::path::absolute(path).ok());
    *FILE_OF_APPLICATION.get_mut(&mut PsLock::acquire()) = path;
}

/// Returns the path of the profile to save at shutdown: that of the variable, or else the one that
/// the application asked for. An empty variable means that no file is saved. A relative path is
/// relative to the folder that was current when [`read`] ran.
pub(crate) fn shutdown_path() -> Option<PathBuf> {
    if !has_shutdown_variable() {
        return FILE_OF_APPLICATION.get(&PsLock::acquire()).clone();
    }
    let path = path_in(SHUTDOWN)?;
    let folder = START_FOLDER.get(&PsLock::acquire()).clone();
    Some(folder.map_or_else(|| path.clone(), |folder| folder.join(&path)))
}

/// Returns whether the variables start the profiler, if their values are valid.
pub(crate) fn is_startup_on() -> bool {
    is_switched_on(STARTUP)
}

/// Returns whether the variables start the profiler before `main`, if the program contains
/// `early_start!`.
pub(crate) fn is_early_startup_on() -> bool {
    is_startup_on() && !is_switched_on(NO_BASE)
}

/// Returns whether the variable decides which file the profile is saved to, even if it is empty.
pub(crate) fn has_shutdown_variable() -> bool {
    variable(SHUTDOWN).is_some()
}

/// Returns the folder for profiles that a signal saves, if the variable is set.
pub(crate) fn upload_folder() -> Option<PathBuf> {
    path_in(UPLOAD_DIR)
}

/// Returns the signal that causes dumps, or the text that names none. `None` if the variable is not
/// set.
pub(crate) fn dump_signal() -> Option<Result<i32, String>> {
    let text = raw_value_of(DUMP_SIGNAL).filter(|text| !text.is_empty())?;
    Some(signal_number(&text).ok_or(text))
}

/// Returns whether the variables make profiles available while the program runs: by a dump, over
/// HTTP, or from a store.
pub(crate) fn hands_out_profiles() -> bool {
    dump_signal().is_some_and(|signal| signal.is_ok())
        || (cfg!(feature = "http") && http_variables().is_some())
        || (cfg!(feature = "push") && push_variables().is_some())
}

pub(crate) fn wants_signals() -> bool {
    is_switched_on(SIGNALS)
}

/// Returns whether profiles contain function names by default.
pub(crate) fn wants_names() -> bool {
    raw_value_of(SYMBOLICATE).is_none_or(|value| value.is_empty() || is_on(&value))
}

/// Whether the application asked in code for a report.
static IS_REPORT_OF_APPLICATION: AtomicBool = AtomicBool::new(false);

/// Sets whether a report is printed at shutdown if the variable is not set.
pub(crate) fn set_report_of_application(is_wanted: bool) {
    IS_REPORT_OF_APPLICATION.store(is_wanted, Ordering::Relaxed);
}

/// Returns whether a report is printed at shutdown.
pub(crate) fn wants_report() -> bool {
    match raw_value_of(REPORT) {
        Some(value) => is_on(&value),
        None => IS_REPORT_OF_APPLICATION.load(Ordering::Relaxed),
    }
}

/// Returns whether the profile is used at shutdown.
pub(crate) fn uses_profile_at_shutdown() -> bool {
    wants_report() || shutdown_path().is_some()
}

/// Returns the crash file for sessions that do not ask for one themselves. A relative path is
/// relative to the folder that was current when [`read`] ran.
pub(crate) fn crash_file() -> Option<PathBuf> {
    let path = path_in(CRASH_FILE)?;
    let folder = START_FOLDER.get(&PsLock::acquire()).clone();
    Some(folder.map_or_else(|| path.clone(), |folder| folder.join(&path)))
}

pub(crate) fn records_overheads() -> bool {
    is_switched_on(RECORD_OVERHEADS)
}

/// Returns whether child processes take part in every session.
pub(crate) fn wants_children() -> bool {
    is_switched_on(CHILDREN)
}

/// Returns the address at which to serve profiles, and the token, if the variables have them.
pub(crate) fn http_variables() -> Option<(String, Option<String>)> {
    let address = raw_value_of(HTTP).filter(|address| !address.is_empty())?;
    Some((address, raw_value_of(HTTP_TOKEN)))
}

/// Returns the address to push profiles to, and the interval, the secret and the folder, if the
/// variables have them.
pub(crate) fn push_variables() -> Option<(String, [Option<String>; 2], Option<PathBuf>)> {
    let address = raw_value_of(PUSH).filter(|address| !address.is_empty())?;
    let others = [PUSH_INTERVAL, PUSH_TOKEN].map(raw_value_of);
    Some((address, others, path_in(PUSH_QUEUE)))
}

/// Reads the variables. Prints the help if requested, and notices about unknown variables and
/// features.
pub(crate) fn read() -> StartUp {
    // If the current folder is unknown, for example because it was removed, relative paths stay
    // relative.
    let folder = env::current_dir().ok();
    *START_FOLDER.get_mut(&mut PsLock::acquire()) = folder;
    if variable(HELP).is_some() {
        notices::print(&help_text());
    }
    for name in variable_names() {
        if let Some(warning) = warning_about_name(&name.to_string_lossy()) {
            notices::notify(&warning);
        }
    }
    if variable(SHUTDOWN).is_some_and(|path| path.is_empty()) && !is_configured_by_parent() {
        notices::notify(&format!(
            "cannot save a profile at shutdown: {SHUTDOWN} is empty, expected a path"
        ));
    }
    #[cfg(not(feature = "http"))]
    if http_variables().is_some() {
        notices::notify(&format!(
            "cannot serve profiles: {HTTP} is set, expected a program with the cargo feature `http` of \
             gekkota"
        ));
    }
    #[cfg(not(feature = "push"))]
    if push_variables().is_some() {
        notices::notify(&format!(
            "cannot push profiles: {PUSH} is set, expected a program with the cargo feature `push` of \
             gekkota"
        ));
    }
    let (start_up, warnings) = read_start_up(&raw_value_of);
    for warning in warnings {
        notices::notify(&warning);
    }
    start_up
}

/// Reads the variables from `raw_value_of`. Also returns warnings, which do not affect the start.
fn read_start_up(raw_value_of: &dyn Fn(&str) -> Option<String>) -> (StartUp, Vec<String>) {
    if raw_value_of(STARTUP).is_none_or(|value| !is_on(&value)) {
        return (StartUp::Off, Vec::new());
    }
    let mut reading = Reading::default();
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    for variable in VARIABLES {
        let Some(apply) = variable.apply else {
            continue;
        };
        // An empty value counts as unset, except for feature names, where it is an empty list.
        let value = raw_value_of(variable.name);
        let Some(value) = value.filter(|value| !value.is_empty() || variable.name == FEATURES)
        else {
            continue;
        };
        let Variable { name, .. } = variable;
        let result = apply(&mut reading, &value);
        let named = |warning| format!("{name}: {warning} {HELP}=1 lists all features");
        warnings.extend(reading.warnings.drain(..).map(named));
        if let Err(found) = result {
            problems.push(format!(
                "  {name}: got {value:?} ({found}), expected:\n{}",
                variable.usage()
            ));
        }
    }
    let mut params = reading.params;
    // A parent process knows the capacity exactly, and sets all other variables, too.
    if SET_BY_PARENT
        .iter()
        .all(|name| raw_value_of(name).is_some())
        && let Some(capacity) = raw_value_of(CAPACITY_VARIABLE)
        && let Ok(capacity) = capacity.parse()
        && CAPACITY_RANGE_BYTES.contains(&capacity)
    {
        params.capacity_bytes = capacity;
    }
    if problems.is_empty() {
        (StartUp::Start(params), warnings)
    } else {
        (StartUp::Problems(problems), warnings)
    }
}

/// Returns a warning if a variable has the profiler's prefix but is unknown.
fn warning_about_name(name: &str) -> Option<String> {
    if !name.starts_with(PREFIX)
        || VARIABLES.iter().any(|variable| variable.name == name)
        || GECKO_ONLY.contains(&name)
    {
        return None;
    }
    let known = VARIABLES.iter().map(|variable| variable.name);
    let length = name.len() - PREFIX.len();
    let nearest = nearest_name(known, length, |known| name_distance(name, known));
    let question = nearest.map_or(String::new(), |nearest| format!(" did you mean {nearest}?"));
    Some(format!(
        "unknown variable {name}, ignored;{question} {HELP}=1 lists all variables"
    ))
}

/// Returns the edit distance of two names, in which two swapped letters count as one edit. A
/// missing `STARTUP_`, which is easily forgotten, also counts as one edit.
fn name_distance(name: &str, known: &str) -> usize {
    let start = format!("{STARTUP}_");
    let without = known
        .strip_prefix(&start)
        .map(|rest| strsim::osa_distance(name, &format!("{PREFIX}{rest}")) + 1);
    strsim::osa_distance(name, known).min(without.unwrap_or(usize::MAX))
}

/// See `profiler_env_vars_for_child_process`.
pub(crate) fn env_vars_for_child_process() -> Vec<(String, String)> {
    if is_any_lock_held_on_current_thread() {
        return Vec::new();
    }
    let settings = running_session().map(|(_, session)| session.settings.clone());
    let saves = has_shutdown_variable() || shutdown_path().is_some();
    let is_active = settings.is_some();
    let mut pairs = values_for_child(settings.as_ref(), saves, wants_report());
    if let Some(settings) = settings.filter(|settings| settings.has_children) {
        let capacity = settings.capacity_bytes.to_string();
        pairs.push((CHILDREN.to_owned(), "1".to_owned()));
        pairs.push((CAPACITY_VARIABLE.to_owned(), capacity));
    }
    let invitation = family().and_then(|family| family.invitation());
    // The value has the path of a folder with a name of its own, in one that the variables name.
    if let Some((name, Ok(value))) = invitation.map(|(name, value)| (name, value.into_string())) {
        pairs.push((name.to_owned(), value));
    }
    if is_active && is_switched_on(NO_BASE) {
        pairs.push((NO_BASE.to_owned(), "1".to_owned()));
    }
    // The child inherits the variables that this process does not trust, and may trust them.
    if has_rights_of_another_user() {
        pairs.push((SHUTDOWN.to_owned(), String::new()));
    }
    pairs
}

/// Returns the variables for the program that replaces this one by `exec`: those that start a
/// session with the settings of the running one. The next image saves to the same file.
pub(crate) fn env_vars_for_next_image() -> Vec<(String, String)> {
    let Some((_, session)) = running_session() else {
        return Vec::new();
    };
    let settings = &session.settings;
    let mut pairs = values_for_child(Some(settings), false, false);
    if settings.has_children {
        pairs.push((CHILDREN.to_owned(), "1".to_owned()));
    }
    // The process stays the child of its parent, and its own children lose it.
    if let Some(family) = family() {
        let invitation = family.parents_invitation().unwrap_or_default();
        pairs.push((FAMILY_VARIABLE.to_owned(), invitation));
    }
    pairs
}

/// Returns whether a parent process set the variables: it sets more of them than a person does.
/// Such a parent empties [`SHUTDOWN`] on purpose.
pub(crate) fn is_configured_by_parent() -> bool {
    SET_BY_PARENT.iter().all(|name| variable(name).is_some())
}

fn values_for_child(
    settings: Option<&SessionSettings>,
    saves_at_shutdown: bool,
    reports_at_shutdown: bool,
) -> Vec<(String, String)> {
    let Some(settings) = settings else {
        return vec![(STARTUP.to_owned(), String::new())];
    };
    let mut pairs = vec![(STARTUP, "1".to_owned())];
    pairs.extend(setting_values(settings));
    // The child must not overwrite the parent's file, nor print a second report.
    if saves_at_shutdown {
        pairs.push((SHUTDOWN, String::new()));
    }
    if reports_at_shutdown {
        pairs.push((REPORT, String::new()));
    }
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::session::env::environment_table::{
        ACTIVE_TAB_ID, DURATION, ENTRIES, FEATURES_BITFIELD, FILTERS, INTERVAL, MAX_CPU,
        MAX_MARKERS, startup_features,
    };
    use crate::types::Features;

    fn read(variables: &[(&str, &str)]) -> (StartUp, Vec<String>) {
        let value_of = |name: &str| {
            Some(
                variables
                    .iter()
                    .find(|(known, _)| *known == name)?
                    .1
                    .to_owned(),
            )
        };
        read_start_up(&value_of)
    }

    fn params(variables: &[(&str, &str)]) -> StartParams {
        match read(&[&[(STARTUP, "1")], variables].concat()).0 {
            StartUp::Start(params) => params,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn assert_refused(name: &str, bad: &str) {
        let (StartUp::Problems(problems), _) = read(&[(STARTUP, "1"), (name, bad)]) else {
            panic!("{bad}")
        };
        let [problem] = &problems[..] else {
            panic!("{problems:?}")
        };
        let usage = VARIABLES
            .iter()
            .find(|variable| variable.name == name)
            .expect("known")
            .usage();
        let begin = format!("  {name}: got {bad:?} (");
        assert!(
            problem.starts_with(&begin) && problem.ends_with(&usage),
            "{problem}"
        );
    }

    #[test]
    fn startup_is_off_for_empty_and_geckos_three_values_only() {
        for off in ["", "0", "N", "n"] {
            assert_eq!(read(&[(STARTUP, off)]).0, StartUp::Off);
        }
        for on in ["1", "no", "00", "false"] {
            assert!(matches!(read(&[(STARTUP, on)]).0, StartUp::Start(_)));
        }
        assert_eq!(
            read(&[(INTERVAL, "nonsense")]).0,
            StartUp::Off,
            "other variables are ignored while startup is off"
        );
    }

    #[test]
    fn entries_accept_counts_and_bytes_within_limits() {
        assert_eq!(params(&[]).capacity_bytes, 512 << 20);
        assert_eq!(params(&[(ENTRIES, "")]).capacity_bytes, 512 << 20);
        assert_eq!(params(&[(ENTRIES, "1")]).capacity_bytes, 128 << 20);
        assert_eq!(params(&[(ENTRIES, "33554432")]).capacity_bytes, 256 << 20);
        assert_eq!(params(&[(ENTRIES, "2147483647")]).capacity_bytes, 2 << 30);
        for (unit, bytes) in [
            ("200000KB", 256 << 20),
            ("200MB", 256 << 20),
            ("2GB", 2 << 30),
            ("3GB", 2 << 30),
        ] {
            assert_eq!(params(&[(ENTRIES, unit)]).capacity_bytes, bytes, "{unit}");
        }
        assert_eq!(params(&[(ENTRIES, "300000KiB")]).capacity_bytes, 512 << 20);
        assert_eq!(params(&[(ENTRIES, "512MiB")]).capacity_bytes, 512 << 20);
        assert_eq!(params(&[(ENTRIES, "1GiB")]).capacity_bytes, 1 << 30);
        for bad in [
            "0",
            "0MiB",
            "-1",
            "x",
            "5kb",
            "1 MB",
            "1MBs",
            "2147483648",
            "99999999999999999999",
            "64GiB",
        ] {
            assert_refused(ENTRIES, bad);
        }
    }

    #[test]
    fn intervals_are_milliseconds() {
        assert_eq!(
            params(&[(INTERVAL, "0.5")]).interval,
            Duration::from_micros(500)
        );
        assert_eq!(
            params(&[(INTERVAL, "0.01")]).interval,
            Duration::from_micros(10)
        );
        assert_eq!(
            params(&[(INTERVAL, "10000")]).interval,
            Duration::from_secs(10)
        );
        for bad in [
            "0", "-1", "0.009", "10000.1", "NaN", "1e300", "soon", "1 ms",
        ] {
            assert_refused(INTERVAL, bad);
        }
    }

    #[test]
    fn maximum_cpu_time_is_in_percent() {
        assert_eq!(params(&[]).max_cpu_percent, None);
        for (text, percent) in [("0.01", 0.01), ("2.5", 2.5), ("100", 100.0)] {
            assert_eq!(params(&[(MAX_CPU, text)]).max_cpu_percent, Some(percent));
        }
        for bad in ["0", "0.009", "100.1", "-1", "NaN", "1 %", "little"] {
            assert_refused(MAX_CPU, bad);
        }
    }

    #[test]
    fn maximum_of_markers_is_a_whole_number_and_0_means_no_limit() {
        for (text, limit) in [("0", 0), (" 100 ", 100), ("4294967295", u32::MAX)] {
            assert_eq!(params(&[(MAX_MARKERS, text)]).max_markers_per_second, limit);
        }
        for bad in ["-1", "1.5", "4294967296", "few"] {
            assert_refused(MAX_MARKERS, bad);
        }
    }

    #[test]
    fn durations_are_seconds_and_0_means_no_limit() {
        assert_eq!(params(&[]).duration, None);
        assert_eq!(
            params(&[(DURATION, "2.5")]).duration,
            Some(Duration::from_millis(2500))
        );
        for no_limit in ["0", "0.0", "", "1e300", "inf"] {
            assert_eq!(params(&[(DURATION, no_limit)]).duration, None, "{no_limit}");
        }
        for bad in ["-1", "NaN", "5s", "soon"] {
            assert_refused(DURATION, bad);
        }
    }

    #[test]
    fn unknown_features_cause_a_warning_and_known_ones_apply() {
        let (start_up, warnings) = read(&[(STARTUP, "1"), (FEATURES, "cpu,,nonsense,stackwalk")]);
        let StartUp::Start(params) = start_up else {
            panic!("{start_up:?}")
        };
        assert_eq!(params.features, Features::CPU | Features::STACK_WALK);
        assert!(
            warnings.len() == 1 && warnings[0].contains("nonsense"),
            "{warnings:?}"
        );
        assert_eq!(self::params(&[]).features, startup_features());
        assert_eq!(
            self::params(&[(FEATURES, "default")]).features,
            startup_features()
        );
        let more = self::params(&[(FEATURES, "power,default")]).features;
        assert_eq!(more, startup_features() | Features::POWER);
        assert_eq!(self::params(&[(FEATURES, "")]).features, Features::NONE);
    }

    #[test]
    fn spaces_around_commas_are_ignored() {
        let features = params(&[(FEATURES, " cpu, stackwalk ,")]).features;
        assert_eq!(features, Features::CPU | Features::STACK_WALK);
        let filters = params(&[(FILTERS, "GeckoMain, worker 1 ,pid:7")]).filters;
        assert_eq!(filters, ["GeckoMain", "worker 1", "pid:7"]);
        for with_empty_parts in ["worker,", "worker, ", " ,,worker"] {
            let filters = params(&[(FILTERS, with_empty_parts)]).filters;
            assert_eq!(filters, ["worker"], "{with_empty_parts:?}");
        }
        assert!(params(&[(FILTERS, "")]).filters.is_empty());
        for without_name in [",", " , ", " "] {
            assert_refused(FILTERS, without_name);
        }
    }

    #[test]
    fn unknown_features_suggest_the_nearest_name() {
        let warning_of = |variable, value| {
            let (_, warnings) = read(&[(STARTUP, "1"), (variable, value)]);
            let [warning] = &warnings[..] else {
                panic!("{warnings:?}")
            };
            warning.clone()
        };
        for (misspelled, nearest) in [
            ("stackwak", "stackwalk"),
            ("StackWalk", "stackwalk"),
            ("procescpu", "processcpu"),
            ("defualt", "default"),
            ("Defaults", "default"),
        ] {
            let warning = warning_of(FEATURES, misspelled);
            let expected = format!(
                "{FEATURES}: unknown feature {misspelled:?}, ignored; did you mean {nearest:?}? "
            );
            assert!(warning.starts_with(&expected), "{warning}");
        }
        for unlike_any in ["nonsense", "x"] {
            let warning = warning_of(FEATURES, unlike_any);
            assert!(!warning.contains("did you mean"), "{warning}");
        }
        let warning = warning_of(FEATURES_BITFIELD, "2147483904");
        assert!(warning.contains("0x80000000"), "{warning}");
    }

    #[test]
    fn features_bitfield_overrides_feature_names() {
        let bits = [(FEATURES_BITFIELD, "256"), (FEATURES, "cpu")];
        assert_eq!(params(&bits).features, Features::STACK_WALK);
        let empty = [(FEATURES_BITFIELD, ""), (FEATURES, "cpu")];
        assert_eq!(params(&empty).features, Features::CPU);
        // Unknown bits are dropped.
        assert_eq!(
            params(&[(FEATURES_BITFIELD, "2147483904")]).features,
            Features::STACK_WALK
        );
        for bad in ["-1", "0x100", "stackwalk", "18446744073709551616"] {
            assert_refused(FEATURES_BITFIELD, bad);
        }
    }

    #[test]
    fn tab_ids_have_64_bits() {
        assert_eq!(params(&[]).active_tab_id, 0);
        assert_eq!(
            params(&[(ACTIVE_TAB_ID, "18446744073709551615")]).active_tab_id,
            u64::MAX
        );
        for bad in ["-1", "18446744073709551616", "tab"] {
            assert_refused(ACTIVE_TAB_ID, bad);
        }
    }

    #[test]
    fn all_invalid_values_are_reported_at_once() {
        let bad = [
            (STARTUP, "1"),
            (INTERVAL, "0"),
            (ENTRIES, "0"),
            (FEATURES, "nonsense"),
        ];
        let (StartUp::Problems(problems), warnings) = read(&bad) else {
            panic!()
        };
        assert_eq!((problems.len(), warnings.len()), (2, 1));
    }

    #[test]
    fn unknown_variable_name_suggests_the_nearest_one() {
        let nearest = |name: &str| {
            let warning = warning_about_name(name)?;
            let (_, words) = warning.split_once("did you mean ").expect("a suggestion");
            Some(words.split('?').next().expect("a name").to_owned())
        };
        for variable in VARIABLES {
            assert_eq!(nearest(variable.name), None);
        }
        assert_eq!(nearest("MOZ_PROFILER_STRATUP").as_deref(), Some(STARTUP));
        assert_eq!(nearest("MOZ_PROFILER_START").as_deref(), Some(STARTUP));
        assert_eq!(nearest("MOZ_PROFILER_INTERVAL").as_deref(), Some(INTERVAL));
        assert_eq!(
            nearest("MOZ_PROFILER_STARTUP_FILTER").as_deref(),
            Some(FILTERS)
        );
        assert_eq!(
            nearest("MOZ_PROFILER_STARTUP_FEATURE_BITFIELD").as_deref(),
            Some(FEATURES_BITFIELD)
        );
        assert_eq!(
            nearest("MOZ_PROFILER_SHUTDOWN_FILE").as_deref(),
            Some(SHUTDOWN)
        );
        let unlike_any = warning_about_name("MOZ_PROFILER_COLOR").expect("a warning");
        assert!(!unlike_any.contains("did you mean"), "{unlike_any}");
        assert_eq!(nearest("MOZ_PROFILER_LUL_TEST"), None, "Gecko only");
        assert_eq!(nearest("MOZ_LOG"), None, "another prefix");
    }

    #[test]
    fn values_for_child_restore_the_parents_settings() {
        let settings =
            |capacity_bytes, interval, duration: Option<_>, filters: &[&str]| SessionSettings {
                capacity_bytes,
                interval,
                max_cpu_ppm: duration.map(|_| 123_400),
                max_markers_per_second: duration.map_or(0, |_| u32::MAX),
                features: Features::STACK_WALK | Features::CPU,
                filters: filters.iter().map(ToString::to_string).collect(),
                signal: 27,
                duration,
                allocation_interval_bytes: 512 << 10,
                active_tab_id: u64::MAX,
                records_overheads: false,
                has_children: false,
                has_parent: false,
                crash_file: None,
            };
        let round_trip = |settings: &SessionSettings, saves| {
            let values = values_for_child(Some(settings), saves, saves);
            let value_of =
                |name: &str| Some(values.iter().find(|(known, _)| known == name)?.1.clone());
            assert_eq!(value_of(SHUTDOWN), saves.then(String::new));
            assert_eq!(value_of(REPORT), saves.then(String::new));
            match read_start_up(&value_of) {
                (StartUp::Start(params), warnings) if warnings.is_empty() => params,
                other => panic!("{other:?}"),
            }
        };
        let odd = Duration::from_nanos(1_234_567);
        let (long, short) = (Duration::new(86_400, 1), Duration::from_nanos(10_001));
        for (interval, duration) in [
            (odd, None),
            (short, Some(odd)),
            (Duration::from_secs(10), Some(long)),
        ] {
            for capacity in [128 << 20, 1 << 30] {
                let lists: [(&[&str], &[&str]); 5] = [
                    (&[], &[]),
                    (&["GeckoMain", "wörker 1"], &["GeckoMain", "wörker 1"]),
                    (&["*"], &["*"]),
                    // The empty filter selects every thread.
                    (&["a", ""], &["a", "*"]),
                    (&[""], &["*"]),
                ];
                for (filters, restored) in lists {
                    let given = settings(capacity, interval, duration, filters);
                    let read = round_trip(&given, duration.is_some());
                    assert_eq!(read.capacity_bytes, given.capacity_bytes);
                    assert_eq!(
                        (read.interval, read.duration),
                        (given.interval, given.duration)
                    );
                    assert_eq!(read.max_cpu_percent, duration.map(|_| 12.34));
                    assert_eq!(read.max_markers_per_second, given.max_markers_per_second);
                    assert_eq!(
                        (read.features, read.active_tab_id),
                        (given.features, given.active_tab_id)
                    );
                    assert_eq!(read.filters, restored);
                }
            }
        }
        // Capacities that the variable cannot express are replaced by the nearest one.
        assert_eq!(
            round_trip(&settings(1 << 20, odd, None, &[]), false).capacity_bytes,
            128 << 20
        );
        assert_eq!(
            round_trip(&settings(64 << 30, odd, None, &[]), false).capacity_bytes,
            2 << 30
        );

        let off = values_for_child(None, true, true);
        assert_eq!(off, [(STARTUP.to_owned(), String::new())]);
    }
}
