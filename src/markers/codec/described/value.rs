//! Decodes a payload by its shape.

use crate::markers::codec::compact_error::{CompactError, CompactResult};
use crate::markers::codec::compact_reader::CompactReader;
use crate::markers::codec::described::shape::Shape;

/// Number of values that a payload may have without taking bytes for them.
const MAX_EMPTY_VALUES: usize = 1000;

/// A value of a payload.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value<'a> {
    Unit,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Large(i128),
    Float(f64),
    Char(char),
    Text(&'a str),
    Bytes(&'a [u8]),
    None,
    Some(Box<Self>),
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Parts(Vec<Self>),
    Variant(u32, Box<Self>),
}

/// Decodes a whole payload.
pub(super) fn decode_payload<'a>(shape: &Shape, payload: &'a [u8]) -> CompactResult<Value<'a>> {
    let mut decoder = Decoder {
        reader: CompactReader { rest: payload },
        left: payload.len().saturating_add(MAX_EMPTY_VALUES),
    };
    let value = decoder.value(shape)?;
    match decoder.reader.rest.is_empty() {
        true => Ok(value),
        false => Err(CompactError),
    }
}

struct Decoder<'a> {
    reader: CompactReader<'a>,
    /// Number of values that may follow.
    left: usize,
}

impl<'a> Decoder<'a> {
    fn value(&mut self, shape: &Shape) -> CompactResult<Value<'a>> {
        self.left = self.left.checked_sub(1).ok_or(CompactError)?;
        let reader = &mut self.reader;
        Ok(match shape {
            Shape::Unit => Value::Unit,
            Shape::Bool => match reader.byte()? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                _ => return Err(CompactError),
            },
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
            Shape::Char => {
                let number: u32 = reader.number()?;
                Value::Char(char::from_u32(number).ok_or(CompactError)?)
            }
            Shape::Text => Value::Text(reader.text()?),
            Shape::Bytes => Value::Bytes(reader.counted()?),
            Shape::Option(inner) => match reader.byte()? {
                0 => Value::None,
                1 => Value::Some(Box::new(self.value(inner)?)),
                _ => return Err(CompactError),
            },
            Shape::List(inner) => {
                let count: u64 = reader.number()?;
                let inner = inner.as_deref().ok_or(CompactError);
                let values = (0..count).map(|_| self.value(inner?));
                Value::List(values.collect::<CompactResult<_>>()?)
            }
            Shape::Map(inner) => {
                let count: u64 = reader.number()?;
                let inner = inner.as_deref().ok_or(CompactError);
                let pairs = (0..count).map(|_| {
                    let (key, value) = inner?;
                    Ok((self.value(key)?, self.value(value)?))
                });
                Value::Map(pairs.collect::<CompactResult<_>>()?)
            }
            Shape::Parts(parts) => {
                let values = parts.iter().map(|part| self.value(part));
                Value::Parts(values.collect::<CompactResult<_>>()?)
            }
            Shape::Variants(variants) => {
                let variant: u32 = reader.number()?;
                let known = variants.get(variant as usize).and_then(Option::as_ref);
                let content = self.value(known.ok_or(CompactError)?)?;
                Value::Variant(variant, Box::new(content))
            }
        })
    }
}
