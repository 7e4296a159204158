//! The tables of allocations. Gecko's format has them as markers of two types; this format has a
//! table of each type in the thread, which the viewer shows as call trees of memory.

use crate::export::write::processed::columns::{column, number_or_null, time_ms};
use crate::export::write::processed::context::Context;
use crate::json::JsonWriter;
use crate::model::{FieldValue, Marker, Markers, ProfileModel, Thread};
use crate::util::SharedSort;

/// The markers of a thread by the table that they belong to, each in the order of their times.
pub(super) struct MarkerRows {
    pub(super) markers: Vec<u32>,
    pub(super) js_allocations: Vec<u32>,
    pub(super) native_allocations: Vec<u32>,
}

impl MarkerRows {
    pub(super) fn of(profile: &ProfileModel, markers: &Markers) -> Self {
        let mut rows = Self {
            markers: Vec::new(),
            js_allocations: Vec::new(),
            native_allocations: Vec::new(),
        };
        for (index, marker) in (0..).zip(markers.iter()) {
            let type_name = marker
                .payload
                .map(|payload| profile.text(payload.type_name));
            let table = match type_name {
                Some("JS allocation") => &mut rows.js_allocations,
                Some("Native allocation") => &mut rows.native_allocations,
                _ => &mut rows.markers,
            };
            table.push(index);
        }
        // The viewer pairs the start of an interval with the next end of the same name.
        let time = |index: &u32| {
            let marker = markers.get(*index as usize);
            marker.end_ns.or(marker.start_ns)
        };
        rows.markers.shared_sort_by_key(time);
        rows.js_allocations.shared_sort_by_key(time);
        rows.native_allocations.shared_sort_by_key(time);
        rows
    }
}

pub(super) fn write_js_allocations(
    json: &mut JsonWriter<'_>,
    context: &Context<'_>,
    thread: &Thread,
    rows: &[u32],
) {
    if rows.is_empty() {
        return;
    }
    json.key("jsAllocations").object(|json| {
        for key in ["className", "typeName", "coarseType", "inNursery"] {
            write_field(json, context, thread, rows, (key, key));
        }
        write_common_columns(json, context, thread, rows);
    });
}

pub(super) fn write_native_allocations(
    json: &mut JsonWriter<'_>,
    context: &Context<'_>,
    thread: &Thread,
    rows: &[u32],
) {
    if rows.is_empty() {
        return;
    }
    json.key("nativeAllocations").object(|json| {
        let markers = || rows.iter().map(|&row| thread.markers.get(row as usize));
        let has_address = |marker: Marker<'_>| field(context, &marker, "memoryAddress").is_some();
        // Only with addresses can the viewer pair allocations with deallocations.
        if markers().all(has_address) {
            for key in ["memoryAddress", "threadId"] {
                write_field(json, context, thread, rows, (key, key));
            }
        }
        write_common_columns(json, context, thread, rows);
    });
}

fn write_common_columns(
    json: &mut JsonWriter<'_>,
    context: &Context<'_>,
    thread: &Thread,
    rows: &[u32],
) {
    let markers = || rows.iter().map(|&row| thread.markers.get(row as usize));
    column(json, "time", markers(), |json, marker| {
        time_ms(json, marker.start_ns.or(marker.end_ns).unwrap_or(0));
    });
    column(json, "stack", markers(), |json, marker| {
        let stack = marker.payload.and_then(|payload| payload.stack);
        number_or_null(json, stack.map(|(stack, _)| context.rows.stack(stack)));
    });
    write_field(json, context, thread, rows, ("weight", "size"));
    json.key("weightType").string("bytes");
    json.key("length").unsigned(rows.len() as u64);
}

fn field(context: &Context<'_>, marker: &Marker<'_>, key: &str) -> Option<FieldValue> {
    let mut fields = marker.payload?.fields.iter();
    let found = fields.find(|(known, _)| context.profile.text(*known) == key);
    found.map(|(_, value)| *value)
}

/// Writes the column `name` with the values of the field `key`. A missing value is 0, as the column
/// has numbers in all rows that a profiler writes.
fn write_field(
    json: &mut JsonWriter<'_>,
    context: &Context<'_>,
    thread: &Thread,
    rows: &[u32],
    (name, key): (&str, &str),
) {
    let markers = rows.iter().map(|&row| thread.markers.get(row as usize));
    column(json, name, markers, |json, marker| {
        match field(context, &marker, key) {
            Some(FieldValue::Bool(value)) => json.bool(value),
            Some(FieldValue::Integer(value)) => json.signed(value),
            Some(FieldValue::Number(value)) => json.float(value),
            Some(FieldValue::Text(text) | FieldValue::UniqueText(text)) => {
                json.string(context.profile.text(text));
            }
            Some(FieldValue::Json(text)) => json.splice(context.profile.text(text)),
            Some(FieldValue::Null) | None => json.unsigned(0),
        }
    });
}
