//! `alloc`: time to allocate and free 64 bytes through `ProfilerAllocator`, over the system's
//! allocator alone.
//!
//! Each arm is a process of its own. In it, batches of the bare allocator and of the wrapped one
//! alternate. An arm's figure is the difference of the two medians.
//!
//! `ours` counts (feature `memory`); `off` has no session, and `sampling` counts and samples once in
//! 512 KiB (`memory` and `nativeallocations`), its samples included.

use std::alloc::{GlobalAlloc, System};
use std::error::Error;
use std::time::Instant;

use gekkota::{Features, ProfilerSession, StartParams};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::raw_alloc::{allocate, free};
use crate::report::{Arm, Report, median};
use crate::{Effort, Outcome, child};

const PAIRS: u32 = 500_000;
const GOAL_OFF: f64 = 0.3;
const GOAL_COUNTER: f64 = 2.0;
const GOAL_SAMPLING: f64 = 3.0;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, batches) = if effort.quick { (3, 20) } else { (9, 60) };
    let mut ours = Arm::new("ours");
    let mut off = Arm::extra("off");
    let mut sampling = Arm::extra("sampling");
    let mut bare = Arm::extra("bare");
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {PAIRS} pairs per arm; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let run = |mode: &str| -> Result<[f64; 2], Box<dyn Error>> {
            let answer = child::run("alloc", &[mode.to_owned(), batches.to_string()])?;
            let figure = |key: &str| answer[key].as_f64().ok_or("the answer lacks a figure");
            Ok([figure("bare")?, figure("wrapped")?])
        };
        let (runs, taken) = machine::watch(|| {
            Ok::<_, Box<dyn Error>>([run("off")?, run("counter")?, run("sampling")?])
        });
        let runs = runs?;
        for (arm, [without, with]) in [&mut off, &mut ours, &mut sampling].into_iter().zip(runs) {
            arm.runs.push(with - without);
            bare.runs.push(without);
        }
        notes.push(format!(
            "round {round}: CPUs used by other processes + the hypervisor: {taken}"
        ));
    }
    let met = off.figure() <= GOAL_OFF
        && ours.figure() <= GOAL_COUNTER
        && sampling.figure() <= GOAL_SAMPLING;
    Ok(Report {
        unit: "ns per allocation and free of 64 bytes, more than the allocator alone",
        ours,
        peers: vec![off, sampling, bare],
        floor: None,
        better: f64::min,
        goal: "off <= 0.3 ns, ours <= 2 ns, sampling <= 3 ns",
        met,
        notes,
    })
}

/// Returns the nanoseconds of an allocation and its free.
fn batch(allocator: &impl GlobalAlloc) -> f64 {
    let begin = Instant::now();
    for _ in 0..PAIRS {
        free(allocator, allocate(allocator, 64));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

/// Measures one arm. Arguments: its mode, and the number of batches.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [mode, batches] = arguments else {
        return Err("expected a mode and the number of batches".into());
    };
    let features = match mode.as_str() {
        "counter" => Some(Features::MEMORY),
        "sampling" => Some(Features::MEMORY | Features::NATIVE_ALLOCATIONS),
        _ => None,
    };
    let session = features
        .map(|features| {
            let features = Features::default_set() | features;
            ProfilerSession::start(StartParams::default().features(features))
        })
        .transpose()?;
    let (mut bare, mut wrapped) = (Vec::new(), Vec::new());
    for _ in 0..batches.parse::<u32>()? {
        bare.push(batch(&System));
        wrapped.push(batch(&crate::ALLOCATOR));
    }
    drop(session);
    Ok(json!({ "bare": median(&bare), "wrapped": median(&wrapped) }))
}
