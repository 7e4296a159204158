//! The traits that a marker type implements.

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
