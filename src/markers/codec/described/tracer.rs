//! Finds the shape of a type by letting it deserialize itself: a type asks for its parts one by one.
//! What it gets are made-up values, by which `describe.rs` recognizes them in the type's fields.

use serde::de::{self, DeserializeSeed, Visitor};

use crate::markers::codec::compact::{CompactError, CompactResult, OfVariant, deserialize_alike};
use crate::markers::codec::described::shape::{MAX_DEPTH, Shape, Step};

/// Maximum number of made-up values: each has a number of its own, which fits into a signed byte.
const MAX_VALUES: u8 = 60;
/// Maximum number of variants of an enumeration that are looked at.
pub(super) const MAX_VARIANTS: usize = 64;

/// A made-up value.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Leaf {
    pub(super) path: Vec<Step>,
    pub(super) kind: LeafKind,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum LeafKind {
    Integer(i64),
    Float(f64),
    Text(String),
    /// A choice, by its number: a boolean or an enumeration, with the number of its variants.
    Choice(usize, usize),
    /// A `Duration`, in ns.
    Duration(u64),
}

/// What a trace decides.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// The number of the first made-up value.
    pub(super) first: u8,
    /// Whether options are empty.
    pub(super) no_options: bool,
    /// A choice by its number, and the variant that it has instead of its usual one.
    pub(super) choice: Option<(usize, usize)>,
}

/// Follows one deserialization: gives the type its values, and learns its shape.
#[derive(Debug, Default)]
pub(super) struct Tracer {
    plan: Plan,
    path: Vec<Step>,
    values: u8,
    choices: usize,
    /// The made-up values that a path leads to.
    pub(super) leaves: Vec<Leaf>,
    /// The shape of what was deserialized last.
    pub(super) shape: Shape,
    /// How many of the values around the current one no path leads into: maps and variants.
    hidden: usize,
}

impl Tracer {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            ..Self::default()
        }
    }

    fn leaf(&mut self, kind: LeafKind) {
        if self.hidden == 0 {
            let path = self.path.clone();
            self.leaves.push(Leaf { path, kind });
        }
    }

    /// Returns the number of the next value.
    fn next_value(&mut self) -> CompactResult<u8> {
        self.values += 1;
        match self.values <= MAX_VALUES {
            true => Ok(self.plan.first + self.values),
            false => Err(CompactError),
        }
    }

    fn next_float(&mut self, shape: Shape) -> CompactResult<f64> {
        self.shape = shape;
        let value = f64::from(self.next_value()?) + 0.5;
        self.leaf(LeafKind::Float(value));
        Ok(value)
    }

    /// Returns the decision of the next choice among so many variants.
    fn choose(&mut self, variants: usize, usual: usize) -> usize {
        let number = self.choices;
        self.choices += 1;
        self.leaf(LeafKind::Choice(number, variants));
        match self.plan.choice {
            Some((other, chosen)) if other == number => chosen,
            _ => usual,
        }
    }

    /// Traces a part of the value, and returns its shape, too.
    fn part<T>(
        &mut self,
        step: Option<Step>,
        trace: impl FnOnce(&mut Self) -> CompactResult<T>,
    ) -> CompactResult<(T, Shape)> {
        if self.path.len() >= MAX_DEPTH {
            return Err(CompactError);
        }
        // A hidden value has a path, too, so that the depth is bounded.
        self.path.push(step.unwrap_or(Step::Inside));
        self.hidden += usize::from(step.is_none());
        self.shape = Shape::Unit;
        let traced = trace(self);
        self.hidden -= usize::from(step.is_none());
        self.path.pop();
        Ok((traced?, std::mem::take(&mut self.shape)))
    }

    /// Lets a visitor ask for at most `left` parts, and returns their shapes, too.
    fn parts<T>(
        &mut self,
        left: usize,
        step: fn(u16) -> Option<Step>,
        visit: impl FnOnce(&mut Parts<'_>) -> CompactResult<T>,
    ) -> CompactResult<(T, Vec<Shape>)> {
        let mut parts = Parts {
            tracer: self,
            shapes: Vec::new(),
            left,
            step,
        };
        let value = visit(&mut parts)?;
        Ok((value, parts.shapes))
    }
}

macro_rules! integers {
    ($($method:ident($type:ty) = $visit:ident, $shape:ident,)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
            self.shape = Shape::$shape;
            let value = self.next_value()?;
            self.leaf(LeafKind::Integer(value.into()));
            visitor.$visit(value as $type)
        }
    )+};
}

impl<'de> de::Deserializer<'de> for &mut Tracer {
    deserialize_alike!('de);

    integers! {
        deserialize_u8(u8) = visit_u8, U8,
        deserialize_u16(u16) = visit_u16, Unsigned,
        deserialize_u32(u32) = visit_u32, Unsigned,
        deserialize_u64(u64) = visit_u64, Unsigned,
        deserialize_i8(i8) = visit_i8, I8,
        deserialize_i16(i16) = visit_i16, Signed,
        deserialize_i32(i32) = visit_i32, Signed,
        deserialize_i64(i64) = visit_i64, Signed,
        deserialize_i128(i128) = visit_i128, I128,
        deserialize_u128(u128) = visit_u128, U128,
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        self.shape = Shape::Bool;
        visitor.visit_bool(self.choose(2, 1) == 1)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        visitor.visit_f32(self.next_float(Shape::F32)? as f32)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        visitor.visit_f64(self.next_float(Shape::F64)?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        self.shape = Shape::Char;
        let number = 0x4e00 + u32::from(self.next_value()?);
        let value = char::from_u32(number).ok_or(CompactError)?;
        self.leaf(LeafKind::Text(value.to_string()));
        visitor.visit_char(value)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        self.shape = Shape::Text;
        let text = format!("\u{4e00}{}", self.next_value()?);
        self.leaf(LeafKind::Text(text.clone()));
        visitor.visit_string(text)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        self.shape = Shape::Bytes;
        visitor.visit_byte_buf(vec![self.next_value()?])
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        if self.plan.no_options {
            self.shape = Shape::Option(Box::default());
            return visitor.visit_none();
        }
        let (value, inner) = self.part(Some(Step::Inside), |inner| visitor.visit_some(inner))?;
        self.shape = Shape::Option(Box::new(inner));
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        let (value, shapes) =
            self.parts(1, |_| Some(Step::Element), |parts| visitor.visit_seq(parts))?;
        self.shape = Shape::List(shapes);
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> CompactResult<V::Value> {
        let step = |part| Some(Step::Part(part));
        let (value, shapes) = self.parts(length, step, |parts| visitor.visit_seq(parts))?;
        self.shape = Shape::Parts(shapes);
        Ok(value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        let (value, mut shapes) = self.parts(2, |_| None, |parts| visitor.visit_map(parts))?;
        // A key without its value is no pair.
        shapes.truncate(shapes.len() / 2 * 2);
        self.shape = Shape::Map(shapes);
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> CompactResult<V::Value> {
        let first = self.leaves.len();
        let value = (&mut *self).deserialize_tuple(fields.len(), visitor)?;
        // A field may show a `Duration` as one number.
        if name == "Duration"
            && fields == ["secs", "nanos"]
            && let [
                Leaf {
                    kind: LeafKind::Integer(seconds),
                    ..
                },
                Leaf {
                    kind: LeafKind::Integer(ns),
                    ..
                },
            ] = self.leaves[first..]
        {
            let ns = seconds as u64 * 1_000_000_000 + ns as u64;
            self.leaf(LeafKind::Duration(ns));
        }
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> CompactResult<V::Value> {
        let count = variants.len();
        if count == 0 || count > MAX_VARIANTS {
            return Err(CompactError);
        }
        let chosen = self.choose(count, 0).min(count - 1);
        let variant = chosen as u32;
        let (value, shape) = self.part(None, |content| {
            visitor.visit_enum(OfVariant { variant, content })
        })?;
        let mut contents = vec![Vec::new(); count];
        contents[chosen].push(shape);
        self.shape = Shape::Variants(contents);
        Ok(value)
    }
}

/// The parts of a tuple, list or map that are still to be traced.
struct Parts<'t> {
    tracer: &'t mut Tracer,
    shapes: Vec<Shape>,
    left: usize,
    step: fn(u16) -> Option<Step>,
}

impl Parts<'_> {
    fn next<'de, T: DeserializeSeed<'de>>(&mut self, seed: T) -> CompactResult<Option<T::Value>> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let index = u16::try_from(self.shapes.len()).map_err(|_| CompactError)?;
        let step = (self.step)(index);
        let (value, shape) = self.tracer.part(step, |part| seed.deserialize(part))?;
        self.shapes.push(shape);
        Ok(Some(value))
    }
}

impl<'de> de::SeqAccess<'de> for Parts<'_> {
    type Error = CompactError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> CompactResult<Option<T::Value>> {
        self.next(seed)
    }
}

impl<'de> de::MapAccess<'de> for Parts<'_> {
    type Error = CompactError;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> CompactResult<Option<T::Value>> {
        self.next(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> CompactResult<T::Value> {
        self.next(seed)?.ok_or(CompactError)
    }
}
