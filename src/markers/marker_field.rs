//! The types that a field of [`marker_type!`](crate::marker_type) may have.

use std::borrow::Cow;
use std::time::Duration;

use crate::markers::flow::FlowId;
use crate::markers::json_writer::JSONWriter;
use crate::markers::schema::Format;
use crate::types::{ProcessId, ProfilerTime, ThreadId};

/// A type that a field of [`marker_type!`](crate::marker_type) may have: numbers, strings, times,
/// flows, ids, and options and lists of them.
pub trait MarkerField {
    /// Writes the value in this format.
    fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, format: Format);

    /// Writes the value as an element of a list.
    fn write_element(&self, json: &mut JSONWriter<'_>);
}

/// Writes a single value as a list: the viewer fails to load a profile in which a list field has
/// another type.
fn write_list_of_one(value: &(impl MarkerField + ?Sized), json: &mut JSONWriter<'_>, key: &str) {
    json.start_array_property(key);
    value.write_element(json);
    json.end_array();
}

macro_rules! numbers {
    ($([$($type:ty),+] as $as:ty = $property:ident, $element:ident;)+) => {
        $($(impl MarkerField for $type {
            #[inline]
            fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, format: Format) {
                match format {
                    // `Pid` is one of these because the viewer looks up processes by strings.
                    Format::String
                    | Format::SanitizedString
                    | Format::Url
                    | Format::FilePath
                    | Format::Pid => {
                        json.string_property(key, &self.to_string());
                    }
                    Format::UniqueString => json.unique_string_property(key, &self.to_string()),
                    Format::Flow | Format::TerminatingFlow => json.flow_property(key, FlowId::from(*self as u64)),
                    Format::List => write_list_of_one(self, json, key),
                    _ => json.$property(key, *self as $as),
                }
            }

            fn write_element(&self, json: &mut JSONWriter<'_>) {
                json.$element(*self as $as);
            }
        })+)+
    };
}

numbers! {
    [u8, u16, u32, u64, usize] as u64 = uint_property, uint_element;
    [i8, i16, i32, i64, isize] as i64 = int_property, int_element;
    [f32, f64] as f64 = float_property, float_element;
}

impl MarkerField for bool {
    fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, format: Format) {
        let text = if *self { "true" } else { "false" };
        match format {
            Format::UniqueString => json.unique_string_property(key, text),
            // Strings, because the viewer searches fields of these formats for text to remove when
            // the user shares a profile.
            Format::Url | Format::FilePath => json.string_property(key, text),
            Format::List => write_list_of_one(self, json, key),
            _ => json.bool_property(key, *self),
        }
    }

    fn write_element(&self, json: &mut JSONWriter<'_>) {
        json.bool_element(*self);
    }
}

impl MarkerField for str {
    fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, format: Format) {
        match format {
            Format::UniqueString | Format::Flow | Format::TerminatingFlow => {
                json.unique_string_property(key, self)
            }
            Format::List => write_list_of_one(self, json, key),
            _ => json.string_property(key, self),
        }
    }

    fn write_element(&self, json: &mut JSONWriter<'_>) {
        json.string_element(self);
    }
}

/// Implements the trait for types whose values are written as another one.
macro_rules! written_as {
    ($($value:ident: $type:ty => $other:expr;)+) => {
        $(impl crate::markers::marker_field::MarkerField for $type {
            fn write_field(
                &self,
                json: &mut crate::markers::json_writer::JSONWriter<'_>,
                key: &str,
                format: crate::markers::schema::Format,
            ) {
                let $value = self;
                $other.write_field(json, key, format);
            }

            fn write_element(&self, json: &mut crate::markers::json_writer::JSONWriter<'_>) {
                let $value = self;
                $other.write_element(json);
            }
        })+
    };
}

written_as! {
    text: String => **text;
    text: Cow<'static, str> => **text;
    text: Box<str> => **text;
    id: ThreadId => id.to_number();
    id: ProcessId => id.to_number();
}

/// Writes a duration in the format's unit, or in milliseconds if the format has none.
impl MarkerField for Duration {
    fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, format: Format) {
        let units_per_second = match format {
            Format::Microseconds => 1e6,
            Format::Nanoseconds => 1e9,
            Format::List => return write_list_of_one(self, json, key),
            _ => 1e3,
        };
        json.float_property(key, self.as_nanos() as f64 / (1e9 / units_per_second));
    }

    fn write_element(&self, json: &mut JSONWriter<'_>) {
        json.float_element(self.as_secs_f64() * 1e3);
    }
}

impl MarkerField for ProfilerTime {
    fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, format: Format) {
        match format {
            Format::List => write_list_of_one(self, json, key),
            _ => json.time_property(key, *self),
        }
    }

    fn write_element(&self, json: &mut JSONWriter<'_>) {
        json.time_element(*self);
    }
}

impl MarkerField for FlowId {
    fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, format: Format) {
        match format {
            Format::List => write_list_of_one(self, json, key),
            _ => json.flow_property(key, *self),
        }
    }

    fn write_element(&self, json: &mut JSONWriter<'_>) {
        json.string_element(std::str::from_utf8(&self.to_hex()).unwrap_or_default());
    }
}

/// Omits a field that is `None`, and writes an element that is `None` as `null`.
impl<T: MarkerField> MarkerField for Option<T> {
    fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, format: Format) {
        if let Some(value) = self {
            value.write_field(json, key, format);
        }
    }

    fn write_element(&self, json: &mut JSONWriter<'_>) {
        match self {
            Some(value) => value.write_element(json),
            None => json.null_element(),
        }
    }
}

/// Writes a list in any format, so the format should be [`Format::List`].
impl<T: MarkerField> MarkerField for Vec<T> {
    fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, _: Format) {
        json.start_array_property(key);
        self.iter().for_each(|value| value.write_element(json));
        json.end_array();
    }

    fn write_element(&self, json: &mut JSONWriter<'_>) {
        json.start_array_element();
        self.iter().for_each(|value| value.write_element(json));
        json.end_array();
    }
}
