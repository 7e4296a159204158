//! Reads Gecko's JSON: the format of a session's profile, and of Firefox's own.

use crate::export::read::builder::ModelBuilder;
use crate::export::read::context::Context;
use crate::export::read::gecko_thread::read_gecko_thread;
use crate::export::read::meta::{CpuUnit, read_meta};
use crate::export::read::table::Form;
use crate::export::read::value::{Object, to_ns};
use crate::model::{PausedRange, Process};
use crate::types::{MAX_PROCESS_LEVELS, ReadError};

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
    let in_profile = |time: Option<i64>| time.map(|time| time.saturating_add(offset_ns));
    let ended_ns = in_profile(meta.optional_time_ns("shutdownTime")?);
    let paused_ranges = read_pauses(offset_ns, profile)?;
    let process = builder.profile.processes.len();
    let facts = (Form::Gecko, offset_ns, process);
    let mut context = Context::read(builder, facts, (profile, meta))?;
    // Only the outermost process's `meta` has the units.
    if level > 1 && builder.profile.meta.has_cpu_deltas && meta.get("sampleUnits").is_none() {
        context.cpu_unit = CpuUnit::Nanoseconds;
    }
    builder.add_process(Process {
        started_ns: Some(offset_ns),
        ended_ns,
        paused_ranges,
        pages: profile.json("pages"),
        log: profile.json("profilingLog"),
        ..Process::default()
    });
    let threads = profile.require("threads", "an array of threads")?;
    let first = builder.profile.threads.len();
    for thread in threads.elements("an array of threads")? {
        read_gecko_thread(builder, &context, &thread.object("a thread")?)?;
    }
    name_main_thread(builder, first);
    context.read_counters(builder, profile, |_| Ok(process))?;
    for child in profile
        .list("processes")
        .elements("an array of processes")?
    {
        if level == MAX_LEVELS {
            return Err(ReadError::TooDeep {
                path: child.place.to_string(),
                max_levels: MAX_LEVELS,
            });
        }
        let profile = child.object("the profile of a process")?;
        let meta = profile.require("meta", "facts about the process")?;
        let meta = meta.object("facts about the process")?;
        read_process(builder, &profile, &meta, level + 1)?;
    }
    Ok(())
}

/// Reads the pauses of a process that started `offset_ns` after the profile.
pub(super) fn read_pauses(
    offset_ns: i64,
    part: &Object<'_, '_>,
) -> Result<Vec<PausedRange>, ReadError> {
    let mut pauses = Vec::new();
    let list = part.list("pausedRanges");
    for pause in list.elements("an array of paused ranges")? {
        let pause = pause.object("a paused range")?;
        let time = |key| {
            let time_ns = pause.optional_time_ns(key)?;
            Ok(time_ns.map(|time_ns| time_ns.saturating_add(offset_ns)))
        };
        pauses.push(PausedRange {
            start_ns: time("startTime")?,
            end_ns: time("endTime")?,
            reason: pause.text("reason")?.into(),
        });
    }
    Ok(pauses)
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
