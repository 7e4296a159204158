//! Reads a thread of Gecko's JSON.

use crate::export::read::builder::{Cause, ModelBuilder, Strings, in_order, marker_category};
use crate::export::read::gecko_process::GeckoProcess;
use crate::export::read::gecko_stacks::{GeckoStacks, Role};
use crate::export::read::marker_fields::{MarkerReader, MarkerTimes};
use crate::export::read::table::each_row;
use crate::export::read::value::{Object, Value};
use crate::model::{Marker, Markers, ProfileModel, Sample, Samples, Thread, WeightUnit};
use crate::types::ReadError;

/// Adds a thread to the model.
pub(super) fn read_thread(
    builder: &mut ModelBuilder,
    context: &GeckoProcess,
    thread: &Object<'_, '_>,
) -> Result<(), ReadError> {
    let process = process_of_thread(builder, context, thread)?;
    let in_profile = |time: Option<i64>| time.map(|time| time.saturating_add(context.offset_ns));
    let registered_ns = in_profile(thread.optional_time_ns("registerTime")?);
    let unregistered_ns = in_profile(thread.optional_time_ns("unregisterTime")?);
    let strings = thread.require("stringTable", "an array of texts")?;
    let mut strings = Strings::read(strings)?;
    let mut stacks = GeckoStacks::read(
        builder,
        context,
        thread.require("frameTable", "a table")?,
        thread.require("stackTable", "a table")?,
        &mut strings,
    )?;
    let asleep_at = thread.get("asleepAt");
    let asleep_at = asleep_at
        .map(|index| stacks.stack(&mut builder.profile, context, index, Role::Innermost))
        .transpose()?;
    let samples = thread.require("samples", "a table")?;
    let samples = read_samples(&mut builder.profile, context, &mut stacks, samples)?;
    let markers = thread.require("markers", "a table")?;
    let profile = &mut builder.profile;
    let markers = read_markers(profile, context, &mut stacks, &mut strings, markers)?;
    let tid = thread.get("tid").map(|tid| tid.id()).transpose()?;
    builder.profile.threads.push(Thread {
        process,
        name: thread.text("name")?,
        tid: tid.unwrap_or_default().into_owned(),
        is_main: false,
        registered_ns,
        unregistered_ns,
        asleep_at,
        samples,
        markers,
    });
    Ok(())
}

/// Returns the index of the thread's process, and sets what only threads say about a process.
fn process_of_thread(
    builder: &mut ModelBuilder,
    context: &GeckoProcess,
    thread: &Object<'_, '_>,
) -> Result<usize, ReadError> {
    let pid = thread.get("pid").map(|pid| pid.id()).transpose()?;
    let name = thread.text("processName")?;
    let kind = thread.text("processType")?;
    let process = &mut builder.profile.processes[context.process];
    if let Some(pid) = pid.filter(|_| process.pid.is_empty()) {
        process.pid = pid.into_owned();
    }
    for (known, text) in [(&mut process.name, name), (&mut process.kind, kind)] {
        if known.is_empty() {
            *known = text;
        }
    }
    Ok(context.process)
}

fn read_samples(
    profile: &mut ProfileModel,
    context: &GeckoProcess,
    stacks: &mut GeckoStacks,
    table: Value<'_, '_>,
) -> Result<Samples, ReadError> {
    const STACK: usize = 0;
    const TIME: usize = 1;
    const EVENT_DELAY: usize = 2;
    const CPU_DELTA: usize = 3;
    const WEIGHT: usize = 4;
    let columns = &["stack", "time", "eventDelay", "threadCPUDelta", "weight"];
    let mut samples = Samples::default();
    samples.weight_unit = weight_unit(&table.object("a table")?)?;
    each_row(table, columns, 2, |_, row| {
        let stack = match row.get(STACK) {
            Some(index) => Some(stacks.stack(profile, context, index, Role::Innermost)?),
            None => None,
        };
        let time_ns = row.require(TIME, "a time in ms")?.time_ns()?;
        let event_delay_ns = row.get(EVENT_DELAY).map(|delay| delay.duration_ns());
        let cpu_delta_ns = match row.get(CPU_DELTA) {
            Some(delta) => context.cpu_unit.to_ns(delta.count("a number")?),
            None => None,
        };
        let weight = row.get(WEIGHT).map(|weight| weight.count("a number"));
        samples.push(Sample {
            stack,
            time_ns: time_ns.saturating_add(context.offset_ns),
            cpu_delta_ns,
            event_delay_ns: event_delay_ns.transpose()?,
            weight: weight.transpose()?.map_or(1, |weight| weight as i64),
        });
        Ok(())
    })?;
    Ok(in_order(samples))
}

/// Returns the unit of the weights of a table of samples.
pub(super) fn weight_unit(table: &Object<'_, '_>) -> Result<WeightUnit, ReadError> {
    Ok(match &*table.text("weightType")? {
        "tracing-ms" => WeightUnit::Milliseconds,
        "bytes" => WeightUnit::Bytes,
        _ => WeightUnit::Samples,
    })
}

fn read_markers<'a>(
    profile: &mut ProfileModel,
    context: &GeckoProcess,
    stacks: &mut GeckoStacks,
    strings: &mut Strings<'a>,
    table: Value<'a, '_>,
) -> Result<Markers, ReadError> {
    const NAME: usize = 0;
    const START: usize = 1;
    const END: usize = 2;
    const PHASE: usize = 3;
    const CATEGORY: usize = 4;
    const DATA: usize = 5;
    let columns = &["name", "startTime", "endTime", "phase", "category", "data"];
    let mut markers = Markers::default();
    let mut reader = MarkerReader::new(&context.index_fields, context.offset_ns as f64 / 1e6);
    let mut cause = |profile: &mut ProfileModel, key: &str, value: Value<'_, '_>| match key {
        "stack" => read_cause(profile, context, stacks, value),
        _ => Ok(None),
    };
    each_row(table, columns, 5, |_, row| {
        let name = row.require(NAME, "a string index")?;
        let name = strings.id(profile, name)?;
        let time = |column| -> Result<Option<i64>, ReadError> {
            let time = row.get(column).map(|time| time.time_ns()).transpose()?;
            Ok(time.map(|time| time.saturating_add(context.offset_ns)))
        };
        let times = MarkerTimes {
            start_ns: time(START)?,
            end_ns: time(END)?,
        };
        let (phase, times) = times.of_phase(row.require(PHASE, "a phase from 0 to 3")?)?;
        let marker = Marker {
            name,
            phase,
            start_ns: times.start_ns,
            end_ns: times.end_ns,
            category: marker_category(&context.categories, row.get(CATEGORY))?,
            payload: None,
        };
        let data = row.get(DATA);
        reader.push(profile, &mut markers, marker, data, strings, &mut cause)
    })?;
    Ok(markers)
}

/// Reads the stack of a marker, which has the form of a thread with one sample. Returns `None` for
/// any other value, such as a text.
fn read_cause(
    profile: &mut ProfileModel,
    context: &GeckoProcess,
    stacks: &mut GeckoStacks,
    value: Value<'_, '_>,
) -> Result<Option<Cause>, ReadError> {
    if !value.is_object() {
        return Ok(None);
    }
    let thread = value.object("a stack")?;
    let Some(samples) = thread.get("samples") else {
        return Ok(None);
    };
    let mut cause = None;
    each_row(samples, &["stack", "time"], 1, |row_number, row| {
        if let (0, Some(index)) = (row_number, row.get(0)) {
            let stack = stacks.stack(profile, context, index, Role::Caller)?;
            let time_ns = row.get(1).map_or(Ok(0), |time| time.time_ns())?;
            cause = Some((stack, time_ns.saturating_add(context.offset_ns)));
        }
        Ok(())
    })?;
    Ok(Some(cause))
}
