//! The feature `waitingtasks`: where futures wait, and how long.
//!
//! The tests measure each wait from outside and from inside of the polls around it. What is
//! recorded lies between the two, however long the machine takes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use gekkota::context::{ProfilerContext, in_context};
use gekkota::profile::{Format, SlowRequest, TimeKind};
use gekkota::{
    Features, Profile, ProfilerSession, StartParams, gecko_profiler_category,
    gecko_profiler_fn_label, labeled_future, labeled_future_with_dynamic,
};
use serde_json::Value;

use crate::common::typed_markers::typed_markers;
use crate::common::{Read, assert_in_forked_child, isolated};

pub(super) const TRACK: &str = "Waiting tasks";

static POLLS: AtomicU64 = AtomicU64::new(0);

/// Is pending so many times.
pub(super) struct Pending(pub(super) u32);

impl Future for Pending {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        POLLS.fetch_add(1, Ordering::Relaxed);
        match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

#[gecko_profiler_fn_label(Network)]
async fn look_up(times: u32) {
    pool_get(times).await;
}

#[gecko_profiler_fn_label("pool.get", Network)]
pub(super) async fn pool_get(times: u32) {
    Pending(times).await;
}

async fn both() {
    let category = gecko_profiler_category!(Network);
    let mut one = std::pin::pin!(labeled_future("one", category, Pending(1)));
    let mut other = std::pin::pin!(labeled_future_with_dynamic(
        "other",
        "b",
        category,
        Pending(1)
    ));
    std::future::poll_fn(|context| {
        let polls = [one.as_mut().poll(context), other.as_mut().poll(context)];
        match polls.iter().all(Poll::is_ready) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task that waits, with the bounds of the time that it has waited.
pub(super) struct Measured {
    pub(super) task: Task,
    stacks: &'static [&'static str],
    /// Before and after its last poll.
    polled: Option<(Instant, Instant)>,
    pub(super) bounds: [Duration; 2],
}

impl Measured {
    pub(super) fn new(
        task: impl Future<Output = ()> + Send + 'static,
        stacks: &'static [&'static str],
    ) -> Self {
        Self {
            task: Box::pin(task),
            stacks,
            polled: None,
            bounds: [Duration::ZERO; 2],
        }
    }

    pub(super) fn poll(&mut self) -> Poll<()> {
        let before = Instant::now();
        let answer = self
            .task
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let after = Instant::now();
        self.waited_until(before, after);
        self.polled = answer.is_pending().then_some((before, after));
        if answer.is_ready() {
            // As a runtime does.
            self.task = Box::pin(async {});
        }
        answer
    }

    fn waited_until(&mut self, before: Instant, after: Instant) {
        if let Some((earliest, latest)) = self.polled {
            self.bounds[0] += before - latest;
            self.bounds[1] += after - earliest;
        }
    }
}

/// Polls all tasks until they are ready or have been polled so often, each time on another thread.
pub(super) fn run(mut tasks: Vec<Measured>, rounds: u32) -> Vec<Measured> {
    for _ in 0..rounds {
        tasks = std::thread::spawn(move || {
            for task in &mut tasks {
                if task.polled.is_some() || task.bounds[1] == Duration::ZERO {
                    _ = task.poll();
                }
            }
            tasks
        })
        .join()
        .expect("no panic");
        std::thread::sleep(Duration::from_millis(15));
    }
    tasks
}

pub(super) fn start(features: Features) -> ProfilerSession {
    let params = StartParams::default();
    let features = params.features | features;
    ProfilerSession::start(params.features(features)).expect("starts")
}

/// Returns the weights of the track's rows in ms, by the labels of their stacks.
pub(super) fn weights(read: &Read) -> BTreeMap<String, f64> {
    let thread = read.thread(TRACK);
    let index = |value: &Value| value.as_u64().expect("an index") as usize;
    let rows = |table: &str| thread[table]["data"].as_array().expect("rows").clone();
    let (samples, stacks, frames) = (rows("samples"), rows("stackTable"), rows("frameTable"));
    let weight = index(&thread["samples"]["schema"]["weight"]);
    let mut sums = BTreeMap::new();
    for sample in samples {
        let mut names = Vec::new();
        let mut next = Some(index(&sample[0]));
        while let Some(stack) = next {
            let (prefix, frame) = (&stacks[stack][0], index(&stacks[stack][1]));
            let name = &thread["stringTable"][index(&frames[frame][0])];
            names.push(name.as_str().expect("a name").to_owned());
            next = (!prefix.is_null()).then(|| index(prefix));
        }
        names.retain(|name| name != "(root)");
        names.reverse();
        let weight = sample[weight].as_f64().expect("a weight");
        *sums.entry(names.join(" → ")).or_default() += weight;
    }
    sums
}

/// Checks that each stack has what its tasks have waited, but for rounding to milliseconds.
fn check(read: &Read, tasks: &[Measured]) {
    check_weights(&weights(read), tasks);
}

pub(super) fn check_weights(weights: &BTreeMap<String, f64>, tasks: &[Measured]) {
    let mut bounds: BTreeMap<&str, [Duration; 2]> = BTreeMap::new();
    for task in tasks {
        for stack in task.stacks {
            let sum = bounds.entry(stack).or_default();
            sum[0] += task.bounds[0];
            sum[1] += task.bounds[1];
        }
    }
    let stacks: Vec<&str> = weights.keys().map(String::as_str).collect();
    assert_eq!(stacks, bounds.keys().copied().collect::<Vec<_>>());
    for (stack, [least, most]) in bounds {
        let [least, most] = [least, most].map(|bound| bound.as_secs_f64() * 1e3);
        let found = weights[stack];
        assert!(
            found > least - 1.0 && found <= most,
            "{stack}: {found} ms instead of {least} to {most}"
        );
    }
}

fn tasks() -> Vec<Measured> {
    let mut tasks = Vec::new();
    for number in 0..40 {
        tasks.push(match number % 4 {
            0 => Measured::new(look_up(1), &["look_up → pool.get"]),
            1 => Measured::new(look_up(3), &["look_up → pool.get"]),
            2 => Measured::new(pool_get(u32::MAX), &["pool.get"]),
            _ => {
                let category = gecko_profiler_category!(Network);
                let task = labeled_future("both", category, both());
                Measured::new(task, &["both → one", "both → other b"])
            }
        });
    }
    tasks
}

#[test]
fn each_stack_has_what_its_tasks_have_waited() {
    isolated(|| {
        let session = start(Features::WAITING_TASKS);
        let mut tasks = run(tasks(), 5);
        let polls = POLLS.load(Ordering::Relaxed);
        // Some are dropped, others wait when the profile is taken.
        let dropped = tasks.drain(..20).map(|mut task| {
            let before = Instant::now();
            task.task = Box::pin(async {});
            task.waited_until(before, Instant::now());
            task.polled = None;
            task
        });
        let dropped: Vec<_> = dropped.collect();
        let before = Instant::now();
        let profile = session.finish().expect("a profile");
        let after = Instant::now();
        for task in &mut tasks {
            task.waited_until(before, after);
        }
        tasks.extend(dropped);
        assert_eq!(POLLS.load(Ordering::Relaxed), polls, "no further polls");
        let read = Read::from_profile(&profile);
        check(&read, &tasks);
        assert_eq!(read.threads()[0]["name"], "GeckoMain");
        check_formats(&profile, &tasks);
    });
}

fn check_formats(profile: &Profile, tasks: &[Measured]) {
    let text = |profile: &Profile, format| {
        let mut text = Vec::new();
        profile.write(format, &mut text).expect("written");
        String::from_utf8_lossy(&text).into_owned()
    };
    let processed: Value = serde_json::from_str(&text(profile, Format::Processed)).expect("JSON");
    let threads = processed["threads"].as_array().expect("threads");
    assert_eq!(threads[0]["isMainThread"], true);
    let track = threads.iter().find(|thread| thread["name"] == TRACK);
    let samples = &track.expect("the track")["samples"];
    assert_eq!(samples["weightType"], "tracing-ms");
    let counted = [Format::Collapsed, Format::Text];
    for format in counted {
        let text = text(profile, format);
        assert!(!text.contains("pool.get"), "{format:?}: {text}");
    }
    // A profile that was read back has the track, too.
    for format in [Format::Processed, Format::Gecko] {
        let name = format!("waits-{}-{format:?}.json", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text(profile, format)).expect("saved");
        let again = Profile::read(&path).expect("read");
        std::fs::remove_file(&path).expect("removed");
        check(&Read::of_file(&again), tasks);
        assert!(!text(&again, Format::Collapsed).contains("pool.get"));
    }
}

#[test]
fn long_wait_is_an_interval_with_the_context_of_its_request() {
    isolated(|| {
        let session = start(Features::WAITING_TASKS);
        let context = ProfilerContext::new().with_trace_id(0xa1);
        let task = in_context(context, look_up(1));
        let tasks = run(vec![Measured::new(task, &["look_up → pool.get"])], 2);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        check(&read, &tasks);
        let markers = typed_markers(&read, TRACK);
        let [marker] = &markers[..] else {
            panic!("{markers:#?}");
        };
        assert_eq!(marker.name, "Waiting");
        assert_eq!(marker.text("futures"), "look_up → pool.get");
        assert_eq!(marker.text("trace_id"), format!("{:032x}", 0xa1));
        let duration_ms = marker.end_ms.expect("an interval") - marker.start_ms;
        let [least, most] = tasks[0].bounds.map(|bound| bound.as_secs_f64() * 1e3);
        assert!(least <= duration_ms && duration_ms <= most, "{duration_ms}");
    });
}

#[test]
fn future_without_a_name_is_explained_by_its_waits_in_a_context() {
    isolated(|| {
        async fn answer() {
            Pending(2).await;
        }
        let session = start(Features::WAITING_TASKS);
        let context = ProfilerContext::new().with_trace_id(0xa1);
        let tasks = run(vec![Measured::new(in_context(context, answer()), &[])], 3);
        let profile = session.finish().expect("a profile");
        let explanation = profile.explain(&SlowRequest::of_trace(0xa1));
        let explanation = explanation.expect("found");
        let awaited = explanation.time_in(TimeKind::Await, "::answer");
        let [least, most] = tasks[0].bounds;
        assert!(least <= awaited && awaited <= most, "{explanation}");
        let line = "ms  suspended in it::contexts::waiting_tasks::";
        assert!(explanation.to_string().contains(line), "{explanation}");
    });
}

#[test]
fn name_around_a_context_is_that_of_its_wait() {
    isolated(|| {
        let session = start(Features::WAITING_TASKS);
        let category = gecko_profiler_category!(Network);
        let context = ProfilerContext::new().with_trace_id(0xa1);
        let task = labeled_future("request", category, in_context(context, Pending(1)));
        let tasks = run(vec![Measured::new(task, &["request"])], 2);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        check(&read, &tasks);
        let markers = typed_markers(&read, TRACK);
        assert_eq!(markers[0].text("trace_id"), format!("{:032x}", 0xa1));
    });
}

#[test]
fn session_without_the_feature_has_no_track() {
    isolated(|| {
        let session = start(Features::NONE);
        run(tasks(), 2);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let mut names = read.threads().iter().map(|thread| &thread["name"]);
        assert!(!names.any(|name| name == TRACK));
    });
}

#[test]
fn paused_time_is_left_out() {
    isolated(|| {
        let session = start(Features::WAITING_TASKS);
        let mut task = Measured::new(pool_get(2), &["pool.get"]);
        assert!(task.poll().is_pending());
        std::thread::sleep(Duration::from_millis(5));
        let before = Instant::now();
        gekkota::profiler_pause();
        task.waited_until(before, Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let before = Instant::now();
        gekkota::profiler_resume();
        let resumed = (before, Instant::now());
        task.polled = Some(resumed);
        std::thread::sleep(Duration::from_millis(5));
        assert!(task.poll().is_pending());
        assert!(task.poll().is_ready());
        let read = Read::from_profile(&session.finish().expect("a profile"));
        check(&read, &[task]);
    });
}

#[test]
fn second_snapshot_counts_no_wait_twice() {
    isolated(|| {
        let session = start(Features::WAITING_TASKS);
        let mut tasks = run(tasks(), 2);
        Read::of_running();
        tasks = run(tasks, 3);
        let before = Instant::now();
        let profile = session.finish().expect("a profile");
        let after = Instant::now();
        for task in &mut tasks {
            task.waited_until(before, after);
        }
        check(&Read::from_profile(&profile), &tasks);
    });
}

#[test]
fn pauses_within_each_other_are_left_out_once() {
    isolated(|| {
        let session = start(Features::WAITING_TASKS);
        let mut task = Measured::new(pool_get(2), &["pool.get"]);
        assert!(task.poll().is_pending());
        std::thread::sleep(Duration::from_millis(5));
        let before = Instant::now();
        gekkota::profiler_pause();
        task.waited_until(before, Instant::now());
        gekkota::profiler_pause_sampling();
        gekkota::profiler_resume();
        std::thread::sleep(Duration::from_millis(30));
        let before = Instant::now();
        gekkota::profiler_resume_sampling();
        task.polled = Some((before, Instant::now()));
        std::thread::sleep(Duration::from_millis(5));
        assert!(task.poll().is_pending());
        assert!(task.poll().is_ready());
        let read = Read::from_profile(&session.finish().expect("a profile"));
        check(&read, &[task]);
    });
}

#[test]
fn forked_child_has_waits_of_its_own_only() {
    isolated(|| {
        let session = start(Features::WAITING_TASKS);
        let mut tasks = run(vec![Measured::new(pool_get(u32::MAX), &["pool.get"])], 1);
        assert_in_forked_child(|| {
            // The parent's wait ends here, which nothing records.
            tasks[0].task = Box::pin(async {});
            let Ok(session) = ProfilerSession::start(
                StartParams::default().features(Features::default_set() | Features::WAITING_TASKS),
            ) else {
                return false;
            };
            let mut own = Measured::new(look_up(1), &["look_up → pool.get"]);
            _ = own.poll();
            std::thread::sleep(Duration::from_millis(15));
            _ = own.poll();
            let read = Read::from_profile(&session.finish().expect("a profile"));
            check(&read, &[own]);
            true
        });
        let before = Instant::now();
        let profile = session.finish().expect("a profile");
        tasks[0].waited_until(before, Instant::now());
        check(&Read::from_profile(&profile), &tasks);
    });
}

#[test]
fn panicking_poll_leaves_the_polls_around_it_recorded() {
    isolated(|| {
        let session = start(Features::WAITING_TASKS);
        let category = gecko_profiler_category!(Network);
        let panics = async move {
            let panics = std::future::poll_fn(|_| -> Poll<()> {
                std::panic::resume_unwind(Box::new(()));
            });
            let mut inner = Box::pin(labeled_future("panics", category, panics));
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                _ = inner.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }));
            assert!(caught.is_err());
            Pending(1).await;
        };
        let task = Measured::new(labeled_future("around", category, panics), &["around"]);
        let tasks = run(vec![task], 2);
        check(
            &Read::from_profile(&session.finish().expect("a profile")),
            &tasks,
        );
    });
}
