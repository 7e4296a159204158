//! Labels are placed among the native frames where they were pushed, and misuse of a guard corrupts
//! nothing.

use crate::common::sampled::{WORKING, start_counter, work_until_sampled};
use crate::common::{Read, isolated, registered_threads_only};
use gekkota::{
    AutoProfilerLabel, ProfilerSession, auto_profiler_label, auto_profiler_label_dynamic,
};

/// Number of samples that each part of the test waits for.
const WANTED_SAMPLES: usize = 40;

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
    work_until_sampled(WANTED_SAMPLES);
    // The compiler merges functions with equal bodies. The file's name makes this body unique.
    std::hint::black_box(file!());
}

#[inline(never)]
fn after_a_forgotten_guard() {
    work_until_sampled(WANTED_SAMPLES);
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
fn labels_are_merged_by_their_position_on_the_stack() {
    isolated(|| {
        start_counter();
        let session = ProfilerSession::start(registered_threads_only()).expect("start");
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
            work_until_sampled(WANTED_SAMPLES);
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

        // A label comes just before the frame that pushed it, so the innermost frame is always
        // native.
        let with_work = |part: &str| {
            let mut stacks = with(part);
            stacks.retain(|stack| stack.iter().any(|frame| frame.contains(WORKING)));
            stacks
        };
        let in_leaf = with_work("placement::leaf (in");
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

        let forgotten = with_work("after_a_forgotten_guard (in");
        assert!(forgotten.len() > 30, "{}", forgotten.len());
        for stack in &forgotten {
            assert!(
                !stack
                    .iter()
                    .any(|frame| frame.contains("forgotten") && !frame.contains("(in ")),
                "{stack:#?}"
            );
        }
        // With more labels than fit into a capture, the sample contains the oldest of them.
        let counts = with("deep")
            .into_iter()
            .map(|stack| stack.iter().filter(|frame| *frame == "a").count());
        // Some samples may be from the time of pushing.
        let full = counts.filter(|&count| count >= 1000).count();
        assert!(full > 30, "{full} samples with as many labels as fit");

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
