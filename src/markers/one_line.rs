//! The payload of `marker!("name", field = value)`: a tuple of values, with a type that names them.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::Duration;

use crate::markers::flow::FlowId;
use crate::markers::json_writer::JSONWriter;
use crate::markers::marker_field::MarkerField;
use crate::markers::profiler_marker::{MarkerPayload, ProfilerMarker};
use crate::markers::schema::{Format, Location, MarkerSchema, data_key};
use crate::types::{ProcessId, ThreadId};

/// The names in one call of `marker!`. The macro declares a type for each call.
pub trait FieldNames: 'static {
    /// The name of the marker, and of its type.
    const TYPE: &'static str;
    /// The names of the fields.
    const FIELDS: &'static [&'static str];
}

/// A value that [`marker!`](macro@crate::marker) accepts for a field.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of `marker!`",
    note = "a field is a number, a `bool`, a string, a `Duration`, a `FlowId`, an id of a process or thread, or an `Option` of one"
)]
pub trait FieldValue {
    /// The type that the buffer keeps: an owned one.
    type Kept: MarkerField;
    /// How the viewer shows the value.
    const FORMAT: Format;

    /// Converts the value. Called on the thread that adds the marker.
    fn keep(self) -> Self::Kept;
}

macro_rules! kept_as_they_are {
    ($($type:ty => $format:ident;)+) => {
        $(impl FieldValue for $type {
            type Kept = Self;
            const FORMAT: Format = Format::$format;

            fn keep(self) -> Self {
                self
            }
        })+
    };
}

kept_as_they_are! {
    u8 => Integer;
    u16 => Integer;
    u32 => Integer;
    u64 => Integer;
    usize => Integer;
    i8 => Integer;
    i16 => Integer;
    i32 => Integer;
    i64 => Integer;
    isize => Integer;
    f32 => Decimal;
    f64 => Decimal;
    bool => String;
    String => String;
    Cow<'static, str> => String;
    Duration => Duration;
    FlowId => Flow;
    ProcessId => Pid;
    ThreadId => Tid;
}

macro_rules! kept_as_strings {
    ($($type:ty),+) => {
        $(impl FieldValue for $type {
            type Kept = String;
            const FORMAT: Format = Format::String;

            fn keep(self) -> String {
                self.to_owned()
            }
        })+
    };
}

kept_as_strings!(&str, &String);

impl<V: FieldValue> FieldValue for Option<V> {
    type Kept = Option<V::Kept>;
    const FORMAT: Format = V::FORMAT;

    fn keep(self) -> Self::Kept {
        self.map(V::keep)
    }
}

/// A tuple of values that the buffer keeps.
pub trait KeptValues {
    const FORMATS: &'static [Format];

    fn write(&self, fields: &[&str], json: &mut JSONWriter<'_>);
}

macro_rules! tuples {
    ($($($type:ident $index:tt),+;)+) => {
        $(impl<$($type: MarkerField + FieldValue),+> KeptValues for ($($type,)+) {
            const FORMATS: &'static [Format] = &[$($type::FORMAT),+];

            fn write(&self, fields: &[&str], json: &mut JSONWriter<'_>) {
                let mut fields = fields.iter();
                $(if let Some(field) = fields.next() {
                    self.$index.write_field(json, plain(field), $type::FORMAT);
                })+
            }
        })+
    };
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}

/// Returns the name without the mark of a raw identifier, as in `r#type`.
fn plain(field: &str) -> &str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// The payload: the values, and the type that has their names.
pub struct Fields<N, T> {
    values: T,
    names: PhantomData<fn() -> N>,
}

impl<N, T> Fields<N, T> {
    /// Creates the payload from the values in the order of their names.
    pub fn new(values: T) -> Self {
        let names = PhantomData;
        Self { values, names }
    }
}

#[cfg(feature = "serde")]
impl<N, T: serde::Serialize> serde::Serialize for Fields<N, T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.values.serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de, N, T: serde::Deserialize<'de>> serde::Deserialize<'de> for Fields<N, T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

impl<N: FieldNames, T: KeptValues + MarkerPayload> ProfilerMarker for Fields<N, T> {
    fn marker_type_name() -> &'static str {
        N::TYPE
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        for (field, format) in N::FIELDS.iter().zip(T::FORMATS) {
            schema.add_key_label_format(plain(field), plain(field), *format);
        }
        let of_field = |field: &&str| {
            let field = plain(field);
            format!("{field} {{marker.data.{}}}", data_key(field))
        };
        let label: Vec<String> = N::FIELDS.iter().map(of_field).collect();
        schema.set_table_label(&label.join(", "));
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
        self.values.write(N::FIELDS, json_writer);
    }
}
