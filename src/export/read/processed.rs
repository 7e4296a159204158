//! Reads the processed format of the Firefox Profiler.

use crate::export::read::builder::{ModelBuilder, Strings};
use crate::export::read::context::{Context, read_meta, read_pauses};
use crate::export::read::processed_tables::{StackTable, read_sources};
use crate::export::read::table::{Form, each_row};
use crate::export::read::thread::{Cause, field_value, read_markers, read_samples, read_thread};
use crate::export::read::value::{Object, Value};
use crate::model::{Marker, MarkerPayload, MarkerPhase, Markers, Process, ProfileModel};
use crate::types::ReadError;

/// The modules' invented addresses begin here, and each begins at a multiple of a page.
const FIRST_ADDRESS: u64 = 1 << 32;
const PAGE_BYTES: u64 = 4096;

/// Columns of the table of allocations in JavaScript, and the markers' fields for them.
const JS_COLUMNS: &[(&str, &str)] = &[
    ("weight", "size"),
    ("className", "className"),
    ("typeName", "typeName"),
    ("coarseType", "coarseType"),
    ("inNursery", "inNursery"),
];

/// Columns of the table of native allocations, and the markers' fields for them.
const NATIVE_COLUMNS: &[(&str, &str)] = &[
    ("weight", "size"),
    ("memoryAddress", "memoryAddress"),
    ("threadId", "threadId"),
];

pub(crate) fn read_processed(
    builder: &mut ModelBuilder,
    profile: &Object<'_, '_>,
    meta: &Object<'_, '_>,
) -> Result<(), ReadError> {
    read_meta(builder, meta, Form::Processed)?;
    let has_shared_modules = profile.get("libs").is_some();
    let mut context = Context::read(builder, (Form::Processed, 0, 0), (profile, meta))?;
    let shared = profile.read("shared", |shared| shared.object("the shared tables"))?;
    // Since version 56, all threads share the strings, and since version 60 the tables.
    let mut strings = None;
    let mut files = Vec::new();
    let mut stacks = None;
    if let Some(shared) = &shared
        && let Some(list) = shared.get("stringArray")
    {
        let strings = strings.insert(Strings::read(list)?);
        files = read_sources(builder, shared, strings)?;
        if shared.get("stackTable").is_some() {
            stacks = Some(StackTable::read(
                builder, &context, shared, strings, &files,
            )?);
        }
    }
    let threads = profile.require("threads", "an array of threads")?;
    for thread in threads.elements("an array of threads")? {
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
            context.read_modules(builder, &thread)?;
        }
        let own_stacks;
        let stacks = match &stacks {
            Some(shared) => shared,
            None => {
                own_stacks = StackTable::read(builder, &context, &thread, strings, &files)?;
                &own_stacks
            }
        };
        let process = process_of_thread(builder, &thread)?;
        read_thread_of(builder, &context, &thread, process, strings, stacks)?;
    }
    context.read_counters(builder, profile)?;
    let processes = &mut builder.profile.processes;
    if processes.is_empty() {
        processes.push(Process::default());
    }
    let first = &mut processes[0];
    first.pages = profile.json("pages");
    first.log = profile.json("profilingLog");
    place_modules(&mut builder.profile);
    Ok(())
}

/// Returns the index of the thread's process, and adds the process if it is new.
fn process_of_thread(
    builder: &mut ModelBuilder,
    thread: &Object<'_, '_>,
) -> Result<usize, ReadError> {
    let pid = thread.read("pid", Value::id)?.unwrap_or_default();
    if let Some(known) = builder.process_with(&pid) {
        return Ok(known);
    }
    let process = Process {
        pid: pid.into_owned(),
        name: thread.text("processName")?,
        kind: thread.text("processType")?,
        started_ns: thread.read("processStartupTime", Value::time_ns)?,
        ended_ns: thread.read("processShutdownTime", Value::time_ns)?,
        paused_ranges: read_pauses(0, thread)?,
        ..Process::default()
    };
    builder.profile.processes.push(process);
    Ok(builder.profile.processes.len() - 1)
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

/// Adds a thread to the model.
fn read_thread_of<'a>(
    builder: &mut ModelBuilder,
    context: &Context,
    thread: &Object<'a, '_>,
    process: usize,
    strings: &mut Strings<'a>,
    stacks: &StackTable,
) -> Result<(), ReadError> {
    let mut read = read_thread(context, thread, process)?;
    read.is_main = match thread.read("isMainThread", Value::bool)? {
        Some(is_main) => is_main,
        None => read.name == "GeckoMain" || read.tid == builder.profile.processes[process].pid,
    };
    read.samples = read_samples(context, thread, |index| stacks.stack(&index))?;
    let mut cause = |_: &mut ProfileModel, key: &str, value: Value<'_, '_>| match key {
        "cause" => read_cause(stacks, value),
        _ => Ok(None),
    };
    let profile = &mut builder.profile;
    read.markers = read_markers(profile, context, thread, strings, &mut cause)?;
    for (key, type_name, columns) in [
        ("jsAllocations", "JS allocation", JS_COLUMNS),
        ("nativeAllocations", "Native allocation", NATIVE_COLUMNS),
    ] {
        if let Some(table) = thread.optional_table(key)? {
            let kind = (type_name, columns);
            read_allocations(profile, &mut read.markers, &table, kind, stacks)?;
        }
    }
    profile.threads.push(read);
    Ok(())
}

/// Reads the stack of a marker, and its time. Returns `None` for any other value.
fn read_cause(stacks: &StackTable, value: Value<'_, '_>) -> Result<Option<Cause>, ReadError> {
    if !value.is_object() {
        return Ok(None);
    }
    let cause = value.object("a stack")?;
    let Some(stack) = cause.get("stack") else {
        return Ok(Some(None));
    };
    let time_ns = cause.read("time", Value::time_ns)?.unwrap_or(0);
    Ok(Some(Some((stacks.stack(&stack)?, time_ns))))
}

/// Adds allocations as markers, which they are in Gecko's JSON.
fn read_allocations(
    profile: &mut ProfileModel,
    markers: &mut Markers,
    table: &Object<'_, '_>,
    (type_name, fields): (&str, &[(&'static str, &str)]),
    stacks: &StackTable,
) -> Result<(), ReadError> {
    let type_name = profile.intern(type_name);
    let mut columns = vec!["stack", "time"];
    columns.extend(fields.iter().map(|(column, _)| column));
    let keys = fields
        .iter()
        .map(|&(column, key)| (column, profile.intern(key)));
    let keys: Vec<_> = keys.collect();
    let mut values = Vec::new();
    each_row(Form::Processed, table, (&columns, 2), |_, row| {
        let stack = row.read("stack", |index| stacks.stack(index))?;
        let time_ns = row.time_ns()?;
        values.clear();
        for &(column, key) in &keys {
            if let Some(value) = row.get(column) {
                values.push((key, field_value(profile, value)?));
            }
        }
        markers.push(Marker {
            name: type_name,
            phase: MarkerPhase::Instant,
            start_ns: Some(time_ns),
            end_ns: None,
            category: 0,
            payload: Some(MarkerPayload {
                type_name,
                fields: &values,
                stack: stack.map(|stack| (stack, time_ns)),
            }),
        });
        Ok(())
    })
}
