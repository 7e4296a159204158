//! Implements `serde`'s traits for types of the crate, without its derive macros: those take as long
//! to compile as a small crate.

/// Implements `Serialize` and `Deserialize` for a struct with one unnamed field, as that field.
macro_rules! serde_as_inner {
    ($name:ident($inner:ty)) => {
        #[cfg(feature = "serde")]
        const _: () = {
            impl serde::Serialize for $name {
                #[inline]
                fn serialize<S: serde::Serializer>(
                    &self,
                    serializer: S,
                ) -> Result<S::Ok, S::Error> {
                    serde::Serialize::serialize(&self.0, serializer)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                #[inline]
                fn deserialize<D: serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<Self, D::Error> {
                    <$inner as serde::Deserialize>::deserialize(deserializer).map(Self)
                }
            }
        };
    };
}

/// Implements `Serialize` and `Deserialize` for an enum without fields, as the index of its variant.
macro_rules! serde_as_index {
    ($name:ident { $($variant:ident),+ $(,)? }) => {
        #[cfg(feature = "serde")]
        const _: () = {
            impl serde::Serialize for $name {
                #[inline]
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.serialize_u8(*self as u8)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let index: u8 = serde::Deserialize::deserialize(deserializer)?;
                    $(if index == Self::$variant as u8 {
                        return Ok(Self::$variant);
                    })+
                    Err(serde::de::Error::custom("the index of no variant"))
                }
            }
        };
    };
}

pub(crate) use {serde_as_index, serde_as_inner};
