use super::*;
use crate::export::options::ExportOptions;
use crate::export::write::formats::test_chrome_profile::{
    busy_profile, empty_profile, push_interval, push_marker, push_sample, self_and_total,
};
use crate::export::write::formats::v8_profile::{TickRange, Ticks};
use crate::model::MarkerPhase;

const US: i64 = 1_000;

/// Returns the calls and the host's intervals in µs, in the order in which they are visited.
fn calls(profile: &ProfileModel) -> Vec<(String, i64, i64)> {
    let options = ExportOptions::default();
    let thread = &profile.threads[0];
    let mut range = TickRange::default();
    Ticks::new(profile, thread, &options).for_each(|tick| range.add(&tick));
    let end_ns = range.end_ns(profile);
    let spans = MarkerSpans::of(profile, thread, (range.first_ns, end_ns));
    let mut nodes = ProfileNodes::new(profile, &options);
    let ticks = Ticks::new(profile, thread, &options);
    let (clock, mut all) = (MicroClock::new(0), Vec::new());
    visit_calls(&mut nodes, ticks, &spans.host, (clock, end_ns), |next| {
        all.push(match next {
            CallOrSpan::Call(call) => {
                let name = profile.function_name(call.function).to_owned();
                (name, call.start_us, call.end_us)
            }
            CallOrSpan::Span(span) => {
                let name = profile.text(thread.markers.get(span.first).name);
                (
                    name.to_owned(),
                    clock.us(span.start_ns),
                    clock.us(span.end_ns),
                )
            }
        });
    });
    all
}

fn check(profile: &ProfileModel, expected: &[(&str, i64, i64)]) {
    let calls = calls(profile);
    let calls: Vec<_> = calls
        .iter()
        .map(|call| (call.0.as_str(), call.1, call.2))
        .collect();
    assert_eq!(calls, expected);
}

/// Returns a profile with a sample every 10 µs.
fn profile_of(paths: &[&[&str]]) -> ProfileModel {
    let mut profile = empty_profile();
    for (index, path) in paths.iter().enumerate() {
        push_sample(&mut profile, index as i64 * 10 * US, Some(path));
    }
    profile
}

#[test]
fn repeated_frames_are_extended_and_others_replaced() {
    let before: &[&str] = &["A", "B", "C", "D"];
    let profile = profile_of(&[before, before, &["A", "B", "C", "E"]]);
    let expected = [
        ("D", 0, 20),
        ("A", 0, 30),
        ("B", 0, 30),
        ("C", 0, 30),
        ("E", 20, 30),
    ];
    check(&profile, &expected);
}

#[test]
fn idle_sample_ends_all_calls() {
    let profile = profile_of(&[&["A"], &["A", "wait"], &["A"]]);
    check(&profile, &[("A", 0, 10), ("A", 20, 30)]);
}

#[test]
fn same_function_at_another_position_is_another_call() {
    let profile = profile_of(&[&["A", "A"], &["A"], &["B", "A"]]);
    let expected = [("A", 0, 10), ("A", 0, 20), ("B", 20, 30), ("A", 20, 30)];
    check(&profile, &expected);
}

#[test]
fn task_truncates_the_stack() {
    let mut profile = profile_of(&[&["A"], &["A"], &["A"]]);
    push_interval(&mut profile, "Task", 5 * US, 15 * US);
    let expected = [("Task", 5, 15), ("A", 0, 5), ("A", 10, 15), ("A", 20, 30)];
    check(&profile, &expected);
}

#[test]
fn function_call_locks_the_stack() {
    // The second and the third sample lie in the function call.
    let mut profile = profile_of(&[&["A", "B"], &["X"], &["X", "Y", "C"], &["A", "B"]]);
    push_interval(&mut profile, "FunctionCall", 5 * US, 25 * US);
    let expected = [
        ("FunctionCall", 5, 25),
        ("C", 20, 25),
        ("A", 0, 40),
        ("B", 0, 40),
    ];
    check(&profile, &expected);
}

#[test]
fn task_in_a_function_call_truncates_what_is_not_locked() {
    let mut profile = profile_of(&[&["A"], &["A", "B"], &["A", "B"], &["A"]]);
    push_interval(&mut profile, "FunctionCall", 5 * US, 35 * US);
    push_interval(&mut profile, "Task", 15 * US, 25 * US);
    let expected = [
        ("FunctionCall", 5, 35),
        ("Task", 15, 25),
        ("B", 10, 15),
        ("B", 20, 25),
        ("A", 0, 40),
    ];
    check(&profile, &expected);
}

#[test]
fn calls_and_intervals_nest() {
    let mut calls = calls(&busy_profile(2_000));
    calls.sort_by_key(|call| (call.1, -call.2));
    let mut ends = Vec::new();
    for (name, start, end) in &calls {
        while ends.pop_if(|outer| *outer <= *start).is_some() {}
        assert!(
            ends.last().is_none_or(|outer| end <= outer),
            "{name} at {start}"
        );
        ends.push(*end);
    }
    assert!(calls.len() > 1_000, "{}", calls.len());
}

#[test]
fn total_times_agree_with_the_samples() {
    let mut profile = busy_profile(3_000);
    profile.threads[0].markers = Default::default();
    let totals = self_and_total(&profile);
    // A recursive call lies in another call of the function.
    let mut by_name = std::collections::BTreeMap::<_, Vec<_>>::new();
    for (name, start, end) in calls(&profile) {
        by_name.entry(name).or_default().push((start, end));
    }
    for (name, mut calls) in by_name {
        calls.sort_unstable();
        let (mut total, mut covered) = (0, 0);
        for (start, end) in calls {
            total += (end - start.max(covered)).max(0);
            covered = covered.max(end);
        }
        let expected = totals[&name].1 as i64 * 1_000;
        // The samples are between 0.9 and 1.1 ms apart.
        assert!(
            (total - expected).abs() <= expected / 20,
            "{name}: {total}, {expected}"
        );
    }
}

fn spans(profile: &ProfileModel) -> MarkerSpans {
    MarkerSpans::of(profile, &profile.threads[0], (0, 100))
}

fn times(spans: &[MarkerInterval]) -> Vec<(i64, i64)> {
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
    let (host, roles): (Vec<_>, Vec<_>) = spans.host.iter().copied().unzip();
    assert_eq!(roles, [Role::Task, Role::FunctionCall]);
    assert_eq!(times(&host), [(0, 20), (5, 20)]);
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
    let ends: Vec<_> = spans.crossing.iter().map(|span| span.last).collect();
    assert_eq!(ends, [None, Some(3)]);
}
