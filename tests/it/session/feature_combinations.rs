//! Every combination of up to three features starts, samples and streams, and every pair of all
//! features.

use super::{read_until, sample_count};
use crate::common::{Read, Sleeper, isolated, one_loop};
use gekkota::callback::SamplingState;
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{
    Features, ProfilerSession, StartParams, add_untyped_marker, gecko_profiler_category,
    profiler_features_if_active, profiler_start, profiler_stop, register_thread,
};
use serde_json::Value;

/// The features to combine. Other tests use the default features together.
const FEATURES: [Features; 10] = [
    Features::JS,
    Features::STACK_WALK,
    Features::CPU,
    Features::NO_STACK_SAMPLING,
    Features::NO_MARKER_STACKS,
    Features::PROCESS_CPU,
    Features::CPU_ALL_THREADS,
    Features::SAMPLING_ALL_THREADS,
    Features::MARKERS_ALL_THREADS,
    Features::FILE_IO_ALL,
];

fn combinations() -> impl Iterator<Item = Features> {
    (0u32..1 << FEATURES.len())
        .filter(|bits| bits.count_ones() <= 3)
        .map(|bits| {
            let selected = FEATURES
                .iter()
                .enumerate()
                .filter(move |(index, _)| bits >> index & 1 != 0);
            selected.fold(Features::NONE, |all, (_, one)| all | *one)
        })
}

#[test]
fn every_combination_starts_samples_and_streams() {
    isolated(|| {
        let _selected = Sleeper::start("selected");
        let _left_out = Sleeper::start("left out");
        let mut seen = 0;
        for features in combinations() {
            let params = StartParams::default()
                .features(features)
                .filters(["selected"]);
            profiler_start(params).unwrap_or_else(|error| panic!("{features:?}: {error}"));
            let has_stacks = !features.contains(Features::NO_STACK_SAMPLING);
            let expected = match has_stacks {
                true => SamplingState::SamplingCompleted,
                false => SamplingState::NoStackSamplingCompleted,
            };
            assert_eq!(one_loop(), expected, "{features:?}");
            let active = profiler_features_if_active().expect("active");
            // The thread may answer later than that loop.
            let read = read_until("the selected thread has a sample", |read| {
                sample_count(read, "selected") > 0
            });
            profiler_stop();
            let recorded: Vec<&str> = read.0["meta"]["configuration"]["features"]
                .as_array()
                .expect("features")
                .iter()
                .filter_map(|name| name.as_str())
                .collect();
            assert_eq!(recorded, active.names().collect::<Vec<_>>(), "{features:?}");
            assert!(
                active.contains(Features::CPU) || !features.contains(Features::CPU_ALL_THREADS)
            );
            let samples = read.samples("selected");
            assert!(
                has_stacks || samples.iter().all(|sample| sample.stack.is_empty()),
                "{features:?}"
            );
            seen += 1;
        }
        assert_eq!(seen, 1 + 10 + 45 + 120);
    });
}

/// Writes a profile without names of functions, which the features do not change.
fn written(profile: &gekkota::Profile, format: Format) -> Value {
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    let mut text = Vec::new();
    profile
        .write_with(format, &mut text, &options)
        .expect("a vector never fails");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn every_pair_of_features_records_and_streams() {
    isolated(|| {
        register_thread("tested");
        let all: Vec<Features> = Features::available()
            .names()
            .map(|name| Features::from_name(name).expect("a feature"))
            .collect();
        assert!(all.len() > FEATURES.len());
        for (index, first) in all.iter().enumerate() {
            for second in &all[index..] {
                let features = *first | *second;
                let params = StartParams::default().features(features);
                let session = ProfilerSession::start(params)
                    .unwrap_or_else(|error| panic!("{features:?}: {error}"));
                let category = gecko_profiler_category!(Other);
                add_untyped_marker("recorded", category, Default::default());
                one_loop();
                // The thread may answer later than that loop.
                read_until("the thread has a sample", |read| {
                    sample_count(read, "tested") > 0
                });
                let active = profiler_features_if_active().expect("active");
                let profile = session.finish().expect("a profile");
                let read = Read(written(&profile, Format::Gecko));
                let recorded: Vec<&str> = read.0["meta"]["configuration"]["features"]
                    .as_array()
                    .expect("features")
                    .iter()
                    .filter_map(Value::as_str)
                    .collect();
                assert_eq!(recorded, active.names().collect::<Vec<_>>(), "{features:?}");
                let log = &read.0["profilingLog"][std::process::id().to_string()];
                for name in features.names() {
                    let is_lacking = log["unavailableFeatures"][name].is_string();
                    assert!(
                        recorded.contains(&name) || is_lacking,
                        "{features:?}: {name}"
                    );
                }
                assert!(sample_count(&read, "tested") > 0, "{features:?}");
                let markers = read.markers("tested");
                let has_marker = markers.iter().any(|(name, ..)| name == "recorded");
                assert!(has_marker, "{features:?}");
                let processed = written(&profile, Format::Processed);
                let mut threads = processed["threads"].as_array().expect("threads").iter();
                assert!(
                    threads.any(|thread| thread["name"] == "tested"),
                    "{features:?}"
                );
            }
        }
    });
}
