//! Reads a thread of the processed format.

use crate::export::read::builder::{Cause, ModelBuilder, Strings, in_order, marker_category};
use crate::export::read::columns::{fill_column, for_rows, required_column};
use crate::export::read::gecko_thread::weight_unit;
use crate::export::read::marker_fields::{MarkerReader, MarkerTimes, field_value};
use crate::export::read::processed_profile::ProcessedProfile;
use crate::export::read::processed_tables::Tables;
use crate::export::read::value::{Object, Value, to_ns};
use crate::model::{
    Marker, MarkerPayload, MarkerPhase, Markers, ProfileModel, Sample, Samples, TextId, Thread,
};
use crate::types::ReadError;

/// Adds a thread to the model.
pub(super) fn read_thread<'a>(
    builder: &mut ModelBuilder,
    context: &ProcessedProfile,
    thread: &Object<'a, '_>,
    process: usize,
    strings: &mut Strings<'a>,
    tables: &Tables,
) -> Result<(), ReadError> {
    let name = thread.text("name")?;
    let tid = thread.get("tid").map(|tid| tid.id()).transpose()?;
    let tid = tid.unwrap_or_default().into_owned();
    let is_main = match thread.get("isMainThread") {
        Some(is_main) => is_main.bool()?,
        None => name == "GeckoMain" || tid == builder.profile.processes[process].pid,
    };
    let samples = read_samples(context, thread, tables)?;
    let profile = &mut builder.profile;
    let mut markers = read_markers(profile, context, thread, strings, tables)?;
    read_allocations(profile, &mut markers, thread, "jsAllocations", tables)?;
    read_allocations(profile, &mut markers, thread, "nativeAllocations", tables)?;
    builder.profile.threads.push(Thread {
        process,
        name,
        tid,
        is_main,
        registered_ns: thread.optional_time_ns("registerTime")?,
        unregistered_ns: thread.optional_time_ns("unregisterTime")?,
        asleep_at: None,
        samples,
        markers,
    });
    Ok(())
}

/// Calls `set` with the time of each row of a table, which has times or the differences of times.
pub(super) fn read_times(
    table: &Object<'_, '_>,
    length: usize,
    mut set: impl FnMut(usize, i64),
) -> Result<(), ReadError> {
    let mut count = 0;
    if table.get("time").is_some() {
        for_rows(table, "time", length, |row, time| {
            set(row, time.time_ns()?);
            count += 1;
            Ok(())
        })?;
    } else {
        table.require("timeDeltas", "a column of times, or \"time\"")?;
        let mut now_ms = 0.0;
        for_rows(table, "timeDeltas", length, |row, delta| {
            now_ms += delta.number("a difference of times in ms")?;
            let expected = "a difference that leads to a time within 30 years of the start";
            set(row, to_ns(now_ms).ok_or_else(|| delta.error(expected))?);
            count += 1;
            Ok(())
        })?;
    }
    match count == length {
        true => Ok(()),
        false => Err(table.place.error(
            format_args!("{count} times"),
            format_args!("{length}, as in the other columns"),
        )),
    }
}

fn read_samples(
    context: &ProcessedProfile,
    thread: &Object<'_, '_>,
    tables: &Tables,
) -> Result<Samples, ReadError> {
    let table = thread.require("samples", "a table")?;
    let table = table.object("a table")?;
    let mut samples = Samples::default();
    samples.weight_unit = weight_unit(&table)?;
    let stacks = table.require("stack", "a column, which is an array")?;
    stacks.each("a column, which is an array", |_, index| {
        let stack = match index.is_null() {
            true => None,
            false => Some(tables.stack(index)?),
        };
        samples.push(Sample {
            stack,
            time_ns: 0,
            cpu_delta_ns: None,
            event_delay_ns: None,
            weight: 1,
        });
        Ok(())
    })?;
    let length = samples.len();
    read_times(&table, length, |row, time_ns| {
        samples.update(row, |sample| sample.time_ns = time_ns);
    })?;
    for_rows(&table, "eventDelay", length, |row, delay| {
        let delay_ns = delay.duration_ns()?;
        samples.update(row, |sample| sample.event_delay_ns = Some(delay_ns));
        Ok(())
    })?;
    for_rows(&table, "threadCPUDelta", length, |row, delta| {
        let delta_ns = context.cpu_unit.to_ns(delta.count("a number")?);
        samples.update(row, |sample| sample.cpu_delta_ns = delta_ns);
        Ok(())
    })?;
    for_rows(&table, "weight", length, |row, weight| {
        let weight = weight.count("a number")?.round() as i64;
        samples.update(row, |sample| sample.weight = weight);
        Ok(())
    })?;
    Ok(in_order(samples))
}

#[derive(Clone, Copy)]
struct MarkerRow {
    name: TextId,
    times: MarkerTimes,
    phase: MarkerPhase,
    category: u16,
}

fn read_markers<'a>(
    profile: &mut ProfileModel,
    context: &ProcessedProfile,
    thread: &Object<'a, '_>,
    strings: &mut Strings<'a>,
    tables: &Tables,
) -> Result<Markers, ReadError> {
    let table = thread.require("markers", "a table")?;
    let table = table.object("a table")?;
    let mut rows = required_column(&table, "name", |name| {
        Ok(MarkerRow {
            name: strings.id(profile, name)?,
            times: MarkerTimes::default(),
            phase: MarkerPhase::Instant,
            category: 0,
        })
    })?;
    fill_column(&table, "startTime", &mut rows, |row, time| {
        row.times.start_ns = Some(time.time_ns()?);
        Ok(())
    })?;
    fill_column(&table, "endTime", &mut rows, |row, time| {
        row.times.end_ns = Some(time.time_ns()?);
        Ok(())
    })?;
    let phases = table.require("phase", "a column, which is an array")?;
    let mut count = 0;
    phases.each("a column, which is an array", |row, phase| {
        let row = rows.get_mut(row);
        let row = row.ok_or_else(|| phase.error("no more rows than in the other columns"))?;
        (row.phase, row.times) = row.times.of_phase(phase)?;
        count += 1;
        Ok(())
    })?;
    if count < rows.len() {
        let expected = format!("{}, as in the other columns", rows.len());
        return Err(phases.place.error(format_args!("{count} rows"), expected));
    }
    fill_column(&table, "category", &mut rows, |row, category| {
        row.category = marker_category(&context.categories, Some(category))?;
        Ok(())
    })?;
    let mut markers = Markers::default();
    let mut reader = MarkerReader::new(&context.index_fields, 0.0);
    let mut cause = |_: &mut ProfileModel, key: &str, value: Value<'_, '_>| match key {
        "cause" => read_cause(tables, value),
        _ => Ok(None),
    };
    let mut add = |row: &MarkerRow, data: Option<Value<'a, '_>>| {
        let marker = Marker {
            name: row.name,
            phase: row.phase,
            start_ns: row.times.start_ns,
            end_ns: row.times.end_ns,
            category: row.category,
            payload: None,
        };
        reader.push(profile, &mut markers, marker, data, strings, &mut cause)
    };
    let mut next = 0;
    for_rows(&table, "data", rows.len(), |index, data| {
        for row in &rows[next..index] {
            add(row, None)?;
        }
        next = index + 1;
        add(&rows[index], Some(data))
    })?;
    for row in &rows[next..] {
        add(row, None)?;
    }
    Ok(markers)
}

/// Reads the stack of a marker, and its time. Returns `None` for any other value.
fn read_cause(tables: &Tables, value: Value<'_, '_>) -> Result<Option<Cause>, ReadError> {
    if !value.is_object() {
        return Ok(None);
    }
    let cause = value.object("a stack")?;
    let Some(stack) = cause.get("stack") else {
        return Ok(Some(None));
    };
    let time_ns = cause.optional_time_ns("time")?.unwrap_or(0);
    Ok(Some(Some((tables.stack(stack)?, time_ns))))
}

/// Adds the allocations of a thread as markers, which they are in Gecko's JSON.
fn read_allocations(
    profile: &mut ProfileModel,
    markers: &mut Markers,
    thread: &Object<'_, '_>,
    table_name: &'static str,
    tables: &Tables,
) -> Result<(), ReadError> {
    let Some(table) = thread.get(table_name) else {
        return Ok(());
    };
    let table = table.object("a table")?;
    let is_js = table_name == "jsAllocations";
    // A column of the table, and the marker's field for it.
    let (type_name, columns): (_, &[(&'static str, &str)]) = match is_js {
        true => (
            "JS allocation",
            &[
                ("weight", "size"),
                ("className", "className"),
                ("typeName", "typeName"),
                ("coarseType", "coarseType"),
                ("inNursery", "inNursery"),
            ],
        ),
        false => (
            "Native allocation",
            &[
                ("weight", "size"),
                ("memoryAddress", "memoryAddress"),
                ("threadId", "threadId"),
            ],
        ),
    };
    let mut stacks = required_column(&table, "stack", |index| match index.is_null() {
        true => Ok(None),
        false => Ok(Some(tables.stack(index)?)),
    })?;
    let mut times = vec![0; stacks.len()];
    read_times(&table, times.len(), |row, time_ns| times[row] = time_ns)?;
    let mut fields = vec![Vec::new(); stacks.len()];
    for &(column, key) in columns {
        let key = profile.intern(key);
        fill_column(&table, column, &mut fields, |fields, value| {
            fields.push((key, field_value(profile, value)?));
            Ok(())
        })?;
    }
    let type_name = profile.intern(type_name);
    for ((stack, time_ns), fields) in stacks.drain(..).zip(times).zip(&fields) {
        markers.push(Marker {
            name: type_name,
            phase: MarkerPhase::Instant,
            start_ns: Some(time_ns),
            end_ns: None,
            category: 0,
            payload: Some(MarkerPayload {
                type_name,
                fields,
                stack: stack.map(|stack| (stack, time_ns)),
            }),
        });
    }
    Ok(())
}
