//! A payload's fields on their way into a marker's object.

use crate::base::TimeStamp;
use crate::json::{JsonWriter, UniqueStrings};
use crate::markers::json_writer::{PropertySink, PropertyValue};
use crate::markers::schema::data_key;

/// Deeper, a payload's arrays and objects are left out, as some readers give up there.
const MOST_DEPTH: usize = 64;

/// Writes into the object that was begun last.
pub(crate) struct PropertyWriter<'w, 'j> {
    json: &'w mut JsonWriter<'j>,
    strings: &'w mut UniqueStrings,
    process_start: TimeStamp,
    /// Of what is open, the outermost first: whether it is an array.
    open: Vec<bool>,
    /// How many were opened below the depth at which they are left out.
    left_out: usize,
}

impl<'w, 'j> PropertyWriter<'w, 'j> {
    pub(crate) fn new(
        json: &'w mut JsonWriter<'j>,
        strings: &'w mut UniqueStrings,
        process_start: TimeStamp,
    ) -> Self {
        Self {
            json,
            strings,
            process_start,
            open: Vec::new(),
            left_out: 0,
        }
    }

    /// Closes what is left open.
    pub(crate) fn finish(mut self) {
        while let Some(is_array) = self.open.pop() {
            self.json.close(is_array);
        }
    }

    /// Writes the name where one is needed; false where nothing can stand.
    fn begin(&mut self, name: Option<&str>) -> bool {
        let is_in_array = self.open.last().copied().unwrap_or(false);
        match name {
            _ if self.left_out > 0 => false,
            _ if is_in_array => true,
            // The viewer's own names are those of the outermost object.
            Some(name) if self.open.is_empty() => {
                self.json.key(data_key(name));
                true
            }
            Some(name) => {
                self.json.key(name);
                true
            }
            None => false,
        }
    }
}

impl PropertySink for PropertyWriter<'_, '_> {
    fn value(&mut self, name: Option<&str>, value: PropertyValue<'_>) {
        if !self.begin(name) {
            return;
        }
        match value {
            PropertyValue::Null => self.json.null(),
            PropertyValue::Bool(value) => self.json.bool(value),
            PropertyValue::Int(value) => self.json.signed(value),
            PropertyValue::Uint(value) => self.json.unsigned(value),
            PropertyValue::Float(value) => self.json.float(value),
            PropertyValue::Time(time) => self
                .json
                .time_ms(time.timestamp().since_ns(self.process_start)),
            PropertyValue::String(value) => self.json.string(value),
            PropertyValue::UniqueString(value) => {
                let index = self.strings.intern(value);
                self.json.unsigned(index.0.into());
            }
        }
    }

    fn start(&mut self, name: Option<&str>, is_array: bool) {
        if self.open.len() >= MOST_DEPTH || !self.begin(name) {
            // Its end is not that of what is open.
            self.left_out += 1;
            return;
        }
        self.json.open(is_array);
        self.open.push(is_array);
    }

    fn end(&mut self, is_array: bool) {
        if self.left_out > 0 {
            self.left_out -= 1;
        } else if self.open.last() == Some(&is_array) {
            self.open.pop();
            self.json.close(is_array);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::base::ProfilerTime;
    use crate::markers::{FlowId, JSONWriter};

    fn written(write: impl FnOnce(&mut JSONWriter<'_>)) -> (Value, Value) {
        let (mut text, mut table) = (Vec::new(), Vec::new());
        let mut strings = UniqueStrings::default();
        let mut json = JsonWriter::new(&mut text);
        json.object(|json| {
            let mut properties = PropertyWriter::new(json, &mut strings, TimeStamp(1000));
            write(&mut JSONWriter::new(&mut properties));
            properties.finish();
        });
        json.finish().expect("a vector never fails");
        let mut json = JsonWriter::new(&mut table);
        strings.write(&mut json);
        json.finish().expect("a vector never fails");
        let read = |text: &[u8]| serde_json::from_slice(text).expect("JSON");
        (read(&text), read(&table))
    }

    #[test]
    fn fields_are_written_as_what_they_are() {
        let (fields, strings) = written(|json| {
            json.int_property("int", i64::MIN);
            json.uint_property("uint", u64::MAX);
            json.float_property("float", 0.5);
            json.float_property("none", f64::NAN);
            json.bool_property("bool", true);
            json.string_property("string", "a \"b\"\n");
            json.unique_string_property("unique", "once");
            json.unique_string_property("again", "once");
            json.flow_property("flow", FlowId::from(255u64));
            json.time_property("time", ProfilerTime::from_monotonic_ns(1_501_000));
            json.null_property("null");
            json.start_array_property("array");
            json.int_element(1);
            json.start_object_element();
            json.string_property("x", "y");
            json.end_object();
            json.start_array_element();
            json.end_array();
            json.end_array();
        });
        let expected = json!({
            "int": i64::MIN, "uint": u64::MAX, "float": 0.5, "none": null, "bool": true, "string": "a \"b\"\n",
            "unique": 0, "again": 0, "flow": 1, "time": 1.5, "null": null, "array": [1, {"x": "y"}, []],
        });
        assert_eq!(
            (fields, strings),
            (expected, json!(["once", "00000000000000ff"]))
        );
    }

    #[test]
    fn whatever_is_called_it_stays_well_formed() {
        let (fields, _) = written(|json| {
            json.end_array();
            json.end_object();
            json.int_element(1);
            json.start_array_element();
            json.int_element(2);
            json.end_array();
            json.int_property("type", 3);
            json.start_object_property("stack");
            json.int_property("type", 4);
            json.end_array();
            json.start_array_property("a");
            json.int_property("ignored name", 5);
            json.end_object();
            json.string_element("still in it");
        });
        assert_eq!(
            fields,
            json!({"type_": 3, "stack_": {"type": 4, "a": [5, "still in it"]}})
        );
        let (fields, _) = written(|json| {
            (0..1000).for_each(|_| json.start_array_property("deep"));
            json.int_element(1);
            (0..1000).for_each(|_| json.end_array());
            json.int_property("after", 2);
        });
        assert_eq!(fields["after"], 2);
    }
}
