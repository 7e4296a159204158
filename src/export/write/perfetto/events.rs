//! Writes the markers of a thread as track events.

use std::io;

use super::lanes::{Lanes, Step};
use super::messages::{DebugAnnotation, TraceEventKind, TracePacket, TrackEvent};
use super::packets::Packets;
use super::tracks::{lane_packet, thread_track};
use crate::export::write::flow_fields::{FlowField, FlowFields};
use crate::export::write::marker_intervals::{MarkerInterval, marker_intervals};
use crate::model::{FieldValue, MarkerPhase, ProfileModel, TextId, Thread};

/// Writes the markers of one thread.
pub(super) struct ThreadEvents<'a> {
    pub(super) profile: &'a ProfileModel,
    pub(super) flows: &'a FlowFields<'a>,
    pub(super) thread: &'a Thread,
    /// Index of the thread.
    pub(super) index: usize,
    /// What is added to a time, so that none is negative.
    pub(super) shift_ns: i64,
}

impl ThreadEvents<'_> {
    /// Writes all markers. Intervals that overlap without nesting get further tracks.
    pub(super) fn write(&self, packets: &mut Packets<'_>) -> io::Result<()> {
        let mut lanes = Lanes::default();
        let mut described = 1;
        for interval in marker_intervals(self.thread) {
            for step in lanes.add(&interval) {
                match step {
                    Step::Begin { lane } => {
                        if lane == described {
                            packets.write(lane_packet(self.index, lane))?;
                            described += 1;
                        }
                        self.begin(packets, &interval, TraceEventKind::SliceBegin, lane)?;
                    }
                    Step::End { lane, time_ns } => self.end(packets, lane, time_ns)?,
                    Step::Instant => {
                        self.begin(packets, &interval, TraceEventKind::Instant, 0)?;
                    }
                }
            }
        }
        for step in lanes.finish() {
            if let Step::End { lane, time_ns } = step {
                self.end(packets, lane, time_ns)?;
            }
        }
        let markers = self.thread.markers.iter().enumerate();
        for (index, marker) in markers.filter(|(_, marker)| marker.phase == MarkerPhase::Instant) {
            let time_ns = marker.start_ns.unwrap_or(0);
            let instant = MarkerInterval {
                start_ns: time_ns,
                end_ns: time_ns,
                first: index,
                last: None,
            };
            self.begin(packets, &instant, TraceEventKind::Instant, 0)?;
        }
        Ok(())
    }

    fn begin(
        &self,
        packets: &mut Packets<'_>,
        interval: &MarkerInterval,
        kind: TraceEventKind,
        lane: usize,
    ) -> io::Result<()> {
        let Self {
            profile, thread, ..
        } = self;
        let marker = thread.markers.get(interval.first);
        let mut event = TrackEvent {
            kind: kind as i32,
            track_uuid: thread_track(self.index, lane),
            name_iid: Some(packets.event_name(marker.name)),
            category_iids: packets.category(marker.category).into_iter().collect(),
            ..TrackEvent::default()
        };
        for (type_name, key, value) in interval.fields(&thread.markers) {
            let flow = self.flows.get(profile, type_name, key);
            if let (Some(flow), FieldValue::Text(id) | FieldValue::UniqueText(id)) = (flow, value) {
                let id = flow_id(profile.text(id));
                match flow {
                    FlowField::Continues => event.flow_ids.push(id),
                    FlowField::Ends => event.terminating_flow_ids.push(id),
                }
            }
            let annotation = annotation(profile, packets.key(key), value);
            event.debug_annotations.extend(annotation);
        }
        let stack = marker.payload.and_then(|payload| payload.stack);
        event.callstack_iid = stack.and_then(|(stack, _)| packets.stack(stack));
        packets.write(event_packet(event, interval.start_ns, self.shift_ns))
    }

    fn end(&self, packets: &mut Packets<'_>, lane: usize, time_ns: i64) -> io::Result<()> {
        let event = TrackEvent {
            kind: TraceEventKind::SliceEnd as i32,
            track_uuid: thread_track(self.index, lane),
            ..TrackEvent::default()
        };
        packets.write(event_packet(event, time_ns, self.shift_ns))
    }
}

pub(super) fn event_packet(event: TrackEvent, time_ns: i64, shift_ns: i64) -> TracePacket {
    TracePacket {
        timestamp: Some(time_ns.saturating_add(shift_ns).max(0).unsigned_abs()),
        track_event: Some(event),
        ..TracePacket::default()
    }
}

/// Returns a field with its value; `None` for a field without a value.
fn annotation(profile: &ProfileModel, name_iid: u64, value: FieldValue) -> Option<DebugAnnotation> {
    let text = |id: TextId| Some(profile.text(id).to_owned());
    let mut annotation = DebugAnnotation {
        name_iid,
        ..DebugAnnotation::default()
    };
    match value {
        FieldValue::Null => return None,
        FieldValue::Bool(value) => annotation.bool_value = Some(value),
        FieldValue::Integer(value) => annotation.int_value = Some(value),
        FieldValue::Number(value) => annotation.double_value = Some(value),
        FieldValue::Text(id) | FieldValue::UniqueText(id) => annotation.string_value = text(id),
        FieldValue::Json(id) => annotation.legacy_json_value = text(id),
    }
    Some(annotation)
}

/// Returns the number of a flow: FNV-1a, a hash that is the same in every trace. Two flows of one
/// number would be joined.
fn flow_id(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_ids_are_those_of_fnv_1a() {
        assert_eq!(flow_id(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(flow_id("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
