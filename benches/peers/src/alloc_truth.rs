//! `alloc_truth`: the bytes that the samples estimate for each call site, against the true ones.
//!
//! 10,000,000 allocations of 16 to 4,096 bytes at 16 call sites. One in 4 stays alive. The call
//! sites count what they allocate. The figure of `ours` is the largest error of a site with more
//! than 1 % of the bytes; `alive` is that of the bytes that stay alive, and `total` the error of all
//! sites together. A profile has the allocations, and a snapshot of the heap those that are alive.

use std::error::Error;

use gekkota::memory::profiler_heap_snapshot;
use gekkota::profile::Format;
use gekkota::{Features, Profile, ProfilerSession, StartParams, register_thread};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::raw_alloc::{Memory, allocate, free};
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const ALLOCATIONS: u64 = 10_000_000;
const SITES: usize = 16;
const INTERVAL_BYTES: u64 = 16 << 10;
/// A site with a smaller share of the bytes is not compared.
const MIN_SHARE: f64 = 0.01;
const GOAL_SITE: f64 = 5.0;
const GOAL_TOTAL: f64 = 1.0;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let rounds = if effort.quick { 1 } else { 5 };
    let mut ours = Arm::new("ours");
    let mut alive = Arm::extra("alive");
    let mut total = Arm::extra("total");
    let mut notes = vec![format!("{rounds} rounds; {}", load_note())];
    for round in 1..=rounds {
        let (answer, taken) = machine::watch(|| child::run("alloc_truth", &[]));
        let answer = answer?;
        let figure = |key: &str| answer[key].as_f64().ok_or("the answer lacks a figure");
        ours.runs.push(figure("site")?);
        alive.runs.push(figure("alive")?);
        total.runs.push(figure("total")?);
        notes.push(format!(
            "round {round}: {}; CPUs used by other processes + the hypervisor: {taken}",
            answer["note"].as_str().unwrap_or_default()
        ));
    }
    let met =
        ours.figure() <= GOAL_SITE && alive.figure() <= GOAL_SITE && total.figure() <= GOAL_TOTAL;
    Ok(Report {
        unit: "% that the estimate of a call site is wrong",
        ours,
        peers: vec![alive, total],
        floor: None,
        better: f64::min,
        goal: "each site above 1 % of the bytes within 5 %, allocated and alive; total within 1 %",
        met,
        notes,
    })
}

struct Site {
    allocated: u64,
    alive: u64,
}

type Allocate = fn(usize) -> Memory;

/// Defines functions that allocate, one for each call site.
macro_rules! sites {
    ($($name:ident)*) => {
        $(
            #[inline(never)]
            fn $name(bytes: usize) -> Memory {
                // Keeps the sites apart: the compiler merges equal functions.
                std::hint::black_box(stringify!($name));
                allocate(&crate::ALLOCATOR, bytes)
            }
        )*
        const ALLOCATE: [Allocate; SITES] = [$($name),*];
    };
}

sites! {
    site_0 site_1 site_2 site_3 site_4 site_5 site_6 site_7 site_8 site_9 site_10 site_11 site_12
    site_13 site_14 site_15
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Makes the allocations, and returns the true bytes of each site, and what stays alive.
fn run_sites() -> (Vec<Site>, Vec<Memory>) {
    let mut sites: Vec<_> = (0..SITES)
        .map(|_| Site {
            allocated: 0,
            alive: 0,
        })
        .collect();
    let mut kept = Vec::new();
    let mut random = 88_172_645_463_325_252;
    for _ in 0..ALLOCATIONS {
        let number = next_random(&mut random);
        // The first sites allocate more often than the last ones.
        let index = (number % SITES as u64).min(number >> 8 & 15) as usize;
        let size = 16usize << (number >> 16 & 7) | (number >> 24 & 15) as usize;
        let memory = ALLOCATE[index](size);
        sites[index].allocated += size as u64;
        if number >> 32 & 3 == 0 {
            sites[index].alive += size as u64;
            kept.push(memory);
        } else {
            free(&crate::ALLOCATOR, memory);
        }
    }
    (sites, kept)
}

/// Returns the estimated bytes of each site: the sum of the sampled allocations.
fn estimates(profile: &Profile) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut text = Vec::new();
    profile.write(Format::Gecko, &mut text)?;
    let profile: Value = serde_json::from_slice(&text)?;
    let mut sums = vec![0.0; SITES];
    let rows = |table: &Value| table["data"].as_array().cloned().unwrap_or_default();
    for thread in profile["threads"].as_array().into_iter().flatten() {
        let strings = thread["stringTable"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let (stacks, frames) = (rows(&thread["stackTable"]), rows(&thread["frameTable"]));
        let site_of = |stack: &Value| {
            let mut next = stack.as_u64();
            while let Some(index) = next {
                let row = &stacks[index as usize];
                let frame = &frames[row[1].as_u64()? as usize];
                let name = strings[frame[0].as_u64()? as usize].as_str()?;
                // The name of the module follows.
                let number = name.split("::site_").nth(1);
                let number = number.and_then(|rest| rest.split(' ').next());
                if let Some(site) = number.and_then(|number| number.parse::<usize>().ok()) {
                    return Some(site);
                }
                next = row[0].as_u64();
            }
            None
        };
        for marker in rows(&thread["markers"]) {
            let data = &marker[5];
            let bytes = data["size"].as_f64().unwrap_or_default();
            if data["type"] != "Native allocation" || bytes <= 0.0 {
                continue;
            }
            if let Some(site) = site_of(&data["stack"]["samples"]["data"][0][0]) {
                sums[site] += bytes;
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
pub(crate) fn run_part(_: &[String]) -> Result<Value, Box<dyn Error>> {
    register_thread("main");
    let params = StartParams::default()
        .features(Features::STACK_WALK | Features::NATIVE_ALLOCATIONS)
        .capacity_bytes(2 << 30)
        .allocation_interval_bytes(INTERVAL_BYTES);
    let session = ProfilerSession::start(params)?;
    let (sites, kept) = run_sites();
    let heap = profiler_heap_snapshot().ok_or("no snapshot of the heap")?;
    let profile = session.finish()?;
    let truth =
        |of: fn(&Site) -> u64| -> Vec<f64> { sites.iter().map(|site| of(site) as f64).collect() };
    let (site, total) = errors(&estimates(&profile)?, &truth(|site| site.allocated));
    let (alive, alive_total) = errors(&estimates(&heap)?, &truth(|site| site.alive));
    kept.into_iter()
        .for_each(|memory| free(&crate::ALLOCATOR, memory));
    let large = sites.len();
    Ok(json!({
        "site": site,
        "alive": alive,
        "total": total.max(alive_total),
        "note": format!("{large} sites; error of the total {total:.2} %, alive {alive_total:.2} %"),
    }))
}
