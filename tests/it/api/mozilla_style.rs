//! Code that uses the profiler in the forms of Mozilla's code. Compared with code for Mozilla's
//! crate `gecko_profiler`, each file only adds `use gekkota::gecko_profiler;`. The profile contains
//! what the code records.
#![allow(elided_lifetimes_in_paths, reason = "Mozilla's code does")]
#![allow(
    clippy::clone_on_copy,
    clippy::needless_borrow,
    reason = "Mozilla's types are not `Copy`"
)]

mod metrics;
mod network;
mod rendering;
mod schemas;

use std::collections::{BTreeSet, HashSet};

use crate::common::sampled::{start_counter, work_until_sampled};
use crate::common::{self, Read, isolated, registered_threads_only};
use gekkota::{ProfilerSession, StartParams, gecko_profiler};
use serde_json::{Value, json};

/// Works until there are some samples.
#[inline(never)]
fn run() {
    work_until_sampled(5);
    std::hint::black_box(file!());
}

fn on_thread(name: &'static str, body: impl FnOnce() + Send + 'static) {
    let run = move || {
        gecko_profiler::register_thread(name);
        body();
        gecko_profiler::unregister_thread();
    };
    std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}

/// The compared parts of a marker: name, phase, category, and its data, in which texts replace the
/// indices into the string table.
type Found = (String, u64, String, Value);

const INSTANT: u64 = 0;
const INTERVAL: u64 = 1;
const START: u64 = 2;
const END: u64 = 3;

fn found(read: &Read, thread: &str, unique_fields: &[&str]) -> Vec<Found> {
    let strings = read.thread(thread)["stringTable"]
        .as_array()
        .expect("strings");
    let with_texts = |mut data: Value| {
        for field in unique_fields.iter().map(|field| format!("/{field}")) {
            if let Some(value) = data.pointer_mut(&field) {
                let index = value
                    .as_u64()
                    .unwrap_or_else(|| panic!("{field} is no index: {value}"));
                *value = strings[index as usize].clone();
            }
        }
        data
    };
    let category = |index: u64| read.0["meta"]["categories"][index as usize]["name"].clone();
    let markers = read.markers(thread).into_iter();
    markers
        .map(|(name, _, _, phase, index, data)| {
            (
                name,
                phase,
                category(index).as_str().expect("a category").to_owned(),
                with_texts(data),
            )
        })
        .collect()
}

/// Asserts that the thread's markers with this name are the expected ones.
#[track_caller]
fn assert_found(found: &[Found], name: &str, category: &str, expected: &[(u64, Value)]) {
    let found: Vec<_> = found.iter().filter(|marker| marker.0 == name).collect();
    assert!(
        found.iter().all(|marker| marker.2 == category),
        "in {category}: {found:?}"
    );
    let found: Vec<_> = found
        .into_iter()
        .map(|marker| (marker.1, marker.3.clone()))
        .collect();
    assert_eq!(found, expected, "{name}");
}

fn assert_metrics(read: &Read) {
    let markers = found(read, "metrics", &["id", "label"]);
    let assert_instants = |name, expected: &[Value]| {
        let expected: Vec<_> = expected
            .iter()
            .map(|data| (INSTANT, data.clone()))
            .collect();
        assert_found(&markers, name, "Telemetry", &expected);
    };
    assert_instants(
        "Boolean::set",
        &[json!({"type": "BooleanMetric", "id": "page.loads", "val": true})],
    );
    let extra = r#""a": "1","b": "2""#;
    assert_instants(
        "Event::record",
        &[json!({"type": "EventMetric", "id": "page.loads", "extra": extra})],
    );
    let nothing = json!({"type": "EventMetric", "id": "page.loads"});
    assert_found(
        &markers,
        "Event::record_nothing",
        "Other",
        &[(INSTANT, nothing)],
    );
    let started = json!({"type": "TimingMetric", "id": "page.loads", "timer_id": 5});
    assert_instants("TimingDistribution::start", &[started]);
    let id = "no metric Metric(8)";
    let stopped = [
        json!({"type": "TimingMetric", "id": id, "timer_id": null, "duration": 1.5}),
        json!({"type": "TimingMetric", "id": id, "timer_id": null, "sample": -3}),
        json!({"type": "TimingMetric", "id": id, "timer_id": null, "samples": "[1, 2]"}),
        json!({"type": "TimingMetric", "id": id, "timer_id": null}),
    ];
    assert_instants("TimingDistribution::stop", &stopped);
    let samples = "18446744073709551615,0";
    let labeled = json!({"type": "DistMetric", "kind": "memory", "id": "page.loads/first", "label": "first",
        "samples": samples});
    assert_instants("MemoryDistribution::accumulate", &[labeled]);
    let sample =
        json!({"type": "DistMetric", "kind": "memory", "id": "page.loads", "samples": "0.5"});
    assert_instants("CustomDistribution::accumulate", &[sample]);
    assert_eq!(markers.len(), 10, "{markers:?}");
}

/// Returns the stack in a marker's data, without the root.
fn stack_of(read: &Read, thread: &str, data: &Value) -> Option<Vec<String>> {
    let sample = &data["stack"]["samples"]["data"][0][0];
    let mut thread = read.thread(thread).clone();
    thread["samples"]["data"] = json!([[sample.as_u64()?, 0.0]]);
    common::samples_of(&thread).pop().map(|sample| sample.stack)
}

fn assert_races(read: &Read) {
    let markers = found(read, "network", &["outcome", "flow"]);
    let mut flows = HashSet::new();
    for (outcome, has_ech, has_native_frames) in
        [("success", true, true), ("cancelled", false, false)]
    {
        let is_wanted = |marker: &&Found| marker.0 == "Race" && marker.3["outcome"] == outcome;
        let [(_, phase, category, data)] =
            &markers.iter().filter(is_wanted).collect::<Vec<_>>()[..]
        else {
            panic!("expected one {outcome} in {markers:?}");
        };
        assert_eq!(
            (*phase, category.as_str(), &data["type"]),
            (INTERVAL, "Network", &json!("RaceAttempt"))
        );
        assert_eq!(
            (&data["origin"], &data["has_ech"]),
            (&json!("https://example.org"), &json!(has_ech))
        );
        let flow = data["flow"].as_str().expect("digits");
        assert!(
            flow.len() == 16 && flow.chars().all(|digit| digit.is_ascii_hexdigit()),
            "{flow}"
        );
        flows.insert(flow.to_owned());
        let stack = stack_of(read, "network", data).expect("a stack");
        let has_native = stack
            .iter()
            .any(|frame| frame.contains("network::race (in"));
        assert_eq!(has_native, has_native_frames, "{stack:?}");
    }
    assert!(
        flows.len() == 2 && flows.contains("000000000000abcd"),
        "{flows:?}"
    );
    let over = json!({"type": "Text", "name": "https://example.org"});
    assert_found(&markers, "Race over", "Network", &[(INTERVAL, over)]);
    assert_eq!(markers.len(), 3, "{markers:?}");
}

fn assert_frames(read: &Read) {
    let hooks = found(read, "RenderBackend", &[]);
    assert_found(
        &hooks,
        "Frame",
        "Graphics",
        &[(START, Value::Null), (END, Value::Null)],
    );
    assert_found(&hooks, "Vsync", "Graphics", &[(INSTANT, Value::Null)]);
    let shader = read
        .markers("RenderBackend")
        .into_iter()
        .find(|marker| marker.0 == "Shader");
    let (_, start, end, phase, _, data) = shader.expect("the marker");
    assert_eq!((phase, &data["name"]), (INTERVAL, &json!("compiled")));
    assert!(
        (end.expect("an end") - start - 2.0).abs() < 1e-6,
        "two milliseconds"
    );
}

fn assert_guards(read: &Read) {
    let markers = found(read, "guards", &["flow"]);
    let flow = markers
        .iter()
        .find_map(|marker| marker.3["flow"].as_str())
        .expect("a flow");
    let text = |name: &str| (INTERVAL, json!({"type": "Text", "name": name}));
    let interval = |phase| (phase, json!({"type": "StackMarker"}));
    let tracing = |phase, word: &str| (phase, json!({"type": "tracing", "category": word}));
    let flow = |phase| (phase, json!({"type": "FlowStackRust", "flow": flow}));
    let guards = [
        interval(START),
        tracing(START, "word"),
        flow(START),
        text("https://example.org/page"),
        interval(END),
        tracing(END, "word"),
        flow(END),
    ];
    assert_found(&markers, "Guards", "Graphics", &guards);
    let macros = [
        interval(START),
        tracing(START, "Webrender"),
        flow(START),
        flow(END),
        tracing(END, "Webrender"),
        interval(END),
        text("text"),
    ];
    assert_found(&markers, "Macros", "Graphics", &macros);
    let ready = [
        tracing(INSTANT, "word 7"),
        tracing(INSTANT, "constant"),
        interval(INSTANT),
        (
            INSTANT,
            json!({"type": "FlowStackRust", "flow": "0000000000000009"}),
        ),
    ];
    assert_found(&markers, "Ready types", "Graphics", &ready);
    assert_eq!(markers.len(), 18, "{markers:?}");
}

/// Returns label, category and subcategory of the labels in a thread's samples.
fn labels(read: &Read, thread: &str) -> BTreeSet<[String; 3]> {
    let thread = read.thread(thread);
    let index = |value: &Value| value.as_u64().expect("an index") as usize;
    let words = |frame: &Value| {
        let category = &read.0["meta"]["categories"][index(&frame[6])];
        let subcategory = &category["subcategories"][index(&frame[7])];
        [
            &thread["stringTable"][index(&frame[0])],
            &category["name"],
            subcategory,
        ]
        .map(|word| word.as_str().expect("a word").to_owned())
    };
    let frames = thread["frameTable"]["data"]
        .as_array()
        .expect("frames")
        .iter();
    let with_category = frames.filter(|frame| frame[6].is_u64()).map(words);
    with_category
        .filter(|[location, ..]| !location.contains("(in ") && location != "(root)")
        .collect()
}

fn assert_label_categories(read: &Read) {
    let expected = [
        ["DisplayList building", "Graphics", "DisplayList building"],
        ["Other", "Idle", "Other"],
        ["Other", "Layout", "Other"],
        ["Parsing", "JavaScript", "Parsing"],
    ];
    assert_eq!(
        labels(read, "labels"),
        expected.map(|words| words.map(str::to_owned)).into()
    );
    for worker in ["WorkerLP#0", "WorkerLP#1"] {
        let expected = ["Style computation", "Layout", "Style computation"].map(str::to_owned);
        assert_eq!(labels(read, worker), [expected].into());
        assert!(!read.thread(worker)["unregisterTime"].is_null());
    }
}

fn assert_schemas(read: &Read) {
    let markers = found(read, "schemas", &["object/unique"]);
    let formats = json!({"type": "all formats", "integer": 5});
    assert_found(&markers, "Formats", "Graphics", &[(INSTANT, formats)]);
    let name = "a \"name\"";
    let written = [
        json!({"type": "written", "name": name, "part": 0.25, "is_long": true, "numbers": [1, -2, 3],
            "object": {"count": 3, "unique": name}}),
        json!({"type": "written", "name": name, "part": null, "is_long": false, "numbers": [],
            "object": {"count": 0, "unique": name}}),
    ];
    assert_found(
        &markers,
        "Written",
        "Graphics",
        &written.map(|data| (INSTANT, data)),
    );
    assert_found(
        &markers,
        "Special",
        "Graphics",
        &[(INSTANT, json!({"type": "special"}))],
    );
    let timings = read.markers("schemas");
    let timing = |index: usize| {
        timings
            .iter()
            .find(|marker| marker.0 == format!("Timing {index}"))
            .expect("the marker")
    };
    let phases = [INSTANT, INSTANT, INTERVAL, INTERVAL, START, END, INSTANT];
    (0..7).for_each(|index| assert_eq!(timing(index).3, phases[index], "phase of timing {index}"));
    let start = timing(0).1;
    assert_eq!(
        (timing(2).1, timing(3).1, timing(4).1),
        (start, start, start)
    );
    let ends = [timing(2).2, timing(5).2].map(|end| end.expect("an end") - start);
    assert!(
        ends.iter().all(|length| (length - 2.5).abs() < 1e-6),
        "2.5 milliseconds: {ends:?}"
    );
    for (stack, frames) in [
        ("NoStack", None),
        ("Full", Some(true)),
        ("NonNative", Some(false)),
    ] {
        let marker = markers
            .iter()
            .find(|marker| marker.0 == stack)
            .expect("the marker");
        let found = stack_of(read, "schemas", &marker.3);
        let is_native = |frame: &String| frame.contains("schemas::add_all (in");
        assert_eq!(
            found.map(|stack| stack.iter().any(is_native)),
            frames,
            "{stack}"
        );
    }
    let names = [
        "BooleanMetric",
        "DistMetric",
        "EventMetric",
        "FlowStackRust",
        "RaceAttempt",
        "StackMarker",
        "Text",
        "TimingMetric",
        "all formats",
        "tracing",
        "written",
    ];
    assert_eq!(
        schema_names(read),
        names,
        "the schemas of the types in use, except those that the viewer knows"
    );
    assert_eq!(read.0["meta"]["markerSchema"][8], schema_of_all_formats());
    let boolean = json!({
        "name": "BooleanMetric",
        "tooltipLabel": "{marker.data.id} {marker.data.val}",
        "tableLabel": "{marker.name}: {marker.data.val}",
        "display": ["marker-chart", "marker-table"],
        "data": [
            {"key": "id", "label": "Metric", "format": "unique-string"},
            {"key": "val", "label": "Value", "format": "string"},
        ],
    });
    assert_eq!(read.0["meta"]["markerSchema"][0], boolean);
}

fn schema_of_all_formats() -> Value {
    let formats = [
        ("url", "url"),
        ("file", "file-path"),
        ("sanitized", "sanitized-string"),
        ("string", "string"),
        ("unique", "unique-string"),
        ("duration", "duration"),
        ("time", "time"),
        ("seconds", "seconds"),
        ("milliseconds", "milliseconds"),
        ("microseconds", "microseconds"),
        ("nanoseconds", "nanoseconds"),
        ("bytes", "bytes"),
        ("percentage", "percentage"),
        ("integer", "integer"),
        ("decimal", "decimal"),
        ("flow", "flow-id"),
        ("terminating", "terminating-flow-id"),
    ];
    let mut data: Vec<_> = formats
        .iter()
        .map(|(key, format)| json!({"key": key, "format": format}))
        .collect();
    data.push(json!({"key": "hidden", "format": "string", "hidden": true}));
    data.push(json!({"key": "shown", "label": "Shown", "format": "string"}));
    data.push(json!({"label": "Help", "value": "A type of the application"}));
    json!({
        "name": "all formats",
        "isStackBased": true,
        "display": [
            "marker-chart", "marker-table", "timeline-overview", "timeline-memory", "timeline-ipc",
            "timeline-fileio", "stack-chart",
        ],
        "data": data,
        "graphs": [
            {"key": "integer", "type": "line"},
            {"key": "decimal", "type": "bar", "color": "blue"},
            {"key": "bytes", "type": "line-filled", "color": "magenta"},
        ],
    })
}

fn schema_names(read: &Read) -> Vec<&str> {
    let schemas = read.0["meta"]["markerSchema"].as_array().expect("schemas");
    schemas
        .iter()
        .map(|schema| schema["name"].as_str().expect("a name"))
        .collect()
}

#[test]
fn mozilla_style_code_is_recorded_in_the_profile() {
    isolated(|| {
        start_counter();
        let mut evaluated = 0;
        metrics::record(&mut evaluated);
        let earlier = ProfilerSession::start(StartParams::default()).expect("start");
        on_thread("earlier", metrics::record_earlier);
        let earlier = Read::from_profile(&earlier.finish().expect("profile"));
        assert_eq!(schema_names(&earlier), ["Earlier"]);

        let session = ProfilerSession::start(registered_threads_only()).expect("start");
        metrics::record(&mut evaluated);
        assert_eq!(
            evaluated, 0,
            "the payload of a lazy marker is evaluated only on a profiled thread"
        );
        assert!(gecko_profiler::is_active() && gecko_profiler::is_active_and_unpaused());
        assert!(!gecko_profiler::current_thread_is_being_profiled_for_markers());
        on_thread("metrics", || {
            let mut evaluated = 0;
            metrics::record(&mut evaluated);
            assert_eq!(evaluated, 1);
        });
        on_thread("network", network::race);
        rendering::use_hooks();
        rendering::use_pool();
        on_thread("labels", rendering::use_labels);
        on_thread("guards", rendering::use_guards);
        on_thread("schemas", schemas::add_all);
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert!(!gecko_profiler::can_accept_markers());

        assert_metrics(&read);
        assert_races(&read);
        assert_frames(&read);
        assert_guards(&read);
        assert_label_categories(&read);
        assert_schemas(&read);
    });
}
