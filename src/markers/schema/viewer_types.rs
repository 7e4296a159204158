//! The types that the viewer shows by fixed fields instead of a schema.

use crate::markers::schema::marker_schema::MarkerSchema;

/// Types that the viewer shows by fixed fields instead of a schema. For each: the name, the
/// required fields, and the replacement name for an application's type that has the viewer's name
/// but lacks a required field.
pub(crate) const WITH_REQUIRED_FIELDS: &[(&str, &[&str], &str)] = &[
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

/// Returns the name of a type of the application in the profile.
pub(crate) fn name_for_fields(name: &'static str, schema: &MarkerSchema) -> &'static str {
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
