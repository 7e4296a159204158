//! `stall`: time that one sample takes from a busy thread whose stack is 36 frames deep.
//!
//! The thread (`target.rs`) reads the processor's clock in a tight loop at the bottom of a
//! recursion. If two readings are further apart than the loop can explain, other code had the
//! processor, and the thread adds the gap to its lost time. The time that it loses without a
//! profiler, to the kernel's ticks and a virtual machine's host, is measured in spans of the same
//! length before and after, and subtracted. The rest, divided by the number of samples, is the
//! figure. A gap of a millisecond or more is due to another program or the host, because no sample
//! takes that long. Such gaps are left out of both the lost time and the spans; the notes have
//! their number.
//!
//! With two or more processors, the thread has its own processor, and all other threads of the
//! process, including the sampler, share the rest. So every sampler works from another processor.
//!
//! Each run is a separate process. The arms (`stall_arms.rs`) are interleaved. The floor is a
//! handler that only counts, signaled by a thread that only sleeps and signals. `gecko_style` is
//! `handshake.rs`. A peer whose timer is coarser than requested is measured at the rate that it
//! achieves; the notes have the rates.
//!
//! There are also the bare costs of other ways to interrupt the thread: of a `perf_event_open` CPU
//! clock that signals, and of a POSIX timer that interrupts the thread's own processor, both with
//! that same empty handler. No sampler can be cheaper than what it is built on.

use std::error::Error;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::raw;
use crate::report::{Arm, Report, median};
use crate::stall_arms::Sampler;
use crate::target::{EXCLUDED_GAP, Lost, Target};
use crate::{Effort, Outcome, child};

/// Wait after a sampler's end, until the machine is quiet again.
const SETTLE: Duration = Duration::from_millis(20);
const GOAL: f64 = 1.10;

/// The names of each sampler in the report: at 10,000 Hz, which is also the child's argument, and
/// at 1,000 Hz.
const ARMS: [(&str, &str); 6] = [
    ("ours", "ours_1khz"),
    ("empty_handler", "empty_handler_1khz"),
    ("bare_perf_timer", "bare_perf_timer_1khz"),
    ("bare_posix_timer", "bare_posix_timer_1khz"),
    ("gecko_style", "gecko_style_1khz"),
    ("pprof", "pprof_1khz"),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, pairs, span_ms) = if effort.quick {
        (2, 2, 120)
    } else {
        (5, 4, 250)
    };
    let extra = ["bare_perf_timer", "bare_posix_timer"];
    let mut fast = ARMS.map(|(name, _)| {
        if extra.contains(&name) {
            Arm::extra(name)
        } else {
            Arm::new(name)
        }
    });
    let mut slow = ARMS.map(|(_, name)| Arm::extra(name));
    let mut notes = vec![format!(
        "{rounds} rounds of {pairs} spans of {span_ms} ms per arm and frequency, interleaved, with as many quiet spans between; {}",
        load_note()
    )];
    let mut seen: Vec<Value> = Vec::new();
    for round in 1..=rounds {
        let (result, taken) = machine::watch(|| {
            for (hz, arms) in [(10_000, &mut fast), (1_000, &mut slow)] {
                for (arm, (name, _)) in arms.iter_mut().zip(ARMS) {
                    let arguments = [
                        name.to_owned(),
                        hz.to_string(),
                        pairs.to_string(),
                        span_ms.to_string(),
                    ];
                    let run = child::run("stall", &arguments)?;
                    arm.runs.extend(run["ns_per_sample"].as_f64());
                    seen.push(run);
                }
            }
            Ok::<(), Box<dyn Error>>(())
        });
        result?;
        notes.push(format!(
            "round {round}: CPUs used by other processes + the hypervisor: {taken}"
        ));
    }
    notes.extend(notes_of(&seen));
    let [ours, floor, others @ ..] = fast;
    let relative = ours.figure() / floor.figure();
    notes.push(format!("ours relative to the floor: {relative:.3}"));
    let met = relative <= GOAL;
    let peers = others
        .into_iter()
        .chain(slow)
        .filter(|arm| !arm.runs.is_empty())
        .collect();
    Ok(Report {
        unit: "ns that one sample takes from a busy thread, 36 frames deep, at 10,000 Hz",
        ours,
        peers,
        floor: Some(floor),
        better: f64::min,
        goal: "ours <= 1.10 x empty_handler",
        met,
        notes,
    })
}

/// Returns notes on the runs of each arm.
fn notes_of(seen: &[Value]) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, _) in ARMS {
        let of_arm = || seen.iter().filter(|run| run["arm"] == name);
        let rates = [10_000, 1_000].map(|hz| {
            let of_rate = of_arm().filter(|run| run["asked_hz"] == hz);
            let rates: Vec<f64> = of_rate.filter_map(|run| run["hz"].as_f64()).collect();
            format!("{:.0} of {hz}", median(&rates))
        });
        let refused = of_arm().find_map(|run| run["refused"].as_str());
        let mut note = match refused {
            Some(refused) => format!("{name}: {refused}"),
            None => format!("{name}: samples per second {}", rates.join(", ")),
        };
        let gaps: u64 = of_arm()
            .filter_map(|run| run["excluded_gaps"].as_u64())
            .sum();
        if gaps > 0 {
            note += &format!("; {gaps} gaps of {EXCLUDED_GAP:?} or more were excluded");
        }
        if let Some(engine) = of_arm().find_map(|run| run["engine"].as_str()) {
            note += &format!("; engine: {engine}");
        }
        if let Some(frames) = of_arm().find_map(|run| run["frames"].as_u64()) {
            note += &format!("; {frames} frames");
        }
        notes.push(note);
    }
    notes
}

/// Runs one arm in the child process. Arguments: the arm, samples per second, the number of spans,
/// and their length in ms.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [arm, hz, pairs, span_ms] = arguments else {
        return Err(
            "expected an arm, a frequency, the number of spans and their length in ms".into(),
        );
    };
    let (hz, pairs, span_ms): (u32, u32, u64) = (hz.parse()?, pairs.parse()?, span_ms.parse()?);
    let span = Duration::from_millis(span_ms);
    let processors = raw::processors();
    let own = match processors.split_last() {
        Some((last, rest)) if !rest.is_empty() => {
            raw::run_on(rest)?;
            Some(*last)
        }
        _ => None,
    };
    let target = Target::start(own)?;
    let mut sampler = Sampler::new(arm)?;
    // Wait until the processors have reached their full speed.
    std::thread::sleep(Duration::from_millis(100));

    let (mut before, mut costs) = (target.watch(span), Vec::new());
    let (mut samples, mut seconds, mut excluded_gaps) = (0, 0.0, 0);
    for _ in 0..pairs {
        let running = match sampler.start(&target, Duration::from_secs(1) / hz) {
            Ok(running) => running,
            Err(error) if arm.starts_with("bare") => {
                return Ok(json!({"arm": arm, "asked_hz": hz, "refused": error.to_string()}));
            }
            Err(error) => return Err(error),
        };
        let start = Instant::now();
        let lost = target.watch(span);
        seconds += start.elapsed().as_secs_f64();
        let taken = running.stop(&mut sampler)?;
        std::thread::sleep(SETTLE);
        let after = target.watch(span);
        if taken > 0 {
            costs.push(cost_of_sample(&lost, &[before, after], taken));
        }
        excluded_gaps += before.excluded_gaps + lost.excluded_gaps;
        samples += taken;
        before = after;
    }
    Ok(json!({
        "arm": arm,
        "asked_hz": hz,
        "hz": samples as f64 / seconds,
        "ns_per_sample": median(&costs),
        "excluded_gaps": excluded_gaps,
        "frames": sampler.frames,
        "engine": sampler.engine,
    }))
}

/// Returns the time lost beyond that of quiet spans, divided by the number of samples.
fn cost_of_sample(lost: &Lost, quiet: &[Lost], samples: u64) -> f64 {
    let quiet_share = quiet
        .iter()
        .map(|quiet| quiet.lost_ns / quiet.span_ns)
        .sum::<f64>()
        / quiet.len() as f64;
    (lost.lost_ns - quiet_share * lost.span_ns) / samples as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_of_sample_subtracts_quiet_losses() {
        let lost = |lost_ns, span_ns| Lost {
            lost_ns,
            span_ns,
            excluded_gaps: 0,
        };
        let quiet = [lost(100.0, 1e6), lost(600.0, 2e6)];
        assert_eq!(cost_of_sample(&lost(20_400.0, 2e6), &quiet, 2), 10_000.0);
    }
}
