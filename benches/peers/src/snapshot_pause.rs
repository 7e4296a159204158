//! `snapshot_pause`: additional delay of a marker's call and of a tick while a profile of 1,000,000
//! samples is written.
//!
//! The profile is recorded as for `stream` (`recording.rs`). Its threads have exited when the
//! measurement begins, and the session continues at its interval. One thread adds a marker with a
//! text every 100 µs and reads the clock before and after each. It is also sampled, by signals, so
//! that the gaps between its samples' times are those between ticks. A tick's delay is the time by
//! which such a gap exceeds the interval. Another thread takes snapshots and writes them, without
//! symbol names, to a sink that only counts. Turns with snapshots alternate with turns of the same
//! length in which that thread does nothing.
//!
//! The writer has its own processor. The marker thread has another one, and the sampler a third.
//! With only two processors, the sampler shares the marker thread's processor. Then a call can wait
//! for the work of a tick, in every kind of turn alike.
//!
//! `ours` is the longest call of a turn with snapshots, minus the longest of the quiet turn after
//! it; `tick` is this difference for ticks. Each round is a separate process with its own recording; the
//! runs are its turns.

use std::sync::atomic::{AtomicBool, Ordering};

use gekkota::{MarkerOptions, add_text_marker, gecko_profiler_category};

use crate::prelude::*;
use crate::profile::{find_sample_times, write_nameless, zero_ns};
use crate::raw::{monotonic_ns, processors, run_on};
use crate::recording::{self, CountingSink, INTERVAL};

const MARKER_EVERY: Duration = Duration::from_micros(100);
/// Minimum length of a turn. A turn with snapshots takes as many as fit.
const TURN: Duration = Duration::from_millis(300);
const MARKER_THREAD: &str = "deep, with markers";

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "snapshot_pause",
    unit: "ms by which the longest call exceeds that of a quiet turn",
    goal: "ours and tick <= 1 ms, with 1,000,000 samples",
    is_met: |study| study.at_most(&["ours", "tick"], 1.0),
    rounds: [1, 3],
    sizes: [&[100000, 5], &[1000000, 10]],
    size_names: &["samples", "turns of each kind"],
    part: run,
    ..Measurement::LONG
};

/// Runs one round. Arguments: the arm, the number of samples, and the number of turns of each kind.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let turns: usize = arguments.get(2)?;
    let all = processors();
    let [for_writer, for_markers, for_sampler] = choose_processors(&all);
    // The sampler's thread stays on the processor on which it is created.
    run_on(&[for_sampler])?;
    let session = ProfilerSession::start(recording::params())?;
    run_on(&all)?;
    let recorded = recording::record(&session, arguments.get(1)?)?;

    let ends = AtomicBool::new(false);
    let (spans, calls) = std::thread::scope(|scope| {
        let markers = scope.spawn(|| {
            run_on(&[for_markers])?;
            let _registered = ThreadGuard::register(MARKER_THREAD);
            std::io::Result::Ok(add_markers(&ends))
        });
        let pinned = run_on(&[for_writer]).map_err(Into::into);
        let spans = pinned.and_then(|()| take_turns(&session, turns));
        ends.store(true, Ordering::Relaxed);
        let calls = markers.join().map_err(|_| "the marker thread panicked")??;
        Fallible::Ok((spans?, calls))
    })?;

    let profile = to_json(&session.finish()?)?;
    let zero_ns = zero_ns(&profile)?;
    let times = find_sample_times(&profile, MARKER_THREAD);
    let times = times.ok_or("the profile has no marker thread")?;
    let in_ns = |ms: f64| zero_ns + (ms * 1e6) as u64;
    let ticks: Vec<Wait> = times
        .windows(2)
        .map(|pair| Wait {
            at_ns: in_ns(pair[1]),
            ns: (in_ns(pair[1]) - in_ns(pair[0])).saturating_sub(INTERVAL.as_nanos() as u64),
        })
        .collect();
    Ok(json!({
        "ours": pauses(&calls, &spans),
        "tick": pauses(&ticks, &spans),
        "also": { "calls": calls.len(), "ticks": ticks.len() },
        "note": recorded,
    }))
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
#[derive(Clone, Copy)]
struct Span {
    begin_ns: u64,
    end_ns: u64,
}

/// Runs turns with snapshots, each with a quiet turn of the same length after it.
fn take_turns(session: &ProfilerSession, turns: usize) -> Fallible<Vec<[Span; 2]>> {
    let write = || write_nameless(&session.snapshot()?, &mut CountingSink::default());
    let timed = |turn: &dyn Fn(u64) -> Fallible<()>| -> Fallible<Span> {
        let begin_ns = monotonic_ns();
        turn(begin_ns)?;
        let end_ns = monotonic_ns();
        // A pause, so that after-effects of a turn do not count for the next one.
        std::thread::sleep(Duration::from_millis(20));
        Ok(Span { begin_ns, end_ns })
    };
    // The first snapshot is not measured, because later ones reuse what it computes.
    write()?;
    let mut spans = Vec::new();
    for _ in 0..turns {
        let with = timed(&|begin_ns| {
            while monotonic_ns() - begin_ns < TURN.as_nanos() as u64 {
                write()?;
            }
            Ok(())
        })?;
        let length = Duration::from_nanos(with.end_ns - with.begin_ns);
        let quiet = timed(&|_| {
            std::thread::sleep(length);
            Ok(())
        })?;
        spans.push([with, quiet]);
    }
    Ok(spans)
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

/// Returns by how many milliseconds the longest wait of each turn with snapshots exceeds that of the
/// quiet turn after it. The waits are in the order of their times.
fn pauses(waits: &[Wait], spans: &[[Span; 2]]) -> Vec<f64> {
    let longest_ms = |span: Span| {
        let begin = waits.partition_point(|wait| wait.at_ns < span.begin_ns);
        let end = waits.partition_point(|wait| wait.at_ns < span.end_ns);
        let of_turn = waits[begin..end].iter().map(|wait| wait.ns);
        of_turn.max().unwrap_or(0) as f64 / 1e6
    };
    let pauses = spans.iter().map(|span| span.map(longest_ms));
    pauses.map(|[with, quiet]| with - quiet).collect()
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
    fn pauses_compare_the_longest_waits_of_pairs_of_turns() {
        let span = |begin_ns| Span {
            begin_ns,
            end_ns: begin_ns + 10,
        };
        let waits = [
            (1, 5_000_000),
            (9, 1_000_000),
            (15, 7_000_000),
            (25, 2_000_000),
        ];
        let waits = waits.map(|(at_ns, ns)| Wait { at_ns, ns });
        let spans = [[span(10), span(0)], [span(20), span(30)]];
        assert_eq!(pauses(&waits, &spans), [2.0, 2.0]);
    }
}
