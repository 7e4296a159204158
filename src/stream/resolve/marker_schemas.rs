//! The marker types of a profile: their names, and their schemas for the viewer.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::json::{JsonWriter, json_text};
use crate::markers::{Format, Location, MarkerSchema, MarkerType, PayloadFailure};
use crate::stream::decode::UsedMarkerTypes;
use crate::util::{NumberMap, run_callback};

/// The type of markers whose payload is a text.
pub(crate) const TEXT: &str = "Text";

/// The type of markers that have only a stack or a window.
pub(crate) const ONLY_USER_DATA: &str = "NoPayloadUserData";

/// Types that the viewer shows by fixed fields instead of a schema. For each: the name, the
/// required fields, and the replacement name for an application's type that has the viewer's name
/// but lacks a required field.
const WITH_REQUIRED_FIELDS: &[(&str, &[&str], &str)] = &[
    ("GCMajor", &["timings"], "GCMajor_"),
    ("GCSlice", &["timings"], "GCSlice_"),
    (
        "IPC",
        &[
            "startTime",
            "endTime",
            "otherPid",
            "messageType",
            "messageSeqno",
            "direction",
            "phase",
        ],
        "IPC_",
    ),
    (
        "Network",
        &["id", "status", "URI", "startTime", "endTime"],
        "Network_",
    ),
];

/// Types without a schema, because the viewer never shows a row of them.
const WITHOUT_SCHEMA: &[&str] = &["CompositorScreenshot", "JS allocation", "Native allocation"];

/// A type of the application whose code can be called.
#[derive(Debug)]
pub(crate) struct KnownType {
    pub(crate) name: &'static str,
    pub(crate) info: &'static MarkerType,
}

/// The application's types that the profile's markers use, by number.
#[derive(Debug, Default)]
pub(crate) struct MarkerTypes {
    known: NumberMap<Result<KnownType, PayloadFailure>>,
    schemas: BTreeMap<String, MarkerSchema>,
}

impl MarkerTypes {
    /// Queries each used type for its name and its schema.
    pub(crate) fn of_profile(used: &UsedMarkerTypes) -> Self {
        let mut types = Self::default();
        if used.texts {
            types.schemas.insert(TEXT.to_owned(), text_schema());
        }
        let all = MarkerType::all();
        for &number in &used.typed {
            let known = match all.get(&number) {
                // Only a damaged buffer has such a number.
                None => Err(PayloadFailure::NotDeserialized),
                Some(info) => types.query(info),
            };
            types.known.insert(number, known);
        }
        let may_lose_type = |number: &u64| match types.get(*number) {
            Ok(known) => type_without_payload(known.name) == ONLY_USER_DATA,
            Err(_) => true,
        };
        if used.only_user_data || used.typed_with_user_data.iter().any(may_lose_type) {
            let schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
            types.schemas.insert(ONLY_USER_DATA.to_owned(), schema);
        }
        types
    }

    fn query(&mut self, info: &'static MarkerType) -> Result<KnownType, PayloadFailure> {
        if !info.is_loaded() {
            return Err(PayloadFailure::Unloaded);
        }
        let mut answer = None;
        run_callback(|| answer = Some((info.name(), info.schema())));
        let (name, schema) = answer.ok_or(PayloadFailure::Panicked)?;
        let name = name_for_fields(name, &schema);
        match self.schemas.get_mut(name) {
            Some(known) => known.merge(schema),
            None => _ = self.schemas.insert(name.to_owned(), schema),
        }
        Ok(KnownType { name, info })
    }

    pub(crate) fn get(&self, number: u64) -> Result<&KnownType, PayloadFailure> {
        match self.known.get(&number) {
            Some(known) => known.as_ref().map_err(|failure| *failure),
            None => Err(PayloadFailure::NotDeserialized),
        }
    }

    /// Returns the name of each type, and its description as an element of `meta.markerSchema`.
    pub(crate) fn schemas_as_json(&self) -> impl Iterator<Item = (&str, String)> {
        self.schemas.iter().map(|(name, schema)| {
            let text = json_text(|json| schema.write(json, name));
            (name.as_str(), text)
        })
    }

    /// Writes the elements of `meta.markerSchema`.
    pub(crate) fn write_schemas(&self, json: &mut JsonWriter<'_>) {
        self.schemas
            .iter()
            .for_each(|(name, schema)| schema.write(json, name));
    }
}

fn name_for_fields(name: &'static str, schema: &MarkerSchema) -> &'static str {
    match WITH_REQUIRED_FIELDS
        .iter()
        .find(|(known, ..)| *known == name)
    {
        Some((_, fields, other_name)) if !fields.iter().all(|field| schema.has_field(field)) => {
            other_name
        }
        _ => name,
    }
}

/// Returns the type of a marker whose payload is left out. A type that the viewer shows by fixed
/// fields is replaced, because the marker lacks them.
pub(crate) fn type_without_payload(name: &'static str) -> &'static str {
    let has_fixed_fields = WITHOUT_SCHEMA.contains(&name)
        || WITH_REQUIRED_FIELDS
            .iter()
            .any(|(known, ..)| *known == name);
    if has_fixed_fields {
        ONLY_USER_DATA
    } else {
        name
    }
}

/// Returns a text of the buffer, with U+FFFD for each part that is not UTF-8.
pub(crate) fn to_text(bytes: &[u8]) -> Cow<'_, str> {
    // Faster than `from_utf8_lossy` for the texts that are UTF-8, which almost all are.
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

/// Returns the name by which the viewer finds a marker of a type with its own view, if that is not
/// the marker's name. The viewer takes a marker for a screenshot by its name alone, and cannot open
/// the profile if that marker lacks the fields of a screenshot.
pub(crate) fn name_for_viewer(name: &str, type_name: &str) -> Option<&'static str> {
    const SCREENSHOT: &str = "CompositorScreenshot";
    match (name, type_name) {
        (_, "IPC") => Some("IPC"),
        (_, SCREENSHOT) => Some(SCREENSHOT),
        (SCREENSHOT, _) => Some("Compositor screenshot"),
        _ => None,
    }
}

/// Returns Gecko's schema for text markers.
fn text_schema() -> MarkerSchema {
    let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
    schema
        .set_chart_label("{marker.data.name}")
        .set_table_label("{marker.name} - {marker.data.name}")
        .add_key_label_format("name", "Details", Format::UniqueString);
    schema
}
