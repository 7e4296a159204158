//! Collects the fields of a marker's payload for the model.

use serde::Serialize;

use crate::markers::{PropertySink, PropertyValue, data_key};
use crate::model::{FieldValue, ProfileModel, TextId};
use crate::types::TimeStamp;

/// Maximum nesting depth of a payload's arrays and objects. Deeper ones are dropped.
const MAX_DEPTH: usize = 64;

/// Receives the fields of one payload after another.
pub(super) struct FieldCollector<'m> {
    profile: &'m mut ProfileModel,
    process_start: TimeStamp,
    fields: Vec<(TextId, FieldValue)>,
    /// The open array or object of the payload, if there is one.
    nested: Option<Nested>,
    /// Number of open arrays and objects that are dropped.
    dropped: usize,
}

/// An array or object that is not complete yet.
struct Nested {
    key: TextId,
    text: Vec<u8>,
    /// The open arrays and objects, outermost first: true for an array.
    open: Vec<bool>,
}

impl<'m> FieldCollector<'m> {
    pub(super) fn new(profile: &'m mut ProfileModel, process_start: TimeStamp) -> Self {
        Self {
            profile,
            process_start,
            fields: Vec::new(),
            nested: None,
            dropped: 0,
        }
    }

    /// Closes what the payload left open, and returns its fields.
    pub(super) fn finish(mut self) -> Vec<(TextId, FieldValue)> {
        self.dropped = 0;
        while let Some(is_array) = self.nested.as_ref().and_then(|nested| nested.open.last()) {
            self.end(*is_array);
        }
        self.fields
    }

    fn field_value(&mut self, value: PropertyValue<&str>) -> FieldValue {
        match value {
            PropertyValue::Null => FieldValue::Null,
            PropertyValue::Bool(value) => FieldValue::Bool(value),
            PropertyValue::Int(value) => FieldValue::Integer(value),
            PropertyValue::Uint(value) => match i64::try_from(value) {
                Ok(value) => FieldValue::Integer(value),
                Err(_) => FieldValue::Json(self.profile.intern(&value.to_string())),
            },
            PropertyValue::Float(value) if value.is_finite() => FieldValue::Number(value),
            // JSON has no other floats.
            PropertyValue::Float(_) => FieldValue::Null,
            PropertyValue::Time(time) => {
                FieldValue::Number(time.timestamp().since_ns(self.process_start) as f64 / 1e6)
            }
            PropertyValue::String(value) => FieldValue::Text(self.profile.intern(value)),
            PropertyValue::UniqueString(value) => {
                FieldValue::UniqueText(self.profile.intern(value))
            }
        }
    }
}

impl Nested {
    /// Begins a value: writes the comma, and the name inside of an object. Returns false if a value
    /// is not allowed at this point.
    fn begin(&mut self, name: Option<&str>) -> bool {
        let is_in_array = self.open.last().copied().unwrap_or(true);
        let name = match name {
            _ if is_in_array => None,
            Some(name) => Some(name),
            None => return false,
        };
        if !matches!(self.text.last(), None | Some(b'[' | b'{')) {
            self.text.push(b',');
        }
        if let Some(name) = name {
            self.write(name);
            self.text.push(b':');
        }
        true
    }

    fn write<T: Serialize + ?Sized>(&mut self, value: &T) {
        // These values are always serializable, and a vector never fails.
        let _ = serde_json::to_writer(&mut self.text, value);
    }

    fn value(&mut self, value: PropertyValue<&str>, process_start: TimeStamp) {
        match value {
            PropertyValue::Null => self.write(&()),
            PropertyValue::Bool(value) => self.write(&value),
            PropertyValue::Int(value) => self.write(&value),
            PropertyValue::Uint(value) => self.write(&value),
            PropertyValue::Float(value) => self.write(&value),
            PropertyValue::Time(time) => {
                self.write(&(time.timestamp().since_ns(process_start) as f64 / 1e6));
            }
            PropertyValue::String(value) | PropertyValue::UniqueString(value) => self.write(value),
        }
    }

    fn open(&mut self, is_array: bool) {
        self.text.push(if is_array { b'[' } else { b'{' });
        self.open.push(is_array);
    }
}

impl PropertySink for FieldCollector<'_> {
    fn value(&mut self, name: Option<&str>, value: PropertyValue<&str>) {
        if self.dropped > 0 {
            return;
        }
        if let Some(nested) = &mut self.nested {
            if nested.begin(name) {
                nested.value(value, self.process_start);
            }
            return;
        }
        let Some(name) = name else { return };
        let key = self.profile.intern(data_key(name));
        let value = self.field_value(value);
        self.fields.push((key, value));
    }

    fn start(&mut self, name: Option<&str>, is_array: bool) {
        let depth = self.nested.as_ref().map_or(0, |nested| nested.open.len());
        if self.dropped > 0 || depth >= MAX_DEPTH {
            // Counted so that its end does not close anything else.
            self.dropped += 1;
            return;
        }
        match (&mut self.nested, name) {
            (Some(nested), _) => match nested.begin(name) {
                true => nested.open(is_array),
                false => self.dropped += 1,
            },
            (None, Some(name)) => {
                let mut nested = Nested {
                    key: self.profile.intern(data_key(name)),
                    text: Vec::new(),
                    open: Vec::new(),
                };
                nested.open(is_array);
                self.nested = Some(nested);
            }
            (None, None) => self.dropped += 1,
        }
    }

    fn end(&mut self, is_array: bool) {
        if self.dropped > 0 {
            self.dropped -= 1;
            return;
        }
        let Some(nested) = &mut self.nested else {
            return;
        };
        if nested.open.last() != Some(&is_array) {
            return;
        }
        nested.open.pop();
        nested.text.push(if is_array { b']' } else { b'}' });
        if nested.open.is_empty() {
            let text = String::from_utf8_lossy(&nested.text);
            let value = FieldValue::Json(self.profile.intern(&text));
            self.fields.push((nested.key, value));
            self.nested = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markers::JSONWriter;
    use crate::types::ProfilerTime;

    /// Returns the collected fields as texts: the key, and the value.
    fn collected(write: impl FnOnce(&mut JSONWriter<'_>)) -> Vec<(String, String)> {
        let mut profile = ProfileModel::default();
        let mut collector = FieldCollector::new(&mut profile, TimeStamp(1000));
        write(&mut JSONWriter::new(&mut collector));
        let fields = collector.finish();
        let text = |(key, value): (TextId, FieldValue)| {
            let value = match value {
                FieldValue::Text(text) => format!("text {}", profile.text(text)),
                FieldValue::UniqueText(text) => format!("unique {}", profile.text(text)),
                FieldValue::Json(text) => format!("json {}", profile.text(text)),
                value => format!("{value:?}"),
            };
            (profile.text(key).to_owned(), value)
        };
        fields.into_iter().map(text).collect()
    }

    fn expected(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn each_kind_of_field_is_collected() {
        let fields = collected(|json| {
            json.int_property("int", -1);
            json.uint_property("uint", u64::MAX);
            json.float_property("none", f64::NAN);
            json.string_property("string", "a");
            json.unique_string_property("unique", "b");
            json.time_property("time", ProfilerTime::from_monotonic_ns(1_501_000));
            json.start_array_property("array");
            json.int_element(1);
            json.start_object_element();
            json.string_property("x", "\"y\"");
            json.bool_property("z", true);
            json.end_object();
            json.end_array();
            json.null_property("null");
        });
        let all = [
            ("int", "Integer(-1)"),
            ("uint", "json 18446744073709551615"),
            ("none", "Null"),
            ("string", "text a"),
            ("unique", "unique b"),
            ("time", "Number(1.5)"),
            ("array", r#"json [1,{"x":"\"y\"","z":true}]"#),
            ("null", "Null"),
        ];
        assert_eq!(fields, expected(&all));
    }

    #[test]
    fn calls_in_any_order_keep_the_json_well_formed() {
        let fields = collected(|json| {
            json.end_array();
            json.int_element(1);
            json.start_array_element();
            json.int_element(2);
            json.end_array();
            json.int_property("type", 3);
            json.start_object_property("open");
            json.end_array();
            json.start_array_property("a");
            json.int_property("ignored name", 5);
            json.string_element("inside");
        });
        let all = [
            ("type_", "Integer(3)"),
            ("open", r#"json {"a":[5,"inside"]}"#),
        ];
        assert_eq!(fields, expected(&all));
    }

    #[test]
    fn too_deep_arrays_are_dropped() {
        let fields = collected(|json| {
            json.start_array_property("deep");
            (0..1000).for_each(|_| json.start_array_element());
            (0..1001).for_each(|_| json.end_array());
            json.int_property("after", 2);
        });
        let deep = format!("json {}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert_eq!(
            fields,
            expected(&[("deep", &deep), ("after", "Integer(2)")])
        );
    }
}
