//! The fields of markers that name flows.

use std::collections::HashMap;

use serde_json::Value;

use crate::model::{ProfileModel, TextId};

/// What a field says about the flow that it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlowField {
    Continues,
    Ends,
}

/// The fields of markers whose value is the id of a flow.
#[derive(Debug, Default)]
pub(crate) struct FlowFields<'a> {
    /// The fields' keys, by the name of the marker type.
    by_type: HashMap<&'a str, Vec<(String, FlowField)>>,
}

impl<'a> FlowFields<'a> {
    /// Reads the descriptions of all marker types. A description in any other form has no flows.
    pub(crate) fn of(profile: &'a ProfileModel) -> Self {
        let mut by_type = HashMap::new();
        for schema in &profile.marker_schemas {
            let described = serde_json::from_str(&schema.json).unwrap_or(Value::Null);
            // Older descriptions have the fields in `data`.
            let fields = ["fields", "data"].map(|list| described[list].as_array());
            let fields = fields.into_iter().flatten().flatten();
            let flows = fields.filter_map(|field| {
                let flow = match field["format"].as_str()? {
                    "flow-id" => FlowField::Continues,
                    "terminating-flow-id" => FlowField::Ends,
                    _ => return None,
                };
                Some((field["key"].as_str()?.to_owned(), flow))
            });
            let flows: Vec<_> = flows.collect();
            if !flows.is_empty() {
                by_type.insert(schema.name.as_str(), flows);
            }
        }
        Self { by_type }
    }

    /// Returns whether no field names a flow.
    pub(super) fn is_empty(&self) -> bool {
        self.by_type.is_empty()
    }

    /// Returns what a field of a marker type says about a flow; `None` if it names none.
    pub(crate) fn get(
        &self,
        profile: &ProfileModel,
        type_name: TextId,
        key: TextId,
    ) -> Option<FlowField> {
        if self.by_type.is_empty() {
            return None;
        }
        let fields = self.by_type.get(profile.text(type_name))?;
        let key = profile.text(key);
        let field = fields.iter().find(|(known, _)| known == key)?;
        Some(field.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MarkerSchema;

    #[test]
    fn flows_are_found_in_both_forms_of_a_description() {
        let mut profile = ProfileModel::default();
        let ids = ["New", "Old", "flow", "end", "url"].map(|text| profile.intern(text));
        let [new, old, flow, end, url] = ids;
        let schema = |name: &str, json: &str| MarkerSchema {
            name: name.into(),
            json: json.into(),
        };
        profile.marker_schemas = vec![
            schema(
                "New",
                r#"{"fields": [{"key": "flow", "format": "flow-id"}, {"key": "url", "format": "url"},
                    {"key": "table", "format": {"type": "table", "columns": []}}]}"#,
            ),
            schema(
                "Old",
                r#"{"data": [{"label": "x", "value": "y"}, {"key": "end", "format": "terminating-flow-id"}]}"#,
            ),
            schema("Broken", "["),
        ];
        let flows = FlowFields::of(&profile);
        assert_eq!(flows.get(&profile, new, flow), Some(FlowField::Continues));
        assert_eq!(flows.get(&profile, old, end), Some(FlowField::Ends));
        assert_eq!(flows.get(&profile, new, url), None);
        assert_eq!(flows.get(&profile, new, end), None);
    }
}
