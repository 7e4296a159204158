//! `oversubscribed`: the ticks on which the sampler is on schedule while 64 threads are busy, at 1,000 Hz.
//!
//! A tick is on schedule when the sampler begins it within half an interval of its time. Those that it misses
//! altogether are not.
//!
//! The peer is the sampler of `handshake.rs`, which waits for each thread in turn: a thread that does not run does not
//! answer. It keeps the same schedule as ours, and is prepared in the same way, which Gecko's is not, so that waiting is
//! all that differs. The floor is a thread that is prepared so and only sleeps.
//!
//! Ours tells itself how many ticks there were, how many were missed and how many late. Where a profile does not tell
//! the last, the samples of a thread that sleeps stand for the ticks, since it is the sampler that writes them, when it
//! comes by.

use std::error::Error;
use std::ops::Range;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gekkota::{Profile, ProfilerSession, StartParams, register_thread};

use crate::busy::BusyThreads;
use crate::handshake::HandshakeSampler;
use crate::machine::{self, load_note};
use crate::profile::{count, find_sample_times, to_json};
use crate::rate::usual_place;
use crate::raw::{self, StoppableThread};
use crate::report::{Arm, Report};
use crate::schedule::Schedule;
use crate::{Effort, Outcome};

const BUSY_THREADS: usize = 64;
const INTERVAL: Duration = Duration::from_millis(1);
const SLEEPER_NAME: &str = "sleeper";
/// What a processor needs to get to its full speed, and until all threads have had a turn.
const WARM_UP: Duration = Duration::from_millis(300);
const GOAL: f64 = 0.99;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, span) = if effort.quick { (2, 2) } else { (5, 8) };
    let span = Duration::from_secs(span);
    let (mut ours, mut gecko_style) = (Arm::new("ours"), Arm::new("gecko_style"));
    let mut sleeper = Arm::new("sleeper");
    let mut handshake = HandshakeSampler::new()?;
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
    let (done, is_done) = channel::<()>();
    let sleeper = std::thread::Builder::new().spawn(move || {
        register_thread(SLEEPER_NAME);
        // Until the sender is dropped.
        let _ = is_done.recv();
    })?;
    let _busy = start_busy_threads(|| register_thread(""))?;
    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
    std::thread::sleep(span);
    let profile = session.finish()?;
    drop((done, sleeper));

    let counts = Counts::of(&profile).ok_or("the profile does not count its ticks")?;
    let fraction = match counts.on_time() {
        Some(fraction) => fraction,
        None => by_sleepers_samples(&profile, counts.all())?,
    };
    let late = match counts.late {
        Some(late) => format!("{late} late"),
        None => "the late ones by a sleeping thread's samples".to_owned(),
    };
    let sum = count(&profile, "captured_samples").unwrap_or(0);
    let note = format!("ours: {} ticks, {} missed, {late}; {sum} samples", counts.all(), counts.missed);
    Ok((fraction, note))
}

/// What the session counted.
struct Counts {
    begun: u64,
    missed: u64,
    late: Option<u64>,
}

impl Counts {
    fn of(profile: &Profile) -> Option<Self> {
        let count = |name| count(profile, name);
        Some(Self { begun: count("ticks")?, missed: count("missed_ticks")?, late: count("late_ticks") })
    }

    fn all(&self) -> u64 {
        self.begun + self.missed
    }

    fn on_time(&self) -> Option<f64> {
        Some(self.begun.saturating_sub(self.late?) as f64 / self.all().max(1) as f64)
    }
}

fn by_sleepers_samples(profile: &Profile, ticks: u64) -> Result<f64, Box<dyn Error>> {
    let json = to_json(profile)?;
    let times = find_sample_times(&json, SLEEPER_NAME).ok_or("the profile has no samples of the sleeper")?;
    let interval = INTERVAL.as_secs_f64() * 1e3;
    let start = times.first().copied().unwrap_or(0.0);
    let span = start..start + ticks as f64 * interval;
    Ok(on_time_by_times(&times, &span, interval))
}

/// The ticks of a span that have a time within half an interval of their place, which is where times usually lie. One
/// that is later than that counts for the next tick, which counts once.
fn on_time_by_times(times: &[f64], span: &Range<f64>, interval: f64) -> f64 {
    let place = usual_place(times, interval);
    let tick_of = |time: f64| ((time - place) / interval).round() as i64;
    let ticks = tick_of(span.start)..tick_of(span.end);
    let mut hit: Vec<i64> =
        times.iter().map(|time| tick_of(*time)).filter(|tick| ticks.contains(tick)).collect();
    hit.dedup();
    hit.len() as f64 / (ticks.end - ticks.start).max(1) as f64
}

fn run_gecko_style(span: Duration, sampler: &mut HandshakeSampler) -> Result<(f64, String), Box<dyn Error>> {
    let (sender, receiver) = channel();
    let _busy = start_busy_threads(move || {
        // Whoever waits for it is there until all were received.
        let _ = sender.send(StoppableThread::current());
    })?;
    let threads = receiver.iter().take(BUSY_THREADS).collect::<Result<Vec<_>, _>>()?;
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
        scope.spawn(body).join().map_err(|_| "the sampler has panicked")
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
        let on_time = |begun, missed, late| Counts { begun, missed, late }.on_time();
        assert_eq!(on_time(90, 10, Some(5)), Some(0.85));
        assert_eq!(on_time(100, 0, Some(0)), Some(1.0));
        assert_eq!(on_time(100, 0, None), None);
    }

    #[test]
    fn by_times_a_late_tick_is_as_bad_as_a_missed_one() {
        let mut times: Vec<f64> = (0..100).map(|tick| f64::from(tick) + 0.02).collect();
        let fraction = |times: &[f64]| on_time_by_times(times, &(0.0..100.0), 1.0);
        assert_eq!(fraction(&times), 1.0);
        times[50] += 0.4;
        assert_eq!(fraction(&times), 1.0);
        times[50] += 0.2;
        assert_eq!(fraction(&times), 0.99);
        times.remove(50);
        assert_eq!(fraction(&times), 0.99);
        assert_eq!(fraction(&[]), 0.0);
    }
}
