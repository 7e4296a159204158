//! A stack of ten thousand frames is complete. One that is too deep keeps its younger end and is
//! marked as truncated.

use std::hint::black_box;
use std::time::Duration;

use crate::common::{self, Read, isolated};
use crate::sampling::places::Place;
use gekkota::{ProfilerSession, StartParams};

/// Number of samples to see at the bottom of each stack.
const SAMPLES: usize = 50;
/// Time between two samples. The test reads all stacks again and again, so on a busy machine it would
/// need gigabytes for those of a shorter interval.
const INTERVAL: Duration = Duration::from_millis(20);

static BOTTOM: Place = Place::new("at the bottom");

#[inline(never)]
fn goes_deeper(depth: usize) -> usize {
    // Frames with different contents, so that no part of the stack equals another.
    let own = black_box([depth; 4]);
    match depth {
        1 => works_at_the_bottom(),
        depth => goes_deeper(depth - 1) + own[depth % 4],
    }
}

#[inline(never)]
fn works_at_the_bottom() -> usize {
    BOTTOM.work();
    black_box(1)
}

#[test]
fn deep_stacks_are_complete_and_too_deep_ones_are_marked() {
    isolated(|| {
        let params = StartParams::default().interval(INTERVAL);
        let session = ProfilerSession::start(params).expect("start");
        for (name, depth) in [("deep", 10_000), ("too deep", 40_000)] {
            let body = move || {
                gekkota::register_thread(name);
                assert!(goes_deeper(depth) > depth);
            };
            let thread = std::thread::Builder::new()
                .stack_size(64 << 20)
                .spawn(body)
                .expect("spawn");
            BOTTOM.release_after(name, SAMPLES);
            thread.join().expect("thread");
        }
        let read = Read::from_profile(&session.finish().expect("profile"));
        println!(
            "{:.1} ns a frame",
            read.count("unwind_ns") as f64 / read.count("unwound_frames") as f64
        );
        let bottom = |name| {
            let at_the_bottom = |sample: &common::Sample| {
                sample
                    .stack
                    .iter()
                    .any(|frame| frame.contains("works_at_the_bottom"))
            };
            let samples: Vec<_> = read
                .samples(name)
                .into_iter()
                .filter(at_the_bottom)
                .collect();
            assert!(
                samples.len() >= SAMPLES,
                "{}: {} samples",
                name,
                samples.len()
            );
            samples
        };
        let depth_of = |sample: &common::Sample| {
            sample
                .stack
                .iter()
                .filter(|frame| frame.contains("goes_deeper"))
                .count()
        };
        for sample in bottom("deep") {
            assert_eq!(
                (depth_of(&sample), sample.stack[0].as_str() == "(truncated)"),
                (10_000, false)
            );
        }
        for sample in bottom("too deep") {
            assert_eq!(sample.stack[0], "(truncated)");
            assert!(
                (16_000..40_000).contains(&depth_of(&sample)),
                "{} frames",
                depth_of(&sample)
            );
        }
    });
}
