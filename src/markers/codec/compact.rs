//! The compact encoding of a payload: no field names, integers of variable length.
//!
//! Unsigned integers have 7 bits in each byte, the lowest first. Signed ones are numbered by their
//! size (0, -1, 1, -2 and so on), so that small ones are short. Texts and lists begin with their
//! length, and a variant is its index. Tuples, structs and newtypes add nothing. The source of the
//! idea is the format of the crate `postcard`. The reader refuses other bytes, or takes them for other
//! values.

use std::error::Error;
use std::fmt;

use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::ser::{self, Serialize};

/// A payload could not be encoded or decoded. The profile needs to know no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CompactError;

pub(super) type CompactResult<T> = Result<T, CompactError>;

impl fmt::Display for CompactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot encode or decode a payload")
    }
}

impl Error for CompactError {}

impl serde::ser::Error for CompactError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl serde::de::Error for CompactError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

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
        self.number(length.ok_or(CompactError)? as u64)
    }
}

macro_rules! write_values {
    ($($method:ident($writer:ident, $value:ident: $type:ty) = $write:expr,)+) => {$(
        #[inline]
        fn $method(self, $value: $type) -> CompactResult<()> {
            let $writer = self;
            $write
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

    write_values! {
        serialize_bool(writer, value: bool) = writer.0.push(value.into()),
        serialize_u8(writer, number: u8) = writer.0.push(number),
        serialize_u16(writer, number: u16) = writer.number(number.into()),
        serialize_u32(writer, number: u32) = writer.number(number.into()),
        serialize_u64(writer, number: u64) = writer.number(number),
        serialize_u128(writer, number: u128) = writer.0.extend(&number.to_le_bytes()),
        serialize_i8(writer, number: i8) = writer.0.push(number as u8),
        serialize_i16(writer, number: i16) = writer.signed(number.into()),
        serialize_i32(writer, number: i32) = writer.signed(number.into()),
        serialize_i64(writer, number: i64) = writer.signed(number),
        serialize_i128(writer, number: i128) = writer.0.extend(&number.to_le_bytes()),
        serialize_f32(writer, number: f32) = writer.0.extend(&number.to_le_bytes()),
        serialize_f64(writer, number: f64) = writer.0.extend(&number.to_le_bytes()),
        serialize_char(writer, character: char) = writer.number(u32::from(character).into()),
        serialize_str(writer, text: &str) = writer.serialize_bytes(text.as_bytes()),
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
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
        fmt::write(&mut counted, format_args!("{value}")).map_err(|_| CompactError)?;
        self.number(counted.0)?;
        let mut text = SinkText(&mut self.0);
        fmt::write(&mut text, format_args!("{value}")).map_err(|_| CompactError)
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

/// Reads a payload from its bytes.
pub(super) struct CompactReader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> CompactReader<'a> {
    pub(super) fn byte(&mut self) -> CompactResult<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or(CompactError)?;
        self.rest = rest;
        Ok(byte)
    }

    fn take(&mut self, length: usize) -> CompactResult<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(CompactError)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const LENGTH: usize>(&mut self) -> CompactResult<[u8; LENGTH]> {
        self.take(LENGTH)?.try_into().map_err(|_| CompactError)
    }

    pub(super) fn number<T: TryFrom<u64>>(&mut self) -> CompactResult<T> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has only one bit of the number.
            if (bits << shift) >> shift != bits {
                return Err(CompactError);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return T::try_from(number).map_err(|_| CompactError);
            }
        }
        Err(CompactError)
    }

    pub(super) fn signed<T: TryFrom<i64>>(&mut self) -> CompactResult<T> {
        let number = self.number::<u64>()?;
        let signed = (number >> 1) as i64 ^ -((number & 1) as i64);
        T::try_from(signed).map_err(|_| CompactError)
    }

    pub(super) fn flag(&mut self) -> CompactResult<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CompactError),
        }
    }

    pub(super) fn character(&mut self) -> CompactResult<char> {
        char::from_u32(self.number()?).ok_or(CompactError)
    }

    pub(super) fn text(&mut self) -> CompactResult<&'a str> {
        let bytes = self.counted()?;
        std::str::from_utf8(bytes).map_err(|_| CompactError)
    }

    pub(super) fn counted(&mut self) -> CompactResult<&'a [u8]> {
        let length = self.number()?;
        self.take(length)
    }

    fn parts(&mut self, left: usize) -> Parts<'_, 'a> {
        Parts { reader: self, left }
    }
}

macro_rules! read_values {
    ($($method:ident($reader:ident) = $visit:ident($value:expr),)+) => {$(
        fn $method<V: Visitor<'a>>(self, visitor: V) -> CompactResult<V::Value> {
            let $reader = self;
            visitor.$visit($value)
        }
    )+};
}

/// Defines the methods that are alike for the deserializer of payloads and for the one that finds the
/// shape of a type.
macro_rules! deserialize_alike {
    ($lifetime:lifetime) => {
        type Error = CompactError;

        serde::forward_to_deserialize_any! {
            <V: Visitor<$lifetime>>
            identifier ignored_any
        }

        fn is_human_readable(&self) -> bool {
            false
        }

        /// Refuses, because the bytes do not tell their type.
        fn deserialize_any<V: Visitor<$lifetime>>(self, _: V) -> CompactResult<V::Value> {
            Err(CompactError)
        }

        fn deserialize_string<V: Visitor<$lifetime>>(self, visitor: V) -> CompactResult<V::Value> {
            self.deserialize_str(visitor)
        }

        fn deserialize_byte_buf<V: Visitor<$lifetime>>(
            self,
            visitor: V,
        ) -> CompactResult<V::Value> {
            self.deserialize_bytes(visitor)
        }

        fn deserialize_unit<V: Visitor<$lifetime>>(self, visitor: V) -> CompactResult<V::Value> {
            visitor.visit_unit()
        }

        fn deserialize_unit_struct<V: Visitor<$lifetime>>(
            self,
            _: &'static str,
            visitor: V,
        ) -> CompactResult<V::Value> {
            visitor.visit_unit()
        }

        fn deserialize_newtype_struct<V: Visitor<$lifetime>>(
            self,
            _: &'static str,
            visitor: V,
        ) -> CompactResult<V::Value> {
            visitor.visit_newtype_struct(self)
        }

        fn deserialize_tuple_struct<V: Visitor<$lifetime>>(
            self,
            _: &'static str,
            length: usize,
            visitor: V,
        ) -> CompactResult<V::Value> {
            self.deserialize_tuple(length, visitor)
        }
    };
}

pub(super) use deserialize_alike;

impl<'a> de::Deserializer<'a> for &mut CompactReader<'a> {
    deserialize_alike!('a);

    read_values! {
        deserialize_bool(reader) = visit_bool(reader.flag()?),
        deserialize_u8(reader) = visit_u8(reader.byte()?),
        deserialize_u16(reader) = visit_u16(reader.number()?),
        deserialize_u32(reader) = visit_u32(reader.number()?),
        deserialize_u64(reader) = visit_u64(reader.number()?),
        deserialize_u128(reader) = visit_u128(u128::from_le_bytes(reader.array()?)),
        deserialize_i8(reader) = visit_i8(reader.byte()? as i8),
        deserialize_i16(reader) = visit_i16(reader.signed()?),
        deserialize_i32(reader) = visit_i32(reader.signed()?),
        deserialize_i64(reader) = visit_i64(reader.signed()?),
        deserialize_i128(reader) = visit_i128(i128::from_le_bytes(reader.array()?)),
        deserialize_f32(reader) = visit_f32(f32::from_le_bytes(reader.array()?)),
        deserialize_f64(reader) = visit_f64(f64::from_le_bytes(reader.array()?)),
        deserialize_char(reader) = visit_char(reader.character()?),
        deserialize_str(reader) = visit_borrowed_str(reader.text()?),
        deserialize_bytes(reader) = visit_borrowed_bytes(reader.counted()?),
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> CompactResult<V::Value> {
        match self.flag()? {
            false => visitor.visit_none(),
            true => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> CompactResult<V::Value> {
        let length = self.number()?;
        visitor.visit_seq(self.parts(length))
    }

    fn deserialize_tuple<V: Visitor<'a>>(
        self,
        length: usize,
        visitor: V,
    ) -> CompactResult<V::Value> {
        visitor.visit_seq(self.parts(length))
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> CompactResult<V::Value> {
        let length = self.number()?;
        visitor.visit_map(self.parts(length))
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> CompactResult<V::Value> {
        visitor.visit_seq(self.parts(fields.len()))
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> CompactResult<V::Value> {
        let variant = self.number()?;
        visitor.visit_enum(OfVariant {
            variant,
            content: self,
        })
    }
}

/// The parts of a tuple, list, map or struct that are still to be read.
struct Parts<'r, 'a> {
    reader: &'r mut CompactReader<'a>,
    left: usize,
}

impl<'a> Parts<'_, 'a> {
    fn next<T: DeserializeSeed<'a>>(&mut self, seed: T) -> CompactResult<Option<T::Value>> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    /// Returns the number of parts, unless the bytes that are left are too few for them: a damaged
    /// length must not make the caller reserve memory for it.
    fn hint(&self) -> Option<usize> {
        (self.left <= self.reader.rest.len()).then_some(self.left)
    }
}

impl<'a> de::SeqAccess<'a> for Parts<'_, 'a> {
    type Error = CompactError;

    fn next_element_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> CompactResult<Option<T::Value>> {
        self.next(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'a> de::MapAccess<'a> for Parts<'_, 'a> {
    type Error = CompactError;

    fn next_key_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> CompactResult<Option<T::Value>> {
        self.next(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> CompactResult<T::Value> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

/// A variant and its content.
pub(super) struct OfVariant<D> {
    pub(super) variant: u32,
    pub(super) content: D,
}

impl<'a, D: de::Deserializer<'a, Error = CompactError>> de::EnumAccess<'a> for OfVariant<D> {
    type Error = CompactError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> CompactResult<(T::Value, Self)> {
        let variant = seed.deserialize(self.variant.into_deserializer())?;
        Ok((variant, self))
    }
}

impl<'a, D: de::Deserializer<'a, Error = CompactError>> de::VariantAccess<'a> for OfVariant<D> {
    type Error = CompactError;

    fn unit_variant(self) -> CompactResult<()> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> CompactResult<T::Value> {
        seed.deserialize(self.content)
    }

    fn tuple_variant<V: Visitor<'a>>(self, length: usize, visitor: V) -> CompactResult<V::Value> {
        self.content.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> CompactResult<V::Value> {
        self.content.deserialize_tuple(fields.len(), visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Serialize};

    use super::*;

    impl ByteSink for Vec<u8> {
        fn push(&mut self, byte: u8) -> CompactResult<()> {
            Vec::push(self, byte);
            Ok(())
        }

        fn extend(&mut self, bytes: &[u8]) -> CompactResult<()> {
            self.extend_from_slice(bytes);
            Ok(())
        }
    }

    fn bytes_of(value: &impl Serialize) -> Vec<u8> {
        let mut writer = CompactWriter(Vec::new());
        value.serialize(&mut writer).expect("a vector takes all");
        writer.0
    }

    fn read<T: DeserializeOwned>(bytes: &[u8]) -> CompactResult<T> {
        let mut reader = CompactReader { rest: bytes };
        let value = T::deserialize(&mut reader)?;
        assert!(reader.rest.is_empty(), "{:?} is left", reader.rest);
        Ok(value)
    }

    /// Checks that the value is read back, and that no beginning of its bytes is taken for it.
    fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> Vec<u8> {
        let bytes = bytes_of(value);
        assert_eq!(read::<T>(&bytes).as_ref(), Ok(value));
        for length in 0..bytes.len() {
            let mut reader = CompactReader {
                rest: &bytes[..length],
            };
            assert!(
                T::deserialize(&mut reader).is_err(),
                "{value:?} of {length} bytes"
            );
        }
        bytes
    }

    #[derive(PartialEq, Debug, Serialize, Deserialize)]
    enum Shape {
        Point,
        Circle(f64),
        Line(i8, i16),
        Box { width: u32, label: Option<String> },
    }

    #[test]
    fn integers_are_read_back_and_small_ones_are_short() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            check(&number);
        }
        for number in [0, -1, 1, i64::MIN, i64::MAX] {
            check(&number);
        }
        assert_eq!(check(&127u64), [127]);
        assert_eq!(check(&300u16), [0xac, 2]);
        assert_eq!(check(&-1i32), [1]);
        check(&i8::MIN);
        check(&i16::MIN);
        check(&i32::MIN);
        check(&i128::MIN);
        check(&u128::MAX);
    }

    #[test]
    fn values_of_each_kind_are_read_back() {
        check(&(true, false, 'ß', "text".to_owned(), f32::MIN, f64::EPSILON));
        check(&(Some(vec![1u8, 2]), None::<u8>, [0.5f32; 2]));
        check(&BTreeMap::from([
            ("a".to_owned(), vec![1u64]),
            ("b".to_owned(), vec![]),
        ]));
        for shape in [
            Shape::Point,
            Shape::Circle(1.5),
            Shape::Line(-3, 1000),
            Shape::Box {
                width: 7,
                label: Some("wide".to_owned()),
            },
        ] {
            check(&shape);
        }
    }

    #[test]
    fn displayed_text_is_read_back() {
        struct Shown;
        impl Serialize for Shown {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&format_args!("{}-{}", 12, "ab"))
            }
        }
        assert_eq!(read::<String>(&bytes_of(&Shown)).as_deref(), Ok("12-ab"));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        assert!(read::<u64>(&[0xff; 9]).is_err());
        assert!(read::<u64>(&[0xff; 10]).is_err());
        assert!(read::<u64>(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).is_err());
        assert!(read::<u16>(&[0x80, 0x80, 0x04]).is_err());
        assert!(read::<bool>(&[2]).is_err());
        assert!(read::<Option<u8>>(&[2, 0]).is_err());
        assert!(read::<char>(&[0x80, 0xb0, 0x03]).is_err());
        assert!(read::<String>(&[2, 0xff, 0xff]).is_err());
        // A length that the bytes cannot have.
        assert!(read::<Vec<u64>>(&[0xff, 0xff, 0xff, 0xff, 0x7f]).is_err());
    }

    #[test]
    fn self_describing_values_are_refused() {
        assert!(read::<serde_json::Value>(&[1]).is_err());
    }
}
