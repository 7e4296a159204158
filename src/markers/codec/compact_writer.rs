//! Serializes a payload compactly: no field names, integers of variable length.
//!
//! Unsigned integers have 7 bits in each byte, the lowest first. Signed ones are numbered by their
//! size (0, -1, 1, -2 and so on), so that small ones are short. Texts and lists begin with their
//! length, and a variant is its index. Tuples, structs and newtypes add nothing. The source of the
//! idea is the format of the crate `postcard`.

use std::fmt;

use serde::ser::{self, Error, Serialize};

use crate::markers::codec::compact_error::{CompactError, CompactResult};

/// Takes the bytes of a payload.
pub(super) trait ByteSink {
    fn push(&mut self, byte: u8) -> CompactResult<()>;
    fn extend(&mut self, bytes: &[u8]) -> CompactResult<()>;
}

/// Serializes into a sink.
pub(super) struct CompactWriter<S>(pub(super) S);

impl<S: ByteSink> CompactWriter<S> {
    #[inline]
    fn number(&mut self, mut number: u64) -> CompactResult<()> {
        if number < 0x80 {
            return self.0.extend(&[number as u8]);
        }
        let mut bytes = [0; 10];
        let mut length = 0;
        while number >= 0x80 {
            bytes[length] = number as u8 | 0x80;
            number >>= 7;
            length += 1;
        }
        bytes[length] = number as u8;
        self.0.extend(&bytes[..=length])
    }

    #[inline]
    fn signed(&mut self, number: i64) -> CompactResult<()> {
        self.number(((number << 1) ^ (number >> 63)) as u64)
    }

    fn length(&mut self, length: Option<usize>) -> CompactResult<()> {
        let length = length.ok_or_else(|| CompactError::custom("a list of unknown length"))?;
        self.number(length as u64)
    }
}

macro_rules! numbers {
    ($($method:ident($type:ty) = $write:ident,)+) => {$(
        #[inline]
        fn $method(self, number: $type) -> CompactResult<()> {
            self.$write(number.into())
        }
    )+};
}

impl<S: ByteSink> ser::Serializer for &mut CompactWriter<S> {
    type Ok = ();
    type Error = CompactError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    numbers! {
        serialize_i16(i16) = signed,
        serialize_i32(i32) = signed,
        serialize_i64(i64) = signed,
        serialize_u16(u16) = number,
        serialize_u32(u32) = number,
        serialize_u64(u64) = number,
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }

    #[inline]
    fn serialize_bool(self, value: bool) -> CompactResult<()> {
        self.0.push(value.into())
    }

    #[inline]
    fn serialize_i8(self, number: i8) -> CompactResult<()> {
        self.0.push(number as u8)
    }

    #[inline]
    fn serialize_u8(self, number: u8) -> CompactResult<()> {
        self.0.push(number)
    }

    #[inline]
    fn serialize_i128(self, number: i128) -> CompactResult<()> {
        self.0.extend(&number.to_le_bytes())
    }

    #[inline]
    fn serialize_u128(self, number: u128) -> CompactResult<()> {
        self.0.extend(&number.to_le_bytes())
    }

    #[inline]
    fn serialize_f32(self, number: f32) -> CompactResult<()> {
        self.0.extend(&number.to_le_bytes())
    }

    #[inline]
    fn serialize_f64(self, number: f64) -> CompactResult<()> {
        self.0.extend(&number.to_le_bytes())
    }

    #[inline]
    fn serialize_char(self, character: char) -> CompactResult<()> {
        self.number(u32::from(character).into())
    }

    #[inline]
    fn serialize_str(self, text: &str) -> CompactResult<()> {
        self.serialize_bytes(text.as_bytes())
    }

    #[inline]
    fn serialize_bytes(self, bytes: &[u8]) -> CompactResult<()> {
        self.number(bytes.len() as u64)?;
        self.0.extend(bytes)
    }

    #[inline]
    fn serialize_none(self) -> CompactResult<()> {
        self.0.push(0)
    }

    #[inline]
    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> CompactResult<()> {
        self.0.push(1)?;
        value.serialize(self)
    }

    #[inline]
    fn serialize_unit(self) -> CompactResult<()> {
        Ok(())
    }

    #[inline]
    fn serialize_unit_struct(self, _: &'static str) -> CompactResult<()> {
        Ok(())
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
    ) -> CompactResult<()> {
        self.number(variant.into())
    }

    #[inline]
    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> CompactResult<()> {
        value.serialize(self)
    }

    #[inline]
    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        value: &T,
    ) -> CompactResult<()> {
        self.number(variant.into())?;
        value.serialize(self)
    }

    #[inline]
    fn serialize_seq(self, length: Option<usize>) -> CompactResult<Self> {
        self.length(length)?;
        Ok(self)
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> CompactResult<Self> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> CompactResult<Self> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> CompactResult<Self> {
        self.number(variant.into())?;
        Ok(self)
    }

    #[inline]
    fn serialize_map(self, length: Option<usize>) -> CompactResult<Self> {
        self.length(length)?;
        Ok(self)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> CompactResult<Self> {
        Ok(self)
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> CompactResult<Self> {
        self.number(variant.into())?;
        Ok(self)
    }

    /// Formats the value twice, first for its length, to avoid an allocation.
    fn collect_str<T: ?Sized + fmt::Display>(self, value: &T) -> CompactResult<()> {
        let mut counted = CountedText(0);
        fmt::write(&mut counted, format_args!("{value}")).map_err(CompactError::custom)?;
        self.number(counted.0)?;
        let mut text = SinkText(&mut self.0);
        fmt::write(&mut text, format_args!("{value}")).map_err(CompactError::custom)
    }
}

struct CountedText(u64);

impl fmt::Write for CountedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len() as u64;
        Ok(())
    }
}

struct SinkText<'a, S>(&'a mut S);

impl<S: ByteSink> fmt::Write for SinkText<'_, S> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Implements a trait for the parts of a tuple, list or struct, which follow one another.
macro_rules! parts {
    ($($trait:ident::$method:ident($($name:ident: $type:ty)?),)+) => {$(
        impl<S: ByteSink> ser::$trait for &mut CompactWriter<S> {
            type Ok = ();
            type Error = CompactError;

            #[inline]
            fn $method<T: ?Sized + Serialize>(&mut self, $($name: $type,)? value: &T) -> CompactResult<()> {
                $(let _ = $name;)?
                value.serialize(&mut **self)
            }

            #[inline]
            fn end(self) -> CompactResult<()> {
                Ok(())
            }
        }
    )+};
}

parts! {
    SerializeSeq::serialize_element(),
    SerializeTuple::serialize_element(),
    SerializeTupleStruct::serialize_field(),
    SerializeTupleVariant::serialize_field(),
    SerializeStruct::serialize_field(key: &'static str),
    SerializeStructVariant::serialize_field(key: &'static str),
}

impl<S: ByteSink> ser::SerializeMap for &mut CompactWriter<S> {
    type Ok = ();
    type Error = CompactError;

    #[inline]
    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> CompactResult<()> {
        key.serialize(&mut **self)
    }

    #[inline]
    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> CompactResult<()> {
        value.serialize(&mut **self)
    }

    #[inline]
    fn end(self) -> CompactResult<()> {
        Ok(())
    }
}
