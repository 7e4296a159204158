//! `stall`: the time that one sample takes from a busy thread whose stack is 36 frames deep.
//!
//! The thread (`target.rs`) reads the processor's clock in a tight loop at the bottom of a recursion. Where two readings
//! are further apart than the loop can explain, somebody had the processor meanwhile, and the thread adds the gap to
//! what it lost. What it loses without any profiler, to the kernel's ticks and a virtual machine's host, is measured in
//! spans of the same length before and after, and taken off; the rest, by the samples that were taken, is the figure. A
//! gap of a millisecond and more is another program's turn or the host's, which no sample takes; it belongs to no span,
//! and the notes tell how many there were.
//!
//! The thread has a processor of its own, where there are two or more, and all others of the process, the sampler among
//! them, share the rest: whoever samples comes from another processor.
//!
//! Each run is a process of its own. The arms (`stall_arms.rs`) take turns. The floor is a handler that does nothing but
//! count, signalled by a thread that does nothing but sleep and signal. `gecko_style` is `handshake.rs`. A peer whose
//! timer is coarser than what was asked for is measured at what it gives; the notes hold the rates.
//!
//! For local timers, the second engine, the bare costs stand beside: of a `perf_event_open` CPU clock that signals, and
//! of a POSIX timer whose interrupt comes on the thread's own processor, both into that same empty handler. No engine
//! can be cheaper than what it is built on.

use std::error::Error;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::profile::is_local_timers;
use crate::raw;
use crate::report::{Arm, Report, median};
use crate::stall_arms::Sampler;
use crate::target::{LONGEST_GAP, Lost, Target};
use crate::{Effort, Outcome, child};

/// From a sampler's end until the machine is quiet again.
const SETTLE: Duration = Duration::from_millis(20);
const SIGNALS_GOAL: f64 = 1.10;
const LOCAL_TIMERS_GOAL: f64 = 0.5;

/// What samples the thread: the name in the report at 10,000 Hz, which is the child's argument as well, and at 1,000.
const ARMS: [(&str, &str); 7] = [
    ("ours", "ours_1khz"),
    ("empty_handler", "empty_handler_1khz"),
    ("ours_local_timers", "ours_local_timers_1khz"),
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
    let aside = ["ours_local_timers", "bare_perf_timer", "bare_posix_timer"];
    let mut fast = ARMS.map(|(name, _)| {
        if aside.contains(&name) {
            Arm::aside(name)
        } else {
            Arm::new(name)
        }
    });
    let mut slow = ARMS.map(|(_, name)| Arm::aside(name));
    let mut notes = vec![format!(
        "{rounds} rounds of {pairs} spans of {span_ms} ms an arm and frequency, in turns, as many quiet ones between; {}",
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
            "round {round}: processors that others + the hypervisor had: {taken}"
        ));
    }
    notes.extend(notes_of(&seen));
    let figure = |name: &str| {
        fast.iter()
            .find(|arm| arm.name == name)
            .map_or(f64::NAN, Arm::figure)
    };
    let verdict = Verdict {
        floor: figure("empty_handler"),
        signals: figure("ours"),
        local_timers: figure("ours_local_timers"),
        allowed: figure("bare_perf_timer").is_finite(),
        used: seen
            .iter()
            .filter(|run| run["arm"] == "ours_local_timers")
            .all(|run| run["engine"].as_str().is_some_and(is_local_timers)),
    };
    notes.push(verdict.note());
    let met = verdict.is_met();
    let [ours, floor, others @ ..] = fast;
    let peers = others
        .into_iter()
        .chain(slow)
        .filter(|arm| !arm.runs.is_empty())
        .collect();
    Ok(Report {
        unit: "ns taken from a busy thread by one sample, 36 frames deep, at 10,000 Hz",
        ours,
        peers,
        floor: Some(floor),
        better: f64::min,
        goal: "ours <= 1.10 x empty_handler with signals, <= 0.5 x with local timers where allowed",
        met,
        notes,
    })
}

struct Verdict {
    floor: f64,
    signals: f64,
    local_timers: f64,
    /// Whether the kernel lets this process have the timers.
    allowed: bool,
    /// Whether the session that was asked to use them did.
    used: bool,
}

impl Verdict {
    fn is_met(&self) -> bool {
        let signals = self.signals <= SIGNALS_GOAL * self.floor;
        let local_timers = self.used && self.local_timers <= LOCAL_TIMERS_GOAL * self.floor;
        signals && (local_timers || !self.allowed)
    }

    fn note(&self) -> String {
        let signals = self.signals / self.floor;
        let local_timers = match (self.allowed, self.used) {
            (false, _) => "are not allowed here".to_owned(),
            (true, false) => "were asked for, and signals used".to_owned(),
            (true, true) => format!("{:.3}", self.local_timers / self.floor),
        };
        format!("by the floor: signals {signals:.3}, local timers {local_timers}")
    }
}

/// What the runs of each arm tell besides their figures.
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
            .filter_map(|run| run["longest_gaps"].as_u64())
            .sum();
        if gaps > 0 {
            note += &format!("; {gaps} gaps of {LONGEST_GAP:?} and more were left out");
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

/// One arm's run in its own process. Arguments: the arm, samples per second, spans, and their length in ms.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [arm, hz, pairs, span_ms] = arguments else {
        return Err("four arguments".into());
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
    // What a processor needs to get to its full speed.
    std::thread::sleep(Duration::from_millis(100));

    let (mut before, mut costs) = (target.watch(span), Vec::new());
    let (mut samples, mut seconds, mut longest_gaps) = (0, 0.0, 0);
    for _ in 0..pairs {
        let running = match sampler.start(&target, Duration::from_secs(1) / hz) {
            Ok(running) => running,
            Err(refusal) if arm.starts_with("bare") => {
                return Ok(json!({"arm": arm, "asked_hz": hz, "refused": refusal.to_string()}));
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
        longest_gaps += before.longest_gaps + lost.longest_gaps;
        samples += taken;
        before = after;
    }
    Ok(json!({
        "arm": arm,
        "asked_hz": hz,
        "hz": samples as f64 / seconds,
        "ns_per_sample": median(&costs),
        "longest_gaps": longest_gaps,
        "frames": sampler.frames,
        "engine": sampler.engine,
    }))
}

/// What was lost above what is lost in quiet spans, by the samples.
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
    fn what_is_lost_without_samples_is_taken_off() {
        let lost = |lost_ns, span_ns| Lost {
            lost_ns,
            span_ns,
            longest_gaps: 0,
        };
        let quiet = [lost(100.0, 1e6), lost(600.0, 2e6)];
        assert_eq!(cost_of_sample(&lost(20_400.0, 2e6), &quiet, 2), 10_000.0);
    }

    #[test]
    fn both_goals_count_where_timers_are_allowed() {
        let verdict = |signals, local_timers, allowed, used| {
            Verdict {
                floor: 10.0,
                signals,
                local_timers,
                allowed,
                used,
            }
            .is_met()
        };
        assert!(verdict(11.0, 5.0, true, true));
        assert!(!verdict(11.1, 5.0, true, true));
        assert!(!verdict(11.0, 5.1, true, true));
        assert!(!verdict(11.0, 5.0, true, false), "signals were used");
        assert!(verdict(11.0, 9.0, false, false));
        assert!(!verdict(f64::NAN, 5.0, true, true));
    }
}
