use std::collections::HashMap;

use prost::Message;

use super::messages::{Frame, Trace, TracePacket};
use super::write_perfetto;
use crate::export::options::{ExportOptions, SampleWeight};
use crate::export::write::protobuf_sample::{INTERVAL_NS, TUPLE_METHOD, sample_profile};
use crate::model::WeightUnit;
use crate::util::ProgressLogger;

/// A trace as a reader sees it: with the interned data that came before each packet.
#[derive(Default)]
struct Reader {
    names: HashMap<u64, String>,
    categories: HashMap<u64, String>,
    keys: HashMap<u64, String>,
    functions: HashMap<u64, String>,
    frames: HashMap<u64, Frame>,
    stacks: HashMap<u64, Vec<u64>>,
    has_begun: bool,
    lines: Vec<String>,
}

impl Reader {
    fn read(bytes: &[u8]) -> Self {
        let mut reader = Self::default();
        for packet in Trace::decode(bytes).expect("a trace").packet {
            reader.packet(&packet);
        }
        reader
    }

    fn packet(&mut self, packet: &TracePacket) {
        let flags = if self.has_begun { 2 } else { 1 };
        assert_eq!(
            (packet.trusted_packet_sequence_id, packet.sequence_flags),
            (1, flags)
        );
        self.has_begun = true;
        if let Some(data) = packet.interned_data.clone() {
            let text = |bytes| String::from_utf8(bytes).expect("text");
            let name = |(all, name): (&mut HashMap<_, _>, super::messages::InternedName)| {
                assert_eq!(all.insert(name.iid, name.name), None, "interned once");
            };
            for one in data.event_names {
                name((&mut self.names, one));
            }
            for one in data.event_categories {
                name((&mut self.categories, one));
            }
            for one in data.debug_annotation_names {
                name((&mut self.keys, one));
            }
            for one in data.function_names {
                assert_eq!(self.functions.insert(one.iid, text(one.str)), None);
            }
            for one in data.frames {
                assert_eq!(self.frames.insert(one.iid, one), None);
            }
            for one in data.callstacks {
                assert_eq!(self.stacks.insert(one.iid, one.frame_ids), None);
            }
        }
        let time = packet.timestamp.unwrap_or(0);
        if let Some(sample) = &packet.stack_sample {
            let task = sample.task_context.expect("a task");
            let stack = self.stack(sample.callstack_iid);
            let weight = sample.primary_weight.expect("a weight");
            self.lines.push(format!(
                "{time} sample {}/{} {weight} {:?} {stack}",
                task.pid.expect("a pid"),
                task.tid.expect("a tid"),
                sample.follower_weights
            ));
        }
        if let Some(event) = &packet.track_event {
            let name = event.name_iid.map_or("", |iid| &self.names[&iid]);
            let mut line = format!("{time} {} {:x} {name}", event.kind, event.track_uuid);
            for category in &event.category_iids {
                line += &format!(" [{}]", self.categories[category]);
            }
            for field in &event.debug_annotations {
                let value = field.string_value.clone();
                let value = value.or(field.int_value.map(|value| value.to_string()));
                let value = value.expect("a text or an integer");
                line += &format!(" {}={value}", self.keys[&field.name_iid]);
            }
            if let Some(value) = event.double_counter_value {
                line += &value.to_string();
            }
            if !event.flow_ids.is_empty() {
                line += &format!(" flows {}", event.flow_ids.len());
            }
            if event.callstack_iid.is_some() {
                line += &format!(" at {}", self.stack(event.callstack_iid));
            }
            self.lines.push(line);
        }
    }

    /// Returns the names of a stack's functions, the outermost first.
    fn stack(&self, iid: Option<u64>) -> String {
        let frames = iid.map_or(&[][..], |iid| &self.stacks[&iid]);
        let names = frames.iter().map(|frame| {
            let name = self.frames[frame].function_name_id;
            self.functions[&name].as_str()
        });
        names.collect::<Vec<_>>().join(" > ")
    }
}

fn written(options: &ExportOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    let profile = sample_profile();
    write_perfetto(&profile, options, &mut bytes, &ProgressLogger::unwatched()).expect("written");
    bytes
}

#[test]
fn samples_markers_and_counters_survive() {
    let reader = Reader::read(&written(&ExportOptions::default()));
    let busy = format!("app::main > Request > Parse > {TUPLE_METHOD} > app::inner");
    let fetch = format!("fetch [Other] url=/index flow=0xf size=-4 flows 1 at {busy}");
    // The earliest entry is 5,000 ns before the profile's start.
    let expected = [
        "6000 4 30000000000 100".to_owned(),
        "7000 4 30000000000 60".to_owned(),
        format!("505000 1 20000000000 {fetch}"),
        "1205000 1 20000000000 step [Other]".to_owned(),
        "1305000 2 20000000000 ".to_owned(),
        "2205000 1 20000000001 overlap [Other]".to_owned(),
        "2505000 2 20000000000 ".to_owned(),
        "2905000 2 20000000001 ".to_owned(),
        "0 3 20000000000 tick [Other]".to_owned(),
        format!("5000 sample 77/77 1000000 [800000] {busy}"),
        format!("1005000 sample 77/77 1000000 [800000] {busy}"),
        format!("2005000 sample 77/77 1000000 [800000] {busy}"),
        "3005000 sample 77/77 1000000 [0] app::main > read".to_owned(),
        "4005000 sample 77/77 1000000 [0] app::main > read".to_owned(),
        "5000 sample 77/78 1000000 [6] tick".to_owned(),
        "1005000 sample 77/78 1000000 [6] ".to_owned(),
        "2005000 sample 77/78 1000000 [6] 0x44".to_owned(),
    ];
    assert_eq!(reader.lines, expected);
}

#[test]
fn tracks_are_described_before_they_are_used() {
    let trace = Trace::decode(&*written(&ExportOptions::default())).expect("a trace");
    let mut described = Vec::new();
    let mut names = Vec::new();
    for packet in &trace.packet {
        if let Some(track) = &packet.track_descriptor {
            let parent = track.parent_uuid;
            assert!(parent.is_none_or(|parent| described.contains(&parent)));
            described.push(track.uuid);
            let process = track.process.as_ref().map(|process| &process.process_name);
            let thread = track.thread.as_ref().map(|thread| &thread.thread_name);
            names.extend(process.or(thread).or(track.name.as_ref()).cloned());
        }
        let used = packet.track_event.as_ref().map(|event| event.track_uuid);
        assert!(used.is_none_or(|used| described.contains(&used)));
    }
    assert_eq!(
        names,
        ["app", "heap", "main", "overlapping markers 1", "worker"]
    );
}

#[test]
fn frames_keep_addresses_and_lines() {
    let trace = Trace::decode(&*written(&ExportOptions::default())).expect("a trace");
    let interned = trace
        .packet
        .iter()
        .filter_map(|packet| packet.interned_data.as_ref());
    let frames: Vec<_> = interned.clone().flat_map(|data| &data.frames).collect();
    let inlined: Vec<_> = frames
        .iter()
        .filter(|frame| frame.rel_pc == Some(0x120))
        .map(|frame| (frame.mapping_id, frame.line_number, frame.kind))
        .collect();
    assert_eq!(inlined, [(2, Some(9), Some(1)), (2, Some(7), Some(1))]);
    let labels = frames
        .iter()
        .filter(|frame| frame.kind_str.as_deref() == Some("label"));
    assert_eq!(labels.count(), 2);
    let mapping = interned
        .flat_map(|data| &data.mappings)
        .find(|mapping| mapping.iid == 2);
    let mapping = mapping.expect("the mapping of the program");
    assert_eq!(
        (mapping.start, mapping.end, mapping.exact_offset),
        (0x40_0000, 0x40_1000, 0x100)
    );
}

#[test]
fn weights_follow_the_options_and_the_unit() {
    let options = ExportOptions {
        thread: Some("worker".into()),
        weight: SampleWeight::Cpu,
        ..ExportOptions::default()
    };
    let samples = |profile: &crate::model::ProfileModel| {
        let mut bytes = Vec::new();
        write_perfetto(profile, &options, &mut bytes, &ProgressLogger::unwatched())
            .expect("written");
        let trace = Trace::decode(&*bytes).expect("a trace");
        let defaults = trace.packet[0].trace_packet_defaults.clone();
        let defaults = defaults.and_then(|defaults| defaults.stack_sample_defaults);
        let primary = defaults.and_then(|defaults| defaults.primary_descriptor);
        let samples = trace.packet.into_iter();
        let samples: Vec<_> = samples.filter_map(|packet| packet.stack_sample).collect();
        (primary.expect("a default").name, samples)
    };
    let mut profile = sample_profile();
    let (primary, with_cpu) = samples(&profile);
    assert_eq!((primary.as_str(), with_cpu.len()), ("cpu", 3));
    assert_eq!(with_cpu[0].primary_weight, Some(6));
    assert_eq!(with_cpu[0].follower_weights, [INTERVAL_NS]);
    profile.meta.has_cpu_deltas = false;
    let (primary, without_cpu) = samples(&profile);
    assert_eq!(primary, "wall");
    assert_eq!(without_cpu[0].primary_weight, Some(INTERVAL_NS));
    profile.threads[1].samples.weight_unit = WeightUnit::Bytes;
    let (_, by_bytes) = samples(&profile);
    let descriptor = by_bytes[0].primary_descriptor.as_ref();
    assert_eq!(descriptor.map(|one| one.name.as_str()), Some("space"));
    assert_eq!(by_bytes[0].primary_weight, Some(1));
}
