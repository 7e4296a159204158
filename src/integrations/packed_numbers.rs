//! A few numbers as LEB128, at the start of a payload. They are encoded at once and copied into the
//! buffer as bytes.

/// Maximum length of the encoding, in bytes.
const MAX_BYTES: usize = 64;

/// Numbers encoded one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedNumbers {
    bytes: [u8; MAX_BYTES],
    length: u8,
}

impl PackedNumbers {
    /// Encodes the numbers; six always fit.
    #[inline]
    pub(crate) fn of<const N: usize>(numbers: [u64; N]) -> Self {
        const { assert!(N * 10 <= MAX_BYTES, "a number has ten bytes at most") };
        let (mut bytes, mut length) = ([0; MAX_BYTES], 0);
        for mut number in numbers {
            // LEB128: seven bits a byte, the lowest first, with the top bit set on all but the
            // last.
            while number >= 0x80 {
                bytes[length] = number as u8 | 0x80;
                length += 1;
                number >>= 7;
            }
            bytes[length] = number as u8;
            length += 1;
        }
        Self {
            bytes,
            length: length as u8,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Decodes the numbers; missing ones are 0.
    pub(crate) fn numbers<const N: usize>(&self) -> [u64; N] {
        let mut bytes = self.bytes().iter();
        std::array::from_fn(|_| {
            let (mut number, mut shift) = (0, 0);
            for &byte in bytes.by_ref() {
                number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            number
        })
    }
}

/// Serialized as one byte string.
#[cfg(feature = "serde")]
mod serde_impls {
    use serde::de::{Deserialize, Deserializer, Error, Visitor};
    use serde::ser::{Serialize, Serializer};

    use super::{MAX_BYTES, PackedNumbers};

    impl Serialize for PackedNumbers {
        #[inline]
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(self.bytes())
        }
    }

    impl<'de> Deserialize<'de> for PackedNumbers {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_bytes(Bytes)
        }
    }

    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = PackedNumbers;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a few bytes")
        }

        fn visit_bytes<E: Error>(self, code: &[u8]) -> Result<PackedNumbers, E> {
            let mut bytes = [0; MAX_BYTES];
            let known = bytes
                .get_mut(..code.len())
                .ok_or_else(|| E::invalid_length(code.len(), &self))?;
            known.copy_from_slice(code);
            Ok(PackedNumbers {
                bytes,
                length: code.len() as u8,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back() {
        let numbers = [0, 127, 128, 1 << 40, u64::MAX, 5];
        let code = PackedNumbers::of(numbers);
        assert_eq!(code.bytes().len(), 1 + 1 + 2 + 6 + 10 + 1);
        assert_eq!(code.numbers(), numbers);
        assert_eq!(PackedNumbers::of([7]).numbers(), [7, 0, 0]);
    }
}
