//! `wide`: what a session costs in a program with 100, 1,000 and 10,000 threads, of which 0 or 2 run
//! on and off.
//!
//! The others sleep from before the session's start until after its end. A runner works for 4 ms and
//! sleeps for 46 ms, which is so long that the profiler takes it for a sleeper each time, and has
//! to notice when it wakes.
//!
//! The figure is the CPU time of the sampler's thread, as the session counts it, in percent of one
//! processor, with 10,000 threads of which 2 run on and off, at 1,000 Hz. `sampler_…` has it for the
//! other arms, `missed_…` the share of the ticks that were missed, in percent. The others are for 2
//! runners at 1,000 Hz:
//!
//! - `start_…`: time of the session's start, in ms.
//! - `resident_…`: memory that the session has after it has settled, in KiB per thread that exists.
//! - `processed_…`: size of the file in the processed format, in MB. `processed_gz_…` is compressed.
//!
//! `grows_sampler` is the figure with the most threads, divided by that with 1,000: about 1 if it grows
//! with what runs, and about 10 if it grows with what exists.
//!
//! Each run is a separate process; the arms are interleaved. If the system does not allow 10,000
//! threads, there are fewer.

use crate::memory::resident_bytes;
use crate::prelude::*;
use crate::raw::{monotonic_ns, thread_cpu_ns};
use crate::sleepers::Sleepers;
use crate::threads::Threads;

const WORK: Duration = Duration::from_millis(4);
const PAUSE: Duration = Duration::from_millis(46);
/// Wait after a session's start, until the profiler has found that the threads sleep.
const SETTLE: Duration = Duration::from_millis(1500);
/// Numbers of threads to try, if the system does not allow the first of them.
const MOST: [usize; 4] = [10_000, 8000, 5000, 2000];
/// Runners, and samples a second.
const SETTINGS: [(usize, u32); 3] = [(0, 1000), (2, 1000), (2, 100)];
const CENTRAL: (usize, u32) = SETTINGS[1];
/// Figures of only the central setting.
const FIGURES: [&str; 4] = ["start", "resident", "processed", "processed_gz"];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "wide",
    unit: "sampler's CPU time in % of one CPU, with the most threads, of which 2 run on and off; the others by name",
    goal: "ours <= 10 %, and <= 3 times that with 1,000 threads",
    is_met: |study| study.at_most(&["ours"], 10.0) && study.at_most(&["grows_sampler"], 3.0),
    measure: |study| {
        let span_ms = study.pick(700, 5000);
        let mut possible = MOST.into_iter();
        let most = possible.find(|threads| child::run("wide", &[threads]).is_ok());
        let most = most.ok_or("the system does not allow 2,000 threads")?;
        let about = format!("{span_ms} ms per arm after {SETTLE:?}; at most {most} threads");
        study.rounds(study.pick(1, 3), about, |study, _| {
            let mut sampler = Vec::new();
            for threads in [100, 1000, most] {
                for (runners, hz) in SETTINGS {
                    let run = child::run("wide", &[&threads, &runners, &hz, &span_ms])?;
                    let is_central = (runners, hz) == CENTRAL;
                    let central = FIGURES.iter().filter(|_| is_central);
                    for figure in ["sampler", "missed"].iter().chain(central) {
                        let arm = format!("{figure}_{threads}_{runners}_{hz}hz");
                        study.push(&arm, number(&run, figure)?);
                    }
                    if is_central {
                        sampler.push(number(&run, "sampler")?);
                    }
                }
            }
            study.push("ours", sampler[2]);
            study.push("grows_sampler", sampler[2] / sampler[1]);
            Ok(())
        })
    },
    part: run,
    ..Measurement::LONG
};

/// Runs one arm. Arguments: the number of threads, the number of runners among them, samples a second,
/// and the span in milliseconds. With the first alone, it only makes the threads.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let threads: usize = arguments.get(0)?;
    let sleeper = || register_thread("sleeper");
    if arguments.0.len() == 1 {
        // Signal stacks take memory mappings, too, and the kernel limits their number.
        Sleepers::start(threads, sleeper)?;
        return Ok(Value::Null);
    }
    let (runners, hz): (usize, u32) = (arguments.get(1)?, arguments.get(2)?);
    let span = arguments.milliseconds(3)?;
    let _sleepers = Sleepers::start(threads - runners, sleeper)?;
    let runners = Threads::start(
        runners,
        "runner",
        |_| register_thread("runner"),
        |()| {
            work_of_a_runner();
            std::thread::sleep(PAUSE);
        },
    )?;
    let before_bytes = resident_bytes();
    let params = StartParams::default().interval(Duration::from_secs(1) / hz);
    let begin = Instant::now();
    let session = ProfilerSession::start(params)?;
    let start_ms = begin.elapsed().as_secs_f64() * 1e3;
    std::thread::sleep(SETTLE);
    let counts_before = Counts::of(&session.snapshot()?);
    let (settled_bytes, before) = (resident_bytes(), monotonic_ns());
    std::thread::sleep(span);
    let span_ns = (monotonic_ns() - before) as f64;
    let profile = session.finish()?;
    let counts = Counts::of(&profile).since(&counts_before);
    drop(runners);
    let missed = counts.get("missed_ticks");
    let kib = (settled_bytes as f64 - before_bytes as f64) / 1024.0;
    let mut answer = json!({
        "sampler": counts.get("sampler_cpu_ns") * 100.0 / span_ns,
        "missed": missed * 100.0 / (counts.get("ticks") + missed),
        "start": start_ms,
        "resident": kib / threads as f64,
    });
    for (figure, ending) in [
        ("processed", ".processed.json"),
        ("processed_gz", ".processed.json.gz"),
    ] {
        let file = Temporary::new(ending);
        profile.save(&*file)?;
        answer[figure] = json!(file.metadata()?.len() as f64 / 1e6);
    }
    Ok(answer)
}

/// Works until the calling thread has used [`WORK`] of CPU time.
#[inline(never)]
fn work_of_a_runner() {
    let end_ns = thread_cpu_ns() + WORK.as_nanos() as u64;
    while thread_cpu_ns() < end_ns {
        std::hint::black_box((0..2000u64).fold(1u64, |hash, number| {
            (hash ^ number).wrapping_mul(0x100_0000_01b3)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_has_each_figure() {
        let run = run(&Arguments(
            ["6", "1", "1000", "100"].map(str::to_owned).into(),
        ));
        let run = run.expect("a run");
        for figure in ["sampler", "missed"].iter().chain(&FIGURES) {
            assert!(number(&run, figure).is_ok(), "{figure}: {run}");
        }
    }
}
