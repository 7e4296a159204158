//! Reads the processed format of the Firefox Profiler.

use crate::export::read::builder::{ModelBuilder, Strings};
use crate::export::read::context::Context;
use crate::export::read::gecko::read_pauses;
use crate::export::read::meta::read_meta;
use crate::export::read::processed_tables::{SourceFiles, Tables};
use crate::export::read::processed_thread::read_processed_thread;
use crate::export::read::table::Form;
use crate::export::read::value::Object;
use crate::model::{Process, ProfileModel};
use crate::types::ReadError;

/// The modules' invented addresses begin here, and each begins at a multiple of a page.
const FIRST_ADDRESS: u64 = 1 << 32;
const PAGE_BYTES: u64 = 4096;

pub(super) fn read_processed(
    builder: &mut ModelBuilder,
    profile: &Object<'_, '_>,
    meta: &Object<'_, '_>,
) -> Result<(), ReadError> {
    read_meta(builder, meta, true)?;
    let has_shared_modules = profile.get("libs").is_some();
    let mut context = Context::read(builder, (Form::Processed, 0, 0), (profile, meta))?;
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
        files = SourceFiles::read(builder, &context, shared, strings)?;
        if shared.get("stackTable").is_some() {
            tables = Some(Tables::read(builder, &context, shared, strings, &files)?);
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
        let own_tables;
        let tables = match &tables {
            Some(shared) => shared,
            None => {
                own_tables = Tables::read(builder, &context, &thread, strings, &files)?;
                &own_tables
            }
        };
        let process = process_of_thread(builder, &thread)?;
        read_processed_thread(builder, &context, &thread, process, strings, tables)?;
    }
    let pids = builder.profile.processes.iter();
    let pids: Vec<_> = pids.map(|process| process.pid.clone()).collect();
    let process_of = |part: &Object<'_, '_>| Ok(position_of_pid(&pids, part)?.unwrap_or(0));
    context.read_counters(builder, profile, process_of)?;
    if builder.profile.processes.is_empty() {
        builder.add_process(Process::default());
    }
    let first = &mut builder.profile.processes[0];
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
    let pid = thread.get("pid").map(|pid| pid.id()).transpose()?;
    let pid = pid.unwrap_or_default();
    let mut known = builder.profile.processes.iter();
    if let Some(known) = known.position(|known| known.pid == pid) {
        return Ok(known);
    }
    Ok(builder.add_process(Process {
        pid: pid.into_owned(),
        name: thread.text("processName")?,
        kind: thread.text("processType")?,
        started_ns: thread.optional_time_ns("processStartupTime")?,
        ended_ns: thread.optional_time_ns("processShutdownTime")?,
        paused_ranges: read_pauses(0, thread)?,
        ..Process::default()
    }))
}

/// Returns the index of the process that a part of the profile belongs to.
fn position_of_pid(pids: &[String], part: &Object<'_, '_>) -> Result<Option<usize>, ReadError> {
    let pid = part.get("pid").map(|pid| pid.id()).transpose()?;
    Ok(pid.and_then(|pid| pids.iter().position(|known| *known == pid)))
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
