//! `short_threads`: share of the CPU time of many short threads that is in samples, at 1,000 Hz.
//!
//! Each thread computes until its own clock shows 5 ms, and ends. Eight live at a time, and none
//! registers, so the sampler has to find each of them while it lives. The figure is the sum of the
//! samples' `threadCPUDelta` divided by the CPU time that the threads' own clocks show at their ends.
//! `registered` is the same for threads that register. pprof-rs's is its number of samples × interval,
//! divided by that time, and so is `ours_by_count`, with our samples of threads that ran.
//!
//! The notes have the number of threads in the profile, and of those that the profile counts as
//! missed: `unsampled_threads` were found and ended before their first sample. A thread that nobody
//! found is the difference from all.
//!
//! Each run is a separate process; the arms are interleaved.

use std::error::Error;
use std::sync::mpsc::channel;
use std::time::Duration;

use gekkota::{ProfilerSession, StartParams, register_thread};
use serde_json::{Value, json};

use crate::busy::work;
use crate::machine::{self, load_note};
use crate::profile::{CpuInSamples, count, running, threads, to_json};
use crate::raw::{monotonic_ns, thread_cpu_ns, thread_id};
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const LIFE_NS: u64 = 5_000_000;
const AT_A_TIME: usize = 8;
const NAME: &str = "short";
const GOAL: f64 = 0.8;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, count) = if effort.quick { (2, 1000) } else { (3, 10_000) };
    let (mut ours, mut pprof) = (Arm::new("ours"), Arm::new("pprof"));
    let mut registered = Arm::extra("registered");
    let [mut by_count, mut registered_by_count] =
        ["ours_by_count", "registered_by_count"].map(Arm::extra);
    let mut notes = vec![format!(
        "{rounds} rounds of {count} threads per arm, interleaved; {AT_A_TIME} threads at a time, {} ms of CPU time each; {}",
        LIFE_NS / 1_000_000,
        load_note()
    )];
    for round in 1..=rounds {
        for (arm, by_count) in [
            (&mut ours, Some(&mut by_count)),
            (&mut registered, Some(&mut registered_by_count)),
            (&mut pprof, None),
        ] {
            let arguments = [arm.name.to_owned(), count.to_string()];
            let (run, taken) = machine::watch(|| child::run("short_threads", &arguments));
            // A peer may hang in its signal handler.
            let run = match run {
                Err(error) if arm.name == "pprof" => {
                    notes.push(format!("round {round}: cannot measure pprof: {error}"));
                    continue;
                }
                run => run?,
            };
            arm.runs.extend(run["captured"].as_f64());
            if let Some(by_count) = by_count {
                by_count.runs.extend(run["by_count"].as_f64());
            }
            notes.push(format!(
                "round {round}: {}: {}; CPUs used by other processes + the hypervisor: {taken}",
                arm.name,
                run["note"].as_str().unwrap_or_default(),
            ));
        }
    }
    let met = ours.figure() >= GOAL;
    let peers = [pprof, registered, by_count, registered_by_count].into_iter();
    Ok(Report {
        unit: "CPU time in samples / CPU time used by threads of 5 ms",
        ours,
        peers: peers.filter(|arm| !arm.runs.is_empty()).collect(),
        floor: None,
        better: f64::max,
        goal: "ours >= 0.8 at 1,000 Hz",
        met,
        notes,
    })
}

/// Runs one round in the child process. Arguments: the arm, and the number of threads.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [arm, count] = arguments else {
        return Err("expected an arm and the number of threads".into());
    };
    let count = count.parse()?;
    match arm.as_str() {
        "ours" => run_ours(count, || {}),
        "registered" => run_ours(count, || register_thread(NAME)),
        "pprof" => run_pprof(count),
        other => Err(format!("unknown arm `{other}`").into()),
    }
}

/// What the threads' own clocks have shown.
struct Lives {
    ids: Vec<i32>,
    cpu_ns: u64,
    wall_ns: u64,
}

/// Runs `count` threads, some at a time, that each call `first` and then work.
fn run_threads(count: usize, first: fn()) -> Result<Lives, Box<dyn Error>> {
    let begin_ns = monotonic_ns();
    let (ended, has_ended) = channel();
    let mut lives = Lives {
        ids: Vec::with_capacity(count),
        cpu_ns: 0,
        wall_ns: 0,
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
    lives.wall_ns = monotonic_ns() - begin_ns;
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

fn run_ours(count_of_threads: usize, first: fn()) -> Result<Value, Box<dyn Error>> {
    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
    let lives = run_threads(count_of_threads, first)?;
    let profile = session.finish()?;
    let json = to_json(&profile)?;
    let (mut sums, mut sampled, mut ran) = (CpuInSamples::default(), 0, 0);
    // A thread that ended early may still have its creator's name. Ids are used again.
    let own = i64::from(thread_id());
    for thread in threads(&json) {
        let id = thread["tid"].as_i64().unwrap_or(0);
        if id != own && lives.ids.iter().any(|known| i64::from(*known) == id) {
            sums.add_thread(thread, f64::INFINITY)
                .ok_or("a thread has no samples")?;
            let running = running(&json, thread).ok_or("a thread has no samples")?;
            ran += running.into_iter().filter(|runs| *runs).count();
            sampled += 1;
        }
    }
    let count = |name: &str| count(&profile, name).unwrap_or(0);
    let cpu_ns = lives.cpu_ns as f64;
    let found = sampled + count("unsampled_threads");
    let note = format!(
        "{sampled} threads in the profile, {} found and counted as missed, {} not found; {:.2} ms of CPU time each; sampler \
         {:.1} % of one CPU, {:.0} µs for each thread; {} of {} ticks missed; {} captured and {} remote samples; {:.1} % of their CPU time in \
         truncated stacks",
        count("unsampled_threads"),
        (count_of_threads as u64).saturating_sub(found),
        cpu_ns / 1e6 / count_of_threads as f64,
        count("sampler_cpu_ns") as f64 * 100.0 / lives.wall_ns as f64,
        count("sampler_cpu_ns") as f64 / 1e3 / count_of_threads as f64,
        count("missed_ticks"),
        count("ticks"),
        count("captured_samples"),
        count("remote_samples"),
        sums.truncated_ns * 100.0 / sums.all_ns,
    );
    let by_count = ran as f64 * INTERVAL.as_nanos() as f64 / cpu_ns;
    Ok(json!({"captured": sums.all_ns / cpu_ns, "by_count": by_count, "note": note}))
}

fn run_pprof(count: usize) -> Result<Value, Box<dyn Error>> {
    let frequency = 1.0 / INTERVAL.as_secs_f64();
    let guard = pprof::ProfilerGuard::new(frequency as i32)?;
    let lives = run_threads(count, || {})?;
    let report = guard.report().build_unresolved()?;
    let of_short = report.data.iter().filter(|(stack, _)| {
        stack.thread_name[..stack.thread_name_length].starts_with(NAME.as_bytes())
    });
    let samples: isize = of_short.map(|(_, count)| *count).sum();
    let captured = samples as f64 * INTERVAL.as_nanos() as f64 / lives.cpu_ns as f64;
    Ok(json!({"captured": captured, "note": format!("{samples} samples")}))
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
