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
//! Each run is a separate process. The arms are interleaved. The floor is a handler that only counts,
//! signaled by a thread that only sleeps and signals. `gecko_style` is `handshake.rs`. A peer whose
//! timer is coarser than requested is measured at the rate that it achieves (`hz_…`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::handshake::HandshakeSampler;
use crate::prelude::*;
use crate::raw::{self, EmptyHandler};
use crate::schedule::Schedule;
use crate::target::{Lost, Target};
use crate::threads::{BUSY_NAME, Threads};

const INTERVAL: Duration = Duration::from_micros(100);
/// Wait after a sampler's end, until the machine is quiet again.
const SETTLE: Duration = Duration::from_millis(20);

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "stall",
    unit: "ns that one sample takes from a busy thread, 36 frames deep, at 10,000 Hz",
    goal: "ours <= 1.10 x empty_handler",
    peers: &["gecko_style", "pprof"],
    floor: "empty_handler",
    is_met: |study| study.at_most(&["ours"], 1.1 * study.figure("empty_handler")),
    rounds: [2, 5],
    sizes: [&[2, 120], &[4, 250]],
    size_names: &["spans per arm", "ms each, with as many quiet ones between"],
    arms: &["ours", "empty_handler", "gecko_style", "pprof"],
    part: run,
    ..Measurement::NEW
};

/// Runs one arm. Arguments: the arm, the number of spans, and their length in ms.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (arm, pairs) = (arguments.text(0)?, arguments.get(1)?);
    let span = arguments.milliseconds(2)?;
    let processors = raw::processors();
    let own = match processors.split_last() {
        Some((last, rest)) if !rest.is_empty() => {
            raw::run_on(rest)?;
            Some(*last)
        }
        _ => None,
    };
    let target = Target::start(own)?;
    let start_sampler = sampler(arm)?;
    // Wait until the processors have reached their full speed.
    std::thread::sleep(Duration::from_millis(100));

    let (mut before, mut costs) = (target.watch(span), Vec::new());
    let (mut samples, mut seconds, mut excluded_gaps) = (0.0, 0.0, 0);
    for _ in 0..pairs {
        let stop = start_sampler(&target)?;
        let start = Instant::now();
        let lost = target.watch(span);
        seconds += start.elapsed().as_secs_f64();
        let taken = stop()?;
        std::thread::sleep(SETTLE);
        let after = target.watch(span);
        if taken > 0.0 {
            costs.push(cost_of_sample(&lost, &[before, after], taken));
        }
        excluded_gaps += before.excluded_gaps + lost.excluded_gaps;
        samples += taken;
        before = after;
    }
    Ok(json!({
        arm: median(&costs),
        "also": { format!("hz_{arm}"): samples / seconds, format!("excluded_gaps_{arm}"): excluded_gaps },
    }))
}

/// Starts to sample the busy thread.
type Start = Box<dyn Fn(&Target) -> Fallible<Stop>>;
/// Stops that, and returns the number of samples.
type Stop = Box<dyn FnOnce() -> Fallible<f64>>;

/// Returns the sampler of an arm.
fn sampler(arm: &str) -> Fallible<Start> {
    Ok(match arm {
        "ours" => Box::new(|_| {
            let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
            Ok(Box::new(|| {
                Ok(Counts::of(&session.finish()?).get("captured_samples"))
            }))
        }),
        "empty_handler" => {
            let handler = EmptyHandler::install()?;
            Box::new(move |target| {
                let (thread, before) = (target.thread_id, handler.answers());
                let sender = start_ticking(move || _ = handler.send(thread))?;
                Ok(Box::new(move || {
                    drop(sender);
                    Ok((handler.answers() - before) as f64)
                }))
            })
        }
        "gecko_style" => {
            let sampler = Arc::new(Mutex::new(HandshakeSampler::new()?));
            Box::new(move |target| {
                let (sampler, thread) = (Arc::clone(&sampler), target.suspendable.clone());
                let samples = Arc::new(AtomicU64::new(0));
                let counted = Arc::clone(&samples);
                let running = start_ticking(move || {
                    let mut sampler = sampler.lock().unwrap_or_else(PoisonError::into_inner);
                    sampler.sample(&thread);
                    counted.fetch_add(1, Ordering::Relaxed);
                })?;
                Ok(Box::new(move || {
                    drop(running);
                    Ok(samples.load(Ordering::Relaxed) as f64)
                }))
            })
        }
        _ => Box::new(|_| {
            let guard = pprof_rs::start(INTERVAL)?;
            Ok(Box::new(move || pprof_rs::samples_of(&guard, BUSY_NAME)))
        }),
    })
}

/// Starts a thread that is prepared as gekkota's sampler is and ticks on the same kind of schedule,
/// which drops missed ticks.
fn start_ticking(tick: impl Fn() + Clone + Send + 'static) -> std::io::Result<Threads> {
    let prepare = move |_| {
        raw::prepare_sampler_thread();
        (tick.clone(), Schedule::start(INTERVAL))
    };
    Threads::start(1, "sampler", prepare, |(tick, schedule)| {
        tick();
        schedule.sleep_to_next();
    })
}

/// Returns the time lost beyond that of quiet spans, divided by the number of samples.
fn cost_of_sample(lost: &Lost, quiet: &[Lost], samples: f64) -> f64 {
    let quiet_share = quiet
        .iter()
        .map(|quiet| quiet.lost_ns / quiet.span_ns)
        .sum::<f64>()
        / quiet.len() as f64;
    (lost.lost_ns - quiet_share * lost.span_ns) / samples
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
        assert_eq!(cost_of_sample(&lost(20_400.0, 2e6), &quiet, 2.0), 10_000.0);
    }
}
