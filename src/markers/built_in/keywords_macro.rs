//! Defines the macros for enums whose values the viewer knows by keywords, and for payloads that
//! write their fields themselves.
//!
//! A field with a fixed set of values has such an enum as its type, because the viewer fails to
//! load a profile with any other value.

/// Defines enums of keywords, for use as fields of markers.
macro_rules! keywords {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $keyword:literal,)+ })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        crate::types::serde_as_index!($name { $($variant),+ });

        impl $name {
            pub(super) const fn keyword(self) -> &'static str {
                match self {
                    $(Self::$variant => $keyword,)+
                }
            }
        }

        impl crate::markers::marker_field::MarkerField for $name {
            fn write_field(
                &self,
                json: &mut crate::markers::json_writer::JSONWriter<'_>,
                key: &str,
                format: crate::markers::schema::Format,
            ) {
                self.keyword().write_field(json, key, format);
            }

            fn write_element(&self, json: &mut crate::markers::json_writer::JSONWriter<'_>) {
                self.keyword().write_element(json);
            }
        }
    )+};
}

/// Defines a struct that is serialized as a tuple of its fields.
macro_rules! payload {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)+
        }

        __marker_type_serde!($name { $($field: $type),+ });
    };
}
