//! Every combination of up to three features starts, samples and streams.

use super::{read_until, sample_count};
use crate::common::{Sleeper, isolated, one_loop};
use gekkota::callback::SamplingState;
use gekkota::{Features, StartParams, profiler_features_if_active, profiler_start, profiler_stop};

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
