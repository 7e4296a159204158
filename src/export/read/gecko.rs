//! Reads Gecko's JSON: the format of a session's profile, and of Firefox's own.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::export::read::builder::ModelBuilder;
use crate::export::read::gecko_process::GeckoProcess;
use crate::export::read::gecko_thread::read_thread;
use crate::export::read::marker_fields::read_schemas;
use crate::export::read::meta::{CpuUnit, read_meta};
use crate::export::read::table::each_row;
use crate::export::read::value::{Object, Value, to_ns};
use crate::model::{Counter, CounterSample, Module, ModuleId, PausedRange, Process};
use crate::types::{MAX_PROCESS_LEVELS, ReadError};
use crate::util::SharedSort;

/// Maximum number of levels, including the outermost process.
const MAX_LEVELS: usize = MAX_PROCESS_LEVELS + 1;

/// The name of a process's main thread.
const MAIN_THREAD: &str = "GeckoMain";

/// Reads the profile of a process and of the processes within it.
pub(super) fn read_gecko(
    builder: &mut ModelBuilder,
    profile: &Object<'_, '_>,
    meta: &Object<'_, '_>,
) -> Result<(), ReadError> {
    read_meta(builder, meta, false)?;
    read_process(builder, profile, meta, 1)
}

/// Reads the profile of a child process, and of the processes within it, into the profile of the
/// parent.
pub(super) fn read_gecko_child(
    builder: &mut ModelBuilder,
    profile: &Object<'_, '_>,
    meta: &Object<'_, '_>,
) -> Result<(), ReadError> {
    read_process(builder, profile, meta, 2)
}

fn read_process(
    builder: &mut ModelBuilder,
    profile: &Object<'_, '_>,
    meta: &Object<'_, '_>,
    level: usize,
) -> Result<(), ReadError> {
    let root_start_ms = builder.profile.meta.start_epoch_ms;
    let offset_ns = match meta.get("startTime") {
        Some(start) => {
            let start_ms = start.count("a time in ms since 1970")?;
            let offset = to_ns(start_ms - root_start_ms);
            offset.ok_or_else(|| start.error("a time within 30 years of the profile's"))?
        }
        None => 0,
    };
    let categories = builder.read_categories(meta)?;
    let index_fields = read_schemas(builder, meta)?;
    let in_profile = |time: Option<i64>| time.map(|time| time.saturating_add(offset_ns));
    let ended_ns = in_profile(meta.optional_time_ns("shutdownTime")?);
    let process = builder.add_process(Process {
        started_ns: Some(offset_ns),
        ended_ns,
        paused_ranges: read_pauses(profile, offset_ns)?,
        pages: json_member(profile, "pages"),
        log: json_member(profile, "profilingLog"),
        ..Process::default()
    });
    let cpu_unit = match level {
        1 => CpuUnit::of(meta)?,
        // Only the outermost process's `meta` has the units.
        _ if builder.profile.meta.has_cpu_deltas && meta.get("sampleUnits").is_none() => {
            CpuUnit::Nanoseconds
        }
        _ => CpuUnit::of(meta)?,
    };
    let modules = read_modules(builder, profile, process)?;
    let mut module_names = HashMap::new();
    for &id in &modules {
        let module = builder.profile.module(id);
        for name in [&module.name, &module.debug_name] {
            module_names.entry(name.clone()).or_insert(id);
        }
    }
    let context = GeckoProcess {
        offset_ns,
        categories,
        index_fields,
        cpu_unit,
        modules,
        module_names,
        process,
    };
    let threads = profile.require("threads", "an array of threads")?;
    let first = builder.profile.threads.len();
    threads.each("an array of threads", |_, thread| {
        read_thread(builder, &context, &thread.object("a thread")?)
    })?;
    name_main_thread(builder, first);
    read_counters(builder, profile, &context)?;
    let Some(children) = profile.get("processes") else {
        return Ok(());
    };
    children.each("an array of processes", |_, child| {
        if level == MAX_LEVELS {
            return Err(ReadError::TooDeep {
                path: child.place.to_string(),
                max_levels: MAX_LEVELS,
            });
        }
        let profile = child.object("the profile of a process")?;
        let meta = profile.require("meta", "facts about the process")?;
        let meta = meta.object("facts about the process")?;
        read_process(builder, &profile, &meta, level + 1)
    })
}

/// Returns the JSON of a member; an empty text if it is missing.
pub(super) fn json_member(profile: &Object<'_, '_>, key: &str) -> String {
    profile.get(key).map_or("", |value| value.text).to_owned()
}

/// Reads the pauses of a process that started `offset_ns` after the profile.
pub(super) fn read_pauses(
    part: &Object<'_, '_>,
    offset_ns: i64,
) -> Result<Vec<PausedRange>, ReadError> {
    let mut pauses = Vec::new();
    if let Some(list) = part.get("pausedRanges") {
        list.each("an array of paused ranges", |_, pause| {
            let pause = pause.object("a paused range")?;
            let time = |key| {
                let time = pause.optional_time_ns(key)?;
                Ok(time.map(|time| time.saturating_add(offset_ns)))
            };
            pauses.push(PausedRange {
                start_ns: time("startTime")?,
                end_ns: time("endTime")?,
                reason: pause.text("reason")?.into(),
            });
            Ok(())
        })?;
    }
    Ok(pauses)
}

/// Adds the modules of a process, and returns them by address.
fn read_modules(
    builder: &mut ModelBuilder,
    profile: &Object<'_, '_>,
    process: usize,
) -> Result<Vec<ModuleId>, ReadError> {
    let mut modules = Vec::new();
    if let Some(libs) = profile.get("libs") {
        libs.each("an array of libraries", |_, lib| {
            let lib = lib.object("a library")?;
            modules.push(read_module(&lib, process, true)?);
            Ok(())
        })?;
    }
    modules.shared_sort_by_key(|module| (module.start, module.end));
    let add = |module| builder.add_module(module);
    Ok(modules.into_iter().map(add).collect())
}

/// Reads an element of `libs`. The processed format has no addresses in it. A library with an
/// address that JavaScript cannot hold exactly, which is written as -1, has no range.
pub(super) fn read_module(
    lib: &Object<'_, '_>,
    process: usize,
    has_addresses: bool,
) -> Result<Module, ReadError> {
    let address = |key| {
        let address = lib.require(key, "an address")?;
        match address.text {
            "-1" => Ok(None),
            _ => address.unsigned("an address").map(Some),
        }
    };
    let range = match has_addresses {
        true => address("start")?.zip(address("end")?),
        false => None,
    };
    let (start, end) = range.unwrap_or_default();
    let offset = match lib.get("offset") {
        Some(offset) => offset.unsigned("an offset in the file")?,
        None => 0,
    };
    let optional = |key| {
        let text = lib.get(key).map(|text| text.string("a text"));
        let text = text.transpose()?.map(Cow::into_owned);
        Ok(text.filter(|text| !text.is_empty()))
    };
    Ok(Module {
        process,
        start,
        end,
        offset,
        name: lib.text("name")?,
        path: lib.text("path")?,
        debug_name: lib.text("debugName")?,
        debug_path: lib.text("debugPath")?,
        breakpad_id: lib.text("breakpadId")?,
        code_id: optional("codeId")?,
        arch: optional("arch")?,
    })
}

/// Marks the main thread among the threads of a process, which begin with `first`. Removes the empty
/// thread that gekkota writes under the main thread's name if that one has another name.
fn name_main_thread(builder: &mut ModelBuilder, first: usize) {
    let threads = &mut builder.profile.threads;
    let named = (first..threads.len()).find(|&index| threads[index].name == MAIN_THREAD);
    if let Some(named) = named {
        let placeholder = &threads[named];
        let is_empty = placeholder.samples.is_empty() && placeholder.markers.is_empty();
        let real = (first..threads.len())
            .find(|&index| index != named && threads[index].tid == placeholder.tid);
        match real.filter(|_| is_empty) {
            Some(real) => {
                threads[real].is_main = true;
                threads.remove(named);
            }
            None => threads[named].is_main = true,
        }
        return;
    }
    let processes = &builder.profile.processes;
    // A program image that `exec` has replaced has the process id of the one that follows.
    let mains = threads[..first].iter().filter(|thread| thread.is_main);
    let pids: Vec<_> = mains.map(|main| &processes[main.process].pid).collect();
    let has_main = |pid| pids.contains(&pid);
    if let Some(main) = (first..threads.len()).find(|&index| {
        let pid = &processes[threads[index].process].pid;
        threads[index].tid == *pid && !has_main(pid)
    }) {
        drop(pids);
        let main = &mut threads[main];
        main.is_main = true;
    }
}

fn read_counters(
    builder: &mut ModelBuilder,
    profile: &Object<'_, '_>,
    context: &GeckoProcess,
) -> Result<(), ReadError> {
    let Some(list) = profile.get("counters") else {
        return Ok(());
    };
    list.each("an array of counters", |_, counter| {
        let counter = counter.object("a counter")?;
        let mut samples = Vec::new();
        each_samples_table(&counter, |table| {
            const TIME: usize = 0;
            const COUNT: usize = 1;
            const NUMBER: usize = 2;
            each_row(table, &["time", "count", "number"], 2, |_, row| {
                let time_ns = row.require(TIME, "a time in ms")?.time_ns()?;
                let delta = row.get(COUNT).map(|delta| delta.count("a number"));
                let operations = row.get(NUMBER);
                let operations = operations.map(|number| number.count("a number"));
                samples.push(CounterSample {
                    time_ns: time_ns.saturating_add(context.offset_ns),
                    delta: delta.transpose()?.unwrap_or(0.0),
                    operations: operations.transpose()?.map(|number| number as u64),
                });
                Ok(())
            })
        })?;
        samples.shared_sort_by_key(|sample| sample.time_ns);
        builder.profile.counters.push(Counter {
            process: context.process,
            name: counter.text("name")?,
            category: counter.text("category")?,
            description: counter.text("description")?,
            graph: None,
            samples,
        });
        Ok(())
    })
}

/// Calls `read` for the tables of a counter's samples. Before version 29, they were in groups.
pub(super) fn each_samples_table<'a>(
    counter: &Object<'a, '_>,
    mut read: impl FnMut(Value<'a, '_>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let groups = counter.get("sample_groups");
    let groups = groups.or_else(|| counter.get("sampleGroups"));
    match groups {
        Some(groups) if counter.get("samples").is_none() => {
            groups.each("an array of groups of samples", |_, group| {
                let group = group.object("a group of samples")?;
                read(group.require("samples", "a table")?)
            })
        }
        _ => read(counter.require("samples", "a table")?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_with_an_inexact_address_has_no_range() {
        let read = |start: &str, end: &str| {
            let text = format!(r#"{{"name": "vdso", "start": {start}, "end": {end}}}"#);
            let lib = Value::parse(&text)?;
            let module = read_module(&lib.object("a library")?, 0, true)?;
            Ok::<_, ReadError>((module.start, module.end))
        };
        assert_eq!(read("4096", "8192").expect("a module"), (4096, 8192));
        assert_eq!(read("-1", "-1").expect("a module"), (0, 0));
        assert_eq!(read("4096", "-1").expect("a module"), (0, 0));
        let error = read("-2", "1").expect_err("no address").to_string();
        assert!(
            error.contains("start: got -2, expected an address"),
            "{error}"
        );
    }
}
