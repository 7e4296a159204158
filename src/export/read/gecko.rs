//! Reads Gecko's JSON: the format of a session's profile, and of Firefox's own.

use crate::export::read::builder::{ModelBuilder, Strings};
use crate::export::read::context::{Context, CpuUnit, in_profile, read_meta, read_pauses};
use crate::export::read::gecko_stacks::{GeckoStacks, Role};
use crate::export::read::table::{Form, each_row};
use crate::export::read::thread::{Cause, read_markers, read_samples, read_thread};
use crate::export::read::value::{Object, Value, to_ns};
use crate::model::{Process, ProfileModel};
use crate::types::{MAX_PROCESS_LEVELS, ReadError};

/// Maximum number of levels, including the outermost process.
const MAX_LEVELS: usize = MAX_PROCESS_LEVELS + 1;

/// The name of a process's main thread.
const MAIN_THREAD: &str = "GeckoMain";

/// Reads the profile of a process, and of the processes within it, into the profile of the outermost
/// process. `level` is 1 for the outermost process, and 2 for its children.
pub(crate) fn read_gecko(
    builder: &mut ModelBuilder,
    profile: &Object<'_, '_>,
    meta: &Object<'_, '_>,
    level: usize,
) -> Result<(), ReadError> {
    if level == 1 {
        read_meta(builder, meta, Form::Gecko)?;
    }
    let root_start_ms = builder.profile.meta.start_epoch_ms;
    let offset_ns = meta.read("startTime", |start| {
        let start_ms = start.count("a time in ms since 1970")?;
        let offset_ns = to_ns(start_ms - root_start_ms);
        offset_ns.ok_or_else(|| start.error("a time within 30 years of the profile's"))
    })?;
    let offset_ns = offset_ns.unwrap_or(0);
    let ended_ns = in_profile(meta.get("shutdownTime"), offset_ns)?;
    let paused_ranges = read_pauses(offset_ns, profile)?;
    let process = builder.profile.processes.len();
    let facts = (Form::Gecko, offset_ns, process);
    let mut context = Context::read(builder, facts, (profile, meta))?;
    // Only the outermost process's `meta` has the units.
    if level > 1 && builder.profile.meta.has_cpu_deltas && meta.get("sampleUnits").is_none() {
        context.cpu_unit = CpuUnit::Nanoseconds;
    }
    builder.profile.processes.push(Process {
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
        read_thread_of(builder, &context, &thread.object("a thread")?)?;
    }
    name_main_thread(builder, first);
    context.read_counters(builder, profile)?;
    let children = profile.list("processes");
    for child in children.elements("an array of processes")? {
        if level == MAX_LEVELS {
            return Err(ReadError::TooDeep {
                path: child.place.to_string(),
                max_levels: MAX_LEVELS,
            });
        }
        let profile = child.object("the profile of a process")?;
        let meta = profile.require("meta", "facts about the process")?;
        let meta = meta.object("facts about the process")?;
        read_gecko(builder, &profile, &meta, level + 1)?;
    }
    Ok(())
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
    let main = threads[first..].iter_mut().find(|thread| {
        let pid = &processes[thread.process].pid;
        thread.tid == *pid && !has_main(pid)
    });
    if let Some(main) = main {
        main.is_main = true;
    }
}

/// Adds a thread to the model.
fn read_thread_of(
    builder: &mut ModelBuilder,
    context: &Context,
    thread: &Object<'_, '_>,
) -> Result<(), ReadError> {
    read_process_facts(builder, context, thread)?;
    let mut read = read_thread(context, thread, context.process)?;
    let strings = thread.require("stringTable", "an array of texts")?;
    let mut strings = Strings::read(strings)?;
    let mut stacks = GeckoStacks::read(builder, context, thread, &mut strings)?;
    let profile = &mut builder.profile;
    let mut stack = |index: Value<'_, '_>| stacks.stack(profile, index, Role::Innermost);
    read.asleep_at = thread.read("asleepAt", |index| stack(*index))?;
    read.samples = read_samples(context, thread, stack)?;
    let mut cause = |profile: &mut ProfileModel, key: &str, value: Value<'_, '_>| match key {
        "stack" => read_cause(profile, context, &mut stacks, value),
        _ => Ok(None),
    };
    read.markers = read_markers(profile, context, thread, &mut strings, &mut cause)?;
    builder.profile.threads.push(read);
    Ok(())
}

/// Sets what only threads say about their process.
fn read_process_facts(
    builder: &mut ModelBuilder,
    context: &Context,
    thread: &Object<'_, '_>,
) -> Result<(), ReadError> {
    let pid = thread.read("pid", Value::id)?;
    let texts = [
        pid.unwrap_or_default().into_owned(),
        thread.text("processName")?,
        thread.text("processType")?,
    ];
    let process = &mut builder.profile.processes[context.process];
    let known = [&mut process.pid, &mut process.name, &mut process.kind];
    for (known, text) in known.into_iter().zip(texts) {
        if known.is_empty() {
            *known = text;
        }
    }
    Ok(())
}

/// Reads the stack of a marker, which has the form of a thread with one sample. Returns `None` for
/// any other value, such as a text.
fn read_cause(
    profile: &mut ProfileModel,
    context: &Context,
    stacks: &mut GeckoStacks<'_>,
    value: Value<'_, '_>,
) -> Result<Option<Cause>, ReadError> {
    if !value.is_object() {
        return Ok(None);
    }
    let thread = value.object("a stack")?;
    let Some(samples) = thread.optional_table("samples")? else {
        return Ok(None);
    };
    let mut cause = None;
    let columns = (&["stack", "time"][..], 1);
    each_row(context.form, &samples, columns, |number, row| {
        if let (0, Some(index)) = (number, row.get("stack")) {
            let stack = stacks.stack(profile, index, Role::Caller)?;
            let time_ns = row.read("time", Value::time_ns)?.unwrap_or(0);
            cause = Some((stack, time_ns.saturating_add(context.offset_ns)));
        }
        Ok(())
    })?;
    Ok(Some(cause))
}
