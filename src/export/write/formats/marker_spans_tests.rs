use super::*;
use crate::export::write::formats::chrome_sample::{empty_profile, push_interval, push_marker};
use crate::model::MarkerPhase;

fn spans(profile: &ProfileModel) -> MarkerSpans {
    MarkerSpans::of(profile, &profile.threads[0], (0, 100))
}

fn times(spans: &[MarkerSpan]) -> Vec<(i64, i64)> {
    spans
        .iter()
        .map(|span| (span.start_ns, span.end_ns))
        .collect()
}

#[test]
fn intervals_are_sorted_into_nested_and_crossing_ones() {
    let mut profile = empty_profile();
    for (start, end) in [(20, 30), (10, 40), (35, 50), (40, 45), (60, 55)] {
        push_interval(&mut profile, "query", start, end);
    }
    let spans = spans(&profile);
    assert_eq!(
        times(&spans.nested),
        [(10, 40), (20, 30), (40, 45), (60, 60)]
    );
    assert_eq!(times(&spans.crossing), [(35, 50)]);
    assert!(spans.host.is_empty());
}

#[test]
fn host_intervals_that_cross_play_no_part() {
    let mut profile = empty_profile();
    push_interval(&mut profile, "Task", 0, 20);
    push_interval(&mut profile, "FunctionCall", 10, 30);
    push_interval(&mut profile, "FunctionCall", 5, 20);
    let spans = spans(&profile);
    let roles: Vec<_> = spans.host.iter().map(|span| span.role).collect();
    assert_eq!(roles, [Role::Task, Role::FunctionCall]);
    assert_eq!(times(&spans.host), [(0, 20), (5, 20)]);
    assert_eq!(times(&spans.nested), [(10, 30)]);
}

#[test]
fn starts_and_ends_are_paired_by_name() {
    use MarkerPhase::{IntervalEnd, IntervalStart};
    let mut profile = empty_profile();
    let mut push = |name: &str, phase, start, end| {
        push_marker(&mut profile, name, phase, (start, end), &[]);
    };
    push("a", IntervalStart, Some(10), None);
    push("a", IntervalStart, Some(20), None);
    push("b", IntervalEnd, None, Some(25));
    push("a", IntervalEnd, None, Some(30));
    let spans = spans(&profile);
    // The end of `b` has no start, the first start of `a` no end.
    assert_eq!(times(&spans.nested), [(0, 25)]);
    assert_eq!(times(&spans.crossing), [(10, 100), (20, 30)]);
    let ends: Vec<_> = spans.crossing.iter().map(|span| span.end_marker).collect();
    assert_eq!(ends, [None, Some(3)]);
}
