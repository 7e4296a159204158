//! Tests that the span of a Tokio task is one interval, whichever workers poll the task.

#[path = "../../../tests/it/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::Read;
use common::typed_markers::{names, typed_markers};
use gekkota::{
    ProfilerLayer, ProfilerSession, StartParams, profiler_thread_sleep, profiler_thread_wake,
    register_thread,
};
use tracing::Instrument;
use tracing_subscriber::prelude::*;

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
fn tasks_on_a_runtime_take_their_spans_along() {
    tracing::subscriber::set_global_default(
        tracing_subscriber::registry().with(ProfilerLayer::new()),
    )
    .expect("the first");
    register_thread("maker");
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    run_on_a_runtime();
    let read = Read::from_profile(&session.finish().expect("profile"));
    assert_eq!(names(&typed_markers(&read, "maker")), ["x"; 0]);
    tasks_are_told_apart(&read);
}
