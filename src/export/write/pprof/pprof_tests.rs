use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;
use prost::Message;

use super::contexts::{Contexts, entry_times};
use super::tables::{Function, Location, Profile, Sample};
use super::write_pprof;
use crate::export::options::ExportOptions;
use crate::export::write::test_protobuf_profile::{INTERVAL_NS, TUPLE_METHOD, sample_profile};
use crate::model::{
    FieldValue, Marker, MarkerPayload, MarkerPhase, Markers, ProfileModel, TextId, WeightUnit,
};

fn written(profile: &ProfileModel, options: &ExportOptions) -> Profile {
    let mut bytes = Vec::new();
    write_pprof(profile, options, &mut bytes).expect("written");
    let mut plain = Vec::new();
    GzDecoder::new(&*bytes)
        .read_to_end(&mut plain)
        .expect("gzip");
    Profile::decode(&*plain).expect("a profile")
}

impl Profile {
    fn text(&self, index: i64) -> &str {
        &self.string_table[index as usize]
    }

    fn location(&self, id: u64) -> &Location {
        let mut locations = self.location.iter();
        locations
            .find(|location| location.id == id)
            .expect("a location")
    }

    fn function(&self, id: u64) -> &Function {
        let mut functions = self.function.iter();
        functions
            .find(|function| function.id == id)
            .expect("a function")
    }

    /// Returns the names of a sample's functions, the innermost first; those of one location are
    /// joined by `<`.
    fn stack(&self, sample: &Sample) -> Vec<String> {
        let locations = sample.location_id.iter().map(|id| {
            let lines = self.location(*id).line.iter();
            let names = lines.map(|line| self.text(self.function(line.function_id).name));
            names.collect::<Vec<_>>().join(" < ")
        });
        locations.collect()
    }

    fn labels(&self, sample: &Sample) -> BTreeMap<&str, String> {
        let labels = sample.label.iter().map(|label| {
            let value = match label.str {
                0 => label.num.to_string(),
                text => self.text(text).to_owned(),
            };
            (self.text(label.key), value)
        });
        let all: BTreeMap<_, _> = labels.collect();
        assert_eq!(all.len(), sample.label.len(), "one value for each key");
        all
    }
}

#[test]
fn samples_are_merged_by_stack_and_labels() {
    let profile = written(&sample_profile(), &ExportOptions::default());
    assert_eq!(profile.string_table[0], "");
    let types = profile.sample_type.iter();
    let types: Vec<_> = types
        .map(|kind| (profile.text(kind.kind), profile.text(kind.unit)))
        .collect();
    assert_eq!(
        types,
        [
            ("samples", "count"),
            ("wall", "nanoseconds"),
            ("cpu", "nanoseconds")
        ]
    );
    let interval = INTERVAL_NS as i64;
    let tuple_method = format!("app::inner < {TUPLE_METHOD}");
    let busy = [tuple_method.as_str(), "Parse", "Request", "app::main"];
    let expected: [(&[&str], [i64; 3], &str, &str); 6] = [
        (&busy, [1, interval, 800_000], "main 77", "Request;Parse"),
        (
            &busy,
            [2, 2 * interval, 1_600_000],
            "main 77",
            "Request;Parse fetch /index",
        ),
        (&["read", "app::main"], [2, 2 * interval, 0], "main 77", ""),
        (&["tick"], [1, interval, 6], "worker 78", ""),
        (&["(no stack)"], [1, interval, 6], "worker 78", ""),
        (&[""], [1, interval, 6], "worker 78", ""),
    ];
    assert_eq!(profile.sample.len(), expected.len());
    for (sample, (stack, values, thread, other)) in profile.sample.iter().zip(expected) {
        assert_eq!(profile.stack(sample), stack);
        assert_eq!(sample.value, values);
        let mut labels = profile.labels(sample);
        let mut take = |key| labels.remove(key).unwrap_or_default();
        assert_eq!(format!("{} {}", take("thread"), take("thread_id")), thread);
        let others = [take("label"), take("marker"), take("Http.url")];
        assert_eq!(others.join(" ").trim_end(), other);
        assert!(labels.is_empty(), "{labels:?}");
    }
}

#[test]
fn functions_and_addresses_survive() {
    let profile = written(&sample_profile(), &ExportOptions::default());
    let busy = &profile.sample[0];
    let innermost = profile.location(busy.location_id[0]);
    assert_eq!((innermost.mapping_id, innermost.address), (2, 0x40_0020));
    let lines: Vec<_> = innermost.line.iter().map(|line| line.line).collect();
    assert_eq!(lines, [9, 7]);
    let main = profile.location(busy.location_id[3]);
    let main = profile.function(main.line[0].function_id);
    let texts = [main.name, main.system_name, main.filename].map(|text| profile.text(text));
    assert_eq!(texts, ["app::main", "_ZN3app4mainE", "src/app.rs"]);
    let label = profile.location(busy.location_id[1]);
    assert_eq!((label.mapping_id, label.address), (0, 0));
    let script = profile.location(profile.sample[3].location_id[0]);
    assert_eq!(script.line[0].line, 5);
    let script = profile.function(script.line[0].function_id);
    assert_eq!(
        (profile.text(script.filename), script.start_line),
        ("game.lua", 3)
    );
    let unnamed = profile.location(profile.sample[5].location_id[0]);
    assert_eq!(
        (unnamed.mapping_id, unnamed.address, unnamed.line.len()),
        (1, 0x1044, 0)
    );
}

#[test]
fn the_program_is_the_first_mapping() {
    let profile = written(&sample_profile(), &ExportOptions::default());
    let mappings: Vec<_> = profile
        .mapping
        .iter()
        .map(|mapping| {
            (
                (mapping.id, mapping.memory_start, mapping.memory_limit),
                profile.text(mapping.filename),
                profile.text(mapping.build_id),
                (mapping.has_functions, mapping.has_filenames),
                (mapping.has_line_numbers, mapping.has_inline_frames),
            )
        })
        .collect();
    assert_eq!(
        mappings,
        [
            (
                (2, 0x40_0000, 0x40_1000),
                "/bin/app",
                "0a00",
                (true, true),
                (true, true)
            ),
            (
                (1, 0x1000, 0x2000),
                "/bin/libc.so.6",
                "0a01",
                (true, false),
                (false, false)
            ),
        ]
    );
    assert_eq!(profile.mapping[0].file_offset, 0x100);
    assert_eq!(profile.time_nanos, 1_700_000_000_000_000_000);
    assert_eq!(profile.duration_nanos, 10 * INTERVAL_NS as i64);
    assert_eq!(
        (profile.period, profile.drop_frames),
        (INTERVAL_NS as i64, 0)
    );
}

#[test]
fn values_follow_what_was_recorded() {
    let mut model = sample_profile();
    model.meta.has_cpu_deltas = false;
    model.threads[1].samples.weight_unit = WeightUnit::Bytes;
    let only_worker = ExportOptions {
        thread: Some("worker".into()),
        ..ExportOptions::default()
    };
    let profile = written(&model, &only_worker);
    let kinds: Vec<_> = profile
        .sample_type
        .iter()
        .map(|kind| profile.text(kind.kind))
        .collect();
    assert_eq!(kinds, ["samples", "space", "wall"]);
    assert_eq!(profile.sample.len(), 3);
    assert!(
        profile
            .sample
            .iter()
            .all(|sample| sample.value == [1, 1, 0])
    );
}

#[test]
fn cpu_time_goes_to_the_contexts_in_which_the_thread_ran() {
    let mut model = sample_profile();
    model.threads.truncate(1);
    let samples = &mut model.threads[0].samples;
    // Its ticks are a quarter of the interval apart, and two of them lie in the marker `fetch`.
    samples.update(0, |sample| {
        (sample.weight, sample.cpu_delta_ns) = (4, Some(900_001));
    });
    let values = |model: &ProfileModel| -> Vec<Vec<i64>> {
        let profile = written(model, &ExportOptions::default());
        profile
            .sample
            .into_iter()
            .map(|sample| sample.value)
            .collect()
    };
    let interval = INTERVAL_NS as i64;
    let expected = [
        [2, 2 * interval, 800_000],
        [4, 4 * interval, 1_600_001],
        [2, 2 * interval, 0],
    ];
    assert_eq!(values(&model), expected);
}

#[test]
fn many_samples_are_written_in_parts() {
    let mut model = sample_profile();
    let mut stack = None;
    let samples = &mut model.threads[0].samples;
    let last = samples.get(samples.len() - 1);
    for line in 1..=5000 {
        let frame = model.frames()[1].clone();
        let frame = model.intern_frame(&crate::model::Frame {
            line: Some(line),
            address: Some(u64::from(line)),
            ..frame
        });
        stack = stack.or(Some(model.append_frame(None, frame)));
        let leaf = model.append_frame(stack, frame);
        model.threads[0].samples.push(crate::model::Sample {
            stack: Some(leaf),
            ..last
        });
    }
    let profile = written(&model, &ExportOptions::default());
    assert_eq!(profile.sample.len(), 5006);
    let total: i64 = profile.sample.iter().map(|sample| sample.value[0]).sum();
    assert_eq!(total, 5008);
    let lines = profile.sample.iter().filter_map(|sample| {
        let innermost = profile.location(*sample.location_id.first()?);
        Some(innermost.line.first()?.line)
    });
    assert_eq!(lines.max(), Some(5000));
}

#[test]
fn values_of_a_field_are_limited() {
    let mut model = sample_profile();
    let mut markers = Markers::default();
    let (name, key) = (model.intern("Log"), model.intern("id"));
    let ids: Vec<TextId> = (0..200)
        .map(|id| model.intern(&format!("id {id}")))
        .collect();
    for (time_ns, id) in (0..).zip(&ids) {
        markers.push(Marker {
            name,
            phase: MarkerPhase::Interval,
            start_ns: Some(time_ns * 2),
            end_ns: Some(time_ns * 2 + 1),
            category: 0,
            payload: Some(MarkerPayload {
                type_name: name,
                fields: &[(key, FieldValue::Text(*id))],
                stack: None,
            }),
        });
    }
    model.threads[0].markers = markers;
    let mut contexts = Contexts::new(&model);
    let mut of_thread = contexts.of_thread(&model.threads[0]);
    let numbers: Vec<_> = (0..200)
        .map(|time| of_thread.at(&mut contexts, time * 2))
        .collect();
    let value = |number| contexts.get(number).fields[0].1;
    assert_eq!(value(numbers[0]), Some(ids[0]));
    assert_eq!(value(numbers[127]), Some(ids[127]));
    assert_eq!(value(numbers[128]), None);
    assert_eq!(numbers[128], numbers[199]);
    let after_all = of_thread.at(&mut contexts, 1_000);
    assert_eq!(contexts.get(after_all).marker, None);
}

#[test]
fn sampled_allocations_have_the_values_of_a_heap_profile() {
    let mut profile = sample_profile();
    let mut names = ["Native allocation", "size", "memoryAddress", "sampledSize"]
        .map(|text| profile.intern(text))
        .into_iter();
    let mut name = || names.next().expect("a name");
    let (type_name, size, address, sampled_size) = (name(), name(), name(), name());
    let stack = profile.threads[0].samples.get(0).stack.expect("a stack");
    let mut markers = Markers::default();
    // Bytes, address and size. The last free is of an allocation that is not in the profile.
    let events = [
        (1000, 16, 10),
        (5000, 32, 2500),
        (-1000, 16, 10),
        (400, 16, 200),
        (-70, 64, 7),
    ];
    for (time, (bytes, place, sampled)) in (0..).zip(events) {
        let fields = [
            (size, FieldValue::Integer(bytes)),
            (address, FieldValue::Integer(place)),
            (sampled_size, FieldValue::Integer(sampled)),
        ];
        markers.push(Marker {
            name: type_name,
            phase: MarkerPhase::Instant,
            start_ns: Some(time),
            end_ns: None,
            category: 0,
            payload: Some(MarkerPayload {
                type_name,
                fields: &fields,
                stack: Some((stack, time)),
            }),
        });
    }
    profile.threads[0].markers = markers;
    let of_heap = |profile: &Profile| -> Vec<Vec<i64>> {
        let values = profile.sample.iter().map(|sample| sample.value.clone());
        values.filter(|values| values[0] > 0).collect()
    };
    let whole = written(&profile, &ExportOptions::default());
    assert_eq!(whole.sample_type.len(), 7);
    assert_eq!(of_heap(&whole), [[104, 6400, 4, 5400, 0, 0, 0]]);
    // A snapshot of the heap has no samples.
    for thread in &mut profile.threads {
        thread.samples = Default::default();
    }
    let heap = written(&profile, &ExportOptions::default());
    let types = heap.sample_type.iter().map(|kind| heap.text(kind.kind));
    let expected = [
        "alloc_objects",
        "alloc_space",
        "inuse_objects",
        "inuse_space",
    ];
    assert!(types.eq(expected));
    assert_eq!(of_heap(&heap), [[104, 6400, 4, 5400]]);
    assert_eq!(heap.sample.len(), 1);
    assert_eq!(heap.stack(&heap.sample[0]).len(), 4);
}

#[test]
fn entry_times_are_those_of_samples_and_markers() {
    let profile = sample_profile();
    let last_ns = 4 * INTERVAL_NS as i64;
    assert_eq!(entry_times(&profile.threads[0]), (-5_000, last_ns));
}
