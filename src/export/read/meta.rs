//! Reads what both Firefox formats have in `meta`.

use crate::export::meta_fields::MODELED_FIELDS;
use crate::export::read::builder::ModelBuilder;
use crate::export::read::table::to_gecko_table;
use crate::export::read::value::Object;
use crate::model::Meta;
use crate::types::ReadError;

/// Maximum length of the interval between two samples, in ms. So the interval in ns fits into 64
/// bits many times.
const MAX_INTERVAL_MS: f64 = 1e9;

/// The CPU time of samples, as the profile gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CpuUnit {
    Nanoseconds,
    Microseconds,
    /// Cycles of a clock whose rate is unknown. The model has no such times.
    Unknown,
}

impl CpuUnit {
    pub(super) fn of(meta: &Object<'_, '_>) -> Result<Self, ReadError> {
        let Some(units) = meta.get("sampleUnits") else {
            return Ok(Self::Unknown);
        };
        let units = units.object("the units of the samples")?;
        Ok(match &*units.text("threadCPUDelta")? {
            "ns" => Self::Nanoseconds,
            "\u{b5}s" | "\u{3bc}s" | "us" => Self::Microseconds,
            _ => Self::Unknown,
        })
    }

    pub(super) fn to_ns(self, value: f64) -> Option<u64> {
        let value = value.max(0.0);
        match self {
            Self::Nanoseconds => Some(value as u64),
            Self::Microseconds => Some((value * 1e3).round() as u64),
            Self::Unknown => None,
        }
    }
}

/// Reads the facts about the whole profile.
pub(super) fn read_meta(
    builder: &mut ModelBuilder,
    meta: &Object<'_, '_>,
    is_processed: bool,
) -> Result<(), ReadError> {
    let number = |key, expected| match meta.get(key) {
        Some(value) => value.count(expected),
        None => Ok(0.0),
    };
    let start_epoch_ms = number("startTime", "a time in ms since 1970")?;
    let interval_ms = number("interval", "the time between two samples, in ms")?;
    let session_start = meta.optional_time_ns("profilingStartTime")?;
    let session_end = meta.optional_time_ns("profilingEndTime")?;
    let is_symbolicated = match is_processed {
        true => meta.get("symbolicated"),
        false => meta.get("presymbolicated"),
    };
    let mut other = Vec::new();
    for (key, value) in meta.members() {
        if MODELED_FIELDS.contains(&key) {
            continue;
        }
        let json = match key {
            "extensions" if is_processed && value.is_object() => {
                to_gecko_table(&value.object("a table")?, &["id", "name", "baseURL"])
            }
            _ => value.text.to_owned(),
        };
        other.push((key.to_owned(), json));
    }
    builder.profile.meta = Meta {
        product: meta.text("product")?,
        start_epoch_ms,
        interval_ns: (interval_ms.clamp(0.0, MAX_INTERVAL_MS) * 1e6).round() as u64,
        session_ns: session_start.zip(session_end),
        is_symbolicated: is_symbolicated.map_or(Ok(false), |value| value.bool())?,
        has_cpu_deltas: CpuUnit::of(meta)? != CpuUnit::Unknown,
        other,
    };
    Ok(())
}
