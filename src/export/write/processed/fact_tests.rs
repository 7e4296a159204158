//! Tests of markers, counters, and facts about processes and the profile.

use serde_json::{Value, json};

use super::sample_model::sample_profile;
use super::tests::{names, sample_file, string, written};
use super::*;
use crate::export::options::ExportOptions;
use crate::model::ProfileModel;

#[test]
fn session_range_includes_all_samples() {
    let (mut profile, _) = sample_profile();
    let range = |profile: &ProfileModel| {
        let meta = &written(profile, &ExportOptions::default())["meta"];
        json!([meta["profilingStartTime"], meta["profilingEndTime"]])
    };
    assert_eq!(range(&profile), json!([-1.000005, 10]));
    // The viewer would hide the last sample, at 3 ms, in a range that ends there.
    profile.meta.session_ns = Some((0, 3_000_000));
    assert_eq!(range(&profile), json!([-1.000005, 4]));
    profile.threads.clear();
    assert_eq!(range(&profile), json!([null, null]));
}

#[test]
fn threads_have_the_facts_of_their_process() {
    let file = sample_file();
    let keys = [
        "name",
        "isMainThread",
        "pid",
        "tid",
        "processType",
        "processName",
        "processStartupTime",
        "processShutdownTime",
        "registerTime",
        "unregisterTime",
    ];
    let facts = |at: usize| -> Value { keys.map(|key| file["threads"][at][key].clone()).into() };
    assert_eq!(
        facts(0),
        json!([
            "GeckoMain",
            true,
            "1000",
            1000,
            "default",
            "demo",
            0,
            null,
            0,
            null
        ])
    );
    assert_eq!(
        facts(2),
        json!([
            "helper", true, "1001", "1001-1", "default", "helper", -2, 8, -2, null
        ])
    );
    assert_eq!(
        file["threads"][1]["pausedRanges"][0]["reason"],
        "profiler-paused"
    );
    assert_eq!(file["threads"][2]["pausedRanges"], json!([]));
    assert_eq!(file["threads"][0]["usedInnerWindowIDs"], json!([9]));
    assert_eq!(file["threads"][1]["usedInnerWindowIDs"], json!([12]));
    assert_eq!(file["pages"][0]["innerWindowID"], 9);
    assert_eq!(
        file["profilingLog"],
        json!({"1000": {"samplerNice": 0}, "1001": {}})
    );
}

#[test]
fn markers_are_in_order_with_string_indices_and_causes() {
    let file = sample_file();
    let thread = &file["threads"][1];
    let markers = &thread["markers"];
    assert_eq!(markers["startTime"], json!([3, 4, 6, null]));
    assert_eq!(markers["endTime"], json!([null, 5, null, 9]));
    assert_eq!(markers["phase"], json!([2, 1, 0, 3]));
    // A category that does not exist becomes the default one.
    assert_eq!(markers["category"], json!([3, 1, 1, 3]));
    assert_eq!(file["meta"]["categories"][3]["color"], "grey");
    assert_eq!(string(&file, &markers["name"][0]), "a marker");
    assert_eq!(markers["data"][0], Value::Null);
    let data = &markers["data"][1];
    assert_eq!(string(&file, &data["url"]), "/only/in/the/marker");
    assert_eq!(names(&file, &data["cause"]["stack"])[0], "demo::main");
    let plain = ["type", "share", "ok", "note", "list", "nothing"].map(|key| data[key].clone());
    assert_eq!(
        json!(plain),
        json!(["Request", 0.5, true, "a \"note\"", [1, 2], null])
    );
    assert_eq!(
        [&data["cause"]["tid"], &data["cause"]["time"]],
        [&json!(1002), &json!(1)]
    );
    assert_eq!(
        markers["data"][2]["timings"],
        json!({"slice": 1, "phase_times": {"mark": 2500.0}})
    );
    assert_eq!(thread["showMarkersInTimeline"], true);
    assert_eq!(file["threads"][0].get("showMarkersInTimeline"), None);
}

#[test]
fn allocations_leave_the_markers_for_their_tables() {
    let file = sample_file();
    let thread = &file["threads"][1];
    let js = &thread["jsAllocations"];
    assert_eq!(
        json!([
            js["weight"],
            js["className"],
            js["time"],
            js["stack"],
            js["weightType"]
        ]),
        json!([[24], ["Map"], [1], [null], "bytes"])
    );
    let native = &thread["nativeAllocations"];
    assert_eq!(
        json!([
            native["weight"],
            native["memoryAddress"],
            native["threadId"]
        ]),
        json!([[-64], [4096], [1000]])
    );
    assert_eq!(names(&file, &native["stack"][0])[0], "demo::parse");
    assert_eq!(file["threads"][0].get("nativeAllocations"), None);
}

#[test]
fn schemas_have_fields_and_a_description() {
    let (mut profile, _) = sample_profile();
    profile.marker_schemas.push(crate::model::MarkerSchema {
        name: "Broken".to_owned(),
        json: "{".to_owned(),
    });
    let schemas = &written(&profile, &ExportOptions::default())["meta"]["markerSchema"];
    assert_eq!(
        schemas[0],
        json!({
            "name": "Request",
            "display": ["marker-chart", "timeline-overview"],
            "description": "A request.",
            "fields": [
                {"key": "url", "format": "unique-string"},
                {"key": "share", "format": "percentage"},
            ],
        })
    );
    assert_eq!(schemas[1]["name"], "Broken");
    assert_eq!(schemas[1]["fields"], json!([]));
}

#[test]
fn counters_describe_themselves() {
    let file = sample_file();
    let [cpu, memory, queue] = [0, 1, 2].map(|at: usize| &file["counters"][at]);
    // The viewer hides a counter named `processCPU`.
    assert_eq!([&cpu["name"], &cpu["category"]], ["Process CPU", "CPU"]);
    assert_eq!(cpu["display"]["tooltipRows"][0]["source"], "cpu-ratio");
    assert_eq!(memory["name"], "malloc");
    let keys = [
        "graphType",
        "unit",
        "color",
        "label",
        "markerSchemaLocation",
        "sortWeight",
    ];
    let display = |counter: &Value| json!(keys.map(|key| counter["display"][key].clone()));
    assert_eq!(
        display(memory),
        json!([
            "line-accumulated",
            "bytes",
            "orange",
            "Memory",
            "timeline-memory",
            20
        ])
    );
    assert_eq!(
        display(queue),
        json!(["line-rate", "", "grey", "queue", null, 50])
    );
    assert_eq!(
        memory["samples"],
        json!({"timeDeltas": [1, 1], "count": [4096, -96.5], "number": [2, 2], "length": 2})
    );
    assert_eq!(queue["samples"].get("number"), None);
    assert_eq!(
        [&queue["pid"], &queue["mainThreadIndex"]],
        [&json!("1000"), &json!(0)]
    );
}

#[test]
fn meta_has_each_field_once_and_in_the_form_of_this_format() {
    let (profile, _) = sample_profile();
    let mut out = Vec::new();
    write_processed(&profile, &ExportOptions::default(), &mut out).expect("written");
    let text = String::from_utf8(out).expect("UTF-8");
    assert_eq!(text.matches("\"extensions\":").count(), 1);
    let meta = &serde_json::from_str::<Value>(&text).expect("JSON")["meta"];
    assert_eq!(
        meta["extensions"],
        json!({"id": ["i"], "name": ["n"], "baseURL": ["https://b.example/"], "length": 1})
    );
    let keys = [
        "preprocessedProfileVersion",
        "version",
        "product",
        "startTime",
        "interval",
        "symbolicated",
        "debug",
        "platform",
        "processType",
        "stackwalk",
        "sourceCodeIsNotOnSearchfox",
    ];
    assert_eq!(
        json!(keys.map(|key| meta[key].clone())),
        json!([
            70,
            36,
            "demo",
            1_700_000_000_000.5,
            1,
            true,
            true,
            "Linux",
            0,
            1,
            true
        ])
    );
    assert_eq!(meta.get("shutdownTime"), None);
}
