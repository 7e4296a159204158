//! Reads what threads have in both formats.

use crate::export::read::builder::{Strings, in_order, marker_category};
use crate::export::read::context::Context;
use crate::export::read::marker_fields::{MarkerReader, MarkerTimes, ReadCause};
use crate::export::read::table::{Form, each_row};
use crate::export::read::value::{Object, Value};
use crate::model::{Marker, Markers, ProfileModel, Sample, Samples, StackId, Thread, WeightUnit};
use crate::types::ReadError;

/// Returns the facts about a thread, without its samples and markers.
pub(super) fn read_thread(
    context: &Context,
    thread: &Object<'_, '_>,
    process: usize,
) -> Result<Thread, ReadError> {
    let tid = thread.get("tid").map(|tid| tid.id()).transpose()?;
    Ok(Thread {
        process,
        name: thread.text("name")?,
        tid: tid.unwrap_or_default().into_owned(),
        is_main: false,
        registered_ns: context.in_profile(thread.get("registerTime"))?,
        unregistered_ns: context.in_profile(thread.get("unregisterTime"))?,
        asleep_at: None,
        samples: Samples::default(),
        markers: Markers::default(),
    })
}

/// Reads the samples of a thread. `stack` returns the stack with an index.
pub(super) fn read_samples(
    context: &Context,
    thread: &Object<'_, '_>,
    mut stack: impl FnMut(Value<'_, '_>) -> Result<StackId, ReadError>,
) -> Result<Samples, ReadError> {
    let columns = &["stack", "time", "eventDelay", "threadCPUDelta", "weight"];
    let table = thread.require("samples", "a table")?.object("a table")?;
    let mut samples = Samples::default();
    samples.weight_unit = match &*table.text("weightType")? {
        "tracing-ms" => WeightUnit::Milliseconds,
        "bytes" => WeightUnit::Bytes,
        _ => WeightUnit::Samples,
    };
    each_row(context.form, &table, (columns, 2), |_, row| {
        let number = |column| row.get(column).map(|number| number.count("a number"));
        let event_delay_ns = row.get("eventDelay").map(|delay| delay.duration_ns());
        let cpu_delta = number("threadCPUDelta").transpose()?;
        let weight = number("weight").transpose()?;
        samples.push(Sample {
            stack: row.get("stack").map(&mut stack).transpose()?,
            time_ns: row.time_ns()?.saturating_add(context.offset_ns),
            cpu_delta_ns: cpu_delta.and_then(|delta| context.cpu_unit.to_ns(delta)),
            event_delay_ns: event_delay_ns.transpose()?,
            weight: weight.map_or(1, |weight| weight.round() as i64),
        });
        Ok(())
    })?;
    Ok(in_order(samples))
}

/// Reads the markers of a thread. `cause` reads the member of a marker's data that holds the marker's
/// stack.
pub(super) fn read_markers<'a>(
    profile: &mut ProfileModel,
    context: &Context,
    thread: &Object<'a, '_>,
    strings: &mut Strings<'a>,
    cause: &mut ReadCause<'_, 'a>,
) -> Result<Markers, ReadError> {
    let columns = &["name", "phase", "startTime", "endTime", "category", "data"];
    let required = match context.form {
        Form::Gecko => 5,
        Form::Processed => 2,
    };
    let table = thread.require("markers", "a table")?.object("a table")?;
    let mut markers = Markers::default();
    let mut reader = MarkerReader::new(&context.index_fields, context.offset_ns as f64 / 1e6);
    each_row(context.form, &table, (columns, required), |_, row| {
        let name = row.require("name", "a string index")?;
        let name = strings.id(profile, name)?;
        let times = MarkerTimes {
            start_ns: context.in_profile(row.get("startTime"))?,
            end_ns: context.in_profile(row.get("endTime"))?,
        };
        let (phase, times) = times.of_phase(row.require("phase", "a phase from 0 to 3")?)?;
        let marker = Marker {
            name,
            phase,
            start_ns: times.start_ns,
            end_ns: times.end_ns,
            category: marker_category(&context.categories, row.get("category"))?,
            payload: None,
        };
        let data = row.get("data");
        reader.push(profile, &mut markers, marker, data, strings, cause)
    })?;
    Ok(markers)
}
