//! `alloc`: time to allocate and free 64 bytes through `ProfilerAllocator`, over the allocator inside
//! alone.
//!
//! Each arm is a process of its own. In it, batches of the bare allocator and of the wrapped one
//! alternate. An arm's figure is the difference of the two medians.
//!
//! `ours` counts and samples once in 512 KiB (`memory` and `nativeallocations`), its samples and the
//! search of each free among the live samples included; `counter` only counts, and `off` has no
//! session. `jemalloc` and `mimalloc` are `ours` with these allocators inside.
//!
//! The peers sample once in 512 KiB, too: `dial9_live` with its live set, as ours, and `dial9`
//! without; both need frame pointers, which this program lacks, so their stacks are short and cheap.
//! `jemalloc_own` is the profiling of jemalloc, on against off; it has no batches of another
//! allocator in its process.

use std::alloc::{GlobalAlloc, System};
use std::error::Error;
use std::ffi::OsStr;
use std::time::Instant;

use dial9_core::buffer::MemoryBuffer;
use dial9_core::recorder::recorder;
use dial9_perf_self_profile::memory_profiling::{
    Dial9Allocator, MemoryProfiler, MemoryProfilingConfig,
};
use gekkota::memory::ProfilerAllocator;
use gekkota::{Features, ProfilerSession, StartParams};
use mimalloc::MiMalloc;
use serde_json::{Value, json};
use tikv_jemallocator::Jemalloc;

use crate::machine::{self, load_note};
use crate::raw_alloc::{allocate, free};
use crate::report::{Arm, Report, median};
use crate::{Effort, Outcome, child};

const PAIRS: u32 = 500_000;
const GOAL_OFF: f64 = 0.3;
const GOAL_COUNTER: f64 = 2.0;
const GOAL_SAMPLING: f64 = 3.0;

/// Makes jemalloc profile itself, with the interval of the other arms.
const JEMALLOC_VARIABLE: &str = "_RJEM_MALLOC_CONF";
const JEMALLOC_PROFILES: &str = "prof:true,prof_active:true,lg_prof_sample:19";

/// Arms that are no peers: settings of ours, and the system's allocator alone.
const EXTRAS: [&str; 4] = ["off", "counter", "jemalloc", "mimalloc"];
const PEERS: [&str; 2] = ["dial9_live", "dial9"];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, batches) = if effort.quick { (3, 20) } else { (9, 60) };
    let mut ours = Arm::new("ours");
    let mut others: Vec<_> = PEERS.map(Arm::new).into();
    others.extend(EXTRAS.map(Arm::extra));
    let mut jemalloc_own = Arm::new("jemalloc_own");
    let mut bare = Arm::extra("bare");
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {PAIRS} pairs per arm; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let run = |mode: &str, variables: &[(&str, &OsStr)]| -> Result<[f64; 2], Box<dyn Error>> {
            let arguments = [mode.to_owned(), batches.to_string()];
            let answer = child::run_with_variables("alloc", &arguments, variables)?;
            let figure = |key: &str| answer[key].as_f64().ok_or("the answer lacks a figure");
            Ok([figure("bare")?, figure("wrapped")?])
        };
        let (runs, taken) = machine::watch(|| -> Result<(), Box<dyn Error>> {
            for arm in std::iter::once(&mut ours).chain(&mut others) {
                let [without, with] = run(arm.name, &[])?;
                arm.runs.push(with - without);
                if arm.name == "ours" {
                    bare.runs.push(without);
                }
            }
            let [_, off] = run("jemalloc_own", &[])?;
            let variable = (JEMALLOC_VARIABLE, OsStr::new(JEMALLOC_PROFILES));
            let [_, on] = run("jemalloc_own", &[variable])?;
            jemalloc_own.runs.push(on - off);
            Ok(())
        });
        runs?;
        notes.push(format!(
            "round {round}: CPUs used by other processes + the hypervisor: {taken}"
        ));
    }
    let figure = |name: &str| {
        let arm = others.iter().find(|arm| arm.name == name);
        arm.map_or(f64::NAN, Arm::figure)
    };
    let met = figure("off") <= GOAL_OFF
        && figure("counter") <= GOAL_COUNTER
        && ours.figure() <= GOAL_SAMPLING;
    others.push(jemalloc_own);
    others.push(bare);
    Ok(Report {
        unit: "ns per allocation and free of 64 bytes, more than the allocator alone",
        ours,
        peers: others,
        floor: None,
        better: f64::min,
        goal: "off <= 0.3 ns, counter <= 2 ns, ours <= 3 ns",
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

/// Returns the medians of a bare allocator and of a wrapped one.
fn medians(batches: u32, bare: &impl GlobalAlloc, wrapped: &impl GlobalAlloc) -> Value {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..batches {
        without.push(batch(bare));
        with.push(batch(wrapped));
    }
    json!({ "bare": median(&without), "wrapped": median(&with) })
}

fn session(features: Features) -> Result<ProfilerSession, Box<dyn Error>> {
    let features = Features::default_set() | features;
    Ok(ProfilerSession::start(
        StartParams::default().features(features),
    )?)
}

fn with_dial9(batches: u32, has_live_set: bool) -> Result<Value, Box<dyn Error>> {
    let recorder = recorder(MemoryBuffer::new(64 << 20)?).build();
    let config = MemoryProfilingConfig::builder()
        .sample_rate_bytes(512 << 10)
        .track_liveset(has_live_set)
        .fail_on_missing_frame_pointers(false)
        .build();
    let _guard = MemoryProfiler::from_config(config).install(recorder.handle().clone())?;
    Ok(medians(batches, &System, &Dial9Allocator::system()))
}

/// Measures one arm. Arguments: its name, and the number of batches.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [mode, batches] = arguments else {
        return Err("expected a mode and the number of batches".into());
    };
    let batches = batches.parse()?;
    let sampling = Features::MEMORY | Features::NATIVE_ALLOCATIONS;
    let _session = match mode.as_str() {
        "ours" | "jemalloc" | "mimalloc" => Some(session(sampling)?),
        "counter" => Some(session(Features::MEMORY)?),
        _ => None,
    };
    match mode.as_str() {
        "ours" | "counter" | "off" => Ok(medians(batches, &System, &crate::ALLOCATOR)),
        "jemalloc" => {
            let wrapped = ProfilerAllocator::new(Jemalloc);
            Ok(medians(batches, &Jemalloc, &wrapped))
        }
        "mimalloc" => {
            let wrapped = ProfilerAllocator::new(MiMalloc);
            Ok(medians(batches, &MiMalloc, &wrapped))
        }
        "dial9" | "dial9_live" => with_dial9(batches, mode == "dial9_live"),
        "jemalloc_own" => Ok(medians(batches, &Jemalloc, &Jemalloc)),
        other => Err(format!("unknown arm `{other}`").into()),
    }
}
