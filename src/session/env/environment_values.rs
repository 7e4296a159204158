//! Parses and formats the values of environment variables.

use std::str::FromStr;
use std::time::Duration;

use crate::state::SessionSettings;
use crate::types::{Features, INTERVAL_RANGE, MAX_CPU_RANGE_PERCENT, StartParams};

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

pub(crate) fn apply_entries(reading: &mut Reading, value: &str) -> Result<(), String> {
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

pub(crate) fn apply_interval(reading: &mut Reading, value: &str) -> Result<(), String> {
    let interval =
        rounded_duration(number(value)? * 1e6).filter(|interval| INTERVAL_RANGE.contains(interval));
    reading.params.interval = interval.ok_or_else(|| "out of range".to_owned())?;
    Ok(())
}

pub(crate) fn apply_max_cpu(reading: &mut Reading, value: &str) -> Result<(), String> {
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

pub(crate) fn apply_max_markers(reading: &mut Reading, value: &str) -> Result<(), String> {
    reading.params.max_markers_per_second = whole_number(value, "2^32")?;
    Ok(())
}

pub(crate) fn apply_duration(reading: &mut Reading, value: &str) -> Result<(), String> {
    let seconds = number(value)?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err("out of range".to_owned());
    }
    // A duration that overflows (584 years) means no limit.
    let duration = rounded_duration(seconds * 1e9);
    reading.params.duration = duration.filter(|duration| !duration.is_zero());
    Ok(())
}

pub(crate) fn apply_features(reading: &mut Reading, value: &str) -> Result<(), String> {
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

pub(crate) fn apply_features_bitfield(reading: &mut Reading, value: &str) -> Result<(), String> {
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

pub(crate) fn apply_filters(reading: &mut Reading, value: &str) -> Result<(), String> {
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

pub(crate) fn apply_active_tab_id(reading: &mut Reading, value: &str) -> Result<(), String> {
    reading.params.active_tab_id = whole_number(value, "2^64")?;
    Ok(())
}

/// The settings as values of environment variables, from which [`Reading`] restores them.
pub(crate) struct SettingValues {
    pub(crate) entries: String,
    pub(crate) duration: String,
    pub(crate) interval: String,
    /// `None` without a limit.
    pub(crate) max_cpu: Option<String>,
    /// Likewise.
    pub(crate) max_markers: Option<String>,
    pub(crate) features_bitfield: String,
    pub(crate) filters: String,
    pub(crate) active_tab_id: String,
}

impl SettingValues {
    pub(crate) fn new(settings: &SessionSettings) -> Self {
        let duration = settings.duration.unwrap_or_default();
        // In a variable's value, an empty filter has no effect.
        let filters = settings.filters.iter();
        let filters = filters.map(|filter| match filter.as_str() {
            "" => "*",
            filter => filter,
        });
        Self {
            entries: bounded_entries(settings.capacity_bytes / BYTES_PER_ENTRY).to_string(),
            duration: duration.as_secs_f64().to_string(),
            interval: (settings.interval.as_secs_f64() * 1e3).to_string(),
            max_cpu: (settings.max_cpu_percent()).map(|percent| percent.to_string()),
            max_markers: Some(settings.max_markers_per_second)
                .filter(|limit| *limit > 0)
                .map(|limit| limit.to_string()),
            features_bitfield: settings.features.bits().to_string(),
            filters: filters.collect::<Vec<_>>().join(","),
            active_tab_id: settings.active_tab_id.to_string(),
        }
    }
}
