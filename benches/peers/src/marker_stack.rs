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
//! `no_stack` is the same marker without a stack. `capture` is `profiler_capture_backtrace` and a
//! drop. `backtrace` is the crate of that name, which unwinds immediately
//! (`Backtrace::new_unresolved`) and adds no marker.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use backtrace::Backtrace;
use gekkota::stack::{StackFrame, profiler_capture_backtrace};
use gekkota::{
    MarkerOptions, MarkerStack, ProfilerSession, StartParams, ThreadGuard, add_text_marker,
    gecko_profiler_category,
};
use serde_json::{Value, json};

use crate::busy::work;
use crate::machine::{self, load_note};
use crate::marker_arms::TEXT;
use crate::profile::{column, count, engine_of, threads, to_json};
use crate::report::{Arm, Report, least, median};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const FRAMES: usize = 30;
/// Calls per batch.
const CALLS: u32 = 16;
/// Time between batches, for the sampler to collect the stacks: at most 32 MiB of stacks may be
/// pending, and some dozens fit without an allocation.
const BETWEEN: Duration = Duration::from_millis(2);
/// Uncounted batches per arm.
const WARM_UP_BATCHES: usize = 5;
const GOAL_NANOSECONDS: f64 = 2_000.0;

const ARMS: [(&str, fn()); 4] = [
    ("ours", with_stack),
    ("backtrace", unwound_at_once),
    ("no_stack", without_stack),
    ("capture", captured),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, batches) = if effort.quick { (3, 50) } else { (9, 400) };
    let mut arms = ARMS.map(|(name, _)| match name {
        "ours" | "backtrace" => Arm::new(name),
        extra => Arm::extra(extra),
    });
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {CALLS} calls per arm, interleaved; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let (run, taken) = machine::watch(|| child::run("marker_stack", &[batches.to_string()]));
        let run = run?;
        for (index, arm) in arms.iter_mut().enumerate() {
            arm.runs.push(
                run["medians"][index]
                    .as_f64()
                    .ok_or("the child's answer lacks the figure of an arm")?,
            );
        }
        notes.push(format!(
            "round {round}: fastest batch of ours {:.0} ns; {} stacks of {FRAMES} frames, none lost, {} bytes below the call; engine: {}; CPUs used by \
             other processes + the hypervisor: {taken}",
            run["least"].as_f64().unwrap_or(f64::NAN),
            run["stacks"],
            run["bytes"],
            run["engine"].as_str().unwrap_or_default()
        ));
    }
    let [ours, peer, others @ ..] = arms;
    let met = ours.figure() <= GOAL_NANOSECONDS;
    Ok(Report {
        unit: "ns per call on a stack of 30 frames",
        ours,
        peers: std::iter::once(peer).chain(others).collect(),
        floor: None,
        better: f64::min,
        goal: "ours <= 2 µs",
        met,
        notes,
    })
}

/// Runs one round in the child process. Argument: the number of batches per arm.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [batches] = arguments else {
        return Err("expected the number of batches".into());
    };
    let batches = batches.parse::<usize>()? + WARM_UP_BATCHES;
    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
    let run = run_on_thread(batches)?;
    let profile = session.finish()?;
    let lost =
        count(&profile, "lost_marker_stacks").ok_or("the profile has no count of lost stacks")?;
    let engine = engine_of(&profile)?;
    let mut stacks = stacks_of_markers(&to_json(&profile)?)?;
    let expected = batches * CALLS as usize;
    if lost > 0 || stacks.len() != expected {
        return Err(format!(
            "cannot use the figures: got {} stacks, expected {expected}; {lost} lost",
            stacks.len()
        )
        .into());
    }
    stacks.retain(|frames| *frames != FRAMES);
    if let Some(other) = stacks.first() {
        return Err(format!(
            "cannot use the figures: {} stacks do not have {FRAMES} frames, one has {other}",
            stacks.len()
        )
        .into());
    }
    let medians = run
        .times
        .each_ref()
        .map(|times| median(&times[WARM_UP_BATCHES..]));
    Ok(json!({
        "medians": medians,
        "least": least(&run.times[0][WARM_UP_BATCHES..]),
        "stacks": expected,
        "bytes": run.stack_bytes,
        "engine": engine,
    }))
}

/// Runs the batches on a new thread, with [`FRAMES`] frames below the calls.
fn run_on_thread(batches: usize) -> Result<ThreadMeasurement, Box<dyn Error>> {
    let thread = std::thread::Builder::new().spawn(move || {
        let _registered = ThreadGuard::register("marker_stack");
        let top = StackAddress::here();
        let run_below = |more, batches| {
            let mut run = ThreadMeasurement::default();
            descend(more, &mut || run = ThreadMeasurement::of(batches, top));
            run
        };
        Some(run_below(
            FRAMES.checked_sub(run_below(0, 0).frames)?,
            batches,
        ))
    })?;
    Ok(thread
        .join()
        .map_err(|_| "the thread panicked")?
        .ok_or("the thread has more than 30 frames before the recursion")?)
}

/// An address in the calling thread's stack.
#[derive(Clone, Copy)]
struct StackAddress(usize);

impl StackAddress {
    fn here() -> Self {
        let local = 0u8;
        Self(black_box(&raw const local).addr())
    }

    fn bytes_to(self, deeper: Self) -> usize {
        self.0.abs_diff(deeper.0)
    }
}

#[derive(Default)]
struct ThreadMeasurement {
    /// Nanoseconds of a call: for each arm, one value per batch.
    times: [Vec<f64>; ARMS.len()],
    /// Frames from the arm's call to the thread's first function.
    frames: usize,
    stack_bytes: usize,
}

impl ThreadMeasurement {
    #[inline(never)]
    fn of(batches: usize, top: StackAddress) -> Self {
        let mut times: [Vec<f64>; ARMS.len()] = Default::default();
        let mut numbers = Box::new([0; 512]);
        let mut hash = 1;
        for batch in 0..batches {
            for turn in 0..ARMS.len() {
                let end = Instant::now() + BETWEEN;
                while Instant::now() < end {
                    hash = work(hash, &mut numbers);
                }
                let place = (batch + turn) % ARMS.len();
                let start = Instant::now();
                for _ in 0..CALLS {
                    ARMS[place].1();
                }
                times[place].push(start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
            }
        }
        black_box(hash);
        Self {
            times,
            frames: frames_below(),
            stack_bytes: top.bytes_to(StackAddress::here()),
        }
    }
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

/// Returns the number of frames of this function's stack. An arm that is called in its place has as
/// many.
#[inline(never)]
fn frames_below() -> usize {
    black_box(profiler_capture_backtrace()).map_or(0, |backtrace| {
        let native = |frame: &&StackFrame| matches!(frame, StackFrame::Native { .. });
        backtrace.resolve().frames().iter().filter(native).count()
    })
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
fn without_stack() {
    add_text_marker(
        "a marker",
        gecko_profiler_category!(Other),
        MarkerOptions::default(),
        TEXT,
    );
}

#[inline(never)]
fn captured() {
    drop(black_box(profiler_capture_backtrace()));
}

#[inline(never)]
fn unwound_at_once() {
    drop(black_box(Backtrace::new_unresolved()));
}

/// Returns the number of frames of each marker's stack.
fn stacks_of_markers(profile: &Value) -> Result<Vec<usize>, Box<dyn Error>> {
    let mut stacks = Vec::new();
    for thread in threads(profile) {
        let table =
            |table: &str, row| column(&thread[table], row).ok_or("the profile lacks a table");
        let locations: Vec<&Value> = table("frameTable", "location")?.collect();
        let mut depths: Vec<usize> = Vec::new();
        for (prefix, frame) in table("stackTable", "prefix")?.zip(table("stackTable", "frame")?) {
            let below = prefix
                .as_u64()
                .and_then(|prefix| depths.get(prefix as usize));
            let location = frame
                .as_u64()
                .and_then(|frame| locations.get(frame as usize)?.as_u64());
            let name =
                location.and_then(|location| thread["stringTable"][location as usize].as_str());
            // Names in parentheses are the root, or a note that outer frames are missing.
            let is_frame = name.is_some_and(|name| !name.starts_with('('));
            depths.push(below.copied().unwrap_or(0) + usize::from(is_frame));
        }
        for data in table("markers", "data")? {
            if let Some(stack) = data["stack"]["samples"]["data"][0][0].as_u64() {
                stacks.push(
                    *depths
                        .get(stack as usize)
                        .ok_or("a marker's stack is not in the stack table")?,
                );
            }
        }
    }
    Ok(stacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_on_thread_has_exactly_the_wanted_frames() {
        let run = run_on_thread(2).expect("a run");
        assert_eq!(run.frames, FRAMES);
        assert!(
            (3_000..20_000).contains(&run.stack_bytes),
            "{}",
            run.stack_bytes
        );
        assert!(run.times.iter().all(|times| times.len() == 2));
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
