//! `waiting_tasks`: error of the shares of waiting time that the feature `waitingtasks` shows.
//!
//! 10,000 Tokio tasks wait in four futures in turns. The names of the futures state their shares of
//! the waiting: `wait_10` to `wait_40`. Each waits until a planned time, so a late wake-up shortens
//! the next wait, and the shares also hold under other load.
//!
//! `ours` is the largest difference between a future's share in the profile and the share that its
//! name states, in percentage points; `measured` is that to what the tasks have measured
//! themselves. `extra_polls` are the polls of the futures beyond the two that each wait needs, one
//! that leaves it pending and one that ends it, so load does not change them. The others are the
//! nanoseconds that a poll of a future takes that is always pending: `poll_inactive` without a
//! session, `poll_off` in one without the feature, `poll_recorded` in one with it, and `poll_plain`
//! without a label around it.

use std::error::Error;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use gekkota::profile::Format;
use gekkota::{
    Features, Profile, ProfilerSession, StartParams, gecko_profiler_category, labeled_future,
    register_thread,
};
use serde_json::{Value, json};

use crate::batch::batch;
use crate::machine::{self, load_note};
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const TASKS: usize = 10_000;
/// Names of the futures, and their shares in percent.
const SHARES: [(&str, u64); 4] = [
    ("wait_10", 10),
    ("wait_20", 20),
    ("wait_30", 30),
    ("wait_40", 40),
];
/// Duration of a turn through all futures.
const TURN: Duration = Duration::from_secs(1);
const POLLS: u32 = 50_000;
const GOAL_POINTS: f64 = 2.0;

const FIGURES: [&str; 7] = [
    "error",
    "measured",
    "extra_polls",
    "poll_inactive",
    "poll_off",
    "poll_recorded",
    "poll_plain",
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, turns) = if effort.quick { (1, 3) } else { (3, 10) };
    let mut arms = FIGURES.map(Arm::extra);
    let mut notes = vec![format!(
        "{TASKS} tasks, {turns} turns of {TURN:?} in each round; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let (run, taken) = machine::watch(|| child::run("waiting_tasks", &[turns.to_string()]));
        let run = run?;
        for arm in &mut arms {
            arm.runs.push(
                run[arm.name]
                    .as_f64()
                    .ok_or("the child's answer lacks a figure")?,
            );
        }
        notes.push(format!(
            "round {round}: {}; CPUs used by other processes + the hypervisor: {taken}",
            run["note"].as_str().unwrap_or_default(),
        ));
    }
    let mut arms: Vec<Arm> = arms.into();
    let mut ours = arms.remove(0);
    (ours.name, ours.extra) = ("ours", false);
    let met = ours.figure() <= GOAL_POINTS && arms[1].figure() == 0.0;
    Ok(Report {
        unit: "percentage points between a future's share and its name",
        ours,
        peers: arms,
        floor: None,
        better: f64::min,
        goal: "ours <= 2 points, and no extra polls",
        met,
        notes,
    })
}

/// Counts the polls of the future inside.
struct Counted<F> {
    future: F,
    polls: u64,
}

static POLLED: AtomicU64 = AtomicU64::new(0);
static EXTRA: AtomicU64 = AtomicU64::new(0);

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.polls += 1;
        Pin::new(&mut self.future).poll(context)
    }
}

impl<F> Drop for Counted<F> {
    fn drop(&mut self) {
        POLLED.fetch_add(self.polls, Ordering::Relaxed);
        EXTRA.fetch_add(self.polls.saturating_sub(2), Ordering::Relaxed);
    }
}

/// What the tasks have waited in each future, in ns, as they measured it.
type Measured = [AtomicU64; SHARES.len()];

async fn task(begin: tokio::time::Instant, turns: u32, measured: Arc<Measured>) {
    let category = gecko_profiler_category!(Network);
    let mut until = begin;
    for _ in 0..turns {
        for (at, (name, share)) in SHARES.into_iter().enumerate() {
            until += TURN * share as u32 / 100;
            let sleep = Counted {
                future: Box::pin(tokio::time::sleep_until(until)),
                polls: 0,
            };
            let before = Instant::now();
            labeled_future(name, category, sleep).await;
            let waited_ns = before.elapsed().as_nanos() as u64;
            measured[at].fetch_add(waited_ns, Ordering::Relaxed);
        }
    }
}

/// Runs all tasks, and returns what they have measured.
fn run_tasks(turns: u32) -> Result<[f64; SHARES.len()], Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()?;
    let measured = Arc::new(Measured::default());
    runtime.block_on(async {
        let begin = tokio::time::Instant::now() + Duration::from_millis(200);
        let mut tasks = Vec::new();
        for number in 0..TASKS {
            // The tasks do not wake all at once.
            let begin = begin + TURN * number as u32 / TASKS as u32;
            let category = gecko_profiler_category!(Network);
            let measured = Arc::clone(&measured);
            let work = async move {
                tokio::time::sleep_until(begin).await;
                labeled_future("task", category, task(begin, turns, measured)).await;
            };
            tasks.push(tokio::spawn(work));
        }
        for task in tasks {
            task.await?;
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    Ok(shares(std::array::from_fn(|at| {
        measured[at].load(Ordering::Relaxed) as f64
    })))
}

fn shares(times: [f64; SHARES.len()]) -> [f64; SHARES.len()] {
    let all: f64 = times.iter().sum();
    times.map(|time| 100.0 * time / all.max(1.0))
}

fn largest_difference(found: [f64; SHARES.len()], truth: [f64; SHARES.len()]) -> f64 {
    let differences = found
        .iter()
        .zip(truth)
        .map(|(one, other)| (one - other).abs());
    differences.fold(0.0, f64::max)
}

fn start(features: Features) -> Result<ProfilerSession, Box<dyn Error>> {
    let features = Features::default_set() | features;
    Ok(ProfilerSession::start(
        StartParams::default().features(features),
    )?)
}

/// Runs one round in the child process. Argument: the number of turns.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [turns] = arguments else {
        return Err("expected the number of turns".into());
    };
    let turns: u32 = turns.parse()?;
    let poll_inactive = poll_ns();
    let poll_plain = plain_poll_ns();
    let session = start(Features::NONE)?;
    let poll_off = poll_ns();
    drop(session.finish()?);
    let session = start(Features::WAITING_TASKS)?;
    let poll_recorded = poll_ns();
    drop(session.finish()?);
    let session = start(Features::WAITING_TASKS)?;
    let measured = run_tasks(turns)?;
    let found = shares(recorded(&session.finish()?)?);
    let stated = SHARES.map(|(_, share)| share as f64);
    Ok(json!({
        "error": largest_difference(found, stated),
        "measured": largest_difference(found, measured),
        "extra_polls": EXTRA.load(Ordering::Relaxed),
        "poll_inactive": poll_inactive,
        "poll_off": poll_off,
        "poll_recorded": poll_recorded,
        "poll_plain": poll_plain,
        "note": format!(
            "{found:.3?} % recorded, {measured:.3?} % measured, {} polls",
            POLLED.load(Ordering::Relaxed)
        ),
    }))
}

/// Returns the weights of the track's rows, by the innermost name.
fn recorded(profile: &Profile) -> Result<[f64; SHARES.len()], Box<dyn Error>> {
    let mut text = Vec::new();
    profile.write(Format::Gecko, &mut text)?;
    let profile: Value = serde_json::from_slice(&text)?;
    let mut threads = profile["threads"].as_array().into_iter().flatten();
    let track = threads
        .find(|thread| thread["name"] == "Waiting tasks")
        .ok_or("the profile lacks the track")?;
    let index = |value: &Value| value.as_u64().unwrap_or(0) as usize;
    let weight = track["samples"]["schema"]["weight"]
        .as_u64()
        .ok_or("the track lacks weights")?;
    let mut sums = [0.0; SHARES.len()];
    for row in track["samples"]["data"].as_array().into_iter().flatten() {
        let frame = index(&track["stackTable"]["data"][index(&row[0])][1]);
        let name = &track["stringTable"][index(&track["frameTable"]["data"][frame][0])];
        if let Some(at) = SHARES.iter().position(|(known, _)| name == known) {
            sums[at] += row[weight as usize].as_f64().unwrap_or(0.0);
        }
    }
    Ok(sums)
}

/// A future that is always pending.
fn pending() -> impl Future<Output = ()> {
    std::future::poll_fn(|_| black_box(Poll::Pending))
}

fn poll_ns() -> f64 {
    register_thread("polls");
    let category = gecko_profiler_category!(Network);
    polls_of(labeled_future("pending", category, pending()))
}

fn plain_poll_ns() -> f64 {
    polls_of(pending())
}

/// Returns the time of a poll: the median of many batches.
fn polls_of(future: impl Future<Output = ()>) -> f64 {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _only = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut times: Vec<f64> = (0..31)
        .map(|_| {
            batch!(POLLS, {
                black_box(future.as_mut().poll(&mut context).is_pending());
            })
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
