//! What a type of markers has.

use crate::markers::json_writer::JSONWriter;
use crate::markers::schema::MarkerSchema;

/// What a payload is coded with: `serde`'s `Serialize` and `DeserializeOwned`. Without the crate's feature `serde`, which
/// `enabled` has, every type will do.
#[cfg(feature = "serde")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a marker's payload",
    label = "`serde::Serialize` or `serde::Deserialize` is missing, or it borrows what it has",
    note = "derive both for it: `#[derive(gekkota::schema::Serialize, gekkota::schema::Deserialize)]`"
)]
pub trait MarkerPayload: serde::Serialize + serde::de::DeserializeOwned {}
#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> MarkerPayload for T {}

/// What a payload is coded with: nothing, since it is not.
#[cfg(not(feature = "serde"))]
pub trait MarkerPayload {}
#[cfg(not(feature = "serde"))]
impl<T> MarkerPayload for T {}

/// A type of markers, and the payload of one of them.
///
/// A payload is coded into the buffer when its marker is added, as `serde` has it, without names and without an allocation; and
/// read back when a profile is written, into the same type, to be asked for its fields. So `Serialize` has to say the same each
/// time, as it is asked again where there was no room, and `Deserialize` has to take what was said; formats that ask what comes
/// next (`deserialize_any`, `#[serde(untagged)]`, `#[serde(flatten)]`) are not had. Of a payload that cannot be coded or read back,
/// or panics, the profile has the marker alone, with a word of that behind its name. With `panic = "abort"` such a panic ends the
/// process, as any does. [`marker_type!`](crate::marker_type) makes all this from a list of fields.
///
/// If the library that has the type was unloaded, the profile has the marker alone, too; so it does if it was loaded again at
/// another address.
///
/// The name tells the viewer which type it is: two types with one name share the fields of both. Some names it takes for types of
/// its own, with fields without which the profile does not open: `Network` and `IPC`, for which
/// [`built_in`](crate::marker::built_in) has types, `GCMajor` and `GCSlice`. In the profile, a type of such a name that lacks them
/// has a `_` behind it.
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
    message = "`{Self}` is no type of markers",
    note = "`gekkota::marker_type!` makes one from a list of fields; `ProfilerMarker` can also be implemented"
)]
pub trait ProfilerMarker: MarkerPayload {
    /// The type's name, which no other type should have.
    fn marker_type_name() -> &'static str;

    /// Where and how the viewer shows markers of the type. Called once for a profile, on the thread that writes it.
    fn marker_type_display() -> MarkerSchema;

    /// Writes the fields of this payload. Called on the thread that writes a profile.
    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>);
}
