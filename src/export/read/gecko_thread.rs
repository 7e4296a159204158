//! Reads a thread of Gecko's JSON.

use crate::export::read::builder::{Cause, ModelBuilder, Strings};
use crate::export::read::context::Context;
use crate::export::read::gecko_stacks::{GeckoStacks, Role};
use crate::export::read::table::each_row;
use crate::export::read::thread::{read_markers, read_samples, read_thread};
use crate::export::read::value::{Object, Value};
use crate::model::ProfileModel;
use crate::types::ReadError;

/// Adds a thread to the model.
pub(super) fn read_gecko_thread(
    builder: &mut ModelBuilder,
    context: &Context,
    thread: &Object<'_, '_>,
) -> Result<(), ReadError> {
    read_process(builder, context, thread)?;
    let mut read = read_thread(context, thread, context.process)?;
    let strings = thread.require("stringTable", "an array of texts")?;
    let mut strings = Strings::read(strings)?;
    let mut stacks = GeckoStacks::read(builder, context, thread, &mut strings)?;
    let profile = &mut builder.profile;
    let asleep_at = thread.get("asleepAt");
    read.asleep_at = asleep_at
        .map(|index| stacks.stack(profile, context, index, Role::Innermost))
        .transpose()?;
    read.samples = read_samples(context, thread, |index| {
        stacks.stack(profile, context, index, Role::Innermost)
    })?;
    let mut cause = |profile: &mut ProfileModel, key: &str, value: Value<'_, '_>| match key {
        "stack" => read_cause(profile, context, &mut stacks, value),
        _ => Ok(None),
    };
    read.markers = read_markers(profile, context, thread, &mut strings, &mut cause)?;
    builder.profile.threads.push(read);
    Ok(())
}

/// Sets what only threads say about their process.
fn read_process(
    builder: &mut ModelBuilder,
    context: &Context,
    thread: &Object<'_, '_>,
) -> Result<(), ReadError> {
    let pid = thread.get("pid").map(|pid| pid.id()).transpose()?;
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
    let samples = samples.object("a table")?;
    let mut cause = None;
    each_row(
        context.form,
        &samples,
        (&["stack", "time"], 1),
        |number, row| {
            if let (0, Some(index)) = (number, row.get("stack")) {
                let stack = stacks.stack(profile, context, index, Role::Caller)?;
                let time_ns = row.get("time").map_or(Ok(0), |time| time.time_ns())?;
                cause = Some((stack, time_ns.saturating_add(context.offset_ns)));
            }
            Ok(())
        },
    )?;
    Ok(Some(cause))
}
