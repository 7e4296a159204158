//! `rate`: share of the requested samples that are delivered, for one busy thread at 100, 1,000 and
//! 10,000 Hz.
//!
//! The figures at 1,000 Hz are compared. The names of the arms end with the frequency.
//!
//! A peer's figure is the number of the thread's samples in its report, divided by the requested
//! number: seconds × frequency. On a quiet machine that is also the thread's CPU time, which
//! pprof's timer follows.
//!
//! Our figure is stricter: the share of ticks that have a sample, by the samples' own times. Two
//! samples in one tick do not make up for a tick without one. The phase of the schedule is
//! estimated from the samples: the sampler sends a request when a tick begins, and the thread
//! answers some microseconds later, so most samples have about the same phase. A tick's slot
//! reaches from a quarter of an interval before the median phase to three quarters after it,
//! because samples are late rather than early. So no usual sample lies near a border, where a
//! little jitter would turn two hits into a miss and a double. A sample that is later than its slot
//! counts for the next tick, and its own is missed. Only slots that lie wholly within the span
//! count as requested. A wrong estimate of the phase can lose hits but cannot add any: each tick
//! counts at most once.
//!
//! The floor shows the machine's own limit: a thread that only sleeps from tick to tick next to the
//! busy one, prepared as our sampler is. Its figure is the share of ticks on which it woke,
//! computed as ours is. So it also misses the ticks at which the virtual machine's host holds the
//! processor.
//!
//! The thread is busy before and after the span, so that neither its start nor its end counts.

use std::ops::Range;

use crate::prelude::*;
use crate::profile::{find_sample_times, zero_ns};
use crate::raw;
use crate::schedule::tick_for;
use crate::threads::{BUSY_NAME, start_busy};

/// Time before the measurement, for the processors to reach their full speed.
const WARM_UP: Duration = Duration::from_millis(200);

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "rate",
    unit: "share of requested ticks with a sample",
    goal: "ours >= 0.99 at 100 Hz, >= 0.99 at 1,000 Hz, >= 0.95 at 10,000 Hz",
    ours: "ours_1000hz",
    peers: &["pprof_1000hz"],
    floor: "sleeper_1000hz",
    better: f64::max,
    is_met: |study| {
        let goals = [
            ("ours_100hz", 0.99),
            ("ours_1000hz", 0.99),
            ("ours_10000hz", 0.95),
        ];
        goals.iter().all(|(arm, goal)| study.figure(arm) >= *goal)
    },
    measure: |study| {
        let span = Duration::from_secs(study.pick(1, 5));
        let about = format!("{span:?} per arm and frequency");
        study.rounds(study.pick(2, 3), about, |study, _| {
            for hz in [100, 1000, 10_000] {
                study.push(&format!("ours_{hz}hz"), run_ours(hz, span)?);
                study.push(&format!("pprof_{hz}hz"), run_pprof(hz, span)?);
                study.push(&format!("sleeper_{hz}hz"), run_sleeper(hz, span)?);
            }
            Ok(())
        })
    },
    ..Measurement::NEW
};

fn interval_of(hz: u32) -> Duration {
    Duration::from_secs(1) / hz
}

/// Returns the share of ticks with a sample.
fn run_ours(hz: u32, span: Duration) -> Fallible<f64> {
    let _busy = start_busy(1, || register_thread(BUSY_NAME))?;
    let session = ProfilerSession::start(StartParams::default().interval(interval_of(hz)))?;
    std::thread::sleep(WARM_UP);
    let start_ns = raw::monotonic_ns();
    std::thread::sleep(span);
    let end_ns = raw::monotonic_ns();
    let json = to_json(&session.finish()?)?;
    let zero_ns = zero_ns(&json)?;
    let in_ms = |ns: u64| ns.saturating_sub(zero_ns) as f64 / 1e6;
    let times = find_sample_times(&json, BUSY_NAME);
    let times = times.ok_or("the profile has no samples of the busy thread")?;
    let span = in_ms(start_ns)..in_ms(end_ns);
    Ok(count_ticks(&times, &span, 1e3 / f64::from(hz)).fraction())
}

/// Returns the number of pprof's samples of the busy thread, divided by the requested number.
fn run_pprof(hz: u32, span: Duration) -> Fallible<f64> {
    let _busy = start_busy(1, || {})?;
    std::thread::sleep(WARM_UP);
    let guard = pprof_rs::start(interval_of(hz))?;
    let start = Instant::now();
    std::thread::sleep(span);
    let seconds = start.elapsed().as_secs_f64();
    Ok(pprof_rs::samples_of(&guard, BUSY_NAME)? / (seconds * f64::from(hz)))
}

/// Returns the share of ticks on which a thread wakes that only sleeps from tick to tick.
fn run_sleeper(hz: u32, span: Duration) -> Fallible<f64> {
    let _busy = start_busy(1, || {})?;
    std::thread::sleep(WARM_UP);
    let mut times = Vec::with_capacity(span.as_secs_f64().ceil() as usize * hz as usize + 1);
    tick_for(interval_of(hz), span, |start| {
        times.push(start.elapsed().as_secs_f64() * 1e3);
    })?;
    let interval = 1e3 / f64::from(hz);
    Ok(count_ticks(&times, &(interval..span.as_secs_f64() * 1e3), interval).fraction())
}

struct Ticks {
    requested: usize,
    with_sample: usize,
}

impl Ticks {
    fn fraction(&self) -> f64 {
        self.with_sample as f64 / self.requested.max(1) as f64
    }
}

fn count_ticks(times: &[f64], span: &Range<f64>, interval: f64) -> Ticks {
    let border = usual_phase(times, interval) - interval / 4.0;
    let slot_of = |time: f64| ((time - border) / interval).floor() as i64;
    let first = ((span.start - border) / interval).ceil() as i64;
    let slots = first..slot_of(span.end).max(first);
    let mut hit: Vec<i64> = times.iter().map(|time| slot_of(*time)).collect();
    hit.dedup();
    Ticks {
        requested: (slots.end - slots.start) as usize,
        with_sample: hit.iter().filter(|slot| slots.contains(slot)).count(),
    }
}

/// Returns the usual phase of the samples within an interval: the median of their distances from
/// the circular mean. A plain median would be wrong if the phases lie on both sides of zero.
fn usual_phase(times: &[f64], interval: f64) -> f64 {
    let turn = std::f64::consts::TAU / interval;
    let (sine, cosine) = times.iter().fold((0.0, 0.0), |(sine, cosine), time| {
        let (own_sine, own_cosine) = (time * turn).sin_cos();
        (sine + own_sine, cosine + own_cosine)
    });
    let mean = f64::atan2(sine, cosine) / turn;
    let half = interval / 2.0;
    let around: Vec<f64> = times
        .iter()
        .map(|time| (time - mean + half).rem_euclid(interval) - half)
        .collect();
    if around.is_empty() {
        0.0
    } else {
        mean + median(&around)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Range<f64> = 100.0..200.0;

    fn fraction(times: &[f64]) -> (usize, usize) {
        let Ticks {
            requested,
            with_sample,
        } = count_ticks(times, &SPAN, 1.0);
        (with_sample, requested)
    }

    fn every_tick(phase: f64) -> Vec<f64> {
        // A jitter of a fifth of an interval.
        (0..300)
            .map(|tick| f64::from(tick) + phase + f64::from(tick * 7 % 20) / 100.0)
            .collect()
    }

    #[test]
    fn count_ticks_tolerates_jitter_at_any_phase() {
        for phase in 0..100 {
            let times = every_tick(f64::from(phase) / 100.0);
            let (with_sample, requested) = fraction(&times);
            assert_eq!(with_sample, requested, "at the phase {phase}");
            assert!((99..=100).contains(&requested));
        }
    }

    #[test]
    fn count_ticks_does_not_offset_a_miss_with_a_double() {
        let mut times = every_tick(0.95);
        times.retain(|time| !(150.9..151.9).contains(time));
        times.push(160.4);
        times.sort_by(f64::total_cmp);
        let (with_sample, requested) = fraction(&times);
        assert_eq!(requested - with_sample, 1);
    }

    #[test]
    fn count_ticks_of_every_fourth_tick_is_a_quarter() {
        let times: Vec<f64> = every_tick(0.5).into_iter().step_by(4).collect();
        let (with_sample, requested) = fraction(&times);
        assert!((24..=25).contains(&with_sample) && (99..=100).contains(&requested));
    }

    #[test]
    fn count_ticks_without_samples_is_zero() {
        assert_eq!(fraction(&[]), (0, 99));
    }

    #[test]
    fn find_sample_times_reads_a_profile() {
        let profile = json!({"threads": [
            {"name": "GeckoMain", "samples": {"schema": {}, "data": []}},
            {"name": BUSY_NAME, "samples": {"schema": {"stack": 0, "time": 1}, "data": [[0, 7.5], [0, 6]]}},
        ]});
        assert_eq!(find_sample_times(&profile, BUSY_NAME), Some(vec![6.0, 7.5]));
    }
}
