//! `marker_stack`: time that adding a marker with a text and the caller's stack takes from the
//! calling thread, with 30 frames below the call.
//!
//! The thread calls a function recursively until there are 30 frames, including the thread's first
//! ones. Each recursive call keeps 104 bytes on the stack. A trial run finds the number of calls
//! that this takes. The session's profile shows whether all stacks have 30 frames and none was
//! lost.
//!
//! A batch is 16 calls in a row, and its figure is their mean. Between batches the thread works for
//! two sampler intervals, so that the sampler collects the stacks, as it does at a rate of markers
//! that is still readable in a profile. The arms are interleaved in one process. A run's figure is
//! the median of its arm's batches, and each round is a separate process. Our figures do not
//! include the unwinding, which the sampler does later.
//!
//! `backtrace` is the crate of that name, which unwinds immediately (`Backtrace::new_unresolved`)
//! and adds no marker.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use backtrace::Backtrace;
use gekkota::stack::{StackFrame, profiler_capture_backtrace};
use gekkota::{MarkerOptions, MarkerStack, add_text_marker, gecko_profiler_category};

use crate::busy::work;
use crate::marker::TEXT;
use crate::prelude::*;
use crate::profile::{Tables, column, threads};
use crate::turns::{Arm, Turns};

const FRAMES: usize = 30;
/// Calls per batch.
const CALLS: u32 = 16;
/// Time between batches, for the sampler to collect the stacks: at most 32 MiB of stacks may be
/// pending, and some dozens fit without an allocation.
const BETWEEN: Duration = Duration::from_millis(2);
/// Uncounted batches per arm.
const WARM_UP_BATCHES: usize = 5;

const ARMS: [Arm<()>; 2] = [
    ("ours", |_| Ok(batch(with_stack))),
    ("backtrace", |_| Ok(batch(unwound_at_once))),
];

const TRIAL: [Arm<()>; 1] = [("frames", |_| Ok(batch(count_frames)))];
static FOUND: AtomicUsize = AtomicUsize::new(0);

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "marker_stack",
    unit: "ns per call on a stack of 30 frames",
    goal: "ours <= 2 µs",
    peers: &["backtrace"],
    is_met: |study| study.at_most(&["ours"], 2000.0),
    rounds: [3, 9],
    sizes: [&[50], &[400]],
    size_names: &["batches of 16 calls per arm"],
    part: run,
    ..Measurement::NEW
};

/// Runs one round. Arguments: the arm, which is all, and the number of batches per arm.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let batches: usize = arguments.get(1)?;
    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
    let turns = run_on_thread(batches)?;
    let profile = session.finish()?;
    let lost = Counts::of(&profile).get("lost_marker_stacks");
    let stacks = stacks_of_markers(&to_json(&profile)?)?;
    let expected = (batches + WARM_UP_BATCHES) * CALLS as usize;
    let others = stacks.iter().filter(|frames| **frames != FRAMES).count();
    if lost > 0.0 || stacks.len() != expected || others > 0 {
        return Err(format!(
            "cannot use the figures: got {} stacks, {others} of them without {FRAMES} frames, expected {expected}; {lost} lost",
            stacks.len()
        )
        .into());
    }
    Ok(turns.answer())
}

/// Runs the batches on a new thread, with [`FRAMES`] frames below the calls.
fn run_on_thread(batches: usize) -> Fallible<Turns> {
    let thread = std::thread::Builder::new().spawn(move || {
        let _registered = ThreadGuard::register("marker_stack");
        descend(0, &mut || drop(run_turns(1, &TRIAL)));
        let more = FRAMES.checked_sub(FOUND.load(Ordering::Relaxed));
        let more = more.ok_or("the thread has more than 30 frames before the recursion")?;
        let mut turns = Err("no batches".to_owned());
        descend(more, &mut || {
            // One after another, so that both have as many frames below them.
            turns = run_turns(WARM_UP_BATCHES, &ARMS);
            if turns.is_ok() {
                turns = run_turns(batches, &ARMS);
            }
        });
        turns
    })?;
    Ok(thread.join().map_err(|_| "the thread panicked")??)
}

#[inline(never)]
fn run_turns(batches: usize, arms: &[Arm<()>]) -> Result<Turns, String> {
    Turns::run(batches, arms, &()).map_err(|error| error.to_string())
}

/// Calls `then` with `more` additional frames.
#[inline(never)]
fn descend(more: usize, then: &mut dyn FnMut()) {
    // About as much as an ordinary function keeps on its stack.
    let kept = black_box([more as u64; 13]);
    if more == 0 {
        then()
    } else {
        descend(more - 1, then)
    }
    black_box(kept);
}

/// Finds the number of frames of this function's stack. An arm that is called in its place has as
/// many.
#[inline(never)]
fn count_frames() {
    let frames = black_box(profiler_capture_backtrace()).map_or(0, |backtrace| {
        let native = |frame: &&StackFrame| matches!(frame, StackFrame::Native { .. });
        backtrace.resolve().frames().iter().filter(native).count()
    });
    FOUND.store(frames, Ordering::Relaxed);
}

/// Works until the sampler has collected the stacks of earlier calls, and then returns the
/// nanoseconds of a call.
#[inline(never)]
fn batch(call: fn()) -> f64 {
    let end = Instant::now() + BETWEEN;
    // On the heap, because a stack is copied up to the thread's start.
    let (mut hash, mut numbers) = (1, Box::new([0; 512]));
    while Instant::now() < end {
        hash = work(hash, &mut numbers);
    }
    black_box(hash);
    let start = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

#[inline(never)]
fn with_stack() {
    let options = MarkerOptions {
        stack: MarkerStack::Full,
        ..MarkerOptions::default()
    };
    add_text_marker("a marker", gecko_profiler_category!(Other), options, TEXT);
}

#[inline(never)]
fn unwound_at_once() {
    drop(black_box(Backtrace::new_unresolved()));
}

/// Returns the number of frames of each marker's stack.
fn stacks_of_markers(profile: &Value) -> Fallible<Vec<usize>> {
    let mut stacks = Vec::new();
    for thread in threads(profile) {
        let depths = Tables(thread).stacks(|below: Option<&usize>, frame| {
            // Names in parentheses are the root, or a note that outer frames are missing.
            below.copied().unwrap_or(0) + usize::from(!frame.name.starts_with('('))
        });
        let data = column(&thread["markers"], "data");
        let (depths, data) = depths.zip(data).ok_or("the profile lacks a table")?;
        let of_markers = data.map(|data| data["stack"]["samples"]["data"][0][0].as_u64());
        stacks.extend(of_markers.flatten().map(|stack| depths[stack as usize]));
    }
    Ok(stacks)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn run_has_exactly_the_wanted_frames() {
        run(&Arguments(["ours", "2"].map(str::to_owned).into())).expect("a run");
    }

    #[test]
    fn stacks_of_markers_skips_root_and_truncation() {
        let profile = json!({"threads": [{
            "stringTable": ["(root)", "0x12", "(truncated)"],
            "frameTable": {"schema": {"location": 0}, "data": [[0], [1], [2]]},
            "stackTable": {"schema": {"prefix": 0, "frame": 1}, "data": [[null, 0], [0, 1], [1, 1], [0, 2], [3, 1]]},
            "markers": {"schema": {"data": 1}, "data": [
                [0, {"stack": {"samples": {"data": [[2, 1.5, 0]]}}}],
                [0, {"type": "Text"}],
                [0, {"stack": {"samples": {"data": [[4, 2.5, 0]]}}}],
            ]},
        }]});
        assert_eq!(stacks_of_markers(&profile).expect("stacks"), [2, 1]);
    }
}
