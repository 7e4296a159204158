//! A process of the profile while it is written as Gecko's JSON.

use crate::json::JsonWriter;
use crate::model::{ProfileModel, WeightUnit};

/// What a process's part of the profile is written from.
pub(super) struct GeckoProcess<'a> {
    pub(super) profile: &'a ProfileModel,
    /// Index of the process in the model.
    pub(super) index: usize,
    /// Start of the process, in ns since the profile's start. Its times are relative to it.
    pub(super) start_ns: i64,
}

impl GeckoProcess<'_> {
    /// Writes a time of the profile in the time of the process.
    pub(super) fn time(&self, json: &mut JsonWriter<'_>, time_ns: i64) {
        let time_ns = time_ns.saturating_sub(self.start_ns);
        match u64::try_from(time_ns) {
            Ok(time_ns) => json.time_ms(time_ns),
            Err(_) => json.float(time_ns as f64 / 1e6),
        }
    }

    pub(super) fn optional_time(&self, json: &mut JsonWriter<'_>, time_ns: Option<i64>) {
        match time_ns {
            Some(time_ns) => self.time(json, time_ns),
            None => json.null(),
        }
    }
}

pub(super) fn write_schema(json: &mut JsonWriter<'_>, columns: &[&str]) {
    json.key("schema").object(|json| {
        for (column, number) in columns.iter().zip(0..) {
            json.key(column).unsigned(number);
        }
    });
}

/// Returns the name of the unit of weights in the Firefox Profiler.
pub(super) fn weight_type(unit: WeightUnit) -> &'static str {
    match unit {
        WeightUnit::Samples => "samples",
        WeightUnit::Milliseconds => "tracing-ms",
        WeightUnit::Bytes => "bytes",
    }
}
