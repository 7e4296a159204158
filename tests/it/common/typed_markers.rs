//! Reads markers with fields by their schemas, as the viewer does.
#![allow(dead_code, reason = "each test binary uses some of the helpers")]

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::Read;

/// A marker of a thread.
#[derive(Clone, Debug)]
pub(crate) struct TypedMarker {
    pub(crate) name: String,
    pub(crate) start_ms: f64,
    /// `None` for an instant.
    pub(crate) end_ms: Option<f64>,
    pub(crate) type_name: String,
    /// Values by key. Indices into the table of strings are replaced by the strings.
    pub(crate) fields: BTreeMap<String, Value>,
}

impl TypedMarker {
    /// Returns a field. Panics if it is missing.
    #[track_caller]
    pub(crate) fn field(&self, key: &str) -> &Value {
        self.fields
            .get(key)
            .unwrap_or_else(|| panic!("no field {key} in {self:#?}"))
    }

    #[track_caller]
    pub(crate) fn text(&self, key: &str) -> &str {
        self.field(key)
            .as_str()
            .unwrap_or_else(|| panic!("{key} is not a text in {self:#?}"))
    }

    #[track_caller]
    pub(crate) fn number(&self, key: &str) -> f64 {
        self.field(key)
            .as_f64()
            .unwrap_or_else(|| panic!("{key} is not a number in {self:#?}"))
    }
}

/// Returns all markers of the threads with this name. Panics for a marker without a schema, and for a
/// field that its schema lacks, because the viewer would not show them.
#[track_caller]
pub(crate) fn typed_markers(read: &Read, thread_name: &str) -> Vec<TypedMarker> {
    let threads = read
        .threads()
        .iter()
        .filter(|thread| thread["name"] == thread_name);
    threads
        .flat_map(|thread| markers_of(read, thread))
        .collect()
}

/// Returns the only marker with this name. Panics if there is none or more than one.
#[track_caller]
pub(crate) fn only<'a>(markers: &'a [TypedMarker], name: &str) -> &'a TypedMarker {
    let mut named = markers.iter().filter(|marker| marker.name == name);
    match (named.next(), named.next()) {
        (Some(marker), None) => marker,
        (None, _) => panic!("no marker {name} among {:?}", names(markers)),
        _ => panic!("more than one marker {name} among {:?}", names(markers)),
    }
}

pub(crate) fn names(markers: &[TypedMarker]) -> Vec<&str> {
    markers.iter().map(|marker| marker.name.as_str()).collect()
}

fn markers_of(read: &Read, thread: &Value) -> Vec<TypedMarker> {
    let string = |index: &Value| {
        let index = index
            .as_u64()
            .unwrap_or_else(|| panic!("{index} is not an index of a table"))
            as usize;
        thread["stringTable"][index]
            .as_str()
            .expect("a string")
            .to_owned()
    };
    let rows = thread["markers"]["data"].as_array().expect("markers");
    rows.iter()
        .map(|row| {
            let data = row
                .get(5)
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            let type_name = data
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            let resolve = |(key, value): (String, Value)| {
                let value = match format_of(read, &type_name, &key) {
                    "unique-string" | "flow-id" => Value::String(string(&value)),
                    _ => value,
                };
                (key, value)
            };
            let own = ["type", "stack", "innerWindowID"];
            TypedMarker {
                name: string(&row[0]),
                start_ms: row[1].as_f64().expect("start"),
                end_ms: row[2].as_f64(),
                fields: data
                    .into_iter()
                    .filter(|(key, _)| !own.contains(&key.as_str()))
                    .map(resolve)
                    .collect(),
                type_name,
            }
        })
        .collect()
}

#[track_caller]
fn format_of<'a>(read: &'a Read, type_name: &str, key: &str) -> &'a str {
    let schemas = read.0["meta"]["markerSchema"].as_array().expect("schemas");
    let mut of_type = schemas.iter().filter(|schema| schema["name"] == type_name);
    let schema = of_type
        .next()
        .unwrap_or_else(|| panic!("no schema of {type_name}"));
    assert!(of_type.next().is_none(), "two schemas of {type_name}");
    let rows = schema["data"].as_array().expect("rows");
    let mut of_key = rows.iter().filter(|row| row["key"] == key);
    let row = of_key
        .next()
        .unwrap_or_else(|| panic!("{key} is not in the schema of {type_name}: {schema}"));
    assert!(
        of_key.next().is_none(),
        "{key} occurs twice in the schema of {type_name}"
    );
    row["format"].as_str().expect("a format")
}
