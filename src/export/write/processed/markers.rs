//! The table of a thread's markers.

use crate::export::payloads::write_value;
use crate::export::write::processed::columns::{column, time_ms, time_ms_or_null, write_tid};
use crate::export::write::processed::context::Context;
use crate::export::write::processed::firefox_payloads::converted_field;
use crate::export::write::processed::strings::Strings;
use crate::json::JsonWriter;
use crate::model::{FieldValue, MarkerPayload, Thread};

/// Writes the columns of the markers with these indices.
pub(super) fn write_markers<'a>(
    json: &mut JsonWriter<'_>,
    context: &Context<'a>,
    strings: &mut Strings<'a>,
    thread: &Thread,
    rows: &[u32],
) {
    let markers = || rows.iter().map(|&row| thread.markers.get(row as usize));
    json.key("name").array(|json| {
        for marker in markers() {
            json.unsigned(strings.text(marker.name));
        }
    });
    column(json, "startTime", markers(), |json, marker| {
        time_ms_or_null(json, marker.start_ns)
    });
    column(json, "endTime", markers(), |json, marker| {
        time_ms_or_null(json, marker.end_ns)
    });
    column(json, "phase", markers(), |json, marker| {
        json.unsigned(marker.phase as u64)
    });
    column(json, "category", markers(), |json, marker| {
        json.unsigned(context.categories.of_marker(marker.category).into());
    });
    json.key("data").array(|json| {
        for marker in markers() {
            match marker.payload {
                Some(payload) => write_payload(json, context, strings, thread, payload),
                None => json.null(),
            }
        }
    });
    json.key("length").unsigned(rows.len() as u64);
}

fn write_payload<'a>(
    json: &mut JsonWriter<'_>,
    context: &Context<'a>,
    strings: &mut Strings<'a>,
    thread: &Thread,
    payload: MarkerPayload<'_>,
) {
    let profile = context.profile;
    let type_name = profile.text(payload.type_name);
    json.object(|json| {
        json.key("type").string(type_name);
        for (key, value) in payload.fields {
            let key = profile.text(*key);
            json.key(key);
            match *value {
                FieldValue::UniqueText(text) => json.unsigned(strings.text(text)),
                FieldValue::Integer(value) if (type_name, key) == ("IPC", "otherPid") => {
                    // Process ids are texts in this format.
                    json.string(&value.to_string());
                }
                FieldValue::Json(text) => match converted_field(type_name, key, profile.text(text))
                {
                    Some(converted) => json.splice(converted),
                    None => json.splice(profile.text(text)),
                },
                value => write_value(json, profile, value),
            }
        }
        if let Some((stack, time_ns)) = payload.stack {
            json.key("cause").object(|json| {
                write_tid(json.key("tid"), &thread.tid);
                time_ms(json.key("time"), time_ns);
                json.key("stack").unsigned(context.rows.stack(stack));
            });
        }
    });
}
