//! More labels, and longer texts, than a copy of a stack has room for: what is missing is told, and nothing else is missing.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::common::{self, Read, isolated, work_for_cpu};
use gekkota::script::{AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_function};
use gekkota::stack::{
    StackFeatures, StackFrame, profiler_capture_backtrace, profiler_suspend_and_sample_thread,
};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams, gecko_profiler_category};

const SLICE: Duration = Duration::from_millis(100);
/// So many labels and script frames a sample has room for.
const ROOM: usize = 1024;
const LEFT_OUT: &str = "(newer labels left out)";
/// So many labels with a text, of which a sample has room for some.
const WITH_TEXT: usize = 300;

fn function(name: &str) -> ScriptFunction {
    profiler_register_script_function(name, "deep.script", 1, 0)
}

fn long_text() -> String {
    "t".repeat(500)
}

/// A function that calls itself too often, and calls another.
#[inline(never)]
fn deeper_than_a_sample(body: impl FnOnce()) {
    let outermost = AutoProfilerScriptFrame::new(function("outermost"));
    let recursive = function("recursive");
    (0..2 * ROOM).for_each(|_| std::mem::forget(AutoProfilerScriptFrame::new(recursive)));
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

/// While this runs, all labels are there.
#[inline(never)]
fn in_the_body(body: impl FnOnce()) {
    body();
    std::hint::black_box(());
}

/// A registered thread that sleeps in a body until the sender is dropped.
fn sleep_in(
    name: &'static str,
    within: impl FnOnce(&mut dyn FnMut()) + Send + 'static,
) -> (Sender<()>, ThreadId) {
    let (keep, until_dropped) = channel::<()>();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        gekkota::register_thread(name);
        within(&mut || {
            tell.send(profiler_current_thread_id())
                .expect("somebody waits");
            // Nobody sends.
            assert!(until_dropped.recv().is_err());
        });
        gekkota::unregister_thread();
    });
    (keep, told.recv().expect("its id"))
}

/// The frames that are not native ones, oldest first.
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

/// All labels are there, the older ones with their texts, the others without.
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

/// The oldest are there, and what stands for the others.
fn has_the_oldest(stack: &[String]) -> bool {
    let expected = std::iter::once("outermost (deep.script:1)")
        .chain(std::iter::repeat_n("recursive (deep.script:1)", ROOM - 1))
        .chain([LEFT_OUT]);
    labels_of(stack).into_iter().eq(expected)
}

/// All the samples that were taken in the body: some fell into the pushing.
fn all(samples: &[common::Sample], is_whole: fn(&[String]) -> bool) -> bool {
    let in_the_body = |sample: &&common::Sample| {
        sample
            .stack
            .iter()
            .any(|frame| frame.contains("many_labels::in_the_body") && frame.contains(" (in "))
    };
    let samples: Vec<_> = samples.iter().filter(in_the_body).collect();
    let whole = samples
        .iter()
        .filter(|sample| is_whole(&sample.stack))
        .count();
    println!("{whole} of {}", samples.len());
    whole > 30 && whole == samples.len()
}

#[test]
fn a_sample_tells_what_it_had_no_room_for() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let deep_sleeper = sleep_in("sleeps deep", |sleep| deeper_than_a_sample(sleep));
        let long_sleeper = sleep_in("sleeps long", |sleep| longer_than_a_sample(sleep));
        let threads = [
            std::thread::spawn(|| {
                gekkota::register_thread("works deep");
                deeper_than_a_sample(|| work_for_cpu(SLICE));
            }),
            std::thread::spawn(|| {
                gekkota::register_thread("works long");
                longer_than_a_sample(|| work_for_cpu(SLICE));
            }),
        ];
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("thread"));
        let profile = session.finish().expect("profile");
        drop((deep_sleeper, long_sleeper));

        let read = Read::from_profile(&profile);
        // Once each; they rest from then on.
        assert!(read.count("samples_from_outside") >= 2);
        for name in ["works deep", "sleeps deep"] {
            assert!(all(&read.samples(name), has_the_oldest), "{name}");
        }
        for name in ["works long", "sleeps long"] {
            assert!(all(&read.samples(name), has_all_labels), "{name}");
        }

        // Which function was the innermost nobody knows.
        let summary = profile.summarize();
        let works = summary
            .iter()
            .find(|thread| thread.name == "works deep")
            .expect("the thread");
        let recursive = works
            .script_functions
            .iter()
            .find(|function| function.name.starts_with("recursive"));
        let recursive = recursive.expect("it was there");
        let cpu = works.cpu;
        assert!(cpu * 2 > SLICE, "{cpu:?}");
        assert!(
            recursive.total_time * 10 > cpu * 9 && recursive.self_time * 10 < cpu,
            "{recursive:?} of {cpu:?}"
        );
        assert_eq!(works.truncated_samples, 0);
    });
}

#[test]
fn a_single_stack_tells_what_it_had_no_room_for() {
    isolated(|| {
        let (keep, sleeper) = sleep_in("sleeps alone", |sleep| deeper_than_a_sample(sleep));
        let bound = Duration::from_secs(10);
        let stack = profiler_suspend_and_sample_thread(sleeper, StackFeatures::LABELS, bound)
            .expect("a stack");
        drop(keep);
        let left_out = StackFrame::Label {
            text: LEFT_OUT.to_owned(),
            is_sensitive: false,
        };
        assert_eq!(
            (stack.frames().len(), &stack.frames()[0]),
            (ROOM + 1, &left_out)
        );
        assert!(
            matches!(&stack.frames()[ROOM], StackFrame::Script { function, .. } if function == "outermost")
        );

        // The largest copy of an own stack holds 64 MiB: so do the texts alone.
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
