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

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gekkota::push::{PushSettings, profiler_push};
use gekkota::{ProfilerSession, StartParams, register_thread};
use serde_json::{Value, json};

use crate::kernels::run_for;
use crate::machine::{self, load_note};
use crate::raw::{process_cpu_ns, thread_cpu_ns};
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child, store};

type Fallible<T> = Result<T, Box<dyn Error>>;

const INTERVAL: Duration = Duration::from_secs(10);
/// Time for each profile that the arm `session` does not push.
const SESSION_ALONE: Duration = Duration::from_millis(2500);
const SAMPLING: Duration = Duration::from_millis(10);
const COMPUTING: u64 = 2;
const SLEEPING: usize = 20;
/// The computing threads tell their CPU time each time that they have used this much more.
const PORTION_NS: u64 = 500_000;
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const GOAL_PERCENT: f64 = 0.2;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, profiles) = if effort.quick { (1, 1) } else { (5, 4) };
    let mut ours = Arm::new("ours");
    let [mut first, mut memory, mut gap, mut overlap] =
        ["first", "memory", "gap", "overlap"].map(Arm::extra);
    let mut notes = vec![format!(
        "{rounds} rounds of {profiles} profiles after the first one; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let store = Store::start()?;
        let run = |url: &str| child::run_watched("push", &[url.to_owned(), profiles.to_string()]);
        let (runs, taken) =
            machine::watch(|| -> Fallible<_> { Ok((run(&store.url)?, run("none")?)) });
        let ((pushing, pushing_memory), (session, session_memory)) = runs?;
        let number = |answer: &Value, key: &str| {
            answer[key]
                .as_f64()
                .ok_or("the child's answer lacks a figure")
        };
        ours.runs
            .push(number(&pushing, "percent")? - number(&session, "percent")?);
        first
            .runs
            .push(number(&pushing, "first")? - number(&session, "first")?);
        let bytes = [pushing_memory, session_memory].map(|watched| watched.anonymous_bytes as f64);
        memory.runs.push((bytes[0] - bytes[1]) / 1e6);
        let times = store.times();
        let (gap_ns, overlap_ns) = gap_and_overlap(&times);
        gap.runs.push(gap_ns as f64);
        overlap.runs.push(overlap_ns as f64);
        notes.push(format!(
            "round {round}: {} profiles arrived, of {} bytes each; the session alone takes {:.2} % of a processor; CPUs \
             used by other processes + the hypervisor: {taken}",
            times.len(),
            number(&pushing, "bytes")?,
            number(&session, "percent")?,
        ));
    }
    let met = ours.figure() <= GOAL_PERCENT && gap.figure() == 0.0 && overlap.figure() == 0.0;
    Ok(Report {
        unit: "% of a processor that feeding takes; `first`: s of CPU time; `memory`: MB; `gap`, `overlap`: ns",
        ours,
        peers: vec![first, memory, gap, overlap],
        floor: None,
        better: f64::min,
        goal: "ours <= 0.2 %, gap = 0 and overlap = 0",
        met,
        notes,
    })
}

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

/// A server that takes profiles, and keeps their times.
struct Store {
    url: String,
    times: Receiver<(u64, u64)>,
}

impl Store {
    fn start() -> Fallible<Self> {
        let (send, times) = channel();
        let url = store::start(move |request| {
            let is_kept = times_in(request).is_ok_and(|times| send.send(times).is_ok());
            if !is_kept {
                eprintln!("peers: the store got a profile without times: {request}");
            }
        })?;
        Ok(Self { url, times })
    }

    fn times(&self) -> Vec<(u64, u64)> {
        self.times.try_iter().collect()
    }
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
pub(crate) fn run_part(arguments: &[String]) -> Fallible<Value> {
    let [url, profiles] = arguments else {
        return Err("expected an address and a number of profiles".into());
    };
    let profiles: u32 = profiles.parse()?;
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
