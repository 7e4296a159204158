//! The flows of a trace: arrows between the markers that have the same flow id.

use std::collections::HashMap;

use crate::export::write::flow_fields::{FlowField, FlowFields};
use crate::export::write::formats::trace_events::{MARKER_CATEGORY, write_track};
use crate::json::JsonWriter;
use crate::model::{FieldValue, MarkerPayload, ProfileModel, TextId};

/// The markers of each flow. DevTools reads the events of a flow in the order in which they stand
/// in the file, so they are written last, by flow and time.
pub(super) struct Flows<'a> {
    profile: &'a ProfileModel,
    /// The fields that are flow ids.
    known: FlowFields<'a>,
    /// The fields that were looked up, by id. `None` for a field of another format.
    fields: HashMap<(TextId, TextId), Option<FlowField>>,
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
    pub(super) fn of(profile: &'a ProfileModel) -> Self {
        Self {
            profile,
            known: FlowFields::of(profile),
            fields: HashMap::new(),
            points: Vec::new(),
        }
    }

    /// Adds the flows of a marker, which is written at `ts_us` on `track`.
    pub(super) fn add(&mut self, payload: &MarkerPayload<'_>, ts_us: i64, track: (u64, u64)) {
        if self.known.is_empty() {
            return;
        }
        for &(key, value) in payload.fields {
            let id = match value {
                FieldValue::Text(text) | FieldValue::UniqueText(text) => FlowId::Text(text),
                FieldValue::Integer(number) => FlowId::Number(number),
                _ => continue,
            };
            let Some(field) = self.field(payload.type_name, key) else {
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

    fn field(&mut self, type_name: TextId, key: TextId) -> Option<FlowField> {
        let Self { profile, known, .. } = self;
        let found = || known.get(profile, type_name, key);
        *self.fields.entry((type_name, key)).or_insert_with(found)
    }

    /// Writes the flows that have at least two markers: their first one as `s`, their last one as
    /// `f`, those between as `t`.
    pub(super) fn write(mut self, json: &mut JsonWriter<'_>) {
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
