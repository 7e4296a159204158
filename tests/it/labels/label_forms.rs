//! Each macro that pushes a label, and the labels of futures: the samples of the label's scope, and
//! no others, contain the label with its text and category.

use crate::common::moving_task::{Task, poll_on, wait};
use crate::common::sampled::{WORKING, start_counter, work_until_sampled};
use crate::common::{Read, isolated};
use gekkota::gecko_profiler::gecko_profiler_label;
use gekkota::label::{
    auto_profiler_label_category_pair, auto_profiler_label_category_pair_relevant_for_js,
    auto_profiler_label_dynamic_nonsensitive, auto_profiler_label_dynamic_relevant_for_js,
    auto_profiler_label_dynamic_utf16, auto_profiler_label_getter, auto_profiler_label_hot,
    auto_profiler_label_method, auto_profiler_label_relevant_for_js, auto_profiler_label_setter,
};
use gekkota::stack::{StackFeatures, StackFrame, profiler_capture_backtrace};
use gekkota::{
    ProfilerSession, StartParams, auto_profiler_label, auto_profiler_label_dynamic,
    gecko_profiler_category, labeled_future, labeled_future_with_dynamic, register_thread,
};

gekkota::profiler_categories! {
    Requests("Requests", blue) { Other: "Other", Parsing: "Request parsing" }
}

/// Minimum number of samples of each scope.
const MIN_SAMPLES: usize = 5;

fn work() {
    work_until_sampled(MIN_SAMPLES + 2);
}

#[inline(never)]
fn in_a_scope() {
    work();
    // The compiler merges functions with equal bodies. The file's name makes this body unique.
    std::hint::black_box(file!());
}

#[inline(never)]
fn outside_of_all_scopes() {
    work();
    std::hint::black_box((file!(), 1));
}

#[inline(never)]
fn in_scopes_entered_before() {
    work();
    std::hint::black_box((file!(), 2));
}

#[inline(never)]
fn while_polled() {
    work();
    std::hint::black_box((file!(), 3));
}

#[inline(never)]
fn while_pending() {
    work();
    std::hint::black_box((file!(), 4));
}

/// Starts a session inside the scopes of labels.
#[inline(never)]
fn start_within_scopes() -> ProfilerSession {
    auto_profiler_label!("from before", Other);
    auto_profiler_label_hot!("hot from before", Other);
    gecko_profiler_label!(Layout, Printing);
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    in_scopes_entered_before();
    session
}

/// Returns whether the calling thread's label with this text is marked as sensitive.
fn is_sensitive(label: &str) -> bool {
    let stack = profiler_capture_backtrace()
        .expect("memory")
        .resolve_with(StackFeatures::LABELS);
    let found = stack.frames().iter().find_map(|frame| match frame {
        StackFrame::Label { text, is_sensitive } if text == label => Some(*is_sensitive),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no label {label} in {stack}"))
}

#[inline(never)]
fn go_through_scopes() {
    {
        auto_profiler_label_hot!("hot", Network);
        in_a_scope();
    }
    {
        auto_profiler_label_hot!("hot of the application", Requests::Parsing);
        in_a_scope();
    }
    {
        auto_profiler_label_category_pair!(Layout, Reflow);
        in_a_scope();
    }
    {
        gecko_profiler_label!(Graphics, Rasterization);
        in_a_scope();
    }
    {
        auto_profiler_label_category_pair_relevant_for_js!(JavaScript, Parsing);
        in_a_scope();
    }
    {
        auto_profiler_label_relevant_for_js!("for scripts", DOM);
        in_a_scope();
    }
    {
        auto_profiler_label_dynamic_relevant_for_js!("rule", "of scripts", JavaScript);
        assert!(is_sensitive("rule of scripts"));
        in_a_scope();
    }
    {
        auto_profiler_label_dynamic_nonsensitive!("build", "20261122", Media, Playback);
        assert!(!is_sensitive("build 20261122"));
        in_a_scope();
    }
    {
        auto_profiler_label_dynamic!("load", "first.png", Network);
        assert!(is_sensitive("load first.png"));
        in_a_scope();
    }
    {
        let text: Vec<u16> = "𝄞".encode_utf16().collect();
        auto_profiler_label_dynamic_utf16!("play", &text, Media);
        in_a_scope();
    }
    in_scopes_of_script_calls();
}

fn in_scopes_of_script_calls() {
    {
        auto_profiler_label_method!("Element", "append", DOM);
        in_a_scope();
    }
    {
        auto_profiler_label_getter!("Element", "id", DOM);
        in_a_scope();
    }
    {
        auto_profiler_label_setter!("Element", "hidden", Requests::Other);
        in_a_scope();
    }
}

/// Text, category, subcategory and `relevantForJS` of each scope's label, in order.
const SCOPES: [(&str, &str, &str, bool); 13] = [
    ("hot", "Network", "Other", false),
    (
        "hot of the application",
        "Requests",
        "Request parsing",
        false,
    ),
    ("Reflow", "Layout", "Reflow", false),
    ("Rasterization", "Graphics", "Rasterization", false),
    ("Parsing", "JavaScript", "Parsing", true),
    ("for scripts", "DOM", "Other", true),
    ("rule of scripts", "JavaScript", "Other", true),
    ("build 20261122", "Media", "Playback", false),
    ("load first.png", "Network", "Other", false),
    ("play 𝄞", "Media", "Other", false),
    ("Element.append", "DOM", "Other", false),
    ("get Element.id", "DOM", "Other", false),
    ("set Element.hidden", "Requests", "Other", false),
];

fn new_request() -> Task {
    let query = async {
        while_polled();
        wait().await;
        while_polled();
    };
    let query =
        labeled_future_with_dynamic("query", "of a row".to_owned(), Requests::Parsing, query);
    Box::pin(labeled_future(
        "request",
        gecko_profiler_category!(Network),
        query,
    ))
}

/// Returns the labels of a thread's samples of the work in a function, in order, each list with the
/// number of consecutive samples that have it.
fn labels_in(read: &Read, thread: &str, function: &str) -> Vec<(Vec<String>, usize)> {
    let is_native = |frame: &String| frame.contains("(in ") || frame.starts_with("0x");
    let mut found: Vec<(Vec<String>, usize)> = Vec::new();
    for sample in read.samples(thread) {
        let contains = |part: &str| sample.stack.iter().any(|frame| frame.contains(part));
        if !contains(&format!("label_forms::{function} (in")) || !contains(WORKING) {
            continue;
        }
        let labels: Vec<_> = sample
            .stack
            .into_iter()
            .filter(|frame| !is_native(frame))
            .collect();
        match found.last_mut() {
            Some((last, count)) if *last == labels => *count += 1,
            _ => found.push((labels, 1)),
        }
    }
    found
}

#[track_caller]
fn assert_labels(read: &Read, thread: &str, function: &str, expected: &[&[&str]]) {
    let found = labels_in(read, thread, function);
    let labels: Vec<Vec<&str>> = found
        .iter()
        .map(|(labels, _)| labels.iter().map(String::as_str).collect())
        .collect();
    let expected: Vec<Vec<&str>> = expected.iter().map(|labels| labels.to_vec()).collect();
    assert_eq!(labels, expected, "in {function} on {thread}");
    assert!(
        found.iter().all(|(_, count)| *count >= MIN_SAMPLES),
        "too few samples: {found:?}"
    );
}

/// Returns category, subcategory and `relevantForJS` of the label's only frame.
fn properties_of(read: &Read, thread: &str, label: &str) -> (String, String, bool) {
    let frames = read.label_frames(thread, label);
    let [(category, subcategory, relevant_for_js)] = frames[..] else {
        panic!("expected one frame of {label}: {frames:?}")
    };
    (
        category["name"].as_str().expect("a name").to_owned(),
        subcategory.to_owned(),
        relevant_for_js,
    )
}

#[test]
fn each_form_of_label_is_in_the_samples_of_its_scope() {
    isolated(|| {
        start_counter();
        register_thread("forms");
        let session = start_within_scopes();
        go_through_scopes();
        outside_of_all_scopes();
        let request = poll_on("first", new_request(), while_pending).expect("it is pending");
        assert!(poll_on("second", request, while_pending).is_none());
        let read = Read::from_profile(&session.finish().expect("profile"));

        assert_labels(
            &read,
            "forms",
            "in_scopes_entered_before",
            &[&["from before"]],
        );
        let labels: Vec<_> = SCOPES
            .iter()
            .map(|(label, ..)| std::slice::from_ref(label))
            .collect();
        assert_labels(&read, "forms", "in_a_scope", &labels);
        assert_labels(&read, "forms", "outside_of_all_scopes", &[&[]]);
        for (label, category, subcategory, relevant_for_js) in SCOPES {
            let expected = (category.to_owned(), subcategory.to_owned(), relevant_for_js);
            assert_eq!(properties_of(&read, "forms", label), expected, "{label}");
        }
        for thread in ["first", "second"] {
            assert_labels(
                &read,
                thread,
                "while_polled",
                &[&["request", "query of a row"]],
            );
            assert_labels(&read, thread, "while_pending", &[&[]]);
            let request = ("Network".to_owned(), "Other".to_owned(), false);
            assert_eq!(properties_of(&read, thread, "request"), request);
            let query = ("Requests".to_owned(), "Request parsing".to_owned(), false);
            assert_eq!(properties_of(&read, thread, "query of a row"), query);
        }
    });
}
