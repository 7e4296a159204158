//! Writes a profile as Gecko's JSON, version 36.

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::export::options::ExportOptions;
use crate::export::paused_ranges::PausedRange;
use crate::export::write::gecko_process::{GeckoProcess, write_schema};
use crate::export::write::gecko_thread::{write_placeholder_main_thread, write_thread};
use crate::json::JsonWriter;
use crate::model::{Module, ModuleId, ProfileModel};
use crate::util::{FailureLatch, ProgressLocation, ProgressLogger, SharedSort};

/// Version of the format. Since version 36, the texts of markers are string indices.
const FORMAT_VERSION: u64 = 36;

/// The name that the Firefox Profiler finds a process's main thread by.
const MAIN_THREAD: &str = "GeckoMain";

/// Progress at the end of the part before the threads, from 0 to 1.
const META_END: f32 = 0.05;

/// Writes a profile as Gecko's JSON. Addresses become those in the process, and named frames lose
/// theirs, because the format has none for them.
///
/// # Errors
/// Returns the first failure of `out`.
pub(crate) fn write_gecko(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
    progress: &ProgressLogger,
) -> io::Result<()> {
    let mut json = JsonWriter::for_job(out, FailureLatch::fallible());
    let chosen = options.tracks(profile);
    // The first process contains the others.
    let first = GeckoProcess {
        profile,
        index: 0,
        start_ns: 0,
    };
    json.object(|json| {
        progress.set_local_progress(0.0, ProgressLocation::Meta);
        write_process(json, &first, &chosen, progress, |json| {
            for index in 1..profile.processes.len() {
                let process = GeckoProcess {
                    profile,
                    index,
                    start_ns: profile.processes[index].started_ns.unwrap_or(0),
                };
                json.object(|json| write_process(json, &process, &chosen, progress, |_| {}));
            }
        });
    });
    json.finish()
}

/// Writes the members of a process's profile.
fn write_process(
    json: &mut JsonWriter<'_>,
    process: &GeckoProcess<'_>,
    chosen: &[usize],
    progress: &ProgressLogger,
    write_children: impl FnOnce(&mut JsonWriter<'_>),
) {
    let GeckoProcess { profile, index, .. } = *process;
    let facts = profile.processes.get(index);
    let is_own = |thread: &&usize| profile.threads[**thread].process == index;
    // The viewer uses the first thread as the process's main thread.
    let mut threads: Vec<usize> = chosen.iter().filter(is_own).copied().collect();
    threads.shared_sort_by_key(|&thread| !profile.threads[thread].is_main);
    json.key("libs");
    write_libs(json, process, &threads);
    json.key("meta");
    write_meta(json, process);
    let spliced =
        |json: &mut JsonWriter<'_>, key, value: Option<&String>, missing: Option<&str>| {
            if let Some(value) = value.map(String::as_str).or(missing) {
                json.key(key).splice(value);
            }
        };
    let pages = facts.and_then(|facts| facts.pages.as_ref());
    spliced(json, "pages", pages, Some("[]"));
    let overhead = facts.and_then(|facts| facts.overhead.as_ref());
    spliced(json, "profilerOverhead", overhead, None);
    json.key("counters");
    write_counters(json, process);
    json.key("sources").object(|json| {
        write_schema(
            json,
            &["id", "filename", "startLine", "startColumn", "sourceMapURL"],
        );
        json.key("data").array(|_| {});
    });
    json.key("threads").array(|json| {
        let has_main = |&thread: &usize| profile.threads[thread].name == MAIN_THREAD;
        if !threads.iter().any(has_main) {
            let main = threads.first().map(|&thread| &profile.threads[thread]);
            write_placeholder_main_thread(json, process, main);
        }
        for &thread in &threads {
            if json.failed() {
                return;
            }
            let done = thread as f32 / profile.threads.len() as f32;
            let done = META_END + (1.0 - META_END) * done;
            progress.set_local_progress(done, ProgressLocation::Frames);
            write_thread(json, process, &profile.threads[thread]);
        }
    });
    json.key("pausedRanges");
    write_paused_ranges(json, process);
    let log = facts.and_then(|facts| facts.log.as_ref());
    spliced(json, "profilingLog", log, None);
    json.key("processes").array(write_children);
}

fn write_meta(json: &mut JsonWriter<'_>, process: &GeckoProcess<'_>) {
    let GeckoProcess { profile, index, .. } = *process;
    let meta = &profile.meta;
    let is_first = index == 0;
    json.object(|json| {
        json.key("version").unsigned(FORMAT_VERSION);
        let start_ms = meta.start_epoch_ms + process.start_ns as f64 / 1e6;
        json.key("startTime").float(start_ms);
        let facts = profile.processes.get(index);
        json.key("shutdownTime");
        process.optional_time(json, facts.and_then(|facts| facts.ended_ns));
        json.key("categories").array(|json| {
            for category in &profile.categories {
                json.object(|json| {
                    json.key("name").string(&category.name);
                    json.key("color").string(&category.color);
                    json.key("subcategories").array(|json| {
                        let names = category.subcategories.iter();
                        names.for_each(|name| json.string(name));
                    });
                });
            }
        });
        json.key("markerSchema").array(|json| {
            let schemas = profile.marker_schemas.iter();
            schemas.for_each(|schema| json.splice(&schema.json));
        });
        if is_first {
            write_session_meta(json, process);
        } else if let Some(start_ns) = facts.and_then(|facts| facts.session_start_ns) {
            json.key("profilingStartTime");
            process.time(json, start_ns);
        }
    });
}

/// Writes the fields of `meta` that only the first process has.
fn write_session_meta(json: &mut JsonWriter<'_>, process: &GeckoProcess<'_>) {
    /// Fields that are written from the model.
    const WRITTEN: &[&str] = &[
        "version",
        "startTime",
        "shutdownTime",
        "categories",
        "markerSchema",
        "interval",
        "product",
        "sampleUnits",
        "presymbolicated",
        "profilingStartTime",
        "profilingEndTime",
    ];
    let meta = &process.profile.meta;
    json.key("interval").float(meta.interval_ns as f64 / 1e6);
    json.key("product").string(&meta.product);
    if let Some((start_ns, end_ns)) = meta.session_ns {
        json.key("profilingStartTime");
        process.time(json, start_ns);
        json.key("profilingEndTime");
        process.time(json, end_ns);
    }
    json.key("presymbolicated").bool(meta.is_symbolicated);
    json.key("sampleUnits").object(|json| {
        json.key("time").string("ms");
        json.key("eventDelay").string("ms");
        json.key("threadCPUDelta").string("ns");
    });
    let other = meta.other.iter();
    let other = other.filter(|(key, _)| !WRITTEN.contains(&key.as_str()));
    for (key, value) in other.clone() {
        json.key(key).splice(value);
    }
    // Fields that every profile of Gecko has.
    for (key, value) in [
        ("stackwalk", "1"),
        ("debug", "0"),
        ("gcpoison", "0"),
        ("asyncstack", "0"),
        ("processType", "0"),
    ] {
        if !other.clone().any(|(known, _)| known == key) {
            json.key(key).splice(value);
        }
    }
}

/// Writes the modules of a process, and those that its threads' frames refer to.
fn write_libs(json: &mut JsonWriter<'_>, process: &GeckoProcess<'_>, threads: &[usize]) {
    let GeckoProcess { profile, index, .. } = *process;
    let mut used = BTreeSet::new();
    if profile.processes.len() > 1 {
        let mut seen = vec![false; profile.stack_count()];
        for &thread in threads {
            let thread = &profile.threads[thread];
            let of_markers = (0..thread.markers.len()).filter_map(|index| {
                let payload = thread.markers.get(index).payload?;
                Some(payload.stack?.0)
            });
            let of_samples = thread.samples.iter().filter_map(|sample| sample.stack);
            for stack in of_samples.chain(of_markers) {
                let mut next = Some(stack);
                while let Some(stack) = next.filter(|stack| !seen[stack.0 as usize]) {
                    seen[stack.0 as usize] = true;
                    let (prefix, frame) = profile.stack(stack);
                    used.extend(profile.function(profile.frame(frame).function).module);
                    next = prefix;
                }
            }
        }
    }
    let modules = profile.modules.iter().zip(0..);
    let is_written = |(module, id): &(&Module, u32)| {
        let is_used = used.contains(&ModuleId(*id));
        // A module without a range, whose name is all that is known, is in the frames' texts.
        (module.process == index || is_used) && module.start < module.end
    };
    let mut modules: Vec<&Module> = modules
        .filter(is_written)
        .map(|(module, _)| module)
        .collect();
    modules.shared_sort_by_key(|module| (module.start, module.end));
    json.array(|json| {
        for module in modules {
            json.object(|json| {
                json.key("start").unsigned(module.start);
                json.key("end").unsigned(module.end);
                json.key("offset").unsigned(module.offset);
                json.key("name").string(&module.name);
                json.key("path").string(&module.path);
                json.key("debugName").string(&module.debug_name);
                json.key("debugPath").string(&module.debug_path);
                json.key("breakpadId").string(&module.breakpad_id);
                match &module.code_id {
                    Some(code_id) => json.key("codeId").string(code_id),
                    None => json.key("codeId").null(),
                }
                json.key("arch")
                    .string(module.arch.as_deref().unwrap_or(""));
            });
        }
    });
}

fn write_counters(json: &mut JsonWriter<'_>, process: &GeckoProcess<'_>) {
    let counters = process.profile.counters.iter();
    let own = counters.filter(|counter| counter.process == process.index);
    json.array(|json| {
        for counter in own {
            json.object(|json| {
                json.key("name").string(&counter.name);
                json.key("category").string(&counter.category);
                json.key("description").string(&counter.description);
                let samples = &counter.samples;
                let has_operations = samples.iter().any(|sample| sample.operations.is_some());
                json.key("samples").object(|json| {
                    match has_operations {
                        true => write_schema(json, &["time", "count", "number"]),
                        false => write_schema(json, &["time", "count"]),
                    }
                    json.key("data").array(|json| {
                        for sample in samples {
                            json.array(|json| {
                                process.time(json, sample.time_ns);
                                json.float(sample.delta);
                                if let Some(operations) = sample.operations {
                                    json.unsigned(operations);
                                }
                            });
                        }
                    });
                });
            });
        }
    });
}

/// Writes the paused ranges in the time of the process.
fn write_paused_ranges(json: &mut JsonWriter<'_>, process: &GeckoProcess<'_>) {
    let facts = process.profile.processes.get(process.index);
    json.array(|json| {
        for range in facts.map(PausedRange::all_of).unwrap_or_default() {
            json.object(|json| {
                json.key("startTime");
                process.optional_time(json, range.start_ns);
                json.key("endTime");
                process.optional_time(json, range.end_ns);
                json.key("reason").string(&range.reason);
            });
        }
    });
}
