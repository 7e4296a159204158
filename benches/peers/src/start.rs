//! `start`: time that `profiler_start` takes in a process with 200 loaded libraries, time that
//! `profiler_stop` takes, and how long both delay another thread that registers and unregisters.
//!
//! Each run is a separate process, because the first start costs most: it lists the libraries and
//! creates threads. The later starts are extra figures. pprof-rs creates its first guard in the
//! same way. The scheduler may delay a registration at any time, so the longest registration is
//! measured both during starts and stops and without them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gekkota::{profiler_start, profiler_stop, unregister_thread};

use crate::libraries::Copies;
use crate::prelude::*;

const LIBRARIES: usize = 200;
const LATER_STARTS: usize = 30;
/// Time from a start to the stop: some ticks.
const SESSION: Duration = Duration::from_millis(20);

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "start",
    unit: "ms for the first start, with 200 libraries",
    goal: "ours <= 20 ms; each stop <= one interval + 5 ms (1,000 Hz); each registration <= 1 ms",
    peers: &["pprof"],
    is_met: |study| {
        study.at_most(&["ours"], 20.0)
            && study.at_most(&["stop_longest", "stop_at_once"], 1.0 + 5.0)
            && study.at_most(&["registration_longest_us"], 1000.0)
    },
    rounds: [3, 11],
    arms: &["ours", "ours_few_libraries", "stop_at_once", "pprof"],
    part: run,
    ..Measurement::NEW
};

/// Runs one round. Argument: the arm.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let arm = arguments.text(0)?;
    let copies = Copies::new()?;
    if arm != "ours_few_libraries" {
        copies.load(LIBRARIES)?;
    }
    match arm {
        "ours" => start_and_stop(),
        "ours_few_libraries" => Ok(json!({ arm: start_and_stop()?["ours"] })),
        "stop_at_once" => {
            profiler_start(StartParams::default())?;
            let begin = Instant::now();
            profiler_stop();
            Ok(json!({ arm: milliseconds(begin) }))
        }
        _ => {
            let begin = Instant::now();
            let guard = pprof_rs::start(INTERVAL)?;
            let first_ms = milliseconds(begin);
            drop(guard);
            Ok(json!({ arm: first_ms }))
        }
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Counters of the thread that registers and unregisters in a loop.
#[derive(Default)]
struct Registrations {
    ends: AtomicBool,
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
            // Leaves a processor to the other threads.
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Returns the longest registration since the last call, in microseconds.
    fn take(&self) -> f64 {
        self.longest_ns.swap(0, Ordering::Relaxed) as f64 / 1e3
    }
}

fn start_and_stop() -> Fallible<Value> {
    let registrations = Registrations::default();
    std::thread::scope(|scope| {
        scope.spawn(|| registrations.run());
        let result = (|| {
            std::thread::sleep(SESSION * 10);
            let idle_us = registrations.take();
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
            let longest_us = registrations.take();
            Fallible::<Value>::Ok(json!({
                "ours": starts[0],
                "ours_later": median(&starts[1..]),
                "stop": median(&stops),
                "stop_longest": stops.iter().copied().fold(0.0, f64::max),
                "registration_longest_us": longest_us,
                "registration_longest_idle_us": idle_us,
                "also": { "modules": crate::raw::modules().len() },
            }))
        })();
        registrations.ends.store(true, Ordering::Relaxed);
        result
    })
}
