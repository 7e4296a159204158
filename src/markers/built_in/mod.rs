//! Gecko's marker types that make sense outside of a browser, with Gecko's names and fields.
//!
//! [`Tracing`], [`StackMarker`] and [`FlowStackMarker`] have the shape that Mozilla's crate gives
//! them; each other type has one field for each of Gecko's.
//! Labels for the chart and the table do not repeat the marker's name, which the viewer shows there
//! anyway: some of Gecko's do.
//! For a marker that has only a text, use [`add_text_marker`](crate::api::add_text_marker).
//!
//! Left out are `Java`, `JavaWithDetails` and `CONTENT_FULL_PAINT_TIME`, which only Android or a
//! browser needs.

/// Defines enums whose values the viewer knows by keywords, for use as fields of markers. A field with
/// a fixed set of values has such an enum as its type, because the viewer fails to load a profile with
/// any other value.
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

        written_as! {
            value: $name => value.keyword();
        }
    )+};
}

/// Defines a payload that writes its fields itself: a struct that is serialized as a tuple of its
/// fields.
macro_rules! payload {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)+
        }

        __marker_type_serde!($name { $($field: $type),+ });
    };
}

mod interface;
mod network;
mod system;
mod text;

pub use interface::*;
pub use network::*;
pub use system::*;
pub use text::*;
