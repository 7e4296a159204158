//! The marker types of a profile: their names, and their schemas for the viewer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::json::{JsonWriter, json_text};
use crate::markers::{
    Format, JSONWriter, Location, MarkerSchema, MarkerType, PayloadFailure, WITH_REQUIRED_FIELDS,
    name_for_fields,
};
use crate::model::STANDS_FOR;
use crate::stream::decode::{
    PastProcess, ProcessStreamingContext, ProfileSource, ThreadStreamingContext,
};
use crate::util::{NumberMap, run_callback};

/// The type of markers whose payload is a text.
pub(crate) const TEXT: &str = "Text";

/// The type of markers that have only a stack or a window.
pub(crate) const ONLY_USER_DATA: &str = "NoPayloadUserData";

/// The type of the intervals in which the samples of a thread have one context.
pub(crate) const SAMPLE_CONTEXT: &str = "SampleContext";

/// The name of these intervals.
pub(crate) const CONTEXT_NAME: &str = "Context";

/// The type of the intervals in which a task waits.
pub(crate) const TASK_WAIT: &str = "TaskWait";

/// The name of these intervals.
pub(crate) const WAIT_NAME: &str = "Waiting";

/// Key of their field with the names of the futures.
pub(crate) const WAIT_TEXT: &str = "futures";

/// Types without a schema, because the viewer never shows a row of them.
const WITHOUT_SCHEMA: &[&str] = &["CompositorScreenshot", "JS allocation", "Native allocation"];

/// A type of the application, of which a payload can be written.
#[derive(Debug)]
pub(crate) struct KnownType {
    /// The type's name in the profile.
    pub(crate) name: Cow<'static, str>,
    payloads: Payloads,
}

/// What writes the payloads of a type.
#[derive(Debug)]
enum Payloads {
    /// The application's code.
    Own(&'static MarkerType),
    /// The description that a process that has ended has left.
    Described(Arc<PastProcess>, u64),
}

impl KnownType {
    /// Writes the fields of a payload. May call the application's code, which may panic.
    pub(crate) fn stream(
        &self,
        bytes: &[u8],
        json: &mut JSONWriter<'_>,
    ) -> Result<(), PayloadFailure> {
        match &self.payloads {
            Payloads::Own(info) => info.stream(bytes, json),
            Payloads::Described(past, number) => match past.marker_types.get(number) {
                Some(described) => described.stream(bytes, json),
                None => Err(PayloadFailure::NotDescribed),
            },
        }
    }
}

/// The application's types that the profile's markers use, by number.
#[derive(Debug, Default)]
pub(crate) struct MarkerTypes {
    known: NumberMap<Result<KnownType, PayloadFailure>>,
    schemas: BTreeMap<String, MarkerSchema>,
    /// The schemas that a process that has ended has left, as JSON.
    described: BTreeMap<String, String>,
}

impl MarkerTypes {
    /// Queries each used type for its name and its schema.
    pub(crate) fn of_profile(source: &ProfileSource, process: &ProcessStreamingContext) -> Self {
        let mut types = Self::default();
        let used = &process.marker_types;
        let has_contexts = |thread: &ThreadStreamingContext| !thread.contexts.all.is_empty();
        if process.threads.iter().any(has_contexts) {
            let keys = process.contexts.keys(source);
            let mut schema = in_chart_and_table();
            add_context_keys(&mut schema, keys);
            types.schemas.insert(SAMPLE_CONTEXT.to_owned(), schema);
        }
        if process.task_waits.intervals().next().is_some() {
            let keys = process.contexts.keys(source);
            let schema = wait_schema(keys);
            types.schemas.insert(TASK_WAIT.to_owned(), schema);
        }
        if used.texts {
            types.schemas.insert(TEXT.to_owned(), text_schema());
        }
        let all = MarkerType::all();
        for &number in &used.typed {
            if let Some(past) = &source.past {
                let known = types.described(past, number);
                types.known.insert(number, known);
                continue;
            }
            let known = match all.get(&number) {
                // Only a damaged buffer has such a number.
                None => Err(PayloadFailure::NotDeserialized),
                Some(info) => types.query(info),
            };
            types.known.insert(number, known);
        }
        let may_lose_type = |number: &u64| match types.get(*number) {
            Ok(known) => type_without_payload(&known.name) == ONLY_USER_DATA,
            Err(_) => true,
        };
        if used.only_user_data || used.typed_with_user_data.iter().any(may_lose_type) {
            let schema = in_chart_and_table();
            types.schemas.insert(ONLY_USER_DATA.to_owned(), schema);
        }
        if used.left_out > 0 {
            types.add_stands_for();
        }
        types
    }

    /// Lets the viewer show for how many others a marker stands.
    fn add_stands_for(&mut self) {
        const LABEL: &str = "Stands for markers";
        for schema in self.schemas.values_mut() {
            schema.add_key_label_format(STANDS_FOR, LABEL, Format::Integer);
        }
        let row = serde_json::json!({"key": STANDS_FOR, "label": LABEL, "format": "integer"});
        for text in self.described.values_mut() {
            if let Ok(mut schema) = serde_json::from_str::<serde_json::Value>(text)
                && let Some(rows) = schema["data"].as_array_mut()
            {
                rows.push(row.clone());
                *text = schema.to_string();
            }
        }
    }

    /// Finds a type that another process has described.
    fn described(
        &mut self,
        past: &Arc<PastProcess>,
        number: u64,
    ) -> Result<KnownType, PayloadFailure> {
        let described = past.marker_types.get(&number);
        let described = described.ok_or(PayloadFailure::NotDescribed)?;
        let (name, schema) = (&described.name, &described.schema);
        // A type that the viewer has needs no schema.
        if serde_json::from_str::<&RawValue>(schema).is_ok() && !self.schemas.contains_key(name) {
            self.described.insert(name.clone(), schema.clone());
        }
        Ok(KnownType {
            name: Cow::Owned(name.clone()),
            payloads: Payloads::Described(Arc::clone(past), number),
        })
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
        Ok(KnownType {
            name: Cow::Borrowed(name),
            payloads: Payloads::Own(info),
        })
    }

    pub(crate) fn get(&self, number: u64) -> Result<&KnownType, PayloadFailure> {
        match self.known.get(&number) {
            Some(known) => known.as_ref().map_err(|failure| *failure),
            None => Err(PayloadFailure::NotDeserialized),
        }
    }

    /// Returns the name of each type, and its description as an element of `meta.markerSchema`.
    pub(crate) fn schemas_as_json(&self) -> impl Iterator<Item = (&str, String)> {
        let own = self.schemas.iter().map(|(name, schema)| {
            let text = json_text(|json| schema.write(json, name));
            (name.as_str(), text)
        });
        let described = self.described.iter();
        own.chain(described.map(|(name, schema)| (name.as_str(), schema.clone())))
    }

    /// Writes the elements of `meta.markerSchema`.
    pub(crate) fn write_schemas(&self, json: &mut JsonWriter<'_>) {
        // A type that is built into the viewer has none.
        let schemas = self.schemas_as_json().filter(|(_, text)| !text.is_empty());
        schemas.for_each(|(_, schema)| json.splice(schema.as_bytes()));
    }
}

/// Returns the type of a marker whose payload is left out. A type that the viewer shows by fixed
/// fields is replaced, because the marker lacks them.
pub(crate) fn type_without_payload(name: &str) -> &str {
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

fn in_chart_and_table() -> MarkerSchema {
    MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable])
}

/// Returns the schema of the intervals in which tasks wait.
fn wait_schema(keys: Vec<Cow<'static, str>>) -> MarkerSchema {
    let mut schema = in_chart_and_table();
    schema
        .set_chart_label("{marker.data.futures}")
        .set_table_label("{marker.name} - {marker.data.futures}")
        .add_key_label_format(WAIT_TEXT, "Futures", Format::UniqueString);
    add_context_keys(&mut schema, keys);
    schema
}

fn add_context_keys(schema: &mut MarkerSchema, keys: Vec<Cow<'static, str>>) {
    for key in keys {
        let label = match &*key {
            "trace_id" => "Trace id",
            "span_id" => "Span id",
            other => other,
        };
        schema.add_key_label_format(&key, label, Format::UniqueString);
    }
}

/// Returns the id that the track of the tasks that wait has in place of a thread's: larger than
/// that of any thread, and another one for each process.
pub(crate) const fn waiting_tasks_tid(process: i64) -> i64 {
    process + (1 << 30)
}

/// Returns Gecko's schema for text markers.
fn text_schema() -> MarkerSchema {
    let mut schema = in_chart_and_table();
    schema
        .set_chart_label("{marker.data.name}")
        .set_table_label("{marker.name} - {marker.data.name}")
        .add_key_label_format("name", "Details", Format::UniqueString);
    schema
}
