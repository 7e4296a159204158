//! The environment variables, in one table that defines parsing, the help text and the API's
//! documentation.
//!
//! Names, accepted values and limits are Gecko's, with these known differences:
//!
//! - `0`, `N` and `n` switch off every on/off variable; in Gecko, only `MOZ_PROFILER_STARTUP`.
//!   Profiles contain function names unless `MOZ_PROFILER_SYMBOLICATE` is switched off.
//! - The program continues after printing the help or reporting an invalid value: a library must
//!   not end the application.
//! - The bit field must be a number. The interval may be up to 10,000 ms. Without filters, all
//!   threads are profiled, not only the main thread. An empty filter in a list has no effect; in
//!   Gecko, it selects every thread.
//! - The duration has an effect, and child processes inherit it.
//!
//! Gecko's other variables with the prefix `MOZ_PROFILER_` are accepted without a warning and
//! ignored. Variables with other prefixes (`MOZ_LOG`, `MOZ_BASE_PROFILER_…`, `XPCOM_MEM_BLOAT_LOG`,
//! …) belong to other systems and are not read.

use std::str::FromStr;
use std::time::Duration;

use crate::allocations::is_hook_installed;
use crate::platform::lacking_features;
use crate::state::SessionSettings;
use crate::types::{
    Features, INTERVAL_RANGE, MAX_CPU_RANGE_PERCENT, StartParams, UnavailableFeature,
};

/// An environment variable.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    /// The accepted values, in words.
    pub(crate) accepted: &'static str,
    pub(crate) help: &'static str,
    /// Applies a value to the start parameters. `None` if the variable does not set one.
    pub(crate) apply: Option<Apply>,
}

macro_rules! variables {
    ($($constant:ident $name:literal $accepted:literal $help:literal $apply:expr;)+) => {
        $(pub(crate) const $constant: &str = $name;)+

        /// All variables, in the order of application: a later one overrides an earlier one.
        pub(crate) const VARIABLES: &[Variable] =
            &[$(Variable { name: $name, accepted: $accepted, help: $help, apply: $apply },)+];

        /// The table as a list for the API's documentation.
        macro_rules! environment_docs {
            () => {
                concat!($("- `", $name, "`: ", $accepted, ". ", $help, "\n"),+)
            };
        }
        pub(crate) use environment_docs;
    };
}

variables! {
    HELP "MOZ_PROFILER_HELP" "anything"
        "Prints this text to standard output. The program continues." None;
    STARTUP "MOZ_PROFILER_STARTUP" "anything but empty, 0, N or n"
        "Starts the profiler when the program calls profiler_init, or before main if the program contains \
        early_start!. The variables below whose names begin with MOZ_PROFILER_STARTUP_ configure the \
        session; they have no effect without this one."
        None;
    ENTRIES "MOZ_PROFILER_STARTUP_ENTRIES"
        "a number above 0, of entries of 8 bytes, or of bytes with KB, KiB, MB, MiB, GB or GiB"
        "Capacity of the buffer: at least 128 MiB, at most 2 GiB, rounded up to a power of two. \
        Default: 512 MiB."
        Some(apply_entries);
    DURATION "MOZ_PROFILER_STARTUP_DURATION" "a number of seconds, 0 or above"
        "Maximum age of data in a profile when it is taken. Default: 0, which means no limit."
        Some(apply_duration);
    INTERVAL "MOZ_PROFILER_STARTUP_INTERVAL" "a number of milliseconds, from 0.01 to 10000"
        "Time between two samples of a thread. Default: 1." Some(apply_interval);
    MAX_CPU "MOZ_PROFILER_STARTUP_MAX_CPU" "a number of percent of a processor, from 0.01 to 100"
        "Maximum CPU time of the sampler. When it has used more, it leaves out ticks, and the samples \
        before them count for them. Default: no limit." Some(apply_max_cpu);
    MAX_MARKERS "MOZ_PROFILER_STARTUP_MAX_MARKERS" "a whole number, 0 or above"
        "Markers of a name that are recorded in a second, about, and up to twice as many when a burst \
        begins. Of more, some are left out at random, and the others stand for them. Default: 0, which \
        means no limit." Some(apply_max_markers);
    FEATURES "MOZ_PROFILER_STARTUP_FEATURES"
        "names of features, separated by commas; \"default\" means the default features"
        "What to record. Unknown names are reported and ignored. An empty value records labels, \
        the innermost address, and markers."
        Some(apply_features);
    FEATURES_BITFIELD "MOZ_PROFILER_STARTUP_FEATURES_BITFIELD" "a number below 2^64"
        "The features, as the sum of their bits. Overrides the names." Some(apply_features_bitfield);
    FILTERS "MOZ_PROFILER_STARTUP_FILTERS"
        "parts of thread names, separated by commas; * for all threads, pid:N for a process, tid:N \
        for a thread; -... excludes"
        "The threads to profile. Upper and lower case count as equal. Empty parts have no effect. A \
        part that begins with - excludes the threads that the rest would select. Filters that select \
        no thread are reported when the session ends. Default: all threads." Some(apply_filters);
    ACTIVE_TAB_ID "MOZ_PROFILER_STARTUP_ACTIVE_TAB_ID" "a number below 2^64"
        "The id of a browser's tab, written to the profile. Default: 0." Some(apply_active_tab_id);
    NO_BASE "MOZ_PROFILER_STARTUP_NO_BASE" "anything but empty, 0, N or n"
        "Leaves the start to profiler_init in a program that contains early_start!." None;
    SHUTDOWN "MOZ_PROFILER_SHUTDOWN" "a path, in which the first %p, %n and %t stand for the process id, name and type"
        "Saves the profile to this file when the program ends: the running session's, or that of the \
        last ProfilerSession that ended. The program ends when it drops its AutoProfilerInit or calls \
        profiler_shutdown, by a return from main, by exit, by SIGINT, SIGTERM or SIGHUP unless it \
        handles or ignores them, and by abort. SIGKILL, a crash such as SIGSEGV, _exit and exec lose \
        the profile. A program that this one starts with the same file adds its process id to the \
        name. A relative path is relative to the \
        folder that was current when profiler_init was called, or at a start before main. The folder \
        must exist; profiler_init looks for it, and says if it is missing. The \
        ending of the name selects the format: .json opens in the Firefox Profiler, .svg in a browser, \
        .txt is a summary. A further .gz makes a compressed file. An empty value is reported and saves nothing; a \
        profiled program sets it for its child processes, where it is not reported." None;
    CRASH_FILE "MOZ_PROFILER_CRASH_FILE" "a path, in which the first %p, %n and %t stand for the process id, name and type"
        "Keeps the data of each session in this file, as large as the buffer and an eighth more, which \
        outlives SIGKILL, a crash, _exit and exec. gekkota's example rescue makes a profile of it: \
        cargo run --release --example rescue -- FILE. The end of the session removes the file, and \
        so does a saved last profile. The next start renames a file that was left; the newest eight \
        are kept, and so are the newest eight of a name with %p. A process adds its process id to the name if another one uses the file." None;
    REPORT "MOZ_PROFILER_REPORT" "anything but empty, 0, N or n"
        "Prints a report to standard error when the program ends, as MOZ_PROFILER_SHUTDOWN saves then, \
        about the running session or the last ProfilerSession that ended: where each thread spent its \
        CPU time, the slowest markers, what is missing, and what the profiler cost. It needs no file. \
        In a terminal, it has the terminal's width (or COLUMNS) and colors, unless NO_COLOR is set." None;
    SYMBOLICATE "MOZ_PROFILER_SYMBOLICATE" "0, N or n; any other value counts as unset"
        "Switches off the function names in profiles. Finding the names can take seconds for a large \
        executable. Without names, the viewer shows addresses, unless a symbol server names them."
        None;
    RECORD_OVERHEADS "MOZ_PROFILER_RECORD_OVERHEADS" "anything but empty, 0, N or n"
        "Records the cost of each tick of the sampler in profilerOverhead of the profile." None;
    CHILDREN "MOZ_PROFILER_CHILDREN" "anything but empty, 0, N or n"
        "Lets child processes that use the profiler take part in each session of the program, and its \
        profiles contain theirs." None;
    SIGNALS "MOZ_PROFILER_SIGNALS" "anything but empty, 0, N or n"
        "SIGUSR1 starts the profiler for all threads, with 512 MiB and 1 ms. SIGUSR2 saves the profile \
        as profile_TYPE_PID.json, with the type of the process, and stops the profiler." None;
    DUMP_SIGNAL "MOZ_PROFILER_DUMP_SIGNAL" "the name or the number of a signal, such as SIGALRM or 14"
        "The signal writes the last 30 seconds of the running session to a new file, whose name begins \
        with dump_PID, in MOZ_UPLOAD_DIR or else in the folder for temporary files; at most once a minute. \
        From profiler_init on, until the program sets dumps itself. The signals that can be used: \
        SIGPROF, SIGVTALRM, SIGALRM, SIGURG, SIGUSR1, SIGUSR2, SIGIO, SIGPWR, SIGSTKFLT and the real-time \
        ones, except those that the profiler uses otherwise." None;
    HTTP "MOZ_PROFILER_HTTP" "an address with a port, or a port of 127.0.0.1"
        "Serves profiles over HTTP from profiler_init to profiler_shutdown, as Go's net/http/pprof does: \
        127.0.0.1:6060 serves http://127.0.0.1:6060/debug/pprof/. A line on standard error says where, or \
        why not. With port 0, the system chooses one. An address that other machines can reach needs \
        MOZ_PROFILER_HTTP_TOKEN. Needs the cargo feature http. A child process with the same variable needs \
        another port." None;
    HTTP_TOKEN "MOZ_PROFILER_HTTP_TOKEN" "16 or more letters, digits or characters of -._~"
        "The secret that a request must carry, as Authorization: Bearer TOKEN or as the parameter token. The \
        server does not encrypt, so put it behind a proxy that does if the network is not trusted." None;
    PUSH "MOZ_PROFILER_PUSH" "an address that begins with http:// or https://"
        "Pushes a profile each 10 seconds from profiler_init to profiler_shutdown to a Pyroscope server, such \
        as http://pyroscope:4040. OTEL_SERVICE_NAME, or service.name in OTEL_RESOURCE_ATTRIBUTES, names the \
        service. A line on standard error says why not. Needs the cargo feature push, and push-tls for https://." None;
    PUSH_INTERVAL "MOZ_PROFILER_PUSH_INTERVAL" "a number of seconds from 0.1 to 3600"
        "The time between two pushed profiles." None;
    PUSH_TOKEN "MOZ_PROFILER_PUSH_TOKEN" "a token, or a user and a password with a colon in between"
        "The secret that the server expects as Authorization: Bearer or, with a colon, Basic." None;
    PUSH_QUEUE "MOZ_PROFILER_PUSH_QUEUE" "a folder's path"
        "The folder for profiles that wait to be sent, at most 16 MiB, so that they survive the program. It is \
        created if its parent exists. Default: in memory, as for a child process with the same variable." None;
    UPLOAD_DIR "MOZ_UPLOAD_DIR" "a folder's path"
        "The folder where SIGUSR2 saves the profile. Default: the folder that was current when \
        profiler_init was called, or at a start before main." None;
}

/// Variables of Gecko that have no effect here, but are not reported as mistakes.
pub(crate) const GECKO_ONLY: &[&str] = &["MOZ_PROFILER_LUL_TEST"];

impl Variable {
    /// Returns the accepted values and the help text, in two lines.
    pub(crate) fn usage(&self) -> String {
        format!("  {}=<{}>\n    {}\n", self.name, self.accepted, self.help)
    }
}

/// Returns the usage of all variables, and the list of features. Asks the machine for those that
/// depend on it.
pub(crate) fn help_text() -> String {
    let mut text = "Environment variables of the profiler:\n".to_owned();
    for variable in VARIABLES {
        text += &format!("\n{}", variable.usage());
    }
    text += "\nFeatures, with their bits. D: default, S: default for a start by variables, \
        -: other. d, s, x: like D, S and -, but this program or machine lacks what they need.\n";
    text + &feature_list(&lacking_features_of_program(Features::available()))
}

/// Returns a line for each feature that this build records, with the reason if the machine lacks it,
/// and one line for all others.
fn feature_list(lacking: &[UnavailableFeature]) -> String {
    let (mut lines, mut lines_of_lacking) = (String::new(), String::new());
    for (feature, name, description) in Features::described() {
        if !Features::available().contains(feature) {
            continue;
        }
        let lack = lacking.iter().find(|lack| lack.feature == feature);
        let mark = match (
            Features::default_set().contains(feature),
            startup_features().contains(feature),
        ) {
            (true, _) => ['d', 'D'],
            (false, true) => ['s', 'S'],
            (false, false) => ['x', '-'],
        }[usize::from(lack.is_none())];
        let bits = feature.bits();
        let line = format!("  {mark} {bits:>10} \"{name}\" {description}");
        match lack {
            None => lines += &format!("{line}\n"),
            Some(lack) => lines_of_lacking += &format!("{line} Not here: {}.\n", lack.reason),
        }
    }
    let others = Features::ALL.without(Features::available());
    let others: Vec<&str> = others.names().collect();
    let others = others.join(", ");
    format!("{lines}{lines_of_lacking}Features of a browser, which record nothing here: {others}\n")
}

/// Function that applies a variable's value to the settings, or returns what is wrong with the
/// value.
pub(crate) type Apply = fn(&mut Reading, &str) -> Result<(), String>;

/// The settings read so far.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) params: StartParams,
    /// Mistakes in the current variable's value that do not prevent a start.
    pub(crate) warnings: Vec<String>,
}

impl Default for Reading {
    /// Returns the default settings of a start by environment variables.
    fn default() -> Self {
        let params = StartParams::default()
            .capacity_bytes(DEFAULT_STARTUP_ENTRIES * BYTES_PER_ENTRY)
            .features(startup_features());
        Self {
            params,
            warnings: Vec::new(),
        }
    }
}

const BYTES_PER_ENTRY: u64 = 8;
const MIN_ENTRIES: u64 = (128 << 20) / BYTES_PER_ENTRY;
const MAX_ENTRIES: u64 = (2 << 30) / BYTES_PER_ENTRY;
const DEFAULT_STARTUP_ENTRIES: u64 = (512 << 20) / BYTES_PER_ENTRY;
const UNITS: [(&str, u64); 6] = [
    ("KB", 1000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];

/// Returns the default features of a start by environment variables, which include more than
/// [`Features::default_set`].
#[doc(alias = "StartupExtraDefaultFeatures")]
pub(crate) fn startup_features() -> Features {
    Features::default_set() | Features::FILE_IO_ALL | Features::IPC_MESSAGES
}

/// Returns whether the value of a variable means "on".
pub(crate) fn is_on(value: &str) -> bool {
    !matches!(value, "" | "0" | "N" | "n")
}

fn bounded_entries(entries: u64) -> u64 {
    entries.clamp(MIN_ENTRIES, MAX_ENTRIES).next_power_of_two()
}

fn apply_entries(reading: &mut Reading, value: &str) -> Result<(), String> {
    let after_digits = value.trim_start_matches(|c: char| c.is_ascii_digit());
    let (number, unit) = value.split_at(value.len() - after_digits.len());
    if number.is_empty() {
        return Err("does not begin with a number".to_owned());
    }
    let bytes_per_unit = match unit {
        "" => BYTES_PER_ENTRY,
        unit => {
            let known = UNITS.iter().find(|(name, _)| *name == unit);
            known.ok_or_else(|| format!("unknown unit {unit:?}"))?.1
        }
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(bytes_per_unit));
    let entries = bytes.map(|bytes| bytes / BYTES_PER_ENTRY);
    let entries = entries.filter(|entries| (1..=i32::MAX as u64).contains(entries));
    let entries = entries.ok_or_else(|| "not from 1 to 2^31 - 1 entries".to_owned())?;
    reading.params.capacity_bytes = bounded_entries(entries) * BYTES_PER_ENTRY;
    Ok(())
}

fn number(value: &str) -> Result<f64, String> {
    value.trim().parse().map_err(|_| "not a number".to_owned())
}

/// Converts nanoseconds to a duration. Rounds, so that a `Duration` that is converted to text and
/// back does not change.
fn rounded_duration(ns: f64) -> Option<Duration> {
    (0.0..u64::MAX as f64)
        .contains(&ns)
        .then(|| Duration::from_nanos(ns.round() as u64))
}

fn apply_interval(reading: &mut Reading, value: &str) -> Result<(), String> {
    let interval =
        rounded_duration(number(value)? * 1e6).filter(|interval| INTERVAL_RANGE.contains(interval));
    reading.params.interval = interval.ok_or_else(|| "out of range".to_owned())?;
    Ok(())
}

fn apply_max_cpu(reading: &mut Reading, value: &str) -> Result<(), String> {
    let percent = number(value)?;
    if !MAX_CPU_RANGE_PERCENT.contains(&percent) {
        return Err("out of range".to_owned());
    }
    reading.params.max_cpu_percent = Some(percent);
    Ok(())
}

fn whole_number<T: FromStr>(value: &str, limit: &str) -> Result<T, String> {
    let number = value.trim().parse();
    number.map_err(|_| format!("not a whole number below {limit}"))
}

fn apply_max_markers(reading: &mut Reading, value: &str) -> Result<(), String> {
    reading.params.max_markers_per_second = whole_number(value, "2^32")?;
    Ok(())
}

fn apply_duration(reading: &mut Reading, value: &str) -> Result<(), String> {
    let seconds = number(value)?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err("out of range".to_owned());
    }
    // A duration that overflows (584 years) means no limit.
    let duration = rounded_duration(seconds * 1e9);
    reading.params.duration = duration.filter(|duration| !duration.is_zero());
    Ok(())
}

fn apply_features(reading: &mut Reading, value: &str) -> Result<(), String> {
    let mut features = Features::NONE;
    let names = value.split(',').map(str::trim);
    for name in names.filter(|name| !name.is_empty()) {
        features |= match name {
            "default" => startup_features(),
            name => Features::from_name(name).unwrap_or_else(|_| {
                reading.warnings.push(unknown_feature(name));
                Features::NONE
            }),
        };
    }
    reading.params.features = features;
    Ok(())
}

/// Returns the warning about an unknown feature.
fn unknown_feature(name: &str) -> String {
    let known = Features::described().map(|(_, known, _)| known);
    let lower = name.to_ascii_lowercase();
    let distance = |known: &str| strsim::osa_distance(&lower, known);
    let nearest = nearest_name(known.chain(["default"]), name.len(), distance);
    let question = nearest.map_or(String::new(), |nearest| {
        format!(" did you mean {nearest:?}?")
    });
    format!("unknown feature {name:?}, ignored;{question}")
}

/// Returns the name that a word of so many bytes most probably means: the nearest one, if more than half
/// of the word is right.
pub(crate) fn nearest_name<'name>(
    known: impl Iterator<Item = &'name str>,
    length: usize,
    distance: impl Fn(&str) -> usize,
) -> Option<&'name str> {
    known
        .map(|name| (distance(name), name))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| distance * 2 < length)
        .map(|(_, name)| name)
}

fn apply_features_bitfield(reading: &mut Reading, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    let bits = value
        .trim()
        .parse()
        .map_err(|_| "not a whole number below 2^64".to_owned())?;
    // Unknown bits are dropped, as unknown names are.
    let features = Features::from_bits(bits);
    if let unknown @ 1.. = features.unknown_bits() {
        let warning = format!("the bits {unknown:#x} belong to no feature, ignored;");
        reading.warnings.push(warning);
    }
    reading.params.features = features.adjusted();
    Ok(())
}

fn apply_filters(reading: &mut Reading, value: &str) -> Result<(), String> {
    // An empty filter would select every thread.
    let names = value.split(',').map(str::trim);
    let filters: Vec<String> = names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    if filters.is_empty() {
        return Err("no thread name".to_owned());
    }
    reading.params.filters = filters;
    Ok(())
}

fn apply_active_tab_id(reading: &mut Reading, value: &str) -> Result<(), String> {
    reading.params.active_tab_id = whole_number(value, "2^64")?;
    Ok(())
}

/// Returns the settings as values of environment variables, from which [`Reading`] restores them:
/// first those of [`SET_BY_PARENT`], then those that have a limit.
pub(crate) fn setting_values(settings: &SessionSettings) -> Vec<(&'static str, String)> {
    let entries = bounded_entries(settings.capacity_bytes / BYTES_PER_ENTRY);
    let duration = settings.duration.unwrap_or_default();
    // In a variable's value, an empty filter has no effect.
    let filters = settings.filters.iter();
    let filters = filters.map(|filter| match filter.as_str() {
        "" => "*",
        filter => filter,
    });
    let values = [
        entries.to_string(),
        duration.as_secs_f64().to_string(),
        (settings.interval.as_secs_f64() * 1e3).to_string(),
        settings.features.bits().to_string(),
        filters.collect::<Vec<_>>().join(","),
        settings.active_tab_id.to_string(),
    ];
    let max_cpu = settings.max_cpu_percent();
    let max_markers = Some(settings.max_markers_per_second).filter(|limit| *limit > 0);
    let mut pairs: Vec<_> = SET_BY_PARENT.into_iter().zip(values).collect();
    pairs.extend(max_cpu.map(|percent| (MAX_CPU, percent.to_string())));
    pairs.extend(max_markers.map(|limit| (MAX_MARKERS, limit.to_string())));
    pairs
}

/// The variables that a parent process sets in addition to [`STARTUP`].
pub(crate) const SET_BY_PARENT: [&str; 6] = [
    ENTRIES,
    DURATION,
    INTERVAL,
    FEATURES_BITFIELD,
    FILTERS,
    ACTIVE_TAB_ID,
];

/// Returns those of the features that record nothing here, with the reasons.
pub(crate) fn lacking_features_of_program(features: Features) -> Vec<UnavailableFeature> {
    let mut lacking = lacking_features(features);
    for feature in [Features::MEMORY, Features::NATIVE_ALLOCATIONS] {
        if features.contains(feature) && !is_hook_installed() {
            lacking.push(UnavailableFeature {
                feature,
                reason: "the global allocator is not a gekkota::memory::ProfilerAllocator"
                    .to_owned(),
            });
        }
    }
    lacking
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_text_lists_every_variable_and_feature() {
        let text = help_text();
        assert!(
            VARIABLES
                .iter()
                .all(|variable| text.contains(&format!("\n  {}=<", variable.name)))
        );
        assert!(
            text.contains("  D        256 \"stackwalk\" native stacks"),
            "{text}"
        );
        assert!(text.contains("  S         16 \"fileioall\""), "{text}");
        assert!(
            text.contains("  -       1024 \"nostacksampling\""),
            "{text}"
        );
    }

    #[test]
    fn features_of_a_browser_are_listed_in_one_line_after_the_others() {
        let list = feature_list(&[]);
        let (recorded, others) = list.split_once("Features of a browser").expect(&list);
        assert_eq!(others.lines().count(), 1, "{list}");
        let is_listed_as_expected = |(feature, name, _): (Features, &str, _)| {
            let is_recorded = recorded.contains(&format!(" \"{name}\" "));
            let is_other = others.split([' ', ',', '\n']).any(|other| other == name);
            let is_available = Features::available().contains(feature);
            (is_recorded, is_other) == (is_available, !is_available)
        };
        assert!(Features::described().all(is_listed_as_expected), "{list}");
    }

    #[test]
    fn feature_that_the_machine_lacks_is_listed_with_the_reason() {
        let lack = UnavailableFeature {
            feature: Features::POWER,
            reason: "cannot read x".to_owned(),
        };
        let list = feature_list(&[lack]);
        let lines: Vec<&str> = list
            .lines()
            .filter(|line| line.contains("\"power\""))
            .collect();
        assert!(
            matches!(&lines[..], [line] if line.starts_with("  x    2097152 \"power\" ")
                && line.ends_with(" Not here: cannot read x.")
                && list.find(line) > list.find("  - 17179869184 \"waitingtasks\"")),
            "{list}"
        );
        assert!(feature_list(&[]).contains("  -    2097152 \"power\" "));
    }
}
