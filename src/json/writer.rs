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
    buffer: Vec<u8>,
    used: usize,
    latch: FailureLatch,
    /// Whether the next value is the first one at its depth, and so has no comma before it.
    first: bool,
    /// From where on what is there may be taken back, and so is not handed over.
    held_from: Option<usize>,
}

impl<'a> JsonWriter<'a> {
    /// A writer that may fail, for a job of its own.
    #[cfg(test)]
    pub(crate) fn new(sink: &'a mut dyn Write) -> Self {
        Self::for_job(sink, FailureLatch::fallible())
    }

    /// A writer for a job that this latch is of.
    pub(crate) fn for_job(sink: &'a mut dyn Write, latch: FailureLatch) -> Self {
        Self {
            sink,
            buffer: vec![0; BUFFER_BYTES],
            used: 0,
            latch,
            first: true,
            held_from: None,
        }
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
        let end = self.held_from.unwrap_or(self.used);
        let written = match self.latch.failed() {
            true => Ok(()),
            false => self.sink.write_all(&self.buffer[..end]),
        };
        self.buffer.copy_within(end..self.used, 0);
        self.used -= end;
        self.held_from = self.held_from.map(|_| 0);
        if let Err(failure) = written {
            self.latch.set_failure(failure);
        }
    }

    /// Hands over, and has room for so many bytes then, of which there are few unless something is held.
    #[cold]
    fn make_room(&mut self, bytes: usize) {
        self.hand_over();
        if self.buffer.len() - self.used < bytes {
            self.buffer
                .resize((self.used + bytes).max(2 * self.buffer.len()), 0);
        }
    }

    /// Writes what may turn out to be nothing: where `body` says false, it is as if it had written nothing. Until then what it
    /// writes stays in memory. There is none within another.
    pub(crate) fn attempt(&mut self, body: impl FnOnce(&mut Self) -> bool) -> bool {
        debug_assert!(self.held_from.is_none(), "an attempt within another");
        self.held_from = Some(self.used);
        let first = self.first;
        let is_well = body(self);
        if let Some(begin) = self.held_from.take()
            && !is_well
        {
            self.used = begin;
            self.first = first;
        }
        if self.buffer.len() > BUFFER_BYTES {
            self.hand_over();
            self.buffer.truncate(BUFFER_BYTES);
            self.buffer.shrink_to_fit();
        }
        is_well
    }

    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() >= LONG_BYTES || bytes.len() > self.buffer.len() - self.used {
            return self.put_with_hand_over(bytes);
        }
        self.put_here(bytes);
    }

    fn put_here(&mut self, bytes: &[u8]) {
        self.buffer[self.used..][..bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    #[cold]
    fn put_with_hand_over(&mut self, bytes: &[u8]) {
        if bytes.len() < LONG_BYTES || self.held_from.is_some() {
            self.make_room(bytes.len());
            return self.put_here(bytes);
        }
        self.hand_over();
        if !self.latch.failed()
            && let Err(failure) = self.sink.write_all(bytes)
        {
            self.latch.set_failure(failure);
        }
    }

    #[inline]
    fn put_byte(&mut self, byte: u8) {
        if self.used == self.buffer.len() {
            self.make_room(1);
        }
        self.buffer[self.used] = byte;
        self.used += 1;
    }

    /// The beginning of a value, or one as short as a number: written where it stays, comma and all, with one look for room.
    #[inline(always)]
    fn short(&mut self, write: impl FnOnce(&mut Text<'_>)) {
        if self.buffer.len() - self.used < MOST_BYTES {
            self.make_room(MOST_BYTES);
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

    /// The beginning of an object, or of an array, whose end comes by [`Self::close`].
    pub(crate) fn open(&mut self, is_array: bool) {
        self.short(|text| text.push(if is_array { b'[' } else { b'{' }));
        self.first = true;
    }

    /// The end of what was opened last.
    pub(crate) fn close(&mut self, is_array: bool) {
        self.put_byte(if is_array { b']' } else { b'}' });
        self.first = false;
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
        debug_assert!(
            self.values < Self::MOST_VALUES,
            "a row has no room for so many values"
        );
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
#[path = "writer_tests.rs"]
mod tests;
