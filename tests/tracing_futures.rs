//! The span of a future is a label on whatever thread polls it, and one interval in the end.
#![cfg(has_profiler)]

mod common;
#[path = "common/moving_task.rs"]
mod moving_task;
#[path = "common/typed_markers.rs"]
mod typed_markers;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{Read, work_for_cpu};
use gekkota::{
    ProfilerLayer, ProfilerSession, StartParams, profiler_thread_sleep, profiler_thread_wake,
    register_thread,
};
use moving_task::{Task, poll_on, wait};
use tracing::Instrument;
use tracing_subscriber::prelude::*;
use typed_markers::{names, only, typed_markers};

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

fn run_on_a_runtime() {
    static WORKERS: AtomicU32 = AtomicU32::new(0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .on_thread_start(|| {
            register_thread("runtime");
            WORKERS.fetch_add(1, Ordering::Relaxed);
        })
        .on_thread_park(profiler_thread_sleep)
        .on_thread_unpark(profiler_thread_wake)
        .build()
        .expect("a runtime");
    let task = |number: u32| {
        let inner = async move {
            tracing::info!(target: "begins", number);
            tokio::time::sleep(Duration::from_millis(30)).await;
            tracing::info!(target: "ends", number);
        };
        async move { inner.instrument(tracing::info_span!("inner", number)).await }
            .instrument(tracing::info_span!("task", number))
    };
    let tasks: Vec<_> = (0..20).map(|number| runtime.spawn(task(number))).collect();
    tasks
        .into_iter()
        .for_each(|task| runtime.block_on(task).expect("it does not panic"));
    assert!(WORKERS.load(Ordering::Relaxed) >= 2);
}

fn tasks_are_told_apart(read: &Read) {
    let markers = typed_markers(read, "runtime");
    for number in 0..20 {
        let one = |name| {
            let mut named = markers
                .iter()
                .filter(|marker| marker.name == name && marker.number("number") == number as f64);
            let one = named
                .next()
                .unwrap_or_else(|| panic!("no {name} of {number}"));
            assert!(named.next().is_none());
            one
        };
        let (task, inner) = (one("task"), one("inner"));
        assert_eq!(inner.text("parent"), task.text("span"));
        assert!(
            ["begins", "ends"]
                .iter()
                .all(|event| one(event).text("span") == inner.text("span"))
        );
        let took_ms = task.end_ms.expect("an interval") - task.start_ms;
        let (busy, idle) = (task.number("busy"), task.number("idle"));
        assert!(
            idle >= 30.0 && (busy + idle - took_ms).abs() < 0.001,
            "{busy} + {idle} of {took_ms} ms"
        );
    }
}

#[test]
fn futures_take_their_spans_along() {
    tracing_subscriber::registry()
        .with(ProfilerLayer::new())
        .init();
    register_thread("maker");
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let request = poll_on("first", new_request(), something_else).expect("it waits");
    assert!(poll_on("second", request, something_else).is_none());
    run_on_a_runtime();
    let read = Read::from_profile(&session.finish().expect("profile"));
    assert_eq!(names(&typed_markers(&read, "maker")), ["x"; 0]);
    a_request_has_moved(&read);
    tasks_are_told_apart(&read);
}
