//! Writes pprof profiles: `profile.proto` of google/pprof, compressed with gzip.
//!
//! Values: `samples/count` is the number of samples, `wall/nanoseconds` one interval for each of
//! them, idle ones included, and `cpu/nanoseconds` the part of the thread's CPU time that is charged
//! to the sample: see `charged_cpu.rs` of the model. `cpu` is left out if the profile has no CPU times. `space/bytes`, for threads whose samples are
//! weighted by bytes, is left out if there are none. The last value is the one that readers show.
//! It is `cpu`, or `wall` without CPU times. All values are written, so `ExportOptions::weight`
//! changes nothing.
//!
//! Sampled allocations add the values of a heap profile: `alloc_objects/count`, `alloc_space/bytes`,
//! `inuse_objects/count` and `inuse_space/bytes`. They are first, or the only ones if the profile has
//! no samples.
//!
//! Labels: `thread` and `thread_id`; `process` and `process_id` if the profile has several;
//! `label`, the application's labels in the stack, joined by `;`, the outermost first; `marker`,
//! the name of the innermost interval of the thread's markers that contains the sample; and
//! `TYPE.FIELD` for the texts in the innermost such interval of each marker type. `contexts.rs` has
//! the limits of the last ones.
//!
//! The profile has no `drop_frames`: a reader would remove all frames that a matching function
//! calls. It would match names only up to their first parenthesis, so that `<(A, B) as T>::f` is
//! `<`. No frame of the profiler is in the stacks, so none has to be dropped.

mod contexts;
#[cfg(test)]
mod pprof_tests;
mod tables;

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::export::markers::{field, is_of_type};
use crate::export::options::{ExportOptions, sampled_range};
use crate::export::write::pprof::contexts::{Context, Contexts};
use crate::export::write::pprof::tables::{Sample, Tables};
use crate::model::{FieldValue, Marker, ProfileModel, StackId, Thread, WeightUnit, even_share};
use crate::util::{NumberMap, SharedSort, pair_key};

pub(crate) use tables::{Label, Profile, ValueType};

/// Types and units of the values of a heap profile, in their order. They are those of Go's.
const HEAP_VALUES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

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
    heap: [i64; 4],
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
pub(crate) fn to_message(profile: &ProfileModel, options: &ExportOptions) -> io::Result<Profile> {
    let mut bytes = Vec::new();
    write_plain(profile, options, &mut bytes)?;
    Message::decode(&*bytes).map_err(io::Error::other)
}

fn write_plain(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut tables = Tables::new(profile, out);
    let threads = options.threads(profile).into_iter();
    let threads: Vec<&Thread> = threads.map(|index| &profile.threads[index]).collect();
    let heap = threads
        .iter()
        .map(|thread| match options.is_without_allocations {
            true => Vec::new(),
            false => heap_rows(profile, thread),
        });
    let heap: Vec<_> = heap.collect();
    let has_heap = heap.iter().any(|rows| !rows.is_empty());
    let samples = || threads.iter().map(|thread| &thread.samples);
    let kinds = ValueKinds {
        heap: has_heap,
        samples: !has_heap || samples().any(|samples| !samples.is_empty()),
        bytes: samples().any(|samples| samples.weight_unit == WeightUnit::Bytes),
        cpu: profile.meta.has_cpu_deltas,
    };
    write_head(profile, options, &mut tables, kinds, &threads);
    let mut contexts = Contexts::new(profile);
    for (thread, heap) in threads.into_iter().zip(heap) {
        let rows = merge_samples(profile, thread, &mut contexts);
        let labels = thread_labels(profile, thread, &mut tables);
        for ((stack, context), values) in rows {
            let sample = Sample {
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
            let sample = Sample {
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
    threads: &[&Thread],
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
    let samples = threads.iter().map(|thread| &thread.samples);
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

/// The stack and the context of samples, and their values.
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
            values.extend(self.heap);
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

/// Sums of allocations, not rounded: a sample may represent a number of objects that is not whole.
#[derive(Clone, Copy, Default)]
struct Sums {
    allocated: Amount,
    in_use: Amount,
}

#[derive(Clone, Copy, Default)]
struct Amount {
    objects: f64,
    bytes: i64,
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Sums {
    /// Returns the sums in the order of [`HEAP_VALUES`].
    fn values(&self) -> [i64; 4] {
        let [allocated, in_use] = [self.allocated, self.in_use];
        [
            allocated.objects.round() as i64,
            allocated.bytes,
            in_use.objects.round() as i64,
            in_use.bytes,
        ]
    }
}

/// An allocation, or with negative bytes a free.
struct Event {
    time_ns: i64,
    address: u64,
    bytes: i64,
    objects: f64,
    stack: Option<StackId>,
}

impl Event {
    fn of(profile: &ProfileModel, marker: &Marker<'_>) -> Option<Self> {
        if !is_of_type(profile, marker, "Native allocation") {
            return None;
        }
        let field = |key| match field(profile, marker, key)? {
            FieldValue::Integer(number) => Some(number),
            FieldValue::Number(number) => Some(number as i64),
            _ => None,
        };
        let bytes = field("size")?;
        let sampled = field("sampledSize").filter(|size| *size > 0);
        let objects = sampled.map_or(1.0, |size| (bytes as f64 / size as f64).abs());
        Some(Self {
            time_ns: marker.start_ns.or(marker.end_ns)?,
            address: field("memoryAddress").unwrap_or(0).cast_unsigned(),
            bytes,
            objects,
            stack: marker.payload?.stack.map(|(stack, _)| stack),
        })
    }
}

/// Returns the sums of a thread's allocations by stack, in the order of their first allocations.
///
/// A free belongs to the stack that allocated, so what is in use is what was allocated, less what
/// was freed. A free whose allocation is not in the profile counts for nothing.
fn heap_rows(profile: &ProfileModel, thread: &Thread) -> Vec<(Option<StackId>, [i64; 4])> {
    let markers = thread.markers.iter();
    let mut events: Vec<_> = markers
        .filter_map(|marker| Event::of(profile, &marker))
        .collect();
    // The sampler has written them in the order in which they happened. A file may have another
    // one.
    events.shared_sort_by_key(|event| event.time_ns);
    let mut rows: Vec<(Option<StackId>, Sums)> = Vec::new();
    let mut row_of_stack = NumberMap::<usize>::default();
    // For each address in use, the row and the amount of its allocation.
    let mut in_use = NumberMap::<(usize, Amount)>::default();
    for event in events {
        let before = if event.bytes < 0 {
            in_use.remove(&event.address)
        } else {
            let key = event.stack.map_or(0, |stack| u64::from(stack.0) + 1);
            let row = *row_of_stack.entry(key).or_insert_with(|| {
                rows.push((event.stack, Sums::default()));
                rows.len() - 1
            });
            let amount = Amount {
                objects: event.objects,
                bytes: event.bytes,
            };
            let sums = &mut rows[row].1;
            sums.allocated.add(amount);
            sums.in_use.add(amount);
            // The older one at this address has been freed in between, which the profile lacks.
            in_use.insert(event.address, (row, amount))
        };
        if let Some((row, amount)) = before {
            let freed = Amount {
                objects: -amount.objects,
                bytes: -amount.bytes,
            };
            rows[row].1.in_use.add(freed);
        }
    }
    let rows = rows.iter().map(|(stack, sums)| (*stack, sums.values()));
    rows.collect()
}
