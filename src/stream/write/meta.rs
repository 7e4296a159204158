//! Writes the profile's `meta`.

use crate::json::JsonWriter;
use crate::platform::{on_own_descriptors, system_info};
use crate::stream::decode::{PastProcess, ProcessStreamingContext, ProfileSource};
use crate::stream::resolve::MarkerTypes;
use crate::stream::write::losses::write_losses;
use crate::stream::write::program_info::{write_extra, write_version};
use crate::stream::write::warnings::write_warnings;
use crate::types::{CategoryInfo, Features, TimeStamp, Warning, signal_name};

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
