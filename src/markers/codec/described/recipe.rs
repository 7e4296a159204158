//! How a described payload is printed: which value of the payload each field shows, and in which
//! form.

use crate::buffer::{EntryReader, EntryWriter};
use crate::markers::codec::described::recorder::Written;
use crate::markers::codec::described::tracer::Step;

/// Maximum number of lines of a recipe, and of the texts of a table.
const MAX_LINES: u64 = 1000;
/// Maximum length of a path.
const MAX_PATH: u64 = 64;

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
        Some(Written::Text(text)) => _ = out.byte(6).text(text.as_bytes()),
        Some(Written::Unique(text)) => _ = out.byte(7).text(text.as_bytes()),
        Some(Written::Time(ns)) => _ = out.byte(8).number(*ns),
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
        6 => Written::Text(take_text(from)?),
        7 => Written::Unique(take_text(from)?),
        8 => Written::Time(from.number()?),
        _ => return None,
    }))
}

fn take_float(from: &mut EntryReader<'_>) -> Option<f64> {
    let bytes = from.bytes(size_of::<f64>() as u64)?;
    bytes.try_into().ok().map(f64::from_le_bytes)
}

impl Form {
    fn encode(&self, out: &mut EntryWriter) {
        match self {
            Self::Int => _ = out.byte(0),
            Self::Uint => _ = out.byte(1),
            Self::Float => _ = out.byte(2),
            Self::Time => _ = out.byte(3),
            Self::Text => _ = out.byte(4),
            Self::Unique => _ = out.byte(5),
            Self::Flow => _ = out.byte(6),
            Self::Duration(units) => _ = out.byte(7).raw(&units.to_le_bytes()),
            Self::Table(table) => {
                out.byte(8).number(table.len() as u64);
                table
                    .iter()
                    .for_each(|constant| put_constant(out, constant));
            }
        }
    }

    fn decode(from: &mut EntryReader<'_>) -> Option<Self> {
        Some(match from.byte()? {
            0 => Self::Int,
            1 => Self::Uint,
            2 => Self::Float,
            3 => Self::Time,
            4 => Self::Text,
            5 => Self::Unique,
            6 => Self::Flow,
            7 => Self::Duration(take_float(from)?),
            8 => {
                let count = from.number().filter(|count| *count <= MAX_LINES)?;
                let table: Option<_> = (0..count).map(|_| take_constant(from)).collect();
                Self::Table(table?)
            }
            _ => return None,
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
pub(super) fn decode_recipe(from: &mut EntryReader<'_>) -> Option<Vec<Line>> {
    let count = from.number().filter(|count| *count <= MAX_LINES)?;
    (0..count).map(|_| Line::decode(from)).collect()
}
