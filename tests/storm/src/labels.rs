//! Pushes labels, pops them, also in the wrong order, and adds markers.

use gekkota::{
    AutoProfilerLabel, MarkerOptions, auto_profiler_label, auto_profiler_label_dynamic,
    auto_profiler_marker_text, gecko_profiler_category,
};

use crate::crew::Context;
use crate::tally;
use crate::work::mix;

/// Prefix of all labels.
pub const PREFIX: &str = "storm-label";

#[inline(never)]
fn nest(depth: u64, text: &str) -> u64 {
    auto_profiler_label!("storm-label fixed", Other);
    auto_profiler_label_dynamic!("storm-label", text, Graphics);
    tally::LABELS.add(2);
    if depth == 0 {
        mix(7, 20_000)
    } else {
        nest(depth - 1, text) ^ depth
    }
}

/// Drops labels out of order, and one never. The end of the scope's own label pops all of them.
fn mix_up() {
    auto_profiler_label!("storm-label outer", Other);
    let first = AutoProfilerLabel::new("storm-label first", gecko_profiler_category!(Other));
    let second = AutoProfilerLabel::new("storm-label second", gecko_profiler_category!(Other));
    drop(first);
    drop(second);
    std::mem::forget(AutoProfilerLabel::new(
        "storm-label forgotten",
        gecko_profiler_category!(Other),
    ));
    tally::LABELS.add(4);
    mix(9, 20_000);
}

pub fn label_worker(context: &mut Context) {
    let expected = |depth: u64| (1..=depth).fold(mix(7, 20_000), |value, depth| value ^ depth);
    while context.goes_on() {
        for _ in 0..20 {
            let depth = context.random.below(40);
            let text = "ä".repeat(context.random.below(300) as usize);
            assert_eq!(
                nest(depth, &text),
                expected(depth),
                "a labeled function returned a wrong result"
            );
            mix_up();
        }
    }
}

pub fn marker_worker(context: &mut Context) {
    while context.goes_on() {
        for _ in 0..10 {
            auto_profiler_marker_text!(
                "storm-interval",
                gecko_profiler_category!(Other),
                MarkerOptions::default(),
                &context.post.name,
            );
            gekkota::add_untyped_marker(
                "storm-point",
                gecko_profiler_category!(Other),
                MarkerOptions::default(),
            );
            tally::MARKERS.add(2);
            mix(context.random.next(), 200_000);
        }
    }
}
