//! Fuzzes the JSON writer with arbitrary sequences of calls.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use arbitrary::{Result, Unstructured};
use serde_json::value::RawValue;

use crate::json::{JsonWriter, UniqueStrings};
use crate::util::FailureLatch;

const MAX_DEPTH: usize = 6;
const MAX_ITEMS: usize = 40;
const MAX_REPEATS: usize = 700;

/// Building blocks of texts, besides arbitrary bytes: characters that need escapes, long UTF-8
/// sequences, and invalid UTF-8 such as a lone surrogate.
const PIECES: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"/",
    b"\0",
    b"\x1f",
    b"\x7f",
    b"\n\r\t\x08\x0c",
    "\u{80}\u{2028}\u{2029}\u{feff}\u{ffff}".as_bytes(),
    "\u{1f600}\u{10ffff}".as_bytes(),
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\xff",
    b"\xc0\xaf",
    b"\xf0\x9f\x98",
    b"\xf4\x90\x80\x80",
    b"sixteen letters.",
    b"a",
];

/// A call of the writer, with the calls nested in it.
#[derive(Debug)]
enum Call {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    TimeMs(u64),
    String(String),
    TextBytes(Vec<u8>),
    /// JSON that is copied as it is.
    Splice(String),
    UniqueStrings(Vec<String>),
    Array(Vec<Call>),
    Object(Vec<(String, Call)>),
}

impl Call {
    fn take(input: &mut Unstructured<'_>, depth: usize) -> Result<Self> {
        let last_kind = if depth < MAX_DEPTH { 12 } else { 9 };
        Ok(match input.int_in_range(0..=last_kind)? {
            0 => Self::Null,
            1 => Self::Bool(input.arbitrary()?),
            2 => Self::Unsigned(take_number(input)?),
            3 => Self::Signed(take_number(input)?.wrapping_neg() as i64),
            4 => Self::Signed(take_number(input)? as i64),
            5 => Self::Float(take_float(input)?),
            6 => Self::TimeMs(take_number(input)?),
            7 => Self::String(take_string(input)?),
            8 => Self::TextBytes(take_text(input)?),
            9 => Self::Splice(serde_json::to_string(&take_string(input)?).expect("a string")),
            10 => Self::UniqueStrings(take_items(input, take_string)?),
            11 => Self::Array(take_items(input, |input| Self::take(input, depth + 1))?),
            _ => Self::Object(take_items(input, |input| {
                Ok((take_string(input)?, Self::take(input, depth + 1)?))
            })?),
        })
    }

    fn make(&self, json: &mut JsonWriter<'_>) {
        match self {
            Self::Null => json.null(),
            Self::Bool(value) => json.bool(*value),
            Self::Unsigned(number) => json.unsigned(*number),
            Self::Signed(number) => json.signed(*number),
            Self::Float(number) => json.float(*number),
            Self::TimeMs(ns) => json.time_ms(*ns),
            Self::String(text) => json.string(text),
            Self::TextBytes(text) => json.text_bytes(text),
            Self::Splice(value) => json.splice(value),
            Self::UniqueStrings(texts) => {
                let mut strings = UniqueStrings::default();
                let indices: Vec<u32> = texts.iter().map(|text| strings.intern(text).0).collect();
                json.array(|json| {
                    json.array(|json| {
                        indices
                            .iter()
                            .for_each(|&index| json.unsigned(index.into()))
                    });
                    strings.write(json);
                });
            }
            Self::Array(items) => json.array(|json| items.iter().for_each(|item| item.make(json))),
            Self::Object(items) => json.object(|json| {
                for (number, (name, item)) in items.iter().enumerate() {
                    item.make(json.key(&key(number, name)));
                }
            }),
        }
    }

    /// Panics if the text differs from what this call should write.
    fn check(&self, text: &RawValue) {
        let number = text.get();
        match self {
            Self::Null => assert_eq!(number, "null"),
            Self::Bool(value) => assert_eq!(number, value.to_string()),
            Self::Unsigned(expected) => assert_eq!(number, expected.to_string()),
            Self::Signed(expected) => assert_eq!(number, expected.to_string()),
            Self::Float(expected) if !expected.is_finite() => assert_eq!(number, "null"),
            Self::Float(expected) => assert_eq!(number.parse(), Ok(*expected), "{number}"),
            Self::TimeMs(ns) => {
                let (ms, fraction) = number.split_once('.').unwrap_or((number, ""));
                assert!(fraction.len() <= 6 && !fraction.ends_with('0'), "{number}");
                assert_eq!(format!("{ms}{fraction:0<6}").parse(), Ok(*ns), "{number}");
            }
            Self::String(expected) => {
                assert_eq!(
                    serde_json::from_str::<String>(text.get()).expect("a string"),
                    *expected
                )
            }
            Self::TextBytes(expected) => {
                assert_eq!(
                    serde_json::from_str::<String>(text.get()).expect("a string"),
                    String::from_utf8_lossy(expected)
                );
            }
            Self::Splice(expected) => assert_eq!(number, expected),
            Self::UniqueStrings(expected) => {
                let (indices, strings): (Vec<usize>, Vec<String>) =
                    serde_json::from_str(text.get()).expect("two arrays");
                let texts: Vec<&String> = indices.iter().map(|&index| &strings[index]).collect();
                assert_eq!(texts, expected.iter().collect::<Vec<_>>());
                let distinct: HashSet<_> = strings.iter().collect();
                assert_eq!(distinct.len(), strings.len(), "each string occurs once");
            }
            Self::Array(expected) => {
                let items: Vec<&RawValue> = serde_json::from_str(text.get()).expect("an array");
                assert_eq!(items.len(), expected.len());
                expected
                    .iter()
                    .zip(items)
                    .for_each(|(expected, item)| expected.check(item));
            }
            Self::Object(expected) => {
                let items: HashMap<String, &RawValue> =
                    serde_json::from_str(text.get()).expect("an object");
                assert_eq!(items.len(), expected.len());
                for (number, (name, item)) in expected.iter().enumerate() {
                    item.check(items[&key(number, name)]);
                }
            }
        }
    }
}

/// Returns a unique name, so that no name hides another one when the object is read.
fn key(number: usize, name: &str) -> String {
    format!("{number} {name}")
}

fn take_items<T>(
    input: &mut Unstructured<'_>,
    mut take: impl FnMut(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut items = Vec::new();
    while items.len() < MAX_ITEMS && !input.is_empty() && input.ratio(7, 8)? {
        items.push(take(input)?);
    }
    Ok(items)
}

/// Takes a number with any number of significant bits.
fn take_number(input: &mut Unstructured<'_>) -> Result<u64> {
    let number: u64 = input.arbitrary()?;
    Ok(number >> input.int_in_range(0..=63)?)
}

fn take_float(input: &mut Unstructured<'_>) -> Result<f64> {
    Ok(match input.int_in_range(0..=3)? {
        0 => f64::from_bits(input.arbitrary()?),
        1 => take_number(input)? as f64 / 1e3,
        2 => take_number(input)? as f64 / 2f64.powi(input.int_in_range(0..=60)?),
        _ => -(take_number(input)? as f64) * 10f64.powi(input.int_in_range(-30..=30)?),
    })
}

fn take_text(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for _ in 0..input.int_in_range(0..=4)? {
        if input.ratio(1, 4)? {
            let length = input.int_in_range(0..=input.len().min(40))?;
            text.extend_from_slice(input.bytes(length)?);
        } else {
            text.extend_from_slice(input.choose(PIECES)?);
        }
    }
    // Sometimes longer than the writer's buffer.
    let repeats = if input.ratio(1, 8)? {
        input.int_in_range(1..=MAX_REPEATS)?
    } else {
        1
    };
    Ok(text.repeat(repeats))
}

fn take_string(input: &mut Unstructured<'_>) -> Result<String> {
    Ok(String::from_utf8_lossy(&take_text(input)?).into_owned())
}

/// A sink that accepts a limited number of bytes per call.
struct Sink {
    text: Vec<u8>,
    at_a_time: usize,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(self.at_a_time);
        self.text.extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks that an independent parser reads back all values that are written.
pub fn check_json(input: &[u8]) {
    let mut input = Unstructured::new(input);
    // An input that is too short is skipped.
    let Ok(at_a_time) = input.int_in_range(1..=60_000) else {
        return;
    };
    let Ok(calls) = take_items(&mut input, |input| Call::take(input, 0)) else {
        return;
    };
    let calls = Call::Array(calls);
    let mut sink = Sink {
        text: Vec::new(),
        at_a_time,
    };
    let mut json = JsonWriter::for_job(&mut sink, FailureLatch::infallible());
    calls.make(&mut json);
    json.finish().expect("the sink never fails");
    let text: &RawValue = serde_json::from_slice(&sink.text).expect("JSON");
    calls.check(text);
}
