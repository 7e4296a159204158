//! Serializes payloads directly into the buffer, deserializes them, and writes their fields into the
//! JSON object of their marker. The length of a payload is computed only if the space in the buffer
//! was too small.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

use crate::buffer::EntryCursor;
use crate::json::{JsonWriter, UniqueStrings};
use crate::markers::codec::compact::{
    ByteSink, CompactError, CompactReader, CompactResult, CompactWriter,
};
use crate::markers::json_writer::{JSONWriter, PropertySink, PropertyValue};
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::data_key;
use crate::types::TimeStamp;

/// Maximum nesting depth of a payload's arrays and objects: some readers reject deeper JSON. Deeper
/// ones are dropped.
const MAX_DEPTH: usize = 64;

/// The reason why a profile lacks a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PayloadFailure {
    /// `Serialize` failed, or panicked, while the marker was added.
    NotSerialized,
    /// `Deserialize` rejected the bytes that `Serialize` wrote, or the buffer is damaged.
    NotDeserialized,
    /// The payload's code panicked while the profile was written.
    Panicked,
    /// The library with the payload's code is no longer loaded.
    Unloaded,
    /// The process that has ended has not described the payload's type.
    NotDescribed,
}

impl PayloadFailure {
    /// Describes the failure, to be appended to the marker's name.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::NotSerialized => "payload could not be serialized",
            Self::NotDeserialized => "payload could not be deserialized",
            Self::Panicked => "payload panicked",
            Self::Unloaded => "library of the payload was unloaded",
            Self::NotDescribed => "payload was not described",
        }
    }
}

/// Counts the bytes of the serialized payload.
struct ByteCounter(usize);

impl ByteSink for ByteCounter {
    #[inline(always)]
    fn push(&mut self, _: u8) -> CompactResult<()> {
        self.0 += 1;
        Ok(())
    }

    #[inline(always)]
    fn extend(&mut self, bytes: &[u8]) -> CompactResult<()> {
        self.0 += bytes.len();
        Ok(())
    }
}

/// Writes the serialized payload into the buffer, and fails when the space is used up.
struct CursorWriter<'c, 'b>(&'c mut EntryCursor<'b>);

impl CursorWriter<'_, '_> {
    #[inline(always)]
    fn check_space(&self) -> CompactResult<()> {
        if self.0.is_overrun() {
            Err(CompactError)
        } else {
            Ok(())
        }
    }
}

impl ByteSink for CursorWriter<'_, '_> {
    #[inline(always)]
    fn push(&mut self, byte: u8) -> CompactResult<()> {
        self.0.byte(byte);
        self.check_space()
    }

    #[inline(always)]
    fn extend(&mut self, bytes: &[u8]) -> CompactResult<()> {
        self.0.raw(bytes);
        self.check_space()
    }
}

/// Runs code of the application and catches its panic.
#[inline(always)]
fn catch_application_panic<T>(body: impl FnOnce() -> CompactResult<T>) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.ok(),
        Err(payload) => {
            // Dropping the panic's payload would run code of the application again.
            std::mem::forget(payload);
            None
        }
    }
}

/// Returns the length of the serialized payload, in bytes; 0 if it cannot be serialized.
pub(crate) fn payload_bytes<T: Serialize>(payload: &T) -> usize {
    catch_application_panic(|| {
        let mut counter = CompactWriter(ByteCounter(0));
        payload.serialize(&mut counter)?;
        Ok(counter.0.0)
    })
    .unwrap_or(0)
}

/// Serializes the payload. Returns false if the output is incomplete: `Serialize` failed or
/// panicked, or the space was too small.
#[inline(always)]
pub(crate) fn write_payload<T: Serialize>(payload: &T, out: &mut EntryCursor<'_>) -> bool {
    catch_application_panic(|| payload.serialize(&mut CompactWriter(CursorWriter(out)))).is_some()
}

/// Deserializes a payload and writes its fields.
pub(crate) fn stream<T: ProfilerMarker>(
    payload: &[u8],
    json: &mut JSONWriter<'_>,
) -> Result<(), PayloadFailure> {
    let mut reader = CompactReader { rest: payload };
    let payload = T::deserialize(&mut reader).map_err(|_| PayloadFailure::NotDeserialized)?;
    if !reader.rest.is_empty() {
        return Err(PayloadFailure::NotDeserialized);
    }
    payload.stream_json_marker_data(json);
    Ok(())
}

/// Writes fields into the open object of a `JsonWriter`.
pub(crate) struct PropertyWriter<'w, 'j, 's> {
    json: &'w mut JsonWriter<'j>,
    strings: &'w mut UniqueStrings<'s>,
    process_start: TimeStamp,
    /// The open arrays and objects of the payload, outermost first: true for an array.
    open: Vec<bool>,
    /// Number of open arrays and objects that are dropped.
    dropped: usize,
}

impl<'w, 'j, 's> PropertyWriter<'w, 'j, 's> {
    pub(crate) fn new(
        json: &'w mut JsonWriter<'j>,
        strings: &'w mut UniqueStrings<'s>,
        process_start: TimeStamp,
    ) -> Self {
        Self {
            json,
            strings,
            process_start,
            open: Vec::new(),
            dropped: 0,
        }
    }

    /// Closes all open arrays and objects.
    pub(crate) fn finish(mut self) {
        while let Some(is_array) = self.open.pop() {
            self.json.close(is_array);
        }
    }

    /// Writes the name if one is needed. Returns false if a value is not allowed at this point.
    fn begin(&mut self, name: Option<&str>) -> bool {
        let is_in_array = self.open.last().copied().unwrap_or(false);
        match name {
            _ if self.dropped > 0 => false,
            _ if is_in_array => true,
            Some(name) => {
                // Only fields of the outermost object can collide with the viewer's.
                let is_field = self.open.is_empty();
                self.json.key(if is_field { data_key(name) } else { name });
                true
            }
            None => false,
        }
    }
}

impl PropertySink for PropertyWriter<'_, '_, '_> {
    fn value(&mut self, name: Option<&str>, value: PropertyValue<&str>) {
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
        if self.open.len() >= MAX_DEPTH || !self.begin(name) {
            // Counted so that its end does not close anything else.
            self.dropped += 1;
            return;
        }
        self.json.open(is_array);
        self.open.push(is_array);
    }

    fn end(&mut self, is_array: bool) {
        if self.dropped > 0 {
            self.dropped -= 1;
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
    use crate::markers::built_in::{BorrowedFileIO, FileIO};
    use crate::markers::flow::FlowId;
    use crate::types::{ProfilerTime, ThreadId};

    #[derive(Default)]
    struct Bytes(Vec<u8>);

    impl ByteSink for Bytes {
        fn push(&mut self, byte: u8) -> CompactResult<()> {
            self.extend(&[byte])
        }

        fn extend(&mut self, bytes: &[u8]) -> CompactResult<()> {
            self.0.extend_from_slice(bytes);
            Ok(())
        }
    }

    fn bytes_of(payload: &impl Serialize) -> Vec<u8> {
        let mut writer = CompactWriter(Bytes::default());
        payload
            .serialize(&mut writer)
            .expect("a vector never fails");
        writer.0.0
    }

    #[test]
    fn borrowed_file_io_is_encoded_as_an_owned_one() {
        for (filename, number) in [(None, None), (Some("a file"), Some(-300)), (Some(""), None)] {
            let thread_id = number.map(ThreadId::from_number);
            let borrowed = BorrowedFileIO {
                operation: "read",
                source: "test",
                filename,
                thread_id,
            };
            let owned = FileIO {
                operation: "read".into(),
                source: "test".into(),
                filename: filename.map(str::to_owned),
                threadId: thread_id,
            };
            assert_eq!(bytes_of(&borrowed), bytes_of(&owned));
        }
    }

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
    fn each_kind_of_field_is_written_as_json() {
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
    fn calls_in_any_order_keep_the_json_well_formed() {
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
            json.string_element("still inside");
        });
        assert_eq!(
            fields,
            json!({"type_": 3, "stack_": {"type": 4, "a": [5, "still inside"]}})
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
