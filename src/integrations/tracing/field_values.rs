//! The field values of a span or an event, encoded when they are recorded and decoded when a
//! profile is written.
//!
//! Each value consists of the field's index in its callsite, a tag and the tag's data: a number in
//! as few bytes as possible, or the length of a text and the text.

use std::fmt;

use tracing_core::field::{Field, Visit};

use crate::integrations::application_text::{PooledBytes, append_str, append_text};
use crate::integrations::tracing::span_context::{SPAN_ID, TRACE_ID};
use crate::markers::JSONWriter;
use crate::types::serde_as_inner;

/// Maximum length of a text, in bytes; a longer one is truncated at a character boundary.
const MAX_TEXT_BYTES: usize = 512;

const FALSE: u8 = 0;
const TRUE: u8 = 1;
/// Tag of a float, followed by eight bytes.
const FLOAT: u8 = 2;
/// Tag of a text, followed by its length in two bytes and the text.
const TEXT: u8 = 3;
/// Tag of a number that is not negative. The tag's low four bits count the bytes that follow, at
/// most 8: the number's low bytes.
const NATURAL: u8 = 0x10;
/// Tag of a negative number. The bytes that follow, counted as for [`NATURAL`], are the low bytes
/// of its complement.
const NEGATIVE: u8 = 0x20;

/// A decoded value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum FieldValue<'a> {
    Bool(bool),
    Natural(u64),
    Negative(i64),
    Float(f64),
    Text(&'a str),
}

impl fmt::Display for FieldValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Natural(value) => value.fmt(f),
            Self::Negative(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

impl FieldValue<'_> {
    /// Writes the value with its type, or as a text if the viewer's numbers cannot represent it.
    pub(crate) fn write(&self, json: &mut JSONWriter<'_>, key: &str) {
        const MAX_EXACT: u64 = 1 << 53;
        match *self {
            Self::Bool(value) => json.bool_property(key, value),
            Self::Natural(value) if value <= MAX_EXACT => json.uint_property(key, value),
            Self::Negative(value) if value.unsigned_abs() <= MAX_EXACT => {
                json.int_property(key, value)
            }
            Self::Float(value) if value.is_finite() => json.float_property(key, value),
            Self::Text(value) => json.string_property(key, value),
            _ => json.string_property(key, &self.to_string()),
        }
    }
}

/// The recorded values, each with the index of its field.
#[derive(Debug, Default)]
pub(crate) struct FieldValues(PooledBytes);

serde_as_inner!(FieldValues(PooledBytes));

impl FieldValues {
    pub(crate) const fn new() -> Self {
        Self(PooledBytes::new())
    }

    /// Returns all values in the order of their recording.
    pub(crate) fn iter(&self) -> FieldValuesIter<'_> {
        FieldValuesIter {
            rest: self.0.bytes(),
        }
    }

    /// Returns the last recorded value of a field.
    pub(crate) fn get(&self, field: usize) -> Option<FieldValue<'_>> {
        self.iter()
            .filter(|(index, _)| usize::from(*index) == field)
            .last()
            .map(|(_, value)| value)
    }

    /// Adds newer values, which replace older ones of the same fields.
    pub(crate) fn replace(&mut self, newer: &Self) {
        let is_newer = |field: u8| newer.iter().any(|(other, _)| other == field);
        if self.iter().any(|(field, _)| is_newer(field)) {
            let mut kept = Self::new();
            let bytes = kept.0.bytes_mut();
            self.raw_iter()
                .filter(|(field, _)| !is_newer(*field))
                .for_each(|(_, raw)| bytes.extend(raw));
            *self = kept;
        }
        if !newer.0.bytes().is_empty() {
            self.0.bytes_mut().extend_from_slice(newer.0.bytes());
        }
    }

    /// Returns each value's field, with the encoded bytes of the value.
    fn raw_iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut values = self.iter();
        std::iter::from_fn(move || {
            let before = values.rest;
            let (field, _) = values.next()?;
            Some((field, &before[..before.len() - values.rest.len()]))
        })
    }

    /// Starts a value. Returns `None` if the field's index does not fit in a byte.
    #[inline]
    fn begin(&mut self, field: &Field, tag: u8) -> Option<&mut Vec<u8>> {
        let index = u8::try_from(field.index()).ok()?;
        let bytes = self.0.bytes_mut();
        bytes.extend_from_slice(&[index, tag]);
        Some(bytes)
    }

    #[inline]
    fn put_number(&mut self, field: &Field, tag: u8, number: u64) {
        let length = 8 - number.leading_zeros() as usize / 8;
        if let Some(bytes) = self.begin(field, tag | length as u8) {
            bytes.extend_from_slice(&number.to_le_bytes()[..length]);
        }
    }

    #[inline]
    fn put_text(&mut self, field: &Field, append: impl FnOnce(&mut Vec<u8>)) {
        let Some(bytes) = self.begin(field, TEXT) else {
            return;
        };
        let start = bytes.len() + 2;
        bytes.extend_from_slice(&[0; 2]);
        append(bytes);
        let length = (bytes.len() - start) as u16;
        bytes[start - 2..start].copy_from_slice(&length.to_le_bytes());
    }

    fn put_arguments(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        self.put_text(field, |bytes| append_text(bytes, text, MAX_TEXT_BYTES));
    }
}

impl Visit for FieldValues {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.begin(field, if value { TRUE } else { FALSE });
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_u128(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.record_u64(field, value),
            Err(_) => self.put_number(field, NEGATIVE, !value as u64),
        }
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        let digits_of_id = match field.name() {
            TRACE_ID => Some(32),
            SPAN_ID => Some(16),
            _ => None,
        };
        match (digits_of_id, u64::try_from(value)) {
            // An id has the digits that it has elsewhere in the profile. As a number, it may be longer
            // than those of the viewer, and its decimal digits would be those of another id.
            (Some(digits), _) => self.put_arguments(field, format_args!("{value:0digits$x}")),
            (None, Ok(value)) => self.put_number(field, NATURAL, value),
            (None, Err(_)) => self.record_debug(field, &value),
        }
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        match i64::try_from(value) {
            Ok(value) => self.record_i64(field, value),
            Err(_) => self.record_debug(field, &value),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if let Some(bytes) = self.begin(field, FLOAT) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, |bytes| append_str(bytes, value, MAX_TEXT_BYTES));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_arguments(field, format_args!("{value:?}"));
    }
}

/// Decodes values, and ends at the first malformed one.
#[derive(Clone, Debug)]
pub(crate) struct FieldValuesIter<'a> {
    rest: &'a [u8],
}

impl<'a> FieldValuesIter<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self, tag: u8) -> Option<u64> {
        let mut bytes = [0; 8];
        let taken = self.take(usize::from(tag & 0xf))?;
        bytes.get_mut(..taken.len())?.copy_from_slice(taken);
        Some(u64::from_le_bytes(bytes))
    }
}

impl<'a> Iterator for FieldValuesIter<'a> {
    type Item = (u8, FieldValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let &[field, tag] = self.take(2)? else {
            return None;
        };
        let value = match tag {
            FALSE | TRUE => FieldValue::Bool(tag == TRUE),
            FLOAT => FieldValue::Float(f64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            TEXT => {
                let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
                FieldValue::Text(std::str::from_utf8(self.take(length.into())?).ok()?)
            }
            _ if tag & 0xf0 == NATURAL => FieldValue::Natural(self.number(tag)?),
            _ if tag & 0xf0 == NEGATIVE => FieldValue::Negative(!self.number(tag)? as i64),
            _ => return None,
        };
        Some((field, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_and_newer_ones_replace_older_ones() {
        let span = tracing::subscriber::with_default(tracing_subscriber::registry(), || {
            tracing::info_span!("span", a = 0, b = 0, c = 0, d = 0)
        });
        let fields = span.metadata().expect("enabled").fields();
        let field = |name| fields.field(name).expect("a field");
        let mut values = FieldValues::new();
        values.record_i64(&field("a"), -1);
        values.record_u64(&field("b"), 1 << 40);
        values.record_str(&field("c"), &"é".repeat(MAX_TEXT_BYTES));
        values.record_i64(&field("d"), i64::MIN);
        let cut = "é".repeat(MAX_TEXT_BYTES / 2);
        let mut expected = vec![
            (0, FieldValue::Negative(-1)),
            (1, FieldValue::Natural(1 << 40)),
            (2, FieldValue::Text(&cut)),
        ];
        expected.push((3, FieldValue::Negative(i64::MIN)));
        assert_eq!(values.iter().collect::<Vec<_>>(), expected);

        let mut newer = FieldValues::new();
        newer.record_bool(&field("c"), true);
        newer.record_f64(&field("a"), 0.5);
        values.replace(&newer);
        let expected = [
            (1, FieldValue::Natural(1 << 40)),
            (3, FieldValue::Negative(i64::MIN)),
            (2, FieldValue::Bool(true)),
            (0, FieldValue::Float(0.5)),
        ];
        assert_eq!(values.iter().collect::<Vec<_>>(), expected);
        assert_eq!(values.get(2), Some(FieldValue::Bool(true)));
        values.replace(&FieldValues::new());
        assert_eq!(values.iter().count(), 4);
    }

    #[test]
    fn malformed_value_ends_the_iteration() {
        for rest in [
            &[1][..],
            &[1, 0x7f],
            &[1, TEXT, 5, 0, b'x'],
            &[1, NATURAL | 9],
            &[1, FLOAT, 0],
            &[1, TEXT, 1, 0, 0xff],
        ] {
            let bytes = [&[0, TRUE], rest].concat();
            let read: Vec<_> = FieldValuesIter { rest: &bytes }.collect();
            assert_eq!(read, [(0, FieldValue::Bool(true))], "{rest:?}");
        }
    }
}
