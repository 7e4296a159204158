//! Writes the processed format of the Firefox Profiler.
//!
//! A frame of this format has its function, library, file, line, address, inline depth and native
//! symbol together, so the source view, the assembly view and the badges of inlined calls work. The
//! text of a source file is in `sources.content`, so the source view needs no server.
//!
//! The crate `fxprof-processed-profile` is not used: its release writes version 55, which has no
//! texts of source files and no descriptions of counters. It also holds the whole profile a second
//! time before it writes.
//!
//! The version is 70. A reader upgrades an older version than its own, but refuses a newer one. The
//! page of August 2026 reads up to 70; `profiler-cli` 0.10.0 reads up to 75. The later versions
//! mostly pack columns into flags.
//!
//! The profile streams to the output, one column after another. In memory are only numbers: which
//! rows of the model are written, and where each of its texts is in `stringArray`.

mod columns;
mod context;
mod counters;
mod tables;
mod threads;

#[cfg(test)]
mod fact_tests;
#[cfg(test)]
mod sample_model;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use serde_json::Value;

use crate::export::options::{ExportOptions, sampled_range};
use crate::export::write::processed::columns::{Strings, column};
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

/// Writes a profile in the processed format.
///
/// # Errors
/// Returns the first failure of `out`.
pub(crate) fn write_processed(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let context = Context::new(profile, options);
    let mut strings = Strings::new(profile);
    let mut json = JsonWriter::new(out);
    json.object(|json| {
        write_meta(json.key("meta"), &context);
        context.libs.write(json.key("libs"), profile);
        write_process_facts(json, profile);
        counters::write_counters(json.key("counters"), &context);
        json.key("threads").array(|json| {
            for &index in &context.threads {
                if json.failed() {
                    return;
                }
                threads::write_thread(json, &context, &mut strings, index);
            }
        });
        json.key("shared").object(|json| {
            tables::write_stack_table(json.key("stackTable"), &context);
            tables::write_frame_table(json.key("frameTable"), &context);
            tables::write_functions(json, &context, &mut strings);
            tables::write_native_symbols(json.key("nativeSymbols"), &context, &mut strings);
            // The last table: all others add to it.
            strings.write(json.key("stringArray"));
        });
    });
    json.finish()
}

fn write_meta(json: &mut JsonWriter<'_>, context: &Context<'_>) {
    let meta = &context.profile.meta;
    let other = |key: &str| {
        let found = meta.other.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    };
    json.object(|json| {
        json.key("version").unsigned(GECKO_VERSION);
        json.key("preprocessedProfileVersion").unsigned(VERSION);
        json.key("product").string(&meta.product);
        json.key("startTime").float(meta.start_epoch_ms);
        json.key("interval").time_ms(meta.interval_ns);
        if let Some((start_ns, end_ns)) = session_range(context) {
            json.key("profilingStartTime").signed_time_ms(start_ns);
            json.key("profilingEndTime").signed_time_ms(end_ns);
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
fn write_process_facts(json: &mut JsonWriter<'_>, profile: &ProfileModel) {
    let processes = || profile.processes.iter();
    let pages = || processes().filter_map(|process| items(&process.pages, '[', ']'));
    if pages().next().is_some() {
        column(json, "pages", pages(), |json, pages| json.splice(pages));
    }
    let logs = processes().filter_map(|process| items(&process.log, '{', '}'));
    json.key("profilingLog")
        .object(|json| logs.for_each(|entries| json.splice(entries)));
}

/// Returns what is between the brackets of a JSON value; `None` if there is nothing.
fn items(json: &str, open: char, close: char) -> Option<&str> {
    let items = json.trim().strip_prefix(open)?.strip_suffix(close)?.trim();
    (!items.is_empty()).then_some(items)
}
