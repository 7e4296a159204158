//! The fields of markers: those that the viewer reads, in the units of their formats.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::payload;
use super::words::FORMATS;

/// Marker types of gekkota.
const KNOWN: [&str; 30] = [
    "Awake",
    "BHR-detected hang",
    "CPUSpeed",
    "CompositorScreenshot",
    "DOMEvent",
    "FileIO",
    "FlowMarker",
    "FlowStackRust",
    "FlowStackTextMarker",
    "FlowTextMarker",
    "IPC",
    "JS allocation",
    "Log",
    "MainThreadLongTask",
    "MediaSample",
    "Native allocation",
    "Network",
    "NoPayloadUserData",
    "PreferenceRead",
    "StackMarker",
    "TerminatingFlowMarker",
    "TerminatingFlowStackMarker",
    "TerminatingFlowTextMarker",
    "Text",
    "TextStack",
    "UserTiming",
    "VideoFallingBehind",
    "VideoSinkRender",
    "WakeUpCount",
    "tracing",
];

pub(crate) fn check_fields_have_units_of_formats(markers: &[(String, Value)]) {
    for format in FORMATS.into_iter().chain(["table"]) {
        let data = payload(markers, format);
        assert!(
            data.get("typical").is_some() && data.get("missing").is_none(),
            "{format}: {data}"
        );
        if data.get("not_a_number").is_some() {
            assert_eq!(
                (&data["not_a_number"], &data["infinite"]),
                (&Value::Null, &Value::Null),
                "{format}"
            );
            assert_eq!(
                (&data["zero"], &data["negative"]),
                (&json!(0), &json!(-1500)),
                "{format}"
            );
            assert_eq!(data["huge"], json!(u64::MAX), "{format}");
        }
        if let Some(awkward) = data.get("awkward") {
            assert_eq!(
                awkward, "\"quoted\" \\ a\tb\u{1}c\u{7f}\u{2028}µ🦎 {marker.name} <b>",
                "{format}"
            );
            assert_eq!(
                (&data["empty"], &data["number"]),
                (&json!(""), &json!("7")),
                "{format}"
            );
        }
    }
    assert_eq!(
        payload(markers, "pid")["typical"],
        std::process::id().to_string()
    );
    assert!(payload(markers, "tid")["typical"].is_u64());
    assert_eq!(payload(markers, "flow-id")["typical"], "0000000000abcdef");
    let lists = payload(markers, "list");
    assert_eq!(
        (&lists["gaps"], &lists["single"]),
        (&json!([0.5, null, null]), &json!(["alone"]))
    );
    let table = payload(markers, "table");
    assert_eq!(
        table["typical"],
        json!([["a.txt", 1536, 0.25], ["b.txt", 15_000, 0.75]])
    );
}

pub(crate) fn check_types_known_to_viewer(markers: &[(String, Value)], other: &[(String, Value)]) {
    let types: BTreeSet<_> = markers
        .iter()
        .filter_map(|(_, data)| data["type"].as_str())
        .collect();
    assert!(KNOWN.iter().all(|known| types.contains(known)), "{types:?}");
    let of_type = |type_name: &'static str, markers: &[(String, Value)]| -> Vec<Value> {
        let found = markers.iter().filter(|(_, data)| data["type"] == type_name);
        found
            .map(|(name, data)| json!({"name": name, "data": data}))
            .collect()
    };

    // Both sides of a message. The viewer finds them only by this name.
    let steps = [of_type("IPC", markers), of_type("IPC", other)].concat();
    let words = [
        ("sending", "endpoint"),
        ("sending", "transferStart"),
        ("sending", "transferEnd"),
        ("receiving", "transferEnd"),
        ("receiving", "endpoint"),
    ];
    assert_eq!(steps.len(), words.len());
    for (step, (direction, phase)) in steps.iter().zip(words) {
        let data = &step["data"];
        assert_eq!(
            (&step["name"], &data["direction"], &data["phase"]),
            (&json!("IPC"), &json!(direction), &json!(phase))
        );
        assert_eq!(
            (&data["side"], &data["sync"], &data["messageSeqno"]),
            (&json!("parent"), &json!(false), &json!(4711))
        );
        assert_eq!(data["startTime"], data["endTime"]);
        assert!(
            data["startTime"].is_f64() && data["otherPid"] == std::process::id(),
            "{data}"
        );
    }
    let requests = of_type("Network", markers);
    let parts: Vec<_> = requests
        .iter()
        .map(|part| (&part["data"]["id"], &part["data"]["status"]))
        .collect();
    assert_eq!(
        json!(parts),
        json!([
            [1, "STATUS_START"],
            [1, "STATUS_STOP"],
            [2, "STATUS_START"],
            [2, "STATUS_REDIRECT"],
            [3, "STATUS_START"],
            [3, "STATUS_CANCEL"],
            [4, "STATUS_START"],
        ])
    );
    let answer = &requests[1]["data"];
    let words = [
        &answer["httpVersion"],
        &answer["cache"],
        &answer["requestStatus"],
        &answer["URI"],
    ];
    assert_eq!(
        json!(words),
        json!(["h2", "Missed", "NS_OK", "https://example.org/1.html"])
    );
    assert_eq!(
        json!([answer["count"], answer["responseStatus"], answer["pri"]]),
        json!([20_480, 200, -5])
    );
    let phases = [
        "startTime",
        "domainLookupStart",
        "domainLookupEnd",
        "connectStart",
        "tcpConnectEnd",
        "secureConnectionStart",
        "connectEnd",
        "requestStart",
        "responseStart",
        "responseEnd",
        "endTime",
    ];
    let times = phases.map(|phase| answer[phase].as_f64().expect("a time"));
    assert!(
        times.is_sorted() && times[10] - times[0] > 34.9,
        "{times:?}"
    );

    let allocations = of_type("Native allocation", markers);
    let sizes: Vec<_> = allocations
        .iter()
        .map(|found| (&found["data"]["size"], &found["data"]["memoryAddress"]))
        .collect();
    assert_eq!(
        json!(sizes),
        json!([[3000, 0x1000], [500, 0x2000], [-500, 0x2000]])
    );
    assert!(
        allocations
            .iter()
            .all(|found| found["data"]["threadId"].is_u64() && found["data"]["stack"].is_object())
    );
    let log = payload(markers, "gallery");
    assert_eq!(
        (&log["level"], &log["message"]),
        (&json!("Error"), &json!("it \"failed\""))
    );
    let pictures = of_type("CompositorScreenshot", markers);
    assert!(
        pictures.len() == 2
            && pictures
                .iter()
                .all(|picture| picture["name"] == "CompositorScreenshot")
    );
    let picture = &pictures[0]["data"];
    assert!(
        picture["url"].is_u64() && picture["windowID"] == "0xabc",
        "{picture}"
    );
}
