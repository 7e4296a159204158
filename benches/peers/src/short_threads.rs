//! `short_threads`: share of the CPU time of many short threads that is in samples, at 1,000 Hz.
//!
//! Each thread computes until its own clock shows 5 ms, and ends. Eight live at a time, and none
//! registers, so the sampler has to find each of them while it lives. The figure is the sum of the
//! samples' `threadCPUDelta` divided by the CPU time that the threads' own clocks show at their ends.
//! `registered` is this figure for threads that register. pprof-rs's is its number of samples ×
//! interval, divided by that time, and so is `ours_by_count`, with our samples of threads that ran.
//!
//! Each run is a separate process; the arms are interleaved.

use std::sync::mpsc::channel;

use crate::busy::work;
use crate::prelude::*;
use crate::profile::{CpuInSamples, running, threads};
use crate::raw::{thread_cpu_ns, thread_id};

const LIFE_NS: u64 = 5_000_000;
const AT_A_TIME: usize = 8;
const NAME: &str = "short";

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "short_threads",
    unit: "CPU time in samples / CPU time used by threads of 5 ms",
    goal: "ours >= 0.8 at 1,000 Hz",
    peers: &["pprof"],
    better: f64::max,
    is_met: |study| study.figure("ours") >= 0.8,
    rounds: [2, 3],
    sizes: [&[1000], &[10000]],
    size_names: &["threads per arm"],
    arms: &["ours", "registered", "pprof"],
    part: run,
    ..Measurement::LONG
};

/// Runs one round. Arguments: the arm, and the number of threads.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (arm, count) = (arguments.text(0)?, arguments.get(1)?);
    match arm {
        "ours" => run_ours(arm, count, || {}),
        "registered" => run_ours(arm, count, || register_thread(NAME)),
        _ => run_pprof(arm, count),
    }
}

/// What the threads' own clocks have shown.
struct Lives {
    ids: Vec<i32>,
    cpu_ns: u64,
}

/// Runs `count` threads, some at a time, that each call `first` and then work.
fn run_threads(count: usize, first: fn()) -> Fallible<Lives> {
    let (ended, has_ended) = channel();
    let mut lives = Lives {
        ids: Vec::with_capacity(count),
        cpu_ns: 0,
    };
    let mut add = |(id, cpu_ns)| {
        lives.ids.push(id);
        lives.cpu_ns += cpu_ns;
    };
    for number in 0..count {
        if number >= AT_A_TIME {
            add(has_ended.recv()?);
        }
        let ended = ended.clone();
        // Not joined, as many libraries do it. The threads' ends are awaited below.
        std::thread::Builder::new()
            .name(NAME.to_owned())
            .spawn(move || {
                first();
                live(number as u64);
                // The receiver lives until it has received this.
                let _ = ended.send((thread_id(), thread_cpu_ns()));
            })?;
    }
    drop(ended);
    has_ended.iter().for_each(&mut add);
    if lives.ids.len() != count {
        return Err("a thread panicked".into());
    }
    Ok(lives)
}

#[inline(never)]
fn live(seed: u64) {
    let mut numbers = Box::new([0; 512]);
    let mut hash = seed;
    while thread_cpu_ns() < LIFE_NS {
        hash = work(hash, &mut numbers);
    }
    std::hint::black_box(hash);
}

fn run_ours(arm: &str, count: usize, first: fn()) -> Fallible<Value> {
    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
    let lives = run_threads(count, first)?;
    let profile = session.finish()?;
    let json = to_json(&profile)?;
    let (mut sums, mut sampled, mut ran) = (CpuInSamples::default(), 0, 0);
    // A thread that ended early may still have its creator's name. Ids are used again.
    let own = i64::from(thread_id());
    for thread in threads(&json) {
        let id = thread["tid"].as_i64().unwrap_or(0);
        if id != own && lives.ids.iter().any(|known| i64::from(*known) == id) {
            let lacks = "a thread has no samples";
            sums.add_thread(thread, f64::INFINITY).ok_or(lacks)?;
            let running = running(&json, thread).ok_or(lacks)?;
            ran += running.into_iter().filter(|runs| *runs).count();
            sampled += 1;
        }
    }
    let cpu_ns = lives.cpu_ns as f64;
    let counts = Counts::of(&profile);
    let mut also = counts.also(
        arm,
        &[
            "ticks",
            "missed_ticks",
            "unsampled_threads",
            "sampler_cpu_ns",
        ],
    );
    also[format!("{arm}_sampled_threads")] = json!(sampled);
    Ok(json!({
        arm: sums.all_ns / cpu_ns,
        format!("{arm}_by_count"): ran as f64 * INTERVAL.as_nanos() as f64 / cpu_ns,
        "also": also,
    }))
}

fn run_pprof(arm: &str, count: usize) -> Fallible<Value> {
    let guard = pprof_rs::start(INTERVAL)?;
    let lives = run_threads(count, || {})?;
    let sampled_ns = pprof_rs::samples_of(&guard, NAME)? * INTERVAL.as_nanos() as f64;
    Ok(json!({ arm: sampled_ns / lives.cpu_ns as f64 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_live_for_their_time_each() {
        let lives = run_threads(20, || {}).expect("threads");
        assert_eq!(lives.ids.len(), 20);
        assert!(lives.cpu_ns >= 20 * LIFE_NS);
    }
}
