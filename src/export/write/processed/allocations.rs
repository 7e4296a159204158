//! The tables of allocations. Gecko's format has them as markers of two types; this format has a
//! table of each type in the thread, which the viewer shows as call trees of memory.

use crate::export::payloads::{field, write_value};
use crate::export::write::processed::columns::{column, number_or_null, time_ms};
use crate::export::write::processed::context::Context;
use crate::json::JsonWriter;
use crate::model::{FieldValue, Marker, Markers, ProfileModel, Thread};
use crate::util::SharedSort;

/// The column that only native allocations have.
const ADDRESS: &str = "memoryAddress";

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

/// Writes the table of the markers in these rows, if there are any. `keys` are the fields that are
/// columns of the same name.
pub(super) fn write_allocations(
    json: &mut JsonWriter<'_>,
    context: &Context<'_>,
    thread: &Thread,
    rows: &[u32],
    (name, keys): (&str, &[&str]),
) {
    if rows.is_empty() {
        return;
    }
    json.key(name).object(|json| {
        let markers = || rows.iter().map(|&row| thread.markers.get(row as usize));
        // Only with addresses can the viewer pair native allocations with deallocations.
        let has_address = |marker: Marker<'_>| field(context.profile, &marker, ADDRESS).is_some();
        let is_paired = !keys.contains(&ADDRESS) || markers().all(has_address);
        for key in keys.iter().filter(|_| is_paired) {
            write_field(json, context, markers(), (key, key));
        }
        column(json, "time", markers(), |json, marker| {
            time_ms(json, marker.start_ns.or(marker.end_ns).unwrap_or(0));
        });
        column(json, "stack", markers(), |json, marker| {
            let stack = marker.payload.and_then(|payload| payload.stack);
            number_or_null(json, stack.map(|(stack, _)| context.rows.stack(stack)));
        });
        write_field(json, context, markers(), ("weight", "size"));
        json.key("weightType").string("bytes");
        json.key("length").unsigned(rows.len() as u64);
    });
}

/// Writes the column `name` with the values of the field `key`. A missing value is 0, as the column
/// has numbers in all rows that a profiler writes.
fn write_field<'m>(
    json: &mut JsonWriter<'_>,
    context: &Context<'_>,
    markers: impl Iterator<Item = Marker<'m>>,
    (name, key): (&str, &str),
) {
    column(json, name, markers, |json, marker| {
        match field(context.profile, &marker, key) {
            Some(FieldValue::Null) | None => json.unsigned(0),
            Some(value) => write_value(json, context.profile, value),
        }
    });
}
