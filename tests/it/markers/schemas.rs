//! All kinds of markers, from the example `marker_gallery`: their schemas use the viewer's words,
//! and their data has the shape that the viewer reads.
#[path = "../../../examples/marker_gallery/src/circumstances.rs"]
mod circumstances;
mod fields;
#[path = "../../../examples/marker_gallery/src/formats.rs"]
mod formats;
mod hosts;
#[path = "../../../examples/marker_gallery/src/known.rs"]
mod known;
#[path = "../../../examples/marker_gallery/src/looks.rs"]
mod looks;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Read, isolated};
use gekkota::{ProfilerSession, ProfilerTime, StartParams};
use serde_json::{Value, json};

/// Returns the time that is `ms` after `start`, for the gallery.
fn after(start: ProfilerTime, ms: f64) -> ProfilerTime {
    start.add_microseconds(ms * 1e3)
}

fn record_gallery() -> Read {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    gekkota::register_thread("gallery");
    let own = gekkota::thread::profiler_current_thread_id();
    let start = ProfilerTime::now();
    std::thread::sleep(Duration::from_millis(20));
    formats::show(start);
    looks::show(start);
    let other = std::thread::spawn(move || {
        gekkota::register_thread("other side");
        looks::show_on_other_thread(start);
        known::show_on_other_thread(start);
        circumstances::show_on_other_thread(start, own);
    });
    other.join().expect("thread");
    known::show(start);
    circumstances::show(start);
    let read = Read::from_profile(&session.finish().expect("profile"));
    gekkota::unregister_thread();
    read
}

/// Returns the names and payloads of the thread's markers, with strings instead of their indices.
fn payloads(read: &Read, thread: &str) -> Vec<(String, Value)> {
    let strings = &read.thread(thread)["stringTable"];
    let markers = read.thread(thread)["markers"]["data"]
        .as_array()
        .expect("markers");
    let string = |index: &Value| strings[index.as_u64().expect("an index") as usize].clone();
    markers
        .iter()
        .map(|row| {
            let mut data = row.get(5).cloned().unwrap_or(Value::Null);
            let schema = schemas(read)
                .get(data["type"].as_str().unwrap_or_default())
                .copied();
            for field in schema
                .iter()
                .flat_map(|schema| schema["data"].as_array().expect("fields"))
            {
                let is_index = field["format"]
                    .as_str()
                    .is_some_and(|format| format == "unique-string" || format.ends_with("flow-id"));
                if is_index && let Some(value) = data.get_mut(field["key"].as_str().expect("a key"))
                {
                    *value = string(value);
                }
            }
            (string(&row[0]).as_str().expect("a name").to_owned(), data)
        })
        .collect()
}

fn schemas(read: &Read) -> BTreeMap<&str, &Value> {
    let all = read.0["meta"]["markerSchema"].as_array().expect("schemas");
    let by_name: BTreeMap<_, _> = all
        .iter()
        .map(|schema| (schema["name"].as_str().expect("a name"), schema))
        .collect();
    assert_eq!(by_name.len(), all.len(), "one schema per type");
    by_name
}

#[track_caller]
fn payload<'p>(payloads: &'p [(String, Value)], name: &str) -> &'p Value {
    let found = payloads.iter().find(|(found, _)| found == name);
    &found.unwrap_or_else(|| panic!("no marker {name}")).1
}

fn keys_are_among(value: &Value, needed: &[&str], allowed: &[&str]) {
    let keys: Vec<_> = value
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert!(
        needed.iter().all(|key| keys.contains(key)),
        "{needed:?} are not all in {value}"
    );
    assert!(
        keys.iter()
            .all(|key| needed.contains(key) || allowed.contains(key)),
        "an unexpected key in {value}"
    );
}

fn check_stacks_are_threads_with_one_sample(read: &Read, markers: &[(String, Value)]) {
    let thread = read.thread("gallery");
    let table =
        |name: &str, row: u64, column: usize| thread[name]["data"][row as usize][column].clone();
    let functions = |mut stack: Option<u64>| {
        let mut functions = Vec::new();
        while let Some(at) = stack {
            let location = table(
                "frameTable",
                table("stackTable", at, 1).as_u64().expect("a frame"),
                0,
            );
            let name = &thread["stringTable"][location.as_u64().expect("a location") as usize];
            functions.push(
                name.as_str()
                    .expect("a name")
                    .split(" (")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            );
            stack = table("stackTable", at, 0).as_u64();
        }
        functions
    };
    let mut seen = BTreeMap::new();
    for (name, data) in markers {
        let Some(stack) = data.get("stack") else {
            continue;
        };
        keys_are_among(
            stack,
            &[
                "name",
                "processType",
                "registerTime",
                "unregisterTime",
                "pid",
                "tid",
                "markers",
                "samples",
            ],
            &[],
        );
        assert_eq!(
            stack["samples"]["schema"],
            json!({"stack": 0, "time": 1, "eventDelay": 2})
        );
        let rows = stack["samples"]["data"].as_array().expect("rows");
        assert!(
            rows.len() == 1 && rows[0][1].as_f64().is_some_and(|ms| ms > 0.0),
            "{stack}"
        );
        assert_eq!(stack["markers"]["data"], json!([]));
        seen.entry(name.as_str())
            .or_insert_with(Vec::new)
            .push(functions(rows[0][0].as_u64()));
    }
    let of = |name: &str| format!("it::markers::schemas::circumstances::{name}");
    for (name, count, function) in [
        ("stack of an untyped marker", 1, of("show_full_stacks")),
        ("stack of a text", 1, of("show_full_stacks")),
        ("stack of a typed marker", 1, of("show_full_stacks")),
        ("stack of labels", 1, "a label".to_owned()),
        ("stack of a cause", 2, of("capture_cause")),
    ] {
        let stacks = seen
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not among {seen:?}"));
        assert!(
            stacks.len() == count && stacks.iter().all(|stack| stack[0] == function),
            "{name}: {stacks:?}"
        );
    }
    assert_eq!(
        seen["stack of labels"][0].len(),
        2,
        "the label and the root"
    );
    assert_eq!(
        payload(markers, "stack of an untyped marker")["type"],
        "NoPayloadUserData"
    );
}

fn check_pages_and_tracks(read: &Read, markers: &[(String, Value)], other: &[(String, Value)]) {
    let page = |tab: u64, id: u64, url: &str, embedder: u64, is_private: bool| {
        json!({
            "tabID": tab, "innerWindowID": id, "url": url,
            "embedderInnerWindowID": embedder, "isPrivateBrowsing": is_private,
        })
    };
    let pages = json!([
        page(1, 11, "https://example.org/shop", 0, false),
        page(1, 12, "https://example.net/frame", 11, false),
        page(2, 21, "https://example.com/", 0, true),
    ]);
    assert_eq!(read.0["pages"], pages);
    let windows = ["of a page", "of a part of a page", "untyped, of a page"]
        .map(|name| payload(markers, name)["innerWindowID"].as_u64());
    assert_eq!(windows, [Some(11), Some(12), Some(11)]);
    assert_eq!(payload(other, "of a private page")["innerWindowID"], 21);
    assert_eq!(
        payload(markers, "on the main thread's track")["name"],
        "text"
    );
}

#[test]
fn gallery_markers_have_shape_that_viewer_reads() {
    isolated(|| {
        let read = record_gallery();
        let (markers, other) = (payloads(&read, "gallery"), payloads(&read, "other side"));
        words::check_schemas_use_viewer_words(&read);
        words::check_schemas_match_marker_types(&read, &[&markers[..], &other].concat());
        fields::check_fields_have_units_of_formats(&markers);
        fields::check_types_known_to_viewer(&markers, &other);
        check_stacks_are_threads_with_one_sample(&read, &markers);
        check_pages_and_tracks(&read, &markers, &other);
    });
}

#[test]
fn application_types_cannot_break_viewer() {
    isolated(|| {
        // The next profile has no schemas of this session.
        record_gallery();
        hosts::check_application_types(&hosts::record_application_types());
    });
}

#[test]
fn marker_in_one_line_has_typed_fields() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        gekkota::register_thread("one line");
        let route = String::from("/cart");
        gekkota::marker!(
            "answered",
            status = 200_u16,
            route = &route,
            load = 0.5,
            cached = true,
            took = Duration::from_micros(1500),
            user = None::<u64>,
            note = Some("late"),
        );
        gekkota::marker!("answered", bytes = 7, r#type = 3);
        gekkota::unregister_thread();
        let read = Read::from_profile(&session.finish().expect("profile"));
        let expected = [
            json!({
                "type": "answered", "status": 200, "route": "/cart", "load": 0.5,
                "cached": true, "took": 1.5, "note": "late",
            }),
            json!({ "type": "answered", "bytes": 7, "type_": 3 }),
        ];
        let expected = expected.map(|data| ("answered".to_owned(), data));
        assert_eq!(payloads(&read, "one line"), expected);
        let schema = schemas(&read)["answered"];
        let fields: Vec<_> = schema["data"].as_array().expect("fields").iter().collect();
        let formats: Vec<_> = fields
            .iter()
            .map(|field| (&field["key"], &field["format"]))
            .collect();
        let expected = json!([
            ["status", "integer"],
            ["route", "string"],
            ["load", "decimal"],
            ["cached", "string"],
            ["took", "duration"],
            ["user", "integer"],
            ["note", "string"],
            ["bytes", "integer"],
            ["type_", "integer"],
        ]);
        assert_eq!(json!(formats), expected);
        let label = schema["tableLabel"].as_str().expect("a label");
        assert!(
            label.starts_with("status {marker.data.status}, route "),
            "{label}"
        );
    });
}
