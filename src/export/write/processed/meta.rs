//! The facts about the whole profile, and those about its processes.

use serde_json::Value;

use crate::export::sampled_range::sampled_range;
use crate::export::write::processed::columns::{column, time_ms};
use crate::export::write::processed::context::Context;
use crate::json::JsonWriter;
use crate::model::ProfileModel;

/// Version of the format that is written.
const VERSION: u64 = 70;

/// Version of Gecko's format. The viewer does not read it in a processed profile, but requires it.
const GECKO_VERSION: u64 = 36;

/// Fields that this writer does not copy from `Meta::other`: it writes them itself, or only Gecko's
/// format has them.
const OWN_FIELDS: &[&str] = &[
    "version",
    "preprocessedProfileVersion",
    "startTime",
    "interval",
    "product",
    "categories",
    "markerSchema",
    "sampleUnits",
    "symbolicated",
    "presymbolicated",
    "profilingStartTime",
    "profilingEndTime",
    "shutdownTime",
    "extensions",
    "debug",
    "importedFrom",
];

/// Fields that the viewer requires, with the values that this writer uses if the model has none.
const REQUIRED_FIELDS: &[(&str, &str)] = &[("processType", "0"), ("stackwalk", "1")];

pub(super) fn write_meta(json: &mut JsonWriter<'_>, context: &Context<'_>) {
    let meta = &context.profile.meta;
    let other = |key: &str| {
        let mut all = meta.other.iter();
        all.find(|(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    };
    json.object(|json| {
        json.key("version").unsigned(GECKO_VERSION);
        json.key("preprocessedProfileVersion").unsigned(VERSION);
        json.key("product").string(&meta.product);
        json.key("startTime").float(meta.start_epoch_ms);
        json.key("interval").time_ms(meta.interval_ns);
        if let Some((start_ns, end_ns)) = session_range(context) {
            time_ms(json.key("profilingStartTime"), start_ns);
            time_ms(json.key("profilingEndTime"), end_ns);
        }
        json.key("symbolicated").bool(meta.is_symbolicated);
        context.categories.write(json.key("categories"));
        context.schemas.write(json.key("markerSchema"));
        json.key("sampleUnits").object(|json| {
            json.key("time").string("ms");
            json.key("eventDelay").string("ms");
            json.key("threadCPUDelta").string("ns");
        });
        write_extensions(json.key("extensions"), other("extensions"));
        // A number in Gecko's format.
        let is_debug = other("debug").is_some_and(|value| !matches!(value, "0" | "false" | "null"));
        json.key("debug").bool(is_debug);
        for (key, value) in REQUIRED_FIELDS {
            if other(key).is_none() {
                json.key(key).splice(value);
            }
        }
        if meta.product != "Firefox" && other("sourceCodeIsNotOnSearchfox").is_none() {
            // Searchfox has the code of Firefox only.
            json.key("sourceCodeIsNotOnSearchfox").bool(true);
        }
        for (key, value) in &meta.other {
            if !OWN_FIELDS.contains(&key.as_str()) {
                json.key(key).splice(value);
            }
        }
    });
}

/// Returns the start and the end of the session, extended to all samples: the viewer hides those
/// outside, and one at the very end. `None` without a session, or without samples: an empty range
/// takes `profiler-cli` all memory.
fn session_range(context: &Context<'_>) -> Option<(i64, i64)> {
    let meta = &context.profile.meta;
    let (start_ns, end_ns) = meta.session_ns?;
    let interval_ns = i64::try_from(meta.interval_ns.max(1)).unwrap_or(i64::MAX);
    let threads = context.threads.iter();
    let samples = threads.map(|&index| &context.profile.threads[index].samples);
    let (first_ns, last_ns) = sampled_range(samples)?;
    let last_ns = last_ns.saturating_add(interval_ns);
    Some((start_ns.min(first_ns), end_ns.max(last_ns)))
}

/// Writes the table of browser extensions, which has columns in this format and rows in Gecko's.
fn write_extensions(json: &mut JsonWriter<'_>, table: Option<&str>) {
    let table: Value = table
        .and_then(|table| serde_json::from_str(table).ok())
        .unwrap_or_default();
    let cells = |key: &str| -> Vec<&Value> {
        let at = table["schema"][key].as_u64().unwrap_or(u64::MAX) as usize;
        let rows = table["data"].as_array().into_iter().flatten();
        let column = table[key].as_array().into_iter().flatten();
        column.chain(rows.map(|row| &row[at])).collect()
    };
    let columns = ["baseURL", "id", "name"].map(|key| (key, cells(key)));
    let lengths = columns.iter().map(|(_, cells)| cells.len());
    let length = lengths.min().unwrap_or(0);
    json.object(|json| {
        for (key, cells) in &columns {
            column(json, key, cells.iter().take(length), |json, cell| {
                json.string(cell.as_str().unwrap_or(""));
            });
        }
        json.key("length").unsigned(length as u64);
    });
}

/// Writes the lists that have an entry for each process, or several.
pub(super) fn write_process_facts(json: &mut JsonWriter<'_>, profile: &ProfileModel) {
    let processes = profile.processes.iter();
    let pages = processes
        .clone()
        .filter_map(|process| items(&process.pages, '[', ']'));
    let pages: Vec<&str> = pages.collect();
    if !pages.is_empty() {
        json.key("pages")
            .array(|json| pages.iter().for_each(|pages| json.splice(pages)));
    }
    json.key("profilingLog").object(|json| {
        for entries in processes.filter_map(|process| items(&process.log, '{', '}')) {
            json.splice(entries);
        }
    });
}

/// Returns what is between the brackets of a JSON value; `None` if there is nothing.
fn items(json: &str, open: char, close: char) -> Option<&str> {
    let items = json.trim().strip_prefix(open)?.strip_suffix(close)?.trim();
    (!items.is_empty()).then_some(items)
}
