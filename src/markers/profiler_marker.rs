//! What a marker type implements, and the macro `marker_type!` that does so from a list of fields.

use crate::markers::json_writer::JSONWriter;
use crate::markers::schema::MarkerSchema;

/// The bounds of a payload: `serde`'s `Serialize` and `DeserializeOwned`.
///
/// Without the crate's feature `serde`, which the feature `enabled` activates, every type
/// qualifies.
#[cfg(feature = "serde")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a marker's payload",
    label = "`serde::Serialize` or `serde::Deserialize` is missing, or the type borrows data",
    note = "with gekkota's feature `derive`, or with serde's, derive both for it: `#[derive(gekkota::schema::Serialize, gekkota::schema::Deserialize)]`"
)]
pub trait MarkerPayload: serde::Serialize + serde::de::DeserializeOwned {}
#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> MarkerPayload for T {}

/// The bounds of a payload: none, because payloads are not serialized without the feature `serde`.
#[cfg(not(feature = "serde"))]
pub trait MarkerPayload {}
#[cfg(not(feature = "serde"))]
impl<T> MarkerPayload for T {}

/// A marker type, and the payload of one marker.
///
/// When a marker is added, its payload is serialized into the buffer by `serde`, without field
/// names and without an allocation. When a profile is written, the payload is deserialized into the
/// same type and writes its fields.
/// So `Serialize` must give the same output each time, because it runs again if the space in the
/// buffer was too small, and `Deserialize` must accept that output. Self-describing formats
/// (`deserialize_any`, `#[serde(untagged)]`, `#[serde(flatten)]`) are not supported.
///
/// If a payload cannot be serialized or deserialized, or panics, the profile has the marker without
/// its payload, and the marker's name ends with the reason. With `panic = "abort"` such a panic
/// ends the process, like any other.
/// The payload is also left out if the library that defines the type was unloaded, or was loaded
/// again at another address.
///
/// [`marker_type!`](crate::marker_type) implements this trait and `serde`'s from a list of fields. To
/// derive `serde`'s traits as below, turn on the feature `derive`, or depend on `serde` with its own.
///
/// The viewer identifies a type by its name: two types with one name share the fields of both. The
/// viewer has types of its own with the names `Network`, `IPC`, `GCMajor` and `GCSlice`, and fails
/// to load a profile where their required fields are missing. [`built_in`](crate::marker::built_in)
/// has types for `Network` and `IPC`. In the profile, a type with such a name that lacks the
/// required fields gets a `_` appended to its name.
///
/// ```
/// # #[cfg(feature = "serde")] {
/// use gekkota::ProfilerMarker;
/// use gekkota::schema::{Deserialize, JSONWriter, MarkerSchema, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Loaded {
///     file: String,
///     bytes: u64,
/// }
///
/// impl ProfilerMarker for Loaded {
///     fn marker_type_name() -> &'static str {
///         "Loaded"
///     }
///     fn marker_type_display() -> MarkerSchema {
///         use gekkota::schema::*;
///         let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
///         schema.set_all_labels("{marker.data.file}");
///         schema.add_key_label_format("file", "File", Format::FilePath);
///         schema.add_key_label_format("bytes", "Size", Format::Bytes);
///         schema
///     }
///     fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
///         json_writer.string_property("file", &self.file);
///         json_writer.uint_property("bytes", self.bytes);
///     }
/// }
///
/// let loaded = Loaded { file: "a.png".to_owned(), bytes: 1024 };
/// let category = gekkota::gecko_profiler_category!(Network);
/// gekkota::add_marker("Load", category, Default::default(), loaded);
/// # }
/// ```
#[doc(alias = "BaseMarkerType")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a marker type",
    note = "declare one with `gekkota::marker_type!`, or implement `ProfilerMarker`"
)]
#[doc(alias = "MarkerType")]
#[doc(alias = "MarkerTypeSerialization")]
pub trait ProfilerMarker: MarkerPayload {
    /// Returns the type's name, which should be unique.
    fn marker_type_name() -> &'static str;

    /// Returns the schema: where and how the viewer shows markers of the type.
    ///
    /// Called once for each profile, on the thread that writes it.
    fn marker_type_display() -> MarkerSchema;

    /// Writes the fields of this payload. Called on the thread that writes the profile.
    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>);
}

/// Declares a marker type: a struct for the payload, with its schema and its encoding.
///
/// ```
/// gekkota::marker_type! {
///     /// A request that was answered.
///     #[derive(Debug)]
///     pub struct Request {
///         pub path: String => "Path", Url;
///         pub status: u16 => "Status", Integer;
///         pub body: u64 => "Size", Bytes;
///         /// The viewer links the markers of one connection.
///         pub connection: gekkota::FlowId => "Connection", Flow;
///         cached: Option<bool> => hidden, String;
///     }
///     table_label = "{marker.data.status} {marker.data.path}";
///     chart_label = "{marker.data.path}";
///     graph = (body, Bar, Blue);
/// }
/// ```
///
/// Each field has a label or `hidden`, and a format of [`schema::Format`](crate::schema::Format).
/// Its type must implement [`MarkerField`](crate::schema::MarkerField). The fields may be followed
/// by options, each ending in `;`:
///
/// | option | meaning | default |
/// |---|---|---|
/// | `name = "Name"` | name of the type | the struct's name |
/// | `places = [MarkerChart, TimelineOverview]` | where the viewer shows markers: [`schema::Location`](crate::schema::Location) | chart and table |
/// | `label = "…"` | all three labels | |
/// | `chart_label`, `table_label`, `tooltip_label = "…"` | one label | the marker's name |
/// | `description = "…"` | a row “Description” in the tooltip | none |
/// | `color_field = "field"` | the field that names the marker's color | none |
/// | `stack_based = true` | the intervals nest as calls do | `false` |
/// | `graph = (field, Line, Blue)` or `(field, Line)` | a track that draws the field over time | none |
#[macro_export]
macro_rules! marker_type {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty => $label:tt, $format:ident);* $(;)?
        }
        $($option:ident = $value:tt;)*
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        $crate::__marker_type_serde!($name { $($field: $type),* });

        impl $crate::ProfilerMarker for $name {
            fn marker_type_name() -> &'static str {
                $crate::__marker_type_name!($name; $($option = $value;)*)
            }

            fn marker_type_display() -> $crate::schema::MarkerSchema {
                #[allow(unused_mut, reason = "a type may have neither fields nor options")]
                let mut schema = $crate::schema::MarkerSchema::new($crate::__marker_type_places!($($option = $value;)*));
                $($crate::__marker_type_field!(schema, $field, $label, $format);)*
                $($crate::__marker_type_option!(schema, $option = $value);)*
                schema
            }

            fn stream_json_marker_data(&self, json_writer: &mut $crate::schema::JSONWriter<'_>) {
                let _ = &json_writer;
                $($crate::schema::MarkerField::write_field(
                    &self.$field,
                    json_writer,
                    ::core::stringify!($field),
                    $crate::schema::Format::$format,
                );)*
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __marker_type_name {
    ($name:ident;) => { ::core::stringify!($name) };
    ($name:ident; name = $value:tt; $($rest:tt)*) => { $value };
    ($name:ident; $option:ident = $value:tt; $($rest:tt)*) => { $crate::__marker_type_name!($name; $($rest)*) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __marker_type_places {
    () => { &[$crate::schema::Location::MarkerChart, $crate::schema::Location::MarkerTable] };
    (places = [$($place:ident),* $(,)?]; $($rest:tt)*) => { &[$($crate::schema::Location::$place),*] };
    ($option:ident = $value:tt; $($rest:tt)*) => { $crate::__marker_type_places!($($rest)*) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __marker_type_field {
    ($schema:ident, $field:ident, hidden, $format:ident) => {
        $schema.add_key_format_with_flags(
            ::core::stringify!($field),
            $crate::schema::Format::$format,
            $crate::schema::PayloadFlags::Hidden,
        );
    };
    ($schema:ident, $field:ident, $label:literal, $format:ident) => {
        $schema.add_key_label_format(
            ::core::stringify!($field),
            $label,
            $crate::schema::Format::$format,
        );
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __marker_type_option {
    ($schema:ident, name = $value:tt) => {};
    ($schema:ident, places = $value:tt) => {};
    ($schema:ident, label = $value:literal) => {
        $schema.set_all_labels($value);
    };
    ($schema:ident, chart_label = $value:literal) => {
        $schema.set_chart_label($value);
    };
    ($schema:ident, table_label = $value:literal) => {
        $schema.set_table_label($value);
    };
    ($schema:ident, tooltip_label = $value:literal) => {
        $schema.set_tooltip_label($value);
    };
    ($schema:ident, description = $value:literal) => {
        $schema.add_static_label_value("Description", $value);
    };
    ($schema:ident, color_field = $value:literal) => {
        $schema.set_color_field($value);
    };
    ($schema:ident, stack_based = true) => {
        $schema.set_stack_based();
    };
    ($schema:ident, stack_based = false) => {};
    ($schema:ident, graph = ($field:ident, $kind:ident)) => {
        $schema.add_chart(::core::stringify!($field), $crate::schema::GraphType::$kind);
    };
    ($schema:ident, graph = ($field:ident, $kind:ident, $color:ident)) => {
        $schema.add_chart_color(
            ::core::stringify!($field),
            $crate::schema::GraphType::$kind,
            $crate::schema::GraphColor::$color,
        );
    };
}

/// Serializes a payload as a tuple of its fields.
#[cfg(feature = "serde")]
#[doc(hidden)]
#[macro_export]
macro_rules! __marker_type_serde {
    ($name:ident { $($field:ident: $type:ty),* }) => {
        const _: () = {
            use $crate::__private::serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

            const FIELDS: usize = <[&str]>::len(&[$(::core::stringify!($field)),*]);

            impl Serialize for $name {
                #[inline]
                fn serialize<S: Serializer>(&self, serializer: S) -> ::core::result::Result<S::Ok, S::Error> {
                    #[allow(unused_mut, reason = "a type may have no field")]
                    let mut fields = serializer.serialize_tuple(FIELDS)?;
                    $(ser::SerializeTuple::serialize_element(&mut fields, &self.$field)?;)*
                    ser::SerializeTuple::end(fields)
                }
            }

            struct Fields;

            impl<'de> de::Visitor<'de> for Fields {
                type Value = $name;

                fn expecting(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.write_str(::core::stringify!($name))
                }

                fn visit_seq<A: de::SeqAccess<'de>>(
                    self,
                    #[allow(unused_mut, unused_variables, reason = "a type may have no field")] mut fields: A,
                ) -> ::core::result::Result<$name, A::Error> {
                    ::core::result::Result::Ok($name {
                        $($field: match de::SeqAccess::next_element::<$type>(&mut fields)? {
                            ::core::option::Option::Some(value) => value,
                            ::core::option::Option::None => {
                                return ::core::result::Result::Err(de::Error::missing_field(
                                    ::core::stringify!($field),
                                ));
                            }
                        },)*
                    })
                }
            }

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> ::core::result::Result<Self, D::Error> {
                    deserializer.deserialize_tuple(FIELDS, Fields)
                }
            }
        };
    };
}

#[cfg(not(feature = "serde"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __marker_type_serde {
    ($name:ident { $($field:ident: $type:ty),* }) => {};
}

pub(crate) use __marker_type_serde as serde_as_tuple;
