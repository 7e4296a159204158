//! Finds the shape of a type by letting it deserialize itself: a type asks for its parts one by one.
//! What it gets are made-up values, by which `recipe.rs` recognizes them in the type's fields.

use std::collections::BTreeMap;

use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::markers::codec::compact_error::{CompactError, CompactResult};
use crate::markers::codec::described::shape::{MAX_DEPTH, Shape};

/// Maximum number of made-up values: each has a number of its own, which fits into a signed byte.
const MAX_VALUES: u8 = 60;
/// Maximum number of variants of an enumeration that are looked at.
pub(super) const MAX_VARIANTS: usize = 64;

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
    /// The choices that are not the first variant, or true.
    pub(super) choices: BTreeMap<usize, usize>,
}

/// Follows one deserialization.
#[derive(Debug, Default)]
pub(super) struct Tracer {
    plan: Plan,
    path: Vec<Step>,
    values: u8,
    choices: usize,
    pub(super) leaves: Vec<Leaf>,
    /// Whether a value lies where no path leads: in a map or in a variant.
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

    /// Returns the decision of the next choice among so many variants.
    fn choose(&mut self, variants: usize, usual: usize) -> usize {
        let number = self.choices;
        self.choices += 1;
        self.leaf(LeafKind::Choice(number, variants));
        let chosen = self.plan.choices.get(&number).copied();
        chosen.unwrap_or(usual)
    }
}

/// Gives a type its value, and learns its shape.
pub(super) struct Traced<'t> {
    pub(super) tracer: &'t mut Tracer,
    pub(super) shape: &'t mut Shape,
}

macro_rules! integers {
    ($($method:ident($type:ty) = $visit:ident, $shape:ident,)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
            *self.shape = Shape::$shape;
            let value = self.tracer.next_value()?;
            self.tracer.leaf(LeafKind::Integer(value.into()));
            visitor.$visit(value as $type)
        }
    )+};
}

impl Traced<'_> {
    /// Traces a part of the value.
    fn part<T>(
        &mut self,
        step: Option<Step>,
        trace: impl FnOnce(Traced<'_>) -> CompactResult<T>,
    ) -> CompactResult<(T, Shape)> {
        if self.tracer.path.len() >= MAX_DEPTH {
            return Err(CompactError);
        }
        // A hidden value has a path, too, so that the depth is bounded.
        self.tracer.path.push(step.unwrap_or(Step::Inside));
        self.tracer.hidden += usize::from(step.is_none());
        let mut shape = Shape::Unit;
        let traced = trace(Traced {
            tracer: &mut *self.tracer,
            shape: &mut shape,
        });
        self.tracer.hidden -= usize::from(step.is_none());
        self.tracer.path.pop();
        Ok((traced?, shape))
    }

    fn trace_parts<'de, V: Visitor<'de>>(
        mut self,
        count: usize,
        step: fn(u16) -> Option<Step>,
        visitor: V,
    ) -> CompactResult<V::Value> {
        let mut shapes = Vec::new();
        let value = visitor.visit_seq(Parts {
            traced: &mut self,
            shapes: &mut shapes,
            left: count,
            step,
        })?;
        *self.shape = Shape::Parts(shapes);
        Ok(value)
    }
}

impl<'de> de::Deserializer<'de> for Traced<'_> {
    type Error = CompactError;

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

    forward_to_deserialize_any! { identifier ignored_any }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> CompactResult<V::Value> {
        Err(CompactError)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        *self.shape = Shape::Bool;
        visitor.visit_bool(self.tracer.choose(2, 1) == 1)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        *self.shape = Shape::F32;
        let value = f32::from(self.tracer.next_value()?) + 0.5;
        self.tracer.leaf(LeafKind::Float(value.into()));
        visitor.visit_f32(value)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        *self.shape = Shape::F64;
        let value = f64::from(self.tracer.next_value()?) + 0.5;
        self.tracer.leaf(LeafKind::Float(value));
        visitor.visit_f64(value)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        *self.shape = Shape::Char;
        let number = 0x4e00 + u32::from(self.tracer.next_value()?);
        let value = char::from_u32(number).ok_or(CompactError)?;
        self.tracer.leaf(LeafKind::Text(value.to_string()));
        visitor.visit_char(value)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        *self.shape = Shape::Text;
        let text = format!("\u{4e00}{}", self.tracer.next_value()?);
        self.tracer.leaf(LeafKind::Text(text.clone()));
        visitor.visit_string(text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        *self.shape = Shape::Bytes;
        visitor.visit_byte_buf(vec![self.tracer.next_value()?])
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> CompactResult<V::Value> {
        if self.tracer.plan.no_options {
            *self.shape = Shape::Option(Box::new(Shape::Unit));
            return visitor.visit_none();
        }
        let (value, inner) = self.part(Some(Step::Inside), |inner| visitor.visit_some(inner))?;
        *self.shape = Shape::Option(Box::new(inner));
        Ok(value)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> CompactResult<V::Value> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> CompactResult<V::Value> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> CompactResult<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> CompactResult<V::Value> {
        let mut shapes = Vec::new();
        let value = visitor.visit_seq(Parts {
            traced: &mut self,
            shapes: &mut shapes,
            left: 1,
            step: |_| Some(Step::Element),
        })?;
        *self.shape = Shape::List(shapes.pop().map(Box::new));
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> CompactResult<V::Value> {
        self.trace_parts(length, |part| Some(Step::Part(part)), visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> CompactResult<V::Value> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> CompactResult<V::Value> {
        let mut shapes = Vec::new();
        let value = visitor.visit_map(Parts {
            traced: &mut self,
            shapes: &mut shapes,
            left: 2,
            step: |_| None,
        })?;
        let value_shape = shapes.pop();
        let pair = shapes.pop().zip(value_shape);
        *self.shape = Shape::Map(pair.map(Box::new));
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> CompactResult<V::Value> {
        let Self { tracer, shape } = self;
        let first = tracer.leaves.len();
        let path = tracer.path.clone();
        let traced = Traced {
            tracer: &mut *tracer,
            shape,
        };
        let value = traced.deserialize_tuple(fields.len(), visitor)?;
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
            ] = tracer.leaves[first..]
        {
            let kind = LeafKind::Duration(seconds as u64 * 1_000_000_000 + ns as u64);
            tracer.leaves.push(Leaf { path, kind });
        }
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> CompactResult<V::Value> {
        let count = variants.len();
        if count == 0 || count > MAX_VARIANTS {
            return Err(CompactError);
        }
        let chosen = self.tracer.choose(count, 0).min(count - 1);
        let (value, content) = self.part(None, |content| {
            visitor.visit_enum(OfVariant {
                traced: content,
                chosen,
            })
        })?;
        let mut shapes = vec![None; count];
        shapes[chosen] = Some(content);
        *self.shape = Shape::Variants(shapes);
        Ok(value)
    }
}

/// The parts of a tuple, list or map that are still to be traced.
struct Parts<'p, 't> {
    traced: &'p mut Traced<'t>,
    shapes: &'p mut Vec<Shape>,
    left: usize,
    step: fn(u16) -> Option<Step>,
}

impl Parts<'_, '_> {
    fn next<'de, T: DeserializeSeed<'de>>(&mut self, seed: T) -> CompactResult<Option<T::Value>> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let index = u16::try_from(self.shapes.len()).map_err(|_| CompactError)?;
        let step = (self.step)(index);
        let (value, shape) = self.traced.part(step, |part| seed.deserialize(part))?;
        self.shapes.push(shape);
        Ok(Some(value))
    }
}

impl<'de> de::SeqAccess<'de> for Parts<'_, '_> {
    type Error = CompactError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> CompactResult<Option<T::Value>> {
        self.next(seed)
    }
}

impl<'de> de::MapAccess<'de> for Parts<'_, '_> {
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

/// A variant and its content.
struct OfVariant<'t> {
    traced: Traced<'t>,
    chosen: usize,
}

impl<'de, 't> de::EnumAccess<'de> for OfVariant<'t> {
    type Error = CompactError;
    type Variant = Traced<'t>;

    fn variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> CompactResult<(T::Value, Traced<'t>)> {
        let chosen = (self.chosen as u32).into_deserializer();
        Ok((seed.deserialize(chosen)?, self.traced))
    }
}

impl<'de> de::VariantAccess<'de> for Traced<'_> {
    type Error = CompactError;

    fn unit_variant(self) -> CompactResult<()> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> CompactResult<T::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> CompactResult<V::Value> {
        de::Deserializer::deserialize_tuple(self, length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> CompactResult<V::Value> {
        de::Deserializer::deserialize_tuple(self, fields.len(), visitor)
    }
}
