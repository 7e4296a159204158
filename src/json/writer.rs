//! The streaming writer: values one after another, commas and escapes by itself.

use std::io::Write;

use crate::base::FailureLatch;
use crate::json::escape::escape;
use crate::json::number::{MOST_BYTES, Text};

/// Small enough to stay in the processor's nearest cache until it is handed over.
const BUFFER_BYTES: usize = 32 << 10;

/// What is as long goes to the sink as it is.
const LONG_BYTES: usize = 8 << 10;

/// Writes compact JSON to a sink.
#[doc(alias = "SpliceableJSONWriter")]
pub(crate) struct JsonWriter<'a> {
    sink: &'a mut dyn Write,
    buffer: Box<[u8]>,
    used: usize,
    latch: FailureLatch,
    /// Whether the next value is the first one at its depth, and so has no comma before it.
    first: bool,
}

impl<'a> JsonWriter<'a> {
    /// A writer that may fail, for a job of its own.
    #[cfg(test)]
    pub(crate) fn new(sink: &'a mut dyn Write) -> Self {
        Self::for_job(sink, FailureLatch::fallible())
    }

    /// A writer for a job that this latch is of.
    pub(crate) fn for_job(sink: &'a mut dyn Write, latch: FailureLatch) -> Self {
        Self { sink, buffer: vec![0; BUFFER_BYTES].into(), used: 0, latch, first: true }
    }

    /// Whether the job has failed; what is written from then on goes nowhere, so a long job may stop.
    pub(crate) fn failed(&self) -> bool {
        self.latch.failed()
    }

    /// Hands the rest to the sink.
    ///
    /// # Errors
    /// The job's first failure.
    pub(crate) fn finish(mut self) -> std::io::Result<()> {
        self.hand_over();
        if !self.latch.failed()
            && let Err(failure) = self.sink.flush()
        {
            self.latch.set_failure(failure);
        }
        self.latch.result()
    }

    /// Hands what there is to the sink, so that it may fail before something long.
    #[cold]
    pub(crate) fn hand_over(&mut self) {
        let written = match self.latch.failed() {
            true => Ok(()),
            false => self.sink.write_all(&self.buffer[..self.used]),
        };
        self.used = 0;
        if let Err(failure) = written {
            self.latch.set_failure(failure);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() >= LONG_BYTES || bytes.len() > self.buffer.len() - self.used {
            return self.put_with_hand_over(bytes);
        }
        self.buffer[self.used..][..bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    #[cold]
    fn put_with_hand_over(&mut self, bytes: &[u8]) {
        self.hand_over();
        if bytes.len() < LONG_BYTES {
            return self.put(bytes);
        }
        if !self.latch.failed()
            && let Err(failure) = self.sink.write_all(bytes)
        {
            self.latch.set_failure(failure);
        }
    }

    #[inline]
    fn put_byte(&mut self, byte: u8) {
        if self.used == self.buffer.len() {
            self.hand_over();
        }
        self.buffer[self.used] = byte;
        self.used += 1;
    }

    /// The beginning of a value, or one as short as a number: written where it stays, comma and all, with one look for room.
    #[inline(always)]
    fn short(&mut self, write: impl FnOnce(&mut Text<'_>)) {
        if self.buffer.len() - self.used < MOST_BYTES {
            self.hand_over();
        }
        if let Some(place) = self.buffer[self.used..].first_chunk_mut() {
            let mut text = Text::begin(place, !self.first);
            write(&mut text);
            self.used += text.length();
            self.first = false;
        }
    }

    #[inline]
    fn nested(&mut self, open: u8, close: u8, body: impl FnOnce(&mut Self)) {
        self.short(|text| text.push(open));
        self.first = true;
        body(self);
        self.put_byte(close);
        self.first = false;
    }

    #[inline]
    pub(crate) fn object(&mut self, body: impl FnOnce(&mut Self)) {
        self.nested(b'{', b'}', body);
    }

    #[inline]
    pub(crate) fn array(&mut self, body: impl FnOnce(&mut Self)) {
        self.nested(b'[', b']', body);
    }

    /// An array of at most four numbers, with one look for room.
    #[inline(always)]
    pub(crate) fn row(&mut self, write: impl FnOnce(&mut JsonRow<'_, '_>)) {
        self.short(|text| {
            text.push(b'[');
            let mut row = JsonRow { text, values: 0 };
            write(&mut row);
            row.text.push(b']');
        });
    }

    /// A value that is JSON already, or several with their commas. A long one goes to the sink without a copy.
    #[doc(alias = "Splice")]
    pub(crate) fn splice(&mut self, value: impl AsRef<[u8]>) {
        self.short(|_| {});
        self.put(value.as_ref());
    }

    /// A property's name; its value comes next.
    pub(crate) fn key(&mut self, key: &str) -> &mut Self {
        self.string(key);
        self.put_byte(b':');
        self.first = true;
        self
    }

    pub(crate) fn string(&mut self, string: &str) {
        self.short(|text| text.push(b'"'));
        escape(string.as_bytes(), |part| self.put(part));
        self.put_byte(b'"');
    }

    /// A text that may not be UTF-8: each part that is none becomes U+FFFD, as `String::from_utf8_lossy` has it.
    pub(crate) fn text_bytes(&mut self, text: &[u8]) {
        self.short(|text| text.push(b'"'));
        for chunk in text.utf8_chunks() {
            escape(chunk.valid().as_bytes(), |part| self.put(part));
            if !chunk.invalid().is_empty() {
                self.put("\u{fffd}".as_bytes());
            }
        }
        self.put_byte(b'"');
    }

    #[inline]
    pub(crate) fn unsigned(&mut self, number: u64) {
        self.short(|text| text.push_unsigned(number));
    }

    pub(crate) fn signed(&mut self, number: i64) {
        self.short(|text| text.push_signed(number));
    }

    /// A float as EcmaScript writes it; `null` for what JSON cannot say.
    pub(crate) fn float(&mut self, number: f64) {
        if !number.is_finite() {
            return self.null();
        }
        self.short(|text| text.push_float(number));
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.short(|text| text.extend(if value { b"true" } else { b"false" }));
    }

    #[inline]
    pub(crate) fn null(&mut self) {
        self.short(|text| text.extend(b"null"));
    }

    /// Nanoseconds, as milliseconds with up to six decimals and no zeros at their end.
    #[doc(alias = "TimeI64NsElement")]
    #[inline]
    pub(crate) fn time_ms(&mut self, ns: u64) {
        self.short(|text| text.push_ns_in_ms(ns));
    }
}

/// An array of at most [`Self::MOST_VALUES`]; what is more is left out.
pub(crate) struct JsonRow<'a, 'b> {
    text: &'a mut Text<'b>,
    values: usize,
}

impl JsonRow<'_, '_> {
    const MOST_VALUES: usize = 4;

    #[inline(always)]
    fn value(&mut self, write: impl FnOnce(&mut Text<'_>)) {
        debug_assert!(self.values < Self::MOST_VALUES, "a row has no room for so many values");
        if self.values < Self::MOST_VALUES {
            if self.values > 0 {
                self.text.push(b',');
            }
            write(self.text);
            self.values += 1;
        }
    }

    #[inline(always)]
    pub(crate) fn unsigned(&mut self, number: u64) {
        self.value(|text| text.push_unsigned(number));
    }

    #[inline(always)]
    pub(crate) fn signed(&mut self, number: i64) {
        self.value(|text| text.push_signed(number));
    }

    #[inline(always)]
    pub(crate) fn null(&mut self) {
        self.value(|text| text.extend(b"null"));
    }

    /// As [`JsonWriter::time_ms`].
    #[inline(always)]
    pub(crate) fn time_ms(&mut self, ns: u64) {
        self.value(|text| text.push_ns_in_ms(ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(body: impl FnOnce(&mut JsonWriter<'_>)) -> String {
        let mut out = Vec::new();
        let mut json = JsonWriter::new(&mut out);
        body(&mut json);
        json.finish().expect("a vector never fails");
        String::from_utf8(out).expect("UTF-8")
    }

    /// Keeps each writing apart.
    #[derive(Default)]
    struct Writings(Vec<Vec<u8>>);

    impl Write for Writings {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn objects_and_arrays_are_compact_and_have_their_commas() {
        let text = written(|json| {
            json.object(|json| {
                json.key("a").array(|json| {
                    json.unsigned(0);
                    json.signed(-7);
                    json.array(|_| {});
                    json.null();
                    json.float(-0.0);
                    json.time_ms(1_500_000);
                });
                json.key("b").bool(true);
                json.key("c").splice("{}");
            });
        });
        assert_eq!(text, r#"{"a":[0,-7,[],null,0,1.5],"b":true,"c":{}}"#);
    }

    #[test]
    fn a_row_is_an_array_and_has_room_for_the_longest_numbers() {
        let text = written(|json| {
            json.array(|json| {
                json.row(|_| {});
                json.row(|row| row.null());
                json.row(|row| {
                    row.unsigned(u64::MAX);
                    row.time_ms(u64::MAX);
                    row.signed(i64::MIN);
                    row.time_ms(u64::MAX - 1);
                });
                json.unsigned(7);
            });
        });
        let row = "[18446744073709551615,18446744073709.551615,-9223372036854775808,18446744073709.551614]";
        assert_eq!(text, format!("[[],[null],{row},7]"));
    }

    #[test]
    fn every_string_reads_back() {
        let hostile = "quote \" slash \\ line \n bell \u{7} nul \0 µ \u{1f600} \u{2028}";
        for text in [hostile.to_owned(), hostile.repeat(10_000)] {
            let json = written(|json| json.string(&text));
            assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), text);
            assert_eq!(written(|json| json.text_bytes(text.as_bytes())), json);
        }
    }

    #[test]
    fn a_text_that_is_not_utf8_has_a_mark_for_each_part_that_is_none() {
        let lone_surrogate = b"\xed\xa0\x80\xed\xbf\xbf";
        let cut = ["\u{1f600}", "\u{20ac}", "é"].map(|text| &text.as_bytes()[..text.len() - 1]);
        let cases = [b"\xff".as_slice(), b"a\x80\"b", lone_surrogate, cut[0], cut[1], cut[2], b"\xc0\xaf"];
        for bad in cases {
            for text in [bad.to_vec(), [b"before ", bad, b" after"].concat(), bad.repeat(5000)] {
                let read: String =
                    serde_json::from_str(&written(|json| json.text_bytes(&text))).expect("JSON");
                assert_eq!(read, String::from_utf8_lossy(&text));
            }
        }
        assert_eq!(written(|json| json.text_bytes(b"a\xffb\xe2\x82")), "\"a\u{fffd}b\u{fffd}\"");
    }

    #[test]
    fn impossible_floats_are_null() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(written(|json| json.float(number)), "null");
        }
    }

    #[test]
    fn what_is_written_does_not_hang_on_where_the_buffer_ends() {
        let row = |json: &mut JsonWriter<'_>, number: u64| {
            json.array(|json| {
                json.unsigned(number);
                json.string("a \"b\" c");
                json.float(number as f64 / 7.0);
            });
        };
        let one = |number| written(|json| row(json, number));
        for shift in 0..40 {
            let padding = "x".repeat(shift);
            let text = written(|json| {
                json.array(|json| {
                    json.string(&padding);
                    (0..3000).for_each(|number| row(json, number));
                });
            });
            let rows: Vec<String> = (0..3000).map(one).collect();
            assert!(text == format!("[\"{padding}\",{}]", rows.join(",")), "with {shift} bytes before");
            assert!(text.len() > BUFFER_BYTES);
        }
    }

    #[test]
    fn long_values_go_to_the_sink_as_they_are() {
        let long = "y".repeat(LONG_BYTES);
        let mut sink = Writings::default();
        let mut json = JsonWriter::new(&mut sink);
        json.array(|json| {
            json.splice(&long);
            json.string(&long);
            json.unsigned(1);
        });
        json.finish().expect("nothing fails");
        let writings: Vec<&[u8]> = sink.0.iter().map(Vec::as_slice).collect();
        assert_eq!(writings, [b"[".as_slice(), long.as_bytes(), b",\"", long.as_bytes(), b"\",1]"]);
    }

    #[test]
    fn the_first_failure_of_the_sink_is_told_and_nothing_follows_it() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                self.0 += 1;
                Err(std::io::Error::other(format!("full, attempt {}", self.0)))
            }
            fn flush(&mut self) -> std::io::Result<()> {
                self.0 += 1;
                Ok(())
            }
        }
        let mut sink = Full(0);
        let latch = FailureLatch::fallible();
        let mut json = JsonWriter::for_job(&mut sink, latch.clone());
        json.array(|json| (0..50_000).for_each(|number| json.unsigned(number)));
        json.string(&"z".repeat(2 * BUFFER_BYTES));
        assert!(json.failed() && latch.failed());
        assert_eq!(json.finish().unwrap_err().to_string(), "full, attempt 1");
        assert_eq!(sink.0, 1);
    }

    #[test]
    fn nothing_is_written_of_a_job_that_has_failed_elsewhere() {
        let mut sink = Writings::default();
        let latch = FailureLatch::fallible();
        let mut json = JsonWriter::for_job(&mut sink, latch.clone());
        json.unsigned(1);
        latch.set_failure(std::io::Error::other("elsewhere"));
        assert_eq!(json.finish().unwrap_err().to_string(), "elsewhere");
        assert!(sink.0.is_empty());
    }
}
