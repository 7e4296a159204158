use std::collections::HashSet;

use super::*;
use crate::export::write::test_protobuf_profile::{INTERVAL_NS, sample_profile};
use crate::model::{FieldValue, Marker, MarkerPayload, MarkerPhase, Markers, ProfileModel};

fn written(profile: &ProfileModel) -> ExportRequest {
    let resource = OtlpResource {
        attributes: vec![("service.name".to_owned(), "shop".to_owned())],
        id: 7,
    };
    let options = ExportOptions::default();
    let mut bytes = Vec::new();
    write_otlp(profile, &options, &resource, &mut bytes).expect("written");
    ExportRequest::decode(&*bytes).expect("a request")
}

impl ExportRequest {
    fn dictionary(&self) -> &Dictionary {
        self.dictionary.as_ref().expect("a dictionary")
    }

    fn profiles(&self) -> &[Profile] {
        &self.resource_profiles[0].scope_profiles[0].profiles
    }

    fn text(&self, index: i32) -> &str {
        &self.dictionary().string_table[index as usize]
    }
}

/// Panics unless the table begins with the empty element, has no duplicates, and each further
/// element is referred to.
fn check<T: Default + std::fmt::Debug + PartialEq>(table: &[T], used: &HashSet<i32>) {
    assert_eq!(table[0], T::default());
    for (index, element) in table.iter().enumerate().skip(1) {
        assert!(!table[..index].contains(element), "twice: {element:?}");
        assert!(used.contains(&(index as i32)), "unused: {element:?}");
    }
    let is_inside = |index: &i32| (0..table.len() as i32).contains(index);
    assert!(used.iter().all(is_inside), "{used:?} of {}", table.len());
}

fn check_rules(request: &ExportRequest) {
    let dictionary = request.dictionary();
    let [mut texts, mut attributes, mut links, mut stacks] =
        [(); 4].map(|()| HashSet::<i32>::new());
    let mut ids = HashSet::new();
    for profile in request.profiles() {
        let types = [profile.sample_type, profile.period_type].map(|kind| kind.expect("a type"));
        texts.extend(
            types
                .iter()
                .flat_map(|kind| [kind.type_strindex, kind.unit_strindex]),
        );
        assert!(profile.time_unix_nano > 0 && profile.period > 0);
        assert_eq!(profile.profile_id.len(), 16);
        assert!(ids.insert(profile.profile_id.clone()));
        let mut identities = HashSet::new();
        for sample in &profile.samples {
            assert!(sample.values.len() == 1 && sample.timestamps_unix_nano.is_empty());
            let set: HashSet<_> = sample.attribute_indices.iter().copied().collect();
            assert_eq!(set.len(), sample.attribute_indices.len());
            let identity = (
                sample.stack_index,
                sample.attribute_indices.clone(),
                sample.link_index,
            );
            assert!(identities.insert(identity), "{sample:?}");
            assert_ne!(sample.stack_index, 0);
            let mut keys = HashSet::new();
            for index in &sample.attribute_indices {
                let attribute = &dictionary.attribute_table[*index as usize];
                assert!(
                    keys.insert(attribute.key_strindex),
                    "one value for each key"
                );
            }
            attributes.extend(set);
            stacks.insert(sample.stack_index);
            links.insert(sample.link_index);
        }
    }
    let locations: HashSet<i32> = dictionary
        .stack_table
        .iter()
        .flat_map(|stack| stack.location_indices.iter().copied())
        .collect();
    let used = dictionary.location_table.iter();
    let mappings = used
        .clone()
        .map(|location| location.mapping_index)
        .collect();
    let functions: HashSet<i32> = used
        .flat_map(|location| location.lines.iter().map(|line| line.function_index))
        .collect();
    for function in &dictionary.function_table {
        let names = [function.name_strindex, function.system_name_strindex];
        texts.extend(names.into_iter().chain([function.filename_strindex]));
    }
    for mapping in &dictionary.mapping_table {
        texts.insert(mapping.filename_strindex);
        attributes.extend(mapping.attribute_indices.iter().copied());
    }
    texts.extend(
        dictionary
            .attribute_table
            .iter()
            .map(|attribute| attribute.key_strindex),
    );
    check(&dictionary.stack_table, &stacks);
    check(&dictionary.location_table, &locations);
    check(&dictionary.mapping_table, &mappings);
    check(&dictionary.function_table, &functions);
    check(&dictionary.link_table, &links);
    check(&dictionary.attribute_table, &attributes);
    check(&dictionary.string_table, &texts);
}

#[test]
fn request_follows_the_rules_of_the_format() {
    let request = written(&sample_profile());
    check_rules(&request);
    let resource = request.resource_profiles[0]
        .resource
        .as_ref()
        .expect("a resource");
    assert_eq!(resource.attributes[0].key, "service.name");
    let text = AnyValue {
        value: Some(Value::Text("shop".to_owned())),
    };
    assert_eq!(resource.attributes[0].value, Some(text));
    let build_ids = request.dictionary().attribute_table.iter();
    let build_ids = build_ids.filter(|one| request.text(one.key_strindex).contains("build_id"));
    assert!(build_ids.count() > 0, "mappings have build ids");
}

#[test]
fn each_value_has_a_profile_with_the_same_sums_as_in_pprof() {
    let profile = sample_profile();
    let request = written(&profile);
    let options = ExportOptions::default();
    let expected = pprof::to_message(&profile, &options).expect("a message");
    let names: Vec<_> = request
        .profiles()
        .iter()
        .map(|profile| profile.sample_type.expect("a type"))
        .map(|kind| {
            (
                request.text(kind.type_strindex),
                request.text(kind.unit_strindex),
            )
        })
        .collect();
    let known = [
        ("samples", "count"),
        ("wall", "nanoseconds"),
        ("cpu", "nanoseconds"),
    ];
    assert_eq!(names, known);
    for (place, profile) in request.profiles().iter().enumerate() {
        let sum: i64 = profile.samples.iter().map(|sample| sample.values[0]).sum();
        let whole: i64 = expected
            .sample
            .iter()
            .map(|sample| sample.value[place])
            .sum();
        assert_eq!(sum, whole);
        assert_eq!(profile.time_unix_nano, 1_700_000_000_000_000_000);
        assert_eq!(profile.duration_nano, 10 * INTERVAL_NS);
    }
}

#[test]
fn sample_of_a_span_has_a_link() {
    let mut profile = sample_profile();
    let (name, type_name) = (profile.intern("Context"), profile.intern("SampleContext"));
    let trace = format!("{:032x}", 0xabc);
    let [trace_key, span_key] = ["trace_id", "span_id"].map(|key| profile.intern(key));
    let [trace, span] = [&*trace, "00000000000000ff"].map(|id| profile.intern(id));
    let fields = vec![
        (trace_key, FieldValue::UniqueText(trace)),
        (span_key, FieldValue::UniqueText(span)),
    ];
    let mut markers = Markers::default();
    markers.push(Marker {
        name,
        phase: MarkerPhase::Interval,
        start_ns: Some(0),
        end_ns: Some(i64::MAX),
        category: Default::default(),
        payload: Some(MarkerPayload {
            type_name,
            fields: &fields,
            stack: None,
        }),
    });
    profile.threads[0].markers = markers;
    let request = written(&profile);
    check_rules(&request);
    let [_, link] = &request.dictionary().link_table[..] else {
        panic!("one link beside the empty one");
    };
    assert_eq!(link.trace_id, 0xabc_u128.to_be_bytes());
    assert_eq!(link.span_id, 0xff_u64.to_be_bytes());
    let keys = &request.dictionary().string_table;
    assert!(!keys.iter().any(|text| text == "trace_id"), "{keys:?}");
    let linked = request.profiles()[0]
        .samples
        .iter()
        .filter(|sample| sample.link_index == 1);
    assert!(linked.count() > 0);
}
