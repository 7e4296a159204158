//! The payload of an event: a line of the viewer's log, with fields.

use std::borrow::Cow;

use tracing_core::{Event, Level};

use crate::integrations::tracing::callsites::{Callsite, MESSAGE, add_fields_to};
use crate::integrations::tracing::field_values::{FieldValue, FieldValues};
use crate::integrations::tracing::span_flow::SpanFlow;
use crate::integrations::tracing::span_marker::write_fields;
use crate::integrations::viewer_log;
use crate::markers::{
    Format, JSONWriter, MarkerSchema, PayloadFlags, ProfilerMarker, serde_as_tuple,
};

const RESERVED: &[&str] = &["level", MESSAGE, "location", "span", "fields"];

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
        add_fields_to(&mut schema, false, RESERVED);
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
        write_fields(json, callsite, &self.values, RESERVED);
        if let Some(metadata) = callsite.metadata() {
            viewer_log::write_location(json, metadata.file(), metadata.line());
        }
        if let Some(span) = SpanFlow::from_number(span) {
            json.flow_property("span", span.id());
        }
    }
}
