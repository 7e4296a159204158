use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::*;
use crate::export::write::formats::test_chrome_profile::{
    busy_profile, empty_profile, push_sample,
};

fn events(profile: &ProfileModel) -> Vec<Value> {
    let mut out = Vec::new();
    write_chrome_trace(profile, &ExportOptions::default(), &mut out).expect("written");
    let file: Value = serde_json::from_slice(&out).expect("JSON");
    file["traceEvents"].as_array().expect("a list").clone()
}

fn number(event: &Value, key: &str) -> i64 {
    event[key]
        .as_i64()
        .unwrap_or_else(|| panic!("{key} of {event}"))
}

#[test]
fn complete_events_and_pairs_nest_on_each_track() {
    let events = events(&busy_profile(1_000));
    let (mut by_track, mut begun) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    for event in &events {
        let track = (number(event, "pid"), number(event, "tid"));
        let start = number(event, "ts");
        match event["ph"].as_str() {
            Some("X") => by_track
                .entry(track)
                .or_default()
                .push((start, start + number(event, "dur"))),
            // DevTools keeps one stack for all threads, in the order of the file.
            Some("B") => begun.push((track, start, &event["name"])),
            Some("E") => {
                let (begun_on, begin, name) = begun.pop().expect("a start");
                assert_eq!((begun_on, name), (track, &event["name"]));
                by_track.entry(track).or_default().push((begin, start));
            }
            _ => {}
        }
    }
    assert!(begun.is_empty());
    assert_eq!(by_track.len(), 2, "calls and markers");
    for spans in by_track.values_mut() {
        spans.sort_by_key(|(start, end)| (*start, -end));
        let mut ends = Vec::new();
        for (start, end) in spans {
            while ends.pop_if(|outer| *outer <= *start).is_some() {}
            assert!(
                ends.last().is_none_or(|outer| *end <= *outer),
                "{start} to {end}"
            );
            ends.push(*end);
        }
    }
}

#[test]
fn every_marker_is_written_once() {
    let profile = busy_profile(1_000);
    let events = events(&profile);
    let count = |phases: &[&str]| {
        let is_marker = |event: &&Value| event["cat"] == "marker";
        let of_phase = |event: &&Value| phases.iter().any(|phase| event["ph"] == *phase);
        events.iter().filter(is_marker).filter(of_phase).count()
    };
    assert_eq!(count(&["B"]), count(&["E"]));
    assert_eq!(count(&["b"]), count(&["e"]));
    // A pair has two markers, unless it crosses another interval.
    let pairs = {
        let spans = MarkerSpans::of(&profile, &profile.threads[0], (0, i64::MAX));
        let host = spans.host.iter().map(|(interval, _)| interval);
        let all = host.chain(&spans.nested).chain(&spans.crossing);
        all.filter(|interval| interval.last.is_some()).count()
    };
    assert!(pairs > 0);
    let markers = profile.threads[0].markers.len();
    assert_eq!(count(&["X", "B", "b", "I"]) + pairs, markers);
}

#[test]
fn flows_begin_once_and_end_once() {
    let events = events(&busy_profile(100));
    let mut flows = BTreeMap::<i64, Vec<(String, i64)>>::new();
    for event in events.iter().filter(|event| event["name"] == "flow") {
        let phase = event["ph"].as_str().expect("a phase").to_owned();
        flows
            .entry(number(event, "id"))
            .or_default()
            .push((phase, number(event, "ts")));
        let is_bound = |other: &&Value| {
            ["ts", "pid", "tid", "cat"]
                .iter()
                .all(|key| other[key] == event[key])
                && other["name"] != "flow"
        };
        assert!(events.iter().any(|other| is_bound(&other)), "{event}");
    }
    assert_eq!(flows.len(), 3);
    for points in flows.values() {
        let phases: Vec<_> = points.iter().map(|(phase, _)| phase.as_str()).collect();
        assert_eq!((phases[0], phases[phases.len() - 1]), ("s", "f"));
        assert!(
            phases[1..phases.len() - 1]
                .iter()
                .all(|phase| *phase == "t")
        );
        assert!(points.is_sorted_by_key(|(_, time)| *time));
    }
}

#[test]
fn chunks_hold_all_samples_and_parents_come_first() {
    // More than two chunks.
    let events = events(&busy_profile(70_000));
    let chunks: Vec<_> = events
        .iter()
        .filter(|event| event["name"] == "ProfileChunk")
        .collect();
    let head = events
        .iter()
        .find(|event| event["name"] == "Profile")
        .expect("a head");
    assert_eq!(chunks.len(), 3);
    let (mut known, mut samples) = (HashSet::new(), 0);
    for chunk in chunks {
        assert_eq!((&chunk["pid"], &chunk["id"]), (&head["pid"], &head["id"]));
        let data = &chunk["args"]["data"];
        for node in data["cpuProfile"]["nodes"].as_array().expect("a list") {
            if known.is_empty() {
                assert_eq!(node["callFrame"]["functionName"], "(root)");
            } else {
                assert!(known.contains(&number(node, "parent")), "{node}");
            }
            assert!(known.insert(number(node, "id")), "{node}");
        }
        let lists = [
            &data["cpuProfile"]["samples"],
            &data["timeDeltas"],
            &data["lines"],
        ];
        let lists = lists.map(|list| list.as_array().expect("a list"));
        assert_eq!(
            (lists[0].len(), lists[0].len()),
            (lists[1].len(), lists[2].len())
        );
        assert!(
            lists[0]
                .iter()
                .all(|id| known.contains(&id.as_i64().expect("an id")))
        );
        samples += lists[0].len();
    }
    assert_eq!(samples, 70_000);
}

#[test]
fn counters_and_names_are_written() {
    let mut profile = busy_profile(3);
    profile.processes[0].pid = "100-1".to_owned();
    let events = events(&profile);
    let values = events.iter().filter(|event| event["ph"] == "C");
    let values: Vec<_> = values.map(|event| event["args"]["value"].clone()).collect();
    assert_eq!(values, [json!(16), json!(32), json!(48)]);
    let names = events.iter().filter(|event| event["name"] == "thread_name");
    let names: Vec<_> = names.map(|event| event["args"]["name"].clone()).collect();
    assert_eq!(names, ["main", "main (samples)"]);
    let pids: HashSet<_> = events.iter().map(|event| number(event, "pid")).collect();
    assert_eq!(
        pids.len(),
        1,
        "the id is no number, so the process has another one"
    );
}

#[test]
fn negative_times_are_moved_to_the_start() {
    let mut profile = empty_profile();
    push_sample(&mut profile, -5_000, Some(&["main"]));
    push_sample(&mut profile, 0, Some(&["main"]));
    let events = events(&profile);
    let call = events
        .iter()
        .find(|event| event["ph"] == "X")
        .expect("a call");
    assert_eq!((number(call, "ts"), number(call, "dur")), (0, 10));
}
