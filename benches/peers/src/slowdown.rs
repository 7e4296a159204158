//! `slowdown`: wall time of a program that only computes, profiled at 1,000 Hz, relative to the
//! time without a profiler.
//!
//! Every run does the same work, divided into portions, and the threads share it, so that they end
//! together. One thread leaves a processor free, on which a profiler can run. Eight threads, or one
//! per processor if there are more processors, leave none free. Every run is a separate process. It
//! measures from the moment when all threads are ready until the last has ended; what a profiler
//! does before and after is not included.
//!
//! A round runs every arm once, one after another, and the starting arm rotates. Each arm's time is
//! divided by that of the unprofiled run in the same round: a temporary slowdown of the machine
//! affects both. The figure is the median over the rounds. `none_again` is a second unprofiled run,
//! which shows the noise.
//!
//! A profiler that delivers fewer samples than requested costs less: `samples_…` are those per
//! second of work. `empty_handler` is this machine's minimum for any profiler that interrupts
//! threads by signals: on every tick, a thread wakes and signals the threads that have run since
//! the last tick, and the handler only counts.

use std::sync::Barrier;
use std::sync::mpsc::channel;

use dial9_core::buffer::MemoryBuffer;
use dial9_core::recorder::recorder;
use dial9_perf_self_profile::{CpuProfiler, CpuProfilingConfig};

use crate::busy::SharedWork;
use crate::prelude::*;
use crate::raw::{self, EmptyHandler, cpu_ns_of};
use crate::schedule::Schedule;
use crate::threads::Threads;

const HZ: u32 = 1_000;
const MIN_THREADS: usize = 8;
const ARMS: [&str; 6] = [
    "none",
    "ours",
    "none_again",
    "empty_handler",
    "pprof",
    "dial9",
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "slowdown",
    unit: "wall time of a fixed amount of work / time without a profiler, all processors busy, at 1,000 Hz",
    goal: "ours <= each peer, <= 1.03 with all processors busy, <= 1.015 with 1 thread",
    peers: &["empty_handler", "pprof", "dial9"],
    floor: "none_again",
    is_met: |study| is_met(|arm| study.figure(arm)),
    measure,
    part: run,
    ..Measurement::NEW
};

fn measure(study: &mut Study) -> Fallible<()> {
    let seconds = study.pick(0.35, 0.5);
    let processors = raw::processors().len();
    let all = MIN_THREADS.max(processors);
    const TRIAL: u64 = 20_000;
    let trial = child::run("slowdown", &[&"none", &1, &TRIAL])?;
    let speed = TRIAL as f64 / number(&trial, "wall")?;
    // One thread takes the same wall time as all processors together.
    let settings = [("", all, all.min(processors)), ("_1_thread", 1, 1)];
    study.note(
        "dial9 walks frame pointers, and this program is built without: its stacks end early",
    );
    let about =
        format!("{seconds} s per arm, with {all} threads and with 1, on {processors} processors");
    study.rounds(study.pick(5, 25), about, |study, round| {
        for (suffix, threads, busy) in settings {
            let portions = (speed * seconds * busy as f64) as u64;
            let mut runs = ARMS.map(|_| Value::Null);
            for turn in 0..ARMS.len() {
                let place = (round + turn) % ARMS.len();
                runs[place] = child::run("slowdown", &[&ARMS[place], &threads, &portions])?;
            }
            let none = number(&runs[0], "wall")?;
            for (arm, run) in ARMS.iter().zip(&runs).skip(1) {
                match run["refused"].as_str() {
                    Some(refused) => study.note(format!("{arm}: {refused}")),
                    None => {
                        study.push(&format!("{arm}{suffix}"), number(run, "wall")? / none);
                        study.push(&format!("samples_{arm}{suffix}"), number(run, "samples")?);
                    }
                }
            }
        }
        Ok(())
    })
}

fn is_met(figure: impl Fn(&str) -> f64) -> bool {
    // A peer without a figure does not count.
    let is_best = |suffix: &str, goal: f64| {
        let ours = figure(&format!("ours{suffix}"));
        let mut peers = ["pprof", "dial9"]
            .iter()
            .map(|peer| figure(&format!("{peer}{suffix}")));
        ours <= goal && peers.all(|peer| peer.is_nan() || ours <= peer)
    };
    is_best("", 1.03) && is_best("_1_thread", 1.015)
}

/// Runs one arm. Arguments: the arm, the number of threads, the number of portions. An arm that
/// cannot start reports why, and has no times.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (threads, portions): (usize, u64) = (arguments.get(1)?, arguments.get(2)?);
    let plainly = || work(threads, portions, |_| Ok(()));
    let (times, samples) = match arguments.text(0)? {
        "ours" => {
            let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
            let times = plainly()?;
            (
                times,
                Counts::of(&session.finish()?).get("captured_samples"),
            )
        }
        "empty_handler" => {
            let handler = EmptyHandler::install()?;
            let times = work(threads, portions, |threads| {
                Ok(start_sender(handler, threads)?)
            })?;
            (times, handler.answers() as f64)
        }
        "pprof" => {
            let guard = pprof_rs::start(INTERVAL)?;
            (plainly()?, pprof_rs::samples_of(&guard, "")?)
        }
        "dial9" => {
            // Started first, because only threads that are created later inherit its perf events.
            let config = CpuProfilingConfig::default().frequency_hz(HZ.into());
            let profiler = match CpuProfiler::start(config) {
                Ok(profiler) => profiler,
                Err(error) => return Ok(json!({ "refused": error.to_string() })),
            };
            let recorder = recorder(MemoryBuffer::new(64 << 20)?)
                .source(profiler)
                .build();
            let times = plainly()?;
            let handle = recorder.handle();
            let samples =
                handle.with_source(|profiler: &mut CpuProfiler| profiler.samples_drained());
            (times, samples.unwrap_or(0) as f64)
        }
        _ => (plainly()?, 0.0),
    };
    Ok(json!({ "wall": times.wall, "samples": samples / times.work_cpu }))
}

/// In seconds.
struct Times {
    wall: f64,
    /// CPU time of the working threads.
    work_cpu: f64,
}

/// Starts a thread that signals the threads that have run since the last tick.
fn start_sender(handler: EmptyHandler, threads: &[i32]) -> std::io::Result<Threads> {
    let seen: Vec<(i32, u64)> = threads.iter().map(|&thread| (thread, 0)).collect();
    let prepare = move |_| {
        raw::prepare_sampler_thread();
        (handler, Schedule::start(INTERVAL), seen.clone())
    };
    Threads::start(1, "sender", prepare, |(handler, schedule, seen)| {
        schedule.sleep_to_next();
        for (thread, before_ns) in seen {
            // A thread that has exited has no clock.
            let Some(now_ns) = cpu_ns_of(*thread) else {
                continue;
            };
            if std::mem::replace(before_ns, now_ns) != now_ns {
                let _ = handler.send(*thread);
            }
        }
    })
}

/// Does the work on `threads` new threads, each registered with gekkota. Calls `begin` with their
/// ids when all are ready, and drops what it returns when they have ended.
fn work<Guard>(
    threads: usize,
    portions: u64,
    begin: impl FnOnce(&[i32]) -> Fallible<Guard>,
) -> Fallible<Times> {
    let (shared, ready) = (SharedWork::new(portions), Barrier::new(threads + 1));
    let (id, ids) = channel();
    std::thread::scope(|scope| {
        let start = |number| {
            let (shared, ready, id) = (&shared, &ready, id.clone());
            scope.spawn(move || {
                register_thread(&format!("worker {number}"));
                // The receiver lives until it has received this.
                let _ = id.send(raw::thread_id());
                ready.wait();
                let before = raw::thread_cpu_ns();
                std::hint::black_box(shared.take_part());
                raw::thread_cpu_ns() - before
            })
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        let guard = begin(&ids.iter().take(threads).collect::<Vec<_>>());
        ready.wait();
        let start = Instant::now();
        let mut work_cpu = 0;
        for worker in workers {
            work_cpu += worker.join().map_err(|_| "a worker panicked")?;
        }
        let wall = start.elapsed().as_secs_f64();
        drop(guard?);
        Ok(Times {
            wall,
            work_cpu: work_cpu as f64 / 1e9,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_met_checks_every_limit_and_skips_missing_peers() {
        let met = |figures: &[(&str, f64)]| {
            is_met(|name| {
                let found = figures.iter().find(|(found, _)| *found == name);
                found.map_or(f64::NAN, |(_, figure)| *figure)
            })
        };
        assert!(met(&[("ours", 1.03), ("ours_1_thread", 1.015)]));
        assert!(!met(&[("ours", 1.031), ("ours_1_thread", 1.015)]));
        assert!(!met(&[("ours", 1.03), ("ours_1_thread", 1.016)]));
        let ours = [("ours", 1.02), ("ours_1_thread", 1.01)];
        assert!(!met(&[ours[0], ours[1], ("pprof", 1.01)]));
        assert!(!met(&[ours[0], ours[1], ("dial9_1_thread", 1.005)]));
        assert!(met(&[ours[0], ours[1], ("pprof", 1.02), ("dial9", 1.1)]));
        assert!(!met(&ours[..1]));
    }
}
