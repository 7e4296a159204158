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
//! Wall time is the measure. The CPU time of the whole process is the extra figure `*_cpu`. With
//! one thread it also contains the sampler's work, which costs no wall time while a processor is
//! free.
//!
//! A profiler that delivers fewer samples than requested costs less: the notes have the number of
//! samples of each. `empty_handler` is this machine's minimum for any profiler that interrupts
//! threads by signals: on every tick, a thread wakes and signals the threads that have run since
//! the last tick, and the handler only counts.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dial9_core::buffer::MemoryBuffer;
use dial9_core::recorder::recorder;
use dial9_perf_self_profile::{CpuProfiler, CpuProfilingConfig};
use gekkota::{ProfilerSession, StartParams, register_thread};
use serde_json::{Value, json};

use crate::busy::SharedWork;
use crate::machine::{self, load_note};
use crate::profile::{count, engine_of};
use crate::raw::{self, EmptyHandler};
use crate::raw_threads::cpu_ns_of;
use crate::report::{Arm, Report, median};
use crate::schedule::Schedule;
use crate::{Effort, Outcome, child};

const HZ: u32 = 1_000;
const MIN_THREADS: usize = 8;
const GOAL_FREE_PROCESSOR: f64 = 1.015;
const GOAL_ALL_BUSY: f64 = 1.03;

const UNPROFILED: &str = "none";

/// Each profiler: its name, which is also the child's argument, and the names of its four figures:
/// wall time and CPU time with every processor busy, then with one thread.
const ARMS: [(&str, [&str; 4]); 5] = [
    (
        "ours",
        ["ours", "ours_cpu", "ours_1_thread", "ours_1_thread_cpu"],
    ),
    (
        "none_again",
        [
            "none_again",
            "none_again_cpu",
            "none_again_1_thread",
            "none_again_1_thread_cpu",
        ],
    ),
    (
        "empty_handler",
        [
            "empty_handler",
            "empty_handler_cpu",
            "empty_handler_1_thread",
            "empty_handler_1_thread_cpu",
        ],
    ),
    (
        "pprof",
        ["pprof", "pprof_cpu", "pprof_1_thread", "pprof_1_thread_cpu"],
    ),
    (
        "dial9",
        ["dial9", "dial9_cpu", "dial9_1_thread", "dial9_1_thread_cpu"],
    ),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, seconds) = if effort.quick { (5, 0.35) } else { (25, 0.5) };
    let processors = raw::processors().len();
    let all = MIN_THREADS.max(processors);
    let speed = {
        const TRIAL: u64 = 20_000;
        TRIAL as f64 / ProcessRun::make(UNPROFILED, 1, TRIAL)?.work_cpu
    };
    // One thread takes the same wall time as all processors together.
    let settings = [
        (all, speed * seconds * all.min(processors) as f64),
        (1, speed * seconds),
    ];
    let mut notes = vec![format!(
        "{rounds} rounds of {seconds} s per arm, interleaved, with {all} threads and with 1, on {processors} processors; {}",
        load_note()
    )];

    let mut seen: Vec<Round> = Vec::new();
    let (result, taken) = machine::watch(|| {
        for round in 0..rounds {
            for (threads, portions) in settings {
                seen.push(Round::make(round, threads, portions as u64)?);
            }
        }
        Ok::<(), Box<dyn Error>>(())
    });
    result?;
    notes.push(format!(
        "CPUs used by other processes + the hypervisor: {taken}"
    ));
    notes.push(
        "dial9 walks frame pointers, and this program is built without: its stacks end early"
            .to_owned(),
    );

    let mut arms: Vec<Arm> = Vec::new();
    for (arm, names) in ARMS {
        for (index, name) in names.into_iter().enumerate() {
            let (threads, use_cpu) = (settings[index / 2].0, index % 2 == 1);
            let with_setting = seen.iter().filter(|round| round.threads == threads);
            let runs: Vec<f64> = with_setting
                .filter_map(|round| round.relative_to_unprofiled(arm, use_cpu))
                .collect();
            let new = if index == 0 {
                Arm::new(name)
            } else {
                Arm::extra(name)
            };
            if !runs.is_empty() {
                arms.push(Arm { runs, ..new });
            }
        }
        notes.extend(settings.map(|(threads, _)| note_of(arm, threads, &seen)));
    }
    let figure = |name: &str| arms.iter().find(|arm| arm.name == name).map(Arm::figure);
    let met = is_met(figure);
    let mut take = |name: &str| {
        let index = arms.iter().position(|arm| arm.name == name);
        index
            .map(|index| arms.remove(index))
            .ok_or_else(|| format!("`{name}` has no figure"))
    };
    let (ours, floor) = (take("ours")?, take("none_again")?);
    Ok(Report {
        unit: "wall time of a fixed amount of work / time without a profiler, all processors busy, at 1,000 Hz",
        ours,
        peers: arms,
        floor: Some(floor),
        better: f64::min,
        goal: "ours <= each peer, <= 1.03 with all processors busy, <= 1.015 with 1 thread",
        met,
        notes,
    })
}

fn is_met(figure: impl Fn(&str) -> Option<f64>) -> bool {
    let at_most = |ours: f64, peer: &str| figure(peer).is_none_or(|peer| ours <= peer);
    let least = |name: &str, suffix: &str, goal: f64| {
        figure(name).is_some_and(|ours| {
            ours <= goal
                && at_most(ours, &format!("pprof{suffix}"))
                && at_most(ours, &format!("dial9{suffix}"))
        })
    };
    least("ours", "", GOAL_ALL_BUSY) && least("ours_1_thread", "_1_thread", GOAL_FREE_PROCESSOR)
}

/// Returns a note with the medians of an arm's runs.
fn note_of(arm: &str, threads: usize, seen: &[Round]) -> String {
    let runs: Vec<&ProcessRun> = seen
        .iter()
        .filter(|round| round.threads == threads)
        .filter_map(|round| round.runs.iter().find(|(name, _)| *name == arm))
        .map(|(_, run)| run)
        .collect();
    let median_of = |value: fn(&ProcessRun) -> f64| {
        median(&runs.iter().map(|run| value(run)).collect::<Vec<_>>())
    };
    let about = runs
        .first()
        .map(|run| run.about.clone())
        .unwrap_or_default();
    format!(
        "{arm}, {threads} threads: {:.4} s of wall time, {:.4} s of CPU time, of it {:.4} s for the work; \
         {:.0} samples per second of work{about}",
        median_of(|run| run.wall),
        median_of(|run| run.cpu),
        median_of(|run| run.work_cpu),
        median_of(|run| run.samples / run.work_cpu),
    )
}

/// One run of each arm.
struct Round {
    threads: usize,
    none: ProcessRun,
    runs: Vec<(&'static str, ProcessRun)>,
}

impl Round {
    fn make(number: usize, threads: usize, portions: u64) -> Result<Self, Box<dyn Error>> {
        let arms: Vec<&'static str> = std::iter::once(UNPROFILED)
            .chain(ARMS.iter().map(|(arm, _)| *arm))
            .collect();
        let (mut none, mut runs) = (None, Vec::new());
        for index in 0..arms.len() {
            let arm = arms[(number + index) % arms.len()];
            let run = ProcessRun::make(arm, threads, portions)?;
            match arm {
                UNPROFILED => none = Some(run),
                _ => runs.push((arm, run)),
            }
        }
        let none = none.ok_or("the round has no unprofiled run")?;
        Ok(Self {
            threads,
            none,
            runs,
        })
    }

    fn relative_to_unprofiled(&self, arm: &str, use_cpu: bool) -> Option<f64> {
        let time = |run: &ProcessRun| if use_cpu { run.cpu } else { run.wall };
        let (_, run) = self.runs.iter().find(|(name, _)| *name == arm)?;
        Some(time(run) / time(&self.none)).filter(|ratio| ratio.is_finite())
    }
}

/// The run of one process. Times are in seconds.
struct ProcessRun {
    wall: f64,
    /// CPU time of the whole process.
    cpu: f64,
    /// CPU time of the working threads.
    work_cpu: f64,
    samples: f64,
    /// Remarks, with a leading separator.
    about: String,
}

impl ProcessRun {
    fn make(arm: &str, threads: usize, portions: u64) -> Result<Self, Box<dyn Error>> {
        let json = child::run(
            "slowdown",
            &[arm.to_owned(), threads.to_string(), portions.to_string()],
        )?;
        let number = |name: &str| json[name].as_f64().unwrap_or(f64::NAN);
        Ok(Self {
            wall: number("wall"),
            cpu: number("cpu"),
            work_cpu: number("work_cpu"),
            samples: number("samples"),
            about: json["about"]
                .as_str()
                .map(|about| format!("; {about}"))
                .unwrap_or_default(),
        })
    }
}

/// Runs one arm in the child process. Arguments: the arm, the number of threads, the number of
/// portions. An arm that cannot start reports why, and has no times.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [arm, threads, portions] = arguments else {
        return Err("expected an arm, the number of threads and the number of portions".into());
    };
    let (threads, portions): (usize, u64) = (threads.parse()?, portions.parse()?);
    let (times, samples, about) = match arm.as_str() {
        "none" | "none_again" => (work(threads, portions, |_| ())?, 0, String::new()),
        "empty_handler" => {
            let handler = EmptyHandler::install()?;
            let mut sender = None;
            let times = work(threads, portions, |threads| {
                sender = Some(Sender::start(handler, threads))
            })?;
            drop(sender);
            (times, handler.answers(), String::new())
        }
        "ours" => {
            let session = ProfilerSession::start(
                StartParams::default().interval(Duration::from_secs(1) / HZ),
            )?;
            let times = work(threads, portions, |_| ())?;
            let profile = session.finish()?;
            let samples =
                count(&profile, "captured_samples").ok_or("the profile has no count of samples")?;
            (times, samples, format!("engine: {}", engine_of(&profile)?))
        }
        "pprof" => {
            let guard = pprof::ProfilerGuard::new(HZ as i32)?;
            let times = work(threads, portions, |_| ())?;
            let report = guard.report().build_unresolved()?;
            (
                times,
                report.data.values().sum::<isize>() as u64,
                String::new(),
            )
        }
        "dial9" => {
            // Started first, because only threads that are created later inherit its perf events.
            let profiler =
                match CpuProfiler::start(CpuProfilingConfig::default().frequency_hz(HZ.into())) {
                    Ok(profiler) => profiler,
                    Err(error) => {
                        return Ok(json!({"about": format!("cannot start: {error}")}));
                    }
                };
            let backend = profiler.active_backend().as_str();
            let recorder = recorder(MemoryBuffer::new(64 << 20)?)
                .source(profiler)
                .build();
            let times = work(threads, portions, |_| ())?;
            let samples = recorder
                .handle()
                .with_source(|profiler: &mut CpuProfiler| profiler.samples_drained());
            (times, samples.unwrap_or(0), format!("backend: {backend}"))
        }
        other => return Err(format!("unknown arm `{other}`").into()),
    };
    let Times {
        wall,
        cpu,
        work_cpu,
    } = times;
    let about = Some(about).filter(|about| !about.is_empty());
    Ok(json!({"wall": wall, "cpu": cpu, "work_cpu": work_cpu, "samples": samples, "about": about}))
}

struct Times {
    wall: f64,
    cpu: f64,
    work_cpu: f64,
}

/// A thread that signals the threads that have run since the last tick. Dropping this ends it.
struct Sender {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    fn start(handler: EmptyHandler, threads: &[i32]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut seen: Vec<(i32, u64)> = threads.iter().map(|&thread| (thread, 0)).collect();
        let body = {
            let stop = Arc::clone(&stop);
            move || {
                raw::prepare_sampler_thread();
                let mut schedule = Schedule::start(Duration::from_secs(1) / HZ);
                while !stop.load(Ordering::Relaxed) {
                    schedule.sleep_to_next();
                    for (thread, before_ns) in &mut seen {
                        // A thread that has exited has no clock.
                        let Some(now_ns) = cpu_ns_of(*thread) else {
                            continue;
                        };
                        if std::mem::replace(before_ns, now_ns) != now_ns {
                            let _ = handler.send(*thread);
                        }
                    }
                }
            }
        };
        Self {
            stop,
            thread: Some(std::thread::spawn(body)),
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread cannot panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Does the work on `threads` new threads, each registered with gekkota. Calls `begin` with their
/// ids when all are ready.
fn work(
    threads: usize,
    portions: u64,
    begin: impl FnOnce(&[i32]),
) -> Result<Times, Box<dyn Error>> {
    let shared = Arc::new(SharedWork::new(portions));
    let ids = Arc::new(Mutex::new(Vec::new()));
    let ready = Arc::new(Barrier::new(threads + 1));
    let workers: Vec<_> = (0..threads)
        .map(|number| {
            let (shared, ready, ids) = (Arc::clone(&shared), Arc::clone(&ready), Arc::clone(&ids));
            std::thread::spawn(move || {
                register_thread(&format!("worker {number}"));
                ids.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(raw::thread_id());
                ready.wait();
                let before = raw::thread_cpu_ns();
                std::hint::black_box(shared.take_part());
                raw::thread_cpu_ns() - before
            })
        })
        .collect();
    ready.wait();
    begin(&ids.lock().unwrap_or_else(PoisonError::into_inner));
    let (start, before) = (Instant::now(), raw::process_cpu_ns());
    let mut work_cpu = 0;
    for worker in workers {
        work_cpu += worker.join().map_err(|_| "a worker panicked")?;
    }
    let (wall, cpu) = (
        start.elapsed().as_secs_f64(),
        raw::process_cpu_ns() - before,
    );
    Ok(Times {
        wall,
        cpu: cpu as f64 / 1e9,
        work_cpu: work_cpu as f64 / 1e9,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_met_checks_every_limit_and_skips_missing_peers() {
        let met = |figures: &[(&str, f64)]| {
            is_met(|name| {
                figures
                    .iter()
                    .find(|(found, _)| *found == name)
                    .map(|(_, figure)| *figure)
            })
        };
        assert!(met(&[("ours", 1.03), ("ours_1_thread", 1.015)]));
        assert!(!met(&[("ours", 1.031), ("ours_1_thread", 1.015)]));
        assert!(!met(&[("ours", 1.03), ("ours_1_thread", 1.016)]));
        assert!(!met(&[
            ("ours", 1.02),
            ("ours_1_thread", 1.01),
            ("pprof", 1.01)
        ]));
        assert!(!met(&[
            ("ours", 1.02),
            ("ours_1_thread", 1.01),
            ("dial9_1_thread", 1.005)
        ]));
        assert!(met(&[
            ("ours", 1.02),
            ("ours_1_thread", 1.01),
            ("pprof", 1.02),
            ("dial9", 1.1)
        ]));
        assert!(!met(&[("ours", 1.02)]));
    }

    #[test]
    fn relative_to_unprofiled_divides_by_the_run_of_the_round() {
        let run = |wall, cpu| ProcessRun {
            wall,
            cpu,
            work_cpu: cpu,
            samples: 0.0,
            about: String::new(),
        };
        let round = Round {
            threads: 8,
            none: run(2.0, 4.0),
            runs: vec![("ours", run(2.5, 6.0)), ("dial9", run(f64::NAN, f64::NAN))],
        };
        assert_eq!(round.relative_to_unprofiled("ours", false), Some(1.25));
        assert_eq!(round.relative_to_unprofiled("ours", true), Some(1.5));
        assert_eq!(round.relative_to_unprofiled("dial9", false), None);
        assert_eq!(round.relative_to_unprofiled("pprof", false), None);
    }
}
