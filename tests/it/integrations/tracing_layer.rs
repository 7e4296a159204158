//! `ProfilerLayer`: entered spans are labels, ended spans are interval markers, events are `Log`
//! markers, and flows link them.

use std::fmt;
use std::time::Duration;

use crate::common::sampled::work_at_least;
use crate::common::typed_markers::{TypedMarker, names, only, typed_markers};
use crate::common::{Read, isolated};
use gekkota::{
    ProfilerLayer, ProfilerSession, ProfilerTime, StartParams, gecko_profiler_category,
    register_thread,
};
use serde_json::json;
use tracing::field::{Empty, debug};
use tracing_subscriber::prelude::*;

/// Minimum CPU time of a piece of work.
const SLICE: Duration = Duration::from_millis(20);

/// Returns how long the inner span took at least.
#[inline(never)]
fn outer() -> Duration {
    let _outer = tracing::info_span!("outer span").entered();
    let start = ProfilerTime::now();
    inner();
    std::hint::black_box(ProfilerTime::now().duration_since(start))
}

#[inline(never)]
#[tracing::instrument(name = "inner span")]
fn inner() {
    leaf();
    std::hint::black_box(());
}

#[inline(never)]
fn leaf() {
    work_at_least(SLICE, 15);
    // The compiler merges functions with equal bodies. The file's name makes this body unique.
    std::hint::black_box(file!());
}

#[inline(never)]
fn after_spans() {
    work_at_least(SLICE, 15);
    std::hint::black_box((file!(), 1));
}

fn all_kinds_of_fields() {
    let span = tracing::warn_span!(
        target: "kinds",
        "fields",
        natural = 5u8,
        negative = -300i64,
        least = i64::MIN,
        large = u64::MAX,
        huge = u128::MAX,
        float = 1.5,
        no_number = f64::NAN,
        yes = true,
        text = "é".repeat(300).as_str(),
        shown = display("as shown"),
        debugged = ?Some("x"),
        error = std::io::Error::other("broken").to_string(),
        later = Empty,
        changed = 1,
        never = Empty,
        r#type = "the application's",
        innerWindowID = 7,
        span = "clashes",
        busy = "clashes",
        http.method = "GET",
    );
    span.record("later", debug("recorded"))
        .record("changed", "by another type");
    span.record("changed", 2.5);
}

fn events() {
    let span = tracing::info_span!("with events").entered();
    tracing::error!(
        code = 7,
        level = "the application's",
        "it broke: {}",
        "badly"
    );
    tracing::trace!(target: "elsewhere", message = 5);
    tracing::debug!(target: "fields only", path = %"a b");
    tracing::info!(target: "root", parent: None, "outside the span");
    drop(span);
    tracing::info!(target: "outside", "after the span");
}

fn relatives() {
    let parent = tracing::info_span!("parent");
    let unrelated = tracing::info_span!("unrelated");
    let child = tracing::info_span!(parent: &parent, "child");
    child.follows_from(&unrelated);
    parent.in_scope(|| drop(tracing::info_span!(parent: None, "orphan")));
    tracing::info!(target: "to parent", parent: &parent, "x");
}

struct Panics;

impl fmt::Debug for Panics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("so far")?;
        panic!("the value panics, as the test wants")
    }
}

/// A value that uses spans and events while it is formatted, and formats itself in them.
struct Nosy;

impl fmt::Debug for Nosy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outside = tracing::Span::current();
        let _inside = tracing::info_span!("inside", itself = ?self).entered();
        tracing::error!(target: "inside", itself = ?self, "x");
        outside
            .record("later", debug(self))
            .follows_from(tracing::Span::current());
        f.write_str("nosy")
    }
}

fn unusual_values() {
    let span =
        tracing::info_span!("around", a = 1, bad = ?Panics, nosy = ?Nosy, b = 2, later = Empty);
    span.in_scope(|| tracing::info!(target: "event", nosy = ?Nosy, bad = ?Panics, "{:?}", Panics));
    span.record("later", debug(Nosy));
}

fn check_unusual_values(markers: &[TypedMarker]) {
    assert_eq!(names(markers), ["event", "around"]);
    assert_eq!(markers[0].text("message"), "so far(panicked)");
    assert_eq!(markers[0].text("fields"), "nosy=nosy bad=so far(panicked)");
    assert_eq!(
        markers[1].text("fields"),
        "a=1 bad=so far(panicked) nosy=nosy b=2 later=nosy"
    );
}

fn check_labels(read: &Read) {
    let samples = read.samples("spans");
    let with = |part: &str| {
        let stacks = samples.iter().map(|sample| &sample.stack);
        stacks
            .filter(|stack| stack.iter().any(|frame| frame.contains(part)))
            .collect::<Vec<_>>()
    };
    let in_leaf = with("tracing_layer::leaf (in");
    assert!(in_leaf.len() > 10, "{}", in_leaf.len());
    let kept = [
        "outer span",
        "tracing_layer::outer (in",
        "inner span",
        "tracing_layer::inner (in",
        "tracing_layer::leaf (in",
    ];
    for stack in &in_leaf {
        let order: Vec<_> = stack
            .iter()
            .filter_map(|frame| kept.iter().position(|kept| frame.contains(kept)))
            .collect();
        assert_eq!(order, [0, 1, 2, 3, 4], "{stack:#?}");
    }
    let after = with("after_spans (in");
    assert!(after.len() > 10, "{}", after.len());
    assert!(
        after
            .iter()
            .all(|stack| !stack.iter().any(|frame| frame.ends_with(" span"))),
        "the spans have ended"
    );
    let thread = read.thread("spans");
    let strings = thread["stringTable"].as_array().expect("strings");
    let frames = thread["frameTable"]["data"].as_array().expect("frames");
    let is_label = |frame: &&serde_json::Value| {
        strings[frame[0].as_u64().expect("index") as usize] == "inner span"
    };
    assert_eq!(
        frames.iter().find(is_label).expect("the label's frame")[6],
        6,
        "the category is Network"
    );
}

fn check_fields(span: &TypedMarker) {
    let expected = json!({
        "natural": 5, "negative": -300, "float": 1.5, "yes": true, "changed": 2.5,
        "least": i64::MIN.to_string(), "large": u64::MAX.to_string(), "huge": u128::MAX.to_string(), "no_number": "NaN",
        "text": "é".repeat(256), "shown": "as shown", "debugged": "Some(\"x\")", "error": "broken", "later": "\"recorded\"",
        "type_": "the application's", "innerWindowID_": 7, "span_": "clashes", "busy_": "clashes", "http.method": "GET",
    });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(span.field(key), value, "{key}");
    }
    let own = ["fields", "busy", "idle", "target", "location", "span"];
    let all = expected.as_object().expect("an object").len() + own.len();
    assert!(
        own.iter().all(|key| span.fields.contains_key(*key)) && span.fields.len() == all,
        "{span:#?}"
    );
    assert_eq!(span.text("target"), "kinds");
    let line = span.text("fields");
    assert!(
        line.starts_with("natural=5 negative=-300 ") && line.len() <= 256,
        "{line}"
    );
    assert!(span.text("location").starts_with(concat!(file!(), ":")));
}

fn check_events(markers: &[TypedMarker]) {
    let own = module_path!();
    let log: Vec<_> = markers
        .iter()
        .filter(|marker| marker.type_name == "Log")
        .cloned()
        .collect();
    assert_eq!(
        names(&log),
        [
            own,
            "elsewhere",
            "fields only",
            "root",
            "outside",
            "to parent"
        ]
    );
    assert!(log.iter().all(|event| event.end_ms.is_none()));
    let level_and_message = |name| {
        (
            only(&log, name).text("level"),
            only(&log, name).text("message"),
        )
    };
    assert_eq!(level_and_message(own), ("Error", "it broke: badly"));
    assert_eq!(level_and_message("elsewhere"), ("Verbose", "5"));
    assert_eq!(level_and_message("fields only"), ("Debug", ""));
    let error = only(&log, own);
    assert_eq!(
        (error.field("code"), error.text("level_")),
        (&json!(7), "the application's")
    );
    assert_eq!(error.text("fields"), "code=7 level=the application's");
    assert_eq!(only(&log, "fields only").text("path"), "a b");
    let span = only(markers, "with events").text("span");
    assert!(
        ["elsewhere", "fields only"]
            .iter()
            .all(|name| only(&log, name).text("span") == span)
    );
    assert!(
        ["root", "outside"]
            .iter()
            .all(|name| !only(&log, name).fields.contains_key("span"))
    );
    assert_eq!(
        only(&log, "to parent").text("span"),
        only(markers, "parent").text("span")
    );
}

fn check_flows(markers: &[TypedMarker]) {
    let flow = |name| only(markers, name).text("span").to_owned();
    let parent = |name| {
        only(markers, name)
            .fields
            .get("parent")
            .and_then(|flow| flow.as_str())
            .map(str::to_owned)
    };
    assert_eq!(parent("inner span"), Some(flow("outer span")));
    assert_eq!(
        (parent("child"), parent("orphan"), parent("outer span")),
        (Some(flow("parent")), None, None)
    );
    assert_eq!(only(markers, "child").text("follows"), flow("unrelated"));
    let spans = markers
        .iter()
        .filter(|marker| marker.type_name == "TracingSpan");
    let mut flows: Vec<_> = spans.map(|span| span.text("span")).collect();
    let count = flows.len();
    flows.sort_unstable();
    flows.dedup();
    assert_eq!((flows.len(), count), (8, 8), "each span has its own flow");
}

/// Checks that no label repeats the marker's name, which is the span's name or the event's target:
/// the viewer shows the name next to the label.
fn check_viewer_labels(read: &Read) {
    let schemas = read.0["meta"]["markerSchema"].as_array().expect("schemas");
    for (name, label) in [
        ("TracingSpan", "{marker.data.fields}"),
        ("Log", "{marker.data.message} {marker.data.fields}"),
    ] {
        let schema = schemas.iter().find(|schema| schema["name"] == name);
        let schema = schema.expect("a schema");
        assert_eq!(
            [&schema["chartLabel"], &schema["tableLabel"]],
            [label, label]
        );
        assert!(schema.get("tooltipLabel").is_none());
    }
}

#[test]
fn spans_and_events_become_labels_and_markers() {
    isolated(|| {
        let layer = ProfilerLayer::new().with_category(gecko_profiler_category!(Network));
        tracing_subscriber::registry().with(layer).init();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            register_thread("spans");
            let took = outer();
            after_spans();
            all_kinds_of_fields();
            events();
            relatives();
            gekkota::unregister_thread();
            register_thread("values");
            unusual_values();
            took
        });
        let inner_took = thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));

        check_labels(&read);
        check_viewer_labels(&read);
        let markers = typed_markers(&read, "spans");
        let outer = only(&markers, "outer span");
        let took_ms = outer.end_ms.expect("an interval") - outer.start_ms;
        let inner_ms = inner_took.as_secs_f64() * 1e3;
        assert!(took_ms >= inner_ms, "{took_ms} ms");
        let (busy, idle) = (outer.number("busy"), outer.number("idle"));
        assert!(
            (busy + idle - took_ms).abs() < 0.001 && busy > inner_ms - 0.001,
            "{busy} + {idle} of {took_ms} ms"
        );
        let inner = only(&markers, "inner span");
        assert!(
            inner.start_ms >= outer.start_ms && inner.end_ms <= outer.end_ms,
            "{inner:?} in {outer:?}"
        );
        assert!(
            read.markers("spans").iter().all(|marker| marker.4 == 6),
            "all have the category Network"
        );

        check_fields(only(&markers, "fields"));
        check_events(&markers);
        check_flows(&markers);
        check_unusual_values(&typed_markers(&read, "values"));
    });
}
