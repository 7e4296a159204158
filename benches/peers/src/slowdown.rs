//! `slowdown`: how long a program that does nothing but compute takes at 1,000 Hz, by what it takes without a profiler.
//!
//! The work is the same in every run, portion by portion, and the threads share it, so that they end together. One
//! thread leaves a processor free on which a profiler can run; eight, or as many as there are processors where these are
//! more, leave none. Every run is a process of its own, which measures from the moment when all threads are ready until
//! the last has ended; what a profiler does before and after is left out.
//!
//! A round has every arm once, one after another, each time from another arm on, and each arm's time is taken by that of
//! the run without a profiler in the same round: what makes the machine slow for a while is in both. Arm by arm, the
//! median of the rounds is the figure. `none_again` is a second run without a profiler, and shows what the noise is.
//!
//! Wall time is the measure; the time that all of the process had on the processors stands aside as `*_cpu`. With one
//! thread that holds the sampler's work too, which costs no wall time while a processor is free.
//!
//! A profiler that delivers fewer samples than asked for costs less: the notes tell how many each had. `empty_handler` is
//! what this machine takes for any that interrupts by signals: a thread that wakes on every tick and signals those that have
//! run since the last, whose handler does nothing.

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
use crate::profile::{count, engine_of, settle_engine};
use crate::raw::{self, EmptyHandler};
use crate::raw_threads::cpu_ns_of;
use crate::report::{Arm, Report, median};
use crate::schedule::Schedule;
use crate::{Effort, Outcome, child};

const HZ: u32 = 1_000;
const FEWEST_THREADS: usize = 8;
const GOAL_FREE: f64 = 1.015;
const GOAL_TAKEN: f64 = 1.03;

const UNPROFILED: &str = "none";

/// A profiler, as the child's argument, and its four figures: wall and processor time with every processor taken, and
/// with one thread.
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
    let all = FEWEST_THREADS.max(processors);
    let speed = {
        const TRIAL: u64 = 20_000;
        TRIAL as f64 / Run::make(UNPROFILED, 1, TRIAL)?.work_cpu
    };
    // The same wall time with one thread as with every processor taken.
    let settings = [
        (all, speed * seconds * all.min(processors) as f64),
        (1, speed * seconds),
    ];
    let mut notes = vec![format!(
        "{rounds} rounds of {seconds} s an arm, in turns, with {all} threads and with 1, on {processors} processors; {}",
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
        "processors that others + the hypervisor had: {taken}"
    ));
    notes.push(
        "dial9 walks frame pointers, which this program is built without: its stacks end early"
            .to_owned(),
    );

    let mut arms: Vec<Arm> = Vec::new();
    for (arm, names) in ARMS {
        for (index, name) in names.into_iter().enumerate() {
            let (threads, of_cpu) = (settings[index / 2].0, index % 2 == 1);
            let of_setting = seen.iter().filter(|round| round.threads == threads);
            let runs: Vec<f64> = of_setting
                .filter_map(|round| round.by_none(arm, of_cpu))
                .collect();
            let new = if index == 0 {
                Arm::new(name)
            } else {
                Arm::aside(name)
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
            .ok_or_else(|| format!("{name} was not measured"))
    };
    let (ours, floor) = (take("ours")?, take("none_again")?);
    Ok(Report {
        unit: "wall time of a fixed amount of work by that without a profiler, every processor taken, at 1,000 Hz",
        ours,
        peers: arms,
        floor: Some(floor),
        better: f64::min,
        goal: "least of all; ours <= 1.03 with every processor taken, <= 1.015 with 1 thread",
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
    least("ours", "", GOAL_TAKEN) && least("ours_1_thread", "_1_thread", GOAL_FREE)
}

/// What an arm's runs tell besides their times.
fn note_of(arm: &str, threads: usize, seen: &[Round]) -> String {
    let runs: Vec<&Run> = seen
        .iter()
        .filter(|round| round.threads == threads)
        .filter_map(|round| round.runs.iter().find(|(name, _)| *name == arm))
        .map(|(_, run)| run)
        .collect();
    let median_of =
        |value: fn(&Run) -> f64| median(&runs.iter().map(|run| value(run)).collect::<Vec<_>>());
    let about = runs
        .first()
        .map(|run| run.about.clone())
        .unwrap_or_default();
    format!(
        "{arm}, {threads} threads: {:.4} s wall, {:.4} s of processors, {:.4} s of them the work's; \
         {:.0} samples a second of work{about}",
        median_of(|run| run.wall),
        median_of(|run| run.cpu),
        median_of(|run| run.work_cpu),
        median_of(|run| run.samples / run.work_cpu),
    )
}

/// Each arm once.
struct Round {
    threads: usize,
    none: Run,
    runs: Vec<(&'static str, Run)>,
}

impl Round {
    fn make(number: usize, threads: usize, portions: u64) -> Result<Self, Box<dyn Error>> {
        let arms: Vec<&'static str> = std::iter::once(UNPROFILED)
            .chain(ARMS.iter().map(|(arm, _)| *arm))
            .collect();
        let (mut none, mut runs) = (None, Vec::new());
        for index in 0..arms.len() {
            let arm = arms[(number + index) % arms.len()];
            let run = Run::make(arm, threads, portions)?;
            match arm {
                UNPROFILED => none = Some(run),
                _ => runs.push((arm, run)),
            }
        }
        let none = none.ok_or("every round has a run without a profiler")?;
        Ok(Self {
            threads,
            none,
            runs,
        })
    }

    fn by_none(&self, arm: &str, of_cpu: bool) -> Option<f64> {
        let time = |run: &Run| if of_cpu { run.cpu } else { run.wall };
        let (_, run) = self.runs.iter().find(|(name, _)| *name == arm)?;
        Some(time(run) / time(&self.none)).filter(|ratio| ratio.is_finite())
    }
}

/// One process's run, in seconds.
struct Run {
    wall: f64,
    /// Of the whole process.
    cpu: f64,
    /// Of the threads that work.
    work_cpu: f64,
    samples: f64,
    /// What else there is to say, with what leads on to it.
    about: String,
}

impl Run {
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

/// The child. Arguments: the arm, threads, portions. An arm that is refused tells so, and has no times.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [arm, threads, portions] = arguments else {
        return Err("three arguments".into());
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
            settle_engine()?;
            let session = ProfilerSession::start(
                StartParams::default().interval(Duration::from_secs(1) / HZ),
            )?;
            let times = work(threads, portions, |_| ())?;
            let profile = session.finish()?;
            let samples =
                count(&profile, "captured_samples").ok_or("the profile does not count samples")?;
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
            // Its perf events are inherited by the threads that are made from here on.
            let profiler =
                match CpuProfiler::start(CpuProfilingConfig::default().frequency_hz(HZ.into())) {
                    Ok(profiler) => profiler,
                    Err(refusal) => {
                        return Ok(json!({"about": format!("it cannot start: {refusal}")}));
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
        other => return Err(format!("there is no arm `{other}`").into()),
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

/// A thread that signals those that have run since the last tick, until it is dropped.
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
                        // One that has ended has no clock, and is not sent to.
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
        // It does nothing that panics.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Does the work on so many new threads, each registered with gekkota. `begin` is told their ids when all are ready.
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
        work_cpu += worker.join().map_err(|_| "a worker has panicked")?;
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
    fn every_bar_counts_and_a_peer_that_cannot_run_sets_none() {
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
    fn a_run_is_taken_by_the_unprofiled_one_of_its_round() {
        let run = |wall, cpu| Run {
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
        assert_eq!(round.by_none("ours", false), Some(1.25));
        assert_eq!(round.by_none("ours", true), Some(1.5));
        assert_eq!(round.by_none("dial9", false), None);
        assert_eq!(round.by_none("pprof", false), None);
    }
}
