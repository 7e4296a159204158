//! Reads the data of markers.

use std::collections::{HashMap, HashSet};

use crate::export::read::builder::{Cause, ModelBuilder, Strings};
use crate::export::read::value::{Object, Value, to_ns};
use crate::model::{FieldValue, Marker, MarkerPayload, MarkerPhase, Markers, ProfileModel, TextId};
use crate::types::ReadError;

/// Formats of fields that hold the index of a string.
const INDEX_FORMATS: &[&str] = &["unique-string", "flow-id", "terminating-flow-id"];

/// Fields of Firefox's `Network` markers.
const NETWORK_TIMES: &[&str] = &[
    "domainLookupStart",
    "domainLookupEnd",
    "connectStart",
    "tcpConnectEnd",
    "secureConnectionStart",
    "connectEnd",
    "requestStart",
    "responseStart",
    "responseEnd",
];

/// The fields that hold the index of a string, by the marker's type.
pub(super) type IndexFields = HashMap<String, HashSet<String>>;

/// Adds the marker schemas of a process to the model, and returns their fields that hold indices.
pub(super) fn read_schemas(
    builder: &mut ModelBuilder,
    meta: &Object<'_, '_>,
) -> Result<IndexFields, ReadError> {
    let mut index_fields = IndexFields::new();
    let list = meta.list("markerSchema");
    for value in list.elements("an array of marker schemas")? {
        let schema = value.object("a marker schema")?;
        let name = schema.require("name", "the name of the type")?;
        let name = name.string("the name of the type")?.into_owned();
        let is_gecko = schema.get("data").is_some();
        let fields = schema.list(if is_gecko { "data" } else { "fields" });
        for field in fields.elements("an array of fields")? {
            let field = field.object("a field")?;
            // The format of a table is an object.
            let format = field.get("format").filter(Value::is_text);
            let format = format.map(|format| format.string("a format")).transpose()?;
            if format.is_some_and(|format| INDEX_FORMATS.contains(&&*format)) {
                let keys = index_fields.entry(name.clone()).or_default();
                keys.insert(field.text("key")?);
            }
        }
        builder.add_schema(name, value.text.to_owned());
    }
    Ok(index_fields)
}

/// Returns whether a marker's field holds a time in ms since its process's start, which the Firefox
/// Profiler moves to the time of the profile. In the model, such a field has the profile's time.
fn holds_process_time(type_name: &str, key: &str) -> bool {
    matches!(key, "startTime" | "endTime")
        || (type_name == "Network" && NETWORK_TIMES.contains(&key))
}

/// A marker without its data.
#[derive(Clone, Copy, Default)]
pub(super) struct MarkerTimes {
    pub(super) start_ns: Option<i64>,
    pub(super) end_ns: Option<i64>,
}

impl MarkerTimes {
    /// Returns the phase with this number, and the times that the phase uses.
    pub(super) fn of_phase(self, phase: Value<'_, '_>) -> Result<(MarkerPhase, Self), ReadError> {
        let expected = "a phase from 0 to 3";
        let missing = |name| phase.error(format_args!("a phase that needs no {name}"));
        let start = || self.start_ns.ok_or_else(|| missing("startTime"));
        let end = || self.end_ns.ok_or_else(|| missing("endTime"));
        let (phase, start_ns, end_ns) = match phase.unsigned(expected)? {
            0 => (MarkerPhase::Instant, Some(start()?), None),
            1 => (MarkerPhase::Interval, Some(start()?), Some(end()?)),
            2 => (MarkerPhase::IntervalStart, Some(start()?), None),
            3 => (MarkerPhase::IntervalEnd, None, Some(end()?)),
            _ => return Err(phase.error(expected)),
        };
        Ok((phase, Self { start_ns, end_ns }))
    }
}

/// Reads the data of a thread's markers.
pub(super) struct MarkerReader<'s> {
    pub(super) index_fields: &'s IndexFields,
    /// Start of the process, in ms since the profile's start. Times in the data are relative to it.
    pub(super) offset_ms: f64,
    fields: Vec<(TextId, FieldValue)>,
}

/// What a format makes of the member that may hold a marker's stack.
pub(super) type ReadCause<'f, 'a> =
    dyn FnMut(&mut ProfileModel, &str, Value<'a, '_>) -> Result<Option<Cause>, ReadError> + 'f;

impl<'s> MarkerReader<'s> {
    pub(super) fn new(index_fields: &'s IndexFields, offset_ms: f64) -> Self {
        Self {
            index_fields,
            offset_ms,
            fields: Vec::new(),
        }
    }

    /// Adds a marker with its data. `cause` reads the member that holds the marker's stack, and
    /// returns `None` for every other one.
    pub(super) fn push<'a>(
        &mut self,
        profile: &mut ProfileModel,
        markers: &mut Markers,
        marker: Marker<'_>,
        data: Option<Value<'a, '_>>,
        strings: &mut Strings<'a>,
        cause: &mut ReadCause<'_, 'a>,
    ) -> Result<(), ReadError> {
        let Some(data) = data else {
            markers.push(marker);
            return Ok(());
        };
        let data = data.object("the data of a marker")?;
        let type_name = data.get("type").filter(Value::is_text);
        let type_name = type_name.map(|name| name.string("a type")).transpose()?;
        let type_name = type_name.unwrap_or_default();
        let index_fields = self.index_fields.get(&*type_name);
        self.fields.clear();
        let mut stack = None;
        for (key, value) in data.members() {
            if key == "type" && value.is_text() {
                continue;
            }
            if let Some(cause) = cause(profile, key, value)? {
                stack = cause;
                continue;
            }
            let is_index = index_fields.is_some_and(|fields| fields.contains(key));
            let value = if is_index && value.is_text() {
                let text = value.string("a text")?;
                FieldValue::UniqueText(profile.intern(&text))
            } else if is_index && !value.is_null() {
                FieldValue::UniqueText(strings.id(profile, value)?)
            } else {
                let value = field_value(profile, value)?;
                match holds_process_time(&type_name, key) {
                    true => self.in_profile_time(value),
                    false => value,
                }
            };
            self.fields.push((profile.intern(key), value));
        }
        markers.push(Marker {
            payload: Some(MarkerPayload {
                type_name: profile.intern(&type_name),
                fields: &self.fields,
                stack,
            }),
            ..marker
        });
        Ok(())
    }

    fn in_profile_time(&self, value: FieldValue) -> FieldValue {
        let time_ms = match value {
            _ if self.offset_ms == 0.0 => return value,
            FieldValue::Integer(time) => time as f64,
            FieldValue::Number(time) => time,
            _ => return value,
        };
        // To ns and back, so that the sum has no needless digits.
        let ns = to_ns(time_ms + self.offset_ms);
        ns.map_or(value, |ns| FieldValue::Number(ns as f64 / 1e6))
    }
}

pub(super) fn field_value(
    profile: &mut ProfileModel,
    value: Value<'_, '_>,
) -> Result<FieldValue, ReadError> {
    Ok(match value.text.as_bytes().first() {
        Some(b'n') => FieldValue::Null,
        Some(b't') => FieldValue::Bool(true),
        Some(b'f') => FieldValue::Bool(false),
        Some(b'"') => FieldValue::Text(profile.intern(&value.string("a text")?)),
        Some(b'[' | b'{') => FieldValue::Json(profile.intern(value.text)),
        _ => match value.text.parse() {
            Ok(integer) => FieldValue::Integer(integer),
            Err(_) => match value.number("a number")? {
                // A number that no float holds exactly remains as it is written.
                number if number.abs() < 1e15 => FieldValue::Number(number),
                _ => FieldValue::Json(profile.intern(value.text)),
            },
        },
    })
}
