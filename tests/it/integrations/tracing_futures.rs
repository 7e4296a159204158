//! The span of a future is a label on whatever thread polls it, and one interval in the end.

use std::time::Duration;

use crate::common::moving_task::{Task, poll_on, wait};
use crate::common::typed_markers::{names, only, typed_markers};
use crate::common::{Read, isolated, work_for_cpu};
use gekkota::{ProfilerLayer, ProfilerSession, StartParams, register_thread};
use tracing::Instrument;
use tracing_subscriber::prelude::*;

const SLICE: Duration = Duration::from_millis(80);

#[inline(never)]
fn a_slice_of_it() {
    work_for_cpu(SLICE);
    std::hint::black_box(1);
}

#[inline(never)]
fn something_else() {
    work_for_cpu(SLICE);
    std::hint::black_box(2);
}

async fn query(number: u32) {
    tracing::info!(target: "query begins", number);
    a_slice_of_it();
    wait().await;
    a_slice_of_it();
    tracing::info!(target: "query ends", number);
}

fn new_request() -> Task {
    let query = query(1).instrument(tracing::info_span!("query"));
    Box::pin(query.instrument(tracing::info_span!("request")))
}

fn labels_in(read: &Read, thread: &str, function: &str) -> Vec<Vec<String>> {
    let in_function = |stack: &Vec<String>| {
        stack
            .iter()
            .any(|frame| frame.contains(&format!("{function} (in")))
    };
    let labels = |stack: Vec<String>| {
        stack
            .into_iter()
            .filter(|frame| matches!(frame.as_str(), "request" | "query"))
            .collect::<Vec<_>>()
    };
    let stacks = read.samples(thread).into_iter().map(|sample| sample.stack);
    let found: Vec<_> = stacks.filter(in_function).map(labels).collect();
    assert!(
        found.len() > 10,
        "{} samples in {function} on {thread}",
        found.len()
    );
    found
}

fn a_request_has_moved(read: &Read) {
    for thread in ["first", "second"] {
        assert!(
            labels_in(read, thread, "a_slice_of_it")
                .iter()
                .all(|labels| *labels == ["request", "query"])
        );
        assert!(
            labels_in(read, thread, "something_else")
                .iter()
                .all(Vec::is_empty),
            "it waits"
        );
    }
    let (first, second) = (typed_markers(read, "first"), typed_markers(read, "second"));
    assert_eq!(
        (names(&first), names(&second)),
        (vec!["query begins"], vec!["query ends", "query", "request"])
    );
    let (query, request) = (only(&second, "query"), only(&second, "request"));
    assert!(request.start_ms < first[0].start_ms, "it was made before");
    assert_eq!(
        (first[0].text("span"), second[0].text("span")),
        (query.text("span"), query.text("span"))
    );
    // The one was made before anything was entered.
    assert!(!query.fields.contains_key("parent"));
    let (busy, idle) = (request.number("busy"), request.number("idle"));
    let slice_ms = SLICE.as_secs_f64() * 1e3;
    assert!(
        busy >= 2.0 * slice_ms && idle >= slice_ms,
        "busy for {busy} ms, and idle for {idle} ms"
    );
    assert!(request.number("busy") >= query.number("busy"));
}

#[test]
fn futures_take_their_spans_along() {
    isolated(|| {
        tracing_subscriber::registry()
            .with(ProfilerLayer::new())
            .init();
        register_thread("maker");
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let request = poll_on("first", new_request(), something_else).expect("it waits");
        assert!(poll_on("second", request, something_else).is_none());
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert_eq!(names(&typed_markers(&read, "maker")), ["x"; 0]);
        a_request_has_moved(&read);
    });
}
