//! A race between connection attempts, with a flow for each attempt, in the style of Mozilla's
//! network code.

use gekkota::gecko_profiler;

use gecko_profiler::schema::{Format, Location};
use gecko_profiler::{
    FlowId, MarkerOptions, MarkerSchema, MarkerStack, MarkerTiming, ProfilerMarker, ProfilerTime,
    gecko_profiler_category,
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

const MARKER_NAME: &str = "Race";

#[derive(Serialize, Deserialize, Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Success,
    Cancelled,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Cancelled => "cancelled",
        }
    }
}

#[derive(Serialize, Deserialize, Debug)]
struct AttemptMarker {
    flow: FlowId,
    origin: String,
    outcome: Outcome,
    has_ech: bool,
}

impl ProfilerMarker for AttemptMarker {
    fn marker_type_name() -> &'static str {
        "RaceAttempt"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        schema
            .set_all_labels("{marker.data.origin} ECH={marker.data.has_ech} {marker.data.outcome}");
        schema.add_key_label_format("origin", "Origin", Format::SanitizedString);
        schema.add_key_label_format("outcome", "Outcome", Format::UniqueString);
        schema.add_key_label_format("has_ech", "ECH", Format::String);
        schema.add_key_label_format("flow", "Flow", Format::Flow);
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut gecko_profiler::JSONWriter) {
        json_writer.string_property("origin", &self.origin);
        json_writer.unique_string_property("outcome", self.outcome.as_str());
        json_writer.bool_property("has_ech", self.has_ech);
        json_writer
            .unique_string_property("flow", std::str::from_utf8(&self.flow.to_hex()).unwrap());
    }
}

struct AttemptInfo {
    start: ProfilerTime,
    options: MarkerOptions,
    stack: MarkerStack,
    has_ech: bool,
}

/// The state of a race in progress.
pub(crate) struct Race {
    flow_id: FlowId,
    origin: String,
    start: Option<ProfilerTime>,
    attempts: HashMap<u64, AttemptInfo>,
}

impl Race {
    pub(crate) fn new(flow_id: FlowId, origin: &str) -> Self {
        if !gecko_profiler::is_active() {
            return Self {
                flow_id,
                origin: String::new(),
                start: None,
                attempts: HashMap::new(),
            };
        }
        Self {
            flow_id,
            origin: origin.to_string(),
            start: Some(ProfilerTime::now()),
            attempts: HashMap::new(),
        }
    }

    pub(crate) fn attempt_started(&mut self, id: u64, has_ech: bool) {
        let info = AttemptInfo {
            start: ProfilerTime::now(),
            options: options_of_attempts(),
            stack: MarkerStack::NonNative,
            has_ech,
        };
        self.attempts.insert(id, info);
    }

    pub(crate) fn attempt_over(&mut self, id: u64, outcome: Outcome) {
        let Some(info) = self.attempts.remove(&id) else {
            return;
        };
        self.emit(
            &info,
            outcome,
            info.options
                .with_timing(MarkerTiming::interval_until_now_from(info.start)),
        );
    }

    fn emit(&self, info: &AttemptInfo, outcome: Outcome, options: MarkerOptions) {
        gecko_profiler::add_marker(
            MARKER_NAME,
            gecko_profiler_category!(Network),
            options,
            AttemptMarker {
                flow: self.flow_id,
                origin: self.origin.clone(),
                outcome,
                has_ech: info.has_ech,
            },
        );
    }
}

fn options_of_attempts() -> MarkerOptions {
    MarkerOptions {
        stack: MarkerStack::Full,
        ..Default::default()
    }
}

impl Drop for Race {
    fn drop(&mut self) {
        let Some(start) = self.start.take() else {
            return;
        };
        let attempts: Vec<_> = self.attempts.drain().map(|(_id, info)| info).collect();
        for info in attempts {
            let timing = MarkerTiming::interval(info.start.clone(), ProfilerTime::now());
            self.emit(
                &info,
                Outcome::Cancelled,
                MarkerOptions {
                    timing,
                    stack: info.stack,
                },
            );
        }
        gecko_profiler::add_text_marker(
            "Race over",
            gecko_profiler_category!(Network),
            MarkerOptions {
                timing: MarkerTiming::interval_until_now_from(start),
                ..Default::default()
            },
            &self.origin,
        );
    }
}

pub(crate) fn race() {
    let socket = Box::new(7u32);
    let flow_id = FlowId::from(&*socket as *const u32);
    let mut race = Race::new(flow_id, "https://example.org");
    race.attempt_started(1, true);
    race.attempt_started(2, false);
    race.attempt_over(1, Outcome::Success);
    race.attempt_over(1, Outcome::Success);
    race.flow_id = FlowId::from(0xabcdu64);
    drop(race);
    let digits: Vec<[u8; 16]> = [FlowId::from(1), FlowId::from(2)]
        .into_iter()
        .map(FlowId::to_hex)
        .collect();
    assert_eq!(digits, [*b"0000000000000001", *b"0000000000000002"]);
}
