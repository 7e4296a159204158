//! Looks into the payloads of markers.

use crate::json::JsonWriter;
use crate::model::{FieldValue, Marker, ProfileModel};

/// Returns whether a marker is of this type.
pub(super) fn is_of_type(profile: &ProfileModel, marker: &Marker<'_>, type_name: &str) -> bool {
    let payload = marker.payload;
    payload.is_some_and(|payload| profile.text(payload.type_name) == type_name)
}

/// Returns the value of a marker's field.
pub(super) fn field(profile: &ProfileModel, marker: &Marker<'_>, key: &str) -> Option<FieldValue> {
    let mut fields = marker.payload?.fields.iter();
    let (_, value) = fields.find(|(name, _)| profile.text(*name) == key)?;
    Some(*value)
}

/// Writes the value of a field, and its text rather than the text's number.
pub(super) fn write_value(json: &mut JsonWriter<'_>, profile: &ProfileModel, value: FieldValue) {
    match value {
        FieldValue::Null => json.null(),
        FieldValue::Bool(value) => json.bool(value),
        FieldValue::Integer(value) => json.signed(value),
        FieldValue::Number(value) => json.float(value),
        FieldValue::Text(text) | FieldValue::UniqueText(text) => json.string(profile.text(text)),
        FieldValue::Json(text) => json.splice(profile.text(text)),
    }
}
