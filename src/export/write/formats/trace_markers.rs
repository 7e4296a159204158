//! The markers of a thread as events of a trace, and the flows between them.

use crate::export::markers::write_value;
use crate::export::write::formats::v8_profile::MicroClock;
use crate::export::write::intervals_and_flows::{FlowField, FlowFields, MarkerInterval};
use crate::json::JsonWriter;
use crate::model::{FieldValue, Marker, MarkerPayload, MarkerPhase, ProfileModel, TextId, Thread};

/// The `cat` of all markers. DevTools follows a flow only between events of the same `cat`, so the
/// marker's own category is an argument.
const MARKER_CATEGORY: &str = "marker";

/// Writes markers of a thread to one track.
pub(crate) struct MarkerEvents<'a, 'b> {
    pub(crate) profile: &'a ProfileModel,
    pub(crate) thread: &'a Thread,
    pub(crate) clock: MicroClock,
    pub(crate) track: (u64, u64),
    pub(crate) flows: &'b mut Flows<'a>,
}

impl<'a> MarkerEvents<'a, '_> {
    /// Writes intervals that nest: a pair of markers as `B` and `E`, a marker as `X`. The lists are
    /// sorted by start.
    pub(crate) fn write_nested(&mut self, json: &mut JsonWriter<'_>, spans: &[MarkerInterval]) {
        // The pairs that have begun, the innermost last.
        let mut open: Vec<&MarkerInterval> = Vec::new();
        for span in spans {
            while let Some(ended) = open.pop_if(|outer| outer.end_ns <= span.start_ns) {
                let end = (ended.end_ns, ended.first, ended.last);
                self.write_event(json, "E", end, |_| {});
            }
            if span.last.is_none() {
                self.write_complete(json, span);
                continue;
            }
            open.push(span);
            let start = (span.start_ns, span.first, Some(span.first));
            self.write_event(json, "B", start, |_| {});
        }
        while let Some(ended) = open.pop() {
            let end = (ended.end_ns, ended.first, ended.last);
            self.write_event(json, "E", end, |_| {});
        }
    }

    /// Writes an interval as a complete event. The data of a marker for its end is `end`.
    pub(crate) fn write_complete(&mut self, json: &mut JsonWriter<'_>, span: &MarkerInterval) {
        let (start_us, end_us) = (self.clock.us(span.start_ns), self.clock.us(span.end_ns));
        json.object(|json| {
            self.write_head(json, span.first, "X", span.start_ns);
            json.key("dur").signed(end_us - start_us);
            json.key("args").object(|json| {
                self.write_args(json, span.first);
                if let Some(end) = span.last {
                    json.key("end").object(|json| self.write_args(json, end));
                }
            });
        });
        self.add_flows(span.first, span.start_ns);
        if let Some(end) = span.last {
            self.add_flows(end, span.end_ns);
        }
    }

    /// Writes intervals that do not nest, as asynchronous events with ids from `next_id` on.
    pub(crate) fn write_crossing(
        &mut self,
        json: &mut JsonWriter<'_>,
        spans: &[MarkerInterval],
        next_id: &mut u64,
    ) {
        for span in spans {
            let id = format!("{next_id:#x}");
            *next_id += 1;
            for (phase, event) in [
                ("b", (span.start_ns, span.first, Some(span.first))),
                ("e", (span.end_ns, span.first, span.last)),
            ] {
                self.write_event(json, phase, event, |json| json.key("id").string(&id));
            }
        }
    }

    /// Writes the markers that have no duration. DevTools knows them as `I` only; other readers
    /// accept that as well as `i`.
    pub(crate) fn write_instants(&mut self, json: &mut JsonWriter<'_>) {
        for (index, marker) in self.thread.markers.iter().enumerate() {
            if let (MarkerPhase::Instant, Some(time_ns)) = (marker.phase, marker.start_ns) {
                let event = (time_ns, index, Some(index));
                self.write_event(json, "I", event, |json| json.key("s").string("t"));
            }
        }
    }

    /// Writes an event: its time, the marker that it is named after, and the marker whose data it
    /// has. `more` writes what other events lack.
    fn write_event(
        &mut self,
        json: &mut JsonWriter<'_>,
        phase: &str,
        (ns, named, data): (i64, usize, Option<usize>),
        more: impl FnOnce(&mut JsonWriter<'_>),
    ) {
        json.object(|json| {
            self.write_head(json, named, phase, ns);
            more(json);
            if let Some(data) = data {
                json.key("args").object(|json| self.write_args(json, data));
            }
        });
        if let Some(data) = data {
            self.add_flows(data, ns);
        }
    }

    fn marker(&self, index: usize) -> Marker<'a> {
        self.thread.markers.get(index)
    }

    /// Remembers the flows of a marker that is written at this time.
    fn add_flows(&mut self, index: usize, time_ns: i64) {
        if let Some(payload) = &self.marker(index).payload {
            let ts_us = self.clock.us(time_ns);
            self.flows.add(payload, ts_us, self.track);
        }
    }

    fn write_head(&self, json: &mut JsonWriter<'_>, index: usize, phase: &str, ns: i64) {
        let name = self.profile.text(self.marker(index).name);
        json.key("name").string(name);
        json.key("cat").string(MARKER_CATEGORY);
        json.key("ph").string(phase);
        json.key("ts").signed(self.clock.us(ns));
        write_track(json, self.track);
    }

    /// Writes the marker's category, its type and its fields.
    fn write_args(&self, json: &mut JsonWriter<'_>, index: usize) {
        let marker = self.marker(index);
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

/// The flows of a trace: the markers of each flow, between which readers draw arrows. DevTools
/// reads the events of a flow in the order in which they stand in the file, so they are written
/// last, by flow and time.
pub(crate) struct Flows<'a> {
    fields: FlowFields<'a>,
    points: Vec<FlowPoint>,
}

/// The value of a field that is a flow id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum FlowId {
    Text(TextId),
    Number(i64),
}

/// A marker of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FlowPoint {
    id: FlowId,
    ts_us: i64,
    /// Whether the flow ends here. The same id may begin another one later.
    ends: bool,
    track: (u64, u64),
}

impl<'a> Flows<'a> {
    pub(crate) fn of(profile: &'a ProfileModel) -> Self {
        Self {
            fields: FlowFields::of(profile),
            points: Vec::new(),
        }
    }

    /// Adds the flows of a marker, which is written at `ts_us` on `track`.
    fn add(&mut self, payload: &MarkerPayload<'_>, ts_us: i64, track: (u64, u64)) {
        for &(key, value) in payload.fields {
            let id = match value {
                FieldValue::Text(text) | FieldValue::UniqueText(text) => FlowId::Text(text),
                FieldValue::Integer(number) => FlowId::Number(number),
                _ => continue,
            };
            let Some(field) = self.fields.get(payload.type_name, key) else {
                continue;
            };
            self.points.push(FlowPoint {
                id,
                ts_us,
                ends: field == FlowField::Ends,
                track,
            });
        }
    }

    /// Writes the flows that have at least two markers: their first one as `s`, their last one as
    /// `f`, those between as `t`.
    pub(crate) fn write(mut self, json: &mut JsonWriter<'_>) {
        self.points.sort_unstable();
        let goes_on = |one: &FlowPoint, other: &FlowPoint| one.id == other.id && !one.ends;
        let flows = self.points.chunk_by(goes_on).filter(|flow| flow.len() > 1);
        for (number, flow) in flows.enumerate() {
            for (index, point) in flow.iter().enumerate() {
                let phase = match index {
                    0 => "s",
                    last if last == flow.len() - 1 => "f",
                    _ => "t",
                };
                json.object(|json| {
                    json.key("name").string("flow");
                    json.key("cat").string(MARKER_CATEGORY);
                    json.key("ph").string(phase);
                    json.key("id").unsigned(number as u64 + 1);
                    // The event around this time, not the next one.
                    json.key("bp").string("e");
                    json.key("ts").signed(point.ts_us);
                    write_track(json, point.track);
                });
            }
        }
    }
}

/// Writes the process and the thread of an event.
pub(crate) fn write_track(json: &mut JsonWriter<'_>, (pid, tid): (u64, u64)) {
    json.key("pid").unsigned(pid);
    json.key("tid").unsigned(tid);
}
