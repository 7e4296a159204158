//! The payloads of spans and events, and the callsites that give their fields names.

use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use tracing_core::{Event, Level, Metadata};

use crate::integrations::tracing::field_values::{FieldValue, FieldValues};
use crate::integrations::tracing::open_spans::{OpenSpan, SpanFlow};
use crate::integrations::tracing::span_context::TRACE_ID;
use crate::integrations::viewer_log;
use crate::markers::{
    Format, JSONWriter, Location, MarkerSchema, PayloadFlags, ProfilerMarker, serde_as_tuple,
};
use crate::types::ProfilerTime;
use crate::util::cut_at_character;

/// Maximum length of the summary of all fields in the viewer's table and chart, in bytes. The
/// tooltip shows each field in full.
const MAX_SUMMARY_BYTES: usize = 256;

const RESERVED_OF_SPANS: &[&str] = &[
    "target", "location", "busy", "idle", "span", "parent", "follows", "fields",
];
const RESERVED_OF_EVENTS: &[&str] = &["level", MESSAGE, "location", "span", "fields"];
/// The field in which `tracing` stores the text of an event.
const MESSAGE: &str = "message";

const SLOT_COUNT: usize = 4096;
/// Maximum number of slots tried for a callsite. If all are taken, the callsite gets no number. 64
/// suffice for more than 3,000 callsites.
const MAX_PROBES: usize = 64;

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
        add_fields_to(&mut schema, true, RESERVED_OF_SPANS);
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
        write_fields(json, callsite, &self.values, RESERVED_OF_SPANS);
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
            viewer_log::write_location(json, metadata.file(), metadata.line());
        }
        for (key, flow) in [("span", flow), ("parent", parent), ("follows", follows)] {
            if let Some(flow) = SpanFlow::from_number(flow) {
                json.flow_property(key, flow.id());
            }
        }
    }
}

/// The fields of an event, and the span it occurred in.
#[derive(Debug)]
pub(crate) struct TracingEvent {
    /// Numbers of the callsite and of the span's flow.
    head: [u64; 2],
    values: FieldValues,
}

serde_as_tuple!(TracingEvent {
    head: [u64; 2],
    values: FieldValues
});

impl TracingEvent {
    /// Collects the event's fields, which runs code of the application.
    #[inline]
    pub(crate) fn new(event: &Event<'_>, span: Option<SpanFlow>) -> Self {
        let mut values = FieldValues::new();
        event.record(&mut values);
        let head = [
            Callsite::of(event.metadata()).number(),
            SpanFlow::number_of(span),
        ];
        Self { head, values }
    }

    /// Returns the event's message, if it has one.
    fn message(&self, callsite: Callsite) -> Option<FieldValue<'_>> {
        self.values
            .get(callsite.metadata()?.fields().field(MESSAGE)?.index())
    }
}

/// Returns the index of the event's level in [`viewer_log::LEVELS`].
fn level_of(callsite: Callsite) -> u8 {
    match callsite.metadata().map(|metadata| *metadata.level()) {
        Some(Level::ERROR) => 0,
        Some(Level::WARN) => 1,
        Some(Level::DEBUG) => 3,
        Some(Level::TRACE) => 4,
        Some(Level::INFO) | None => 2,
    }
}

impl ProfilerMarker for TracingEvent {
    fn marker_type_name() -> &'static str {
        viewer_log::name()
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = viewer_log::schema();
        add_fields_to(&mut schema, false, RESERVED_OF_EVENTS);
        schema
            .add_key_label_format("span", "Span", Format::Flow)
            .add_key_format_with_flags("fields", Format::String, PayloadFlags::Hidden);
        schema
    }

    fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
        let [callsite, span] = self.head;
        let callsite = Callsite::from_number(callsite);
        let message = self
            .message(callsite)
            .map_or(Cow::Borrowed(""), |message| Cow::Owned(message.to_string()));
        viewer_log::write_fields(json, level_of(callsite), &message);
        write_fields(json, callsite, &self.values, RESERVED_OF_EVENTS);
        if let Some(metadata) = callsite.metadata() {
            viewer_log::write_location(json, metadata.file(), metadata.line());
        }
        if let Some(span) = SpanFlow::from_number(span) {
            json.flow_property("span", span.id());
        }
    }
}

/// Writes the application's fields, and a summary of them in one line, in the format of `tracing`'s
/// own output.
fn write_fields(
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

type Slot = OnceLock<&'static Metadata<'static>>;

static TABLE: LazyLock<Box<[Slot]>> =
    LazyLock::new(|| (0..SLOT_COUNT).map(|_| OnceLock::new()).collect());

/// The number of a callsite that has recorded markers, which entries in the buffer refer to.
///
/// The number is an index into a hash table, found by the address of the callsite's `tracing`
/// metadata, which is `'static`. The first lookup allocates the table. A lookup of a known callsite
/// takes no lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Callsite(u16);

impl Callsite {
    /// A callsite without a number: its markers have no fields.
    const UNKNOWN: Self = Self(u16::MAX);

    /// Returns the number of a callsite. The first call for a callsite assigns it.
    #[inline]
    fn of(metadata: &'static Metadata<'static>) -> Self {
        // Metadata addresses share many bits; the multiplication spreads them over the table.
        let address = std::ptr::from_ref(metadata).addr() as u64;
        let first = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        for probe in 0..MAX_PROBES {
            let number = (first + probe) % SLOT_COUNT;
            if std::ptr::eq(*TABLE[number].get_or_init(|| metadata), metadata) {
                return Self(number as u16);
            }
        }
        Self::UNKNOWN
    }

    #[inline]
    fn number(self) -> u64 {
        self.0.into()
    }

    fn from_number(number: u64) -> Self {
        u16::try_from(number).map_or(Self::UNKNOWN, Self)
    }

    fn metadata(self) -> Option<&'static Metadata<'static>> {
        TABLE.get(usize::from(self.0))?.get().copied()
    }
}

/// Adds the fields of all span callsites, or of all event callsites, to a schema.
fn add_fields_to(schema: &mut MarkerSchema, is_span: bool, reserved: &[&str]) {
    let known = TABLE
        .iter()
        .filter_map(|slot| slot.get())
        .filter(|known| known.is_span() == is_span);
    let mut names: Vec<&str> = known
        .flat_map(|known| known.fields().iter().map(|field| field.name()))
        .collect();
    // Spans have the id of their trace, even if they have no such field.
    names.extend(is_span.then_some(TRACE_ID));
    names.sort_unstable();
    names.dedup();
    for name in names {
        if let Some(key) = key_of(name, reserved) {
            schema.add_key_label_format(&key, name, Format::String);
        }
    }
}

/// Returns the key of an application's field in the profile: its name, with a `_` appended if the
/// layer or the viewer reserves the name.
///
/// Returns `None` for the message of an event, which the layer writes itself.
fn key_of<'a>(name: &'a str, reserved: &[&str]) -> Option<Cow<'a, str>> {
    match name {
        MESSAGE if reserved.contains(&MESSAGE) => None,
        "innerWindowID" => Some(Cow::Owned(format!("{name}_"))),
        _ if reserved.contains(&name) => Some(Cow::Owned(format!("{name}_"))),
        _ => Some(Cow::Borrowed(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_renames_reserved_fields() {
        let reserved = &["level", MESSAGE];
        assert_eq!(key_of("path", reserved).as_deref(), Some("path"));
        assert_eq!(key_of("level", reserved).as_deref(), Some("level_"));
        assert_eq!(
            key_of("innerWindowID", reserved).as_deref(),
            Some("innerWindowID_")
        );
        assert_eq!(key_of(MESSAGE, reserved), None);
        assert_eq!(key_of(MESSAGE, &["span"]).as_deref(), Some(MESSAGE));
    }
}
