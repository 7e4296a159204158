//! The types of a profile's markers: what they are called, and how the viewer shows them.

use std::collections::BTreeMap;

use crate::base::{NumberMap, call_host};
use crate::json::JsonWriter;
use crate::markers::{Format, Location, MarkerSchema, MarkerType, PayloadFailure};
use crate::stream::decode::UsedMarkerTypes;

/// The type of markers with nothing but a text.
pub(super) const TEXT: &str = "Text";

/// The type of those with nothing but a stack or a window.
pub(super) const ONLY_USER_DATA: &str = "NoPayloadUserData";

/// Types that the viewer does not show by their schemas, but by fields that it takes for granted, and what a type of the host's
/// is called that has the name and not the fields.
const WITH_GRANTED_FIELDS: &[(&str, &[&str], &str)] = &[
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

/// Those that have no schema, since the viewer never shows a row of them.
const WITHOUT_SCHEMA: &[&str] = &["CompositorScreenshot", "JS allocation", "Native allocation"];

/// A type of the host's, whose code can be called.
#[derive(Debug)]
pub(super) struct KnownType {
    pub(super) name: &'static str,
    pub(super) info: &'static MarkerType,
}

/// Those of the host's that markers of the profile have, by their numbers.
#[derive(Debug, Default)]
pub(super) struct MarkerTypes {
    known: NumberMap<Result<KnownType, PayloadFailure>>,
    schemas: BTreeMap<String, MarkerSchema>,
}

impl MarkerTypes {
    /// Asks each type for its name and its schema.
    pub(super) fn of_profile(used: &UsedMarkerTypes) -> Self {
        let mut types = Self::default();
        if used.texts {
            types.schemas.insert(TEXT.to_owned(), text_schema());
        }
        let all = MarkerType::all();
        for &number in &used.typed {
            let known = match all.get(&number) {
                // Only a damaged buffer has such a number.
                None => Err(PayloadFailure::Unreadable),
                Some(info) => types.ask(info),
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

    fn ask(&mut self, info: &'static MarkerType) -> Result<KnownType, PayloadFailure> {
        if !info.is_loaded() {
            return Err(PayloadFailure::Unloaded);
        }
        let mut answer = None;
        call_host(|| answer = Some((info.name(), info.schema())));
        let (name, schema) = answer.ok_or(PayloadFailure::Panicked)?;
        let name = name_with_granted_fields(name, &schema);
        match self.schemas.get_mut(name) {
            Some(known) => known.merge(schema),
            None => _ = self.schemas.insert(name.to_owned(), schema),
        }
        Ok(KnownType { name, info })
    }

    pub(super) fn get(&self, number: u64) -> Result<&KnownType, PayloadFailure> {
        match self.known.get(&number) {
            Some(known) => known.as_ref().map_err(|failure| *failure),
            None => Err(PayloadFailure::Unreadable),
        }
    }

    /// Writes the elements of `meta.markerSchema`.
    pub(super) fn write_schemas(&self, json: &mut JsonWriter<'_>) {
        self.schemas
            .iter()
            .for_each(|(name, schema)| schema.write(json, name));
    }
}

fn name_with_granted_fields(name: &'static str, schema: &MarkerSchema) -> &'static str {
    match WITH_GRANTED_FIELDS
        .iter()
        .find(|(known, ..)| *known == name)
    {
        Some((_, fields, other_name)) if !fields.iter().all(|field| schema.has_field(field)) => {
            other_name
        }
        _ => name,
    }
}

/// The type of a marker whose payload is left out: one of the viewer's own would be without what it takes for granted.
pub(super) fn type_without_payload(name: &'static str) -> &'static str {
    let is_viewers = WITHOUT_SCHEMA.contains(&name)
        || WITH_GRANTED_FIELDS.iter().any(|(known, ..)| *known == name);
    if is_viewers { ONLY_USER_DATA } else { name }
}

/// As Gecko has it.
fn text_schema() -> MarkerSchema {
    let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
    schema
        .set_chart_label("{marker.data.name}")
        .set_table_label("{marker.name} - {marker.data.name}")
        .add_key_label_format("name", "Details", Format::UniqueString);
    schema
}
