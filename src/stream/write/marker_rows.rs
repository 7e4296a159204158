//! Writes the rows of a thread's marker table.

use std::borrow::Cow;

use crate::json::{JsonWriter, StringIndex, UniqueStrings};
use crate::markers::{
    DecodedMarker, DecodedPayload, JSONWriter, MarkerPhase, PayloadFailure, PropertyWriter,
};
use crate::model::STANDS_FOR;
use crate::stream::decode::{
    ContextInterval, ProcessStreamingContext, ProfileSource, TaskWaitEntry,
};
use crate::stream::resolve::{
    CONTEXT_NAME, MarkerTypes, ONLY_USER_DATA, ResolvedThread, SAMPLE_CONTEXT, TASK_WAIT, TEXT,
    WAIT_NAME, WAIT_TEXT, name_for_viewer, to_text, type_without_payload,
};
use crate::stream::schema::write_table;
use crate::types::{IDLE_INDEX, OTHER_CATEGORY};
use crate::util::run_callback;

/// The columns of a marker table.
pub(crate) const MARKERS: &[&str] = &["name", "startTime", "endTime", "phase", "category", "data"];

/// The context for writing the markers of all threads.
pub(crate) struct MarkerContext<'a> {
    pub(crate) source: &'a ProfileSource,
    pub(crate) process: &'a ProcessStreamingContext,
    pub(crate) types: &'a MarkerTypes,
}

impl MarkerContext<'_> {
    /// Writes the row of a marker. A payload that cannot be read back is left out, and the reason
    /// is appended to the marker's name.
    pub(crate) fn write<'a>(
        &self,
        json: &mut JsonWriter<'_>,
        marker: &DecodedMarker<'a>,
        thread: &mut ResolvedThread<'a>,
    ) {
        // Resolve the stack first, so that its number does not depend on the payload's code.
        let stack = self.process.stack_of_marker(marker);
        let stack = stack.map(|(stack, time_ns)| (thread.stack_outside(stack), time_ns));
        let failure = match marker.payload {
            DecodedPayload::Typed { number, bytes } => self
                .write_typed(json, marker, thread, stack, number, bytes)
                .err(),
            DecodedPayload::Text(text) => {
                let text = thread.strings.intern_cow(to_text(text));
                let name = intern_name(&mut thread.strings, to_text(marker.name), TEXT);
                self.write_marker(json, marker, name, Some(TEXT), stack, |json| {
                    json.key("name").unsigned(text.0.into());
                });
                None
            }
            DecodedPayload::None => {
                let name = to_text(marker.name);
                self.write_without_payload(json, name, marker, thread, stack, ONLY_USER_DATA);
                None
            }
        };
        if let Some((failure, type_name)) = failure {
            let spoiled = &self.process.spoiled_payloads;
            spoiled.set(spoiled.get() + 1);
            let name = Cow::Owned(format!("{} ({})", to_text(marker.name), failure.words()));
            let type_name = type_without_payload(type_name);
            self.write_without_payload(json, name, marker, thread, stack, type_name);
        }
    }

    /// Writes the row of an interval in which the thread's samples had one context.
    pub(crate) fn write_context<'a>(
        &self,
        json: &mut JsonWriter<'_>,
        interval: &ContextInterval,
        thread: &mut ResolvedThread<'a>,
    ) {
        let name = thread.strings.intern_shared(CONTEXT_NAME);
        let times = (interval.start_ns, interval.end_ns);
        let of = (OTHER_CATEGORY, interval.context);
        self.write_interval(json, (name, SAMPLE_CONTEXT), times, of, None, thread);
    }

    /// Writes the row of a task's wait.
    pub(crate) fn write_wait<'a>(
        &self,
        json: &mut JsonWriter<'_>,
        wait: &TaskWaitEntry,
        thread: &mut ResolvedThread<'a>,
    ) {
        let name = thread.strings.intern_shared(WAIT_NAME);
        // The table has the stack, although only the text shows it.
        thread.stack_of(wait.stack);
        let labels = thread.named.labels_of(wait.stack);
        let text = thread.strings.intern_cow(labels.into());
        let times = (wait.time_ns.saturating_sub(wait.interval_ns), wait.time_ns);
        let of = (IDLE_INDEX, wait.context);
        self.write_interval(json, (name, TASK_WAIT), times, of, Some(text), thread);
    }

    /// Writes an interval with the fields of a context, and before them the futures of a wait.
    fn write_interval<'a>(
        &self,
        json: &mut JsonWriter<'_>,
        (name, type_name): (StringIndex, &str),
        times: (u64, u64),
        (category, context): (u8, u32),
        futures: Option<StringIndex>,
        thread: &mut ResolvedThread<'a>,
    ) {
        write_row(json, name, MarkerPhase::Interval, times, category, |json| {
            json.object(|json| {
                json.key("type").string(type_name);
                if let Some(futures) = futures {
                    json.key(WAIT_TEXT).unsigned(futures.0.into());
                }
                for (key, value) in self.process.contexts.fields(self.source, context) {
                    let value = thread.strings.intern_cow(value);
                    json.key(&key).unsigned(value.0.into());
                }
            });
        });
    }

    /// Writes a marker with a payload of the application's type `number`. On failure, writes
    /// nothing and returns the reason, with the name of the type or, if the type is unavailable, of
    /// the fallback type.
    fn write_typed<'a>(
        &self,
        json: &mut JsonWriter<'_>,
        marker: &DecodedMarker<'a>,
        thread: &mut ResolvedThread<'a>,
        stack: Option<(u32, u64)>,
        number: u64,
        bytes: Option<&[u8]>,
    ) -> Result<(), (PayloadFailure, &str)> {
        let known = self
            .types
            .get(number)
            .map_err(|failure| (failure, ONLY_USER_DATA))?;
        let name = known.name.as_ref();
        let bytes = bytes.ok_or((PayloadFailure::NotSerialized, name))?;
        let process_start = self.source.process_start.monotonic;
        let mut answer = Err(PayloadFailure::Panicked);
        let strings = &mut thread.strings;
        json.attempt(|json| {
            let name_index = intern_name(strings, to_text(marker.name), name);
            self.write_marker(json, marker, name_index, Some(name), stack, |json| {
                let mut properties = PropertyWriter::new(json, strings, process_start);
                run_callback(|| {
                    answer = known.stream(bytes, &mut JSONWriter::new(&mut properties))
                });
                properties.finish();
            });
            answer.is_ok()
        });
        answer.map_err(|failure| (failure, name))
    }

    fn write_without_payload<'a>(
        &self,
        json: &mut JsonWriter<'_>,
        name: Cow<'a, str>,
        marker: &DecodedMarker<'_>,
        thread: &mut ResolvedThread<'a>,
        stack: Option<(u32, u64)>,
        type_name: &str,
    ) {
        let name = intern_name(&mut thread.strings, name, type_name);
        let type_name = marker.has_user_data().then_some(type_name);
        self.write_marker(json, marker, name, type_name, stack, |_| {});
    }

    /// Writes the row of a marker, with a payload if that has a type.
    fn write_marker(
        &self,
        json: &mut JsonWriter<'_>,
        marker: &DecodedMarker<'_>,
        name: StringIndex,
        type_name: Option<&str>,
        stack: Option<(u32, u64)>,
        write_fields: impl FnOnce(&mut JsonWriter<'_>),
    ) {
        let times = (marker.start_ns, marker.end_ns);
        write_row(json, name, marker.phase, times, marker.category, |json| {
            let Some(type_name) = type_name else {
                return;
            };
            json.object(|json| {
                json.key("type").string(type_name);
                write_fields(json);
                self.write_user_data(json, marker, stack);
            });
        });
    }

    /// Writes the fields that a marker of any type may have: the number of markers that it stands
    /// for, the window, and the stack in the form of a thread with one sample.
    fn write_user_data(
        &self,
        json: &mut JsonWriter<'_>,
        marker: &DecodedMarker<'_>,
        stack: Option<(u32, u64)>,
    ) {
        if marker.stands_for > 1 {
            json.key(STANDS_FOR).unsigned(marker.stands_for);
        }
        if marker.inner_window_id != 0 {
            json.key("innerWindowID").unsigned(marker.inner_window_id);
        }
        let Some((stack, time_ns)) = stack else {
            return;
        };
        json.key("stack").object(|json| {
            json.key("processType").string(&self.source.process_type);
            json.key("name").string("SyncProfile");
            json.key("registerTime").null();
            json.key("unregisterTime").null();
            for id in ["pid", "tid"] {
                json.key(id).signed(self.source.process.to_number().into());
            }
            write_table(json.key("markers"), MARKERS, |_| {});
            let columns = &["stack", "time", "eventDelay"];
            write_table(json.key("samples"), columns, |json| {
                json.row(|json| {
                    json.unsigned(stack.into());
                    json.time_ms(time_ns);
                    json.unsigned(0);
                });
            });
        });
    }
}

/// Writes a row, which ends with what `write_payload` writes.
fn write_row(
    json: &mut JsonWriter<'_>,
    name: StringIndex,
    phase: MarkerPhase,
    (start_ns, end_ns): (u64, u64),
    category: u8,
    write_payload: impl FnOnce(&mut JsonWriter<'_>),
) {
    json.array(|json| {
        json.unsigned(name.0.into());
        json.time_ms(start_ns);
        match phase {
            // The viewer accepts a start of 0 with a null end, but would take an end of 0 for a
            // real end.
            MarkerPhase::Instant | MarkerPhase::IntervalStart => json.null(),
            MarkerPhase::Interval | MarkerPhase::IntervalEnd => json.time_ms(end_ns),
        }
        json.unsigned(phase as u64);
        json.unsigned(category.into());
        write_payload(json);
    });
}

/// Returns the index of the name by which the viewer shows a marker.
fn intern_name<'a>(
    strings: &mut UniqueStrings<'a>,
    name: Cow<'a, str>,
    type_name: &str,
) -> StringIndex {
    match name_for_viewer(&name, type_name) {
        Some(required) => strings.intern_shared(required),
        None => strings.intern_cow(name),
    }
}
