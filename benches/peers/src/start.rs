//! `start`: time that `profiler_start` takes in a process with 200 loaded libraries, time that
//! `profiler_stop` takes, and how long both delay another thread that registers and unregisters.
//!
//! Each run is a separate process, because the first start costs most: it lists the libraries and
//! creates threads. The later starts are extra figures. pprof-rs creates its first guard in the
//! same way. The scheduler may delay a registration at any time, so the longest registration is
//! measured both during starts and stops and without them.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gekkota::{StartParams, profiler_start, profiler_stop, register_thread, unregister_thread};
use serde_json::{Value, json};

use crate::libraries::Copies;
use crate::machine::{self, load_note};
use crate::report::{Arm, Report, median};
use crate::{Effort, Outcome, child};

const LIBRARIES: usize = 200;
const LATER_STARTS: usize = 30;
/// Time from a start to the stop: some ticks.
const SESSION: Duration = Duration::from_millis(20);
const START_GOAL_MS: f64 = 20.0;
/// Maximum time of a stop, in ms: one interval and 5 ms.
const STOP_GOAL_MS: f64 = 1.0 + 5.0;
/// Maximum delay of a registration, in µs: far less than a start takes.
const WAIT_GOAL_US: f64 = 1000.0;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let rounds = if effort.quick { 3 } else { 11 };
    let mut ours = Arm::new("ours");
    let mut pprof = Arm::new("pprof");
    let mut others = [
        "ours_few_libraries",
        "ours_later",
        "stop",
        "stop_longest",
        "stop_at_once",
    ]
    .map(Arm::extra);
    let mut waits = ["registration_longest_us", "registration_longest_idle_us"].map(Arm::extra);
    let mut notes = vec![format!(
        "{rounds} processes per arm, interleaved; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let (run, taken) = machine::watch(|| {
            let run = |kind: &str, libraries: usize| {
                child::run("start", &[kind.to_owned(), libraries.to_string()])
            };
            let ours = (
                run("ours", LIBRARIES)?,
                run("at_once", LIBRARIES)?,
                run("ours", 0)?,
            );
            Ok::<_, Box<dyn Error>>((ours, run("pprof", LIBRARIES)?))
        });
        let ((with, at_once, few), peer) = run?;
        let number = |run: &Value, name: &str| {
            run[name]
                .as_f64()
                .ok_or(format!("the child's answer lacks `{name}`"))
        };
        ours.runs.push(number(&with, "first_ms")?);
        pprof.runs.push(number(&peer, "first_ms")?);
        let figures = [
            number(&few, "first_ms")?,
            number(&with, "later_ms")?,
            number(&with, "stop_ms")?,
            number(&with, "stop_longest_ms")?,
            number(&at_once, "stop_at_once_ms")?,
        ];
        others
            .iter_mut()
            .zip(figures)
            .for_each(|(arm, figure)| arm.runs.push(figure));
        let figures = [number(&with, "wait_us")?, number(&with, "wait_idle_us")?];
        waits
            .iter_mut()
            .zip(figures)
            .for_each(|(arm, figure)| arm.runs.push(figure));
        notes.push(format!(
            "round {round}: {} libraries; {} registrations during starts and stops, {} before; CPUs used by other processes + the \
             hypervisor: {taken}",
            with["modules"], with["registrations"], with["registrations_idle"]
        ));
    }
    // The goal applies to each process's longest stop, and to the stop directly after a start.
    let stops = [&others[3], &others[4]].map(Arm::figure);
    let met = ours.figure() <= START_GOAL_MS
        && stops.iter().all(|stop| *stop <= STOP_GOAL_MS)
        && waits[0].figure() <= WAIT_GOAL_US;
    Ok(Report {
        unit: "ms for the first start, with 200 libraries",
        ours,
        peers: std::iter::once(pprof).chain(others).chain(waits).collect(),
        floor: None,
        better: f64::min,
        goal: "ours <= 20 ms; each stop <= one interval + 5 ms (1,000 Hz); each registration <= 1 ms",
        met,
        notes,
    })
}

/// Runs one round in the child process. Arguments: the kind of run, and the number of libraries to
/// load first.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [kind, libraries] = arguments else {
        return Err("expected `ours`, `at_once` or `pprof`, and the number of libraries".into());
    };
    let copies = Copies::new()?;
    copies.load(libraries.parse()?)?;
    match kind.as_str() {
        "ours" => start_and_stop(),
        "at_once" => {
            profiler_start(StartParams::default())?;
            let begin = Instant::now();
            profiler_stop();
            Ok(json!({ "stop_at_once_ms": milliseconds(begin) }))
        }
        "pprof" => {
            let begin = Instant::now();
            let guard = pprof::ProfilerGuardBuilder::default()
                .frequency(1000)
                .build()?;
            let first_ms = milliseconds(begin);
            drop(guard);
            Ok(json!({ "first_ms": first_ms }))
        }
        other => Err(format!("unknown kind of run `{other}`").into()),
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Counters of the thread that registers and unregisters in a loop.
#[derive(Default)]
struct Registrations {
    ends: AtomicBool,
    done: AtomicU64,
    longest_ns: AtomicU64,
}

impl Registrations {
    fn run(&self) {
        while !self.ends.load(Ordering::Relaxed) {
            let begin = Instant::now();
            register_thread("comes and goes");
            unregister_thread();
            self.longest_ns
                .fetch_max(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
            self.done.fetch_add(1, Ordering::Relaxed);
            // Leaves a processor to the other threads.
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Returns the number of registrations since the last call, and the longest in microseconds.
    fn take(&self) -> (u64, f64) {
        (
            self.done.swap(0, Ordering::Relaxed),
            self.longest_ns.swap(0, Ordering::Relaxed) as f64 / 1e3,
        )
    }
}

fn start_and_stop() -> Result<Value, Box<dyn Error>> {
    let registrations = Registrations::default();
    std::thread::scope(|scope| {
        scope.spawn(|| registrations.run());
        let result = (|| {
            std::thread::sleep(SESSION * 10);
            let (idle, wait_idle_us) = registrations.take();
            let (mut starts, mut stops) = (Vec::new(), Vec::new());
            for _ in 0..=LATER_STARTS {
                let begin = Instant::now();
                profiler_start(StartParams::default())?;
                starts.push(milliseconds(begin));
                std::thread::sleep(SESSION);
                let begin = Instant::now();
                profiler_stop();
                stops.push(milliseconds(begin));
            }
            let (busy, wait_us) = registrations.take();
            Ok::<_, Box<dyn Error>>(json!({
                "first_ms": starts[0],
                "later_ms": median(&starts[1..]),
                "stop_ms": median(&stops),
                "stop_longest_ms": stops.iter().copied().fold(0.0, f64::max),
                "wait_us": wait_us,
                "wait_idle_us": wait_idle_us,
                "registrations": busy,
                "registrations_idle": idle,
                "modules": crate::raw::modules().len(),
            }))
        })();
        registrations.ends.store(true, Ordering::Relaxed);
        result
    })
}
