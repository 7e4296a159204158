//! Labels stand where they were pushed among the native frames, and no misuse of a guard corrupts anything.

use std::time::Duration;

use crate::common::{Read, isolated, work_for_cpu};
use gekkota::{
    AutoProfilerLabel, ProfilerSession, StartParams, auto_profiler_label,
    auto_profiler_label_dynamic,
};

const SLICE: Duration = Duration::from_millis(100);

#[inline(never)]
fn outer() {
    auto_profiler_label!("outer label", Graphics, Rasterization);
    inner("first.png");
    std::hint::black_box(());
}

#[inline(never)]
fn inner(file: &str) {
    auto_profiler_label_dynamic!("inner label", file, Network);
    leaf();
    std::hint::black_box(());
}

#[inline(never)]
fn leaf() {
    work_for_cpu(SLICE);
    // The compiler merges functions with equal bodies. The file's name makes this body unique.
    std::hint::black_box(file!());
}

#[inline(never)]
fn after_a_forgotten_guard() {
    work_for_cpu(SLICE);
    std::hint::black_box((file!(), 1));
}

fn misuse_guards() {
    let category = gekkota::gecko_profiler_category!(Other);
    {
        auto_profiler_label!("scope of the forgotten", Other);
        std::mem::forget(AutoProfilerLabel::new("forgotten", category));
    }
    after_a_forgotten_guard();
    let first = AutoProfilerLabel::new("first", category);
    let second = AutoProfilerLabel::new("second", category);
    drop(first);
    drop(second);
    let outlives = AutoProfilerLabel::new("outlives its registration", category);
    gekkota::unregister_thread();
    drop(outlives);
    gekkota::register_thread("second life");
    let moved = Box::new(AutoProfilerLabel::new("moved", category));
    drop(moved);
    std::hint::black_box(());
}

#[test]
fn labels_are_merged_by_their_place_on_the_stack() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            let unregistered =
                AutoProfilerLabel::new("unregistered", gekkota::gecko_profiler_category!(Other));
            gekkota::register_thread("labels");
            outer();
            misuse_guards();
            drop(unregistered);
            auto_profiler_label!("deep", Other);
            (0..5000).for_each(|_| {
                std::mem::forget(AutoProfilerLabel::new(
                    "a",
                    gekkota::gecko_profiler_category!(DOM),
                ))
            });
            work_for_cpu(SLICE);
        });
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let mut samples = read.samples("labels");
        samples.extend(read.samples("second life"));
        let with = |part: &str| {
            let matching = samples.iter().map(|sample| &sample.stack);
            matching
                .filter(|stack| stack.iter().any(|frame| frame.contains(part)))
                .cloned()
                .collect::<Vec<_>>()
        };

        // The label comes just before the frame that pushed it: the innermost frame is always a native one.
        let in_leaf = with("placement::leaf (in");
        assert!(in_leaf.len() > 30, "{}", in_leaf.len());
        let kept = [
            "outer label",
            "placement::outer (in",
            "inner label first.png",
            "placement::inner (in",
            "placement::leaf (in",
        ];
        for stack in &in_leaf {
            let order: Vec<_> = stack
                .iter()
                .filter_map(|frame| kept.iter().position(|kept| frame.contains(kept)))
                .collect();
            assert_eq!(order, [0, 1, 2, 3, 4], "{stack:#?}");
        }
        assert!(
            samples
                .iter()
                .all(|sample| !sample.stack.iter().any(|frame| frame == "unregistered"))
        );
        let innermost_is_native = |stack: &[String]| {
            stack
                .last()
                .is_some_and(|frame| frame != "a" && frame != "deep")
        };
        assert!(
            samples
                .iter()
                .all(|sample| innermost_is_native(&sample.stack))
        );

        let forgotten = with("after_a_forgotten_guard (in");
        assert!(forgotten.len() > 30, "{}", forgotten.len());
        for stack in &forgotten {
            assert!(
                !stack
                    .iter()
                    .any(|frame| frame.contains("forgotten") && !frame.contains("(in ")),
                "{stack:#?}"
            );
        }
        // More labels than a capture has room for: the oldest of them are there, and the sample is.
        let counts = with("deep")
            .into_iter()
            .map(|stack| stack.iter().filter(|frame| *frame == "a").count());
        // Some samples may fall into the pushing itself.
        let full = counts.filter(|&count| count >= 1000).count();
        assert!(
            full > 30,
            "{full} samples with all the labels that there is room for"
        );

        let thread = read.thread("labels");
        let strings = thread["stringTable"].as_array().expect("strings");
        let category_of = |label: &str| {
            let frames = thread["frameTable"]["data"].as_array().expect("frames");
            let is_label = |frame: &&serde_json::Value| {
                strings[frame[0].as_u64().expect("index") as usize] == label
            };
            let frame = frames.iter().find(is_label).expect("the label's frame");
            (frame[6].as_u64(), frame[7].as_u64())
        };
        assert_eq!(category_of("outer label"), (Some(7), Some(6)));
        assert_eq!(category_of("inner label first.png"), (Some(6), Some(0)));
    });
}
