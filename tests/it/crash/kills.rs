//! A child is killed at random instants. The rescued profile has all that the child had added.

use std::time::Duration;

use serde_json::Value;

use super::roles::{self, Reports, WORKERS, worker_name};
use super::{Folder, rescued};
use crate::common::typed_markers::{TypedMarker, typed_markers};
use crate::common::{Random, Read, number_in};

/// Number of kills, and the seed of their instants.
const KILLS: &str = "GEKKOTA_TEST_KILLS";
const SEED: &str = "GEKKOTA_TEST_SEED";

/// Checks the fields of the marker with this number.
#[track_caller]
fn check_fields(marker: &TypedMarker, number: u64, text: &str) {
    match number % 4 {
        0 => {
            assert_eq!(marker.type_name, "CrashStep");
            assert_eq!(marker.number("number"), number as f64);
            assert_eq!(marker.text("text"), format!("{text} {number}"));
            assert_eq!(marker.number("share"), number as f64 / 8.0);
            assert_eq!(marker.field("is_even"), number.is_multiple_of(8));
        }
        1 => assert_eq!(marker.text("name"), format!("{text} {number}")),
        2 => assert!(marker.fields.is_empty(), "{marker:?}"),
        _ => {
            assert_eq!(marker.type_name, "CrashParts");
            let given = number.is_multiple_of(3).then_some(number);
            assert_eq!(
                marker.fields.get("number").and_then(|field| field.as_u64()),
                given
            );
            let names = (0..number % 5).map(|part| format!("part {part}"));
            assert_eq!(*marker.field("names"), Value::from_iter(names));
            assert_eq!(marker.text("label"), format!("label {}", number % 7));
        }
    }
}

/// Checks that a profile has what its process has reported. With `is_whole`, it has everything
/// since the start; otherwise, the oldest data may be gone.
#[track_caller]
pub(super) fn check(read: &Read, reports: &Reports, is_whole: bool) {
    for worker in 0..WORKERS {
        let name = worker_name(worker);
        let markers = typed_markers(read, &name);
        let numbers: Vec<u64> = markers
            .iter()
            .map(|marker| marker.name[1..].parse().expect("a number"))
            .collect();
        let first = *numbers
            .first()
            .unwrap_or_else(|| panic!("no marker of {name}"));
        assert!(!is_whole || first == 0, "{name} begins with {first}");
        // None is missing in between, and times are in order.
        let expected: Vec<u64> = (first..first + numbers.len() as u64).collect();
        assert_eq!(numbers, expected, "{name}");
        let times = markers.iter().map(|marker| marker.start_ms);
        assert!(times.is_sorted(), "{name}");
        let last = reports.last[worker];
        assert!(
            numbers.last() >= last.as_ref(),
            "{last:?} of {name} is missing"
        );
        for (marker, number) in markers.iter().zip(&numbers) {
            check_fields(marker, *number, "step");
        }
        let samples = read.samples(&name);
        assert!(!samples.is_empty(), "{name}");
        assert!(samples.is_sorted_by_key(|sample| sample.time_ms), "{name}");
        // `samples` checks the root.
        let has_label = |sample: &crate::common::Sample| {
            sample
                .stack
                .iter()
                .any(|frame| frame == "a label of the worker")
        };
        assert!(samples.iter().any(has_label), "{name}");
    }
    let meta = &read.0["meta"];
    let last_ms = meta["rescued"]["lastEntryTime"].as_f64().expect("a time");
    assert!(last_ms > 0.0 && meta["profilingEndTime"].as_f64() >= Some(last_ms));
    for name in [
        "damagedChunks",
        "unknownFacts",
        "lostFacts",
        "chunksOutsideOfTheFile",
    ] {
        assert_eq!(meta["rescued"][name], 0, "{name}");
    }
    let counters = read.0["counters"].as_array().expect("counters");
    assert!(
        counters.iter().any(|counter| counter["name"] == "steps"),
        "{counters:?}"
    );
    let categories = meta["categories"].as_array().expect("categories");
    assert!(
        categories
            .iter()
            .any(|category| category["name"] == "Crashing")
    );
}

#[test]
fn killed_process_leaves_all_that_it_had_added() {
    let folder = Folder::new("kills");
    let mut random = Random::new(number_in(SEED, 1));
    for kill in 0..number_in(KILLS, 12) {
        let path = folder.path(&format!("file-{kill}"));
        // Every other buffer is so small that its chunks are recycled.
        let is_small = kill % 2 == 1;
        let capacity = if is_small { 256 << 10 } else { 64 << 20 };
        let mut recording = roles::start(&mut roles::command("kill", capacity, Some(&path)));
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        recording.child.kill().expect("the child runs");
        let (_, reports) = recording.end();
        let read = rescued(&path);
        eprintln!("kill {kill}: {:?}", reports.last);
        check(&read, &reports, !is_small);
        std::fs::remove_file(&path).expect("the file is there");
    }
    assert_eq!(folder.names(), [""; 0]);
}
