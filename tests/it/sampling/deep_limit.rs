//! Of a deep stack at most 1 MiB is copied, however much is in use: the samples are marked as
//! truncated and counted, and so is a stack on demand.

use std::hint::black_box;

use crate::common::{Read, isolated};
use crate::sampling::places::Place;
use gekkota::stack::{StackFeatures, profiler_capture_backtrace};
use gekkota::{ProfilerSession, StartParams};

/// Number of samples to see of each thread.
const SAMPLES: usize = 20;
/// Number of frames, and the part of the stack that each one uses, in bytes.
const DEPTH: usize = 64;
const FRAME_BYTES: usize = 64 << 10;
/// Maximum number of frames that fit into 1 MiB.
const MAX_FRAMES: usize = (1 << 20) / FRAME_BYTES;

static BOTTOM: Place = Place::new("at the bottom");

#[inline(never)]
fn goes_deeper(depth: usize, body: fn()) -> usize {
    let own = [depth as u8; FRAME_BYTES];
    black_box(&own);
    match depth {
        1 => body(),
        _ => assert!(goes_deeper(depth - 1, body) > 0),
    }
    usize::from(own[depth % FRAME_BYTES])
}

fn works() {
    BOTTOM.work();
}

/// Runs a body on a registered thread, this many frames deep.
fn spawn(name: &'static str, depth: usize, body: fn()) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new()
        .stack_size(8 << 20)
        .spawn(move || {
            gekkota::register_thread(name);
            assert!(goes_deeper(depth, body) > 0);
        })
        .expect("spawn")
}

fn deep_frames<'a>(stack: impl Iterator<Item = &'a str>) -> usize {
    stack.filter(|frame| frame.contains("goes_deeper")).count()
}

#[test]
fn deep_stack_is_cut_at_1_mib_and_counted() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        for (name, depth) in [("flat", MAX_FRAMES / 2), ("deep", DEPTH)] {
            let thread = spawn(name, depth, works);
            BOTTOM.release_after(name, SAMPLES);
            thread.join().expect("thread");
        }
        let profile = session.finish().expect("profile");
        let read = Read::from_profile(&profile);
        let at_bottom = |name| {
            let mut samples = read.samples(name);
            samples.retain(|sample| sample.stack.iter().any(|frame| frame == "at the bottom"));
            assert!(samples.len() >= SAMPLES, "{name}: {}", samples.len());
            samples
        };
        for sample in at_bottom("flat") {
            let frames = deep_frames(sample.stack.iter().map(String::as_str));
            assert_eq!(
                (frames, sample.stack[0] == "(truncated)"),
                (MAX_FRAMES / 2, false)
            );
        }
        let deep = at_bottom("deep");
        for sample in &deep {
            let frames = deep_frames(sample.stack.iter().map(String::as_str));
            assert_eq!(sample.stack[0], "(truncated)");
            // The frames at both ends are copied in part.
            assert!(
                (MAX_FRAMES - 2..=MAX_FRAMES + 1).contains(&frames),
                "{frames} frames: {:?}",
                sample.stack
            );
        }
        let counted = read.count("too_deep_samples");
        assert!(counted >= deep.len() as u64, "{counted} of {}", deep.len());
        assert_eq!(read.0["meta"]["losses"]["too_deep_samples"], counted);
    });
}

#[test]
fn deep_backtrace_is_cut_at_1_mib() {
    isolated(|| {
        let captures = || {
            let backtrace = profiler_capture_backtrace().expect("memory");
            let stack = backtrace.resolve_with(StackFeatures::NATIVE);
            let names = stack
                .names()
                .iter()
                .flatten()
                .map(|name| name.name.as_str());
            let frames = deep_frames(names);
            assert!(stack.is_truncated());
            assert!(
                (MAX_FRAMES - 2..=MAX_FRAMES + 1).contains(&frames),
                "{frames} frames"
            );
        };
        spawn("deep", DEPTH, captures).join().expect("no panic");
    });
}
