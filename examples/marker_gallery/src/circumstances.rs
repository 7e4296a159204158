//! Shows the options that every marker has: its phase, a stack, the page that it belongs to,
//! another thread's track.

use std::hint::black_box;

use gekkota::marker::built_in::TextStack;
use gekkota::process::{Page, profiler_register_page};
use gekkota::stack::profiler_capture_backtrace;
use gekkota::thread::ThreadId;
use gekkota::{
    MarkerOptions, MarkerStack, MarkerTiming, ProfilerTime, add_marker, add_text_marker,
    add_untyped_marker, auto_profiler_label, auto_profiler_marker, gecko_profiler_category,
};

use super::after;

/// Adds markers with each option.
pub(crate) fn show(start: ProfilerTime) {
    show_phases(start);
    show_full_stacks();
    show_label_stack();
    capture_cause();
    show_pages();
}

fn show_phases(start: ProfilerTime) {
    let category = gecko_profiler_category!(Test);
    let add = |name, timing: MarkerTiming| add_text_marker(name, category, timing.into(), name);
    add("instant", MarkerTiming::instant_at(after(start, 10.0)));
    add(
        "interval",
        MarkerTiming::interval(after(start, 10.0), after(start, 30.0)),
    );
    add(
        "until now",
        MarkerTiming::interval_until_now_from(after(start, 10.0)),
    );
    add(
        "two halves",
        MarkerTiming::interval_start(after(start, 10.0)),
    );
    add("two halves", MarkerTiming::interval_end(after(start, 50.0)));
    add(
        "begun and not ended",
        MarkerTiming::interval_start(after(start, 60.0)),
    );
    add(
        "ended and not begun",
        MarkerTiming::interval_end(after(start, 70.0)),
    );
    auto_profiler_marker!("scope", category, MarkerOptions::default());
    // A marker with a name only.
    add_untyped_marker(
        "no payload",
        category,
        MarkerTiming::instant_at(after(start, 10.0)).into(),
    );
}

#[inline(never)]
fn show_full_stacks() {
    let (category, options) = (gecko_profiler_category!(Test), MarkerStack::Full.into());
    add_untyped_marker("stack of an untyped marker", category, options);
    add_text_marker("stack of a text", category, options, "text");
    add_marker(
        "stack of a typed marker",
        category,
        options,
        TextStack {
            name: "text".into(),
        },
    );
    black_box(());
}

#[inline(never)]
fn show_label_stack() {
    auto_profiler_label!("a label", Test);
    add_text_marker(
        "stack of labels",
        gecko_profiler_category!(Test),
        MarkerStack::NonNative.into(),
        "text",
    );
    black_box(());
}

#[inline(never)]
fn capture_cause() {
    let Some(backtrace) = profiler_capture_backtrace() else {
        return;
    };
    show_effect_of(MarkerStack::Backtrace((&backtrace).into()));
}

/// Adds markers with a stack that another function captured.
#[inline(never)]
fn show_effect_of(stack: MarkerStack) {
    let category = gecko_profiler_category!(Test);
    add_text_marker("stack of a cause", category, stack.into(), "once");
    add_text_marker("stack of a cause", category, stack.into(), "again");
    black_box(());
}

fn show_pages() {
    profiler_register_page(Page::new(11, "https://example.org/shop").tab_id(1));
    profiler_register_page(
        Page::new(12, "https://example.net/frame")
            .tab_id(1)
            .embedder(11),
    );
    profiler_register_page(
        Page::new(21, "https://example.com/")
            .tab_id(2)
            .private_browsing(true),
    );
    let of_page = |page: u64| MarkerOptions::default().with_inner_window_id(page);
    let category = gecko_profiler_category!(Test);
    add_text_marker("of a page", category, of_page(11), "text");
    add_marker(
        "of a part of a page",
        category,
        of_page(12),
        TextStack {
            name: "text".into(),
        },
    );
    add_untyped_marker("untyped, of a page", category, of_page(11));
}

/// Adds a marker of another page, and a marker on the main thread's track.
pub(crate) fn show_on_other_thread(start: ProfilerTime, main_thread: ThreadId) {
    let category = gecko_profiler_category!(Test);
    let options = MarkerOptions::from(MarkerTiming::interval(
        after(start, 10.0),
        after(start, 30.0),
    ));
    add_text_marker(
        "of a private page",
        category,
        options.with_inner_window_id(21),
        "text",
    );
    add_text_marker(
        "on the main thread's track",
        category,
        options.with_thread_id(main_thread),
        "text",
    );
}
