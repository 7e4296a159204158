//! The descriptions of marker types.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::json::JsonWriter;
use crate::model::{MarkerSchema, ProfileModel};

/// Display location of markers that the viewer shows next to the graph of their thread.
const OVERVIEW: &str = "timeline-overview";

/// The descriptions of all marker types.
pub(super) struct Schemas {
    /// In the JSON of this format.
    schemas: Vec<String>,
    /// Names of the types with that display location.
    in_overview: HashSet<String>,
}

impl Schemas {
    pub(super) fn of(profile: &ProfileModel) -> Self {
        let mut all = Self {
            schemas: Vec::new(),
            in_overview: HashSet::new(),
        };
        for schema in &profile.marker_schemas {
            let converted = convert(schema);
            let display = converted.get("display").and_then(Value::as_array);
            if display.is_some_and(|display| display.iter().any(|place| place == OVERVIEW)) {
                all.in_overview.insert(schema.name.clone());
            }
            all.schemas.push(Value::Object(converted).to_string());
        }
        all
    }

    pub(super) fn is_in_overview(&self, type_name: &str) -> bool {
        self.in_overview.contains(type_name)
    }

    pub(super) fn write(&self, json: &mut JsonWriter<'_>) {
        json.array(|json| self.schemas.iter().for_each(|schema| json.splice(schema)));
    }
}

/// Converts a description from Gecko's form. Gecko lists fields and fixed texts together, as
/// `data`. This format has the fields in `fields`, and one text, as `description`.
fn convert(schema: &MarkerSchema) -> Map<String, Value> {
    let parsed = serde_json::from_str(&schema.json).unwrap_or_default();
    let mut object = match parsed {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    if let Some(Value::Array(data)) = object.remove("data") {
        let (fields, texts): (Vec<_>, Vec<_>) =
            data.into_iter().partition(|item| item.get("key").is_some());
        let is_description = |text: &&Value| text["label"] == "Description";
        let text = texts.iter().find(is_description).or(texts.first());
        if let Some(value) = text.and_then(|text| text.get("value")) {
            object.insert("description".to_owned(), value.clone());
        }
        object.insert("fields".to_owned(), fields.into());
    }
    // The viewer requires these.
    let required = [
        ("name", json!(schema.name)),
        ("display", json!(["marker-chart", "marker-table"])),
        ("fields", json!([])),
    ];
    for (key, value) in required {
        object.entry(key).or_insert(value);
    }
    object
}
