//! `waiting_tasks`: error of the shares of waiting time that the feature `waitingtasks` shows.
//!
//! 10,000 Tokio tasks wait in four futures in turns. The names of the futures state their shares of
//! the waiting: `wait_10` to `wait_40`. Each waits until a planned time, so a late wake-up shortens
//! the next wait, and the shares also hold under other load.
//!
//! `ours` is the largest difference between a future's share in the profile and the share that its
//! name states, in percentage points. `extra_polls` are the polls of the futures beyond the two that each wait needs, one
//! that leaves it pending and one that ends it, so load does not change them. The others are the
//! nanoseconds that a poll of a future takes that is always pending: `poll_inactive` without a
//! session, `poll_off` in one without the feature, `poll_recorded` in one with it, and `poll_plain`
//! without a label around it.

use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use gekkota::profile::Format;
use gekkota::{Features, Profile, gecko_profiler_category, labeled_future};

use crate::batch::batch;
use crate::prelude::*;
use crate::profile::{Tables, column, threads};

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

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "waiting_tasks",
    unit: "percentage points between a future's share and its name",
    goal: "ours <= 2 points, and no extra polls",
    is_met: |study| study.at_most(&["ours"], 2.0) && study.at_most(&["extra_polls"], 0.0),
    rounds: [1, 3],
    sizes: [&[3], &[10]],
    size_names: &["turns of 10,000 tasks"],
    part: run,
    ..Measurement::NEW
};

/// Counts the polls of the future inside.
struct Counted<F> {
    future: F,
    polls: u64,
}

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
        EXTRA.fetch_add(self.polls.saturating_sub(2), Ordering::Relaxed);
    }
}

async fn task(begin: tokio::time::Instant, turns: u32) {
    let category = gecko_profiler_category!(Network);
    let mut until = begin;
    for _ in 0..turns {
        for (name, share) in SHARES {
            until += TURN * share as u32 / 100;
            let sleep = Counted {
                future: Box::pin(tokio::time::sleep_until(until)),
                polls: 0,
            };
            labeled_future(name, category, sleep).await;
        }
    }
}

fn run_tasks(turns: u32) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let begin = tokio::time::Instant::now() + Duration::from_millis(200);
        let mut tasks = Vec::new();
        for number in 0..TASKS {
            // The tasks do not wake all at once.
            let begin = begin + TURN * number as u32 / TASKS as u32;
            let category = gecko_profiler_category!(Network);
            tasks.push(tokio::spawn(async move {
                tokio::time::sleep_until(begin).await;
                labeled_future("task", category, task(begin, turns)).await;
            }));
        }
        for task in tasks {
            task.await?;
        }
        Ok(())
    })
}

fn start(features: Features) -> Fallible<ProfilerSession> {
    let features = Features::default_set() | features;
    Ok(ProfilerSession::start(
        StartParams::default().features(features),
    )?)
}

/// Runs one round. Arguments: the arm, which is all, and the number of turns.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let in_session = |features| -> Fallible<f64> {
        let session = start(features)?;
        let time = poll_ns();
        drop(session.finish()?);
        Ok(time)
    };
    let mut answer = json!({
        "poll_inactive": poll_ns(),
        "poll_plain": polls_of(pending()),
        "poll_off": in_session(Features::NONE)?,
        "poll_recorded": in_session(Features::WAITING_TASKS)?,
    });
    let session = start(Features::WAITING_TASKS)?;
    run_tasks(arguments.get(1)?)?;
    let sums = recorded(&session.finish()?)?;
    let all: f64 = sums.iter().sum();
    let shares = sums.iter().zip(SHARES);
    let errors = shares.map(|(sum, (_, share))| (100.0 * sum / all.max(1.0) - share as f64).abs());
    answer["ours"] = json!(errors.fold(0.0, f64::max));
    answer["extra_polls"] = json!(EXTRA.load(Ordering::Relaxed));
    Ok(answer)
}

/// Returns the weights of the track's rows, by the innermost name.
fn recorded(profile: &Profile) -> Fallible<[f64; SHARES.len()]> {
    let mut text = Vec::new();
    profile.write(Format::Gecko, &mut text)?;
    let profile: Value = serde_json::from_slice(&text)?;
    let track = threads(&profile).find(|thread| thread["name"] == "Waiting tasks");
    let track = track.ok_or("the profile lacks the track")?;
    let places = Tables(track).stacks(|_, frame| {
        let mut known = SHARES.iter();
        known.position(|(name, _)| frame.name == *name)
    });
    let samples = &track["samples"];
    let rows = column(samples, "stack").zip(column(samples, "weight"));
    let (places, (stacks, weights)) = places.zip(rows).ok_or("the track lacks a table")?;
    let mut sums = [0.0; SHARES.len()];
    for (stack, weight) in stacks.zip(weights) {
        let stack = stack.as_u64().map(|stack| stack as usize);
        if let Some(place) = stack.and_then(|stack| places[stack]) {
            sums[place] += weight.as_f64().unwrap_or(0.0);
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

/// Returns the time of a poll: the median of many batches.
fn polls_of(future: impl Future<Output = ()>) -> f64 {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let times = [(); 31].map(|()| {
        batch!(POLLS, {
            black_box(future.as_mut().poll(&mut context).is_pending());
        })
    });
    median(&times)
}
