//! The streaming writer: values one after another, commas and escapes by itself.
//!
//! Numbers look as Gecko writes them: times in milliseconds with up to six decimals and no trailing
//! zeros, other floats in the shortest form that reads back the same.

use std::io::Write;

use crate::base::FailureLatch;

const BUFFER_BYTES: usize = 64 << 10;

/// Writes compact JSON to a sink.
#[doc(alias = "SpliceableJSONWriter")]
pub(crate) struct JsonWriter<'a> {
    sink: &'a mut dyn Write,
    buffer: Vec<u8>,
    latch: FailureLatch,
    /// Whether the next value is the first one at its depth, and so has no comma before it.
    first: bool,
}

impl<'a> JsonWriter<'a> {
    pub(crate) fn new(sink: &'a mut dyn Write) -> Self {
        Self {
            sink,
            buffer: Vec::with_capacity(BUFFER_BYTES + 1024),
            latch: FailureLatch::default(),
            first: true,
        }
    }

    /// Whether the sink has failed; what is written from then on goes nowhere, so a long job may stop.
    pub(crate) fn failed(&self) -> bool {
        self.latch.failed()
    }

    /// Hands the rest to the sink.
    ///
    /// # Errors
    /// The sink's first failure.
    pub(crate) fn finish(mut self) -> std::io::Result<()> {
        self.flush_buffer();
        if !self.latch.failed()
            && let Err(failure) = self.sink.flush()
        {
            self.latch.set_failure(failure);
        }
        self.latch.into_result()
    }

    fn flush_buffer(&mut self) {
        if !self.latch.failed()
            && let Err(failure) = self.sink.write_all(&self.buffer)
        {
            self.latch.set_failure(failure);
        }
        self.buffer.clear();
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush_buffer();
        }
    }

    fn separate(&mut self) {
        if !self.first {
            self.put(b",");
        }
        self.first = false;
    }

    fn nested(&mut self, open: &[u8], close: &[u8], body: impl FnOnce(&mut Self)) {
        self.separate();
        self.put(open);
        self.first = true;
        body(self);
        self.put(close);
        self.first = false;
    }

    pub(crate) fn object(&mut self, body: impl FnOnce(&mut Self)) {
        self.nested(b"{", b"}", body);
    }

    pub(crate) fn array(&mut self, body: impl FnOnce(&mut Self)) {
        self.nested(b"[", b"]", body);
    }

    /// A value that is JSON already.
    pub(crate) fn splice(&mut self, value: &str) {
        self.separate();
        self.put(value.as_bytes());
    }

    /// A property's name; its value comes next.
    pub(crate) fn key(&mut self, key: &str) -> &mut Self {
        self.string(key);
        self.put(b":");
        self.first = true;
        self
    }

    pub(crate) fn string(&mut self, string: &str) {
        self.separate();
        self.put(b"\"");
        let mut plain = 0;
        for (index, byte) in string.bytes().enumerate() {
            let escape: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'\n' => b"\\n",
                b'\r' => b"\\r",
                b'\t' => b"\\t",
                0..=0x1f => b"",
                _ => continue,
            };
            self.put(&string.as_bytes()[plain..index]);
            if escape.is_empty() {
                self.put(format!("\\u{byte:04x}").as_bytes());
            } else {
                self.put(escape);
            }
            plain = index + 1;
        }
        self.put(&string.as_bytes()[plain..]);
        self.put(b"\"");
    }

    pub(crate) fn unsigned(&mut self, number: u64) {
        self.separate();
        let mut digits = [0; 20];
        let start = decimal(number, &mut digits);
        self.put(&digits[start..]);
    }

    pub(crate) fn signed(&mut self, number: i64) {
        self.separate();
        if number < 0 {
            self.put(b"-");
        }
        let mut digits = [0; 20];
        let start = decimal(number.unsigned_abs(), &mut digits);
        self.put(&digits[start..]);
    }

    /// A float in its shortest form; `null` for what JSON cannot say.
    pub(crate) fn float(&mut self, number: f64) {
        if !number.is_finite() {
            return self.null();
        }
        self.separate();
        // Rust writes the shortest digits without an exponent, which is valid JSON.
        self.put(format!("{number}").as_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.separate();
        self.put(if value { b"true" } else { b"false" });
    }

    pub(crate) fn null(&mut self) {
        self.separate();
        self.put(b"null");
    }

    /// Nanoseconds, as milliseconds.
    pub(crate) fn time_ms(&mut self, ns: u64) {
        self.separate();
        let mut digits = [0; 20];
        let start = decimal(ns / 1_000_000, &mut digits);
        self.put(&digits[start..]);
        let fraction = ns % 1_000_000;
        if fraction != 0 {
            let padded = decimal(1_000_000 + fraction, &mut digits) + 1;
            let end = 1 + digits.iter().rposition(|&digit| digit != b'0').unwrap_or(padded);
            self.put(b".");
            self.put(&digits[padded..end]);
        }
    }
}

/// Writes the digits at the end of `digits` and gives the index of the first.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> usize {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return start;
        }
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

    #[test]
    fn objects_and_arrays_are_compact_and_have_their_commas() {
        let text = written(|json| {
            json.object(|json| {
                json.key("a").array(|json| {
                    json.unsigned(0);
                    json.signed(-7);
                    json.array(|_| {});
                    json.null();
                });
                json.key("b").bool(true);
            });
        });
        assert_eq!(text, r#"{"a":[0,-7,[],null],"b":true}"#);
    }

    #[test]
    fn every_string_reads_back() {
        let hostile = "quote \" slash \\ line \n bell \u{7} nul \0 µ \u{1f600} \u{2028}";
        let text = written(|json| json.string(hostile));
        assert_eq!(serde_json::from_str::<String>(&text).expect("JSON"), hostile);
    }

    #[test]
    fn times_have_up_to_six_decimals_and_no_trailing_zeros() {
        for (ns, text) in [
            (0, "0"),
            (1, "0.000001"),
            (1_000_000, "1"),
            (1_500_000, "1.5"),
            (23_841_461, "23.841461"),
            (10_020_000, "10.02"),
            (u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(written(|json| json.time_ms(ns)), text);
        }
    }

    #[test]
    fn floats_read_back_and_impossible_ones_are_null() {
        for number in [0.1, 1e300, 5e-324, -2.5, 1_700_000_000_000.25] {
            let text = written(|json| json.float(number));
            assert_eq!(text.parse::<f64>(), Ok(number));
        }
        assert_eq!(written(|json| json.float(f64::NAN)), "null");
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
                Ok(())
            }
        }
        let mut sink = Full(0);
        let mut json = JsonWriter::new(&mut sink);
        json.array(|json| (0..50_000).for_each(|number| json.unsigned(number)));
        assert!(json.failed());
        assert_eq!(json.finish().unwrap_err().to_string(), "full, attempt 1");
        assert_eq!(sink.0, 1);
    }
}
