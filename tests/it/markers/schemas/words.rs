//! Schemas use the viewer's words, and describe exactly the types in the profile.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{keys_are_among, schemas};
use crate::common::Read;

pub(crate) const FORMATS: [&str; 21] = [
    "bytes",
    "decimal",
    "duration",
    "file-path",
    "flow-id",
    "hexadecimal",
    "integer",
    "list",
    "microseconds",
    "milliseconds",
    "nanoseconds",
    "percentage",
    "pid",
    "sanitized-string",
    "seconds",
    "string",
    "terminating-flow-id",
    "tid",
    "time",
    "unique-string",
    "url",
];
const PLACES: [&str; 8] = [
    "marker-chart",
    "marker-table",
    "stack-chart",
    "timeline-fileio",
    "timeline-ipc",
    "timeline-memory",
    "timeline-network",
    "timeline-overview",
];
const GRAPHS: [&str; 3] = ["bar", "line", "line-filled"];
const COLORS: [&str; 10] = [
    "blue", "green", "grey", "ink", "magenta", "orange", "purple", "red", "teal", "yellow",
];
/// Types that the viewer knows without a schema.
const WITHOUT_SCHEMA: [&str; 3] = ["CompositorScreenshot", "JS allocation", "Native allocation"];

/// Checks that all schemas use only words of the viewer, and together use every word.
pub(crate) fn check_schemas_use_viewer_words(read: &Read) {
    let schemas = schemas(read);
    let mut words: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut note = |what, word: &Value| {
        words
            .entry(what)
            .or_default()
            .insert(word.as_str().expect("a word").to_owned());
    };
    let list = |value: &Value| value.as_array().expect("a list").clone();
    for schema in schemas.values() {
        let optional = [
            "chartLabel",
            "tooltipLabel",
            "tableLabel",
            "colorField",
            "isStackBased",
            "graphs",
        ];
        keys_are_among(schema, &["name", "display", "data"], &optional);
        list(&schema["display"])
            .iter()
            .for_each(|place| note("places", place));
        for row in list(&schema["data"]) {
            if row.get("key").is_none() {
                keys_are_among(&row, &["label", "value"], &[]);
                continue;
            }
            keys_are_among(&row, &["key", "format"], &["label", "hidden"]);
            match &row["format"] {
                Value::Object(format) => {
                    assert_eq!(format["type"], "table", "{row}");
                    list(&format["columns"]).iter().for_each(|column| {
                        keys_are_among(column, &["label"], &["type"]);
                    });
                }
                word => note("formats", word),
            }
        }
        for graph in schema.get("graphs").map(list).unwrap_or_default() {
            keys_are_among(&graph, &["key", "type"], &["color"]);
            note("graphs", &graph["type"]);
            graph
                .get("color")
                .into_iter()
                .for_each(|color| note("colors", color));
            let has_field = list(&schema["data"])
                .iter()
                .any(|row| row["key"] == graph["key"]);
            assert!(has_field, "{schema}");
        }
    }
    for (what, expected) in [
        ("formats", &FORMATS[..]),
        ("places", &PLACES),
        ("graphs", &GRAPHS),
        ("colors", &COLORS),
    ] {
        assert!(
            words[what].iter().eq(expected.iter()),
            "{what}: {:?}",
            words[what]
        );
    }

    // The viewer shows the name next to both labels. It omits the name where a label of the table
    // begins with the name.
    for (name, schema) in &schemas {
        let label = |key: &str| schema[key].as_str().unwrap_or_default();
        let table = label("tableLabel");
        let table = table.strip_prefix("{marker.name} - ").unwrap_or(table);
        for label in [label("chartLabel"), table] {
            assert!(!label.contains("{marker.name}"), "{name}: {label}");
        }
    }

    let labels = schemas["labels"];
    assert_eq!(
        labels["chartLabel"],
        "{marker.data.path}: {marker.data.size}"
    );
    assert_eq!(
        labels["tooltipLabel"],
        "{marker.name} of {marker.category} took {marker.duration}"
    );
    assert!(
        labels["tableLabel"]
            .as_str()
            .is_some_and(|label| label.starts_with("{marker.name} - "))
    );
    assert_eq!(
        labels["data"][3],
        json!({"key": "attempt", "format": "integer", "hidden": true})
    );
    assert_eq!(
        labels["data"][4],
        json!({"label": "Description", "value": "Shows every kind of label."})
    );
    let columns = json!([{"label": "File"}, {"label": "Size", "type": "bytes"}, {"label": "Share", "type": "percentage"}]);
    assert_eq!(
        schemas["table"]["data"][0]["format"],
        json!({"type": "table", "columns": columns})
    );
    assert_eq!(
        (
            &schemas["colored"]["colorField"],
            &schemas["nested"]["isStackBased"]
        ),
        (&json!("color"), &json!(true))
    );
}

/// Checks that exactly the types of the profile's markers have schemas, and that each field of a
/// marker has a row in its schema.
pub(crate) fn check_schemas_match_marker_types(read: &Read, markers: &[(String, Value)]) {
    let schemas = schemas(read);
    let mut types = BTreeSet::new();
    for (name, data) in markers {
        let Some(fields) = data.as_object() else {
            continue;
        };
        let type_name = data["type"].as_str().expect("a type");
        types.insert(type_name);
        let Some(schema) = schemas.get(type_name) else {
            continue;
        };
        for key in fields
            .keys()
            .filter(|key| !["type", "stack", "innerWindowID"].contains(&key.as_str()))
        {
            let rows = schema["data"].as_array().expect("rows");
            assert!(
                rows.iter().any(|row| row["key"] == **key),
                "{key} of {name} is not in {schema}"
            );
        }
    }
    let without: Vec<_> = types
        .iter()
        .filter(|name| !schemas.contains_key(*name))
        .copied()
        .collect();
    let unused: Vec<_> = schemas
        .keys()
        .filter(|name| !types.contains(*name))
        .collect();
    let special: Vec<_> = WITHOUT_SCHEMA
        .into_iter()
        .filter(|name| types.contains(name))
        .collect();
    assert_eq!((without, unused), (special, vec![]));
}
