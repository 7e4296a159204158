//! Unusual uses of spans, values and sessions: the application continues, and the markers and
//! labels are correct.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::sampled::work_at_least;
use crate::common::typed_markers::{TypedMarker, names, only, typed_markers};
use crate::common::{Read, isolated};
use gekkota::{MarkerStack, ProfilerLayer, ProfilerSession, StartParams, register_thread};
use tracing::field::{Empty, debug};
use tracing::span::EnteredSpan;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

/// Minimum CPU time of a piece of work.
const SLICE: Duration = Duration::from_millis(20);

fn with_layer<T>(layer: ProfilerLayer, body: impl FnOnce() -> T) -> T {
    tracing::subscriber::with_default(Registry::default().with(layer), body)
}

fn start() -> ProfilerSession {
    ProfilerSession::start(StartParams::default()).expect("start")
}

/// Runs `body` in a session, and returns the profile and the markers of the calling thread, whose
/// name this is.
fn recorded(name: &str, body: impl FnOnce()) -> (Read, Vec<TypedMarker>) {
    let session = start();
    body();
    let read = Read::from_profile(&session.finish().expect("profile"));
    let markers = typed_markers(&read, name);
    (read, markers)
}

/// Returns the labels of each sample of a function, only those in `asked`.
fn labels_in(read: &Read, thread: &str, function: &str, asked: &[&str]) -> Vec<Vec<String>> {
    let in_function = |stack: &&Vec<String>| {
        stack
            .iter()
            .any(|frame| frame.contains(&format!("{function} (in")))
    };
    let samples = read.samples(thread);
    let stacks = samples
        .iter()
        .map(|sample| &sample.stack)
        .filter(in_function);
    let labels = |stack: &Vec<String>| {
        stack
            .iter()
            .filter(|frame| asked.contains(&frame.as_str()))
            .cloned()
            .collect::<Vec<_>>()
    };
    let found: Vec<_> = stacks.map(labels).collect();
    assert!(found.len() > 10, "{} samples in {function}", found.len());
    found
}

static FORMATTED: AtomicUsize = AtomicUsize::new(0);

struct Counted;

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FORMATTED.fetch_add(1, Ordering::Relaxed);
        f.write_str("counted")
    }
}

fn use_counted_values() {
    let span = tracing::info_span!("counted", value = ?Counted, later = Empty);
    span.record("later", debug(Counted));
    span.in_scope(|| tracing::info!(value = ?Counted));
}

#[test]
fn values_are_formatted_only_when_recorded() {
    isolated(|| {
        on_registered_thread(|| {
            let formatted = || FORMATTED.swap(0, Ordering::Relaxed);
            with_layer(ProfilerLayer::new(), || {
                use_counted_values();
                assert_eq!(formatted(), 0, "no session");
                let (_, markers) = recorded("edges", || {
                    use_counted_values();
                    assert_eq!(formatted(), 3);
                    gekkota::profiler_pause();
                    tracing::info!(value = ?Counted);
                    gekkota::profiler_resume();
                    assert_eq!(formatted(), 0, "paused");
                    let dispatch = tracing::dispatcher::get_default(Clone::clone);
                    let elsewhere =
                        move || tracing::dispatcher::with_default(&dispatch, use_counted_values);
                    std::thread::spawn(elsewhere).join().expect("thread");
                    assert_eq!(formatted(), 3, "the first marker registers a thread");
                });
                assert_eq!(names(&markers), [module_path!(), "counted"]);
                assert_eq!(only(&markers, "counted").text("later"), "counted");
                use_counted_values();
                assert_eq!(formatted(), 0, "the session has ended");
            });
        })
    });
}

#[inline(never)]
fn in_an_early_span() {
    work_at_least(SLICE, 15);
    std::hint::black_box(2);
}

#[test]
fn span_of_other_session_has_no_marker() {
    isolated(|| {
        on_registered_thread(|| {
            with_layer(ProfilerLayer::new(), || {
                let early = tracing::info_span!("early").entered();
                let mut unfinished = None;
                let (read, markers) = recorded("edges", || {
                    in_an_early_span();
                    tracing::info!(target: "in early", "x");
                    unfinished = Some(tracing::info_span!("unfinished").entered());
                    drop(tracing::info_span!("within").entered());
                });
                assert_eq!(names(&markers), ["in early", "within"]);
                assert!(
                    !only(&markers, "in early").fields.contains_key("span"),
                    "the span is older than the session"
                );
                assert!(
                    labels_in(&read, "edges", "in_an_early_span", &["early"])
                        .iter()
                        .all(|labels| *labels == ["early"])
                );
                let (_, markers) = recorded("edges", || {
                    drop(unfinished.take());
                    drop(early);
                });
                assert_eq!(names(&markers), [""; 0]);
            });
        })
    });
}

#[test]
fn span_marker_is_on_thread_that_drops_span() {
    /// Names, and whether the thread registers before it uses the span.
    const THREADS: [(&str, bool); 2] = [("registered", true), ("found", false)];
    isolated(|| {
        on_registered_thread(|| {
            with_layer(ProfilerLayer::new(), || {
                let (read, markers) = recorded("edges", || {
                    let dispatch = tracing::dispatcher::get_default(Clone::clone);
                    for (name, registers) in THREADS {
                        let (span, dispatch) = (tracing::info_span!("moved"), dispatch.clone());
                        let body = move || {
                            if registers {
                                register_thread(name);
                            }
                            tracing::dispatcher::with_default(&dispatch, || {
                                span.in_scope(|| tracing::info!(target: "other thread", "x"));
                                drop(span);
                            });
                        };
                        let thread = std::thread::Builder::new().name(name.to_owned());
                        thread
                            .spawn(body)
                            .expect("thread")
                            .join()
                            .expect("no panic");
                    }
                });
                assert_eq!(names(&markers), [""; 0]);
                for (name, _) in THREADS {
                    let other = typed_markers(&read, name);
                    assert_eq!(names(&other), ["other thread", "moved"], "{name}");
                    assert_eq!(other[0].text("span"), other[1].text("span"), "{name}");
                }
            });
        })
    });
}

macro_rules! work_functions {
    ($($name:ident)+) => {
        $(#[inline(never)]
        fn $name() {
            work_at_least(SLICE, 15);
            // The compiler merges functions with equal bodies. The name makes this body unique.
            std::hint::black_box(stringify!($name));
        })+
    };
}

work_functions!(with_both with_second_alone with_neither twice_inside once_inside not_inside);

fn exit_out_of_order() {
    let (first, second) = (tracing::info_span!("first"), tracing::info_span!("second"));
    let in_first = first.enter();
    let in_second = second.enter();
    with_both();
    drop(in_first);
    with_second_alone();
    drop(in_second);
    with_neither();
}

fn enter_again() {
    let again = tracing::info_span!("again");
    let outermost = again.enter();
    let inner = again.enter();
    twice_inside();
    drop(inner);
    once_inside();
    drop(outermost);
    not_inside();
}

fn exit_span_that_is_not_entered() {
    let span = tracing::info_span!("not entered");
    let exit =
        || tracing::dispatcher::get_default(|dispatch| _ = span.id().map(|id| dispatch.exit(&id)));
    exit();
    drop(span.enter());
    exit();
}

thread_local! {
    static KEPT: RefCell<Option<EnteredSpan>> = const { RefCell::new(None) };
}

#[test]
fn spans_are_labels_when_exited_in_any_order() {
    isolated(|| {
        on_registered_thread(|| {
            let dispatch = tracing::Dispatch::new(Registry::default().with(ProfilerLayer::new()));
            let (read, markers) = recorded("edges", || {
                tracing::dispatcher::with_default(&dispatch, || {
                    exit_out_of_order();
                    enter_again();
                    exit_span_that_is_not_entered();
                    let deep: Vec<_> = (0..5000)
                        .map(|_| tracing::trace_span!("deep").entered())
                        .collect();
                    // Exits the oldest span first.
                    drop(deep);
                });
                let dispatch = dispatch.clone();
                // The thread's list of spans is destroyed before this span.
                let body = move || {
                    let keep = || {
                        KEPT.with_borrow_mut(|kept| {
                            *kept = Some(tracing::info_span!("kept").entered())
                        })
                    };
                    tracing::dispatcher::with_default(&dispatch, keep);
                };
                std::thread::spawn(body).join().expect("thread");
            });
            let asked = ["first", "second", "again", "not entered"];
            let labels = |function| labels_in(&read, "edges", function, &asked);
            assert!(
                labels("with_both")
                    .iter()
                    .all(|labels| *labels == ["first", "second"])
            );
            assert!(
                labels("with_second_alone")
                    .iter()
                    .all(|labels| *labels == ["second"])
            );
            assert!(labels("with_neither").iter().all(Vec::is_empty));
            assert!(
                labels("twice_inside")
                    .iter()
                    .all(|labels| *labels == ["again", "again"])
            );
            assert!(
                labels("once_inside")
                    .iter()
                    .all(|labels| *labels == ["again"])
            );
            assert!(labels("not_inside").iter().all(Vec::is_empty));

            assert_eq!(
                markers
                    .iter()
                    .filter(|marker| marker.name == "deep")
                    .count(),
                5000
            );
            let again = only(&markers, "again");
            let took_ms = again.end_ms.expect("an interval") - again.start_ms;
            let (busy, idle) = (again.number("busy"), again.number("idle"));
            let slice_ms = SLICE.as_secs_f64() * 1e3;
            assert!(
                busy >= 2.0 * slice_ms && busy + idle < took_ms + 0.001,
                "{busy} + {idle} of {took_ms} ms: nested time counts once"
            );
            assert!(idle >= slice_ms, "{idle} ms after the exit");
        })
    });
}

#[test]
fn layer_ignores_spans_that_it_saw_only_in_part() {
    isolated(|| {
        on_registered_thread(|| {
            let (layer, handle) = reload::Layer::new(None::<ProfilerLayer>);
            tracing::subscriber::with_default(Registry::default().with(layer), || {
                let (_, markers) = recorded("edges", || {
                    let before = tracing::info_span!("before").entered();
                    handle
                        .reload(Some(ProfilerLayer::new()))
                        .expect("the layer exists");
                    drop(tracing::info_span!("between").entered());
                    drop(before);
                    let after = tracing::info_span!("after").entered();
                    handle.reload(None).expect("the layer exists");
                    drop(after);
                });
                assert_eq!(names(&markers), ["between"]);
                assert!(
                    !markers[0].fields.contains_key("parent"),
                    "the layer did not see the parent"
                );
            });
        })
    });
}

#[inline(never)]
fn without_labels() {
    let _span = tracing::info_span!("unlabeled").entered();
    work_at_least(SLICE, 15);
    std::hint::black_box(3);
}

#[test]
fn layer_follows_its_options() {
    isolated(|| {
        on_registered_thread(|| {
            let layer = ProfilerLayer::new()
                .labels(false)
                .busy_times(false)
                .with_stacks(MarkerStack::Full);
            let filtered = layer.with_filter(LevelFilter::INFO);
            tracing::subscriber::with_default(Registry::default().with(filtered), || {
                let (read, markers) = recorded("edges", || {
                    let _outer = tracing::info_span!("outer").entered();
                    let _filtered_out = tracing::debug_span!("filtered out").entered();
                    without_labels();
                    tracing::info!(target: "with a stack", "x");
                    tracing::debug!(target: "filtered out", "x");
                });
                assert_eq!(names(&markers), ["unlabeled", "with a stack", "outer"]);
                assert!(
                    labels_in(&read, "edges", "without_labels", &["unlabeled", "outer"])
                        .iter()
                        .all(Vec::is_empty)
                );
                assert!(
                    markers
                        .iter()
                        .all(|marker| !marker.fields.contains_key("busy"))
                );
                let outer = only(&markers, "outer").text("span");
                assert_eq!(
                    only(&markers, "unlabeled").text("parent"),
                    outer,
                    "the nearest span that passes the filter"
                );
                assert_eq!(only(&markers, "with a stack").text("span"), outer);
                let rows = read.markers("edges");
                let with_stack: Vec<_> = rows
                    .iter()
                    .filter(|marker| !marker.5["stack"].is_null())
                    .collect();
                assert!(
                    with_stack.len() == 1 && with_stack[0].0 == "with a stack",
                    "{with_stack:?}"
                );
            });
        })
    });
}

fn on_registered_thread(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        register_thread("edges");
        body();
    });
    thread.join().expect("thread");
}
