//! The marker type that the viewer shows as lines of a log.

use crate::markers::Log;
use crate::markers::{Format, JSONWriter, MarkerSchema, ProfilerMarker};

/// Returns the type's name. Types with one name share their fields, so `log` and `tracing`
/// contribute to one log in the viewer.
pub(crate) fn name() -> &'static str {
    Log::marker_type_name()
}

/// Returns the type's schema, which adds a source location to Gecko's. The labels apply to all
/// types with this name, so they refer to `fields`, which `log` records lack.
pub(crate) fn schema() -> MarkerSchema {
    let mut schema = Log::marker_type_display();
    schema
        .set_table_label("{marker.data.message} {marker.data.fields}")
        .set_chart_label("{marker.data.message} {marker.data.fields}")
        .add_key_label_format("location", "Location", Format::UniqueString);
    schema
}

/// The viewer's keywords for levels, the most severe first.
pub(crate) const LEVELS: [&str; 5] = ["Error", "Warning", "Info", "Debug", "Verbose"];

/// Writes the fields that every line of the log has.
pub(crate) fn write_fields(json: &mut JSONWriter<'_>, level: u8, message: &str) {
    json.unique_string_property(
        "level",
        LEVELS.get(usize::from(level)).copied().unwrap_or_default(),
    );
    json.unique_string_property("message", message);
}

/// Writes the source location of a record or span; nothing if the file is unknown.
pub(crate) fn write_location(json: &mut JSONWriter<'_>, file: Option<&str>, line: Option<u32>) {
    match (file, line) {
        (Some(file), Some(line)) => {
            json.unique_string_property("location", &format!("{file}:{line}"))
        }
        (Some(file), None) => json.unique_string_property("location", file),
        (None, _) => {}
    }
}
