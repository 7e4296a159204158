//! Reads what threads have in both formats: samples, and markers with their data.

use crate::export::read::builder::Strings;
use crate::export::read::context::{Context, in_profile};
use crate::export::read::table::{Form, each_row};
use crate::export::read::value::{Object, Value, to_ns};
use crate::model::{
    FieldValue, Marker, MarkerPayload, MarkerPhase, Markers, ProfileModel, Sample, Samples,
    StackId, TextId, Thread, WeightUnit,
};
use crate::types::ReadError;
use crate::util::SharedSort;

/// What an error expects where the phase of a marker should be.
const PHASE: &str = "a phase from 0 to 3";

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

/// A cause of a marker: its stack, and the stack's time.
pub(crate) type Cause = Option<(StackId, i64)>;

/// What a format makes of the member that may hold a marker's stack.
pub(crate) type ReadCause<'f, 'a> =
    dyn FnMut(&mut ProfileModel, &str, Value<'a, '_>) -> Result<Option<Cause>, ReadError> + 'f;

/// Returns the facts about a thread, without its samples and markers.
pub(crate) fn read_thread(
    context: &Context,
    thread: &Object<'_, '_>,
    process: usize,
) -> Result<Thread, ReadError> {
    let tid = thread.read("tid", Value::id)?;
    Ok(Thread {
        process,
        name: thread.text("name")?,
        tid: tid.unwrap_or_default().into_owned(),
        registered_ns: in_profile(thread.get("registerTime"), context.offset_ns)?,
        unregistered_ns: in_profile(thread.get("unregisterTime"), context.offset_ns)?,
        ..Thread::default()
    })
}

/// Reads the samples of a thread. `stack` returns the stack with an index.
pub(crate) fn read_samples(
    context: &Context,
    thread: &Object<'_, '_>,
    mut stack: impl FnMut(Value<'_, '_>) -> Result<StackId, ReadError>,
) -> Result<Samples, ReadError> {
    let columns = &["stack", "time", "eventDelay", "threadCPUDelta", "weight"];
    let table = thread.table("samples")?;
    let mut samples = Samples::default();
    samples.weight_unit = match &*table.text("weightType")? {
        "tracing-ms" => WeightUnit::Milliseconds,
        "bytes" => WeightUnit::Bytes,
        _ => WeightUnit::Samples,
    };
    each_row(context.form, &table, (columns, 2), |_, row| {
        let number = |column| row.read(column, |number| number.count("a number"));
        let cpu_delta = number("threadCPUDelta")?;
        let weight = number("weight")?;
        samples.push(Sample {
            stack: row.read("stack", |index| stack(*index))?,
            time_ns: row.time_ns()?.saturating_add(context.offset_ns),
            cpu_delta_ns: cpu_delta.and_then(|delta| context.cpu_unit.to_ns(delta)),
            event_delay_ns: row.read("eventDelay", Value::duration_ns)?,
            weight: weight.map_or(1, |weight| weight.round() as i64),
        });
        Ok(())
    })?;
    Ok(in_order(samples))
}

/// Returns the samples in the order of their times.
fn in_order(samples: Samples) -> Samples {
    if samples.iter().is_sorted_by_key(|sample| sample.time_ns) {
        return samples;
    }
    let mut rows: Vec<Sample> = samples.iter().collect();
    rows.shared_sort_by_key(|sample| sample.time_ns);
    let mut sorted = Samples::default();
    sorted.weight_unit = samples.weight_unit;
    rows.into_iter().for_each(|sample| sorted.push(sample));
    sorted
}

/// Reads the markers of a thread. `cause` reads the member of a marker's data that holds the marker's
/// stack, and returns `None` for every other one.
pub(crate) fn read_markers<'a>(
    profile: &mut ProfileModel,
    context: &Context,
    thread: &Object<'a, '_>,
    strings: &mut Strings<'a>,
    cause: &mut ReadCause<'_, 'a>,
) -> Result<Markers, ReadError> {
    let columns = &["name", "phase", "startTime", "endTime", "category", "data"];
    let required = match context.form {
        Form::Gecko => 5,
        Form::Processed => 2,
    };
    let table = thread.table("markers")?;
    let mut markers = Markers::default();
    let mut fields = Vec::new();
    each_row(context.form, &table, (columns, required), |_, row| {
        let name = row.require("name", "a string index")?;
        let name = strings.id(profile, name)?;
        let start_ns = in_profile(row.get("startTime"), context.offset_ns)?;
        let end_ns = in_profile(row.get("endTime"), context.offset_ns)?;
        let phase = row.require("phase", PHASE)?;
        let (phase, start_ns, end_ns) = phase_and_times(phase, start_ns, end_ns)?;
        let category = context.category(row.get("category"), None)?;
        fields.clear();
        let data = row.read("data", |data| {
            let data = data.object("the data of a marker")?;
            read_data(profile, context, &data, strings, cause, &mut fields)
        })?;
        markers.push(Marker {
            name,
            phase,
            start_ns,
            end_ns,
            category: category.map_or(0, |pair| pair.category),
            payload: data.map(|(type_name, stack)| MarkerPayload {
                type_name,
                fields: &fields,
                stack,
            }),
        });
        Ok(())
    })?;
    Ok(markers)
}

/// Returns the phase with this number, and the start and the end if the phase uses them.
fn phase_and_times(
    phase: Value<'_, '_>,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
) -> Result<(MarkerPhase, Option<i64>, Option<i64>), ReadError> {
    let needed = |time_ns: Option<i64>, name| match time_ns {
        Some(_) => Ok(time_ns),
        None => Err(phase.error(format_args!("a phase that needs no {name}"))),
    };
    let start = || needed(start_ns, "startTime");
    let end = || needed(end_ns, "endTime");
    Ok(match phase.unsigned(PHASE)? {
        0 => (MarkerPhase::Instant, start()?, None),
        1 => (MarkerPhase::Interval, start()?, end()?),
        2 => (MarkerPhase::IntervalStart, start()?, None),
        3 => (MarkerPhase::IntervalEnd, None, end()?),
        _ => return Err(phase.error(PHASE)),
    })
}

/// Adds a marker's data to `fields`. Returns the name of the marker's type, and its stack.
fn read_data<'a>(
    profile: &mut ProfileModel,
    context: &Context,
    data: &Object<'a, '_>,
    strings: &mut Strings<'a>,
    cause: &mut ReadCause<'_, 'a>,
    fields: &mut Vec<(TextId, FieldValue)>,
) -> Result<(TextId, Cause), ReadError> {
    let type_name = data.get("type").filter(Value::is_text);
    let type_name = type_name.map(|name| name.string("a type")).transpose()?;
    let type_name = type_name.unwrap_or_default();
    let index_fields = context.index_fields.get(&*type_name);
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
                true => moved_to_profile(value, context.offset_ns),
                false => value,
            }
        };
        fields.push((profile.intern(key), value));
    }
    Ok((profile.intern(&type_name), stack))
}

/// Returns whether a marker's field holds a time in ms since its process's start, which the Firefox
/// Profiler moves to the time of the profile. In the model, such a field has the profile's time.
fn holds_process_time(type_name: &str, key: &str) -> bool {
    matches!(key, "startTime" | "endTime")
        || (type_name == "Network" && NETWORK_TIMES.contains(&key))
}

/// Returns a time of a process, in ms, as the profile's. The process started `offset_ns` after it.
fn moved_to_profile(value: FieldValue, offset_ns: i64) -> FieldValue {
    let time_ms = match value {
        _ if offset_ns == 0 => return value,
        FieldValue::Integer(time) => time as f64,
        FieldValue::Number(time) => time,
        _ => return value,
    };
    // To ns and back, so that the sum has no needless digits.
    let ns = to_ns(time_ms + offset_ns as f64 / 1e6);
    ns.map_or(value, |ns| FieldValue::Number(ns as f64 / 1e6))
}

pub(crate) fn field_value(
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
