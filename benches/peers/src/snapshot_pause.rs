//! `snapshot_pause`: additional delay of a marker's call and of a tick while a profile of 1,000,000
//! samples is written.
//!
//! The profile is recorded as for `stream` (`recording.rs`). Its threads have exited when the
//! measurement begins, and the session continues at its interval. One thread adds a marker with a
//! text every 100 µs and reads the clock before and after each. It is also sampled, by signals, so
//! that the gaps between its samples' times are those between ticks. A tick's delay is the time by
//! which such a gap exceeds the interval. Another thread takes snapshots and writes them, without
//! symbol names, to a sink that only counts. Turns with snapshots alternate with turns of the same
//! length in which that thread does nothing, and with turns in which it computes instead
//! (`…_beside_work`); the latter show the effect of a busy neighboring processor.
//!
//! The writer has its own processor. The marker thread has another one, and the sampler a third.
//! With only two processors, the sampler shares the marker thread's processor. Then a call can wait
//! for the work of a tick, in every kind of turn alike.
//!
//! `ours` is the longest call of a turn with snapshots, minus the longest of the quiet turn after
//! it; `tick` is this difference for ticks. The extra figures are the longest of each kind of turn,
//! and the 99.9th percentiles over all turns of a kind in a process. Each round is a separate
//! process with its own recording; the runs are its turns.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{
    MarkerOptions, ProfilerSession, ThreadGuard, add_text_marker, gecko_profiler_category,
};
use serde_json::{Value, json};

use crate::busy::work;
use crate::machine::{self, load_note};
use crate::profile::count;
use crate::raw::{monotonic_ns, processors, run_on};
use crate::recording::{self, CountingSink, INTERVAL};
use crate::report::{Arm, Report};
use crate::rows::Rows;
use crate::{Effort, Outcome, child};

const SAMPLES: u64 = 1_000_000;
const QUICK_SAMPLES: u64 = 100_000;
const MARKER_EVERY: Duration = Duration::from_micros(100);
/// Minimum length of a turn. A turn with snapshots takes as many as fit.
const TURN: Duration = Duration::from_millis(300);
const MARKER_THREAD: &str = "deep, with markers";
const GOAL_MS: f64 = 1.0;

/// What the writer does in a turn. Turns without snapshots last as long as the preceding turn with
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Snapshots,
    Quiet,
    Work,
}

impl Turn {
    const ALL: [Self; 3] = [Self::Snapshots, Self::Quiet, Self::Work];
}

const ARMS: [&str; 16] = [
    "ours",
    "tick",
    "ours_beside_work",
    "tick_beside_work",
    "call_longest_quiet",
    "call_longest_snapshots",
    "call_longest_work",
    "tick_longest_quiet",
    "tick_longest_snapshots",
    "tick_longest_work",
    "call_p999_quiet",
    "call_p999_snapshots",
    "call_p999_work",
    "tick_p999_quiet",
    "tick_p999_snapshots",
    "tick_p999_work",
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, samples, turns) = if effort.quick {
        (1, QUICK_SAMPLES, 5)
    } else {
        (3, SAMPLES, 10)
    };
    let mut arms = ARMS.map(Arm::extra);
    arms[0].extra = false;
    let mut notes = vec![format!(
        "{rounds} rounds, each a recording of {samples} samples and {turns} turns of each kind, of {TURN:?} or more; a marker \
         every {MARKER_EVERY:?}, a tick every {INTERVAL:?}; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let arguments = [samples.to_string(), turns.to_string()];
        let (run, taken) = machine::watch(|| child::run("snapshot_pause", &arguments));
        let run = run?;
        for arm in &mut arms {
            let runs = run[arm.name]
                .as_array()
                .ok_or("the child's answer lacks the figures of an arm")?;
            arm.runs.extend(runs.iter().filter_map(Value::as_f64));
        }
        notes.push(format!(
            "round {round}: {}; CPUs used by other processes + the hypervisor: {taken}",
            run["note"].as_str().unwrap_or_default(),
        ));
    }
    if effort.quick {
        notes.push(format!("the goal applies to {SAMPLES} samples"));
    }
    let met = arms[..2].iter().all(|arm| arm.figure() <= GOAL_MS);
    let [ours, others @ ..] = arms;
    Ok(Report {
        unit: "ms by which the longest call exceeds that of a quiet turn",
        ours,
        peers: others.into(),
        floor: None,
        better: f64::min,
        goal: "ours and tick <= 1 ms",
        met,
        notes,
    })
}

/// Runs one round in the child process. Arguments: the number of samples, and the number of turns
/// of each kind.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [samples, turns] = arguments else {
        return Err("expected the number of samples and the number of turns".into());
    };
    let turns: usize = turns.parse()?;
    let all = processors();
    let [for_writer, for_markers, for_sampler] = choose_processors(&all);
    // The sampler's thread stays on the processor on which it is created.
    run_on(&[for_sampler])?;
    let session = ProfilerSession::start(recording::params())?;
    run_on(&all)?;
    let recorded = recording::record(&session, samples.parse()?)?;

    let ends = AtomicBool::new(false);
    let (spans, calls, log) = std::thread::scope(|scope| {
        let markers = scope.spawn(|| {
            run_on(&[for_markers])?;
            let _registered = ThreadGuard::register(MARKER_THREAD);
            Ok::<_, std::io::Error>(add_markers(&ends))
        });
        let spans = run_on(&[for_writer])
            .map_err(Into::into)
            .and_then(|()| take_turns(&session, turns));
        ends.store(true, Ordering::Relaxed);
        let calls = markers.join().map_err(|_| "the marker thread panicked")??;
        let (spans, log) = spans?;
        Ok::<_, Box<dyn Error>>((spans, calls, log))
    })?;

    let rows = Rows::of(&session.finish()?)?;
    let process_start_ns = rows.meta["startTimeAsClockMonotonicNanosecondsSinceBoot"]
        .as_u64()
        .ok_or("the profile has no start time")?;
    let thread = rows
        .threads
        .iter()
        .find(|thread| thread.name == MARKER_THREAD);
    let samples = &thread
        .ok_or("the profile has no marker thread")?
        .samples
        .data;
    let times_ns: Vec<u64> = samples
        .iter()
        .map(|row| process_start_ns + (row.time_ms() * 1e6) as u64)
        .collect();
    let ticks: Vec<Wait> = times_ns
        .windows(2)
        .map(|pair| Wait {
            at_ns: pair[1],
            ns: (pair[1].saturating_sub(pair[0])).saturating_sub(INTERVAL.as_nanos() as u64),
        })
        .collect();
    let mut answer = json!({
        "note": format!(
            "{recorded}; {} calls and {} ticks; writer on processor {for_writer}, markers on {for_markers}, sampler on \
             {for_sampler}; {log}",
            calls.len(),
            ticks.len()
        ),
    });
    for (what, difference, waits) in [("call", "ours", &calls), ("tick", "tick", &ticks)] {
        let of = Turn::ALL.map(|kind| Delays::of(waits, &spans, kind));
        let [snapshots, quiet, work] = &of;
        let beyond = |kind: &Delays| -> Vec<f64> {
            kind.longest_ms
                .iter()
                .zip(&quiet.longest_ms)
                .map(|(with, without)| with - without)
                .collect()
        };
        answer[difference] = json!(beyond(snapshots));
        answer[format!("{difference}_beside_work")] = json!(beyond(work));
        for (name, delays) in ["snapshots", "quiet", "work"].iter().zip(&of) {
            answer[format!("{what}_longest_{name}")] = json!(delays.longest_ms);
            answer[format!("{what}_p999_{name}")] = json!([delays.p999_ms]);
        }
    }
    Ok(answer)
}

/// Chooses processors for the writer, the marker thread and the sampler. With only two processors,
/// the last two share one.
fn choose_processors(all: &[usize]) -> [usize; 3] {
    match *all {
        [] => [0; 3],
        [only] => [only; 3],
        [one, other] => [other, one, one],
        [one, other, third, ..] => [third, other, one],
    }
}

/// Beginning and end of a turn, by the monotonic clock.
struct Span {
    turn: Turn,
    begin_ns: u64,
    end_ns: u64,
}

/// Runs the turns. Returns their spans, and a note on the ticks that the session counted.
fn take_turns(
    session: &ProfilerSession,
    turns: usize,
) -> Result<(Vec<Span>, String), Box<dyn Error>> {
    let write = || -> Result<u64, Box<dyn Error>> {
        let mut sink = CountingSink::default();
        let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
        session
            .snapshot()?
            .write_with(Format::Gecko, &mut sink, &options)?;
        Ok(sink.bytes)
    };
    let mut numbers = [0; 512];
    // The first snapshot is not measured, because later ones reuse what it computes.
    let bytes = write()?;
    let before = session.snapshot()?;
    let (mut spans, mut written, mut turn_ns) = (Vec::new(), 0, 0);
    for round in 0..turns {
        let without = if round % 2 == 0 {
            [Turn::Quiet, Turn::Work]
        } else {
            [Turn::Work, Turn::Quiet]
        };
        for turn in [Turn::Snapshots, without[0], without[1]] {
            let begin_ns = monotonic_ns();
            let spent_ns = || monotonic_ns() - begin_ns;
            match turn {
                Turn::Snapshots => {
                    while spent_ns() < TURN.as_nanos() as u64 {
                        write()?;
                        written += 1;
                    }
                    turn_ns = spent_ns();
                }
                Turn::Quiet => std::thread::sleep(Duration::from_nanos(turn_ns)),
                Turn::Work => {
                    while spent_ns() < turn_ns {
                        std::hint::black_box(work(turn_ns, &mut numbers));
                    }
                }
            }
            spans.push(Span {
                turn,
                begin_ns,
                end_ns: monotonic_ns(),
            });
            // A pause, so that after-effects of a turn do not count for the next one.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let after = session.snapshot()?;
    let increase = |name| count(&after, name).unwrap_or(0) - count(&before, name).unwrap_or(0);
    Ok((
        spans,
        format!(
            "{written} snapshots, the first of {:.1} MB; the last turn of {} ms; ticks: {}, late {}, missed {}",
            bytes as f64 / 1e6,
            turn_ns / 1_000_000,
            increase("ticks"),
            increase("late_ticks"),
            increase("missed_ticks"),
        ),
    ))
}

/// The delay of a call or a tick.
struct Wait {
    at_ns: u64,
    ns: u64,
}

fn add_markers(ends: &AtomicBool) -> Vec<Wait> {
    let mut calls = Vec::with_capacity(1 << 22);
    let mut next_ns = monotonic_ns();
    while !ends.load(Ordering::Relaxed) {
        while monotonic_ns() < next_ns {
            std::hint::spin_loop();
        }
        let at_ns = monotonic_ns();
        let category = gecko_profiler_category!(Other);
        add_text_marker(
            "during snapshots",
            category,
            MarkerOptions::default(),
            "a text",
        );
        let end_ns = monotonic_ns();
        calls.push(Wait {
            at_ns,
            ns: end_ns - at_ns,
        });
        next_ns = end_ns.max(at_ns + MARKER_EVERY.as_nanos() as u64);
    }
    calls
}

/// Delays in all turns of a kind.
struct Delays {
    /// The longest delay of each turn.
    longest_ms: Vec<f64>,
    p999_ms: f64,
}

impl Delays {
    /// Computes the delays from waits in the order of their times.
    fn of(waits: &[Wait], spans: &[Span], turn: Turn) -> Self {
        let mut all: Vec<u64> = Vec::new();
        let mut longest_ms = Vec::new();
        for span in spans.iter().filter(|span| span.turn == turn) {
            let begin = waits.partition_point(|wait| wait.at_ns < span.begin_ns);
            let end = waits.partition_point(|wait| wait.at_ns < span.end_ns);
            let of_turn = waits[begin..end].iter().map(|wait| wait.ns);
            longest_ms.push(of_turn.clone().max().unwrap_or(0) as f64 / 1e6);
            all.extend(of_turn);
        }
        all.sort_unstable();
        let p999 = all
            .len()
            .checked_sub(1 + all.len() / 1000)
            .and_then(|place| all.get(place));
        Self {
            longest_ms,
            p999_ms: p999.map_or(f64::NAN, |ns| *ns as f64 / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choose_processors_separates_the_writer() {
        assert_eq!(choose_processors(&[3]), [3, 3, 3]);
        assert_eq!(choose_processors(&[0, 1]), [1, 0, 0]);
        let [writer, markers, sampler] = choose_processors(&[0, 1, 2, 3]);
        assert!(writer != markers && markers != sampler && sampler != writer);
    }

    #[test]
    fn delays_have_the_longest_per_turn_and_one_percentile() {
        let spans = [
            (Turn::Quiet, 0, 10),
            (Turn::Snapshots, 10, 20),
            (Turn::Quiet, 20, 30),
        ]
        .map(|(turn, begin_ns, end_ns)| Span {
            turn,
            begin_ns,
            end_ns,
        });
        let waits = [
            (1, 5_000_000),
            (9, 1_000_000),
            (15, 7_000_000),
            (25, 2_000_000),
        ]
        .map(|(at_ns, ns)| Wait { at_ns, ns });
        let quiet = Delays::of(&waits, &spans, Turn::Quiet);
        assert_eq!(quiet.longest_ms, [5.0, 2.0]);
        assert_eq!(quiet.p999_ms, 5.0);
        assert_eq!(
            Delays::of(&waits, &spans, Turn::Snapshots).longest_ms,
            [7.0]
        );
    }
}
