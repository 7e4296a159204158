//! The environment's variables: one table, from which the help text is made.
//!
//! Names, accepted values and limits are Gecko's. A library does not end its host: a bad value prints what is wrong with
//! it and the usage to standard error, and the profiler stays off.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::{Features, INTERVAL_RANGE, StartParams};

const HELP: &str = "MOZ_PROFILER_HELP";
const STARTUP: &str = "MOZ_PROFILER_STARTUP";
const ENTRIES: &str = "MOZ_PROFILER_STARTUP_ENTRIES";
const INTERVAL: &str = "MOZ_PROFILER_STARTUP_INTERVAL";
const FEATURES_BITFIELD: &str = "MOZ_PROFILER_STARTUP_FEATURES_BITFIELD";
const FEATURES: &str = "MOZ_PROFILER_STARTUP_FEATURES";
const FILTERS: &str = "MOZ_PROFILER_STARTUP_FILTERS";
const SHUTDOWN: &str = "MOZ_PROFILER_SHUTDOWN";

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

/// A variable, what it may be, and how a value changes the settings.
struct Variable {
    name: &'static str,
    accepted: &'static str,
    help: &'static str,
    apply: Option<Apply>,
}

/// Changes the settings by a value, or says what is wrong with it.
type Apply = fn(StartParams, &str) -> Result<StartParams, String>;

const VARIABLES: &[Variable] = &[
    Variable { name: HELP, accepted: "anything", help: "Print this text.", apply: None },
    Variable {
        name: STARTUP,
        accepted: "anything but empty, 0, N or n",
        help: "Start the profiler when the program calls profiler_init.",
        apply: None,
    },
    Variable {
        name: ENTRIES,
        accepted: "a number above 0, of entries of 8 bytes, or of bytes with KB, KiB, MB, MiB, GB or GiB",
        help: "How much to keep; at least 128 MiB, at most 2 GiB, rounded up to a power of two. Default: 512 MiB.",
        apply: Some(apply_entries),
    },
    Variable {
        name: INTERVAL,
        accepted: "a number of milliseconds, from 0.01 to 10000",
        help: "The time between two samples of a thread. Default: 1.",
        apply: Some(apply_interval),
    },
    Variable {
        name: FEATURES_BITFIELD,
        accepted: "a number",
        help: "The features, as a sum of the bits listed below. Takes precedence over the names.",
        apply: None,
    },
    Variable {
        name: FEATURES,
        accepted: "names from the list below, with commas between; \"default\" stands for the default ones",
        help: "The features. Unknown names are reported and otherwise ignored.",
        apply: None,
    },
    Variable {
        name: FILTERS,
        accepted: "parts of thread names, with commas between; * for all, pid:N for a process",
        help: "Which threads are profiled. Default: all that are registered.",
        apply: Some(apply_filters),
    },
    Variable {
        name: SHUTDOWN,
        accepted: "a file's path, in which %p is the process's id",
        help: "Save the profile there when the program calls profiler_shutdown. Compressed if it ends in .gz.",
        apply: None,
    },
];

/// What the environment asks for at start-up.
#[derive(Debug, PartialEq)]
pub(super) enum StartUp {
    Off,
    Start(StartParams),
    /// A bad value, in words.
    Problem(String),
}

/// The value of a variable that is set.
fn raw_value_of(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

pub(super) fn wants_help() -> bool {
    env::var_os(HELP).is_some()
}

pub(super) fn shutdown_path() -> Option<PathBuf> {
    env::var_os(SHUTDOWN).filter(|path| !path.is_empty()).map(PathBuf::from)
}

pub(super) fn start_up() -> StartUp {
    read_start_up(&raw_value_of, &mut |report| eprintln!("gekkota: {report}\n\n{}", help_text()))
}

/// Reads the variables by `raw_value_of`; what is wrong and changes nothing goes to `report`.
fn read_start_up(raw_value_of: &dyn Fn(&str) -> Option<String>, report: &mut dyn FnMut(String)) -> StartUp {
    let value_of = |name| raw_value_of(name).filter(|value| !value.is_empty());
    if value_of(STARTUP).is_none_or(|value| matches!(value.as_str(), "0" | "N" | "n")) {
        return StartUp::Off;
    }
    let mut params = StartParams::default().capacity_bytes(DEFAULT_STARTUP_ENTRIES * BYTES_PER_ENTRY);
    for variable in VARIABLES {
        let (Some(apply), Some(value)) = (variable.apply, value_of(variable.name)) else { continue };
        params = match apply(params, &value) {
            Ok(params) => params,
            Err(found) => {
                let Variable { name, accepted, .. } = variable;
                return StartUp::Problem(format!("{name} is {value:?}, {found}; accepted is {accepted}"));
            }
        };
    }
    match value_of(FEATURES_BITFIELD) {
        Some(bits) => match bits.trim().parse::<u32>() {
            // Bits of features that this version does not know are dropped, as unknown names are.
            Ok(bits) => params = params.features(Features::from_bits(bits).adjusted()),
            Err(_) => {
                return StartUp::Problem(format!(
                    "{FEATURES_BITFIELD} is {bits:?}, which is no number; accepted is one"
                ));
            }
        },
        // Set and empty means none.
        None => {
            if let Some(names) = raw_value_of(FEATURES) {
                params = params.features(parse_features(&names, report));
            }
        }
    }
    StartUp::Start(params)
}

fn parse_features(names: &str, report: &mut dyn FnMut(String)) -> Features {
    names.split(',').filter(|name| !name.is_empty()).fold(Features::NONE, |all, name| match name {
        "default" => all | Features::default_set(),
        name => match Features::from_name(name) {
            Ok(feature) => all | feature,
            Err(error) => {
                report(format!("{FEATURES}: {error}"));
                all
            }
        },
    })
}

fn apply_entries(params: StartParams, value: &str) -> Result<StartParams, String> {
    let digits = value.trim_start_matches(|c: char| c.is_ascii_digit());
    let (number, unit) = value.split_at(value.len() - digits.len());
    let number: u64 = number.parse().map_err(|_| "which does not begin with a number".to_owned())?;
    let bytes_per_unit = match unit {
        "" => BYTES_PER_ENTRY,
        unit => {
            let known = UNITS.iter().find(|(name, _)| *name == unit);
            known.ok_or_else(|| format!("whose unit {unit:?} is unknown"))?.1
        }
    };
    let entries = number.checked_mul(bytes_per_unit).map(|bytes| bytes / BYTES_PER_ENTRY);
    let entries = entries.filter(|entries| (1..=i32::MAX as u64).contains(entries));
    let entries = entries.ok_or_else(|| "which is no number of entries above 0 and below 2^31".to_owned())?;
    let entries = entries.clamp(MIN_ENTRIES, MAX_ENTRIES).next_power_of_two();
    Ok(params.capacity_bytes(entries * BYTES_PER_ENTRY))
}

fn apply_interval(params: StartParams, value: &str) -> Result<StartParams, String> {
    let ms: f64 = value.trim().parse().map_err(|_| "which is no number".to_owned())?;
    Duration::try_from_secs_f64(ms / 1e3)
        .ok()
        .filter(|interval| INTERVAL_RANGE.contains(interval))
        .map(|interval| params.interval(interval))
        .ok_or_else(|| "which is out of range".to_owned())
}

fn apply_filters(params: StartParams, value: &str) -> Result<StartParams, String> {
    Ok(params.filters(value.split(',')))
}

/// The usage, from the table.
fn help_text() -> String {
    let mut text = "Environment variables of the profiler:\n".to_owned();
    for Variable { name, accepted, help, .. } in VARIABLES {
        text += &format!("\n  {name}=<{accepted}>\n    {help}\n");
    }
    text += "\n  Features (bit, name; D: default, -: available, x: not available here):\n";
    for bit in 0..u32::BITS {
        let feature = Features::from_bits(1 << bit);
        for name in feature.names() {
            let mark =
                match (Features::available().contains(feature), Features::default_set().contains(feature)) {
                    (false, _) => 'x',
                    (true, true) => 'D',
                    (true, false) => '-',
                };
            text += &format!("    {mark} {:>9} \"{name}\"\n", feature.bits());
        }
    }
    text
}

pub(super) fn print_help() {
    println!("{}", help_text());
}

pub(super) fn print_problem(problem: &str) {
    eprintln!("gekkota: {problem}\n\n{}", help_text());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (StartUp, Vec<String>) {
        let value_of = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned());
        let mut reports = Vec::new();
        (read_start_up(&value_of, &mut |report| reports.push(report)), reports)
    }

    fn params(variables: &[(&str, &str)]) -> StartParams {
        match read(&[&[(STARTUP, "1")], variables].concat()).0 {
            StartUp::Start(params) => params,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_starts_unless_told_not_to_in_geckos_three_words() {
        for off in ["", "0", "N", "n"] {
            assert_eq!(read(&[(STARTUP, off)]).0, StartUp::Off);
        }
        for on in ["1", "no", "00", "false"] {
            assert!(matches!(read(&[(STARTUP, on)]).0, StartUp::Start(_)));
        }
        assert_eq!(read(&[(INTERVAL, "nonsense")]).0, StartUp::Off, "nothing is looked at while it is off");
    }

    #[test]
    fn entries_are_entries_or_bytes_and_kept_within_limits() {
        assert_eq!(params(&[]).capacity_bytes, 512 << 20);
        assert_eq!(params(&[(ENTRIES, "1")]).capacity_bytes, 128 << 20);
        assert_eq!(params(&[(ENTRIES, "33554432")]).capacity_bytes, 256 << 20);
        assert_eq!(params(&[(ENTRIES, "200MB")]).capacity_bytes, 256 << 20);
        assert_eq!(params(&[(ENTRIES, "1GiB")]).capacity_bytes, 1 << 30);
        for bad in ["0", "-1", "x", "5kb", "1 MB", "99999999999999999999", "64GiB"] {
            let (StartUp::Problem(problem), _) = read(&[(STARTUP, "1"), (ENTRIES, bad)]) else {
                panic!("{bad}")
            };
            assert!(
                problem.contains(ENTRIES) && problem.contains(bad) && problem.contains("accepted"),
                "{problem}"
            );
        }
    }

    #[test]
    fn intervals_are_milliseconds() {
        assert_eq!(params(&[(INTERVAL, "0.5")]).interval, Duration::from_micros(500));
        for bad in ["0", "-1", "11000", "NaN", "1e300", "soon"] {
            let (StartUp::Problem(problem), _) = read(&[(STARTUP, "1"), (INTERVAL, bad)]) else {
                panic!("{bad}")
            };
            assert!(problem.contains(INTERVAL) && problem.contains(bad), "{problem}");
        }
    }

    #[test]
    fn unknown_features_are_reported_and_the_others_stay() {
        let (start_up, reports) = read(&[(STARTUP, "1"), (FEATURES, "cpu,,nonsense,stackwalk")]);
        let StartUp::Start(params) = start_up else { panic!("{start_up:?}") };
        assert_eq!(params.features, Features::CPU | Features::STACK_WALK);
        assert!(reports.len() == 1 && reports[0].contains("nonsense"), "{reports:?}");
        assert_eq!(self::params(&[(FEATURES, "default")]).features, Features::default_set());
        assert_eq!(self::params(&[(FEATURES, "")]).features, Features::NONE);
        let bits = [(FEATURES_BITFIELD, "256"), (FEATURES, "cpu")];
        assert_eq!(self::params(&bits).features, Features::STACK_WALK);
    }

    #[test]
    fn the_help_text_names_every_variable_and_feature() {
        let text = help_text();
        assert!(VARIABLES.iter().all(|variable| text.contains(variable.name)));
        assert!(
            text.contains("D       256 \"stackwalk\"") && text.contains("x         1 \"java\""),
            "{text}"
        );
    }
}
