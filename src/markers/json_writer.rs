//! What a payload writes its fields with.

use crate::base::ProfilerTime;
use crate::markers::flow::FlowId;

/// Takes a payload's fields.
pub(crate) trait PropertySink {
    fn value(&mut self, name: Option<&str>, value: PropertyValue<'_>);
    fn start(&mut self, name: Option<&str>, is_array: bool);
    fn end(&mut self, is_array: bool);
}

/// A field's value, or an array's element.
#[cfg_attr(not(has_profiler), allow(dead_code, reason = "nobody takes them"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum PropertyValue<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Time(ProfilerTime),
    String(&'v str),
    UniqueString(&'v str),
}

/// Writes the fields of a marker's payload, one after another, in
/// [`ProfilerMarker::stream_json_marker_data`](crate::ProfilerMarker::stream_json_marker_data).
///
/// What JSON cannot say, a number that is infinite or none, is `null`. Whatever is called in whatever order, the profile stays
/// well formed: what is left open is closed, an element outside of an array is left out, and a property within an array is an
/// element. The viewer has the fields `type`, `stack` and `cause` for itself: those of a payload are called `type_`, `stack_` and
/// `cause_`. Idea: Gecko's `SpliceableJSONWriter`, by Mozilla's names.
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
    #[cfg(has_profiler)]
    pub(crate) fn new(sink: &'a mut dyn PropertySink) -> Self {
        Self { sink }
    }

    fn property(&mut self, name: &str, value: PropertyValue<'_>) {
        self.sink.value(Some(name), value);
    }

    fn element(&mut self, value: PropertyValue<'_>) {
        self.sink.value(None, value);
    }

    /// A whole number.
    pub fn int_property(&mut self, name: &str, value: i64) {
        self.property(name, PropertyValue::Int(value));
    }

    /// A whole number that is not negative.
    pub fn uint_property(&mut self, name: &str, value: u64) {
        self.property(name, PropertyValue::Uint(value));
    }

    /// A number.
    pub fn float_property(&mut self, name: &str, value: f64) {
        self.property(name, PropertyValue::Float(value));
    }

    /// True or false.
    pub fn bool_property(&mut self, name: &str, value: bool) {
        self.property(name, PropertyValue::Bool(value));
    }

    /// A text, written here: for one that is there once.
    pub fn string_property(&mut self, name: &str, value: &str) {
        self.property(name, PropertyValue::String(value));
    }

    /// A text that stands in the thread's table of strings, for [`Format::UniqueString`](crate::schema::Format::UniqueString).
    pub fn unique_string_property(&mut self, name: &str, value: &str) {
        self.property(name, PropertyValue::UniqueString(value));
    }

    /// Nothing.
    pub fn null_property(&mut self, name: &str) {
        self.property(name, PropertyValue::Null);
    }

    /// A point in time, for [`Format::Time`](crate::schema::Format::Time).
    #[doc(alias = "TimeProperty")]
    pub fn time_property(&mut self, name: &str, value: ProfilerTime) {
        self.property(name, PropertyValue::Time(value));
    }

    /// A flow, for [`Format::Flow`](crate::schema::Format::Flow) and
    /// [`Format::TerminatingFlow`](crate::schema::Format::TerminatingFlow).
    #[doc(alias = "FlowProperty")]
    pub fn flow_property(&mut self, name: &str, value: FlowId) {
        let digits = value.to_hex();
        self.unique_string_property(name, std::str::from_utf8(&digits).unwrap_or_default());
    }

    /// The beginning of an array.
    pub fn start_array_property(&mut self, name: &str) {
        self.sink.start(Some(name), true);
    }

    /// The beginning of an array within an array.
    pub fn start_array_element(&mut self) {
        self.sink.start(None, true);
    }

    /// The end of the innermost array.
    pub fn end_array(&mut self) {
        self.sink.end(true);
    }

    /// The beginning of an object.
    pub fn start_object_property(&mut self, name: &str) {
        self.sink.start(Some(name), false);
    }

    /// The beginning of an object within an array.
    pub fn start_object_element(&mut self) {
        self.sink.start(None, false);
    }

    /// The end of the innermost object.
    pub fn end_object(&mut self) {
        self.sink.end(false);
    }

    /// A whole number in an array.
    pub fn int_element(&mut self, value: i64) {
        self.element(PropertyValue::Int(value));
    }

    /// A whole number in an array that is not negative.
    pub fn uint_element(&mut self, value: u64) {
        self.element(PropertyValue::Uint(value));
    }

    /// A number in an array.
    pub fn float_element(&mut self, value: f64) {
        self.element(PropertyValue::Float(value));
    }

    /// True or false in an array.
    pub fn bool_element(&mut self, value: bool) {
        self.element(PropertyValue::Bool(value));
    }

    /// A text in an array.
    pub fn string_element(&mut self, value: &str) {
        self.element(PropertyValue::String(value));
    }

    /// The place of a text in the thread's table of strings, in an array.
    pub fn unique_string_element(&mut self, value: &str) {
        self.element(PropertyValue::UniqueString(value));
    }

    /// A point in time in an array.
    pub fn time_element(&mut self, value: ProfilerTime) {
        self.element(PropertyValue::Time(value));
    }

    /// Nothing in an array.
    pub fn null_element(&mut self) {
        self.element(PropertyValue::Null);
    }
}
