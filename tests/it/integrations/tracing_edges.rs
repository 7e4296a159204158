//! Whatever spans, values and sessions do, the program goes on, and what is recorded is true.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::typed_markers::{TypedMarker, names, only, typed_markers};
use crate::common::{Read, isolated, work_for_cpu};
use gekkota::{MarkerStack, ProfilerLayer, ProfilerSession, StartParams, register_thread};
use tracing::field::{Empty, debug};
use tracing::span::EnteredSpan;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

const SLICE: Duration = Duration::from_millis(60);

fn with_layer<T>(layer: ProfilerLayer, body: impl FnOnce() -> T) -> T {
    tracing::subscriber::with_default(Registry::default().with(layer), body)
}

fn start() -> ProfilerSession {
    ProfilerSession::start(StartParams::default()).expect("start")
}

/// What a session has on the calling thread, which is called so.
fn recorded(name: &str, body: impl FnOnce()) -> (Read, Vec<TypedMarker>) {
    let session = start();
    body();
    let read = Read::from_profile(&session.finish().expect("profile"));
    let markers = typed_markers(&read, name);
    (read, markers)
}

/// The labels among those asked for, of each sample taken in this function.
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
fn nothing_is_formatted_where_nothing_is_recorded() {
    isolated(|| {
        on_a_registered_thread(|| {
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
                    assert_eq!(formatted(), 0, "not registered");
                });
                assert_eq!(names(&markers), [module_path!(), "counted"]);
                assert_eq!(only(&markers, "counted").text("later"), "counted");
                use_counted_values();
                assert_eq!(formatted(), 0, "over");
            });
        })
    });
}

#[inline(never)]
fn in_an_early_span() {
    work_for_cpu(SLICE);
    std::hint::black_box(2);
}

#[test]
fn a_span_belongs_to_one_session() {
    isolated(|| {
        on_a_registered_thread(|| {
            with_layer(ProfilerLayer::new(), || {
                let early = tracing::info_span!("early").entered();
                let mut over = None;
                let (read, markers) = recorded("edges", || {
                    in_an_early_span();
                    tracing::info!(target: "in early", "x");
                    over = Some(tracing::info_span!("over").entered());
                    drop(tracing::info_span!("within").entered());
                });
                assert_eq!(names(&markers), ["in early", "within"]);
                assert!(
                    !only(&markers, "in early").fields.contains_key("span"),
                    "nobody knows the span"
                );
                assert!(
                    labels_in(&read, "edges", "in_an_early_span", &["early"])
                        .iter()
                        .all(|labels| *labels == ["early"])
                );
                let (_, markers) = recorded("edges", || {
                    drop(over.take());
                    drop(early);
                });
                assert_eq!(names(&markers), [""; 0]);
            });
        })
    });
}

#[test]
fn a_span_is_shown_where_it_ends() {
    isolated(|| {
        on_a_registered_thread(|| {
            with_layer(ProfilerLayer::new(), || {
                let (read, markers) = recorded("edges", || {
                    let (to_registered, to_unregistered) =
                        (tracing::info_span!("moved"), tracing::info_span!("lost"));
                    let dispatch = tracing::dispatcher::get_default(Clone::clone);
                    let end = |name: Option<&'static str>, span: tracing::Span| {
                        let dispatch = dispatch.clone();
                        let body = move || {
                            name.into_iter().for_each(register_thread);
                            tracing::dispatcher::with_default(&dispatch, || {
                                span.in_scope(|| tracing::info!(target: "over there", "x"));
                                drop(span);
                            });
                        };
                        std::thread::spawn(body).join().expect("thread");
                    };
                    end(None, to_unregistered);
                    end(Some("other"), to_registered);
                });
                assert_eq!(names(&markers), [""; 0]);
                let other = typed_markers(&read, "other");
                assert_eq!(names(&other), ["over there", "moved"]);
                assert_eq!(other[0].text("span"), other[1].text("span"));
            });
        })
    });
}

macro_rules! place_to_work {
    ($($name:ident)+) => {
        $(#[inline(never)]
        fn $name() {
            work_for_cpu(SLICE);
            // Each has a body of its own, or the compiler makes one function of them.
            std::hint::black_box(stringify!($name));
        })+
    };
}

place_to_work!(with_both with_second_alone with_neither twice_inside once_inside not_inside);

fn leave_out_of_order() {
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

fn leave_what_was_not_entered() {
    let span = tracing::info_span!("not entered");
    let leave =
        || tracing::dispatcher::get_default(|dispatch| _ = span.id().map(|id| dispatch.exit(&id)));
    leave();
    drop(span.enter());
    leave();
}

thread_local! {
    static KEPT: RefCell<Option<EnteredSpan>> = const { RefCell::new(None) };
}

#[test]
fn spans_are_entered_and_left_in_any_order() {
    isolated(|| {
        on_a_registered_thread(|| {
            let dispatch = tracing::Dispatch::new(Registry::default().with(ProfilerLayer::new()));
            let (read, markers) = recorded("edges", || {
                tracing::dispatcher::with_default(&dispatch, || {
                    leave_out_of_order();
                    enter_again();
                    leave_what_was_not_entered();
                    let deep: Vec<_> = (0..5000)
                        .map(|_| tracing::trace_span!("deep").entered())
                        .collect();
                    // The oldest first.
                    drop(deep);
                });
                let dispatch = dispatch.clone();
                // Its list of spans ends before this does.
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
                "{busy} + {idle} of {took_ms} ms, once"
            );
            assert!(idle >= slice_ms, "{idle} ms after it was left");
        })
    });
}

#[test]
fn a_layer_may_come_late_and_go_early() {
    isolated(|| {
        on_a_registered_thread(|| {
            let (layer, handle) = reload::Layer::new(None::<ProfilerLayer>);
            tracing::subscriber::with_default(Registry::default().with(layer), || {
                let (_, markers) = recorded("edges", || {
                    let before = tracing::info_span!("before").entered();
                    handle
                        .reload(Some(ProfilerLayer::new()))
                        .expect("it is there");
                    drop(tracing::info_span!("between").entered());
                    drop(before);
                    let after = tracing::info_span!("after").entered();
                    handle.reload(None).expect("it is there");
                    drop(after);
                });
                assert_eq!(names(&markers), ["between"]);
                assert!(!markers[0].fields.contains_key("parent"), "nobody knows it");
            });
        })
    });
}

#[inline(never)]
fn without_labels() {
    let _span = tracing::info_span!("unlabelled").entered();
    work_for_cpu(SLICE);
    std::hint::black_box(3);
}

#[test]
fn options_are_kept() {
    isolated(|| {
        on_a_registered_thread(|| {
            let layer = ProfilerLayer::new()
                .labels(false)
                .busy_times(false)
                .with_stacks(MarkerStack::Full);
            let filtered = layer.with_filter(LevelFilter::INFO);
            tracing::subscriber::with_default(Registry::default().with(filtered), || {
                let (read, markers) = recorded("edges", || {
                    let _outer = tracing::info_span!("outer").entered();
                    let _left_out = tracing::debug_span!("left out").entered();
                    without_labels();
                    tracing::info!(target: "with a stack", "x");
                    tracing::debug!(target: "left out", "x");
                });
                assert_eq!(names(&markers), ["unlabelled", "with a stack", "outer"]);
                assert!(
                    labels_in(&read, "edges", "without_labels", &["unlabelled", "outer"])
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
                    only(&markers, "unlabelled").text("parent"),
                    outer,
                    "over the one that is left out"
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

fn on_a_registered_thread(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        register_thread("edges");
        body();
    });
    thread.join().expect("thread");
}
