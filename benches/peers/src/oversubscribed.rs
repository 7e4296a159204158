//! `oversubscribed`: the ticks on which the sampler is on schedule while 64 threads are busy, at 1,000 Hz.
//!
//! A tick is on schedule when the sampler begins it within half an interval of its time. Those that it misses
//! altogether are not.
//!
//! The peer is the sampler of `handshake.rs`, which waits for each thread in turn: a thread that does not run does not
//! answer. It keeps the same schedule as ours, and is prepared in the same way, which Gecko's is not, so that waiting is
//! all that differs. The floor is a thread that is prepared so and only sleeps.
//!
//! A sampler that needs more of the processors than its fair share, which beside 64 busy threads is the 65th part of them
//! all, waits for its turn like everybody else: the notes tell what a tick of ours takes.
//!
//! Ours tells itself how many ticks there were, how many were late and how many missed.

use std::error::Error;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gekkota::{ProfilerSession, StartParams, register_thread};

use crate::busy::BusyThreads;
use crate::handshake::HandshakeSampler;
use crate::machine::{self, load_note};
use crate::profile::{count, engine_of, settle_engine};
use crate::raw::{self, StoppableThread};
use crate::report::{Arm, Report};
use crate::schedule::Schedule;
use crate::{Effort, Outcome};

const BUSY_THREADS: usize = 64;
const INTERVAL: Duration = Duration::from_millis(1);
/// What a processor needs to get to its full speed, and until all threads have had a turn.
const WARM_UP: Duration = Duration::from_millis(300);
const GOAL: f64 = 0.99;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, span) = if effort.quick { (2, 2) } else { (5, 8) };
    let span = Duration::from_secs(span);
    let (mut ours, mut gecko_style) = (Arm::new("ours"), Arm::new("gecko_style"));
    let mut sleeper = Arm::new("sleeper");
    let mut handshake = HandshakeSampler::new()?;
    settle_engine()?;
    let mut notes = vec![format!(
        "{BUSY_THREADS} busy threads; {rounds} rounds of {span:?} an arm, in turns; {}",
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
            "round {round}: processors that others + the hypervisor had: ours {taken_from_ours}, \
             gecko_style {taken_from_gecko}, sleeper {taken_from_sleeper}",
        ));
    }
    let met = ours.figure() >= GOAL;
    Ok(Report {
        unit: "ticks on schedule per tick, beside 64 busy threads at 1,000 Hz",
        ours,
        peers: vec![gecko_style],
        floor: Some(sleeper),
        better: f64::max,
        goal: "ours >= 0.99 within half an interval",
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
        count(&profile, name).ok_or_else(|| format!("the profile does not count {name}"))
    };
    let (ticks, late, missed) = (
        count("ticks")?,
        count("late_ticks")?,
        count("missed_ticks")?,
    );
    let note = format!(
        "ours: {} ticks, {late} late, {missed} missed, {:.1} us of processor time for each that began, \
         {} samples; engine: {}",
        ticks + missed,
        count("sampler_cpu_ns")? as f64 / 1e3 / ticks.max(1) as f64,
        count("captured_samples")?,
        engine_of(&profile)?,
    );
    Ok((on_time(ticks, late, missed), note))
}

/// Of all ticks, those that were neither late nor missed.
fn on_time(begun: u64, late: u64, missed: u64) -> f64 {
    begun.saturating_sub(late) as f64 / (begun + missed).max(1) as f64
}

fn run_gecko_style(
    span: Duration,
    sampler: &mut HandshakeSampler,
) -> Result<(f64, String), Box<dyn Error>> {
    let (sender, receiver) = channel();
    let _busy = start_busy_threads(move || {
        // Whoever waits for it is there until all were received.
        let _ = sender.send(StoppableThread::current());
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
                // A round of all threads can take longer than the span.
                for thread in threads.iter().take_while(|_| start.elapsed() < span) {
                    samples += u64::from(!sampler.sample(thread).is_empty());
                }
                schedule.sleep_to_next();
            }
            (schedule.on_time(), samples)
        };
        scope
            .spawn(body)
            .join()
            .map_err(|_| "the sampler has panicked")
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
    Ok(sleeper.join().map_err(|_| "the sleeper has panicked")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_and_missed_ticks_are_not_on_time() {
        assert_eq!(on_time(90, 5, 10), 0.85);
        assert_eq!(on_time(100, 0, 0), 1.0);
        assert_eq!(on_time(0, 0, 0), 0.0);
    }
}
