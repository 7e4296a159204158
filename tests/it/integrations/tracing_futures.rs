//! The span of a future is a label on each thread that polls the future, and one interval marker.

use std::time::Duration;

use crate::common::moving_task::{Task, poll_on, wait};
use crate::common::sampled::work_at_least;
use crate::common::typed_markers::{names, only, typed_markers};
use crate::common::{Read, isolated};
use gekkota::{ProfilerLayer, ProfilerSession, StartParams, register_thread};
use tracing::Instrument;
use tracing_subscriber::prelude::*;

/// Minimum CPU time of a piece of work.
const SLICE: Duration = Duration::from_millis(20);

#[inline(never)]
fn work_for_query() {
    work_at_least(SLICE, 15);
    std::hint::black_box(1);
}

#[inline(never)]
fn work_outside_query() {
    work_at_least(SLICE, 15);
    std::hint::black_box(2);
}

async fn query(number: u32) {
    tracing::info!(target: "query begins", number);
    work_for_query();
    wait().await;
    work_for_query();
    tracing::info!(target: "query ends", number);
}

fn new_request() -> Task {
    let query = query(1).instrument(tracing::info_span!("query"));
    Box::pin(query.instrument(tracing::info_span!("request")))
}

/// Returns the labels of the spans in each sample of a function.
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

fn check_request(read: &Read) {
    for thread in ["first", "second"] {
        assert!(
            labels_in(read, thread, "work_for_query")
                .iter()
                .all(|labels| *labels == ["request", "query"])
        );
        assert!(
            labels_in(read, thread, "work_outside_query")
                .iter()
                .all(Vec::is_empty),
            "the request is pending or has ended"
        );
    }
    let (first, second) = (typed_markers(read, "first"), typed_markers(read, "second"));
    assert_eq!(
        (names(&first), names(&second)),
        (vec!["query begins"], vec!["query ends", "query", "request"])
    );
    let (query, request) = (only(&second, "query"), only(&second, "request"));
    assert!(
        request.start_ms < first[0].start_ms,
        "the span was created first"
    );
    assert_eq!(
        (first[0].text("span"), second[0].text("span")),
        (query.text("span"), query.text("span"))
    );
    // Both spans were created while no span was entered.
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
fn span_of_future_labels_every_polling_thread() {
    isolated(|| {
        tracing_subscriber::registry()
            .with(ProfilerLayer::new())
            .init();
        register_thread("creator");
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let request =
            poll_on("first", new_request(), work_outside_query).expect("the request is pending");
        assert!(poll_on("second", request, work_outside_query).is_none());
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert_eq!(names(&typed_markers(&read, "creator")), ["x"; 0]);
        check_request(&read);
    });
}
