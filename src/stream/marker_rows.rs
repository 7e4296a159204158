//! A row of a thread's table of markers.

use crate::base::call_host;
use crate::json::{JsonWriter, UniqueStrings};
use crate::markers::{
    DecodedMarker, DecodedPayload, JSONWriter, MarkerPhase, PayloadFailure, PropertyWriter,
};
use crate::stream::decode::ProcessStreamingContext;
use crate::stream::marker_types::{
    KnownType, MarkerTypes, ONLY_USER_DATA, TEXT, type_without_payload,
};
use crate::stream::resolved_thread::ResolvedThread;
use crate::stream::source::ProfileSource;
use crate::stream::thread_tables::{MARKERS, write_schema};

/// What markers of all threads are written with.
pub(super) struct MarkerContext<'a> {
    pub(super) source: &'a ProfileSource,
    pub(super) process: &'a ProcessStreamingContext,
    pub(super) types: &'a MarkerTypes,
}

impl MarkerContext<'_> {
    /// Writes the row. A payload that cannot be read back is left out, and its marker's name says so.
    pub(super) fn write(
        &self,
        json: &mut JsonWriter<'_>,
        marker: &DecodedMarker<'_>,
        thread: &mut ResolvedThread<'_>,
    ) {
        // Its stack first, as what its number is does not hang on what the payload does.
        let stack = self
            .process
            .marker_stacks
            .get(&marker.stack)
            .filter(|_| marker.stack != 0);
        let stack = stack.map(|&(stack, time_ns)| {
            let stack = thread.stack_of(stack);
            (thread.without_own_functions(stack), time_ns)
        });
        let failure = match marker.payload {
            DecodedPayload::Typed { number, bytes } => self
                .write_typed(json, marker, thread, stack, number, bytes)
                .err(),
            DecodedPayload::Text(ref text) => {
                let text = thread.strings.intern(text);
                self.write_row(
                    json,
                    (&marker.name, TEXT),
                    marker,
                    &mut thread.strings,
                    |json, _| {
                        json.object(|json| {
                            json.key("type").string(TEXT);
                            json.key("name").unsigned(text.0.into());
                            self.write_user_data(json, marker, stack);
                        });
                    },
                );
                None
            }
            DecodedPayload::None => {
                self.write_without_payload(
                    json,
                    &marker.name,
                    marker,
                    &mut thread.strings,
                    stack,
                    ONLY_USER_DATA,
                );
                None
            }
        };
        if let Some((failure, type_name)) = failure {
            let spoiled = &self.process.spoiled_payloads;
            spoiled.set(spoiled.get() + 1);
            let name = format!("{} ({})", marker.name, failure.words());
            let type_name = type_without_payload(type_name);
            self.write_without_payload(json, &name, marker, &mut thread.strings, stack, type_name);
        }
    }

    /// On failure nothing is written, and the name of the type is given, if it has one.
    fn write_typed(
        &self,
        json: &mut JsonWriter<'_>,
        marker: &DecodedMarker<'_>,
        thread: &mut ResolvedThread<'_>,
        stack: Option<(u32, u64)>,
        number: u64,
        bytes: Option<&[u8]>,
    ) -> Result<(), (PayloadFailure, &'static str)> {
        let known = self
            .types
            .get(number)
            .map_err(|failure| (failure, ONLY_USER_DATA))?;
        let &KnownType { name, info } = known;
        let bytes = bytes.ok_or((PayloadFailure::Uncoded, name))?;
        let process_start = self.source.process_start.monotonic;
        let mut answer = Err(PayloadFailure::Panicked);
        let strings = &mut thread.strings;
        json.attempt(|json| {
            self.write_row(
                json,
                (&marker.name, name),
                marker,
                strings,
                |json, strings| {
                    json.object(|json| {
                        json.key("type").string(name);
                        let mut properties = PropertyWriter::new(json, strings, process_start);
                        call_host(|| {
                            answer = info.stream(bytes, &mut JSONWriter::new(&mut properties))
                        });
                        properties.finish();
                        self.write_user_data(json, marker, stack);
                    });
                },
            );
            answer.is_ok()
        });
        answer.map_err(|failure| (failure, name))
    }

    fn write_without_payload(
        &self,
        json: &mut JsonWriter<'_>,
        name: &str,
        marker: &DecodedMarker<'_>,
        strings: &mut UniqueStrings,
        stack: Option<(u32, u64)>,
        type_name: &str,
    ) {
        self.write_row(json, (name, type_name), marker, strings, |json, _| {
            if marker.has_user_data() {
                json.object(|json| {
                    json.key("type").string(type_name);
                    self.write_user_data(json, marker, stack);
                });
            }
        });
    }

    fn write_row(
        &self,
        json: &mut JsonWriter<'_>,
        (name, type_name): (&str, &str),
        marker: &DecodedMarker<'_>,
        strings: &mut UniqueStrings,
        write_data: impl FnOnce(&mut JsonWriter<'_>, &mut UniqueStrings),
    ) {
        let name = strings.intern(name_for_viewer(name, type_name));
        json.array(|json| {
            json.unsigned(name.0.into());
            json.time_ms(marker.start_ns);
            match marker.phase {
                // Start 0 and no end is fine with the viewer; an end of 0 would be taken for one.
                MarkerPhase::Instant | MarkerPhase::IntervalStart => json.null(),
                MarkerPhase::Interval | MarkerPhase::IntervalEnd => json.time_ms(marker.end_ns),
            }
            json.unsigned(marker.phase as u64);
            json.unsigned(marker.category.into());
            write_data(json, strings);
        });
    }

    /// What a marker of any type may have: a window, and a stack, in the form of a thread with one sample.
    fn write_user_data(
        &self,
        json: &mut JsonWriter<'_>,
        marker: &DecodedMarker<'_>,
        stack: Option<(u32, u64)>,
    ) {
        if marker.inner_window_id != 0 {
            json.key("innerWindowID").unsigned(marker.inner_window_id);
        }
        let Some((stack, time_ns)) = stack else {
            return;
        };
        json.key("stack").object(|json| {
            json.key("processType").string("default");
            json.key("name").string("SyncProfile");
            json.key("registerTime").null();
            json.key("unregisterTime").null();
            json.key("pid")
                .signed(self.source.process.to_number().into());
            json.key("tid")
                .signed(self.source.process.to_number().into());
            json.key("markers").object(|json| {
                write_schema(json, MARKERS);
                json.key("data").array(|_| {});
            });
            json.key("samples").object(|json| {
                write_schema(json, &["stack", "time", "eventDelay"]);
                json.key("data").array(|json| {
                    json.row(|json| {
                        json.unsigned(stack.into());
                        json.time_ms(time_ns);
                        json.unsigned(0);
                    });
                });
            });
        });
    }
}

/// The name by which the viewer finds a marker of a type that it has a view for. A picture of a window is one by its name alone,
/// and without its fields the profile does not open.
fn name_for_viewer<'a>(name: &'a str, type_name: &str) -> &'a str {
    const PICTURE: &str = "CompositorScreenshot";
    match (name, type_name) {
        (_, "IPC") => "IPC",
        (_, PICTURE) => PICTURE,
        (PICTURE, _) => "Compositor screenshot",
        _ => name,
    }
}
