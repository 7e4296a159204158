//! What the values of the variables mean.

use std::time::Duration;

use crate::base::{Features, INTERVAL_RANGE, StartParams};
use crate::control::environment_table::FEATURES;
use crate::state::SessionSettings;

/// Changes the settings by a value, or says what is wrong with it.
pub(super) type Apply = fn(&mut Reading, &str) -> Result<(), String>;

/// What was read so far.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) params: StartParams,
    /// What is wrong and does not keep the profiler from starting.
    pub(super) remarks: Vec<String>,
}

impl Default for Reading {
    /// What a start by variables has that none of them says otherwise.
    fn default() -> Self {
        let params = StartParams::default()
            .capacity_bytes(DEFAULT_STARTUP_ENTRIES * BYTES_PER_ENTRY)
            .features(startup_features());
        Self {
            params,
            remarks: Vec::new(),
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

/// The default features, and those that only a start by variables has by default.
#[doc(alias = "StartupExtraDefaultFeatures")]
pub(super) fn startup_features() -> Features {
    Features::default_set() | Features::FILE_IO_ALL | Features::IPC_MESSAGES
}

/// Whether a variable's value switches on what it stands for.
pub(super) fn is_on(value: &str) -> bool {
    !matches!(value, "" | "0" | "N" | "n")
}

fn bounded_entries(entries: u64) -> u64 {
    entries.clamp(MIN_ENTRIES, MAX_ENTRIES).next_power_of_two()
}

pub(super) fn apply_entries(reading: &mut Reading, value: &str) -> Result<(), String> {
    let after_digits = value.trim_start_matches(|c: char| c.is_ascii_digit());
    let (number, unit) = value.split_at(value.len() - after_digits.len());
    if number.is_empty() {
        return Err("which does not begin with a number".to_owned());
    }
    let bytes_per_unit = match unit {
        "" => BYTES_PER_ENTRY,
        unit => {
            let known = UNITS.iter().find(|(name, _)| *name == unit);
            known
                .ok_or_else(|| format!("whose unit {unit:?} is unknown"))?
                .1
        }
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(bytes_per_unit));
    let entries = bytes.map(|bytes| bytes / BYTES_PER_ENTRY);
    let entries = entries.filter(|entries| (1..=i32::MAX as u64).contains(entries));
    let entries =
        entries.ok_or_else(|| "which is no number of entries above 0 and below 2^31".to_owned())?;
    reading.params.capacity_bytes = bounded_entries(entries) * BYTES_PER_ENTRY;
    Ok(())
}

fn number(value: &str) -> Result<f64, String> {
    value
        .trim()
        .parse()
        .map_err(|_| "which is no number".to_owned())
}

/// So many nanoseconds, rounded, so that what `Duration` can say comes through text unchanged.
fn rounded_duration(ns: f64) -> Option<Duration> {
    (0.0..u64::MAX as f64)
        .contains(&ns)
        .then(|| Duration::from_nanos(ns.round() as u64))
}

pub(super) fn apply_interval(reading: &mut Reading, value: &str) -> Result<(), String> {
    let interval =
        rounded_duration(number(value)? * 1e6).filter(|interval| INTERVAL_RANGE.contains(interval));
    reading.params.interval = interval.ok_or_else(|| "which is out of range".to_owned())?;
    Ok(())
}

pub(super) fn apply_duration(reading: &mut Reading, value: &str) -> Result<(), String> {
    let seconds = number(value)?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err("which is out of range".to_owned());
    }
    // Longer than any program runs is no limit.
    let duration = rounded_duration(seconds * 1e9);
    reading.params.duration = duration.filter(|duration| !duration.is_zero());
    Ok(())
}

pub(super) fn apply_features(reading: &mut Reading, value: &str) -> Result<(), String> {
    let mut features = Features::NONE;
    for name in value.split(',').filter(|name| !name.is_empty()) {
        features |= match name {
            "default" => startup_features(),
            name => Features::from_name(name).unwrap_or_else(|error| {
                reading.remarks.push(format!("{FEATURES}: {error}"));
                Features::NONE
            }),
        };
    }
    reading.params.features = features;
    Ok(())
}

pub(super) fn apply_features_bitfield(reading: &mut Reading, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    let bits = value
        .trim()
        .parse()
        .map_err(|_| "which is no such number".to_owned())?;
    // Bits of features that this version does not know are dropped, as unknown names are.
    reading.params.features = Features::from_bits(bits).adjusted();
    Ok(())
}

pub(super) fn apply_filters(reading: &mut Reading, value: &str) -> Result<(), String> {
    reading.params.filters = value.split(',').map(str::to_owned).collect();
    Ok(())
}

pub(super) fn apply_active_tab_id(reading: &mut Reading, value: &str) -> Result<(), String> {
    reading.params.active_tab_id = value
        .trim()
        .parse()
        .map_err(|_| "which is no such number".to_owned())?;
    Ok(())
}

/// The settings as values that [`Reading`] gives back.
pub(super) struct SettingValues {
    pub(super) entries: String,
    pub(super) duration: String,
    pub(super) interval: String,
    pub(super) features_bitfield: String,
    pub(super) filters: String,
    pub(super) active_tab_id: String,
}

impl SettingValues {
    pub(super) fn new(settings: &SessionSettings) -> Self {
        let duration = settings.duration.unwrap_or_default();
        Self {
            entries: bounded_entries(settings.capacity_bytes / BYTES_PER_ENTRY).to_string(),
            duration: duration.as_secs_f64().to_string(),
            interval: (settings.interval.as_secs_f64() * 1e3).to_string(),
            features_bitfield: settings.features.bits().to_string(),
            filters: settings.filters.join(","),
            active_tab_id: settings.active_tab_id.to_string(),
        }
    }
}
