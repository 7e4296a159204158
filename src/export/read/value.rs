//! JSON values with their place in the profile.
//!
//! A value is a part of the profile's text, and is parsed when it is asked for. So the reader never
//! holds a tree of the text, and may read its parts in the order in which they depend on each other.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Visitor};
use serde_json::value::RawValue;

use crate::types::ReadError;
use crate::util::cut_at_character;

/// Maximum length of a value that an error quotes, in bytes.
const MAX_QUOTED_BYTES: usize = 40;

/// Maximum distance of a time from the profile's start, in ms: about 30 years. So the difference of
/// any two times fits into 64 bits of ns.
const MAX_TIME_MS: f64 = 1e12;

/// Maximum of counts: the greatest integer that JavaScript holds exactly.
const MAX_COUNT: f64 = 9_007_199_254_740_991.0;

/// What an error expects where a table should be.
const TABLE: &str = "a table";

/// The place of a value: the steps that lead to it from the whole text.
#[derive(Clone, Copy)]
pub(crate) struct Place<'p> {
    outer: Option<&'p Place<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Top,
    Key(&'p str),
    Index(usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(outer) = self.outer {
            outer.fmt(f)?;
        }
        match self.step {
            Step::Top => Ok(()),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) if matches!(self.outer, Some(outer) if outer.outer.is_some()) => {
                write!(f, ".{key}")
            }
            Step::Key(key) => f.write_str(key),
        }
    }
}

impl Place<'_> {
    fn key<'p>(&'p self, key: &'p str) -> Place<'p> {
        Place {
            outer: Some(self),
            step: Step::Key(key),
        }
    }

    pub(crate) fn index(&self, index: usize) -> Place<'_> {
        Place {
            outer: Some(self),
            step: Step::Index(index),
        }
    }

    pub(crate) fn error(&self, got: impl fmt::Display, expected: impl fmt::Display) -> ReadError {
        let path = match self.outer {
            Some(_) => self.to_string(),
            None => "the whole text".to_owned(),
        };
        ReadError::Json {
            path,
            got: got.to_string(),
            expected: expected.to_string(),
        }
    }
}

/// A value of the profile, as its JSON text without spaces around it.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a, 'p> {
    pub(crate) text: &'a str,
    pub(crate) place: Place<'p>,
}

/// The members of an object.
pub(crate) struct Object<'a, 'p> {
    members: Vec<(Cow<'a, str>, &'a str)>,
    pub(crate) place: Place<'p>,
}

impl<'a> Value<'a, 'static> {
    /// Checks that a whole text is JSON.
    pub(crate) fn parse(text: &'a str) -> Result<Self, ReadError> {
        let value: &RawValue =
            serde_json::from_str(text).map_err(|error| ReadError::NotJson(error.to_string()))?;
        Ok(Self {
            text: value.get(),
            place: Place {
                outer: None,
                step: Step::Top,
            },
        })
    }
}

impl<'a, 'p> Value<'a, 'p> {
    /// Returns the error that this value is not what is expected.
    pub(crate) fn error(&self, expected: impl fmt::Display) -> ReadError {
        let quoted = cut_at_character(self.text, MAX_QUOTED_BYTES);
        let is_whole = quoted.len() == self.text.len();
        let dots = if is_whole { "" } else { "…" };
        self.place.error(format_args!("{quoted}{dots}"), expected)
    }

    pub(crate) fn is_null(&self) -> bool {
        self.text == "null"
    }

    pub(crate) fn is_object(&self) -> bool {
        self.text.starts_with('{')
    }

    pub(crate) fn is_text(&self) -> bool {
        self.text.starts_with('"')
    }

    pub(crate) fn object(&self, expected: &str) -> Result<Object<'a, 'p>, ReadError> {
        let rest = self.text.strip_prefix('{');
        let mut rest = rest.ok_or_else(|| self.error(expected))?;
        let mut members = Vec::new();
        while let Some(key) = next_part(&mut rest) {
            let value = next_part(&mut rest).unwrap_or_default();
            members.push((unquoted(key).unwrap_or_default(), value));
        }
        Ok(Object {
            members,
            place: self.place,
        })
    }

    /// Returns the elements of an array.
    pub(crate) fn elements<'s>(
        &'s self,
        expected: &str,
    ) -> Result<impl Iterator<Item = Value<'a, 's>> + use<'a, 'p, 's>, ReadError> {
        let rest = self.text.strip_prefix('[');
        let mut rest = rest.ok_or_else(|| self.error(expected))?;
        let mut indices = 0..;
        Ok(std::iter::from_fn(move || {
            let text = next_part(&mut rest)?;
            let place = self.place.index(indices.next()?);
            Some(Value { text, place })
        }))
    }

    pub(crate) fn number(&self, expected: &str) -> Result<f64, ReadError> {
        match self.text.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => self.text.parse().map_err(|_| self.error(expected)),
            _ => Err(self.error(expected)),
        }
    }

    /// Returns an integer, or the integer part of a number that fits.
    pub(crate) fn unsigned(&self, expected: &str) -> Result<u64, ReadError> {
        if let Ok(number) = self.text.parse() {
            return Ok(number);
        }
        match self.number(expected)? {
            number @ 0.0..=MAX_COUNT => Ok(number as u64),
            _ => Err(self.error(expected)),
        }
    }

    /// Returns an index of a list of `length` elements.
    pub(crate) fn index(&self, length: usize, noun: &str) -> Result<usize, ReadError> {
        let index = self.text.parse().ok().filter(|index| *index < length);
        index.ok_or_else(|| match length {
            0 => self.error(format_args!(
                "no index, because there is nothing to refer to"
            )),
            _ => self.error(format_args!("{noun} below {length}")),
        })
    }

    /// Returns a number as a float whose magnitude JavaScript counts exactly.
    pub(crate) fn count(&self, expected: &str) -> Result<f64, ReadError> {
        match self.number(expected)? {
            number if number.abs() <= MAX_COUNT => Ok(number),
            _ => Err(self.error(expected)),
        }
    }

    /// Returns a time in ms as ns.
    pub(crate) fn time_ns(&self) -> Result<i64, ReadError> {
        let expected = "a time in ms";
        to_ns(self.number(expected)?).ok_or_else(|| self.error(expected))
    }

    /// Returns a duration in ms as ns; 0 for a negative one.
    pub(crate) fn duration_ns(&self) -> Result<u64, ReadError> {
        Ok(u64::try_from(self.time_ns()?).unwrap_or(0))
    }

    pub(crate) fn bool(&self) -> Result<bool, ReadError> {
        match self.text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(self.error("true or false")),
        }
    }

    pub(crate) fn string(&self, expected: &str) -> Result<Cow<'a, str>, ReadError> {
        unquoted(self.text).ok_or_else(|| self.error(expected))
    }

    /// Returns a text, or a number as a text: the form of process ids and thread ids.
    pub(crate) fn id(&self) -> Result<Cow<'a, str>, ReadError> {
        if self.is_text() {
            return self.string("an id");
        }
        self.number("an id, which is a number or a text")?;
        Ok(Cow::Borrowed(self.text))
    }
}

/// Returns a time in ms as ns; `None` if it is too far from the profile's start.
pub(crate) fn to_ns(ms: f64) -> Option<i64> {
    (ms.abs() <= MAX_TIME_MS).then(|| (ms * 1e6).round() as i64)
}

impl<'a> Object<'a, '_> {
    /// Returns a member; `None` if it is missing or null.
    pub(crate) fn get<'s>(&'s self, key: &'s str) -> Option<Value<'a, 's>> {
        self.members()
            .rev()
            .find_map(|(name, value)| (name == key).then_some(value))
            .filter(|value| !value.is_null())
    }

    /// Reads a member; `None` if it is missing or null.
    pub(crate) fn read<'s, T>(
        &'s self,
        key: &'s str,
        read: impl FnOnce(&Value<'a, 's>) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        self.get(key).map(|value| read(&value)).transpose()
    }

    /// Returns a list; an empty one if it is missing.
    pub(crate) fn list<'s>(&'s self, key: &'s str) -> Value<'a, 's> {
        let place = self.place.key(key);
        let empty = Value { text: "[]", place };
        self.get(key).unwrap_or(empty)
    }

    pub(crate) fn require<'s>(
        &'s self,
        key: &'s str,
        expected: &str,
    ) -> Result<Value<'a, 's>, ReadError> {
        let value = self.get(key);
        value.ok_or_else(|| self.place.key(key).error("nothing", expected))
    }

    pub(crate) fn table<'s>(&'s self, key: &'s str) -> Result<Object<'a, 's>, ReadError> {
        self.require(key, TABLE)?.object(TABLE)
    }

    /// Returns a table; `None` if it is missing or null.
    pub(crate) fn optional_table<'s>(
        &'s self,
        key: &'s str,
    ) -> Result<Option<Object<'a, 's>>, ReadError> {
        self.read(key, |table| table.object(TABLE))
    }

    pub(crate) fn members(&self) -> impl DoubleEndedIterator<Item = (&str, Value<'a, '_>)> {
        self.members.iter().map(|(key, text)| {
            let place = self.place.key(key);
            (&**key, Value { text, place })
        })
    }

    /// Returns the text of a member; an empty one if the member is missing.
    pub(crate) fn text(&self, key: &str) -> Result<String, ReadError> {
        let text = self.read(key, |value| value.string("a text"))?;
        Ok(text.unwrap_or_default().into_owned())
    }

    /// Returns the JSON of a member.
    pub(crate) fn json(&self, key: &str) -> String {
        self.get(key).map_or("", |value| value.text).to_owned()
    }
}

/// Takes the next element of an array, or the next key or value of an object, from the text behind its
/// opening bracket. The text must be valid JSON.
fn next_part<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (part, after) = rest.split_at(part_length(rest));
    // Without the comma, the colon or the closing bracket.
    *rest = after.get(1..).unwrap_or_default();
    Some(part.trim_ascii()).filter(|part| !part.is_empty())
}

fn part_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => {
                while let Some((_, byte)) = bytes.next().filter(|(_, byte)| *byte != b'"') {
                    if byte == b'\\' {
                        bytes.next();
                    }
                }
            }
            b'[' | b'{' => depth += 1,
            b',' | b':' | b']' | b'}' if depth == 0 => return at,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns a text without its quotes and escapes; `None` if it is not a text.
fn unquoted(text: &str) -> Option<Cow<'_, str>> {
    let plain = text.strip_prefix('"')?.strip_suffix('"')?;
    match plain.contains('\\') {
        false => Some(Cow::Borrowed(plain)),
        // As bytes, because a text may have half of a surrogate pair.
        true => serde_json::Deserializer::from_str(text)
            .deserialize_bytes(Unescaped)
            .ok(),
    }
}

/// Decodes the escapes of a text. Half of a surrogate pair, which JavaScript allows, becomes one
/// U+FFFD.
struct Unescaped;

impl<'de> Visitor<'de> for Unescaped {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
        Ok(String::from_utf8_lossy(bytes))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            // Each of the three bytes of such a half is invalid by itself. This is the first one.
            if chunk.invalid().first() == Some(&0xed) {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        Ok(Cow::Owned(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_surrogate_pair_becomes_one_character() {
        let text = r#"{"\ud800k\n": "a\ud800\ud83d\ude00\udc00b", "é": "é"}"#;
        let value = Value::parse(text).expect("JSON");
        let object = value.object("an object").expect("an object");
        let texts = object.members().map(|(key, value)| {
            let text = value.string("a text").expect("a text");
            (key, text)
        });
        let texts: Vec<_> = texts.collect();
        let expected = [
            ("\u{fffd}k\n", "a\u{fffd}\u{1f600}\u{fffd}b".into()),
            ("é", "é".into()),
        ];
        assert_eq!(texts, expected);
    }
}
