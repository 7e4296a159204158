//! Each macro that pushes a label, and a future's labels: the label stands in the samples of its scope with its text and category,
//! and in no others.

use std::time::Duration;

use crate::common::moving_task::{Task, poll_on, wait};
use crate::common::{Read, isolated, work_for_cpu};
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
    gecko_profiler_category, labelled_future, labelled_future_with_dynamic, register_thread,
};

gekkota::profiler_categories! {
    Requests("Requests", blue) { Other: "Other", Parsing: "Request parsing" }
}

const SLICE: Duration = Duration::from_millis(60);
const FEWEST: usize = 5;

#[inline(never)]
fn in_a_scope() {
    work_for_cpu(SLICE);
    std::hint::black_box(());
}

#[inline(never)]
fn outside_of_all_scopes() {
    work_for_cpu(SLICE);
    std::hint::black_box(1);
}

#[inline(never)]
fn in_a_scope_of_before() {
    work_for_cpu(SLICE);
    std::hint::black_box(2);
}

#[inline(never)]
fn while_it_is_polled() {
    work_for_cpu(SLICE);
    std::hint::black_box(3);
}

#[inline(never)]
fn while_it_waits() {
    work_for_cpu(SLICE);
    std::hint::black_box(4);
}

/// Starts a session in the midst of labels' scopes.
#[inline(never)]
fn start_within_scopes() -> ProfilerSession {
    auto_profiler_label!("from before", Other);
    auto_profiler_label_hot!("hot from before", Other);
    gecko_profiler_label!(Layout, Printing);
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    in_a_scope_of_before();
    session
}

/// Whether the calling thread's label of this text is one to keep from others.
fn is_sensitive(label: &str) -> bool {
    let stack = profiler_capture_backtrace()
        .expect("memory")
        .resolve_with(StackFeatures::LABELS);
    let of_label = stack.frames().iter().find_map(|frame| match frame {
        StackFrame::Label { text, is_sensitive } if text == label => Some(*is_sensitive),
        _ => None,
    });
    of_label.unwrap_or_else(|| panic!("no label {label} in {stack}"))
}

#[inline(never)]
fn go_through_scopes() {
    {
        auto_profiler_label_hot!("hot", Network);
        in_a_scope();
    }
    {
        auto_profiler_label_hot!("hot of the host's", Requests::Parsing);
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
    in_scopes_of_scripts_calls();
}

fn in_scopes_of_scripts_calls() {
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

/// By their scopes: text, category, subcategory, and whether views of scripts alone show it.
const SCOPES: [(&str, &str, &str, bool); 13] = [
    ("hot", "Network", "Other", false),
    ("hot of the host's", "Requests", "Request parsing", false),
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
        while_it_is_polled();
        wait().await;
        while_it_is_polled();
    };
    let query =
        labelled_future_with_dynamic("query", "of a row".to_owned(), Requests::Parsing, query);
    Box::pin(labelled_future(
        "request",
        gecko_profiler_category!(Network),
        query,
    ))
}

/// The labels of a thread's samples in a function, one after another, each list with how many samples have it.
fn labels_in(read: &Read, thread: &str, function: &str) -> Vec<(Vec<String>, usize)> {
    let is_native = |frame: &String| frame.contains("(in ") || frame.starts_with("0x");
    let mut found: Vec<(Vec<String>, usize)> = Vec::new();
    for sample in read.samples(thread) {
        if !sample
            .stack
            .iter()
            .any(|frame| frame.contains(&format!("label_forms::{function} (in")))
        {
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
        found.iter().all(|(_, count)| *count >= FEWEST),
        "enough samples: {found:?}"
    );
}

/// Category, subcategory and `relevantForJS` of the label's frames, which all have the same.
fn told_of(read: &Read, thread: &str, label: &str) -> (String, String, bool) {
    let frames = read.label_frames(thread, label);
    let [(category, subcategory, relevant_for_js)] = frames[..] else {
        panic!("one frame of {label}: {frames:?}")
    };
    (
        category["name"].as_str().expect("a name").to_owned(),
        subcategory.to_owned(),
        relevant_for_js,
    )
}

#[test]
fn every_form_of_a_label_stands_in_the_samples_of_its_scope() {
    isolated(|| {
        register_thread("forms");
        let session = start_within_scopes();
        go_through_scopes();
        outside_of_all_scopes();
        let request = poll_on("first", new_request(), while_it_waits).expect("it waits");
        assert!(poll_on("second", request, while_it_waits).is_none());
        let read = Read::from_profile(&session.finish().expect("profile"));

        assert_labels(&read, "forms", "in_a_scope_of_before", &[&["from before"]]);
        let of_scopes: Vec<_> = SCOPES
            .iter()
            .map(|(label, ..)| std::slice::from_ref(label))
            .collect();
        assert_labels(&read, "forms", "in_a_scope", &of_scopes);
        assert_labels(&read, "forms", "outside_of_all_scopes", &[&[]]);
        for (label, category, subcategory, relevant_for_js) in SCOPES {
            let expected = (category.to_owned(), subcategory.to_owned(), relevant_for_js);
            assert_eq!(told_of(&read, "forms", label), expected, "{label}");
        }
        for thread in ["first", "second"] {
            assert_labels(
                &read,
                thread,
                "while_it_is_polled",
                &[&["request", "query of a row"]],
            );
            assert_labels(&read, thread, "while_it_waits", &[&[]]);
            let request = ("Network".to_owned(), "Other".to_owned(), false);
            assert_eq!(told_of(&read, thread, "request"), request);
            let query = ("Requests".to_owned(), "Request parsing".to_owned(), false);
            assert_eq!(told_of(&read, thread, "query of a row"), query);
        }
    });
}
