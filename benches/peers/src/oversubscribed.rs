//! `oversubscribed`: share of ticks that the sampler begins on schedule while 64 threads are busy,
//! at 1,000 Hz.
//!
//! A tick is on schedule if the sampler begins it within half an interval of its time. Missed ticks
//! are not on schedule.
//!
//! The peer is the sampler of `handshake.rs`. It waits for each thread in turn, and a thread
//! answers only when it gets a processor. It keeps the same schedule as ours and is prepared in the
//! same way, which Gecko's is not, so that the waiting is the only difference. The floor is a
//! thread that is prepared in the same way and only sleeps.
//!
//! A sampler that needs more than its fair share of the processors, one 65th next to 64 busy
//! threads, has to wait like any other thread. The notes show how long a tick of ours takes.
//!
//! Our figure uses the session's counts of all ticks, late ticks and missed ticks.

use std::error::Error;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gekkota::{ProfilerSession, StartParams, register_thread};

use crate::busy::BusyThreads;
use crate::handshake::HandshakeSampler;
use crate::machine::{self, load_note};
use crate::profile::{count, engine_of};
use crate::raw::{self, SuspendableThread};
use crate::report::{Arm, Report};
use crate::schedule::Schedule;
use crate::{Effort, Outcome};

const BUSY_THREADS: usize = 64;
const INTERVAL: Duration = Duration::from_millis(1);
/// Time before the measurement: the processors reach their full speed, and each thread gets to run.
const WARM_UP: Duration = Duration::from_millis(300);
const GOAL: f64 = 0.99;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, span) = if effort.quick { (2, 2) } else { (5, 8) };
    let span = Duration::from_secs(span);
    let (mut ours, mut gecko_style) = (Arm::new("ours"), Arm::new("gecko_style"));
    let mut sleeper = Arm::new("sleeper");
    let mut handshake = HandshakeSampler::new()?;
    let mut notes = vec![format!(
        "{BUSY_THREADS} busy threads; {rounds} rounds of {span:?} per arm, interleaved; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let (result, taken_from_ours) = machine::watch(|| run_ours(span));
        let (fraction, note) = result?;
        ours.runs.push(fraction);
        let (result, taken_from_gecko) = machine::watch(|| run_gecko_style(span, &mut handshake));
        let (fraction, gecko_note) = result?;
        gecko_style.runs.push(fraction);
        let (result, taken_from_sleeper) = machine::watch(|| run_sleeper(span));
        sleeper.runs.push(result?);
        notes.push(format!("round {round}: {note}; {gecko_note}"));
        notes.push(format!(
            "round {round}: CPUs used by other processes + the hypervisor: ours {taken_from_ours}, \
             gecko_style {taken_from_gecko}, sleeper {taken_from_sleeper}",
        ));
    }
    let met = ours.figure() >= GOAL;
    Ok(Report {
        unit: "share of ticks on schedule, with 64 busy threads at 1,000 Hz",
        ours,
        peers: vec![gecko_style],
        floor: Some(sleeper),
        better: f64::max,
        goal: "ours >= 0.99",
        met,
        notes,
    })
}

fn start_busy_threads(first: impl Fn() + Clone + Send + 'static) -> std::io::Result<BusyThreads> {
    let threads = BusyThreads::start(BUSY_THREADS, first)?;
    std::thread::sleep(WARM_UP);
    Ok(threads)
}

fn run_ours(span: Duration) -> Result<(f64, String), Box<dyn Error>> {
    let _busy = start_busy_threads(|| register_thread(""))?;
    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
    std::thread::sleep(span);
    let profile = session.finish()?;
    let count = |name: &str| {
        count(&profile, name).ok_or_else(|| format!("the profile has no count `{name}`"))
    };
    let (ticks, late, missed) = (
        count("ticks")?,
        count("late_ticks")?,
        count("missed_ticks")?,
    );
    let note = format!(
        "ours: {} ticks, {late} late, {missed} missed, {:.1} µs of CPU time per tick that began, \
         {} samples; engine: {}",
        ticks + missed,
        count("sampler_cpu_ns")? as f64 / 1e3 / ticks.max(1) as f64,
        count("captured_samples")?,
        engine_of(&profile)?,
    );
    Ok((on_time(ticks, late, missed), note))
}

/// Returns the share of ticks that were neither late nor missed.
fn on_time(begun: u64, late: u64, missed: u64) -> f64 {
    begun.saturating_sub(late) as f64 / (begun + missed).max(1) as f64
}

fn run_gecko_style(
    span: Duration,
    sampler: &mut HandshakeSampler,
) -> Result<(f64, String), Box<dyn Error>> {
    let (sender, receiver) = channel();
    let _busy = start_busy_threads(move || {
        // The receiver lives until it has received all of these.
        let _ = sender.send(SuspendableThread::current());
    })?;
    let threads = receiver
        .iter()
        .take(BUSY_THREADS)
        .collect::<Result<Vec<_>, _>>()?;
    let (fraction, samples) = std::thread::scope(|scope| {
        let body = || {
            raw::prepare_sampler_thread();
            let start = Instant::now();
            let mut schedule = Schedule::start(INTERVAL);
            let mut samples = 0;
            while start.elapsed() < span {
                // Sampling all threads once can take longer than the span.
                for thread in threads.iter().take_while(|_| start.elapsed() < span) {
                    samples += u64::from(!sampler.sample(thread).is_empty());
                }
                schedule.sleep_to_next();
            }
            (schedule.on_time(), samples)
        };
        scope.spawn(body).join().map_err(|_| "the sampler panicked")
    })?;
    Ok((fraction, format!("gecko_style: {samples} samples")))
}

fn run_sleeper(span: Duration) -> Result<f64, Box<dyn Error>> {
    let _busy = start_busy_threads(|| {})?;
    let sleeper = std::thread::Builder::new().spawn(move || {
        raw::prepare_sampler_thread();
        let start = Instant::now();
        let mut schedule = Schedule::start(INTERVAL);
        while start.elapsed() < span {
            schedule.sleep_to_next();
        }
        schedule.on_time()
    })?;
    Ok(sleeper.join().map_err(|_| "the sleeper panicked")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_time_excludes_late_and_missed_ticks() {
        assert_eq!(on_time(90, 5, 10), 0.85);
        assert_eq!(on_time(100, 0, 0), 1.0);
        assert_eq!(on_time(0, 0, 0), 0.0);
    }
}
