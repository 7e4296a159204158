//! Reads the processed format of the Firefox Profiler.

use std::collections::HashMap;

use crate::export::read::builder::{ModelBuilder, Strings};
use crate::export::read::columns::{fill_column, required_column};
use crate::export::read::gecko::{each_samples_table, json_member, read_module, read_pauses};
use crate::export::read::marker_fields::read_schemas;
use crate::export::read::meta::{CpuUnit, read_meta};
use crate::export::read::processed_profile::ProcessedProfile;
use crate::export::read::processed_tables::{SourceFiles, Tables};
use crate::export::read::processed_thread::{read_thread, read_times};
use crate::export::read::value::Object;
use crate::model::{Counter, CounterSample, ModuleId, Process, ProfileModel};
use crate::types::ReadError;
use crate::util::SharedSort;

/// The modules' invented addresses begin here, and each begins at a multiple of a page.
const FIRST_ADDRESS: u64 = 1 << 32;
const PAGE_BYTES: u64 = 4096;

pub(super) fn read_processed(
    builder: &mut ModelBuilder,
    profile: &Object<'_, '_>,
    meta: &Object<'_, '_>,
) -> Result<(), ReadError> {
    read_meta(builder, meta, true)?;
    let modules = read_modules(builder, profile)?;
    let has_shared_modules = profile.get("libs").is_some();
    let mut context = ProcessedProfile {
        categories: builder.read_categories(meta)?,
        index_fields: read_schemas(builder, meta)?,
        cpu_unit: CpuUnit::of(meta)?,
        modules,
        processes: HashMap::new(),
    };
    let shared = profile.get("shared");
    let shared = shared.map(|shared| shared.object("the shared tables"));
    let shared = shared.transpose()?;
    // Since version 56, all threads share the strings, and since version 60 the tables.
    let mut strings = None;
    let mut files = SourceFiles::default();
    let mut tables = None;
    if let Some(shared) = &shared
        && let Some(list) = shared.get("stringArray")
    {
        let strings = strings.insert(Strings::read(list)?);
        files = SourceFiles::read(builder, shared, strings)?;
        if shared.get("stackTable").is_some() {
            tables = Some(Tables::read(builder, &context, shared, strings, &files)?);
        }
    }
    let threads = profile.require("threads", "an array of threads")?;
    threads.each("an array of threads", |_, thread| {
        let thread = thread.object("a thread")?;
        let mut own_strings;
        let strings = match &mut strings {
            Some(shared) => shared,
            None => {
                let list = thread.require("stringArray", "an array of texts")?;
                own_strings = Strings::read(list)?;
                &mut own_strings
            }
        };
        // Before version 41, each thread had its own libraries.
        if !has_shared_modules {
            context.modules = read_modules(builder, &thread)?;
        }
        let own_tables;
        let tables = match &tables {
            Some(shared) => shared,
            None => {
                own_tables = Tables::read(builder, &context, &thread, strings, &files)?;
                &own_tables
            }
        };
        let process = process_of_thread(builder, &mut context, &thread)?;
        read_thread(builder, &context, &thread, process, strings, tables)
    })?;
    read_counters(builder, &context, profile)?;
    if builder.profile.processes.is_empty() {
        builder.add_process(Process::default());
    }
    let first = &mut builder.profile.processes[0];
    first.pages = json_member(profile, "pages");
    first.log = json_member(profile, "profilingLog");
    place_modules(&mut builder.profile);
    Ok(())
}

/// Adds the libraries of a profile, or of a thread.
fn read_modules(
    builder: &mut ModelBuilder,
    part: &Object<'_, '_>,
) -> Result<Vec<ModuleId>, ReadError> {
    let mut modules = Vec::new();
    if let Some(libs) = part.get("libs") {
        libs.each("an array of libraries", |_, lib| {
            let module = read_module(&lib.object("a library")?, 0, false)?;
            modules.push(builder.add_module(module));
            Ok(())
        })?;
    }
    Ok(modules)
}

/// Returns the index of the thread's process, and adds the process if it is new.
fn process_of_thread(
    builder: &mut ModelBuilder,
    context: &mut ProcessedProfile,
    thread: &Object<'_, '_>,
) -> Result<usize, ReadError> {
    let pid = thread.get("pid").map(|pid| pid.id()).transpose()?;
    let pid = pid.unwrap_or_default().into_owned();
    if let Some(&known) = context.processes.get(&pid) {
        return Ok(known);
    }
    let index = builder.add_process(Process {
        pid: pid.clone(),
        name: thread.text("processName")?,
        kind: thread.text("processType")?,
        started_ns: thread.optional_time_ns("processStartupTime")?,
        ended_ns: thread.optional_time_ns("processShutdownTime")?,
        paused_ranges: read_pauses(thread, 0)?,
        ..Process::default()
    });
    context.processes.insert(pid, index);
    Ok(index)
}

/// Returns the index of the process that a part of the profile belongs to.
fn process_of(context: &ProcessedProfile, part: &Object<'_, '_>) -> Result<usize, ReadError> {
    let pid = part.get("pid").map(|pid| pid.id()).transpose()?;
    let process = pid.and_then(|pid| context.processes.get(&*pid));
    Ok(process.copied().unwrap_or(0))
}

fn read_counters(
    builder: &mut ModelBuilder,
    context: &ProcessedProfile,
    profile: &Object<'_, '_>,
) -> Result<(), ReadError> {
    let Some(list) = profile.get("counters") else {
        return Ok(());
    };
    list.each("an array of counters", |_, counter| {
        let counter = counter.object("a counter")?;
        let mut samples = Vec::new();
        each_samples_table(&counter, |table| {
            let table = table.object("a table")?;
            let first = samples.len();
            let deltas = required_column(&table, "count", |delta| delta.count("a number"))?;
            samples.extend(deltas.into_iter().map(|delta| CounterSample {
                time_ns: 0,
                delta,
                operations: None,
            }));
            let samples = &mut samples[first..];
            read_times(&table, samples.len(), |row, time_ns| {
                samples[row].time_ns = time_ns;
            })?;
            fill_column(&table, "number", samples, |sample, number| {
                sample.operations = Some(number.count("a number")? as u64);
                Ok(())
            })
        })?;
        samples.shared_sort_by_key(|sample| sample.time_ns);
        builder.profile.counters.push(Counter {
            process: process_of(context, &counter)?,
            name: counter.text("name")?,
            category: counter.text("category")?,
            description: counter.text("description")?,
            graph: None,
            samples,
        });
        Ok(())
    })
}

/// Gives each module a range of addresses that holds all of its frames. The format has addresses
/// relative to a module only, and other formats need them in the process.
fn place_modules(profile: &mut ProfileModel) {
    let mut ends = vec![0_u64; profile.modules.len()];
    let of_frames = profile.frames().iter().filter_map(|frame| {
        let module = profile.function(frame.function).module?;
        Some((module, frame.address?))
    });
    let of_symbols = profile.native_symbols.iter().map(|symbol| {
        let last = symbol.size.unwrap_or(1).saturating_sub(1);
        (symbol.module, symbol.address.saturating_add(last))
    });
    for (module, address) in of_frames.chain(of_symbols) {
        let end = &mut ends[module.0 as usize];
        *end = address.saturating_add(1).max(*end);
    }
    let mut next = FIRST_ADDRESS;
    for (module, bytes) in profile.modules.iter_mut().zip(ends) {
        let end = bytes
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .and_then(|bytes| next.checked_add(bytes))
            // Addresses that JavaScript holds exactly.
            .filter(|end| *end < 1 << 53);
        // A module without space keeps an empty range.
        if let Some(end) = end {
            (module.start, module.end) = (next, end);
            next = end;
        }
    }
}
