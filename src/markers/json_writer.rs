//! The writer that a payload passes its fields to.

use crate::markers::flow::FlowId;
use crate::types::ProfilerTime;

/// Receives the fields of a payload.
pub(crate) trait PropertySink {
    fn value(&mut self, name: Option<&str>, value: PropertyValue<&str>);
    fn start(&mut self, name: Option<&str>, is_array: bool);
    fn end(&mut self, is_array: bool);
}

/// The value of a field, or an element of an array.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum PropertyValue<Text> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Time(ProfilerTime),
    String(Text),
    UniqueString(Text),
}

/// Writes the fields of a marker's payload, one after another, in
/// [`ProfilerMarker::stream_json_marker_data`](crate::ProfilerMarker::stream_json_marker_data).
///
/// NaN and infinite numbers, which JSON cannot represent, become `null`. The profile stays well
/// formed whatever the order of calls: open arrays and objects are closed at the end, an element
/// outside of an array is dropped, and a property inside an array becomes an element. The viewer
/// reserves the fields `type`, `stack` and `cause`: a payload's fields of these names are written
/// as `type_`, `stack_` and `cause_`.
/// Idea: Gecko's `SpliceableJSONWriter`, with the method names of Mozilla's crate.
#[doc(alias = "SpliceableJSONWriter")]
pub struct JSONWriter<'a> {
    sink: &'a mut dyn PropertySink,
}

impl std::fmt::Debug for JSONWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSONWriter")
    }
}

impl<'a> JSONWriter<'a> {
    pub(crate) fn new(sink: &'a mut dyn PropertySink) -> Self {
        Self { sink }
    }

    /// Returns what the fields are written to.
    #[cfg(has_profiler)]
    pub(crate) fn sink(&mut self) -> &mut dyn PropertySink {
        self.sink
    }

    fn property(&mut self, name: &str, value: PropertyValue<&str>) {
        self.sink.value(Some(name), value);
    }

    fn element(&mut self, value: PropertyValue<&str>) {
        self.sink.value(None, value);
    }

    /// Writes an integer.
    pub fn int_property(&mut self, name: &str, value: i64) {
        self.property(name, PropertyValue::Int(value));
    }

    /// Writes an unsigned integer.
    pub fn uint_property(&mut self, name: &str, value: u64) {
        self.property(name, PropertyValue::Uint(value));
    }

    /// Writes a number.
    pub fn float_property(&mut self, name: &str, value: f64) {
        self.property(name, PropertyValue::Float(value));
    }

    /// Writes a boolean.
    pub fn bool_property(&mut self, name: &str, value: bool) {
        self.property(name, PropertyValue::Bool(value));
    }

    /// Writes a string in place. Use it for strings that occur once.
    pub fn string_property(&mut self, name: &str, value: &str) {
        self.property(name, PropertyValue::String(value));
    }

    /// Writes the index of a string in the thread's string table, for
    /// [`Format::UniqueString`](crate::schema::Format::UniqueString).
    pub fn unique_string_property(&mut self, name: &str, value: &str) {
        self.property(name, PropertyValue::UniqueString(value));
    }

    /// Writes `null`.
    pub fn null_property(&mut self, name: &str) {
        self.property(name, PropertyValue::Null);
    }

    /// Writes a point in time, for [`Format::Time`](crate::schema::Format::Time).
    #[doc(alias = "TimeProperty")]
    pub fn time_property(&mut self, name: &str, value: ProfilerTime) {
        self.property(name, PropertyValue::Time(value));
    }

    /// Writes the id of a flow, for [`Format::Flow`](crate::schema::Format::Flow) and
    /// [`Format::TerminatingFlow`](crate::schema::Format::TerminatingFlow).
    #[doc(alias = "FlowProperty")]
    pub fn flow_property(&mut self, name: &str, value: FlowId) {
        let digits = value.to_hex();
        self.unique_string_property(name, std::str::from_utf8(&digits).unwrap_or_default());
    }

    /// Starts an array.
    pub fn start_array_property(&mut self, name: &str) {
        self.sink.start(Some(name), true);
    }

    /// Starts an array as an element of the open array.
    pub fn start_array_element(&mut self) {
        self.sink.start(None, true);
    }

    /// Ends the innermost array.
    pub fn end_array(&mut self) {
        self.sink.end(true);
    }

    /// Starts an object.
    pub fn start_object_property(&mut self, name: &str) {
        self.sink.start(Some(name), false);
    }

    /// Starts an object as an element of the open array.
    pub fn start_object_element(&mut self) {
        self.sink.start(None, false);
    }

    /// Ends the innermost object.
    pub fn end_object(&mut self) {
        self.sink.end(false);
    }

    /// Writes an integer as an element.
    pub fn int_element(&mut self, value: i64) {
        self.element(PropertyValue::Int(value));
    }

    /// Writes an unsigned integer as an element.
    pub fn uint_element(&mut self, value: u64) {
        self.element(PropertyValue::Uint(value));
    }

    /// Writes a number as an element.
    pub fn float_element(&mut self, value: f64) {
        self.element(PropertyValue::Float(value));
    }

    /// Writes a boolean as an element.
    pub fn bool_element(&mut self, value: bool) {
        self.element(PropertyValue::Bool(value));
    }

    /// Writes a string as an element.
    pub fn string_element(&mut self, value: &str) {
        self.element(PropertyValue::String(value));
    }

    /// Writes the index of a string in the thread's string table as an element.
    pub fn unique_string_element(&mut self, value: &str) {
        self.element(PropertyValue::UniqueString(value));
    }

    /// Writes a point in time as an element.
    pub fn time_element(&mut self, value: ProfilerTime) {
        self.element(PropertyValue::Time(value));
    }

    /// Writes `null` as an element.
    pub fn null_element(&mut self) {
        self.element(PropertyValue::Null);
    }
}
