//! Writes the profile's `meta`, with the losses of data, the program's version and the profiler's cost,
//! and the profile's pages.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::buffer::Dropped;
use crate::json::JsonWriter;
use crate::platform::{on_own_descriptors, system_info};
use crate::stream::decode::{PastProcess, ProcessStreamingContext, ProfileSource};
use crate::stream::resolve::{MarkerTypes, code_id, library_name};
use crate::stream::write::warnings::write_warnings;
use crate::types::{
    BUFFER_MEMORY, CategoryInfo, Features, PROFILER_SECTION, Page, SAMPLER_CPU, STOP_TIME,
    TimeStamp, Warning, signal_name,
};

/// Version of the format. Since version 36, the texts of markers are string indices.
const FORMAT_VERSION: u64 = 36;

pub(crate) fn write_meta(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    process: &ProcessStreamingContext,
    types: &MarkerTypes,
    symbolicated: bool,
    warnings: &[Warning],
) {
    let (started_at, ended_at) = source.profiling_times();
    let settings = &source.session.settings;
    let system = on_own_descriptors(system_info);
    json.object(|json| {
        json.key("version").unsigned(FORMAT_VERSION);
        json.key("startTime").float(source.process_start.epoch_ms);
        json.key("startTimeAsClockMonotonicNanosecondsSinceBoot")
            .unsigned(source.process_start.monotonic.0);
        json.key("profilingStartTime")
            .time_ms(source.ns_since_start(started_at));
        json.key("profilingEndTime")
            .time_ms(source.ns_since_start(ended_at));
        json.key("contentEarliestTime")
            .or_null(source.earliest_ns_after_loss(), JsonWriter::time_ms);
        let shutdown = source.is_shutting_down.then_some(source.taken_at);
        let shutdown_ns = shutdown.map(|time| source.ns_since_start(time));
        json.key("shutdownTime")
            .or_null(shutdown_ns, JsonWriter::time_ms);
        write_categories(json.key("categories"), &process.categories);
        json.key("markerSchema")
            .array(|json| types.write_schemas(json));
        json.key("configuration").object(|json| {
            json.key("features")
                .array(|json| settings.features.names().for_each(|name| json.string(name)));
            json.key("threads")
                .array(|json| match settings.filters.is_empty() {
                    true => json.string("*"),
                    false => settings
                        .filters
                        .iter()
                        .for_each(|filter| json.string(filter)),
                });
            json.key("interval")
                .float(settings.interval.as_secs_f64() * 1e3);
            // The viewer reads the capacity in entries of 8 bytes.
            json.key("capacity").unsigned(settings.capacity_bytes / 8);
            if let Some(duration) = settings.duration {
                json.key("duration").float(duration.as_secs_f64());
            }
            json.key("activeTabID").unsigned(settings.active_tab_id);
        });
        json.key("interval")
            .float(settings.interval.as_secs_f64() * 1e3);
        json.key("stackwalk")
            .unsigned(settings.features.contains(Features::STACK_WALK).into());
        json.key("debug").unsigned(cfg!(debug_assertions).into());
        json.key("gcpoison").unsigned(0);
        json.key("asyncstack").unsigned(0);
        json.key("processType")
            .unsigned(gecko_process_type(&source.process_type));
        json.key("updateChannel").string("default");
        json.key("platform").string("Linux");
        json.key("oscpu")
            .string(&format!("{} {}", system.os, std::env::consts::ARCH));
        write_version(json, source, process);
        json.key("abi")
            .string(&format!("{}-gcc3", std::env::consts::ARCH));
        json.key("toolkit").string("");
        json.key("product").string(&source.product);
        if !system.cpu_name.is_empty() {
            json.key("CPUName").string(&system.cpu_name);
        }
        json.key("physicalCPUs")
            .unsigned(system.physical_cpus as u64);
        json.key("logicalCPUs").unsigned(system.logical_cpus as u64);
        json.key("sampleUnits").object(|json| {
            json.key("time").string("ms");
            json.key("eventDelay").string("ms");
            json.key("threadCPUDelta").string("ns");
        });
        json.key("extensions").object(|json| {
            json.key("schema").object(|json| {
                json.key("id").unsigned(0);
                json.key("name").unsigned(1);
                json.key("baseURL").unsigned(2);
            });
            json.key("data").array(|_| {});
        });
        // What interrupts threads that run and sleep in turn.
        let has_events =
            source.count("threads_with_events") > 0 || source.count("refused_events") == 0;
        let engine = if has_events { "task clock" } else { "signals" };
        json.key("samplingEngine").string(engine);
        json.key("samplingSignal")
            .string(&signal_name(source.session.signal()));
        json.key("presymbolicated").bool(symbolicated);
        if let Some(past) = &source.past {
            write_rescued(json.key("rescued"), source, past);
        }
        write_losses(json.key("losses"), source, process);
        write_warnings(json.key("warnings"), warnings);
        write_extra(json.key("extra"), source, warnings);
    });
}

/// Writes that the profile was made of a crash file: when the newest entry was recorded, and what the
/// file lacks.
fn write_rescued(json: &mut JsonWriter<'_>, source: &ProfileSource, past: &PastProcess) {
    let ns = |time: Option<TimeStamp>| time.map(|time| source.ns_since_start(time));
    json.object(|json| {
        json.key("lastEntryTime")
            .or_null(ns(past.last_entry), JsonWriter::time_ms);
        // The counts of the sampler are those of this time.
        json.key("countsTime")
            .or_null(ns(past.counted_at), JsonWriter::time_ms);
        json.key("processStillRan").bool(past.is_alive);
        for (name, number) in &past.losses {
            json.key(name).unsigned(*number);
        }
    });
}

/// Returns the number of a process type in Gecko's list. A type that is not in it has the number of
/// the default, because readers know no other ones.
fn gecko_process_type(name: &str) -> u64 {
    const NUMBERED: &[(&str, u64)] = &[
        ("default", 0),
        ("plugin", 1),
        ("tab", 2),
        ("gmplugin", 4),
        ("gpu", 5),
        ("vr", 6),
        ("rdd", 7),
        ("socket", 8),
        ("sandboxbroker", 9),
        ("forkserver", 10),
        ("utility", 11),
    ];
    let known = NUMBERED.iter().find(|(known, _)| *known == name);
    known.map_or(0, |&(_, number)| number)
}

fn write_categories(json: &mut JsonWriter<'_>, categories: &[&CategoryInfo]) {
    json.array(|json| {
        for category in categories {
            json.object(|json| {
                json.key("name").string(category.label);
                json.key("color").string(category.color);
                json.key("subcategories").array(|json| {
                    category
                        .subcategories
                        .iter()
                        .for_each(|name| json.string(name))
                });
            });
        }
    });
}

/// The session's counts of missing or incomplete samples, and of the causes.
const SAMPLER_LOSSES: &[&str] = &[
    "missed_ticks",
    "ticks_without_memory",
    "unanswered_ticks",
    "refused_signals",
    "refused_events",
    "handler_replacements",
    "truncated_samples",
    "too_deep_samples",
    "threads_without_stacks",
    "threads_without_clock",
    "lost_waits",
    "left_out_wait_intervals",
    "lost_marker_stacks",
    "dropped_samples",
    "dropped_ended_threads",
    "dropped_empty_threads",
    "dropped_ended_pages",
    "dropped_exit_profiles",
    "lost_code_names",
    "unread_perf_map_bytes",
    "sampler_panics",
];

/// Returns the buffer's capacity, and the number and bytes of the entries put into it, by name.
pub(crate) fn buffer_counts(source: &ProfileSource) -> [(&'static str, u64); 3] {
    let buffer = &source.buffer.statistics;
    [
        ("capacity_bytes", buffer.capacity_bytes),
        ("put_entries", buffer.put_entries),
        ("put_bytes", buffer.put_bytes),
    ]
}

/// Returns the losses of the buffer and of the decoder, by name.
pub(crate) fn buffer_losses(
    source: &ProfileSource,
    process: &ProcessStreamingContext,
) -> [(&'static str, u64); 14] {
    let buffer = &source.buffer.statistics;
    let dropped = |why| buffer.dropped.by(why);
    [
        // The sum of the four counts that follow.
        ("dropped_entries", buffer.dropped.all()),
        ("too_large_entries", dropped(Dropped::TooLarge)),
        ("entries_in_own_work", dropped(Dropped::Reentrant)),
        ("overrun_entries", dropped(Dropped::Overrun)),
        ("entries_without_memory", dropped(Dropped::OutOfMemory)),
        // Chunks that the system had no memory for. The oldest were recycled instead, if possible.
        ("refused_chunks", buffer.refused_chunks),
        // The oldest chunks, which are recycled for new entries.
        ("recycled_chunks", buffer.recycled_chunks),
        ("recycled_bytes", buffer.recycled_bytes),
        ("malformed_entries", process.entry_counts.malformed),
        // Entries of ended threads that the session has dropped.
        (
            "entries_without_thread",
            process.entry_counts.without_thread,
        ),
        // The oldest entries, left out because the memory did not suffice to write them.
        ("left_out_bytes", source.buffer.left_out_bytes),
        // Rows of idle threads, left out if the profile would have too many rows.
        ("left_out_idle_rows", process.left_out_idle_rows),
        // Ticks that the sampler left out to limit its CPU time, and that samples count for.
        ("left_out_ticks", process.left_out_ticks()),
        // Markers beyond the limit of their name, which other markers represent.
        ("left_out_markers", process.marker_types.left_out),
    ]
}

/// Writes each count of missing data, including zeros.
fn write_losses(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    process: &ProcessStreamingContext,
) {
    json.object(|json| {
        let of_buffer = buffer_losses(source, process);
        let of_sampler = source
            .counts
            .iter()
            .filter(|(name, _)| SAMPLER_LOSSES.contains(name));
        for (name, count) in of_buffer.iter().chain(of_sampler) {
            json.key(name).unsigned(*count);
        }
    });
}

/// A value, with the format in which the viewer shows it.
enum Value<'a> {
    Text(&'a str),
    Count(u64),
    Bytes(u64),
    DurationNs(u64),
    /// From 0 to 1.
    Fraction(f64),
}

impl Value<'_> {
    fn write(&self, json: &mut JsonWriter<'_>, label: &str) {
        json.object(|json| {
            json.key("label").string(label);
            let format = match self {
                Self::Text(_) => "string",
                Self::Count(_) => "integer",
                Self::Bytes(_) => "bytes",
                Self::DurationNs(_) => "duration",
                Self::Fraction(_) => "percentage",
            };
            json.key("format").string(format);
            let value = json.key("value");
            match *self {
                Self::Text(text) => value.string(text),
                Self::Count(number) | Self::Bytes(number) => value.unsigned(number),
                Self::DurationNs(ns) => value.time_ms(ns),
                Self::Fraction(fraction) => value.float(fraction),
            }
        });
    }
}

/// Writes the fields of `meta` by which the viewer tells builds of the program apart.
fn write_version(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    process: &ProcessStreamingContext,
) {
    // The viewer shows the number at the end of this text next to the program's name.
    let number = source.version.as_deref().map_or("", number_of_version);
    let misc = match number {
        "" => String::new(),
        number => format!("rv:{number}"),
    };
    json.key("misc").string(&misc);
    let name = library_name(Path::new(&source.product));
    let mut modules = process.modules.iter();
    let program = modules.find(|module| library_name(&module.image.path) == name);
    if let Some(id) = program.and_then(|program| code_id(&program.image.build_id)) {
        json.key("appBuildID").string(&id);
    }
}

/// Returns the number at the beginning of a version: `1.2.3` of `1.2.3-rc.1`.
fn number_of_version(version: &str) -> &str {
    let end = version.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    version[..end.unwrap_or(version.len())].trim_end_matches('.')
}

/// Writes the sections that the viewer adds to its information about the profile.
fn write_extra(json: &mut JsonWriter<'_>, source: &ProfileSource, warnings: &[Warning]) {
    json.array(|json| {
        if !warnings.is_empty() {
            let texts = warnings.iter().map(|warning| Value::Text(&warning.text));
            let names = warnings.iter().map(|warning| warning.name);
            let entries: Vec<_> = names.zip(texts).collect();
            section(json, "Warnings", &entries);
        }
        if let Some(version) = &source.version {
            section(json, "Program", &[("Version", Value::Text(version))]);
        }
        let count = |name: &str| source.count(name);
        let memory = source.buffer.chunk_memory;
        let memory_bytes = memory.unreleased_bytes + memory.released_bytes;
        let cpu_ns = count("sampler_cpu_ns");
        let stopped_ns = count("stopped_ns");
        let cost = cost_text(cpu_ns, memory_bytes, stopped_ns);
        let session_ns = source.taken_at.since_ns(source.session.started_at);
        let entries = [
            ("Version of gekkota", Value::Text(env!("CARGO_PKG_VERSION"))),
            ("Cost", Value::Text(&cost)),
            (SAMPLER_CPU, Value::DurationNs(cpu_ns)),
            (
                "Share of one processor",
                Value::Fraction(cpu_ns as f64 / session_ns.max(1) as f64),
            ),
            ("Ticks", Value::Count(count("ticks"))),
            ("Missed ticks", Value::Count(count("missed_ticks"))),
            ("Delayed ticks", Value::Count(count("delayed_ticks"))),
            (
                "Threads sampled on their own CPU time",
                Value::Count(count("threads_with_events")),
            ),
            (
                "Threads without it, because the system refuses perf_event_open for example",
                Value::Count(count("refused_events")),
            ),
            (
                "Ticks left out to limit the sampler's CPU time",
                Value::Count(count("skipped_ticks")),
            ),
            (
                "Missed samples of running threads",
                Value::Count(count("unanswered_ticks")),
            ),
            (BUFFER_MEMORY, Value::Bytes(memory_bytes)),
            (STOP_TIME, Value::DurationNs(stopped_ns)),
        ];
        section(json, PROFILER_SECTION, &entries);
    });
}

/// Returns in one line what the profiler cost the process.
fn cost_text(cpu_ns: u64, memory_bytes: u64, stopped_ns: u64) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    format!(
        "{:.1} ms of CPU time for sampling, {:.1} MB of memory for the data, and threads stopped \
         for {:.1} ms",
        ms(cpu_ns),
        memory_bytes as f64 / 1e6,
        ms(stopped_ns)
    )
}

fn section(json: &mut JsonWriter<'_>, label: &str, entries: &[(&str, Value<'_>)]) {
    json.object(|json| {
        json.key("label").string(label);
        json.key("entries").array(|json| {
            entries
                .iter()
                .for_each(|(label, value)| value.write(json, label));
        });
    });
}

/// Writes the elements of `pages`. The viewer follows each page to its embedder, and on to the
/// outermost page. A page whose embedders lead into a cycle has no outermost page, so it is written
/// without an embedder.
pub(crate) fn write_pages(json: &mut JsonWriter<'_>, pages: &[Arc<Page>]) {
    let embedders = pages
        .iter()
        .map(|page| (page.inner_window_id, page.embedder_inner_window_id))
        .collect();
    for page in pages {
        let embedder = if has_cyclic_embedder(page, &embedders) {
            0
        } else {
            page.embedder_inner_window_id
        };
        json.object(|json| {
            json.key("tabID").unsigned(page.tab_id);
            json.key("innerWindowID").unsigned(page.inner_window_id);
            json.key("url").string(&page.url);
            json.key("embedderInnerWindowID").unsigned(embedder);
            json.key("isPrivateBrowsing").bool(page.is_private_browsing);
        });
    }
}

/// Returns whether following the embedders of a page never ends.
fn has_cyclic_embedder(page: &Page, embedders: &BTreeMap<u64, u64>) -> bool {
    let mut outer = page.embedder_inner_window_id;
    for _ in embedders {
        match embedders.get(&outer) {
            Some(&next) if outer != 0 => outer = next,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_text_has_the_three_costs_in_one_line() {
        assert_eq!(
            cost_text(12_345_678, 2_500_000, 940_000),
            "12.3 ms of CPU time for sampling, 2.5 MB of memory for the data, and threads stopped \
             for 0.9 ms"
        );
    }

    #[test]
    fn number_of_version_ends_before_other_text() {
        for (version, number) in [
            ("1.2.3", "1.2.3"),
            ("1.2.3-rc.1", "1.2.3"),
            ("2.0+build.5", "2.0"),
            ("7.", "7"),
            ("v1", ""),
            ("", ""),
        ] {
            assert_eq!(number_of_version(version), number);
        }
    }

    #[test]
    fn page_in_embedder_cycle_has_no_embedder() {
        // A self-embedded page, a cycle of two, a page inside that cycle, a chain, and a page with
        // an unknown embedder.
        let pages = [
            (1, 1),
            (2, 3),
            (3, 2),
            (4, 2),
            (5, 6),
            (6, 7),
            (7, 0),
            (8, 99),
        ];
        let pages =
            pages.map(|(id, embedder)| Arc::new(Page::new(id, "a page").embedder(embedder)));
        let mut text = Vec::new();
        let mut json = JsonWriter::new(&mut text);
        json.array(|json| write_pages(json, &pages));
        json.finish().expect("a vector never fails");
        let written: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let embedders = written
            .as_array()
            .expect("pages")
            .iter()
            .map(|page| page["embedderInnerWindowID"].as_u64());
        assert!(
            embedders.eq([0, 0, 0, 0, 6, 7, 0, 99].map(Some)),
            "{written}"
        );
    }
}
