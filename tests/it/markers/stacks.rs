//! Stacks of markers: of the adding thread, of labels only, or captured earlier.

use crate::common::{Read, isolated};
use gekkota::marker::MarkerBacktrace;
use gekkota::stack::{ProfilerBacktrace, profiler_capture_backtrace};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{
    AutoProfilerTextMarker, Features, MarkerOptions, MarkerStack, ProfilerSession, StartParams,
    add_text_marker, add_untyped_marker, auto_profiler_label, gecko_profiler_category,
};
use serde_json::Value;

fn options(stack: MarkerStack) -> MarkerOptions {
    MarkerOptions {
        stack,
        ..MarkerOptions::default()
    }
}

#[inline(never)]
fn adds_full_stack() {
    auto_profiler_label!("around full", Other);
    add_text_marker(
        "full",
        gecko_profiler_category!(Network),
        options(MarkerStack::Full),
        "text",
    );
    std::hint::black_box(());
}

#[inline(never)]
fn adds_label_stack() {
    auto_profiler_label!("around labels", Other);
    add_untyped_marker(
        "labels",
        gecko_profiler_category!(Network),
        options(MarkerStack::NonNative),
    );
    std::hint::black_box(());
}

#[inline(never)]
fn drops_a_guard() {
    let category = gecko_profiler_category!(Network);
    let _marker =
        AutoProfilerTextMarker::new("guard", category, options(MarkerStack::Full), "text");
    std::hint::black_box(());
}

#[inline(never)]
fn causes_something() -> ProfilerBacktrace {
    auto_profiler_label!("the cause", Other);
    let backtrace = profiler_capture_backtrace().expect("memory");
    std::hint::black_box(());
    backtrace
}

#[inline(never)]
fn fails_deep_inside() -> backtrace::Backtrace {
    let backtrace = backtrace::Backtrace::new_unresolved();
    std::hint::black_box(());
    backtrace
}

#[inline(never)]
fn fails() -> backtrace::Backtrace {
    let backtrace = fails_deep_inside();
    std::hint::black_box(());
    backtrace
}

#[test]
fn backtrace_of_application_becomes_stack_of_marker() {
    isolated(|| {
        let earlier = fails();
        let addresses = || earlier.frames().iter().map(|frame| frame.ip().addr());
        let without_session = MarkerBacktrace::from_return_addresses(addresses());
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        gekkota::register_thread("marks");
        let category = gecko_profiler_category!(Network);
        let add = |name, stack| add_untyped_marker(name, category, options(stack));
        add("before", MarkerStack::Backtrace(without_session));
        add(
            "caused",
            MarkerStack::Backtrace(MarkerBacktrace::from_return_addresses(addresses())),
        );
        add(
            "empty",
            MarkerStack::Backtrace(MarkerBacktrace::from_return_addresses([0])),
        );
        #[cfg(feature = "backtrace")]
        add("caused", MarkerStack::from(&earlier));
        let read = Read::from_profile(&session.finish().expect("profile"));
        let markers = read.markers("marks");
        assert_eq!(markers.len(), 3 + usize::from(cfg!(feature = "backtrace")));
        for (name, .., data) in &markers {
            let stack = stack_of(&read, "marks", data);
            if name != "caused" {
                assert!(stack.is_empty(), "{name}: {stack:?}");
                continue;
            }
            let place = |function: &str| {
                let is_function = |frame: &String| frame.contains(&format!("::{function} (in"));
                stack
                    .iter()
                    .position(is_function)
                    .unwrap_or_else(|| panic!("no {function} in {stack:?}"))
            };
            assert_eq!(place("fails"), place("fails_deep_inside") + 1, "{stack:?}");
            assert_eq!(stack.last().map(String::as_str), Some("(root)"));
        }
    });
}

fn mark_all(cause: &ProfilerBacktrace, other: ThreadId) {
    adds_full_stack();
    adds_label_stack();
    drops_a_guard();
    let category = gecko_profiler_category!(Network);
    let caused = options(cause.into());
    add_untyped_marker("caused", category, caused);
    add_untyped_marker("caused again", category, caused);
    add_untyped_marker("none", category, options(MarkerStack::NoStack));
    add_untyped_marker(
        "elsewhere",
        category,
        options(MarkerStack::Full).with_thread_id(other),
    );
    add_untyped_marker(
        "nowhere",
        category,
        options(MarkerStack::Full).with_thread_id(ThreadId::from_number(1)),
    );
}

/// Returns the names in a marker's stack, innermost first; empty if the marker has no stack.
fn stack_of(read: &Read, thread: &str, marker: &Value) -> Vec<String> {
    let thread = read.thread(thread);
    let sample = &marker["stack"]["samples"]["data"][0];
    let mut next = sample[0].as_u64();
    let mut names = Vec::new();
    while let Some(stack) = next {
        let [prefix, frame] = &thread["stackTable"]["data"][stack as usize]
            .as_array()
            .expect("a stack")[..]
        else {
            panic!("a stack has two columns");
        };
        let location = &thread["frameTable"]["data"][frame.as_u64().expect("a frame") as usize][0];
        let name = &thread["stringTable"][location.as_u64().expect("a location") as usize];
        names.push(name.as_str().expect("a string").to_owned());
        next = prefix.as_u64();
    }
    names
}

fn profile_of(features: Features, cause: &ProfilerBacktrace) -> Read {
    let params = StartParams::default().features(features).filters(["*"]);
    let session = ProfilerSession::start(params).expect("start");
    let own_id = profiler_current_thread_id();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gekkota::register_thread("marks");
            mark_all(cause, own_id);
        });
    });
    Read::from_profile(&session.finish().expect("profile"))
}

#[test]
fn marker_has_requested_stack() {
    isolated(|| {
        gekkota::profiler_init();
        gekkota::register_thread("causes");
        let cause = causes_something();
        let read = profile_of(Features::default(), &cause);
        let markers = read.markers("marks");
        let stack = |name: &str| {
            let marker = markers
                .iter()
                .find(|marker| marker.0 == name)
                .unwrap_or_else(|| panic!("no {name}"));
            stack_of(&read, "marks", &marker.5)
        };

        let full = stack("full");
        assert!(
            full[0].contains("adds_full_stack (in"),
            "the innermost frame adds the marker: {full:#?}"
        );
        assert_eq!(full[1], "around full");
        assert!(full[2].contains("mark_all (in"), "{full:#?}");
        assert_eq!(full.last().map(String::as_str), Some("(root)"));
        assert!(
            !full.iter().any(|name| name.starts_with("(truncated")),
            "{full:#?}"
        );
        assert_eq!(stack("labels"), ["around labels", "(root)"]);
        let guard = stack("guard");
        // The compiler may leave a guard's drop glue as functions of their own.
        let mut callers = guard.iter();
        let caller = callers.find(|name| !name.starts_with("core::ptr::drop_in_place"));
        let drops = caller.is_some_and(|name| name.contains("drops_a_guard (in"));
        assert!(drops, "{guard:#?}");

        let caused = stack("caused");
        assert!(caused[0].contains("causes_something (in"), "{caused:#?}");
        assert_eq!(caused[1], "the cause");
        assert_eq!(stack("caused again"), caused);
        assert!(stack("none").is_empty());
        let cause_ms = |name: &str| {
            let marker = markers
                .iter()
                .find(|marker| marker.0 == name)
                .expect("a marker");
            (
                marker.5["stack"]["samples"]["data"][0][1]
                    .as_f64()
                    .expect("a time"),
                marker.1,
            )
        };
        let (captured_ms, added_ms) = cause_ms("caused");
        assert!(
            captured_ms < added_ms,
            "captured at {captured_ms}, added at {added_ms}"
        );

        // A marker on another track still has the stack of the adding thread.
        let [elsewhere] = &read.markers("causes")[..] else {
            panic!("{:#?}", read.markers("causes"))
        };
        assert_eq!(elsewhere.0, "elsewhere");
        assert!(stack_of(&read, "causes", &elsewhere.5)[0].contains("mark_all (in"));
        assert!(
            !markers
                .iter()
                .any(|marker| marker.0 == "elsewhere" || marker.0 == "nowhere")
        );
        assert_eq!(read.0["meta"]["losses"]["lost_marker_stacks"], 0);

        // `NO_MARKER_STACKS` removes all stacks.
        let read = profile_of(Features::default() | Features::NO_MARKER_STACKS, &cause);
        let markers = read.markers("marks");
        assert!(
            markers.len() >= 5 && markers.iter().all(|marker| marker.5["stack"].is_null()),
            "{markers:#?}"
        );
        // Without stack walking, a full stack has the labels and the innermost address.
        let read = profile_of(Features::CPU, &cause);
        let markers = read.markers("marks");
        let full = markers
            .iter()
            .find(|marker| marker.0 == "full")
            .expect("a marker");
        let full = stack_of(&read, "marks", &full.5);
        assert!(
            full.len() == 3 && full[0].contains("adds_full_stack (in") && full[1] == "around full",
            "{full:#?}"
        );
    });
}
