//! Merges samples by stack and context, and writes the messages of a profile.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::export::options::ExportOptions;
use crate::export::sampled_range::sampled_range;
use crate::export::write::pprof::contexts::{Context, Contexts};
use crate::export::write::pprof::heap::{HEAP_VALUES, HeapValues, heap_rows};
use crate::export::write::pprof::messages::{self, Label};
use crate::export::write::pprof::tables::Tables;
use crate::model::{ProfileModel, StackId, Thread, WeightUnit, even_share};
use crate::util::{NumberMap, pair_key};

/// Which values samples have in addition to the number of samples and the wall time.
#[derive(Clone, Copy)]
struct ValueKinds {
    /// Whether the profile has sampled allocations.
    heap: bool,
    /// Whether the profile has samples, or nothing else.
    samples: bool,
    bytes: bool,
    cpu: bool,
}

/// The values of the samples with one stack in one context.
#[derive(Clone, Copy, Default)]
struct Values {
    heap: HeapValues,
    samples: i64,
    bytes: i64,
    wall_ns: i64,
    cpu_ns: i64,
}

/// Writes the chosen threads as a compressed pprof profile.
pub(crate) fn write_pprof(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if options.is_compressed_later {
        return write_plain(profile, options, out);
    }
    // The fastest level, as Go's own writer has it.
    let mut compressed = GzEncoder::new(&mut *out, Compression::fast());
    write_plain(profile, options, &mut compressed)?;
    compressed.finish()?.flush()
}

/// Returns the chosen threads as one message, for a writer that converts it.
pub(in crate::export::write) fn to_message(
    profile: &ProfileModel,
    options: &ExportOptions,
) -> io::Result<messages::Profile> {
    let mut bytes = Vec::new();
    write_plain(profile, options, &mut bytes)?;
    prost::Message::decode(&*bytes).map_err(io::Error::other)
}

fn write_plain(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut tables = Tables::new(profile, out);
    let threads = options.threads(profile);
    let unit_of = |index: &usize| profile.threads[*index].samples.weight_unit;
    let heap: Vec<_> = threads
        .iter()
        .map(|index| match options.is_without_allocations {
            true => Vec::new(),
            false => heap_rows(profile, *index),
        })
        .collect();
    let has_heap = heap.iter().any(|rows| !rows.is_empty());
    let mut samples = threads.iter().map(|index| &profile.threads[*index].samples);
    let kinds = ValueKinds {
        heap: has_heap,
        samples: !has_heap || samples.any(|samples| !samples.is_empty()),
        bytes: threads
            .iter()
            .any(|index| unit_of(index) == WeightUnit::Bytes),
        cpu: profile.meta.has_cpu_deltas,
    };
    write_head(profile, options, &mut tables, kinds, &threads);
    let mut contexts = Contexts::new(profile);
    for (index, heap) in threads.into_iter().zip(heap) {
        let thread = &profile.threads[index];
        let rows = merge_samples(profile, thread, &mut contexts);
        let labels = thread_labels(profile, thread, &mut tables);
        for ((stack, context), values) in rows {
            let sample = messages::Sample {
                location_id: tables.stack(options, stack),
                value: values.list(kinds),
                label: {
                    let mut all = labels.clone();
                    all.extend(stack_label(stack, &mut tables));
                    let context = contexts.get(context);
                    all.extend(context_labels(profile, context, &mut tables));
                    all
                },
            };
            tables.sample(sample)?;
        }
        for (stack, values) in heap {
            let mut label = labels.clone();
            label.extend(stack_label(stack, &mut tables));
            let sample = messages::Sample {
                location_id: tables.stack(options, stack),
                value: Values {
                    heap: values,
                    ..Values::default()
                }
                .list(kinds),
                label,
            };
            tables.sample(sample)?;
        }
    }
    tables.finish()
}

/// Sets the fields that the profile has once.
fn write_head(
    profile: &ProfileModel,
    options: &ExportOptions,
    tables: &mut Tables<'_>,
    kinds: ValueKinds,
    threads: &[usize],
) {
    let mut types = Vec::new();
    if kinds.heap {
        let values = HEAP_VALUES.iter();
        types.extend(values.map(|(name, unit)| tables.value_type(name, unit)));
    }
    if kinds.samples {
        types.push(tables.value_type("samples", "count"));
        if kinds.bytes {
            types.push(tables.value_type("space", "bytes"));
        }
        types.push(tables.value_type("wall", "nanoseconds"));
        if kinds.cpu {
            types.push(tables.value_type("cpu", "nanoseconds"));
        }
    }
    let period_type = match kinds.samples {
        true => tables.value_type("cpu", "nanoseconds"),
        false => tables.value_type("space", "bytes"),
    };
    let samples = threads.iter().map(|index| &profile.threads[*index].samples);
    let session = profile.meta.session_ns.or_else(|| sampled_range(samples));
    let (start_ns, end_ns) = session.unwrap_or_default();
    let first_value = options.first_value.map_or(0, |name| tables.text(name));
    let head = &mut tables.part;
    head.default_sample_type = first_value;
    head.sample_type = types;
    head.time_nanos = ((profile.meta.start_epoch_ms * 1e6) as i64).saturating_add(start_ns);
    head.duration_nanos = end_ns.saturating_sub(start_ns);
    head.period_type = Some(period_type);
    head.period = i64::try_from(profile.meta.interval_ns).unwrap_or(i64::MAX);
}

type Row = ((Option<StackId>, u32), Values);

/// Merges the samples with the same stack and context, in the order of their first samples.
fn merge_samples(profile: &ProfileModel, thread: &Thread, contexts: &mut Contexts<'_>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut known = NumberMap::default();
    let mut of_thread = contexts.of_thread(thread);
    let samples = &thread.samples;
    for charged in profile.charged_samples(thread) {
        let sample = charged.sample;
        let stack = sample.stack.map_or(0, |stack| stack.0 + 1);
        let mut add = |context, weight: i64, cpu_ns: u64| {
            let row = *known.entry(pair_key(stack, context)).or_insert_with(|| {
                rows.push(((sample.stack, context), Values::default()));
                rows.len() - 1
            });
            let weight = (weight, samples.weight_unit);
            rows[row].1.add(profile, weight, cpu_ns);
        };
        let ticks = charged.ticks(samples);
        if ticks.count == 1 {
            let context = of_thread.at(contexts, sample.time_ns);
            add(context, sample.weight, charged.cpu_ns);
            continue;
        }
        // The context may change while the row's ticks pass.
        let mut tick = 0;
        while tick < ticks.count {
            let context = of_thread.at(contexts, ticks.time_ns(tick));
            let until_ns = of_thread.unchanged_until_ns();
            let end = ticks.end_of(tick, |time_ns| time_ns <= until_ns);
            let weight = i64::try_from(end - tick).unwrap_or(i64::MAX);
            let cpu_ns = even_share(charged.cpu_ns, tick..end, ticks.count);
            add(context, weight, cpu_ns);
            tick = end;
        }
    }
    rows
}

impl Values {
    fn add(&mut self, profile: &ProfileModel, (weight, unit): (i64, WeightUnit), cpu_ns: u64) {
        let interval_ns = i64::try_from(profile.meta.interval_ns).unwrap_or(i64::MAX);
        let (samples, bytes, wall_ns) = match unit {
            WeightUnit::Samples => (weight, 0, interval_ns.saturating_mul(weight)),
            WeightUnit::Milliseconds => (1, 0, weight.saturating_mul(1_000_000)),
            WeightUnit::Bytes => (1, weight, 0),
        };
        let cpu_ns = i64::try_from(cpu_ns).unwrap_or(i64::MAX);
        for (sum, value) in [
            (&mut self.samples, samples),
            (&mut self.bytes, bytes),
            (&mut self.wall_ns, wall_ns),
            (&mut self.cpu_ns, cpu_ns),
        ] {
            *sum = sum.saturating_add(value);
        }
    }

    fn list(&self, kinds: ValueKinds) -> Vec<i64> {
        let mut values = Vec::new();
        if kinds.heap {
            values.extend(self.heap.0);
        }
        if kinds.samples {
            let bytes = kinds.bytes.then_some(self.bytes);
            let cpu = kinds.cpu.then_some(self.cpu_ns);
            let of_samples = [Some(self.samples), bytes, Some(self.wall_ns), cpu];
            values.extend(of_samples.into_iter().flatten());
        }
        values
    }
}

/// The keys of labels that are not the application's.
const OWN_KEYS: &[&str] = &[
    "thread",
    "thread_id",
    "process",
    "process_id",
    "label",
    "marker",
];

fn text_label(tables: &mut Tables<'_>, key: &str, text: &str) -> Label {
    Label {
        key: tables.text(key),
        str: tables.text(text),
        num: 0,
    }
}

/// Returns a label with an id: a number, or a text if the id is 0 or not a number.
fn id_label(tables: &mut Tables<'_>, key: &str, id: &str) -> Label {
    match id.parse() {
        Ok(num) if num != 0 => Label {
            key: tables.text(key),
            str: 0,
            num,
        },
        _ => text_label(tables, key, id),
    }
}

fn thread_labels(profile: &ProfileModel, thread: &Thread, tables: &mut Tables<'_>) -> Vec<Label> {
    let mut labels = vec![
        text_label(tables, "thread", &thread.name),
        id_label(tables, "thread_id", &thread.tid),
    ];
    if profile.processes.len() > 1 {
        let process = profile.process_of(thread);
        labels.push(text_label(tables, "process", &process.name));
        labels.push(id_label(tables, "process_id", &process.pid));
    }
    labels
}

/// Returns the label with the application's labels in a stack, if it has any.
fn stack_label(stack: Option<StackId>, tables: &mut Tables<'_>) -> Option<Label> {
    let path = tables.label_path(stack)?;
    Some(Label {
        key: tables.text("label"),
        str: path,
        num: 0,
    })
}

fn context_labels(
    profile: &ProfileModel,
    context: &Context,
    tables: &mut Tables<'_>,
) -> Vec<Label> {
    let marker = context.marker.map(|name| profile.text(name));
    let marker = marker.map(|name| text_label(tables, "marker", name));
    let fields = context.fields.iter().map(|((type_name, key), value)| {
        let key = format!("{}.{}", profile.text(*type_name), profile.text(*key));
        let value = value.map_or("(other)", |value| profile.text(value));
        text_label(tables, &key, value)
    });
    let mut labels: Vec<_> = fields.collect();
    for (key, value) in &context.own {
        let mut key = profile.text(*key).to_owned();
        if OWN_KEYS.contains(&&*key) {
            key.push('_');
        }
        labels.push(text_label(tables, &key, profile.text(*value)));
    }
    marker.into_iter().chain(labels).collect()
}
