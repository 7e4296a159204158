//! `push`: what it costs a program to feed a store with one profile each 10 seconds.
//!
//! The program has two threads that compute and twenty that sleep, and a session at 100 Hz. In the
//! arm `ours` it pushes, in `session` it does not. What all other threads use is the CPU time of the
//! process less that of the two, so the difference of the arms is the cost of the feeding.
//!
//! - `ours` is that difference, in percent of a processor, after the first profile, which also reads
//!   the debug information.
//! - `first` is the CPU time until the first profile has arrived, in seconds, above that of the
//!   session.
//! - `memory` is the peak of the process's anonymous memory above that of the session, in MB.
//! - `gap` and `overlap` are the times between two profiles that are in none, and in both, in ns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;

use gekkota::push::{PushSettings, profiler_push};

use crate::kernels::run_for;
use crate::prelude::*;
use crate::raw::{process_cpu_ns, thread_cpu_ns};
use crate::store;

const INTERVAL: Duration = Duration::from_secs(10);
/// Time for each profile that the arm `session` does not push.
const SESSION_ALONE: Duration = Duration::from_millis(2500);
const SAMPLING: Duration = Duration::from_millis(10);
const COMPUTING: u64 = 2;
const SLEEPING: usize = 20;
/// The computing threads tell their CPU time each time that they have used this much more.
const PORTION_NS: u64 = 500_000;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "push",
    unit: "% of a processor that feeding takes; `first`: s of CPU time; `memory`: MB; `gap`, `overlap`: ns",
    goal: "ours <= 0.2 %, gap = 0 and overlap = 0",
    is_met: |study| study.at_most(&["ours"], 0.2) && study.at_most(&["gap", "overlap"], 0.0),
    measure: |study| {
        let profiles = study.pick(1, 4);
        let about = format!("{profiles} profiles after the first one");
        study.rounds(study.pick(1, 5), about, |study, _| {
            let (sender, times) = channel();
            let url = store::start(move |request| {
                let is_kept = times_in(request).is_ok_and(|times| sender.send(times).is_ok());
                if !is_kept {
                    eprintln!("peers: the store got a profile without times: {request}");
                }
            })?;
            let run = |url: &str| child::run_watched(&MEASUREMENT, &[&url, &profiles]);
            let ((pushing, with), (session, without)) = (run(&url)?, run("none")?);
            for (arm, figure) in [("ours", "percent"), ("first", "first")] {
                study.push(arm, number(&pushing, figure)? - number(&session, figure)?);
            }
            let bytes = with.anonymous_bytes as f64 - without.anonymous_bytes as f64;
            study.push("memory", bytes / 1e6);
            let (gap_ns, overlap_ns) = gap_and_overlap(&times.try_iter().collect::<Vec<_>>());
            study.push("gap", gap_ns as f64);
            study.push("overlap", overlap_ns as f64);
            study.add(&json!({ "also": { "bytes_a_profile": number(&pushing, "bytes")? } }));
            Ok(())
        })
    },
    part: run,
    ..Measurement::LONG
};

/// Returns the sums of the gaps and of the overlaps between profiles with these times.
fn gap_and_overlap(times: &[(u64, u64)]) -> (u64, u64) {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.windows(2).fold((0, 0), |(gaps, overlaps), pair| {
        let (until, from) = (pair[0].1, pair[1].0);
        (
            gaps + from.saturating_sub(until),
            overlaps + until.saturating_sub(from),
        )
    })
}

/// Returns the times in the first line of a request.
fn times_in(request: &str) -> Fallible<(u64, u64)> {
    let number = |key: &str| -> Fallible<u64> {
        let (_, rest) = request.split_once(key).ok_or("a request without times")?;
        let digits = rest.split(|character: char| !character.is_ascii_digit());
        Ok(digits.into_iter().next().unwrap_or_default().parse()?)
    };
    Ok((number("&from=")?, number("&until=")?))
}

/// Returns the CPU time of all threads but the computing ones, in ns. It is exact to the time that
/// these have not told yet, so a later reading may be a little smaller.
fn other_cpu_ns(computing: &[Arc<AtomicU64>]) -> f64 {
    let own: u64 = computing
        .iter()
        .map(|used| used.load(Ordering::Relaxed))
        .sum();
    process_cpu_ns() as f64 - own as f64
}

/// Runs the program. Arguments: the address of the store, or `none`, and the number of profiles
/// after the first one.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (url, profiles) = (arguments.text(0)?, arguments.get(1)?);
    let computing: Vec<Arc<AtomicU64>> = (0..COMPUTING).map(|_| Arc::default()).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, used) in (1..).zip(&computing) {
            let is_over = &is_over;
            scope.spawn(move || {
                register_thread("computing");
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::black_box(run_for(PORTION_NS, number, None));
                    used.store(thread_cpu_ns(), Ordering::Relaxed);
                }
            });
        }
        for _ in 0..SLEEPING {
            let is_over = &is_over;
            scope.spawn(move || {
                register_thread("sleeping");
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::park_timeout(Duration::from_millis(500));
                }
            });
        }
        let answer = watch(url, profiles, &computing);
        is_over.store(true, Ordering::Relaxed);
        answer
    })
}

fn watch(url: &str, profiles: u32, computing: &[Arc<AtomicU64>]) -> Fallible<Value> {
    let session = ProfilerSession::start(StartParams::default().interval(SAMPLING))?;
    let (begin, before_ns) = (Instant::now(), other_cpu_ns(computing));
    let pusher = match url {
        "none" => None,
        url => Some(profiler_push(
            PushSettings::pyroscope(url).interval(INTERVAL),
        )?),
    };
    let sent = |count: u64| -> Fallible<()> {
        match &pusher {
            None => std::thread::sleep(SESSION_ALONE),
            Some(pusher) => {
                let end = Instant::now() + LONGEST_WAIT;
                while pusher.counts().sent < count {
                    if Instant::now() > end {
                        return Err("the store does not get the profile".into());
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        Ok(())
    };
    sent(1)?;
    // The profile has arrived, and the next one is not due.
    let (first_at, first_ns) = (Instant::now(), other_cpu_ns(computing));
    for count in 0..profiles {
        sent(2 + u64::from(count))?;
    }
    let (seconds, ns) = (first_at.elapsed(), other_cpu_ns(computing) - first_ns);
    let counts = pusher.map(|pusher| pusher.stop()).unwrap_or_default();
    drop(session);
    Ok(json!({
        "percent": ns / seconds.as_nanos() as f64 * 100.0,
        // In this time, the session alone takes as much CPU time as in any other one.
        "first": (first_ns - before_ns) / 1e9 * INTERVAL.as_secs_f64()
            / (first_at - begin).as_secs_f64(),
        "bytes": counts.sent_bytes / counts.sent.max(1),
    }))
}
