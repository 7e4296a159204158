//! The feature `waitingtasks` with the spans of `tracing`: a span waits while it is open and no
//! thread is in it.

use std::time::{Duration, Instant};

use gekkota::profile::{SlowRequest, TimeKind};
use gekkota::{Features, ProfilerLayer, gecko_profiler_category, labeled_future, register_thread};
use tracing::{Instrument, info_span};
use tracing_subscriber::prelude::*;

use super::waiting_tasks::{
    Measured, Pending, TRACK, check_weights, pool_get, run, start, weights,
};
use crate::common::typed_markers::typed_markers;
use crate::common::{Read, isolated};

/// Long enough for an interval of its own.
const WAIT: Duration = Duration::from_millis(15);

fn with_layers(layers: u32) {
    let layer = || ProfilerLayer::new();
    match layers {
        1 => tracing_subscriber::registry().with(layer()).init(),
        _ => tracing_subscriber::registry()
            .with(layer())
            .with(layer())
            .init(),
    }
}

fn request() -> Measured {
    let query = async {
        Pending(2).instrument(info_span!("query")).await;
    };
    let request = info_span!("request", trace_id = "a1", span_id = 7u64);
    Measured::new(query.instrument(request), &["request → query"])
}

/// Checks that the request's query has the time that it has waited. From the end of its last poll
/// until it is dropped, the request waits by itself.
fn check(read: &Read, requests: &[Measured]) {
    let mut weights = weights(read);
    weights.remove("request");
    check_weights(&weights, requests);
}

#[test]
fn future_of_a_span_waits_with_the_ids_of_its_request() {
    isolated(|| {
        with_layers(1);
        let session = start(Features::WAITING_TASKS);
        let tasks = run(vec![request()], 3);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        check(&read, &tasks);
        let mut markers = typed_markers(&read, TRACK);
        markers.retain(|marker| marker.text("futures") != "request");
        assert_eq!(markers.len(), 2, "{markers:#?}");
        for marker in markers {
            assert_eq!(marker.text("futures"), "request → query");
            assert_eq!(marker.text("trace_id"), format!("{:032x}", 0xa1));
            assert_eq!(marker.text("span_id"), format!("{:016x}", 7));
        }
    });
}

#[test]
fn ids_that_a_span_records_while_it_is_polled_are_those_of_its_wait() {
    isolated(|| {
        with_layers(1);
        let session = start(Features::WAITING_TASKS);
        let body = async {
            tracing::Span::current().record("trace_id", "a1");
            Pending(1).await;
        };
        let request = info_span!("request", trace_id = tracing::field::Empty);
        run(
            vec![Measured::new(body.instrument(request), &["request"])],
            2,
        );
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let markers = typed_markers(&read, TRACK);
        let first = markers.first().expect("a wait");
        assert_eq!(first.text("trace_id"), format!("{:032x}", 0xa1));
    });
}

#[test]
fn span_inside_of_a_request_has_the_id_of_its_trace() {
    isolated(|| {
        with_layers(1);
        let session = start(Features::NONE);
        register_thread("test");
        let request = info_span!("request", trace_id = "a1").entered();
        info_span!("inner").in_scope(|| ());
        drop(request);
        info_span!("alone").in_scope(|| ());
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let markers = typed_markers(&read, "test");
        let of_span = |name: &str| markers.iter().find(|marker| marker.name == name);
        let [request, inner, alone] =
            ["request", "inner", "alone"].map(|name| of_span(name).expect("a span"));
        assert_eq!(request.text("trace_id"), "a1");
        assert_eq!(inner.text("trace_id"), format!("{:032x}", 0xa1));
        assert!(!alone.fields.contains_key("trace_id"));
    });
}

#[test]
fn wait_of_a_span_without_ids_has_the_id_of_its_flow() {
    isolated(|| {
        with_layers(1);
        let session = start(Features::WAITING_TASKS);
        register_thread("test");
        let mut task = Measured::new(Pending(1).instrument(info_span!("alone")), &["alone"]);
        assert!(task.poll().is_pending());
        std::thread::sleep(WAIT);
        assert!(task.poll().is_ready());
        let profile = session.finish().expect("a profile");
        let read = Read::from_profile(&profile);
        let span = typed_markers(&read, "test");
        let waits = typed_markers(&read, TRACK);
        assert_eq!(waits[0].text("span_id"), span[0].text("span"));
        let explained = profile.explain(&SlowRequest::of_marker("alone"));
        let awaited = explained.expect("found").time_in(TimeKind::Await, "alone");
        let [least, most] = task.bounds;
        assert!(least <= awaited && awaited <= most, "{awaited:?}");
    });
}

#[test]
fn two_layers_record_a_wait_once() {
    isolated(|| {
        with_layers(2);
        let session = start(Features::WAITING_TASKS);
        let tasks = run(vec![request()], 3);
        check(
            &Read::from_profile(&session.finish().expect("a profile")),
            &tasks,
        );
    });
}

#[test]
fn future_around_a_span_that_has_ended_waits_itself() {
    isolated(|| {
        with_layers(1);
        let session = start(Features::WAITING_TASKS);
        let body = async {
            async {}.instrument(info_span!("done")).await;
            info_span!("synchronous").in_scope(|| ());
            Pending(1).await;
            pool_get(1).await;
        };
        let task = Measured::new(
            labeled_future("outer", gecko_profiler_category!(Other), body),
            &["outer", "outer → pool.get"],
        );
        let mut tasks = run(vec![task], 3);
        // Each of the two stacks has one of the two waits.
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let mut weights = weights(&read);
        // A span waits between its exit and its close, in which the thread may lose its processor.
        weights.retain(|names, _| !names.ends_with("done") && !names.ends_with("synchronous"));
        let names: Vec<_> = weights.keys().map(String::as_str).collect();
        assert_eq!(names, ["outer", "outer → pool.get"]);
        let [least, most] = tasks
            .remove(0)
            .bounds
            .map(|bound| bound.as_secs_f64() * 1e3);
        let sum: f64 = weights.values().sum();
        assert!(sum > least - 2.0 && sum <= most, "{sum}: {least} to {most}");
    });
}

/// What a span has waited, in ms: at least and at most.
struct Bounds {
    exit: (Instant, Instant),
}

impl Bounds {
    fn exiting(exit: impl FnOnce()) -> Self {
        let before = Instant::now();
        exit();
        Self {
            exit: (before, Instant::now()),
        }
    }

    fn closing(self, close: impl FnOnce()) -> [f64; 2] {
        let before = Instant::now();
        close();
        [before - self.exit.1, Instant::now() - self.exit.0].map(|time| time.as_secs_f64() * 1e3)
    }
}

#[test]
fn span_in_which_a_thread_is_does_not_wait() {
    isolated(|| {
        with_layers(1);
        let session = start(Features::WAITING_TASKS);
        let mut expected = Vec::new();

        let shared = info_span!("shared");
        let here = shared.enter();
        std::thread::scope(|scope| scope.spawn(|| shared.in_scope(|| ())).join().expect("ends"));
        std::thread::sleep(WAIT);
        let bounds = Bounds::exiting(|| drop(here));
        std::thread::sleep(WAIT);
        expected.push(("shared", bounds.closing(|| drop(shared))));

        let twice = info_span!("twice");
        let outer = twice.enter();
        twice.in_scope(|| ());
        std::thread::sleep(WAIT);
        let bounds = Bounds::exiting(|| drop(outer));
        std::thread::sleep(WAIT);
        expected.push(("twice", bounds.closing(|| drop(twice))));

        let (first, second) = (info_span!("first"), info_span!("second"));
        let in_first = first.enter();
        let in_second = second.enter();
        let of_first = Bounds::exiting(|| drop(in_first));
        std::thread::sleep(WAIT);
        let of_second = Bounds::exiting(|| drop(in_second));
        std::thread::sleep(WAIT);
        expected.push(("first", of_first.closing(|| drop(first))));
        expected.push(("first → second", of_second.closing(|| drop(second))));

        // The thread has no trace of these spans any more.
        let mut task = Measured::new(pool_get(1), &["pool.get"]);
        assert!(task.poll().is_pending());
        std::thread::sleep(WAIT);
        assert!(task.poll().is_ready());
        expected.push((
            "pool.get",
            task.bounds.map(|bound| bound.as_secs_f64() * 1e3),
        ));

        let weights = weights(&Read::from_profile(&session.finish().expect("a profile")));
        assert_eq!(weights.len(), expected.len(), "{weights:?}");
        for (stack, [least, most]) in expected {
            let found = weights[stack];
            assert!(
                found > least - 1.0 && found <= most,
                "{stack}: {found} ms instead of {least} to {most}"
            );
        }
    });
}

#[test]
fn span_of_an_earlier_session_waits_in_the_next_one_from_its_next_poll() {
    isolated(|| {
        with_layers(1);
        let session = start(Features::WAITING_TASKS);
        let mut task = request();
        assert!(task.poll().is_pending());
        drop(session.finish().expect("a profile"));
        let session = start(Features::WAITING_TASKS);
        std::thread::sleep(WAIT);
        assert!(task.poll().is_pending());
        std::thread::sleep(WAIT);
        let before = task.bounds;
        assert!(task.poll().is_ready());
        for (bound, before) in task.bounds.iter_mut().zip(before) {
            *bound -= before;
        }
        check(
            &Read::from_profile(&session.finish().expect("a profile")),
            &[task],
        );
    });
}
