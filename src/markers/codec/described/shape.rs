//! The shape of a payload: what its bytes are, which the compact encoding does not say. With it, a
//! payload of a type that this program lacks becomes a [`Value`].

use std::borrow::Cow;

use crate::buffer::{EntryReader, EntryWriter};
use crate::markers::codec::compact::{CompactError, CompactReader, CompactResult};

/// Maximum nesting of a shape. A payload that is nested deeper, such as a list of itself, has none.
pub(super) const MAX_DEPTH: usize = 16;
/// Maximum number of parts of a shape, so that a damaged one stays small.
const MAX_PARTS: usize = 1000;
/// Number of values that a payload may have without taking bytes for them.
const MAX_EMPTY_VALUES: usize = 1000;

/// What the bytes of a value are, in the terms of `compact.rs`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) enum Shape {
    /// Nothing.
    #[default]
    Unit,
    Bool,
    /// A byte.
    U8,
    I8,
    /// A number of variable length.
    Unsigned,
    Signed,
    I128,
    U128,
    F32,
    F64,
    Char,
    Text,
    Bytes,
    Option(Box<Self>),
    /// A list, with the shape of its elements; empty if that is not known.
    List(Vec<Self>),
    /// A map, with the shapes of its keys and values; empty if they are not known.
    Map(Vec<Self>),
    /// The parts of a tuple or struct.
    Parts(Vec<Self>),
    /// The variants of an enumeration, each with its content; empty if that is not known.
    Variants(Vec<Vec<Self>>),
}

/// The shapes without parts. The place of a shape is its code.
static SIMPLE: [Shape; 13] = {
    use Shape::*;
    [
        Unit, Bool, U8, I8, Unsigned, Signed, I128, U128, F32, F64, Char, Text, Bytes,
    ]
};

/// Where a value lies in a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A part of a tuple or struct.
    Part(u16),
    /// The content of an option.
    Inside,
    /// Each element of a list.
    Element,
}

/// A value of a payload.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value<'a> {
    /// Nothing, or what no path leads to: bytes, and a map.
    Nothing,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Large(i128),
    Float(f64),
    Text(Cow<'a, str>),
    Some(Box<Self>),
    List(Vec<Self>),
    Parts(Vec<Self>),
    /// A variant, without its content.
    Variant(u32),
}

impl Shape {
    pub(super) fn encode(&self, out: &mut EntryWriter) {
        let encode_all = |out: &mut EntryWriter, shapes: &[Self]| {
            shapes.iter().for_each(|shape| shape.encode(out));
        };
        match self {
            Self::Option(inner) => inner.encode(out.byte(13)),
            Self::List(known) => encode_all(out.byte(14).byte((!known.is_empty()).into()), known),
            Self::Map(known) => encode_all(out.byte(15).byte((!known.is_empty()).into()), known),
            Self::Parts(parts) => encode_all(out.byte(16).number(parts.len() as u64), parts),
            Self::Variants(variants) => {
                out.byte(17).number(variants.len() as u64);
                for known in variants {
                    encode_all(out.byte((!known.is_empty()).into()), known);
                }
            }
            simple => {
                let code = SIMPLE.iter().position(|known| known == simple);
                out.byte(code.unwrap_or_default() as u8);
            }
        }
    }

    /// Decodes a shape; `None` if the bytes are none, or a too large one.
    pub(super) fn decode(from: &mut EntryReader<'_>) -> Option<Self> {
        let left = MAX_PARTS;
        ShapeDecoder { from, left }.decode(MAX_DEPTH)
    }

    /// Decodes a whole payload of this shape.
    pub(super) fn decode_payload<'a>(&self, payload: &'a [u8]) -> CompactResult<Value<'a>> {
        let mut decoder = ValueDecoder {
            reader: CompactReader { rest: payload },
            left: payload.len().saturating_add(MAX_EMPTY_VALUES),
        };
        let value = decoder.value(self)?;
        match decoder.reader.rest.is_empty() {
            true => Ok(value),
            false => Err(CompactError),
        }
    }
}

struct ShapeDecoder<'r, 'a> {
    from: &'r mut EntryReader<'a>,
    /// Number of parts that the shape may still have.
    left: usize,
}

impl ShapeDecoder<'_, '_> {
    fn decode(&mut self, depth: usize) -> Option<Shape> {
        self.left = self.left.checked_sub(1)?;
        let below = depth.checked_sub(1);
        Some(match self.from.byte()? {
            13 => Shape::Option(Box::new(self.decode(below?)?)),
            14 => Shape::List(self.known(1, below)?),
            15 => Shape::Map(self.known(2, below)?),
            16 => {
                let count = self.count()?;
                Shape::Parts(self.several(count, below)?)
            }
            17 => {
                let count = self.count()?;
                let variants: Option<_> = (0..count).map(|_| self.known(1, below)).collect();
                Shape::Variants(variants?)
            }
            simple => SIMPLE.get(usize::from(simple))?.clone(),
        })
    }

    /// Decodes so many shapes, or none if they are not known.
    fn known(&mut self, count: u64, depth: Option<usize>) -> Option<Vec<Shape>> {
        match self.from.byte()? {
            0 => Some(Vec::new()),
            _ => self.several(count, depth),
        }
    }

    fn several(&mut self, count: u64, depth: Option<usize>) -> Option<Vec<Shape>> {
        (0..count).map(|_| self.decode(depth?)).collect()
    }

    fn count(&mut self) -> Option<u64> {
        let count = self.from.number();
        count.filter(|count| *count <= MAX_PARTS as u64)
    }
}

/// Merges what two traces of one type have found; `None` if they contradict each other.
pub(super) fn merged(one: Shape, other: Shape) -> Option<Shape> {
    Some(match (one, other) {
        (Shape::Option(one), Shape::Option(other)) => {
            Shape::Option(Box::new(match (*one, *other) {
                // A trace that has found no content says so.
                (Shape::Unit, known) | (known, Shape::Unit) => known,
                (one, other) => merged(one, other)?,
            }))
        }
        (Shape::List(one), Shape::List(other)) => Shape::List(merged_known(one, other)?),
        (Shape::Map(one), Shape::Map(other)) => Shape::Map(merged_known(one, other)?),
        (Shape::Parts(one), Shape::Parts(other)) => Shape::Parts(merged_pairs(one, other, merged)?),
        (Shape::Variants(one), Shape::Variants(other)) => {
            Shape::Variants(merged_pairs(one, other, merged_known)?)
        }
        (one, other) if one == other => one,
        _ => return None,
    })
}

fn merged_known(one: Vec<Shape>, other: Vec<Shape>) -> Option<Vec<Shape>> {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => Some(other),
        (_, true) => Some(one),
        _ => merged_pairs(one, other, merged),
    }
}

fn merged_pairs<T>(one: Vec<T>, other: Vec<T>, merge: fn(T, T) -> Option<T>) -> Option<Vec<T>> {
    let pairs = (one.len() == other.len()).then(|| one.into_iter().zip(other))?;
    pairs.map(|(one, other)| merge(one, other)).collect()
}

struct ValueDecoder<'a> {
    reader: CompactReader<'a>,
    /// Number of values that may follow.
    left: usize,
}

impl<'a> ValueDecoder<'a> {
    fn value(&mut self, shape: &Shape) -> CompactResult<Value<'a>> {
        self.left = self.left.checked_sub(1).ok_or(CompactError)?;
        let reader = &mut self.reader;
        Ok(match shape {
            Shape::Unit => Value::Nothing,
            Shape::Bool => Value::Bool(reader.flag()?),
            Shape::U8 => Value::Unsigned(reader.byte()?.into()),
            Shape::I8 => Value::Signed((reader.byte()? as i8).into()),
            Shape::Unsigned => Value::Unsigned(reader.number()?),
            Shape::Signed => Value::Signed(reader.signed()?),
            Shape::I128 => Value::Large(i128::from_le_bytes(reader.array()?)),
            Shape::U128 => {
                let number = u128::from_le_bytes(reader.array()?);
                Value::Large(i128::try_from(number).map_err(|_| CompactError)?)
            }
            Shape::F32 => Value::Float(f32::from_le_bytes(reader.array()?).into()),
            Shape::F64 => Value::Float(f64::from_le_bytes(reader.array()?)),
            Shape::Char => Value::Text(reader.character()?.to_string().into()),
            Shape::Text => Value::Text(reader.text()?.into()),
            Shape::Bytes => {
                reader.counted()?;
                Value::Nothing
            }
            Shape::Option(inner) => match reader.flag()? {
                false => Value::Nothing,
                true => Value::Some(Box::new(self.value(inner)?)),
            },
            Shape::List(known) => {
                let count: u64 = reader.number()?;
                let element = known.first().ok_or(CompactError);
                let values = (0..count).map(|_| self.value(element?));
                Value::List(values.collect::<CompactResult<_>>()?)
            }
            Shape::Map(known) => {
                let count: u64 = reader.number()?;
                for _ in 0..count {
                    let [key, value] = &known[..] else {
                        return Err(CompactError);
                    };
                    self.value(key)?;
                    self.value(value)?;
                }
                Value::Nothing
            }
            Shape::Parts(parts) => {
                let values = parts.iter().map(|part| self.value(part));
                Value::Parts(values.collect::<CompactResult<_>>()?)
            }
            Shape::Variants(variants) => {
                let variant: u32 = reader.number()?;
                let content = variants
                    .get(variant as usize)
                    .and_then(|known| known.first());
                self.value(content.ok_or(CompactError)?)?;
                Value::Variant(variant)
            }
        })
    }
}
