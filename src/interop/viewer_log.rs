//! The type of markers that the viewer takes for lines of a log.

use crate::markers::built_in::Log;
use crate::markers::{Format, JSONWriter, MarkerSchema, ProfilerMarker};

/// Its name. Types of the same name share the fields of all, so that there is one log whoever wrote to it.
pub(super) fn name() -> &'static str {
    Log::marker_type_name()
}

/// Its schema, with where in the source a line was written. A record of `log` has no fields, but the labels are those of all.
pub(super) fn schema() -> MarkerSchema {
    let mut schema = Log::marker_type_display();
    schema
        .set_table_label("({marker.name}) {marker.data.message} {marker.data.fields}")
        .set_chart_label("{marker.data.message} {marker.data.fields}")
        .add_key_label_format("location", "Location", Format::UniqueString);
    schema
}

/// The viewer's words for levels, the gravest first.
pub(super) const LEVELS: [&str; 5] = ["Error", "Warning", "Info", "Debug", "Verbose"];

/// Writes what every line has.
pub(super) fn write_fields(json: &mut JSONWriter<'_>, level: u8, message: &str) {
    json.unique_string_property(
        "level",
        LEVELS.get(usize::from(level)).copied().unwrap_or_default(),
    );
    json.unique_string_property("message", message);
}

/// Writes where in the source it was written; nothing where that is not known.
pub(super) fn write_location(json: &mut JSONWriter<'_>, file: Option<&str>, line: Option<u32>) {
    match (file, line) {
        (Some(file), Some(line)) => {
            json.unique_string_property("location", &format!("{file}:{line}"))
        }
        (Some(file), None) => json.unique_string_property("location", file),
        (None, _) => {}
    }
}
