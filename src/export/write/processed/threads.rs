//! The threads with their samples.

use std::collections::{BTreeSet, HashSet};

use crate::export::write::processed::allocations::{MarkerRows, write_allocations};
use crate::export::write::processed::columns::{
    column, number_or_null, time_deltas, time_ms, time_ms_or_null, write_tid,
};
use crate::export::write::processed::context::Context;
use crate::export::write::processed::markers::write_markers;
use crate::export::write::processed::strings::Strings;
use crate::json::JsonWriter;
use crate::model::{FieldValue, Thread, WeightUnit};

pub(super) fn write_thread<'a>(
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
        time_ms(json.key("processStartupTime"), started_ns);
        time_ms_or_null(json.key("processShutdownTime"), process.ended_ns);
        time_ms(
            json.key("registerTime"),
            thread.registered_ns.unwrap_or(started_ns),
        );
        time_ms_or_null(json.key("unregisterTime"), thread.unregistered_ns);
        json.key("pausedRanges").array(|json| {
            for pause in &process.paused_ranges {
                json.object(|json| {
                    time_ms_or_null(json.key("startTime"), pause.start_ns);
                    time_ms_or_null(json.key("endTime"), pause.end_ns);
                    json.key("reason").string(&pause.reason);
                });
            }
        });
        // Without it, the viewer shows such markers on Firefox's own threads only.
        let mut types = thread.markers.iter().filter_map(|marker| marker.payload);
        if types.any(|payload| schemas.is_in_overview(profile.text(payload.type_name))) {
            json.key("showMarkersInTimeline").bool(true);
        }
        write_pages(json, context, thread);
        json.key("samples")
            .object(|json| write_samples(json, context, thread));
        let rows = MarkerRows::of(profile, &thread.markers);
        json.key("markers").object(|json| {
            write_markers(json, context, strings, thread, &rows.markers);
        });
        let js = &["className", "typeName", "coarseType", "inNursery"];
        let js = ("jsAllocations", &js[..]);
        write_allocations(json, context, thread, &rows.js_allocations, js);
        let native = ("nativeAllocations", &["memoryAddress", "threadId"][..]);
        write_allocations(json, context, thread, &rows.native_allocations, native);
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
        column(json, "usedInnerWindowIDs", pages.into_iter(), |json, id| {
            json.unsigned(id)
        });
    }
}

fn write_samples(json: &mut JsonWriter<'_>, context: &Context<'_>, thread: &Thread) {
    let Context {
        profile, options, ..
    } = context;
    let samples = &thread.samples;
    let charged = || options.rows(profile, thread);
    let rows = || charged().map(|row| row.sample);
    column(json, "stack", rows(), |json, sample| {
        number_or_null(json, sample.stack.map(|stack| context.rows.stack(stack)));
    });
    time_deltas(json, rows().map(|sample| sample.time_ns));
    if samples.has_cpu_deltas() {
        column(json, "threadCPUDelta", rows(), |json, sample| {
            number_or_null(json, sample.cpu_delta_ns);
        });
    }
    if samples.has_event_delays() {
        column(json, "eventDelay", rows(), |json, sample| {
            match sample.event_delay_ns {
                Some(ns) => json.time_ms(ns),
                None => json.null(),
            }
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
