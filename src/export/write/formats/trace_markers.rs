//! The markers of a thread as events of a trace.

use crate::export::payloads::write_value;
use crate::export::write::formats::marker_spans::MarkerSpan;
use crate::export::write::formats::ticks::MicroClock;
use crate::export::write::formats::trace_events::{MARKER_CATEGORY, write_track};
use crate::export::write::formats::trace_flows::Flows;
use crate::json::JsonWriter;
use crate::model::{Marker, MarkerPhase, ProfileModel, Thread};

/// Writes markers of a thread to one track.
pub(super) struct MarkerEvents<'a, 'b> {
    pub(super) profile: &'a ProfileModel,
    pub(super) thread: &'a Thread,
    pub(super) clock: MicroClock,
    pub(super) track: (u64, u64),
    pub(super) flows: &'b mut Flows<'a>,
}

impl<'a> MarkerEvents<'a, '_> {
    /// Writes intervals that nest: a pair of markers as `B` and `E`, a marker as `X`. The lists are
    /// sorted by start.
    pub(super) fn write_nested(&mut self, json: &mut JsonWriter<'_>, spans: &[MarkerSpan]) {
        // The pairs that have begun, the innermost last.
        let mut open: Vec<&MarkerSpan> = Vec::new();
        for span in spans {
            while let Some(ended) = open.pop_if(|outer| outer.end_ns <= span.start_ns) {
                self.write_end(json, ended);
            }
            if span.end_marker.is_none() {
                self.write_complete(json, span);
                continue;
            }
            open.push(span);
            self.add_flows(span.marker, span.start_ns);
            json.object(|json| {
                self.write_head(json, self.marker(span.marker), "B", span.start_ns);
                self.write_args(json, self.marker(span.marker));
            });
        }
        while let Some(ended) = open.pop() {
            self.write_end(json, ended);
        }
    }

    /// Writes the end of a pair.
    fn write_end(&mut self, json: &mut JsonWriter<'_>, span: &MarkerSpan) {
        json.object(|json| {
            self.write_head(json, self.marker(span.marker), "E", span.end_ns);
            self.write_end_args(json, span);
        });
        self.add_end_flows(span);
    }

    /// Writes an interval as a complete event. The data of a marker for its end is `end`.
    pub(super) fn write_complete(&mut self, json: &mut JsonWriter<'_>, span: &MarkerSpan) {
        self.add_flows(span.marker, span.start_ns);
        let (start_us, end_us) = (self.clock.us(span.start_ns), self.clock.us(span.end_ns));
        json.object(|json| {
            self.write_head(json, self.marker(span.marker), "X", span.start_ns);
            json.key("dur").signed(end_us - start_us);
            json.key("args").object(|json| {
                self.write_args_inside(json, self.marker(span.marker));
                if let Some(end) = span.end_marker {
                    let end = self.marker(end);
                    json.key("end")
                        .object(|json| self.write_args_inside(json, end));
                }
            });
        });
        self.add_end_flows(span);
    }

    /// Writes intervals that do not nest, as asynchronous events with ids from `next_id` on.
    pub(super) fn write_crossing(
        &mut self,
        json: &mut JsonWriter<'_>,
        spans: &[MarkerSpan],
        next_id: &mut u64,
    ) {
        for span in spans {
            let id = format!("{next_id:#x}");
            *next_id += 1;
            self.add_flows(span.marker, span.start_ns);
            json.object(|json| {
                self.write_head(json, self.marker(span.marker), "b", span.start_ns);
                json.key("id").string(&id);
                self.write_args(json, self.marker(span.marker));
            });
            json.object(|json| {
                self.write_head(json, self.marker(span.marker), "e", span.end_ns);
                json.key("id").string(&id);
                self.write_end_args(json, span);
            });
            self.add_end_flows(span);
        }
    }

    /// Writes the markers that have no duration. DevTools knows them as `I` only; other readers
    /// accept that as well as `i`.
    pub(super) fn write_instants(&mut self, json: &mut JsonWriter<'_>) {
        for (index, marker) in self.thread.markers.iter().enumerate() {
            let (MarkerPhase::Instant, Some(time_ns)) = (marker.phase, marker.start_ns) else {
                continue;
            };
            self.add_flows(index as u32, time_ns);
            json.object(|json| {
                self.write_head(json, marker, "I", time_ns);
                json.key("s").string("t");
                self.write_args(json, marker);
            });
        }
    }

    fn marker(&self, index: u32) -> Marker<'a> {
        self.thread.markers.get(index as usize)
    }

    /// Remembers the flows of a marker that is written at this time.
    fn add_flows(&mut self, index: u32, time_ns: i64) {
        if let Some(payload) = &self.marker(index).payload {
            let ts_us = self.clock.us(time_ns);
            self.flows.add(payload, ts_us, self.track);
        }
    }

    /// Remembers the flows of the marker for an interval's end.
    fn add_end_flows(&mut self, span: &MarkerSpan) {
        if let Some(end) = span.end_marker {
            self.add_flows(end, span.end_ns);
        }
    }

    fn write_head(&self, json: &mut JsonWriter<'_>, marker: Marker<'_>, phase: &str, ns: i64) {
        json.key("name").string(self.profile.text(marker.name));
        json.key("cat").string(MARKER_CATEGORY);
        json.key("ph").string(phase);
        json.key("ts").signed(self.clock.us(ns));
        write_track(json, self.track);
    }

    fn write_end_args(&self, json: &mut JsonWriter<'_>, span: &MarkerSpan) {
        if let Some(end) = span.end_marker {
            self.write_args(json, self.marker(end));
        }
    }

    fn write_args(&self, json: &mut JsonWriter<'_>, marker: Marker<'_>) {
        json.key("args")
            .object(|json| self.write_args_inside(json, marker));
    }

    /// Writes the marker's category, its type and its fields.
    fn write_args_inside(&self, json: &mut JsonWriter<'_>, marker: Marker<'_>) {
        let category = usize::from(marker.category);
        if let Some(category) = self.profile.categories.get(category) {
            json.key("category").string(&category.name);
        }
        let Some(payload) = marker.payload else {
            return;
        };
        json.key("type")
            .string(self.profile.text(payload.type_name));
        if !payload.fields.is_empty() {
            json.key("data").object(|json| {
                for (key, value) in payload.fields {
                    write_value(json.key(self.profile.text(*key)), self.profile, *value);
                }
            });
        }
    }
}
