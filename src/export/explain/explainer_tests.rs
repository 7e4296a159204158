//! Requests whose times are known.

use std::time::Duration;

use crate::export::explain::explain;
use crate::export::explain::suspended::unsampled_ns;
use crate::export::test_profile::TestProfile;
use crate::model::{
    CategoryPair, FieldValue, Frame, Marker, MarkerPayload, MarkerPhase, PausedRange, Sample,
    TextId, WAITING_TASKS, WeightUnit,
};
use crate::types::{ExplainedPart, Explanation, TimeKind, Wanted};

const MS: i64 = 1_000_000;
/// Numbers of the subcategories of “Idle”.
const LOCK: u16 = 1;
const IO: u16 = 2;
const TIMER: u16 = 3;

const TRACE: &str = "000000000000000000000000000000ab";
const OTHER_TRACE: &str = "0000000000000000000000000000000c";

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
        test.profile.meta.has_cpu_deltas = true;
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
        self.marker_with(thread, type_name, name, ms, &[("trace_id", trace)]);
    }

    fn marker_with(
        &mut self,
        thread: usize,
        type_name: &str,
        name: &str,
        ms: (i64, i64),
        fields: &[(&str, &str)],
    ) {
        let profile = &mut self.test.profile;
        let (type_name, name) = (profile.intern(type_name), profile.intern(name));
        let mut field = |&(key, value): &(&str, &str)| {
            let value = match value.parse() {
                Ok(ms) if key == "idle" => FieldValue::Number(ms),
                _ => FieldValue::UniqueText(profile.intern(value)),
            };
            (profile.intern(key), value)
        };
        let fields: Vec<(TextId, FieldValue)> = fields.iter().map(&mut field).collect();
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

    /// Returns the track of the tasks that wait.
    fn track(&mut self) -> usize {
        let track = self.test.thread(WAITING_TASKS);
        self.test.profile.threads[track].samples.weight_unit = WeightUnit::Milliseconds;
        track
    }

    /// Adds a wait of futures in the trace [`TRACE`].
    fn wait(&mut self, track: usize, futures: &str, ms: (i64, i64)) {
        let fields = [("futures", futures), ("trace_id", TRACE)];
        self.marker_with(track, "TaskWait", "Waiting", ms, &fields);
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

/// Returns the stacks of a kind, with their times in µs.
fn stacks(explanation: &Explanation, kind: TimeKind) -> Vec<(String, u128)> {
    let parts = explanation.parts.iter().filter(|part| part.kind == kind);
    let stacks = parts.flat_map(|part| &part.stacks);
    stacks
        .map(|stack| (stack.functions.join(" \u{2190} "), stack.time.as_micros()))
        .collect()
}

#[test]
fn intervals_of_waiting_tasks_are_no_request() {
    let mut scene = Scene::new();
    let track = scene.track();
    for ms in 0..=10 {
        scene.sample(0, ms, &["app::poll"], None, 1000);
    }
    // The rows of the track begin earlier and end later than the samples.
    for ms in [-50, 90] {
        scene.sample(track, ms, &["look_up"], None, 0);
    }
    scene.wait(track, "look_up", (4, 80));
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
    scene.marker(0, "SampleContext", "Context", (2, 4), TRACE);
    scene.marker(other, "SampleContext", "Context", (14, 15), TRACE);
    scene.marker(other, "SampleContext", "Context", (6, 8), OTHER_TRACE);
    let explanation = scene.explain(&Wanted::Trace(0xab));
    // Each time on a thread begins and ends in the middle between two samples.
    let expected = [(TimeKind::Cpu, 3000 + 2000), (TimeKind::Await, 9000)];
    assert_eq!(times(&explanation), expected);
    assert_eq!(explanation.threads, ["main", "other"]);
    assert_eq!(explanation.length, Duration::from_millis(14));
    let suspended = &explanation.parts[1].stacks[0];
    assert_eq!(suspended.functions, ["app::first", "app::poll"]);
    let text = explanation.to_string();
    assert!(text.contains("  suspended after app::first"), "{text}");
    // A span with the id has the exact times.
    scene.marker(other, "TracingSpan", "GET /", (1, 16), "ab");
    let explanation = scene.explain(&Wanted::Marker("GET /".to_owned()));
    assert_eq!(explanation.trace_id, Some(0xab));
    assert_eq!(
        times(&explanation),
        [(TimeKind::Cpu, 6000), (TimeKind::Await, 9000)]
    );
    assert_eq!(scene.explain(&Wanted::Trace(0xab)).name, "GET /");
}

#[test]
fn trace_of_waits_alone_is_suspended_in_their_futures() {
    let mut scene = Scene::new();
    let track = scene.track();
    for ms in 0..=40 {
        scene.sample(0, ms, &["app::other"], None, 1000);
    }
    scene.wait(track, "request → orders → get", (10, 20));
    scene.wait(track, "request → orders → query", (21, 30));
    // What another request waits for.
    let fields = [("futures", "request"), ("trace_id", OTHER_TRACE)];
    scene.marker_with(track, "TaskWait", "Waiting", (0, 40), &fields);
    let explanation = scene.explain(&Wanted::Trace(0xab));
    assert_eq!(explanation.start, Duration::from_millis(10));
    assert_eq!(explanation.length, Duration::from_millis(20));
    assert!(explanation.threads.is_empty());
    // A poll lies between the waits.
    let expected = [(TimeKind::Cpu, 1000), (TimeKind::Await, 19_000)];
    assert_eq!(times(&explanation), expected);
    let between = [("(ran between samples)".to_owned(), 1000)];
    assert_eq!(stacks(&explanation, TimeKind::Cpu), between);
    let suspended = ["get ← orders ← request", "query ← orders ← request"];
    let suspended: Vec<_> = suspended
        .map(str::to_owned)
        .into_iter()
        .zip([10_000, 9000])
        .collect();
    assert_eq!(stacks(&explanation, TimeKind::Await), suspended);
    let text = explanation.to_string();
    let line = "      10.0 ms  suspended in get \u{2190} orders \u{2190} request\n";
    assert!(text.contains(line), "{text}");
    // The span began before, and the profile does not tell where it was.
    scene.marker(0, "TracingSpan", "GET /", (5, 35), "ab");
    let explanation = scene.explain(&Wanted::Marker("GET /".to_owned()));
    assert_eq!(explanation.length, Duration::from_millis(30));
    let unknown = ("(unknown future)".to_owned(), 10_000);
    assert!(
        stacks(&explanation, TimeKind::Await).contains(&unknown),
        "{explanation}"
    );
}

#[test]
fn samples_of_another_request_have_no_time_of_this_one() {
    let mut scene = Scene::new();
    let track = scene.track();
    let request = |ms| match ms {
        2..4 | 20 => ("app::first", TRACE),
        _ => ("app::second", OTHER_TRACE),
    };
    for ms in 0..=22 {
        let (function, trace) = request(ms);
        scene.sample(0, ms, &["app::poll", function], None, 1000);
        scene.marker(0, "SampleContext", "Context", (ms, ms), trace);
    }
    scene.wait(track, "first", (4, 19));
    let explanation = scene.explain(&Wanted::Trace(0xab));
    // It came to the thread in the middle between two samples, and then at the end of its wait.
    let expected = [(TimeKind::Cpu, 2500 + 1500), (TimeKind::Await, 15_000)];
    assert_eq!(times(&explanation), expected);
    let on_cpu = [("app::first ← app::poll".to_owned(), 4000)];
    assert_eq!(stacks(&explanation, TimeKind::Cpu), on_cpu);
    let suspended = [("first".to_owned(), 15_000)];
    assert_eq!(stacks(&explanation, TimeKind::Await), suspended);
}

#[test]
fn request_on_an_idle_thread_ran_as_long_as_the_thread() {
    let mut scene = Scene::new();
    for ms in 0..=3 {
        let (waits, cpu_us) =
            [(Some(IO), 0), (Some(IO), 0), (None, 200), (Some(IO), 700)][ms as usize];
        let function = if waits.is_some() {
            "epoll_wait"
        } else {
            "app::answer"
        };
        scene.sample(0, ms, &["app::serve", function], waits, cpu_us);
    }
    scene.marker(0, "SampleContext", "Context", (2, 2), TRACE);
    let explanation = scene.explain(&Wanted::Trace(0xab));
    assert_eq!(explanation.start, Duration::from_micros(1800));
    assert_eq!(times(&explanation), [(TimeKind::Cpu, 900)]);
}

#[test]
fn wait_between_late_samples_of_a_request_is_no_time_on_its_thread() {
    let mut scene = Scene::new();
    let track = scene.track();
    // The sampler had no processor from 1 ms to 31 ms.
    for ms in [0, 1, 31, 32] {
        scene.sample(0, ms, &["app::answer"], None, 1000);
    }
    scene.marker(0, "SampleContext", "Context", (0, 32), TRACE);
    scene.marker(0, "TracingSpan", "GET /", (0, 32), TRACE);
    scene.wait(track, "get", (2, 30));
    // A task of the same request waits while the first one runs.
    scene.wait(track, "helper", (0, 32));
    let explanation = scene.explain(&Wanted::Trace(0xab));
    let expected = [
        (TimeKind::Cpu, 3000),
        (TimeKind::WaitForProcessor, 1000),
        (TimeKind::Await, 28_000),
    ];
    assert_eq!(times(&explanation), expected);
    let suspended = [("get + helper".to_owned(), 28_000)];
    assert_eq!(stacks(&explanation, TimeKind::Await), suspended);
}

#[test]
fn nothing_is_sampled_where_the_profiler_was_absent() {
    let mut scene = Scene::new();
    for ms in (0..=20).chain(51..=80) {
        scene.sample(0, ms, &["app::other"], None, 1000);
    }
    let unsampled = |scene: &Scene, range: (i64, i64)| {
        unsampled_ns(&scene.test.profile, (range.0 * MS, range.1 * MS)) / MS
    };
    assert_eq!(unsampled(&scene, (-50, 0)), 50);
    assert_eq!(unsampled(&scene, (0, 20)), 0);
    assert_eq!(unsampled(&scene, (10, 60)), 30);
    assert_eq!(unsampled(&scene, (70, 90)), 9);
    scene.test.profile.processes[0].paused_ranges = vec![PausedRange {
        start_ns: Some(60 * MS),
        end_ns: Some(64 * MS),
        reason: "paused".into(),
    }];
    assert_eq!(unsampled(&scene, (10, 70)), 34);
    scene.marker(0, "TracingSpan", "GET /", (10, 60), TRACE);
    let track = scene.track();
    scene.wait(track, "get", (12, 30));
    let explanation = scene.explain(&Wanted::Trace(0xab));
    // A future that waited is known without samples.
    let expected = [
        (TimeKind::Await, 2000 + 18_000 + 9000),
        (TimeKind::Unknown, 21_000),
    ];
    assert_eq!(times(&explanation), expected);
    let text = explanation.to_string();
    assert!(
        text.ends_with("\nnot sampled                     21.0 ms   42.0 %\n"),
        "{text}"
    );
}

#[test]
fn cpu_time_that_samples_find_asleep_belongs_to_those_that_ran() {
    let mut scene = Scene::new();
    let sleep = ["app::main", "sleep"];
    for ms in 0..=4 {
        scene.sample(0, ms, &sleep, Some(TIMER), 400);
    }
    let explanation = scene.explain(&range(0, 4));
    let between = [("(ran between samples)".to_owned(), 1600)];
    assert_eq!(stacks(&explanation, TimeKind::Cpu), between);
    scene.sample(0, 5, &["app::main", "app::price"], None, 100);
    scene.sample(0, 6, &sleep, Some(TIMER), 300);
    let explanation = scene.explain(&range(0, 6));
    let ran = [("app::price ← app::main".to_owned(), 2000)];
    assert_eq!(stacks(&explanation, TimeKind::Cpu), ran);
    assert_eq!(
        explanation.time(TimeKind::Sleep),
        Duration::from_micros(4000)
    );
}

#[test]
fn marker_that_begins_later_than_its_trace_is_a_part_of_the_request() {
    let mut scene = Scene::new();
    let track = scene.track();
    for ms in 0..=40 {
        scene.sample(0, ms, &["app::other"], None, 1000);
    }
    scene.wait(track, "get", (10, 30));
    scene.marker(0, "Text", "render", (30, 32), TRACE);
    let explanation = scene.explain(&Wanted::Trace(0xab));
    assert_eq!(explanation.length, Duration::from_millis(22));
    let explanation = scene.explain(&Wanted::Marker("render".to_owned()));
    assert_eq!(explanation.length, Duration::from_millis(2));
}

#[test]
fn span_without_ids_has_the_waits_of_the_spans_inside_of_it() {
    let mut scene = Scene::new();
    let (track, other) = (scene.track(), scene.test.thread("other"));
    for ms in 0..=30 {
        let stack = match ms {
            20..25 => ["#request", "app::render"],
            _ => ["app::idle", "app::park"],
        };
        scene.sample(0, ms, &stack, None, 1000);
        scene.sample(other, ms, &["#request", "app::wrong"], None, 1000);
    }
    let span = |id, parent| [("span", id), ("parent", parent), ("idle", "16.5")];
    scene.marker_with(0, "TracingSpan", "request", (2, 26), &span("a", "f"));
    scene.marker_with(0, "TracingSpan", "get", (3, 19), &span("b", "a"));
    scene.marker_with(other, "TracingSpan", "request", (0, 20), &span("c", "f"));
    for (futures, span_id, ms) in [("request → get", "b", (4, 19)), ("request", "c", (1, 9))] {
        let fields = [("futures", futures), ("span_id", span_id)];
        scene.marker_with(track, "TaskWait", "Waiting", ms, &fields);
    }
    let explanation = scene.explain(&Wanted::Marker("request".to_owned()));
    assert_eq!(explanation.threads, ["main"]);
    // From the end of the wait to the middle between two samples.
    let ran = [
        ("app::render ← request".to_owned(), 5500),
        ("(ran between samples)".to_owned(), 2000),
    ];
    assert_eq!(stacks(&explanation, TimeKind::Cpu), ran);
    let suspended = [
        ("get ← request".to_owned(), 15_000),
        ("app::render ← request".to_owned(), 1500),
    ];
    assert_eq!(stacks(&explanation, TimeKind::Await), suspended);
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
