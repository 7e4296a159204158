//! `alloc_truth`: the bytes that the samples estimate for each call site, against the true ones.
//!
//! 10,000,000 allocations of 16 to 4,096 bytes at 16 call sites. One in 4 stays alive. The call
//! sites count what they allocate. The figure of `ours` is the largest error of a site with more
//! than 1 % of the bytes; `alive` is that of the bytes that stay alive, and `total` the error of all
//! sites together. A profile has all allocations, and a snapshot of the heap only the live ones.

use gekkota::memory::profiler_heap_snapshot;
use gekkota::profile::Format;
use gekkota::{Features, Profile};

use crate::prelude::*;
use crate::profile::{Tables, column, threads};
use crate::random::Random;
use crate::raw_alloc::{ALLOCATOR, Memory, allocate, free};

const ALLOCATIONS: u64 = 10_000_000;
const SITES: usize = 16;
const INTERVAL_BYTES: u64 = 16 << 10;
/// A site with a smaller share of the bytes is not compared.
const MIN_SHARE: f64 = 0.01;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "alloc_truth",
    unit: "% that the estimate of a call site is wrong",
    goal: "each site above 1 % of the bytes within 5 %, allocated and alive; total within 1 %",
    is_met: |study| study.at_most(&["ours", "alive"], 5.0) && study.at_most(&["total"], 1.0),
    rounds: [1, 5],
    part: run,
    ..Measurement::LONG
};

/// Bytes of each site.
type Bytes = [f64; SITES];

type Allocate = fn(usize) -> Memory;

/// Defines functions that allocate, one for each call site.
macro_rules! sites {
    ($($name:ident)*) => {
        $(
            #[inline(never)]
            fn $name(bytes: usize) -> Memory {
                // Keeps the sites apart: the compiler merges equal functions.
                std::hint::black_box(stringify!($name));
                allocate(&ALLOCATOR, bytes)
            }
        )*
        const ALLOCATE: [Allocate; SITES] = [$($name),*];
    };
}

sites! {
    site_0 site_1 site_2 site_3 site_4 site_5 site_6 site_7 site_8 site_9 site_10 site_11 site_12
    site_13 site_14 site_15
}

/// Makes the allocations. Returns the true bytes that were allocated and that stay alive, and the
/// latter.
fn run_sites() -> (Bytes, Bytes, Vec<Memory>) {
    let (mut allocated, mut alive) = (Bytes::default(), Bytes::default());
    let mut kept = Vec::new();
    let mut random = Random::new(88_172_645_463_325_253);
    for _ in 0..ALLOCATIONS {
        let number = random.next();
        // The first sites allocate more often than the last ones.
        let index = (number % SITES as u64).min(number >> 8 & 15) as usize;
        let size = 16usize << (number >> 16 & 7) | (number >> 24 & 15) as usize;
        let memory = ALLOCATE[index](size);
        allocated[index] += size as f64;
        if number >> 32 & 3 == 0 {
            alive[index] += size as f64;
            kept.push(memory);
        } else {
            free(&ALLOCATOR, memory);
        }
    }
    (allocated, alive, kept)
}

/// Returns the estimated bytes of each site: the sum of the sampled allocations.
fn estimates(profile: &Profile) -> Fallible<Bytes> {
    let mut text = Vec::new();
    profile.write(Format::Gecko, &mut text)?;
    let profile: Value = serde_json::from_slice(&text)?;
    let mut sums = Bytes::default();
    for thread in threads(&profile) {
        let sites = Tables(thread).stacks(|below: Option<&Option<usize>>, frame| {
            // The name of the module follows.
            let number = frame.name.split("::site_").nth(1);
            let number = number.and_then(|rest| rest.split(' ').next()?.parse().ok());
            number.or(below.copied().flatten())
        });
        let data = column(&thread["markers"], "data");
        let (sites, data) = sites.zip(data).ok_or("the profile lacks a table")?;
        for data in data.filter(|data| data["type"] == "Native allocation") {
            let stack = data["stack"]["samples"]["data"][0][0].as_u64();
            if let Some(site) = stack.and_then(|stack| sites[stack as usize]) {
                sums[site] += data["size"].as_f64().unwrap_or_default().max(0.0);
            }
        }
    }
    Ok(sums)
}

/// Returns the largest error of a site, and the error of all, in %.
fn errors(estimated: &[f64], truth: &[f64]) -> (f64, f64) {
    let error = |estimate: f64, truth: f64| 100.0 * (estimate / truth - 1.0).abs();
    let all: f64 = truth.iter().sum();
    let of_sites = estimated.iter().zip(truth);
    let large = of_sites.filter(|(_, truth)| **truth > MIN_SHARE * all);
    let largest = large.map(|(estimate, truth)| error(*estimate, *truth));
    (
        largest.fold(0.0, f64::max),
        error(estimated.iter().sum(), all),
    )
}

/// Measures once.
fn run(_: &Arguments) -> Fallible<Value> {
    register_thread("main");
    let params = StartParams::default()
        .features(Features::STACK_WALK | Features::NATIVE_ALLOCATIONS)
        .capacity_bytes(2 << 30)
        .allocation_interval_bytes(INTERVAL_BYTES);
    let session = ProfilerSession::start(params)?;
    let (allocated, alive, kept) = run_sites();
    let heap = profiler_heap_snapshot().ok_or("no snapshot of the heap")?;
    let profile = session.finish()?;
    let (site, total) = errors(&estimates(&profile)?, &allocated);
    let (alive, alive_total) = errors(&estimates(&heap)?, &alive);
    kept.into_iter().for_each(|memory| free(&ALLOCATOR, memory));
    Ok(json!({ "ours": site, "alive": alive, "total": total.max(alive_total) }))
}
