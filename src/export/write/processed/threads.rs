//! The threads with their samples, markers and allocations.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

use crate::export::markers::{field, write_value};
use crate::export::write::processed::columns::{Strings, column, numbers, time_deltas, write_tid};
use crate::export::write::processed::context::Context;
use crate::json::JsonWriter;
use crate::model::{FieldValue, Marker, MarkerPayload, ProfileModel, Thread, WeightUnit};
use crate::util::SharedSort;

/// The column that only native allocations have.
const ADDRESS: &str = "memoryAddress";

pub(crate) fn write_thread<'a>(
    json: &mut JsonWriter<'_>,
    context: &Context<'a>,
    strings: &mut Strings<'a>,
    index: usize,
) {
    let Context {
        profile,
        schemas,
        shown,
        options,
        ..
    } = context;
    let thread = &profile.threads[index];
    let name = match options.thread {
        Some(_) => thread.name.clone(),
        None => shown[index].name(&thread.name),
    };
    let process = profile.process_of(thread);
    json.object(|json| {
        json.key("name").string(&name);
        json.key("isMainThread").bool(thread.is_main);
        json.key("pid").string(&process.pid);
        write_tid(json.key("tid"), &thread.tid);
        let kind = if process.kind.is_empty() {
            "default"
        } else {
            &process.kind
        };
        json.key("processType").string(kind);
        json.key("processName").string(&process.name);
        let started_ns = process.started_ns.unwrap_or(0);
        json.key("processStartupTime").signed_time_ms(started_ns);
        json.key("processShutdownTime")
            .or_null(process.ended_ns, JsonWriter::signed_time_ms);
        json.key("registerTime")
            .signed_time_ms(thread.registered_ns.unwrap_or(started_ns));
        json.key("unregisterTime")
            .or_null(thread.unregistered_ns, JsonWriter::signed_time_ms);
        let pauses = process.paused_ranges.iter();
        column(json, "pausedRanges", pauses, |json, pause| {
            json.object(|json| {
                json.key("startTime")
                    .or_null(pause.start_ns, JsonWriter::signed_time_ms);
                json.key("endTime")
                    .or_null(pause.end_ns, JsonWriter::signed_time_ms);
                json.key("reason").string(&pause.reason);
            });
        });
        // Without it, the viewer shows such markers on Firefox's own threads only.
        let mut types = thread.markers.iter().filter_map(|marker| marker.payload);
        if types.any(|payload| schemas.is_in_overview(profile.text(payload.type_name))) {
            json.key("showMarkersInTimeline").bool(true);
        }
        write_pages(json, context, thread);
        json.key("samples")
            .object(|json| write_samples(json, context, thread));
        let [markers, js_allocations, native_allocations] = marker_rows(profile, thread);
        json.key("markers").object(|json| {
            write_markers(json, context, strings, thread, &markers);
        });
        let js = &["className", "typeName", "coarseType", "inNursery"];
        let js = ("jsAllocations", &js[..]);
        write_allocations(json, context, thread, &js_allocations, js);
        let native = ("nativeAllocations", &[ADDRESS, "threadId"][..]);
        write_allocations(json, context, thread, &native_allocations, native);
    });
}

/// Writes which pages the thread's code and markers belong to, if there are any. The viewer then
/// shows the thread when its user selects such a page's tab.
fn write_pages(json: &mut JsonWriter<'_>, context: &Context<'_>, thread: &Thread) {
    let Context { profile, rows, .. } = context;
    let mut pages = BTreeSet::new();
    if rows.frames(profile).any(|frame| frame.inner_window_id != 0) {
        let mut seen = HashSet::new();
        for sample in thread.samples.iter() {
            let mut next = sample.stack;
            while let Some(stack) = next.filter(|stack| seen.insert(*stack)) {
                let (prefix, frame) = profile.stack(stack);
                pages.insert(profile.frame(frame).inner_window_id);
                next = prefix;
            }
        }
    }
    for payload in thread.markers.iter().filter_map(|marker| marker.payload) {
        for (key, value) in payload.fields {
            if let FieldValue::Integer(id @ 1..) = value
                && profile.text(*key) == "innerWindowID"
            {
                pages.insert(id.unsigned_abs());
            }
        }
    }
    pages.remove(&0);
    if !pages.is_empty() {
        numbers(json, "usedInnerWindowIDs", pages.into_iter().map(Some));
    }
}

fn write_samples(json: &mut JsonWriter<'_>, context: &Context<'_>, thread: &Thread) {
    let Context {
        profile, options, ..
    } = context;
    let samples = &thread.samples;
    let charged = || options.rows(profile, thread);
    let rows = || charged().map(|row| row.sample);
    let stacks = rows().map(|sample| Some(context.rows.stack(sample.stack?)));
    numbers(json, "stack", stacks);
    time_deltas(json, rows().map(|sample| sample.time_ns));
    if samples.has_cpu_deltas() {
        numbers(
            json,
            "threadCPUDelta",
            rows().map(|sample| sample.cpu_delta_ns),
        );
    }
    if samples.has_event_delays() {
        column(json, "eventDelay", rows(), |json, sample| {
            json.or_null(sample.event_delay_ns, JsonWriter::time_ms);
        });
    }
    let weight_type = if options.counts_cpu(profile) {
        column(json, "weight", charged(), |json, row| {
            json.time_ms(row.cpu_ns);
        });
        "tracing-ms"
    } else {
        match samples.has_weights() {
            true => column(json, "weight", rows(), |json, sample| {
                json.signed(sample.weight);
            }),
            false => json.key("weight").null(),
        }
        match samples.weight_unit {
            WeightUnit::Samples => "samples",
            WeightUnit::Milliseconds => "tracing-ms",
            WeightUnit::Bytes => "bytes",
        }
    };
    json.key("weightType").string(weight_type);
    json.key("length").unsigned(rows().count() as u64);
}

/// Writes the columns of the markers with these indices.
fn write_markers<'a>(
    json: &mut JsonWriter<'_>,
    context: &Context<'a>,
    strings: &mut Strings<'a>,
    thread: &Thread,
    rows: &[u32],
) {
    let markers = || rows.iter().map(|&row| thread.markers.get(row as usize));
    let names = markers().map(|marker| Some(strings.text(marker.name)));
    numbers(json, "name", names);
    column(json, "startTime", markers(), |json, marker| {
        json.or_null(marker.start_ns, JsonWriter::signed_time_ms);
    });
    column(json, "endTime", markers(), |json, marker| {
        json.or_null(marker.end_ns, JsonWriter::signed_time_ms);
    });
    numbers(
        json,
        "phase",
        markers().map(|marker| Some(marker.phase as u64)),
    );
    let categories = markers().map(|marker| context.categories.of_marker(marker.category));
    numbers(json, "category", categories.map(Some));
    column(json, "data", markers(), |json, marker| {
        json.or_null(marker.payload, |json, payload| {
            write_payload(json, context, strings, thread, payload);
        });
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
                json.key("time").signed_time_ms(time_ns);
                json.key("stack").unsigned(context.rows.stack(stack));
            });
        }
    });
}

/// Converts a field of Firefox's own markers that differs between its format and this one: the
/// timings of a garbage collection. Returns `None` for any other field.
fn converted_field(type_name: &str, key: &str, json: &str) -> Option<String> {
    if key != "timings" {
        return None;
    }
    let phases = match type_name {
        "GCSlice" => "times",
        "GCMajor" => "totals",
        _ => return None,
    };
    let Value::Object(mut timings) = serde_json::from_str(json).ok()? else {
        return None;
    };
    if type_name == "GCMajor" {
        if timings
            .get("status")
            .is_some_and(|status| status == "aborted")
        {
            timings.retain(|key, _| key == "status");
            return Some(Value::Object(timings).to_string());
        }
        // Percentages become shares.
        for key in ["mmu_20ms", "mmu_50ms"] {
            if let Some(share) = timings.get_mut(key) {
                *share = (share.as_f64()? / 100.0).into();
            }
        }
    }
    let in_ms = match timings.remove(phases) {
        Some(Value::Object(phases)) => phases,
        _ => Map::new(),
    };
    let in_us = in_ms.into_iter().map(|(phase, ms)| {
        let us = ms.as_f64().unwrap_or(0.0) * 1000.0;
        (phase, Value::from(us))
    });
    timings.insert("phase_times".to_owned(), Value::Object(in_us.collect()));
    Some(Value::Object(timings).to_string())
}

/// Returns the markers of a thread by the table that they belong to, each in the order of their
/// times: those of the table of markers, JS allocations, and native allocations.
fn marker_rows(profile: &ProfileModel, thread: &Thread) -> [Vec<u32>; 3] {
    let mut tables = <[Vec<u32>; 3]>::default();
    for (index, marker) in (0..).zip(thread.markers.iter()) {
        let type_name = marker
            .payload
            .map(|payload| profile.text(payload.type_name));
        let table = match type_name {
            Some("JS allocation") => 1,
            Some("Native allocation") => 2,
            _ => 0,
        };
        tables[table].push(index);
    }
    for table in &mut tables {
        // The viewer pairs the start of an interval with the next end of the same name.
        table.shared_sort_by_key(|index| {
            let marker = thread.markers.get(*index as usize);
            marker.end_ns.or(marker.start_ns)
        });
    }
    tables
}

/// Writes a table of allocations: that of the markers in these rows, if there are any. Gecko's
/// format has them as markers of two types. This format has a table of each type in the thread,
/// which the viewer shows as call trees of memory. `keys` are the fields that are columns of the
/// same name.
fn write_allocations(
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
            json.signed_time_ms(marker.start_ns.or(marker.end_ns).unwrap_or(0));
        });
        let stacks = markers().map(|marker| Some(context.rows.stack(marker.payload?.stack?.0)));
        numbers(json, "stack", stacks);
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
