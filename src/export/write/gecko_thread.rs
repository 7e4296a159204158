//! Writes a thread as Gecko's JSON: its rows, and the tables that these use.

use crate::export::process_times::holds_process_time;
use crate::export::write::gecko_process::{GeckoProcess, weight_type, write_schema};
use crate::json::{JsonWriter, StringIndex, UniqueStrings};
use crate::model::{
    FieldValue, Frame, FrameId, Function, FunctionKind, Marker, MarkerPayload, ProfileModel,
    Sample, StackId, Thread, WeightUnit, WeightUnits,
};
use crate::util::{NumberMap, pair_key};

const SAMPLES: &[&str] = &["stack", "time", "eventDelay", "threadCPUDelta"];
const WEIGHTED_SAMPLES: &[&str] = &["stack", "time", "eventDelay", "threadCPUDelta", "weight"];
const MARKERS: &[&str] = &["name", "startTime", "endTime", "phase", "category", "data"];
const STACK_TABLE: &[&str] = &["prefix", "frame"];
const FRAME_TABLE: &[&str] = &[
    "location",
    "relevantForJS",
    "innerWindowID",
    "implementation",
    "line",
    "column",
    "category",
    "subcategory",
];

/// The part of a frame in a stack. Readers take an address of a caller for the one that its call
/// returns to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Innermost,
    Caller,
}

/// The frames, stacks and strings that a thread's rows have used.
struct Tables<'a> {
    profile: &'a ProfileModel,
    strings: UniqueStrings<'a>,
    frames: Vec<FrameRow<'a>>,
    /// By the frame and its role.
    frame_index: NumberMap<u32>,
    /// The prefix and the frame of each stack.
    stacks: Vec<(Option<u32>, u32)>,
    /// By the stack and its innermost frame's role.
    stack_index: NumberMap<u32>,
}

struct FrameRow<'a> {
    frame: &'a Frame,
    location: StringIndex,
    implementation: Option<StringIndex>,
}

impl<'a> Tables<'a> {
    fn new(profile: &'a ProfileModel) -> Self {
        Self {
            profile,
            strings: UniqueStrings::default(),
            frames: Vec::new(),
            frame_index: NumberMap::default(),
            stacks: Vec::new(),
            stack_index: NumberMap::default(),
        }
    }

    /// Returns the index of a stack, and adds it and its prefixes if they are new.
    fn stack(&mut self, stack: StackId, role: Role) -> u32 {
        let mut missing = Vec::new();
        let mut next = Some((stack, role));
        let mut index = loop {
            let Some((stack, role)) = next else {
                break None;
            };
            let (prefix, frame) = self.profile.stack(stack);
            let role = match address_in_process(self.profile, self.profile.frame(frame)) {
                Some(_) => role,
                // A name is the same for both, so that they share a row.
                None => Role::Caller,
            };
            let key = pair_key(stack.0, role as u32);
            if let Some(&known) = self.stack_index.get(&key) {
                break Some(known);
            }
            missing.push((key, frame, role));
            next = prefix.map(|prefix| (prefix, Role::Caller));
        };
        while let Some((key, frame, role)) = missing.pop() {
            let frame = self.frame(frame, role);
            self.stacks.push((index, frame));
            let added = self.stacks.len() as u32 - 1;
            self.stack_index.insert(key, added);
            index = Some(added);
        }
        // The loop above has found or added it.
        index.unwrap_or_default()
    }

    fn frame(&mut self, id: FrameId, role: Role) -> u32 {
        let key = pair_key(id.0, role as u32);
        if let Some(&known) = self.frame_index.get(&key) {
            return known;
        }
        let frame = self.profile.frame(id);
        let location = self.location(frame, role);
        let implementation = frame.implementation;
        let implementation = implementation.map(|name| {
            let name = self.profile.text(name);
            self.strings.intern_shared(name)
        });
        self.frames.push(FrameRow {
            frame,
            location,
            implementation,
        });
        let index = self.frames.len() as u32 - 1;
        self.frame_index.insert(key, index);
        index
    }

    fn location(&mut self, frame: &'a Frame, role: Role) -> StringIndex {
        let profile = self.profile;
        if let Some(address) = address_in_process(profile, frame) {
            let address = match role {
                Role::Innermost => address,
                Role::Caller => address.wrapping_add(1),
            };
            return self.strings.intern(&format!("{address:#x}"));
        }
        let function = profile.function(frame.function);
        let name = profile.text(function.name);
        let file = function.file.map(|file| profile.text(file));
        match (function.kind, function.module, file) {
            (FunctionKind::Native, Some(module), file) => {
                let library = &profile.module(module).name;
                match file {
                    Some(file) => {
                        let line = frame.line.unwrap_or(0);
                        let text = format!("{name} (in {library}) ({file}:{line})");
                        self.strings.intern(&text)
                    }
                    None => self.strings.intern(&format!("{name} (in {library})")),
                }
            }
            (FunctionKind::Script, _, Some(file)) => {
                let text = script_location(name, file, function);
                self.strings.intern(&text)
            }
            _ if looks_like_location(name) => {
                // Readers do not take a no-break space for the plain one of a location.
                let text = match name.starts_with("0x") {
                    true => format!("\u{a0}{name}"),
                    false => name.replace(" (", "\u{a0}("),
                };
                self.strings.intern(&text)
            }
            _ => self.strings.intern_shared(name),
        }
    }

    fn write(&self, json: &mut JsonWriter<'_>) {
        json.key("stackTable").object(|json| {
            write_schema(json, STACK_TABLE);
            json.key("data").array(|json| {
                for &(prefix, frame) in &self.stacks {
                    json.row(|json| {
                        match prefix {
                            Some(prefix) => json.unsigned(prefix.into()),
                            None => json.null(),
                        }
                        json.unsigned(frame.into());
                    });
                }
            });
        });
        json.key("frameTable").object(|json| {
            write_schema(json, FRAME_TABLE);
            json.key("data").array(|json| {
                for row in &self.frames {
                    self.write_frame(json, row);
                }
            });
        });
        self.strings.write(json.key("stringTable"));
    }

    /// Writes a row of the table of frames, up to its last value that is not null.
    fn write_frame(&self, json: &mut JsonWriter<'_>, row: &FrameRow<'_>) {
        let frame = row.frame;
        let function = self.profile.function(frame.function);
        json.array(|json| {
            json.unsigned(row.location.0.into());
            json.bool(function.is_relevant_for_js);
            json.unsigned(frame.inner_window_id);
            let position = frame.line.or(frame.column);
            let is_plain = frame.implementation.is_none() && frame.category.is_none();
            if is_plain && position.is_none() {
                return;
            }
            match row.implementation {
                Some(name) => json.unsigned(name.0.into()),
                None => json.null(),
            }
            for number in [frame.line, frame.column] {
                match number {
                    Some(number) => json.unsigned(number.into()),
                    None => json.null(),
                }
            }
            if let Some(pair) = frame.category {
                json.unsigned(pair.category.into());
                json.unsigned(pair.subcategory.into());
            }
        });
    }
}

/// Returns the address in the process of a frame without a name; `None` for any other frame. In a
/// module that has lost its place to another one, an address would be taken for the other's.
fn address_in_process(profile: &ProfileModel, frame: &Frame) -> Option<u64> {
    let function = profile.function(frame.function);
    let is_unnamed =
        function.kind == FunctionKind::Native && profile.text(function.name).starts_with("0x");
    let address = frame.address.filter(|_| is_unnamed)?;
    Some(match function.module {
        Some(module) => {
            let module = profile.module(module);
            if module.start >= module.end {
                return None;
            }
            let relative = address.wrapping_sub(module.offset);
            relative.wrapping_add(module.start)
        }
        None => address,
    })
}

/// Returns whether readers would take the text of a label for an address, or for a function in a
/// library or in a file.
fn looks_like_location(text: &str) -> bool {
    text.starts_with("0x") || (text.contains(" (") && text.ends_with([')', ']']))
}

fn script_location(name: &str, file: &str, function: &Function) -> String {
    let place = match (function.line, function.column) {
        (line, Some(column)) => format!("{file}:{}:{column}", line.unwrap_or(0)),
        (line, None) => format!("{file}:{}", line.unwrap_or(0)),
    };
    match name.is_empty() {
        true => place,
        false => format!("{name} ({place})"),
    }
}

fn write_head(json: &mut JsonWriter<'_>, process: &GeckoProcess<'_>, name: &str) {
    let facts = process.profile.processes.get(process.index);
    let kind = facts.map_or("", |facts| &facts.kind);
    json.key("processType").string(match kind {
        "" => "default",
        kind => kind,
    });
    json.key("name").string(name);
    let process_name = facts.map_or("", |facts| &facts.name);
    if !process_name.is_empty() {
        json.key("processName").string(process_name);
    }
}

/// Writes an id as a number, unless it is none.
fn write_id(json: &mut JsonWriter<'_>, id: &str) {
    let number = id.parse::<u64>().ok();
    match number.filter(|number| number.to_string() == id) {
        Some(number) => json.unsigned(number),
        None => json.string(id),
    }
}

fn write_ids(json: &mut JsonWriter<'_>, process: &GeckoProcess<'_>, tid: &str) {
    let facts = process.profile.processes.get(process.index);
    json.key("pid");
    write_id(json, facts.map_or("", |facts| &facts.pid));
    json.key("tid");
    write_id(json, tid);
}

/// Writes an empty main thread. The Firefox Profiler shows no track and no counters for a process
/// without a main thread.
pub(super) fn write_placeholder_main_thread(
    json: &mut JsonWriter<'_>,
    process: &GeckoProcess<'_>,
    main: Option<&Thread>,
) {
    let facts = process.profile.processes.get(process.index);
    let tid = match main {
        Some(main) => &main.tid,
        None => facts.map_or("", |facts| &facts.pid),
    };
    json.object(|json| {
        write_head(json, process, "GeckoMain");
        json.key("registerTime").unsigned(0);
        json.key("unregisterTime").null();
        for (table, columns) in [("samples", SAMPLES), ("markers", MARKERS)] {
            json.key(table).object(|json| {
                write_schema(json, columns);
                json.key("data").array(|_| {});
            });
        }
        write_ids(json, process, tid);
        Tables::new(process.profile).write(json);
    });
}

/// Writes an element of `threads`.
pub(super) fn write_thread(json: &mut JsonWriter<'_>, process: &GeckoProcess<'_>, thread: &Thread) {
    let mut tables = Tables::new(process.profile);
    json.object(|json| {
        write_head(json, process, &thread.name);
        json.key("registerTime");
        let registered_ns = thread.registered_ns.unwrap_or(process.start_ns);
        process.time(json, registered_ns);
        json.key("unregisterTime");
        process.optional_time(json, thread.unregistered_ns);
        json.key("samples").object(|json| {
            write_samples(json, process, thread, &mut tables);
        });
        json.key("markers").object(|json| {
            write_schema(json, MARKERS);
            json.key("data").array(|json| {
                for marker in thread.markers.iter() {
                    if json.failed() {
                        return;
                    }
                    write_marker(json, process, &marker, thread, &mut tables);
                }
            });
        });
        write_ids(json, process, &thread.tid);
        tables.write(json);
    });
}

fn write_samples(
    json: &mut JsonWriter<'_>,
    process: &GeckoProcess<'_>,
    thread: &Thread,
    tables: &mut Tables<'_>,
) {
    let samples = &thread.samples;
    let is_weighted = samples.has_weights() || samples.weight_unit != WeightUnit::Samples;
    if is_weighted {
        // The Firefox Profiler ignores the weights of this format.
        json.key("weightType")
            .string(weight_type(samples.weight_unit));
    }
    write_schema(
        json,
        match is_weighted {
            true => WEIGHTED_SAMPLES,
            false => SAMPLES,
        },
    );
    json.key("data").array(|json| {
        for sample in rows(thread) {
            if json.failed() {
                return;
            }
            let stack = sample
                .stack
                .map(|stack| tables.stack(stack, Role::Innermost));
            json.array(|json| {
                match stack {
                    Some(stack) => json.unsigned(stack.into()),
                    None => json.null(),
                }
                process.time(json, sample.time_ns);
                match sample.event_delay_ns {
                    Some(delay_ns) => json.time_ms(delay_ns),
                    None if is_weighted || sample.cpu_delta_ns.is_some() => json.null(),
                    None => {}
                }
                match sample.cpu_delta_ns {
                    Some(delta_ns) => json.unsigned(delta_ns),
                    None if is_weighted => json.null(),
                    None => {}
                }
                if is_weighted {
                    json.signed(sample.weight);
                }
            });
        }
    });
}

/// Returns the rows of a thread's samples. The viewer ignores the weights, so in the track of the
/// tasks that wait, a row is repeated as often as its weight says, for a unit that bounds their
/// number.
fn rows(thread: &Thread) -> Box<dyn Iterator<Item = Sample> + '_> {
    const MAX_WAIT_ROWS: u64 = 1 << 16;
    let samples = &thread.samples;
    if !thread.is_waiting_tasks() {
        return Box::new(samples.iter());
    }
    let weight_of = |sample: &Sample| sample.weight.max(0).unsigned_abs();
    let weights = samples.iter().map(|sample| weight_of(&sample));
    // Weights of a file may be any numbers.
    let all: u128 = weights.map(u128::from).sum();
    let unit = all.div_ceil(u128::from(MAX_WAIT_ROWS)).max(1);
    let unit = u64::try_from(unit).unwrap_or(u64::MAX);
    let mut units = WeightUnits::new(unit);
    Box::new(samples.iter().flat_map(move |sample| {
        let count = units.take(sample.stack, weight_of(&sample));
        let row = Sample {
            weight: i64::try_from(unit).unwrap_or(i64::MAX),
            ..sample
        };
        std::iter::repeat_n(row, usize::try_from(count).unwrap_or(usize::MAX))
    }))
}

fn write_marker<'a>(
    json: &mut JsonWriter<'_>,
    process: &GeckoProcess<'a>,
    marker: &Marker<'_>,
    thread: &Thread,
    tables: &mut Tables<'a>,
) {
    let name = tables
        .strings
        .intern_shared(process.profile.text(marker.name));
    json.array(|json| {
        json.unsigned(name.0.into());
        process.optional_time(json, marker.start_ns);
        process.optional_time(json, marker.end_ns);
        json.unsigned(marker.phase as u64);
        json.unsigned(marker.category.into());
        if let Some(payload) = &marker.payload {
            json.object(|json| write_payload(json, process, payload, thread, tables));
        }
    });
}

fn write_payload<'a>(
    json: &mut JsonWriter<'_>,
    process: &GeckoProcess<'a>,
    payload: &MarkerPayload<'_>,
    thread: &Thread,
    tables: &mut Tables<'a>,
) {
    let profile = process.profile;
    let type_name = profile.text(payload.type_name);
    if !type_name.is_empty() {
        json.key("type").string(type_name);
    }
    let is_time = |key| process.start_ns != 0 && holds_process_time(type_name, key);
    // To ns and back, so that the difference has no needless digits.
    let in_process = |time_ms: f64| ((time_ms * 1e6).round() - process.start_ns as f64) / 1e6;
    for &(key, value) in payload.fields {
        let key = profile.text(key);
        json.key(key);
        match value {
            FieldValue::Null => json.null(),
            FieldValue::Bool(value) => json.bool(value),
            FieldValue::Integer(time) if is_time(key) => json.float(in_process(time as f64)),
            FieldValue::Number(time) if is_time(key) => json.float(in_process(time)),
            FieldValue::Integer(value) => json.signed(value),
            FieldValue::Number(value) => json.float(value),
            FieldValue::Text(text) => json.string(profile.text(text)),
            FieldValue::UniqueText(text) => {
                let index = tables.strings.intern_shared(profile.text(text));
                json.unsigned(index.0.into());
            }
            FieldValue::Json(text) => json.splice(profile.text(text)),
        }
    }
    let Some((stack, time_ns)) = payload.stack else {
        return;
    };
    let stack = tables.stack(stack, Role::Caller);
    json.key("stack").object(|json| {
        write_head(json, process, "SyncProfile");
        json.key("registerTime").null();
        json.key("unregisterTime").null();
        write_ids(json, process, &thread.tid);
        json.key("markers").object(|json| {
            write_schema(json, MARKERS);
            json.key("data").array(|_| {});
        });
        json.key("samples").object(|json| {
            write_schema(json, &["stack", "time", "eventDelay"]);
            json.key("data").array(|json| {
                json.array(|json| {
                    json.unsigned(stack.into());
                    process.time(json, time_ns);
                    json.unsigned(0);
                });
            });
        });
    });
}
