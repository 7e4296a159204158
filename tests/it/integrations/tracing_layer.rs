//! Spans are labels where they are entered and intervals when they end, events are lines of the log, and flows link them.

use std::fmt;
use std::time::Duration;

use crate::common::typed_markers::{TypedMarker, names, only, typed_markers};
use crate::common::{Read, isolated, work_for_cpu};
use gekkota::{
    ProfilerLayer, ProfilerSession, StartParams, gecko_profiler_category, register_thread,
};
use serde_json::json;
use tracing::field::{Empty, debug};
use tracing_subscriber::prelude::*;

const SLICE: Duration = Duration::from_millis(100);

#[inline(never)]
fn outer() {
    let _outer = tracing::info_span!("outer span").entered();
    inner();
    std::hint::black_box(());
}

#[inline(never)]
#[tracing::instrument(name = "inner span")]
fn inner() {
    leaf();
    std::hint::black_box(());
}

#[inline(never)]
fn leaf() {
    work_for_cpu(SLICE);
    // The compiler merges functions with equal bodies. The file's name makes this body unique.
    std::hint::black_box(file!());
}

#[inline(never)]
fn after_all() {
    work_for_cpu(SLICE);
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
        r#type = "of the host's",
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
    let span = tracing::info_span!("of events").entered();
    tracing::error!(code = 7, level = "the host's", "it broke: {}", "badly");
    tracing::trace!(target: "elsewhere", message = 5);
    tracing::debug!(target: "fields only", path = %"a b");
    tracing::info!(target: "root", parent: None, "not in it");
    drop(span);
    tracing::info!(target: "outside", "not in it either");
}

fn relatives() {
    let parent = tracing::info_span!("parent");
    let stranger = tracing::info_span!("stranger");
    let child = tracing::info_span!(parent: &parent, "child");
    child.follows_from(&stranger);
    parent.in_scope(|| drop(tracing::info_span!(parent: None, "orphan")));
    tracing::info!(target: "to parent", parent: &parent, "x");
}

struct Panics;

impl fmt::Debug for Panics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("so far")?;
        panic!("on purpose")
    }
}

/// Uses all there is while it is formatted, and has itself formatted.
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

fn values_that_do_what_they_like() {
    let span =
        tracing::info_span!("around", a = 1, bad = ?Panics, nosy = ?Nosy, b = 2, later = Empty);
    span.in_scope(|| tracing::info!(target: "event", nosy = ?Nosy, bad = ?Panics, "{:?}", Panics));
    span.record("later", debug(Nosy));
}

fn values_spoil_nothing_but_themselves(markers: &[TypedMarker]) {
    assert_eq!(names(markers), ["event", "around"]);
    assert_eq!(markers[0].text("message"), "so far(panicked)");
    assert_eq!(markers[0].text("fields"), "nosy=nosy bad=so far(panicked)");
    assert_eq!(
        markers[1].text("fields"),
        "a=1 bad=so far(panicked) nosy=nosy b=2 later=nosy"
    );
}

fn samples_are_labelled(read: &Read) {
    let samples = read.samples("spans");
    let with = |part: &str| {
        let stacks = samples.iter().map(|sample| &sample.stack);
        stacks
            .filter(|stack| stack.iter().any(|frame| frame.contains(part)))
            .collect::<Vec<_>>()
    };
    let in_leaf = with("tracing_layer::leaf (in");
    assert!(in_leaf.len() > 30, "{}", in_leaf.len());
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
    let after = with("after_all (in");
    assert!(after.len() > 30, "{}", after.len());
    assert!(
        after
            .iter()
            .all(|stack| !stack.iter().any(|frame| frame.ends_with(" span"))),
        "they have ended"
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
        "of the network"
    );
}

fn fields_are_what_they_were(span: &TypedMarker) {
    let expected = json!({
        "natural": 5, "negative": -300, "float": 1.5, "yes": true, "changed": 2.5,
        "least": i64::MIN.to_string(), "large": u64::MAX.to_string(), "huge": u128::MAX.to_string(), "no_number": "NaN",
        "text": "é".repeat(256), "shown": "as shown", "debugged": "Some(\"x\")", "error": "broken", "later": "\"recorded\"",
        "type_": "of the host's", "innerWindowID_": 7, "span_": "clashes", "busy_": "clashes", "http.method": "GET",
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

fn events_are_lines_of_the_log(markers: &[TypedMarker]) {
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
    let said = |name| {
        (
            only(&log, name).text("level"),
            only(&log, name).text("message"),
        )
    };
    assert_eq!(said(own), ("Error", "it broke: badly"));
    assert_eq!(said("elsewhere"), ("Verbose", "5"));
    assert_eq!(said("fields only"), ("Debug", ""));
    let error = only(&log, own);
    assert_eq!(
        (error.field("code"), error.text("level_")),
        (&json!(7), "the host's")
    );
    assert_eq!(error.text("fields"), "code=7 level=the host's");
    assert_eq!(only(&log, "fields only").text("path"), "a b");
    let span = only(markers, "of events").text("span");
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

fn flows_link_spans(markers: &[TypedMarker]) {
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
    assert_eq!(only(markers, "child").text("follows"), flow("stranger"));
    let spans = markers
        .iter()
        .filter(|marker| marker.type_name == "TracingSpan");
    let mut flows: Vec<_> = spans.map(|span| span.text("span")).collect();
    let count = flows.len();
    flows.sort_unstable();
    flows.dedup();
    assert_eq!((flows.len(), count), (8, 8), "each has its own");
}

#[test]
fn spans_and_events_are_on_the_timeline() {
    isolated(|| {
        let layer = ProfilerLayer::new().with_category(gecko_profiler_category!(Network));
        tracing_subscriber::registry().with(layer).init();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            register_thread("spans");
            outer();
            after_all();
            all_kinds_of_fields();
            events();
            relatives();
            gekkota::unregister_thread();
            register_thread("values");
            values_that_do_what_they_like();
        });
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));

        samples_are_labelled(&read);
        let markers = typed_markers(&read, "spans");
        let outer = only(&markers, "outer span");
        let took_ms = outer.end_ms.expect("an interval") - outer.start_ms;
        assert!(took_ms >= SLICE.as_secs_f64() * 1e3, "{took_ms} ms");
        let (busy, idle) = (outer.number("busy"), outer.number("idle"));
        assert!(
            (busy + idle - took_ms).abs() < 0.001 && busy > 0.9 * took_ms,
            "{busy} + {idle} of {took_ms} ms"
        );
        let inner = only(&markers, "inner span");
        assert!(
            inner.start_ms >= outer.start_ms && inner.end_ms <= outer.end_ms,
            "{inner:?} in {outer:?}"
        );
        assert!(
            read.markers("spans").iter().all(|marker| marker.4 == 6),
            "all are of the network"
        );

        fields_are_what_they_were(only(&markers, "fields"));
        events_are_lines_of_the_log(&markers);
        flows_link_spans(&markers);
        values_spoil_nothing_but_themselves(&typed_markers(&read, "values"));
    });
}
