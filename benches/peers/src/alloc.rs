//! `alloc`: time to allocate and free 64 bytes through `ProfilerAllocator`, minus the time with
//! only the inner allocator.
//!
//! Each arm is a process of its own. In it, batches of the bare allocator and of the wrapped one
//! alternate. An arm's figure is the difference of the two medians.
//!
//! `ours` counts and samples once in 512 KiB (`memory` and `nativeallocations`), its samples and the
//! search of each free among the live samples included; `counter` only counts, and `off` has no
//! session. `jemalloc` is `ours` with that allocator inside. `bare` is only the system's allocator.
//!
//! The peers sample once in 512 KiB, too: `dial9_live` with its live set, as ours, and `dial9`
//! without; both need frame pointers, which this program lacks, so their stacks are short and cheap.
//! `jemalloc_own` is the profiling of jemalloc, on against off; it has no batches of another
//! allocator in its process.

use std::alloc::{GlobalAlloc, System};

use dial9_core::buffer::MemoryBuffer;
use dial9_core::recorder::recorder;
use dial9_perf_self_profile::memory_profiling::{
    Dial9Allocator, MemoryProfiler, MemoryProfilingConfig,
};
use gekkota::Features;
use gekkota::memory::ProfilerAllocator;
use tikv_jemallocator::Jemalloc;

use crate::prelude::*;
use crate::raw_alloc::{ALLOCATOR, allocate, free};

const PAIRS: u32 = 500_000;
const ARMS: [&str; 6] = ["ours", "dial9_live", "dial9", "off", "counter", "jemalloc"];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "alloc",
    unit: "ns per allocation and free of 64 bytes, more than the allocator alone",
    goal: "off <= 0.3 ns, counter <= 2 ns, ours <= 3 ns",
    peers: &["dial9_live", "dial9", "jemalloc_own"],
    is_met: |study| {
        let goals = [("off", 0.3), ("counter", 2.0), ("ours", 3.0)];
        goals.iter().all(|(arm, goal)| study.at_most(&[arm], *goal))
    },
    measure: |study| {
        let batches = study.pick(20, 60);
        let about = format!("{batches} batches of {PAIRS} pairs per arm");
        study.rounds(study.pick(3, 9), about, |study, _| {
            for arm in ARMS {
                let run = child::run("alloc", &[&arm, &batches])?;
                let bare = number(&run, "bare")?;
                study.push(arm, number(&run, "wrapped")? - bare);
                if arm == "ours" {
                    study.push("bare", bare);
                }
            }
            // Makes jemalloc profile itself, with the interval of the other arms.
            let mut command = child::command("alloc", &[&"jemalloc_own", &batches])?;
            command.env(
                "_RJEM_MALLOC_CONF",
                "prof:true,prof_active:true,lg_prof_sample:19",
            );
            let on = number(&child::answer_of(command)?, "wrapped")?;
            let off = child::run("alloc", &[&"jemalloc_own", &batches])?;
            study.push("jemalloc_own", on - number(&off, "wrapped")?);
            Ok(())
        })
    },
    part: run,
    ..Measurement::NEW
};

/// Returns the nanoseconds of an allocation and its free.
fn batch(allocator: &impl GlobalAlloc) -> f64 {
    let begin = Instant::now();
    for _ in 0..PAIRS {
        free(allocator, allocate(allocator, 64));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

/// Returns the medians of a bare allocator and of a wrapped one.
fn medians(batches: u32, bare: &impl GlobalAlloc, wrapped: &impl GlobalAlloc) -> [f64; 2] {
    let pairs = (0..batches).map(|_| (batch(bare), batch(wrapped)));
    let (without, with): (Vec<f64>, Vec<f64>) = pairs.unzip();
    [median(&without), median(&with)]
}

fn with_dial9(batches: u32, has_live_set: bool) -> Fallible<[f64; 2]> {
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
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (mode, batches) = (arguments.text(0)?, arguments.get(1)?);
    let features = match mode {
        "ours" | "jemalloc" => Some(Features::MEMORY | Features::NATIVE_ALLOCATIONS),
        "counter" => Some(Features::MEMORY),
        _ => None,
    };
    let start = |features| {
        let features = Features::default_set() | features;
        ProfilerSession::start(StartParams::default().features(features))
    };
    let _session = features.map(start).transpose()?;
    let [bare, wrapped] = match mode {
        "ours" | "counter" | "off" => medians(batches, &System, &ALLOCATOR),
        "jemalloc" => medians(batches, &Jemalloc, &ProfilerAllocator::new(Jemalloc)),
        "dial9" | "dial9_live" => with_dial9(batches, mode == "dial9_live")?,
        "jemalloc_own" => medians(batches, &Jemalloc, &Jemalloc),
        other => return Err(format!("unknown arm `{other}`").into()),
    };
    Ok(json!({ "bare": bare, "wrapped": wrapped }))
}
