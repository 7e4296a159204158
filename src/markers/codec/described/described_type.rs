//! A type of markers of another process, which this program need not have. Its recipe says how a
//! payload is printed: which value of the payload each field shows, and in which form.

use crate::buffer::{EntryReader, EntryWriter};
use crate::markers::codec::compact::{CompactError, CompactResult};
use crate::markers::codec::described::shape::{Shape, Step, Value};
use crate::markers::codec::payload::PayloadFailure;
use crate::markers::flow::FlowId;
use crate::markers::json_writer::{JSONWriter, PropertySink, PropertyValue};
use crate::types::ProfilerTime;

/// Maximum number of lines of a recipe, and of the texts of a table.
const MAX_LINES: u64 = 1000;
/// Maximum length of a path.
const MAX_PATH: u64 = 64;
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
        let value = self.shape.decode_payload(payload).map_err(not_read)?;
        let mut printer = Printer {
            value: &value,
            sink: json.sink(),
            elements: Vec::new(),
            left: LINES + LINES_PER_BYTE * payload.len(),
        };
        printer.print(&self.recipe).map_err(not_read)
    }
}

/// A value as a payload wrote it.
pub(super) type Written = PropertyValue<String>;

impl<Text> PropertyValue<Text> {
    /// Returns the value with another form of its text.
    pub(super) fn with_text<'t, Other>(
        &'t self,
        form: impl FnOnce(&'t Text) -> Other,
    ) -> PropertyValue<Other> {
        match self {
            Self::Null => PropertyValue::Null,
            Self::Bool(value) => PropertyValue::Bool(*value),
            Self::Int(value) => PropertyValue::Int(*value),
            Self::Uint(value) => PropertyValue::Uint(*value),
            Self::Float(value) => PropertyValue::Float(*value),
            Self::Time(time) => PropertyValue::Time(*time),
            Self::String(text) => PropertyValue::String(form(text)),
            Self::UniqueString(text) => PropertyValue::UniqueString(form(text)),
        }
    }
}

/// A value that does not depend on the payload, or that a choice selects; `None` if the field is left
/// out.
pub(super) type Constant = Option<Written>;

/// The form in which a field shows a value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Form {
    Int,
    Uint,
    Float,
    Time,
    Text,
    Unique,
    /// The id of a flow: hexadecimal digits.
    Flow,
    /// A `Duration` as a number of units, of which a second has so many.
    Duration(f64),
    /// For each choice, what the field shows.
    Table(Vec<Constant>),
}

/// A line of a recipe.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Line {
    /// Shows a value. Without it, because an option on the way is empty, the field is null or left
    /// out.
    Value {
        name: Option<String>,
        path: Vec<Step>,
        form: Form,
        is_null_if_absent: bool,
    },
    Constant {
        name: Option<String>,
        value: Constant,
    },
    /// Begins an array or an object. The array or object is left out, with its content, if it has a
    /// path and the path leads to an empty option.
    Start {
        name: Option<String>,
        is_array: bool,
        path: Vec<Step>,
    },
    End {
        is_array: bool,
    },
    /// Repeats the lines up to `EndEach` for each element of the list.
    Each {
        path: Vec<Step>,
    },
    EndEach,
}

fn put_name(out: &mut EntryWriter, name: Option<&String>) {
    out.byte(name.is_some().into());
    name.iter().for_each(|name| _ = out.text(name.as_bytes()));
}

fn take_text(from: &mut EntryReader<'_>) -> Option<String> {
    std::str::from_utf8(from.text()?).ok().map(str::to_owned)
}

fn take_name(from: &mut EntryReader<'_>) -> Option<Option<String>> {
    match from.byte()? {
        0 => Some(None),
        _ => take_text(from).map(Some),
    }
}

fn put_path(out: &mut EntryWriter, path: &[Step]) {
    out.number(path.len() as u64);
    for step in path {
        out.number(match step {
            Step::Inside => 0,
            Step::Element => 1,
            Step::Part(part) => 2 + u64::from(*part),
        });
    }
}

fn take_path(from: &mut EntryReader<'_>) -> Option<Vec<Step>> {
    let length = from.number().filter(|length| *length <= MAX_PATH)?;
    let step = |number| match number {
        0 => Some(Step::Inside),
        1 => Some(Step::Element),
        part => u16::try_from(part - 2).ok().map(Step::Part),
    };
    (0..length).map(|_| step(from.number()?)).collect()
}

fn put_constant(out: &mut EntryWriter, constant: &Constant) {
    match constant {
        None => _ = out.byte(0),
        Some(Written::Null) => _ = out.byte(1),
        Some(Written::Bool(value)) => _ = out.byte(2).byte((*value).into()),
        Some(Written::Int(value)) => _ = out.byte(3).signed(*value),
        Some(Written::Uint(value)) => _ = out.byte(4).number(*value),
        Some(Written::Float(value)) => _ = out.byte(5).raw(&value.to_le_bytes()),
        Some(Written::String(text)) => _ = out.byte(6).text(text.as_bytes()),
        Some(Written::UniqueString(text)) => _ = out.byte(7).text(text.as_bytes()),
        Some(Written::Time(time)) => _ = out.byte(8).number(time.timestamp().0),
    }
}

fn take_constant(from: &mut EntryReader<'_>) -> Option<Constant> {
    Some(Some(match from.byte()? {
        0 => return Some(None),
        1 => Written::Null,
        2 => Written::Bool(from.byte()? != 0),
        3 => Written::Int(from.signed()?),
        4 => Written::Uint(from.number()?),
        5 => Written::Float(take_float(from)?),
        6 => Written::String(take_text(from)?),
        7 => Written::UniqueString(take_text(from)?),
        8 => Written::Time(ProfilerTime::from_monotonic_ns(from.number()?)),
        _ => return None,
    }))
}

fn take_float(from: &mut EntryReader<'_>) -> Option<f64> {
    let bytes = from.bytes(size_of::<f64>() as u64)?;
    bytes.try_into().ok().map(f64::from_le_bytes)
}

/// The forms without parameters. The place of a form is its code.
static SIMPLE: [Form; 7] = {
    use Form::*;
    [Int, Uint, Float, Time, Text, Unique, Flow]
};

impl Form {
    fn encode(&self, out: &mut EntryWriter) {
        match self {
            Self::Duration(units) => _ = out.byte(7).raw(&units.to_le_bytes()),
            Self::Table(table) => {
                out.byte(8).number(table.len() as u64);
                table
                    .iter()
                    .for_each(|constant| put_constant(out, constant));
            }
            simple => {
                let code = SIMPLE.iter().position(|known| known == simple);
                out.byte(code.unwrap_or_default() as u8);
            }
        }
    }

    fn decode(from: &mut EntryReader<'_>) -> Option<Self> {
        Some(match from.byte()? {
            7 => Self::Duration(take_float(from)?),
            8 => {
                let count = from.number().filter(|count| *count <= MAX_LINES)?;
                let table: Option<_> = (0..count).map(|_| take_constant(from)).collect();
                Self::Table(table?)
            }
            simple => SIMPLE.get(usize::from(simple))?.clone(),
        })
    }
}

impl Line {
    fn encode(&self, out: &mut EntryWriter) {
        match self {
            Self::Value {
                name,
                path,
                form,
                is_null_if_absent,
            } => {
                put_name(out.byte(0), name.as_ref());
                put_path(out, path);
                form.encode(out);
                out.byte((*is_null_if_absent).into());
            }
            Self::Constant { name, value } => {
                put_name(out.byte(1), name.as_ref());
                put_constant(out, value);
            }
            Self::Start {
                name,
                is_array,
                path,
            } => {
                put_name(out.byte(2), name.as_ref());
                out.byte((*is_array).into());
                put_path(out, path);
            }
            Self::End { is_array } => _ = out.byte(3).byte((*is_array).into()),
            Self::Each { path } => put_path(out.byte(4), path),
            Self::EndEach => _ = out.byte(5),
        }
    }

    fn decode(from: &mut EntryReader<'_>) -> Option<Self> {
        Some(match from.byte()? {
            0 => Self::Value {
                name: take_name(from)?,
                path: take_path(from)?,
                form: Form::decode(from)?,
                is_null_if_absent: from.byte()? != 0,
            },
            1 => Self::Constant {
                name: take_name(from)?,
                value: take_constant(from)?,
            },
            2 => Self::Start {
                name: take_name(from)?,
                is_array: from.byte()? != 0,
                path: take_path(from)?,
            },
            3 => Self::End {
                is_array: from.byte()? != 0,
            },
            4 => Self::Each {
                path: take_path(from)?,
            },
            5 => Self::EndEach,
            _ => return None,
        })
    }
}

pub(super) fn encode_recipe(lines: &[Line], out: &mut EntryWriter) {
    out.number(lines.len() as u64);
    lines.iter().for_each(|line| line.encode(out));
}

/// Decodes a recipe; `None` if the bytes are none, or a too long one.
fn decode_recipe(from: &mut EntryReader<'_>) -> Option<Vec<Line>> {
    let count = from.number().filter(|count| *count <= MAX_LINES)?;
    (0..count).map(|_| Line::decode(from)).collect()
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
                        (_, rest) = split_at_end(after);
                        continue;
                    }
                    self.sink.start(name.as_deref(), *is_array);
                }
                Line::End { is_array } => self.sink.end(*is_array),
                Line::Each { path } => {
                    let (body, after) = split_at_end(after);
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
            self.sink.value(name, written.with_text(String::as_str));
        }
    }

    fn show(&mut self, name: Option<&str>, value: &Value<'_>, form: &Form) {
        let mut put = |value: PropertyValue<&str>| self.sink.value(name, value);
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
            (Form::Table(table), Value::Variant(chosen)) => {
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
        Value::Text(text) => text.to_string(),
        Value::Signed(value) => value.to_string(),
        Value::Unsigned(value) => value.to_string(),
        Value::Large(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        _ => String::new(),
    }
}

/// Splits the lines at the end of what has begun before them, which is dropped.
fn split_at_end(lines: &[Line]) -> (&[Line], &[Line]) {
    let mut open = 1usize;
    for (index, line) in lines.iter().enumerate() {
        match line {
            Line::Start { .. } | Line::Each { .. } => open += 1,
            Line::End { .. } | Line::EndEach => open -= 1,
            Line::Value { .. } | Line::Constant { .. } => {}
        }
        if open == 0 {
            return (&lines[..index], &lines[index + 1..]);
        }
    }
    (lines, &[])
}
