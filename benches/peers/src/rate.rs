//! `rate`: share of the requested samples that are delivered, for one busy thread at 100, 1,000 and
//! 10,000 Hz.
//!
//! The figures at 1,000 Hz are compared; the others are extra figures, named by their frequency.
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
//! The notes have two checks that need no phase. The first counts missed ticks by the gaps between
//! samples: a gap of 1.5 to 2.5 intervals misses one. The second is the number of samples divided
//! by that of ticks, as for the peers.
//!
//! The floor shows the machine's own limit: a thread that only sleeps from tick to tick next to the
//! busy one, prepared as our sampler is. Its figure is the share of ticks on which it woke,
//! computed as ours is. So it also misses the ticks at which the virtual machine's host holds the
//! processor.
//!
//! The thread is busy before and after the span, so that neither its start nor its end counts. A
//! marker records the span in the profile's own time.

use std::error::Error;
use std::ops::Range;
use std::time::{Duration, Instant};

use gekkota::{
    MarkerOptions, MarkerTiming, ProfilerSession, ProfilerTime, StartParams, ThreadGuard,
    add_untyped_marker, gecko_profiler_category, register_thread,
};
use serde_json::Value;

use crate::busy::BusyThread;
use crate::machine::{self, load_note};
use crate::profile::{column, find_sample_times, threads, to_json};
use crate::raw;
use crate::report::{Arm, Report, median};
use crate::schedule::Schedule;
use crate::{Effort, Outcome};

const BUSY_NAME: &str = "busy";
const SPAN_NAME: &str = "span of the measurement";
/// Time before the measurement, for the processors to reach their full speed.
const WARM_UP: Duration = Duration::from_millis(200);

/// A frequency with its goal and its arms.
struct Setting {
    hz: u32,
    goal: f64,
    ours: Arm,
    pprof: Arm,
    sleeper: Arm,
}

fn settings() -> [Setting; 3] {
    let extra = |hz, goal, [ours, pprof, sleeper]: [&'static str; 3]| Setting {
        hz,
        goal,
        ours: Arm::extra(ours),
        pprof: Arm::extra(pprof),
        sleeper: Arm::extra(sleeper),
    };
    [
        extra(100, 0.99, ["ours_100hz", "pprof_100hz", "sleeper_100hz"]),
        Setting {
            hz: 1_000,
            goal: 0.99,
            ours: Arm::new("ours"),
            pprof: Arm::new("pprof"),
            sleeper: Arm::new("sleeper"),
        },
        extra(10_000, 0.95, ["ours_10khz", "pprof_10khz", "sleeper_10khz"]),
    ]
}

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, span) = if effort.quick { (2, 1) } else { (3, 5) };
    let span = Duration::from_secs(span);
    let mut settings = settings();
    let mut notes = vec![format!(
        "{rounds} rounds of {span:?} per arm and frequency, interleaved; {}",
        load_note()
    )];
    for round in 1..=rounds {
        for Setting {
            hz,
            ours,
            pprof,
            sleeper,
            ..
        } in &mut settings
        {
            let (result, taken_from_ours) = machine::watch(|| run_ours(*hz, span));
            let (fraction, note) = result?;
            ours.runs.push(fraction);
            let (result, taken_from_pprof) = machine::watch(|| run_pprof(*hz, span));
            pprof.runs.push(result?);
            let (result, taken_from_sleeper) = machine::watch(|| run_sleeper(*hz, span));
            sleeper.runs.push(result?);
            notes.push(format!("round {round} at {hz} Hz: {note}"));
            notes.push(format!(
                "round {round} at {hz} Hz: CPUs used by other processes + the hypervisor: ours {taken_from_ours}, \
                 pprof {taken_from_pprof}, sleeper {taken_from_sleeper}",
            ));
        }
    }
    let met = settings
        .iter()
        .all(|setting| setting.ours.figure() >= setting.goal);
    let [
        slow,
        Setting {
            ours,
            pprof,
            sleeper,
            ..
        },
        fast,
    ] = settings;
    let mut peers = vec![pprof];
    for setting in [slow, fast] {
        peers.extend([setting.ours, setting.pprof, setting.sleeper]);
    }
    Ok(Report {
        unit: "share of requested ticks with a sample, at 1,000 Hz unless the name says otherwise",
        ours,
        peers,
        floor: Some(sleeper),
        better: f64::max,
        goal: "ours >= 0.99 at 100 Hz, >= 0.99 at 1,000 Hz, >= 0.95 at 10,000 Hz",
        met,
        notes,
    })
}

fn interval_of(hz: u32) -> Duration {
    Duration::from_secs(1) / hz
}

/// Returns the share of ticks with a sample, and a note.
fn run_ours(hz: u32, span: Duration) -> Result<(f64, String), Box<dyn Error>> {
    // This thread, which sleeps, is registered so that it can add the marker.
    let _registered = ThreadGuard::register("");
    let _busy = BusyThread::start(BUSY_NAME, || register_thread(BUSY_NAME))?;
    let session = ProfilerSession::start(StartParams::default().interval(interval_of(hz)))?;
    std::thread::sleep(WARM_UP);
    let start = ProfilerTime::now();
    std::thread::sleep(span);
    let timing = MarkerTiming::interval_until_now_from(start);
    add_untyped_marker(
        SPAN_NAME,
        gecko_profiler_category!(Other),
        MarkerOptions::from(timing),
    );
    let profile = session.finish()?;

    let json = to_json(&profile)?;
    let span = find_span(&json).ok_or("the profile has no marker of the span")?;
    let times = find_sample_times(&json, BUSY_NAME)
        .ok_or("the profile has no samples of the busy thread")?;
    let interval = 1e3 / f64::from(hz);
    let ticks = count_ticks(&times, &span, interval);
    let requested = (span.end - span.start) / interval;
    let by_gaps = 1.0 - missed_by_gaps(&times, &span, interval) as f64 / requested;
    let by_samples = times.iter().filter(|time| span.contains(time)).count() as f64 / requested;
    let counts: Vec<String> = profile
        .sampler_counts()
        .iter()
        .filter(|(name, _)| ["missed_ticks", "unanswered_ticks", "dropped_samples"].contains(name))
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let note = format!(
        "ours has samples for {} of {} ticks ({by_gaps:.4} by gaps, {by_samples:.4} by samples); in the whole session: {}",
        ticks.with_sample,
        ticks.requested,
        counts.join(", "),
    );
    Ok((ticks.fraction(), note))
}

/// Returns the number of pprof's samples of the busy thread, divided by the requested number.
fn run_pprof(hz: u32, span: Duration) -> Result<f64, Box<dyn Error>> {
    let _busy = BusyThread::start(BUSY_NAME, || {})?;
    std::thread::sleep(WARM_UP);
    let guard = pprof::ProfilerGuard::new(hz as i32)?;
    let start = Instant::now();
    std::thread::sleep(span);
    let seconds = start.elapsed().as_secs_f64();
    let report = guard.report().build_unresolved()?;
    let of_busy = report.data.iter().filter(|(stack, _)| {
        stack.thread_name.get(..stack.thread_name_length) == Some(BUSY_NAME.as_bytes())
    });
    let samples: isize = of_busy.map(|(_, count)| *count).sum();
    Ok(samples as f64 / (seconds * f64::from(hz)))
}

/// Returns the share of ticks on which a thread wakes that only sleeps from tick to tick.
fn run_sleeper(hz: u32, span: Duration) -> Result<f64, Box<dyn Error>> {
    let _busy = BusyThread::start(BUSY_NAME, || {})?;
    std::thread::sleep(WARM_UP);
    let mut times = Vec::with_capacity(span.as_secs_f64().ceil() as usize * hz as usize + 1);
    let sleeper = std::thread::Builder::new().spawn(move || {
        raw::prepare_sampler_thread();
        let start = Instant::now();
        let mut schedule = Schedule::start(interval_of(hz));
        while start.elapsed() < span {
            schedule.sleep_to_next();
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times
    })?;
    let times = sleeper.join().map_err(|_| "the sleeper panicked")?;
    let interval = 1e3 / f64::from(hz);
    Ok(count_ticks(&times, &(interval..span.as_secs_f64() * 1e3), interval).fraction())
}

fn find_span(profile: &Value) -> Option<Range<f64>> {
    threads(profile).find_map(|thread| {
        let name = thread["stringTable"]
            .as_array()?
            .iter()
            .position(|text| text == SPAN_NAME)?;
        let table = &thread["markers"];
        let row = column(table, "name")?.position(|index| index.as_u64() == Some(name as u64))?;
        Some(
            column(table, "startTime")?.nth(row)?.as_f64()?
                ..column(table, "endTime")?.nth(row)?.as_f64()?,
        )
    })
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

fn missed_by_gaps(times: &[f64], span: &Range<f64>, interval: f64) -> u64 {
    let within: Vec<f64> = times
        .iter()
        .copied()
        .filter(|time| span.contains(time))
        .collect();
    let (Some(first), Some(last)) = (within.first(), within.last()) else {
        return ((span.end - span.start) / interval) as u64;
    };
    // A gap of up to one interval plus jitter is normal here.
    let at_an_end = |gap: f64| (gap / interval - 0.25).max(0.0) as u64;
    let at_the_ends = at_an_end(first - span.start) + at_an_end(span.end - last);
    let between = within.windows(2).map(|pair| {
        let intervals = ((pair[1] - pair[0]) / interval).round() as u64;
        intervals.saturating_sub(1)
    });
    at_the_ends + between.sum::<u64>()
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
            assert_eq!(missed_by_gaps(&times, &SPAN, 1.0), 0);
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
        assert_eq!(missed_by_gaps(&times, &SPAN, 1.0), 1);
    }

    #[test]
    fn count_ticks_of_every_fourth_tick_is_a_quarter() {
        let times: Vec<f64> = every_tick(0.5).into_iter().step_by(4).collect();
        let (with_sample, requested) = fraction(&times);
        assert!((24..=25).contains(&with_sample) && (99..=100).contains(&requested));
        assert!((74..=76).contains(&missed_by_gaps(&times, &SPAN, 1.0)));
    }

    #[test]
    fn count_ticks_without_samples_is_zero() {
        assert_eq!(fraction(&[]), (0, 99));
        assert_eq!(missed_by_gaps(&[], &SPAN, 1.0), 100);
    }

    #[test]
    fn find_span_and_sample_times_read_a_profile() {
        let profile = serde_json::json!({"threads": [
            {"name": "GeckoMain", "stringTable": ["a", SPAN_NAME], "samples": {"schema": {}, "data": []},
             "markers": {"schema": {"name": 0, "startTime": 1, "endTime": 2}, "data": [[0, 1, 2], [1, 3, 4.5]]}},
            {"name": BUSY_NAME, "stringTable": [], "markers": {"schema": {}, "data": []},
             "samples": {"schema": {"stack": 0, "time": 1}, "data": [[0, 7.5], [0, 6]]}},
        ]});
        assert_eq!(find_span(&profile), Some(3.0..4.5));
        assert_eq!(find_sample_times(&profile, BUSY_NAME), Some(vec![6.0, 7.5]));
    }
}
