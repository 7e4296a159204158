//! Records the fields that a payload writes.

use crate::markers::json_writer::{PropertySink, PropertyValue};
use crate::types::ProfilerTime;

/// Maximum number of recorded events of one payload.
const MAX_EVENTS: usize = 256;

/// A value as a payload wrote it.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Written {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Time(u64),
    Text(String),
    Unique(String),
}

impl Written {
    pub(super) fn as_value(&self) -> PropertyValue<'_> {
        match self {
            Self::Null => PropertyValue::Null,
            Self::Bool(value) => PropertyValue::Bool(*value),
            Self::Int(value) => PropertyValue::Int(*value),
            Self::Uint(value) => PropertyValue::Uint(*value),
            Self::Float(value) => PropertyValue::Float(*value),
            Self::Time(ns) => PropertyValue::Time(ProfilerTime::from_monotonic_ns(*ns)),
            Self::Text(text) => PropertyValue::String(text),
            Self::Unique(text) => PropertyValue::UniqueString(text),
        }
    }
}

/// A call that a payload made.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Event {
    Value(Option<String>, Written),
    Start(Option<String>, bool),
    End(bool),
}

/// Receives the calls.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub(super) events: Vec<Event>,
    /// Whether there were too many.
    pub(super) is_full: bool,
}

impl Recorder {
    fn add(&mut self, event: Event) {
        match self.events.len() < MAX_EVENTS {
            true => self.events.push(event),
            false => self.is_full = true,
        }
    }
}

impl PropertySink for Recorder {
    fn value(&mut self, name: Option<&str>, value: PropertyValue<'_>) {
        let written = match value {
            PropertyValue::Null => Written::Null,
            PropertyValue::Bool(value) => Written::Bool(value),
            PropertyValue::Int(value) => Written::Int(value),
            PropertyValue::Uint(value) => Written::Uint(value),
            PropertyValue::Float(value) => Written::Float(value),
            PropertyValue::Time(time) => Written::Time(time.timestamp().0),
            PropertyValue::String(value) => Written::Text(value.to_owned()),
            PropertyValue::UniqueString(value) => Written::Unique(value.to_owned()),
        };
        self.add(Event::Value(name.map(str::to_owned), written));
    }

    fn start(&mut self, name: Option<&str>, is_array: bool) {
        self.add(Event::Start(name.map(str::to_owned), is_array));
    }

    fn end(&mut self, is_array: bool) {
        self.add(Event::End(is_array));
    }
}
