//! The shape of a payload: what its bytes are, which the compact encoding does not say.

use crate::buffer::{EntryReader, EntryWriter};

/// Maximum nesting of a shape. A payload that is nested deeper, such as a list of itself, has none.
pub(super) const MAX_DEPTH: usize = 16;
/// Maximum number of parts of a shape, so that a damaged one stays small.
const MAX_PARTS: usize = 1000;

/// What the bytes of a value are, in the terms of `compact_writer.rs`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// Nothing.
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
    /// A list, with the shape of its elements; `None` if that is not known.
    List(Option<Box<Self>>),
    /// A map, with the shapes of its keys and values; `None` if they are not known.
    Map(Option<Box<(Self, Self)>>),
    /// The parts of a tuple or struct.
    Parts(Vec<Self>),
    /// The variants of an enumeration; `None` for one whose content is not known.
    Variants(Vec<Option<Self>>),
}

impl Shape {
    pub(super) fn encode(&self, out: &mut EntryWriter) {
        let mut optional = |kind: u8, inner: Option<&Self>| {
            out.byte(kind).byte(inner.is_some().into());
            inner.into_iter().for_each(|inner| inner.encode(out));
        };
        match self {
            Self::Unit => _ = out.byte(0),
            Self::Bool => _ = out.byte(1),
            Self::U8 => _ = out.byte(2),
            Self::I8 => _ = out.byte(3),
            Self::Unsigned => _ = out.byte(4),
            Self::Signed => _ = out.byte(5),
            Self::I128 => _ = out.byte(6),
            Self::U128 => _ = out.byte(7),
            Self::F32 => _ = out.byte(8),
            Self::F64 => _ = out.byte(9),
            Self::Char => _ = out.byte(10),
            Self::Text => _ = out.byte(11),
            Self::Bytes => _ = out.byte(12),
            Self::Option(inner) => {
                out.byte(13);
                inner.encode(out);
            }
            Self::List(inner) => optional(14, inner.as_deref()),
            Self::Map(inner) => {
                optional(15, inner.as_deref().map(|(key, _)| key));
                inner.iter().for_each(|inner| inner.1.encode(out));
            }
            Self::Parts(parts) => {
                out.byte(16).number(parts.len() as u64);
                parts.iter().for_each(|part| part.encode(out));
            }
            Self::Variants(variants) => {
                out.byte(17).number(variants.len() as u64);
                for variant in variants {
                    out.byte(variant.is_some().into());
                    variant.iter().for_each(|variant| variant.encode(out));
                }
            }
        }
    }

    /// Decodes a shape; `None` if the bytes are none, or a too large one.
    pub(super) fn decode(from: &mut EntryReader<'_>) -> Option<Self> {
        Decoder {
            from,
            left: MAX_PARTS,
        }
        .decode(MAX_DEPTH)
    }
}

struct Decoder<'r, 'a> {
    from: &'r mut EntryReader<'a>,
    /// Number of parts that the shape may still have.
    left: usize,
}

impl Decoder<'_, '_> {
    fn decode(&mut self, depth: usize) -> Option<Shape> {
        self.left = self.left.checked_sub(1)?;
        let below = depth.checked_sub(1);
        Some(match self.from.byte()? {
            0 => Shape::Unit,
            1 => Shape::Bool,
            2 => Shape::U8,
            3 => Shape::I8,
            4 => Shape::Unsigned,
            5 => Shape::Signed,
            6 => Shape::I128,
            7 => Shape::U128,
            8 => Shape::F32,
            9 => Shape::F64,
            10 => Shape::Char,
            11 => Shape::Text,
            12 => Shape::Bytes,
            13 => Shape::Option(Box::new(self.decode(below?)?)),
            14 => Shape::List(self.optional(below?)?.map(Box::new)),
            15 => {
                let key = self.optional(below?)?;
                match key {
                    Some(key) => Shape::Map(Some(Box::new((key, self.decode(below?)?)))),
                    None => Shape::Map(None),
                }
            }
            16 => {
                let count = self.count()?;
                let parts: Option<_> = (0..count).map(|_| self.decode(below?)).collect();
                Shape::Parts(parts?)
            }
            17 => {
                let count = self.count()?;
                let variants: Option<_> = (0..count).map(|_| self.optional(below?)).collect();
                Shape::Variants(variants?)
            }
            _ => return None,
        })
    }

    fn optional(&mut self, depth: usize) -> Option<Option<Shape>> {
        match self.from.byte()? {
            0 => Some(None),
            _ => self.decode(depth).map(Some),
        }
    }

    fn count(&mut self) -> Option<u64> {
        self.from
            .number()
            .filter(|count| *count <= MAX_PARTS as u64)
    }
}

/// Merges what two traces of one type have found; `None` if they contradict each other.
pub(super) fn merged(one: Shape, other: Shape) -> Option<Shape> {
    let boxed = |one: Option<Box<Shape>>, other: Option<Box<Shape>>| match (one, other) {
        (Some(one), Some(other)) => Some(Some(Box::new(merged(*one, *other)?))),
        (one, other) => Some(one.or(other)),
    };
    Some(match (one, other) {
        (Shape::Option(one), Shape::Option(other)) => {
            Shape::Option(Box::new(merged_inner(*one, *other)?))
        }
        (Shape::List(one), Shape::List(other)) => Shape::List(boxed(one, other)?),
        (Shape::Map(one), Shape::Map(other)) => Shape::Map(match (one, other) {
            (Some(one), Some(other)) => {
                let ((key, value), (other_key, other_value)) = (*one, *other);
                Some(Box::new((
                    merged(key, other_key)?,
                    merged(value, other_value)?,
                )))
            }
            (one, other) => one.or(other),
        }),
        (Shape::Parts(one), Shape::Parts(other)) if one.len() == other.len() => {
            let pairs = one.into_iter().zip(other);
            let parts: Option<_> = pairs.map(|(one, other)| merged(one, other)).collect();
            Shape::Parts(parts?)
        }
        (Shape::Variants(one), Shape::Variants(other)) if one.len() == other.len() => {
            let pairs = one.into_iter().zip(other);
            let merge = |(one, other)| match (one, other) {
                (Some(one), Some(other)) => merged(one, other).map(Some),
                (one, other) => Some(Option::or(one, other)),
            };
            let variants: Option<_> = pairs.map(merge).collect();
            Shape::Variants(variants?)
        }
        (one, other) if one == other => one,
        _ => return None,
    })
}

/// Merges the contents of options. A trace that has found no content says `Unit`.
fn merged_inner(one: Shape, other: Shape) -> Option<Shape> {
    match (one, other) {
        (Shape::Unit, known) | (known, Shape::Unit) => Some(known),
        (one, other) => merged(one, other),
    }
}
