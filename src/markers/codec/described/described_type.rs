//! A type of markers of another process, which this program need not have.

use crate::buffer::EntryReader;
use crate::markers::codec::compact_error::{CompactError, CompactResult};
use crate::markers::codec::described::recipe::{Constant, Form, Line, decode_recipe};
use crate::markers::codec::described::shape::Shape;
use crate::markers::codec::described::tracer::Step;
use crate::markers::codec::described::value::{Value, decode_payload};
use crate::markers::codec::payload::PayloadFailure;
use crate::markers::flow::FlowId;
use crate::markers::json_writer::{JSONWriter, PropertySink, PropertyValue};
use crate::types::ProfilerTime;

/// Number of lines that are carried out for each byte of a payload, and for any.
const LINES_PER_BYTE: usize = 16;
const LINES: usize = 4096;

/// A type as its process has described it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DescribedType {
    /// The type's name in the profile.
    pub(crate) name: String,
    /// The schema, as an element of `meta.markerSchema`; empty if the viewer has one.
    pub(crate) schema: String,
    shape: Shape,
    recipe: Vec<Line>,
}

impl DescribedType {
    /// Creates the type from its encoded description; `None` if that is damaged.
    pub(crate) fn decode(name: String, schema: String, payload: &[u8]) -> Option<Self> {
        let from = &mut EntryReader::new(payload);
        Some(Self {
            name,
            schema,
            shape: Shape::decode(from)?,
            recipe: decode_recipe(from)?,
        })
    }

    /// Writes the fields of a payload.
    pub(crate) fn stream(
        &self,
        payload: &[u8],
        json: &mut JSONWriter<'_>,
    ) -> Result<(), PayloadFailure> {
        let not_read = |_| PayloadFailure::NotDeserialized;
        let value = decode_payload(&self.shape, payload).map_err(not_read)?;
        let mut printer = Printer {
            value: &value,
            sink: json.sink(),
            elements: Vec::new(),
            left: LINES + LINES_PER_BYTE * payload.len(),
        };
        printer.print(&self.recipe).map_err(not_read)
    }
}

struct Printer<'p, 'v, 'w> {
    value: &'v Value<'p>,
    sink: &'w mut dyn PropertySink,
    /// For each list that is being repeated, the number of the element.
    elements: Vec<usize>,
    /// Number of lines that may still be carried out.
    left: usize,
}

impl<'p, 'v> Printer<'p, 'v, '_> {
    fn print(&mut self, lines: &[Line]) -> CompactResult<()> {
        let mut rest = lines;
        while let Some((line, after)) = rest.split_first() {
            self.left = self.left.checked_sub(1).ok_or(CompactError)?;
            rest = after;
            match line {
                Line::Value {
                    name,
                    path,
                    form,
                    is_null_if_absent,
                } => match self.find(path) {
                    Some(value) => self.show(name.as_deref(), value, form),
                    None if *is_null_if_absent => {
                        self.sink.value(name.as_deref(), PropertyValue::Null);
                    }
                    None => {}
                },
                Line::Constant { name, value } => self.constant(name.as_deref(), value),
                Line::Start {
                    name,
                    is_array,
                    path,
                } => {
                    if self.find(path).is_none() {
                        (_, rest) = split_at_end(
                            after,
                            |line| matches!(line, Line::Start { .. }),
                            |line| matches!(line, Line::End { .. }),
                        );
                        continue;
                    }
                    self.sink.start(name.as_deref(), *is_array);
                }
                Line::End { is_array } => self.sink.end(*is_array),
                Line::Each { path } => {
                    let (body, after) = split_at_end(
                        after,
                        |line| matches!(line, Line::Each { .. }),
                        |line| matches!(line, Line::EndEach),
                    );
                    if let Some(Value::List(elements)) = self.find(path) {
                        for element in 0..elements.len() {
                            self.elements.push(element);
                            self.print(body)?;
                            self.elements.pop();
                        }
                    }
                    rest = after;
                }
                Line::EndEach => {}
            }
        }
        Ok(())
    }

    /// Returns the value at a path; `None` if an option on the way is empty.
    fn find(&self, path: &[Step]) -> Option<&'v Value<'p>> {
        let mut elements = self.elements.iter();
        let mut value = self.value;
        for step in path {
            value = match (step, value) {
                (Step::Inside, Value::Some(inner)) => inner,
                (Step::Part(part), Value::Parts(parts)) => parts.get(usize::from(*part))?,
                (Step::Element, Value::List(list)) => list.get(*elements.next()?)?,
                _ => return None,
            };
        }
        Some(value)
    }

    fn constant(&mut self, name: Option<&str>, constant: &Constant) {
        if let Some(written) = constant {
            self.sink.value(name, written.as_value());
        }
    }

    fn show(&mut self, name: Option<&str>, value: &Value<'_>, form: &Form) {
        let mut put = |value: PropertyValue<'_>| self.sink.value(name, value);
        match (form, value) {
            (Form::Int | Form::Uint, Value::Signed(value)) => put(PropertyValue::Int(*value)),
            (Form::Int | Form::Uint, Value::Unsigned(value)) => put(PropertyValue::Uint(*value)),
            (Form::Int | Form::Uint | Form::Float, _) => {
                if let Some(value) = as_float(value) {
                    put(PropertyValue::Float(value));
                }
            }
            (Form::Time, Value::Unsigned(ns)) => {
                put(PropertyValue::Time(ProfilerTime::from_monotonic_ns(*ns)));
            }
            (Form::Text, _) => put(PropertyValue::String(&as_text(value))),
            (Form::Unique, _) => put(PropertyValue::UniqueString(&as_text(value))),
            (Form::Flow, _) => {
                let id = match value {
                    Value::Unsigned(id) => *id,
                    Value::Signed(id) => *id as u64,
                    _ => return,
                };
                let digits = FlowId::from(id).to_hex();
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                put(PropertyValue::UniqueString(digits));
            }
            (Form::Duration(units), Value::Parts(parts)) => {
                if let [Value::Unsigned(seconds), Value::Unsigned(ns)] = parts[..] {
                    let ns = u128::from(seconds) * 1_000_000_000 + u128::from(ns);
                    put(PropertyValue::Float(ns as f64 / (1e9 / units)));
                }
            }
            (Form::Table(table), Value::Bool(chosen)) => {
                self.constant(name, table.get(usize::from(*chosen)).unwrap_or(&None));
            }
            (Form::Table(table), Value::Variant(chosen, _)) => {
                self.constant(name, table.get(*chosen as usize).unwrap_or(&None));
            }
            _ => {}
        }
    }
}

fn as_float(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Signed(value) => Some(*value as f64),
        Value::Unsigned(value) => Some(*value as f64),
        Value::Large(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

fn as_text(value: &Value<'_>) -> String {
    match value {
        Value::Text(text) => (*text).to_owned(),
        Value::Char(character) => character.to_string(),
        Value::Signed(value) => value.to_string(),
        Value::Unsigned(value) => value.to_string(),
        Value::Large(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// Splits the lines at the end of what has begun before them, which is dropped.
fn split_at_end(
    lines: &[Line],
    begins: impl Fn(&Line) -> bool,
    ends: impl Fn(&Line) -> bool,
) -> (&[Line], &[Line]) {
    let mut open = 1usize;
    for (index, line) in lines.iter().enumerate() {
        open += usize::from(begins(line));
        open -= usize::from(ends(line));
        if open == 0 {
            return (&lines[..index], &lines[index + 1..]);
        }
    }
    (lines, &[])
}
