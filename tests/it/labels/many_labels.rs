//! More labels, and longer texts, than fit into the copy of a stack: the profile shows what is
//! missing, and nothing else is missing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::common::sampled::wait_for_samples;
use crate::common::{self, LONGEST_WAIT, Read, isolated, wait_until, work};
use gekkota::script::{AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_function};
use gekkota::stack::{
    StackFeatures, StackFrame, profiler_capture_backtrace, profiler_suspend_and_sample_thread,
};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams, gecko_profiler_category};

/// Number of samples of each thread that the test waits for.
const WANTED_SAMPLES: usize = 40;
/// Maximum number of labels and script frames in a sample.
const MAX_LABELS: usize = 1024;
const LEFT_OUT: &str = "(newer labels left out)";
/// Number of labels with a dynamic text. Not all of the texts fit into a sample.
const WITH_TEXT: usize = 300;

fn function(name: &str) -> ScriptFunction {
    profiler_register_script_function(name, "deep.script", 1, 0)
}

fn long_text() -> String {
    "t".repeat(500)
}

/// Enters more script frames than fit into a sample: two functions, and between them a recursive
/// one.
#[inline(never)]
fn deeper_than_a_sample(body: impl FnOnce()) {
    let outermost = AutoProfilerScriptFrame::new(function("outermost"));
    let recursive = function("recursive");
    (0..2 * MAX_LABELS).for_each(|_| std::mem::forget(AutoProfilerScriptFrame::new(recursive)));
    let _innermost = AutoProfilerScriptFrame::new(function("innermost"));
    in_the_body(body);
    drop(outermost);
}

#[inline(never)]
fn longer_than_a_sample(body: impl FnOnce()) {
    let category = gecko_profiler_category!(Other);
    let oldest = AutoProfilerLabel::new("oldest", category);
    let text = long_text();
    (0..WITH_TEXT)
        .for_each(|_| std::mem::forget(AutoProfilerLabel::with_dynamic("label", &text, category)));
    let _newest = AutoProfilerLabel::new("newest", category);
    let _script = AutoProfilerScriptFrame::new(function("newest"));
    in_the_body(body);
    drop(oldest);
}

/// Part of the location of [`in_the_body`], without its type parameter.
const BODY: &str = "many_labels::in_the_body";

/// Runs `body` while all labels are pushed.
#[inline(never)]
fn in_the_body(body: impl FnOnce()) {
    body();
    std::hint::black_box(file!());
}

/// Starts a registered thread that sleeps in a body until the sender is dropped. Each message wakes
/// it for a moment.
fn sleep_in(
    name: &'static str,
    run_in_body: impl FnOnce(&mut dyn FnMut()) + Send + 'static,
) -> (Sender<()>, ThreadId) {
    let (wake, wakes) = channel::<()>();
    let (send_id, id) = channel();
    std::thread::spawn(move || {
        gekkota::register_thread(name);
        run_in_body(&mut || {
            send_id
                .send(profiler_current_thread_id())
                .expect("the test waits for the id");
            wakes.iter().for_each(drop);
        });
        gekkota::unregister_thread();
    });
    (wake, id.recv().expect("the thread's id"))
}

/// Whether the working threads should return.
static IS_DONE: AtomicBool = AtomicBool::new(false);

/// Starts a registered thread that works in a body until [`IS_DONE`] is set.
fn work_in(
    name: &'static str,
    run_in_body: impl FnOnce(&mut dyn FnMut()) + Send + 'static,
) -> (JoinHandle<()>, ThreadId) {
    let (send_id, id) = channel();
    let thread = std::thread::spawn(move || {
        gekkota::register_thread(name);
        run_in_body(&mut || {
            send_id
                .send(profiler_current_thread_id())
                .expect("the test waits for the id");
            while !IS_DONE.load(Ordering::Relaxed) {
                work(1000);
            }
        });
    });
    (thread, id.recv().expect("the thread's id"))
}

/// Returns the frames that are not native, oldest first.
fn labels_of(stack: &[String]) -> Vec<&str> {
    stack
        .iter()
        .map(String::as_str)
        .filter(|frame| !frame.contains(" (in ") && !is_address(frame))
        .collect()
}

fn is_address(frame: &str) -> bool {
    frame.starts_with("0x")
}

/// Returns whether the stack has all labels, the older ones with their texts, the others without.
fn has_all_labels(stack: &[String]) -> bool {
    let labels = labels_of(stack);
    let with_text = format!("label {}", long_text());
    let texts = labels
        .iter()
        .take_while(|label| **label == "oldest" || **label == with_text)
        .count()
        - 1;
    let expected = std::iter::once("oldest")
        .chain(std::iter::repeat_n(&with_text[..], texts))
        .chain(std::iter::repeat_n("label", WITH_TEXT - texts))
        .chain(["newest", "newest (deep.script:1)"]);
    (90..WITH_TEXT).contains(&texts) && labels.iter().copied().eq(expected)
}

/// Returns whether the stack has the oldest labels, and one frame in place of the others.
fn has_the_oldest(stack: &[String]) -> bool {
    let expected = std::iter::once("outermost (deep.script:1)")
        .chain(std::iter::repeat_n(
            "recursive (deep.script:1)",
            MAX_LABELS - 1,
        ))
        .chain([LEFT_OUT]);
    labels_of(stack).into_iter().eq(expected)
}

/// Returns the samples of a thread in a function that runs while all labels are pushed.
fn samples_in(read: &Read, thread: &str, function: &str) -> Vec<common::Sample> {
    let mut samples = read.samples(thread);
    samples.retain(|sample| sample.stack.iter().any(|frame| frame.contains(function)));
    samples
}

/// Asserts that there are enough samples in the function, and that all of them are complete.
#[track_caller]
fn assert_all(read: &Read, thread: &str, function: &str, is_complete: fn(&[String]) -> bool) {
    let samples = samples_in(read, thread, function);
    let complete = samples.iter().filter(|sample| is_complete(&sample.stack));
    let complete = complete.count();
    assert!(
        complete > 30 && complete == samples.len(),
        "{thread}: {complete} of {} samples are complete",
        samples.len()
    );
}

#[test]
fn sample_marks_left_out_labels() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let deep_sleeper = sleep_in("sleeps deep", |sleep| deeper_than_a_sample(sleep));
        let long_sleeper = sleep_in("sleeps long", |sleep| longer_than_a_sample(sleep));
        let workers = [
            work_in("works deep", |work| deeper_than_a_sample(work)),
            work_in("works long", |work| longer_than_a_sample(work)),
        ];
        let ids = [workers[0].1, workers[1].1, deep_sleeper.1, long_sleeper.1];
        for thread in ids {
            wait_for_samples(thread, WANTED_SAMPLES);
        }
        IS_DONE.store(true, Ordering::Relaxed);
        for (thread, _) in workers {
            thread.join().expect("thread");
        }
        // The sampler reads the stack of a sleeper itself, once after each time that the sleeper
        // ran. If it finds the sleeper still running, it sends a signal instead, so this may take
        // some wakes.
        wait_until("the sampler has read two sleeping stacks", || {
            for (wake, _) in [&deep_sleeper, &long_sleeper] {
                wake.send(()).expect("the sleeper waits");
            }
            Read::of_running().count("remote_samples") >= 2
        });
        let profile = session.finish().expect("profile");
        drop((deep_sleeper, long_sleeper));

        let read = Read::from_profile(&profile);
        assert_all(&read, "works deep", BODY, has_the_oldest);
        assert_all(&read, "sleeps deep", BODY, has_the_oldest);
        assert_all(&read, "works long", BODY, has_all_labels);
        assert_all(&read, "sleeps long", BODY, has_all_labels);

        // A sample that left out the innermost function adds to no function's self time.
        let in_body = samples_in(&read, "works deep", BODY).len();
        let summary = profile.summarize();
        let works = summary
            .iter()
            .find(|thread| thread.name == "works deep")
            .expect("the thread");
        let recursive = works
            .script_functions
            .iter()
            .find(|function| function.name.starts_with("recursive"));
        let recursive = recursive.expect("the function");
        assert!(!recursive.total_time.is_zero() && recursive.total_time <= works.cpu);
        assert!(recursive.self_time < recursive.total_time, "{recursive:?}");
        assert!(
            recursive.total_samples >= in_body && recursive.self_samples + in_body <= works.samples,
            "{recursive:?}, {in_body} of {} samples in the body",
            works.samples
        );
        assert_eq!(works.truncated_samples, 0);
    });
}

#[test]
fn stack_on_demand_marks_left_out_labels() {
    isolated(|| {
        let (keep, sleeper) = sleep_in("sleeps alone", |sleep| deeper_than_a_sample(sleep));
        let stack =
            profiler_suspend_and_sample_thread(sleeper, StackFeatures::LABELS, LONGEST_WAIT)
                .expect("a stack");
        drop(keep);
        let left_out = StackFrame::Label {
            text: LEFT_OUT.to_owned(),
            is_sensitive: false,
        };
        assert_eq!(
            (stack.frames().len(), &stack.frames()[0]),
            (MAX_LABELS + 1, &left_out)
        );
        assert!(
            matches!(&stack.frames()[MAX_LABELS], StackFrame::Script { function, .. } if function == "outermost")
        );

        // The largest copy of the calling thread's stack holds 64 MiB. The texts alone have this size.
        gekkota::register_thread("too long");
        let category = gecko_profiler_category!(Other);
        let text = "t".repeat(512);
        let outermost = AutoProfilerLabel::new("outermost", category);
        let pushed = (64 << 20) / text.len();
        (0..pushed)
            .for_each(|_| std::mem::forget(AutoProfilerLabel::with_dynamic("", &text, category)));
        let copy = profiler_capture_backtrace().expect("memory");
        drop(outermost);
        let after = profiler_capture_backtrace().expect("memory");
        gekkota::unregister_thread();
        let stack = copy.resolve_with(StackFeatures::LABELS);
        assert!(
            (pushed / 2..pushed).contains(&stack.frames().len()),
            "{}",
            stack.frames().len()
        );
        assert_eq!(stack.frames()[0], left_out);
        assert!(
            stack.frames()[1..stack.frames().len() - 1].iter().all(
                |frame| matches!(frame, StackFrame::Label { text: label, .. } if *label == text)
            )
        );
        assert_eq!(after.resolve_with(StackFeatures::LABELS).frames(), []);
    });
}
