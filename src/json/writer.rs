//! The streaming writer, which inserts commas and escapes strings.

use std::io::Write;

use crate::json::number::{MAX_BYTES, NumberText};
use crate::util::FailureLatch;

/// Size of the buffer: small enough to stay in the processor's L1 cache until it is flushed.
const BUFFER_BYTES: usize = 32 << 10;

/// Minimum length of a string part or spliced value that goes to the sink without a copy.
const LONG_BYTES: usize = 8 << 10;

/// Number of bytes compared at a time, in the search for one to escape.
const STEP_BYTES: usize = 16;

/// Writes compact JSON to a sink.
#[doc(alias = "SpliceableJSONWriter")]
pub(crate) struct JsonWriter<'a> {
    sink: &'a mut dyn Write,
    buffer: Vec<u8>,
    used: usize,
    latch: FailureLatch,
    /// Whether the next value needs no comma, because it is the first at its depth or follows a
    /// key.
    first: bool,
    /// Start of the attempt in progress. The buffer is flushed only up to there, so that the
    /// attempt can be undone.
    attempt_start: Option<usize>,
}

impl<'a> JsonWriter<'a> {
    /// Creates a fallible writer with a latch of its own.
    pub(crate) fn new(sink: &'a mut dyn Write) -> Self {
        Self::for_job(sink, FailureLatch::fallible())
    }

    /// Creates a writer for the job that `latch` belongs to.
    pub(crate) fn for_job(sink: &'a mut dyn Write, latch: FailureLatch) -> Self {
        Self {
            sink,
            buffer: vec![0; BUFFER_BYTES],
            used: 0,
            latch,
            first: true,
            attempt_start: None,
        }
    }

    /// Returns whether the job has failed. Output is then discarded, so the caller may end a long
    /// job early.
    pub(crate) fn failed(&self) -> bool {
        self.latch.failed()
    }

    /// Ends the job with a failure other than the sink's.
    pub(crate) fn fail(&self, failure: std::io::Error) {
        self.latch.set_failure(failure);
    }

    /// Flushes the buffer and the sink.
    ///
    /// # Errors
    /// Returns the job's first failure.
    pub(crate) fn finish(mut self) -> std::io::Result<()> {
        self.flush_buffer();
        if !self.latch.failed()
            && let Err(failure) = self.sink.flush()
        {
            self.latch.set_failure(failure);
        }
        self.latch.result()
    }

    /// Writes the buffer to the sink; during an attempt, only the part before the attempt. Call it
    /// before a long operation, so that a failure of the sink shows early.
    #[cold]
    pub(crate) fn flush_buffer(&mut self) {
        let end = self.attempt_start.unwrap_or(self.used);
        let written = match self.latch.failed() {
            true => Ok(()),
            false => self.sink.write_all(&self.buffer[..end]),
        };
        self.buffer.copy_within(end..self.used, 0);
        self.used -= end;
        self.attempt_start = self.attempt_start.map(|_| 0);
        if let Err(failure) = written {
            self.latch.set_failure(failure);
        }
    }

    /// Flushes the buffer and makes space for `bytes` bytes. The buffer grows only during an
    /// attempt.
    #[cold]
    fn make_space(&mut self, bytes: usize) {
        self.flush_buffer();
        if self.buffer.len() - self.used < bytes {
            self.buffer
                .resize((self.used + bytes).max(2 * self.buffer.len()), 0);
        }
    }

    /// Runs `body` and undoes its output if it returns false. Returns the result of `body`.
    ///
    /// The output stays in memory until `body` returns. Attempts must not be nested.
    pub(crate) fn attempt(&mut self, body: impl FnOnce(&mut Self) -> bool) -> bool {
        debug_assert!(self.attempt_start.is_none(), "nested attempt");
        self.attempt_start = Some(self.used);
        let first = self.first;
        let is_kept = body(self);
        if let Some(begin) = self.attempt_start.take()
            && !is_kept
        {
            self.used = begin;
            self.first = first;
        }
        if self.buffer.len() > BUFFER_BYTES {
            self.flush_buffer();
            self.buffer.truncate(BUFFER_BYTES);
            self.buffer.shrink_to_fit();
        }
        is_kept
    }

    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() >= LONG_BYTES || bytes.len() > self.buffer.len() - self.used {
            return self.put_with_flush(bytes);
        }
        self.put_in_buffer(bytes);
    }

    fn put_in_buffer(&mut self, bytes: &[u8]) {
        self.buffer[self.used..][..bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    #[cold]
    fn put_with_flush(&mut self, bytes: &[u8]) {
        if bytes.len() < LONG_BYTES || self.attempt_start.is_some() {
            self.make_space(bytes.len());
            return self.put_in_buffer(bytes);
        }
        self.flush_buffer();
        if !self.latch.failed()
            && let Err(failure) = self.sink.write_all(bytes)
        {
            self.latch.set_failure(failure);
        }
    }

    #[inline]
    fn put_byte(&mut self, byte: u8) {
        if self.used == self.buffer.len() {
            self.make_space(1);
        }
        self.buffer[self.used] = byte;
        self.used += 1;
    }

    /// Appends a comma if one is needed and then the output of `write`: the start of a value, or a
    /// short value. Space is checked once, and the bytes are written in their final place.
    #[inline(always)]
    fn write_short(&mut self, write: impl FnOnce(&mut NumberText<'_>)) {
        if self.buffer.len() - self.used < MAX_BYTES {
            self.make_space(MAX_BYTES);
        }
        if let Some(place) = self.buffer[self.used..].first_chunk_mut() {
            let mut text = NumberText::begin(place, !self.first);
            write(&mut text);
            self.used += text.length();
            self.first = false;
        }
    }

    #[inline]
    pub(crate) fn object(&mut self, body: impl FnOnce(&mut Self)) {
        self.open(false);
        body(self);
        self.close(false);
    }

    #[inline]
    pub(crate) fn array(&mut self, body: impl FnOnce(&mut Self)) {
        self.open(true);
        body(self);
        self.close(true);
    }

    /// Starts an object or array, which [`Self::close`] ends.
    pub(crate) fn open(&mut self, is_array: bool) {
        self.write_short(|text| text.push(if is_array { b'[' } else { b'{' }));
        self.first = true;
    }

    /// Ends the innermost object or array that [`Self::open`] started.
    pub(crate) fn close(&mut self, is_array: bool) {
        self.put_byte(if is_array { b']' } else { b'}' });
        self.first = false;
    }

    /// Writes an array of at most four numbers, and checks for space once.
    #[inline(always)]
    pub(crate) fn row(&mut self, write: impl FnOnce(&mut JsonRow<'_, '_>)) {
        self.write_short(|text| {
            text.push(b'[');
            let mut row = JsonRow { text, values: 0 };
            write(&mut row);
            row.text.push(b']');
        });
    }

    /// Writes a value that is JSON already, or several values separated by commas. A long one goes
    /// to the sink without a copy.
    #[doc(alias = "Splice")]
    pub(crate) fn splice(&mut self, value: impl AsRef<[u8]>) {
        self.write_short(|_| {});
        self.put(value.as_ref());
    }

    /// Continues the value that [`Self::splice`] has begun.
    pub(crate) fn splice_more(&mut self, part: impl AsRef<[u8]>) {
        self.put(part.as_ref());
    }

    /// Writes the name of a property. The next value belongs to it.
    pub(crate) fn key(&mut self, key: &str) -> &mut Self {
        self.string(key);
        self.put_byte(b':');
        self.first = true;
        self
    }

    pub(crate) fn string(&mut self, string: &str) {
        let text = string.as_bytes();
        // A comma and two quotes.
        let max_bytes = text.len() + 3;
        if text.len() >= LONG_BYTES || self.buffer.len() - self.used < max_bytes || !is_plain(text)
        {
            return self.string_in_parts(string);
        }
        let place = &mut self.buffer[self.used..][..max_bytes];
        // Overwritten by the quote if no comma is needed.
        place[0] = b',';
        let start = usize::from(!self.first);
        let quoted = &mut place[start..][..text.len() + 2];
        quoted[0] = b'"';
        quoted[1..][..text.len()].copy_from_slice(text);
        quoted[text.len() + 1] = b'"';
        self.used += start + quoted.len();
        self.first = false;
    }

    /// Writes a string that needs escapes, is long, or exceeds the buffer.
    #[cold]
    fn string_in_parts(&mut self, string: &str) {
        self.write_short(|text| text.push(b'"'));
        escape(string.as_bytes(), |part| self.put(part));
        self.put_byte(b'"');
    }

    /// Writes a string that may not be UTF-8, with U+FFFD for each invalid part, as
    /// `String::from_utf8_lossy` does.
    pub(crate) fn text_bytes(&mut self, text: &[u8]) {
        self.write_short(|text| text.push(b'"'));
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
        self.write_short(|text| text.push_unsigned(number));
    }

    pub(crate) fn signed(&mut self, number: i64) {
        self.write_short(|text| text.push_signed(number));
    }

    /// Writes a float with the fewest digits that read back as the same number; `null` if it is NaN
    /// or infinite.
    pub(crate) fn float(&mut self, number: f64) {
        if !number.is_finite() {
            return self.null();
        }
        self.write_short(|text| text.push_float(number));
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.write_short(|text| text.extend(if value { b"true" } else { b"false" }));
    }

    #[inline]
    pub(crate) fn null(&mut self) {
        self.write_short(|text| text.extend(b"null"));
    }

    /// Writes a value with one of the other methods, or `null` for `None`.
    pub(crate) fn or_null<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.null(),
        }
    }

    /// Writes nanoseconds as milliseconds, with up to six decimals and without trailing zeros.
    #[doc(alias = "TimeI64NsElement")]
    #[inline]
    pub(crate) fn time_ms(&mut self, ns: u64) {
        self.write_short(|text| text.push_ns_in_ms(ns));
    }

    /// Writes nanoseconds as milliseconds, as [`Self::time_ms`] does. Only what began before the
    /// profile has a negative time.
    #[inline]
    pub(crate) fn signed_time_ms(&mut self, ns: i64) {
        match u64::try_from(ns) {
            Ok(ns) => self.time_ms(ns),
            Err(_) => self.float(ns as f64 / 1e6),
        }
    }
}

/// An array of at most [`Self::MAX_VALUES`] numbers; further ones are dropped.
pub(crate) struct JsonRow<'a, 'b> {
    text: &'a mut NumberText<'b>,
    values: usize,
}

impl<'b> JsonRow<'_, 'b> {
    const MAX_VALUES: usize = 4;

    /// Begins the next value and returns the row's text; `None` if the row is full.
    ///
    /// Not a closure, which the compiler would not always inline.
    #[inline(always)]
    fn next_value(&mut self) -> Option<&mut NumberText<'b>> {
        debug_assert!(self.values < Self::MAX_VALUES, "too many values in a row");
        if self.values >= Self::MAX_VALUES {
            return None;
        }
        if self.values > 0 {
            self.text.push(b',');
        }
        self.values += 1;
        Some(self.text)
    }

    #[inline(always)]
    pub(crate) fn unsigned(&mut self, number: u64) {
        if let Some(text) = self.next_value() {
            text.push_unsigned(number);
        }
    }

    #[inline(always)]
    pub(crate) fn signed(&mut self, number: i64) {
        if let Some(text) = self.next_value() {
            text.push_signed(number);
        }
    }

    #[inline(always)]
    pub(crate) fn null(&mut self) {
        if let Some(text) = self.next_value() {
            text.extend(b"null");
        }
    }

    /// Writes nanoseconds as milliseconds, like [`JsonWriter::time_ms`].
    #[inline(always)]
    pub(crate) fn time_ms(&mut self, ns: u64) {
        if let Some(text) = self.next_value() {
            text.push_ns_in_ms(ns);
        }
    }
}

/// Returns the text of what `write` writes.
pub(crate) fn json_text(write: impl FnOnce(&mut JsonWriter<'_>)) -> String {
    let mut text = Vec::new();
    let mut json = JsonWriter::for_job(&mut text, FailureLatch::infallible());
    write(&mut json);
    // A vector never fails.
    let _ = json.finish();
    // The writer writes only UTF-8.
    String::from_utf8(text).unwrap_or_default()
}

const fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Returns whether a step has a byte that must be escaped. It has no branches, so the compiler
/// compares all bytes of a step at once.
fn is_hit<const N: usize>(step: &[u8; N]) -> bool {
    step.iter()
        .fold(false, |hit, &byte| hit | needs_escape(byte))
}

/// Returns whether this text needs no escapes in a JSON string. The last step of a text overlaps
/// the step before it, so that no step compares a single byte.
fn is_plain(text: &[u8]) -> bool {
    let (steps, _) = text.as_chunks::<STEP_BYTES>();
    if let Some(last) = text.last_chunk::<STEP_BYTES>() {
        !steps.iter().any(is_hit) && !is_hit(last)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        !is_hit(first) && !is_hit(last)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        !is_hit(first) && !is_hit(last)
    } else {
        !text.iter().any(|&byte| needs_escape(byte))
    }
}

/// Returns the index of the first byte that must be escaped in a JSON string.
fn find_escape(bytes: &[u8]) -> Option<usize> {
    let (steps, _) = bytes.as_chunks::<STEP_BYTES>();
    let hit = steps.iter().position(is_hit).unwrap_or(steps.len());
    let from = hit * STEP_BYTES;
    let within = bytes[from..].iter().position(|&byte| needs_escape(byte));
    within.map(|within| from + within)
}

/// Escapes `text` and passes the result to `put` in parts.
fn escape(mut text: &[u8], mut put: impl FnMut(&[u8])) {
    while let Some(at) = find_escape(text) {
        put(&text[..at]);
        match text[at] {
            b'"' => put(b"\\\""),
            b'\\' => put(b"\\\\"),
            b'\n' => put(b"\\n"),
            b'\r' => put(b"\\r"),
            b'\t' => put(b"\\t"),
            byte => {
                let digit = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
                put(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            }
        }
        text = &text[at + 1..];
    }
    put(text);
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
