//! What tells the viewer how to show a marker's fields.

use crate::json::JsonWriter;

/// The schema of text markers, as Gecko has it.
#[doc(alias = "MarkerSchema")]
pub(crate) fn write_text_schema(json: &mut JsonWriter<'_>) {
    json.object(|json| {
        json.key("name").string("Text");
        json.key("chartLabel").string("{marker.data.name}");
        json.key("tableLabel").string("{marker.name} - {marker.data.name}");
        json.key("display").array(|json| {
            json.string("marker-chart");
            json.string("marker-table");
        });
        json.key("data").array(|json| {
            json.object(|json| {
                json.key("key").string("name");
                json.key("label").string("Details");
                json.key("format").string("unique-string");
            });
        });
    });
}
