//! Makes the model of a session's profile.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use serde_json::value::RawValue;

use crate::counters::{CounterReading, KnownCounter};
use crate::json::json_text;
use crate::markers::{DecodedMarker, DecodedPayload, JSONWriter, MarkerPhase, PayloadFailure};
use crate::model::{
    Category, Counter, CounterGraph, CounterSample, FieldValue, FunctionKind, Marker,
    MarkerPayload, MarkerSchema, Markers, Meta, Process, ProfileModel, STANDS_FOR, Sample, Samples,
    StackId, TextId, Thread, WAITING_TASKS, WeightUnit,
};
use crate::stream::decode::{
    ProcessStreamingContext, ProfileSource, ThreadStreamingContext, decode_newest,
};
use crate::stream::memory::check_memory;
use crate::stream::model::frames::{FrameBuilder, without_own_functions};
use crate::stream::model::marker_fields::FieldCollector;
use crate::stream::resolve::{
    CONTEXT_NAME, MarkerTypes, ONLY_USER_DATA, ProfileNames, SAMPLE_CONTEXT, TASK_WAIT, TEXT,
    WAIT_NAME, WAIT_TEXT, name_for_viewer, to_text, type_without_payload, waiting_tasks_tid,
};
use crate::stream::write::{
    FoundProblems, StreamOptions, warnings_about, write_log, write_meta, write_pages,
};
use crate::threads::MAIN_THREAD_NAME;
use crate::types::{
    CounterUnit, Features, GraphColor, IDLE_INDEX, OTHER_CATEGORY, Symbolicate, Warning,
};
use crate::util::{ProgressLocation, ProgressLogger, SharedSort, run_callback};

/// Progress of a job whose model is complete, from 0 to 1.
pub(crate) const MODEL_END: f32 = 0.70;
/// Progress at the end of each part of the model, from 0 to 1.
const ENTRIES_END: f32 = 0.20;
const NAMES_END: f32 = 0.70;

/// Size of the markers that are added between two checks of the memory, in bytes.
const MARKER_STEP_BYTES: usize = 1 << 20;
/// Memory of markers in the model while its tables grow, as a multiple of their size in the buffer.
const MARKER_FACTOR: usize = 16;

/// Memory of a row of samples in the model, in bytes.
const SAMPLE_BYTES: usize = 2 * 24;

/// Makes the model of a profile. The profile's child processes are not part of it.
///
/// Without memory for the whole, leaves out names, or the oldest entries.
///
/// Returns the model, and what the user should know.
///
/// # Errors
/// The memory does not suffice even for a small part.
pub(crate) fn build_model(
    mut source: ProfileSource,
    options: &StreamOptions,
) -> io::Result<(ProfileModel, FoundProblems)> {
    source.since = options.since;
    let progress = options
        .progress
        .sub_logger(0.0, MODEL_END, ProgressLocation::Entries);
    let decoding = progress.sub_logger(0.0, ENTRIES_END, ProgressLocation::Entries);
    let mut process = decode_newest(&mut source, &decoding)?;
    drop(decoding);
    process.thin_sleepers();
    process.thin_idle_rows(options.max_rows);
    let naming = progress.sub_logger(ENTRIES_END, NAMES_END, ProgressLocation::Names);
    let has_memory_for_names = process.has_memory_for_names();
    let symbolicate = match has_memory_for_names {
        true => options.names.symbolicate,
        false => Symbolicate::No,
    };
    let names = match symbolicate {
        Symbolicate::No => ProfileNames::default(),
        _ => {
            let open_modules = options.open_modules.as_deref();
            ProfileNames::look_up(&source, &process, options.names, open_modules, &naming)
        }
    };
    drop(naming);
    // The model's frames and stacks take about as much as the process's, and their texts.
    check_memory(4 * process.unnamed_bytes())?;
    let mut profile = ProfileModel::default();
    let types = MarkerTypes::of_profile(&source, &process);
    let mut frames = FrameBuilder::new(&mut profile, &source, &process, &names);
    let stacks = frames.add_stacks(&mut profile);
    let builder = ModelBuilder {
        source: &source,
        process: &process,
        types: &types,
        stacks,
    };
    let is_symbolicated = symbolicate != Symbolicate::No;
    let wants_names = options.names.symbolicate != Symbolicate::No;
    let warnings = warnings_about(&source, &process, wants_names, has_memory_for_names);
    builder.add_facts(&mut profile, is_symbolicated, &names, &warnings);
    let threads = progress.sub_logger(NAMES_END, 1.0, ProgressLocation::Frames);
    let contexts = process.threads.iter();
    for (progress, context) in threads.loop_sub_loggers(contexts, ProgressLocation::Frames) {
        builder.add_thread(&mut profile, context, &progress)?;
    }
    // The main thread comes first, as the Firefox Profiler expects it.
    profile.threads.shared_sort_by_key(|thread| !thread.is_main);
    if profile.threads.is_empty() {
        let main_thread = builder.placeholder_main_thread();
        profile.threads.push(main_thread);
    }
    builder.add_waiting_tasks(&mut profile)?;
    builder.add_counters(&mut profile);
    let found = FoundProblems {
        unread_files: names.unread_files,
        warnings,
        left_out_bytes: source.buffer.left_out_bytes,
    };
    Ok((profile, found))
}

/// The fields of a marker, with their keys.
type Fields = Vec<(TextId, FieldValue)>;

struct ModelBuilder<'a> {
    source: &'a ProfileSource,
    process: &'a ProcessStreamingContext,
    types: &'a MarkerTypes,
    /// The model's stack for each of the process.
    stacks: Vec<StackId>,
}

fn time(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

impl ModelBuilder<'_> {
    fn add_facts(
        &self,
        profile: &mut ProfileModel,
        is_symbolicated: bool,
        names: &ProfileNames,
        warnings: &[Warning],
    ) {
        let Self {
            source, process, ..
        } = self;
        let settings = &source.session.settings;
        let meta = json_text(|json| {
            write_meta(json, source, process, self.types, is_symbolicated, warnings);
        });
        let all: BTreeMap<String, &RawValue> = serde_json::from_str(&meta).unwrap_or_default();
        let other = all.into_iter();
        let other = other.map(|(key, value)| (key, value.get().to_owned()));
        profile.meta = Meta {
            product: source.product.clone(),
            start_epoch_ms: source.process_start.epoch_ms,
            interval_ns: settings.interval.as_nanos() as u64,
            session_ns: Some((
                time(
                    source
                        .ns_since_start(source.session.started_at)
                        .max(source.cut_ns()),
                ),
                time(source.ns_since_start(source.taken_at)),
            )),
            is_symbolicated,
            has_cpu_deltas: settings.features.contains(Features::CPU),
            other: other.collect(),
        };
        let category = |category: &&'static crate::types::CategoryInfo| Category {
            name: category.label.to_owned(),
            color: category.color.to_owned(),
            subcategories: category
                .subcategories
                .iter()
                .map(|&name| name.to_owned())
                .collect(),
        };
        profile.categories = process.categories.iter().map(category).collect();
        let schema = |(name, json): (&str, String)| MarkerSchema {
            name: name.to_owned(),
            json,
        };
        profile.marker_schemas = self.types.schemas_as_json().map(schema).collect();
        let shutdown = source.is_shutting_down;
        profile.processes.push(Process {
            pid: source.process.to_number().to_string(),
            name: source.process_name.clone(),
            kind: source.process_type.clone(),
            started_ns: Some(0),
            ended_ns: shutdown.then(|| time(source.ns_since_start(source.taken_at))),
            paused_ranges: process.paused_ranges.ranges.clone(),
            pages: json_text(|json| {
                json.array(|json| write_pages(json, &source.pages));
            }),
            log: json_text(|json| {
                let unnamed = names.unnamed_for_memory;
                write_log(json, source, process, &names.unread_files, unnamed);
            }),
        });
    }

    fn add_thread(
        &self,
        profile: &mut ProfileModel,
        context: &ThreadStreamingContext,
        progress: &ProgressLogger,
    ) -> io::Result<()> {
        let registration = context.thread.unlocked_const_reader_and_atomic_rw();
        let info = registration.info();
        let unregistered = registration.unregistered_at();
        let rows = context.samples.kept_rows(&self.process.gaps);
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        check_memory(rows.saturating_mul(SAMPLE_BYTES))?;
        let mut samples = Samples::default();
        let mut probed = (!context.probes.is_empty()).then(|| context.probed_delays(self.source));
        let mut kept = context.samples.iter(&self.process.gaps);
        let with_counts = std::iter::from_fn(|| kept.next_with_count());
        for (row, count) in progress.watch(with_counts, rows, ProgressLocation::Samples) {
            let probed_ns = probed.as_mut().and_then(|delay_at| delay_at(row.time_ns));
            samples.push(Sample {
                stack: Some(self.stacks[row.stack as usize]),
                time_ns: time(row.time_ns),
                cpu_delta_ns: row.cpu_delta_ns,
                event_delay_ns: row.event.delay_ns().max(probed_ns),
                // A row that is kept counts for those after it that are left out.
                weight: i64::try_from(count).unwrap_or(i64::MAX),
            });
        }
        let mut markers = Markers::default();
        let mut unchecked_bytes = usize::MAX;
        for block in context.markers.blocks() {
            let entry = self.source.buffer.entry_at(block);
            unchecked_bytes =
                unchecked_bytes.saturating_add(entry.as_ref().map_or(0, |entry| entry.left()));
            if unchecked_bytes > MARKER_STEP_BYTES {
                unchecked_bytes = 0;
                check_memory(MARKER_FACTOR * MARKER_STEP_BYTES)?;
            }
            let marker = entry.and_then(|mut entry| {
                entry.kind()?;
                DecodedMarker::read(&mut entry)
            });
            if let Some(marker) = marker {
                self.add_marker(profile, &mut markers, &marker);
            }
        }
        self.add_contexts(profile, &mut markers, context)?;
        profile.threads.push(Thread {
            process: 0,
            name: registration.name(),
            tid: registration.tid().to_number().to_string(),
            is_main: info.is_main,
            registered_ns: Some(time(self.source.ns_since_start(info.registered_at))),
            unregistered_ns: unregistered.map(|at| time(self.source.ns_since_start(at))),
            asleep_at: context.asleep_at.map(|stack| self.stacks[stack as usize]),
            samples,
            markers,
        });
        Ok(())
    }

    /// Returns an empty main thread, as Gecko's format has it. The Firefox Profiler shows no
    /// counters of a process without a thread.
    fn placeholder_main_thread(&self) -> Thread {
        Thread {
            name: MAIN_THREAD_NAME.to_owned(),
            tid: self.source.process.to_number().to_string(),
            is_main: true,
            registered_ns: Some(0),
            ..Thread::default()
        }
    }

    /// Adds the track of the waiting tasks, if the process has any.
    fn add_waiting_tasks(&self, profile: &mut ProfileModel) -> io::Result<()> {
        let waits = &self.process.task_waits;
        if waits.is_empty() {
            return Ok(());
        }
        check_memory(waits.len().saturating_mul(SAMPLE_BYTES))?;
        let mut samples = Samples::default();
        samples.weight_unit = WeightUnit::Milliseconds;
        for row in waits.rows() {
            samples.push(Sample {
                stack: Some(self.stacks[row.stack as usize]),
                time_ns: time(row.time_ns),
                cpu_delta_ns: None,
                event_delay_ns: None,
                weight: i64::try_from(row.weight).unwrap_or(i64::MAX),
            });
        }
        let mut markers = Markers::default();
        let type_name = profile.intern(TASK_WAIT);
        let name = profile.intern(WAIT_NAME);
        let text_key = profile.intern(WAIT_TEXT);
        for interval in waits.intervals() {
            let text = self.labels_of(profile, self.stacks[interval.stack as usize]);
            let text = FieldValue::UniqueText(profile.intern(&text));
            let mut fields: Fields = vec![(text_key, text)];
            self.add_context_fields(profile, &mut fields, interval.context);
            let start_ns = interval.time_ns.saturating_sub(interval.interval_ns);
            markers.push(Marker {
                name,
                phase: MarkerPhase::Interval,
                start_ns: Some(time(start_ns)),
                end_ns: Some(time(interval.time_ns)),
                category: IDLE_INDEX.into(),
                payload: Some(MarkerPayload {
                    type_name,
                    fields: &fields,
                    stack: None,
                }),
            });
        }
        let started = self.source.session.started_at;
        profile.threads.push(Thread {
            name: WAITING_TASKS.to_owned(),
            tid: waiting_tasks_tid(self.source.process.to_number().into()).to_string(),
            registered_ns: Some(time(self.source.ns_since_start(started))),
            samples,
            markers,
            ..Thread::default()
        });
        Ok(())
    }

    /// Returns the labels of a stack, outermost first.
    fn labels_of(&self, profile: &ProfileModel, stack: StackId) -> String {
        let frames = profile.stack_frames(Some(stack));
        let functions = frames.map(|frame| profile.function(profile.frame(frame).function));
        let labels = functions.filter(|function| function.kind == FunctionKind::Label);
        let mut labels: Vec<_> = labels.map(|label| profile.text(label.name)).collect();
        labels.reverse();
        labels.join(" → ")
    }

    fn add_context_fields(&self, profile: &mut ProfileModel, fields: &mut Fields, context: u32) {
        for (key, value) in self.process.contexts.fields(self.source, context) {
            let value = FieldValue::UniqueText(profile.intern(&value));
            fields.push((profile.intern(&key), value));
        }
    }

    /// Adds an interval for each time in which the thread's samples had one context.
    fn add_contexts(
        &self,
        profile: &mut ProfileModel,
        markers: &mut Markers,
        context: &ThreadStreamingContext,
    ) -> io::Result<()> {
        const CHECKED_INTERVALS: usize = 4096;
        let type_name = profile.intern(SAMPLE_CONTEXT);
        let name = profile.intern(CONTEXT_NAME);
        for intervals in context.contexts.all.chunks(CHECKED_INTERVALS) {
            check_memory(MARKER_FACTOR * MARKER_STEP_BYTES)?;
            for interval in intervals {
                let mut fields = Fields::new();
                self.add_context_fields(profile, &mut fields, interval.context);
                markers.push(Marker {
                    name,
                    phase: MarkerPhase::Interval,
                    start_ns: Some(time(interval.start_ns)),
                    end_ns: Some(time(interval.end_ns)),
                    category: OTHER_CATEGORY.into(),
                    payload: Some(MarkerPayload {
                        type_name,
                        fields: &fields,
                        stack: None,
                    }),
                });
            }
        }
        Ok(())
    }

    fn add_marker(
        &self,
        profile: &mut ProfileModel,
        markers: &mut Markers,
        marker: &DecodedMarker<'_>,
    ) {
        let stack = self.process.stack_of_marker(marker);
        let stack = stack.map(|(stack, time_ns)| {
            let stack = self.stacks[stack as usize];
            (without_own_functions(profile, stack), time(time_ns))
        });
        let name = to_text(marker.name);
        let mut add = |profile: &mut ProfileModel, name, type_name: &str, fields| {
            self.push_marker(profile, markers, marker, (name, type_name), fields, stack);
        };
        match marker.payload {
            DecodedPayload::Typed { number, bytes } => {
                match self.typed_fields(profile, number, bytes) {
                    Ok((type_name, fields)) => add(profile, name, type_name, Some(fields)),
                    Err((failure, type_name)) => {
                        let name = Cow::Owned(format!("{name} ({})", failure.words()));
                        add(profile, name, type_without_payload(type_name), None);
                    }
                }
            }
            DecodedPayload::Text(text) => {
                let text = FieldValue::UniqueText(profile.intern(&to_text(text)));
                let field = (profile.intern("name"), text);
                add(profile, name, TEXT, Some(vec![field]));
            }
            DecodedPayload::None => add(profile, name, ONLY_USER_DATA, None),
        }
    }

    /// Returns the fields of a payload of the application's type `number`, with the type's name. On
    /// failure, returns the reason, with the name of the type that the marker gets instead.
    fn typed_fields(
        &self,
        profile: &mut ProfileModel,
        number: u64,
        bytes: Option<&[u8]>,
    ) -> Result<(&str, Fields), (PayloadFailure, &str)> {
        let known = self
            .types
            .get(number)
            .map_err(|failure| (failure, ONLY_USER_DATA))?;
        let name = known.name.as_ref();
        let bytes = bytes.ok_or((PayloadFailure::NotSerialized, name))?;
        let mut fields = FieldCollector::new(profile, self.source.process_start.monotonic);
        let mut answer = Err(PayloadFailure::Panicked);
        run_callback(|| answer = known.stream(bytes, &mut JSONWriter::new(&mut fields)));
        let fields = fields.finish();
        answer.map_err(|failure| (failure, name))?;
        Ok((name, fields))
    }

    /// Adds a marker to the model. Without `fields`, it has a payload only if it has a stack or a
    /// window.
    fn push_marker(
        &self,
        profile: &mut ProfileModel,
        markers: &mut Markers,
        marker: &DecodedMarker<'_>,
        (name, type_name): (Cow<'_, str>, &str),
        fields: Option<Fields>,
        stack: Option<(StackId, i64)>,
    ) {
        let name = match name_for_viewer(&name, type_name) {
            Some(required) => profile.intern(required),
            None => profile.intern(&name),
        };
        let has_payload = fields.is_some() || marker.has_user_data();
        let mut fields = fields.unwrap_or_default();
        if marker.stands_for > 1 {
            let number = i64::try_from(marker.stands_for).unwrap_or(i64::MAX);
            fields.push((profile.intern(STANDS_FOR), FieldValue::Integer(number)));
        }
        if marker.inner_window_id != 0 {
            let id = i64::try_from(marker.inner_window_id).unwrap_or(i64::MAX);
            fields.push((profile.intern("innerWindowID"), FieldValue::Integer(id)));
        }
        let payload = has_payload.then(|| MarkerPayload {
            type_name: profile.intern(type_name),
            fields: &fields,
            stack,
        });
        let (start_ns, end_ns) = (Some(time(marker.start_ns)), Some(time(marker.end_ns)));
        let (start_ns, end_ns) = match marker.phase {
            MarkerPhase::Instant | MarkerPhase::IntervalStart => (start_ns, None),
            MarkerPhase::Interval => (start_ns, end_ns),
            MarkerPhase::IntervalEnd => (None, end_ns),
        };
        markers.push(Marker {
            name,
            phase: marker.phase,
            start_ns,
            end_ns,
            category: marker.category.into(),
            payload,
        });
    }

    fn add_counters(&self, profile: &mut ProfileModel) {
        let with_rows = self.process.counters.iter();
        for (counter, rows) in with_rows.filter(|(_, rows)| !rows.is_empty()) {
            let sample = |(time_ns, growth): (u64, CounterReading)| CounterSample {
                time_ns: time(time_ns),
                delta: growth.count as f64,
                operations: counter.counts_operations.then_some(growth.operations),
            };
            profile.counters.push(Counter {
                process: 0,
                name: counter.name.to_string(),
                category: counter.category.to_string(),
                description: counter.description.to_string(),
                graph: match counter {
                    KnownCounter::Own(_) | KnownCounter::Found(_) => None,
                    KnownCounter::Application(_) => Some(CounterGraph {
                        is_level: counter.is_level(),
                        is_bytes: counter.unit == CounterUnit::Bytes,
                        color: counter.color.map_or("grey", GraphColor::keyword),
                    }),
                },
                samples: self
                    .source
                    .counter_rows(counter, rows)
                    .map(sample)
                    .collect(),
            });
        }
    }
}
