//! The payload of a span.

use std::time::Duration;

use crate::integrations::tracing::callsites::{Callsite, add_fields_to, key_of};
use crate::integrations::tracing::field_values::FieldValues;
use crate::integrations::tracing::open_spans::OpenSpan;
use crate::integrations::tracing::span_context::TRACE_ID;
use crate::integrations::tracing::span_flow::SpanFlow;
use crate::integrations::viewer_log::write_location;
use crate::markers::{
    Format, JSONWriter, Location, MarkerSchema, PayloadFlags, ProfilerMarker, serde_as_tuple,
};
use crate::types::ProfilerTime;
use crate::util::cut_at_character;

/// Maximum length of the summary of all fields in the viewer's table and chart, in bytes. The
/// tooltip shows each field in full.
const MAX_SUMMARY_BYTES: usize = 256;

const RESERVED: &[&str] = &[
    "target", "location", "busy", "idle", "span", "parent", "follows", "fields",
];

/// A span that has ended.
#[derive(Debug)]
pub(crate) struct TracingSpan {
    /// Numbers of the callsite, the flow, the parent's flow and the followed span's flow; then busy
    /// and idle time in ns plus 1, or 0 if they are not measured; then the halves of the trace's id.
    head: [u64; 8],
    values: FieldValues,
}

serde_as_tuple!(TracingSpan {
    head: [u64; 8],
    values: FieldValues
});

impl TracingSpan {
    #[inline]
    pub(crate) fn new(span: OpenSpan, end: ProfilerTime) -> Self {
        // 0 means not measured.
        let plus_one_ns = |time: Duration| time.as_nanos() as u64 + 1;
        let idle = |busy| plus_one_ns(end.duration_since(span.start).saturating_sub(busy));
        let head = [
            Callsite::of(span.metadata).number(),
            SpanFlow::number_of(Some(span.flow)),
            SpanFlow::number_of(span.parent),
            SpanFlow::number_of(span.follows),
            span.busy.map_or(0, plus_one_ns),
            span.busy.map_or(0, idle),
            (span.trace_id >> 64) as u64,
            span.trace_id as u64,
        ];
        Self {
            head,
            values: span.values,
        }
    }
}

impl ProfilerMarker for TracingSpan {
    fn marker_type_name() -> &'static str {
        "TracingSpan"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        // Table and chart show the name themselves, and the tooltip shows each field.
        schema
            .set_table_label("{marker.data.fields}")
            .set_chart_label("{marker.data.fields}");
        add_fields_to(&mut schema, true, RESERVED);
        schema
            .add_key_label_format("busy", "Busy", Format::Duration)
            .add_key_label_format("idle", "Idle", Format::Duration)
            .add_key_label_format("target", "Target", Format::UniqueString)
            .add_key_label_format("location", "Location", Format::UniqueString)
            .add_key_label_format("span", "Span", Format::Flow)
            .add_key_label_format("parent", "Parent", Format::Flow)
            .add_key_label_format("follows", "Follows", Format::Flow)
            .add_key_format_with_flags("fields", Format::String, PayloadFlags::Hidden);
        schema
    }

    fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
        let [
            callsite,
            flow,
            parent,
            follows,
            busy_ns,
            idle_ns,
            trace @ ..,
        ] = self.head;
        let callsite = Callsite::from_number(callsite);
        write_fields(json, callsite, &self.values, RESERVED);
        let fields = callsite.metadata().map(|metadata| metadata.fields());
        let has_field = fields.is_some_and(|fields| fields.field(TRACE_ID).is_some());
        if trace != [0; 2] && !has_field {
            json.string_property(TRACE_ID, &format!("{:016x}{:016x}", trace[0], trace[1]));
        }
        for (key, plus_one_ns) in [("busy", busy_ns), ("idle", idle_ns)] {
            if let Some(ns) = plus_one_ns.checked_sub(1) {
                json.float_property(key, ns as f64 / 1e6);
            }
        }
        if let Some(metadata) = callsite.metadata() {
            json.unique_string_property("target", metadata.target());
            write_location(json, metadata.file(), metadata.line());
        }
        for (key, flow) in [("span", flow), ("parent", parent), ("follows", follows)] {
            if let Some(flow) = SpanFlow::from_number(flow) {
                json.flow_property(key, flow.id());
            }
        }
    }
}

/// Writes the application's fields, and a summary of them in one line, in the format of `tracing`'s
/// own output.
pub(crate) fn write_fields(
    json: &mut JSONWriter<'_>,
    callsite: Callsite,
    values: &FieldValues,
    reserved: &[&str],
) {
    let Some(metadata) = callsite.metadata() else {
        return;
    };
    let mut summary = String::new();
    for field in metadata.fields() {
        let (Some(key), Some(value)) = (key_of(field.name(), reserved), values.get(field.index()))
        else {
            continue;
        };
        value.write(json, &key);
        if summary.len() < MAX_SUMMARY_BYTES {
            let space = if summary.is_empty() { "" } else { " " };
            summary.push_str(&format!("{space}{}={value}", field.name()));
        }
    }
    if !summary.is_empty() {
        json.string_property("fields", cut_at_character(&summary, MAX_SUMMARY_BYTES));
    }
}
