//! A type of markers of another process, which this program need not have.

use crate::buffer::EntryReader;
use crate::markers::codec::compact_error::{CompactError, CompactResult};
use crate::markers::codec::described::recipe::{Constant, Form, Line, decode_recipe};
use crate::markers::codec::described::shape::Shape;
use crate::markers::codec::described::tracer::Step;
use crate::markers::codec::described::value::{Value, decode_payload};
use crate::markers::codec::payload::PayloadFailure;
use crate::markers::flow::FlowId;
use crate::markers::json_writer::JSONWriter;
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
            json,
            elements: Vec::new(),
            left: LINES + LINES_PER_BYTE * payload.len(),
        };
        printer.print(&self.recipe).map_err(not_read)
    }
}

struct Printer<'p, 'v, 'w, 'j> {
    value: &'v Value<'p>,
    json: &'w mut JSONWriter<'j>,
    /// For each list that is being repeated, the number of the element.
    elements: Vec<usize>,
    /// Number of lines that may still be carried out.
    left: usize,
}

impl<'p, 'v> Printer<'p, 'v, '_, '_> {
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
                    None if *is_null_if_absent => self.constant(name.as_deref(), &Constant::Null),
                    None => {}
                },
                Line::Constant { name, value } => self.constant(name.as_deref(), value),
                Line::Start {
                    name,
                    is_array,
                    path,
                } => {
                    if self.find(path).is_none() {
                        rest = after_end(after);
                        continue;
                    }
                    match (name, is_array) {
                        (Some(name), true) => self.json.start_array_property(name),
                        (None, true) => self.json.start_array_element(),
                        (Some(name), false) => self.json.start_object_property(name),
                        (None, false) => self.json.start_object_element(),
                    }
                }
                Line::End { is_array: true } => self.json.end_array(),
                Line::End { is_array: false } => self.json.end_object(),
                Line::Each { path } => {
                    let (body, after) = split_each(after);
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
        match constant {
            Constant::Absent => {}
            Constant::Null => match name {
                Some(name) => self.json.null_property(name),
                None => self.json.null_element(),
            },
            Constant::Bool(value) => match name {
                Some(name) => self.json.bool_property(name, *value),
                None => self.json.bool_element(*value),
            },
            Constant::Int(value) => self.int(name, *value),
            Constant::Uint(value) => self.uint(name, *value),
            Constant::Float(value) => self.float(name, *value),
            Constant::Text(text) => self.text(name, text),
            Constant::Unique(text) => self.unique(name, text),
        }
    }

    fn int(&mut self, name: Option<&str>, value: i64) {
        match name {
            Some(name) => self.json.int_property(name, value),
            None => self.json.int_element(value),
        }
    }

    fn uint(&mut self, name: Option<&str>, value: u64) {
        match name {
            Some(name) => self.json.uint_property(name, value),
            None => self.json.uint_element(value),
        }
    }

    fn float(&mut self, name: Option<&str>, value: f64) {
        match name {
            Some(name) => self.json.float_property(name, value),
            None => self.json.float_element(value),
        }
    }

    fn text(&mut self, name: Option<&str>, text: &str) {
        match name {
            Some(name) => self.json.string_property(name, text),
            None => self.json.string_element(text),
        }
    }

    fn unique(&mut self, name: Option<&str>, text: &str) {
        match name {
            Some(name) => self.json.unique_string_property(name, text),
            None => self.json.unique_string_element(text),
        }
    }

    fn show(&mut self, name: Option<&str>, value: &Value<'_>, form: &Form) {
        match form {
            Form::Int | Form::Uint => match value {
                Value::Signed(value) => self.int(name, *value),
                Value::Unsigned(value) => self.uint(name, *value),
                value => {
                    if let Some(value) = as_float(value) {
                        self.float(name, value);
                    }
                }
            },
            Form::Float => {
                if let Some(value) = as_float(value) {
                    self.float(name, value);
                }
            }
            Form::Time => {
                if let Value::Unsigned(ns) = value {
                    let time = ProfilerTime::from_monotonic_ns(*ns);
                    match name {
                        Some(name) => self.json.time_property(name, time),
                        None => self.json.time_element(time),
                    }
                }
            }
            Form::Text => self.text(name, &as_text(value)),
            Form::Unique => self.unique(name, &as_text(value)),
            Form::Flow => {
                let flow = match value {
                    Value::Unsigned(value) => FlowId::from(*value),
                    Value::Signed(value) => FlowId::from(*value as u64),
                    _ => return,
                };
                let digits = flow.to_hex();
                self.unique(name, std::str::from_utf8(&digits).unwrap_or_default());
            }
            Form::Duration(units) => {
                if let Value::Parts(parts) = value
                    && let [Value::Unsigned(seconds), Value::Unsigned(ns)] = parts[..]
                {
                    let ns = u128::from(seconds) * 1_000_000_000 + u128::from(ns);
                    self.float(name, ns as f64 / (1e9 / units));
                }
            }
            Form::Table(table) => {
                let chosen = match value {
                    Value::Bool(value) => usize::from(*value),
                    Value::Variant(variant, _) => *variant as usize,
                    _ => return,
                };
                if let Some(constant) = table.get(chosen) {
                    self.constant(name, constant);
                }
            }
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

/// Returns the lines after the end of an array or object that has begun.
fn after_end(lines: &[Line]) -> &[Line] {
    let mut open = 1usize;
    for (index, line) in lines.iter().enumerate() {
        match line {
            Line::Start { .. } => open += 1,
            Line::End { .. } => open -= 1,
            _ => {}
        }
        if open == 0 {
            return &lines[index + 1..];
        }
    }
    &[]
}

/// Splits the lines that an `Each` repeats from those after its end.
fn split_each(lines: &[Line]) -> (&[Line], &[Line]) {
    let mut open = 1usize;
    for (index, line) in lines.iter().enumerate() {
        match line {
            Line::Each { .. } => open += 1,
            Line::EndEach => open -= 1,
            _ => {}
        }
        if open == 0 {
            return (&lines[..index], &lines[index + 1..]);
        }
    }
    (lines, &[])
}
