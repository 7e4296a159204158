//! Reads a thread of the processed format.

use crate::export::read::builder::{Cause, ModelBuilder, Strings};
use crate::export::read::context::Context;
use crate::export::read::marker_fields::field_value;
use crate::export::read::processed_tables::Tables;
use crate::export::read::table::each_row;
use crate::export::read::thread::{read_markers, read_samples, read_thread};
use crate::export::read::value::{Object, Value};
use crate::model::{Marker, MarkerPayload, MarkerPhase, Markers, ProfileModel};
use crate::types::ReadError;

/// Columns of the table of allocations in JavaScript, and the markers' fields for them.
const JS_COLUMNS: &[(&str, &str)] = &[
    ("weight", "size"),
    ("className", "className"),
    ("typeName", "typeName"),
    ("coarseType", "coarseType"),
    ("inNursery", "inNursery"),
];

/// Columns of the table of native allocations, and the markers' fields for them.
const NATIVE_COLUMNS: &[(&str, &str)] = &[
    ("weight", "size"),
    ("memoryAddress", "memoryAddress"),
    ("threadId", "threadId"),
];

/// Adds a thread to the model.
pub(super) fn read_processed_thread<'a>(
    builder: &mut ModelBuilder,
    context: &Context,
    thread: &Object<'a, '_>,
    process: usize,
    strings: &mut Strings<'a>,
    tables: &Tables,
) -> Result<(), ReadError> {
    let mut read = read_thread(context, thread, process)?;
    read.is_main = match thread.get("isMainThread") {
        Some(is_main) => is_main.bool()?,
        None => read.name == "GeckoMain" || read.tid == builder.profile.processes[process].pid,
    };
    read.samples = read_samples(context, thread, |index| tables.stack(index))?;
    let mut cause = |_: &mut ProfileModel, key: &str, value: Value<'_, '_>| match key {
        "cause" => read_cause(tables, value),
        _ => Ok(None),
    };
    let profile = &mut builder.profile;
    read.markers = read_markers(profile, context, thread, strings, &mut cause)?;
    for (key, type_name, columns) in [
        ("jsAllocations", "JS allocation", JS_COLUMNS),
        ("nativeAllocations", "Native allocation", NATIVE_COLUMNS),
    ] {
        if let Some(table) = thread.get(key) {
            let table = table.object("a table")?;
            let kind = (type_name, columns);
            read_allocations(profile, context, &mut read.markers, &table, kind, tables)?;
        }
    }
    profile.threads.push(read);
    Ok(())
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

/// Adds allocations as markers, which they are in Gecko's JSON.
fn read_allocations(
    profile: &mut ProfileModel,
    context: &Context,
    markers: &mut Markers,
    table: &Object<'_, '_>,
    (type_name, fields): (&str, &[(&'static str, &str)]),
    tables: &Tables,
) -> Result<(), ReadError> {
    let type_name = profile.intern(type_name);
    let mut columns = vec!["stack", "time"];
    columns.extend(fields.iter().map(|(column, _)| column));
    let keys = fields
        .iter()
        .map(|&(column, key)| (column, profile.intern(key)));
    let keys: Vec<_> = keys.collect();
    let mut values = Vec::new();
    each_row(context.form, table, (&columns, 2), |_, row| {
        let stack = row.get("stack").map(|index| tables.stack(index));
        let (stack, time_ns) = (stack.transpose()?, row.time_ns()?);
        values.clear();
        for &(column, key) in &keys {
            if let Some(value) = row.get(column) {
                values.push((key, field_value(profile, value)?));
            }
        }
        markers.push(Marker {
            name: type_name,
            phase: MarkerPhase::Instant,
            start_ns: Some(time_ns),
            end_ns: None,
            category: 0,
            payload: Some(MarkerPayload {
                type_name,
                fields: &values,
                stack: stack.map(|stack| (stack, time_ns)),
            }),
        });
        Ok(())
    })
}
