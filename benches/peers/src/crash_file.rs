//! `crash_file`: time to add a marker and to take a sample with a crash file, relative to none.
//!
//! The arms' batches are interleaved in one process, and their order rotates. Each batch is a session
//! of its own, at 1,000 Hz: with a crash file on a disk (`ours`), and without. The figures of markers
//! are ns per untyped marker, and per marker with two numbers (`typed…`); those of samples are ns of
//! the sampler's CPU time per sample of a busy thread.

use std::hint::black_box;

use gekkota::{
    MarkerOptions, add_marker, add_untyped_marker, gecko_profiler_category, marker_type,
    unregister_thread,
};

use crate::batch::batch;
use crate::prelude::*;

const CAPACITY_BYTES: u64 = 4 << 20;
/// Rounds of eight markers in a batch.
const ROUNDS: u32 = 10_000;
/// Batches after which the buffer is full.
const FILLING_BATCHES: usize = 8;
/// How long a busy thread is sampled in a batch.
const SAMPLED: Duration = Duration::from_millis(100);

/// Pairs of arms: with a file, and without.
const ARMS: [[&str; 2]; 3] = [
    ["ours", "without"],
    ["typed", "typed_without"],
    ["sample", "sample_without"],
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "crash_file",
    unit: "ns per marker; of the sampler's CPU time per sample",
    goal: "with a crash file at most 1.05 times the cost without one",
    peers: &["without"],
    is_met: |study| {
        ARMS.iter()
            .all(|[with, without]| study.at_most(&[with], 1.05 * study.figure(without)))
    },
    rounds: [2, 7],
    sizes: [&[10], &[40]],
    size_names: &["batches of 80,000 markers per arm"],
    part: run,
    ..Measurement::NEW
};

marker_type! {
    struct Small {
        number: u64 => "Number", Integer;
        share: f64 => "Share", Percentage;
    }
}

/// Runs one round. Arguments: the arm, which is all, and the number of batches per arm.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let mut figures: [[Vec<f64>; 2]; 3] = Default::default();
    for batch in 0..arguments.get(1)? {
        for turn in 0..2 {
            let place = (batch + turn) % 2;
            for (kind, figure) in run_batch(place == 0)?.into_iter().enumerate() {
                figures[kind][place].push(figure);
            }
        }
    }
    let mut answer = json!({});
    for (arm, figures) in ARMS.as_flattened().iter().zip(figures.as_flattened()) {
        answer[arm] = json!(median(figures));
    }
    Ok(answer)
}

/// Returns the figures of one session, by kind.
fn run_batch(has_file: bool) -> Fallible<[f64; 3]> {
    let mut params = StartParams::default()
        .interval(INTERVAL)
        .capacity_bytes(CAPACITY_BYTES);
    if has_file {
        let name = format!("gekkota-crash-file-{}", std::process::id());
        params = params.crash_file(std::env::current_dir()?.join(name));
    }
    let session = ProfilerSession::start(params)?;
    register_thread("crash_file");
    // Until the buffer is full, the first store to each of its pages costs a page fault, which takes
    // longer in a file on a disk.
    (0..FILLING_BATCHES).for_each(|_| _ = untyped());
    let untyped = untyped();
    typed();
    let typed = typed();
    let before = Counts::of(&session.snapshot()?);
    let begin = Instant::now();
    while begin.elapsed() < SAMPLED {
        black_box(());
    }
    let counts = Counts::of(&session.snapshot()?).since(&before);
    unregister_thread();
    drop(session);
    let samples = counts.get("captured_samples").max(1.0);
    Ok([untyped, typed, counts.get("sampler_cpu_ns") / samples])
}

#[inline(never)]
fn untyped() -> f64 {
    batch!(
        ROUNDS,
        add_untyped_marker(
            "a marker",
            gecko_profiler_category!(Other),
            MarkerOptions::default()
        )
    )
}

#[inline(never)]
fn typed() -> f64 {
    batch!(
        ROUNDS,
        add_marker(
            "a marker",
            gecko_profiler_category!(Other),
            MarkerOptions::default(),
            Small {
                number: black_box(12345),
                share: 0.25
            }
        )
    )
}
