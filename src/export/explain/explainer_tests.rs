//! Requests whose times are known.

use std::time::Duration;

use crate::export::explain::explainer::explain;
use crate::export::explain::request::unsampled_ns;
use crate::export::explanation::{ExplainedPart, Explanation, TimeKind, Wanted};
use crate::export::test_profile::TestProfile;
use crate::model::{
    CategoryPair, FieldValue, Frame, Marker, MarkerPayload, MarkerPhase, Sample, TextId,
    WAITING_TASKS, WeightUnit,
};

const MS: i64 = 1_000_000;
/// Numbers of the subcategories of “Idle”.
const LOCK: u16 = 1;
const IO: u16 = 2;
const TIMER: u16 = 3;

/// A profile with an interval of 1 ms, one thread and its samples.
struct Scene {
    test: TestProfile,
}

impl Scene {
    fn new() -> Self {
        let mut test = TestProfile::new(MS as u64);
        test.profile.categories[0].subcategories = ["Other", "Lock", "I/O", "Timer", "Work"]
            .map(str::to_owned)
            .to_vec();
        test.thread("main");
        Self { test }
    }

    /// Adds a sample, and what its innermost function waits for.
    fn sample(&mut self, thread: usize, ms: i64, names: &[&str], waits: Option<u16>, cpu_us: u64) {
        let mut stack = self.test.stack(names);
        let profile = &mut self.test.profile;
        if let Some(subcategory) = waits {
            let (prefix, frame) = profile.stack(stack.expect("a stack"));
            let frame = Frame {
                category: Some(CategoryPair {
                    category: 0,
                    subcategory,
                }),
                ..profile.frame(frame).clone()
            };
            let frame = profile.intern_frame(&frame);
            stack = Some(profile.append_frame(prefix, frame));
        }
        profile.threads[thread].samples.push(Sample {
            stack,
            time_ns: ms * MS,
            cpu_delta_ns: Some(cpu_us * 1000),
            event_delay_ns: None,
            weight: 1,
        });
    }

    fn marker(&mut self, thread: usize, type_name: &str, name: &str, ms: (i64, i64), trace: &str) {
        let profile = &mut self.test.profile;
        let (type_name, name) = (profile.intern(type_name), profile.intern(name));
        let fields: Vec<(TextId, FieldValue)> = vec![(
            profile.intern("trace_id"),
            FieldValue::UniqueText(profile.intern(trace)),
        )];
        profile.threads[thread].markers.push(Marker {
            name,
            phase: MarkerPhase::Interval,
            start_ns: Some(ms.0 * MS),
            end_ns: Some(ms.1 * MS),
            category: 0,
            payload: Some(MarkerPayload {
                type_name,
                fields: &fields,
                stack: None,
            }),
        });
    }

    fn explain(&self, wanted: &Wanted) -> Explanation {
        explain(&self.test.profile, wanted).expect("a request")
    }
}

/// The kernel tells of waits for a processor in the middle of a row's ticks.
#[test]
fn row_for_several_samples_is_explained_like_these() {
    let scene = |is_thinned: bool| {
        let mut scene = Scene::new();
        scene.sample(0, 0, &["work"], None, 1000);
        for ms in 1..100 {
            if !is_thinned || ms == 1 || ms == 99 {
                scene.sample(0, ms, &["work"], None, 0);
            }
        }
        scene.sample(0, 100, &["work"], None, 600);
        if is_thinned {
            let samples = &mut scene.test.profile.threads[0].samples;
            samples.update(1, |sample| sample.weight = 98);
        }
        for (start_us, end_us, waited_us) in [(9_700, 40_000, 4_000), (40_000, 70_500, 13_000)] {
            let range = (start_us * 1000, end_us * 1000);
            let waited_ns = Some(waited_us * 1000);
            scene.test.switches(0, range, waited_ns, [3, 5]);
        }
        scene
    };
    let (thinned, whole) = (scene(true), scene(false));
    for (start_ms, end_ms) in [(0, 100), (5, 10), (5, 60), (38, 42), (69, 98), (2, 3)] {
        let times_in = |scene: &Scene| {
            let explanation = scene.explain(&range(start_ms, end_ms));
            let parts = explanation.parts.iter();
            let in_ns = |part: &ExplainedPart| (part.kind, part.time.as_nanos() as i64);
            parts.map(in_ns).collect::<Vec<_>>()
        };
        let (few, all) = (times_in(&thinned), times_in(&whole));
        assert_eq!(few.len(), all.len(), "{start_ms}: {few:?}, {all:?}");
        for (one, other) in few.iter().zip(&all) {
            let is_same = one.0 == other.0 && (one.1 - other.1).abs() <= 1;
            assert!(is_same, "{start_ms}: {few:?}, {all:?}");
        }
    }
}

fn range(start_ms: i64, end_ms: i64) -> Wanted {
    Wanted::Range("main".to_owned(), start_ms * MS, end_ms * MS)
}

/// Returns the kinds with their times in µs.
fn times(explanation: &Explanation) -> Vec<(TimeKind, u128)> {
    let parts = explanation.parts.iter();
    parts
        .map(|part| (part.kind, part.time.as_micros()))
        .collect()
}

#[test]
fn time_between_samples_is_cpu_time_and_what_they_wait_for() {
    let mut scene = Scene::new();
    scene.sample(0, 0, &["work"], None, 0);
    scene.sample(0, 1, &["work"], None, 1000);
    // Ran for 0.4 ms, then waited for the lock.
    scene.sample(0, 2, &["work", "get", "futex"], Some(LOCK), 400);
    scene.sample(0, 3, &["work", "get", "futex"], Some(LOCK), 0);
    // Woke after 0.8 ms.
    scene.sample(0, 4, &["work"], None, 200);
    // Two waits: each has a half of what is not CPU time.
    scene.sample(0, 5, &["work", "sleep"], Some(TIMER), 500);
    scene.sample(0, 6, &["work", "read"], Some(IO), 200);
    scene.sample(0, 7, &["work"], None, 1000);
    // Did not wait, and did not run for a while.
    scene.sample(0, 8, &["work"], None, 700);
    let explanation = scene.explain(&range(0, 8));
    assert_eq!(
        times(&explanation),
        [
            (TimeKind::Cpu, 1000 + 400 + 200 + 500 + 200 + 1000 + 700),
            (TimeKind::WaitForProcessor, 300),
            (TimeKind::Lock, 600 + 1000 + 800),
            (TimeKind::Io, 400),
            (TimeKind::Sleep, 500 + 400),
        ]
    );
    let sum: Duration = explanation.parts.iter().map(|part| part.time).sum();
    assert_eq!(sum, explanation.length);
    let half = scene.explain(&Wanted::Range("main".to_owned(), MS / 2, 3 * MS / 2));
    assert_eq!(
        times(&half),
        [(TimeKind::Cpu, 500 + 200), (TimeKind::Lock, 300)]
    );
}

#[test]
fn stacks_of_one_kind_are_merged_with_own_functions_first() {
    let mut scene = Scene::new();
    let own = ["app::main", "app::handle", "app::get"];
    let stack: Vec<_> = own
        .into_iter()
        .chain(["std::Mutex::lock", "futex"])
        .collect();
    scene.sample(0, 0, &stack, Some(LOCK), 0);
    scene.sample(0, 4, &stack, Some(LOCK), 0);
    let explanation = scene.explain(&range(0, 4));
    let stack = &explanation.parts[0].stacks[0];
    assert_eq!(stack.functions, ["app::get", "app::handle", "app::main"]);
    assert_eq!(stack.inside, ["std::Mutex::lock", "futex"]);
    assert_eq!(
        explanation.time_in(TimeKind::Lock, "get"),
        Duration::from_millis(4)
    );
    let text = explanation.to_string();
    assert!(
        text.contains("4.0 ms  app::get \u{2190} app::handle \u{2190} app::main, in std::Mutex::lock \u{2192} futex\n"),
        "{text}"
    );
    assert!(
        text.starts_with("The request took 4.0 ms on main, from 0.000000 s on\n"),
        "{text}"
    );
    assert!(
        text.contains("\nlock                             4.0 ms  100.0 %\n"),
        "{text}"
    );
}

#[test]
fn request_is_found_in_the_viewer() {
    let mut scene = Scene::new();
    for ms in 5..=9 {
        scene.sample(0, ms, &["app::main"], None, 1000);
    }
    assert_eq!(scene.explain(&range(6, 8)).viewer_range, None);

    // The viewer counts from the start of the recording.
    scene.test.profile.meta.session_ns = Some((4_000_500, 10 * MS));
    let explanation = scene.explain(&range(6, 8));
    let in_viewer = explanation.viewer_range.expect("a range");
    assert_eq!(in_viewer.start, Duration::from_nanos(1_999_500));
    assert_eq!(in_viewer.end, Duration::from_nanos(3_999_500));
    // The whole request: the start is rounded down, and the end is rounded up.
    assert_eq!(in_viewer.to_string(), "1999u2001");
    let text = explanation.to_string();
    assert_eq!(
        text.lines().nth(1),
        Some("in the Firefox Profiler: 0.002 to 0.004 s, range=1999u2001"),
        "{text}"
    );
}

#[test]
fn intervals_of_waiting_tasks_are_no_request() {
    let mut scene = Scene::new();
    let track = scene.test.thread(WAITING_TASKS);
    scene.test.profile.threads[track].samples.weight_unit = WeightUnit::Milliseconds;
    for ms in 0..=10 {
        scene.sample(0, ms, &["app::poll"], None, 1000);
    }
    // The rows of the track begin earlier and end later than the samples.
    for ms in [-50, 90] {
        scene.sample(track, ms, &["look_up"], None, 0);
    }
    let trace = "000000000000000000000000000000ab";
    scene.marker(0, "SampleContext", "Context", (2, 4), trace);
    scene.marker(0, "SampleContext", "Context", (6, 8), trace);
    scene.marker(track, "TaskWait", "Waiting", (4, 80), trace);
    let explanation = scene.explain(&Wanted::Trace(0xab));
    assert_eq!(explanation.start, Duration::from_micros(1_500));
    assert_eq!(explanation.length, Duration::from_millis(7));
    let expected = [(TimeKind::Cpu, 3000 + 3000), (TimeKind::Await, 1000)];
    assert_eq!(times(&explanation), expected);
    assert_eq!(unsampled_ns(&scene.test.profile, (-50 * MS, 0)), 50 * MS);
    for wanted in [
        Wanted::Marker("Waiting".to_owned()),
        Wanted::Range(WAITING_TASKS.to_owned(), 0, MS),
    ] {
        assert!(explain(&scene.test.profile, &wanted).is_err(), "{wanted:?}");
    }
}

#[test]
fn time_of_a_trace_on_no_thread_is_await() {
    let mut scene = Scene::new();
    let other = scene.test.thread("other");
    for ms in 0..=20 {
        scene.sample(0, ms, &["app::poll", "app::first"], None, 1000);
        scene.sample(other, ms, &["app::poll", "app::second"], None, 1000);
    }
    let trace = "000000000000000000000000000000ab";
    scene.marker(0, "SampleContext", "Context", (2, 4), trace);
    scene.marker(other, "SampleContext", "Context", (14, 15), trace);
    scene.marker(
        other,
        "SampleContext",
        "Context",
        (6, 8),
        "0000000000000000000000000000000c",
    );
    let explanation = scene.explain(&Wanted::Trace(0xab));
    // Each time on a thread begins and ends in the middle between two samples.
    let expected = [(TimeKind::Cpu, 3000 + 2000), (TimeKind::Await, 9000)];
    assert_eq!(times(&explanation), expected);
    assert_eq!(explanation.threads, ["main", "other"]);
    assert_eq!(explanation.length, Duration::from_millis(14));
    let suspended = &explanation.parts[1].stacks[0];
    assert_eq!(suspended.functions, ["app::first", "app::poll"]);
    // A span with the id has the exact times.
    scene.marker(other, "TracingSpan", "GET /", (1, 16), "ab");
    let explanation = scene.explain(&Wanted::Marker("GET /".to_owned()));
    assert_eq!(explanation.trace_id, Some(0xab));
    assert_eq!(
        times(&explanation),
        [(TimeKind::Cpu, 5000), (TimeKind::Await, 10_000)]
    );
    assert_eq!(scene.explain(&Wanted::Trace(0xab)).name, "GET /");
}

#[test]
fn kernel_tells_how_much_of_the_rest_was_a_wait_for_a_processor() {
    let mut scene = Scene::new();
    for ms in 0..=10 {
        scene.sample(0, ms, &["work"], None, 600);
    }
    // Of 4 ms that the thread did not run, it waited 3 ms for a processor.
    scene.test.switches(0, (0, 10 * MS), Some(3 * MS), [0, 3]);
    assert_eq!(
        times(&scene.explain(&range(0, 10))),
        [
            (TimeKind::Cpu, 6000),
            (TimeKind::WaitForProcessor, 3000),
            (TimeKind::OtherWait, 1000)
        ]
    );
}

#[test]
fn time_without_samples_is_unknown() {
    let mut scene = Scene::new();
    scene.sample(0, 10, &["work"], None, 0);
    scene.sample(0, 11, &["work"], None, 1000);
    assert_eq!(
        times(&scene.explain(&range(0, 20))),
        [
            (TimeKind::Cpu, 2000 + 1000 + 2000),
            (TimeKind::Unknown, 15_000)
        ]
    );
}

#[test]
fn missing_request_is_an_error_with_what_was_asked_for() {
    let scene = Scene::new();
    let error = |wanted: &Wanted| {
        explain(&scene.test.profile, wanted)
            .unwrap_err()
            .to_string()
    };
    assert!(error(&Wanted::Trace(7)).starts_with("cannot explain: got the trace 0000"));
    assert!(error(&Wanted::Marker("x".to_owned())).contains("got the marker \"x\", expected"));
    assert!(error(&range(2, 1)).contains("an empty range"));
    let other = Wanted::Range("no".to_owned(), 0, 1);
    assert!(error(&other).contains("got the thread \"no\", expected"));
}
