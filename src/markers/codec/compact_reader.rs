//! Deserializes what `compact_writer.rs` wrote. Other bytes are refused, or read as other values.

use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::markers::codec::compact_error::{CompactError, CompactResult};

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

macro_rules! values {
    ($($method:ident($reader:ident) = $visit:ident($value:expr),)+) => {$(
        fn $method<V: Visitor<'a>>(self, visitor: V) -> CompactResult<V::Value> {
            let $reader = self;
            visitor.$visit($value)
        }
    )+};
}

impl<'a> de::Deserializer<'a> for &mut CompactReader<'a> {
    type Error = CompactError;

    values! {
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
        deserialize_char(reader) = visit_char(char::from_u32(reader.number()?).ok_or(CompactError)?),
        deserialize_str(reader) = visit_borrowed_str(reader.text()?),
        deserialize_string(reader) = visit_borrowed_str(reader.text()?),
        deserialize_bytes(reader) = visit_borrowed_bytes(reader.counted()?),
        deserialize_byte_buf(reader) = visit_borrowed_bytes(reader.counted()?),
    }

    forward_to_deserialize_any! {
        <V: Visitor<'a>>
        identifier ignored_any
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    /// Refuses, because the bytes do not tell their type.
    fn deserialize_any<V: Visitor<'a>>(self, _: V) -> CompactResult<V::Value> {
        Err(CompactError)
    }

    fn deserialize_bool<V: Visitor<'a>>(self, visitor: V) -> CompactResult<V::Value> {
        match self.byte()? {
            0 => visitor.visit_bool(false),
            1 => visitor.visit_bool(true),
            _ => Err(CompactError),
        }
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> CompactResult<V::Value> {
        match self.byte()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self),
            _ => Err(CompactError),
        }
    }

    fn deserialize_unit<V: Visitor<'a>>(self, visitor: V) -> CompactResult<V::Value> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> CompactResult<V::Value> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> CompactResult<V::Value> {
        visitor.visit_newtype_struct(self)
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

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
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
        visitor.visit_enum(self)
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

impl<'a> de::EnumAccess<'a> for &mut CompactReader<'a> {
    type Error = CompactError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> CompactResult<(T::Value, Self)> {
        let variant: u32 = self.number()?;
        let value = seed.deserialize(variant.into_deserializer())?;
        Ok((value, self))
    }
}

impl<'a> de::VariantAccess<'a> for &mut CompactReader<'a> {
    type Error = CompactError;

    fn unit_variant(self) -> CompactResult<()> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> CompactResult<T::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'a>>(self, length: usize, visitor: V) -> CompactResult<V::Value> {
        visitor.visit_seq(self.parts(length))
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> CompactResult<V::Value> {
        visitor.visit_seq(self.parts(fields.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::markers::codec::compact_writer::{ByteSink, CompactWriter};

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
