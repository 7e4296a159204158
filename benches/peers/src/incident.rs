//! `incident`: share of a slow request's time that its explanation puts on the right place.
//!
//! Each request does a little work, then has one delay of a known kind and place, and works again:
//! it computes, waits for a lock that another thread holds, sleeps, reads from a pipe that another
//! thread writes to later, or is suspended at an `.await`. The delays have 20 to 80 ms. What a delay
//! took is measured around it: by the thread's CPU clock for work, and by the monotonic clock for
//! waits. The rest of a request is time in which it got no processor.
//!
//! `ours` is the share of a request's time that [`Profile::explain`] names with the right kind and,
//! except for waits for a processor and awaits, in the right function; the mean over all requests. The
//! profile is that of the whole session, not of a dump. `least` is that of the worst request in a
//! hundred. `lock`, `sleep`, `pipe`, `compute` and `suspended` are the means of the requests with one
//! kind of delay.

use std::error::Error;
use std::future::Future;
use std::hint::black_box;
use std::io::{Read, Write};
use std::pin::{Pin, pin};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use gekkota::context::{ProfilerContext, in_context};
use gekkota::profile::{Explanation, SlowRequest, TimeKind};
use gekkota::{Features, Profile, ProfilerSession, StartParams, register_thread};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::raw::thread_cpu_ns;
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
/// Work before and after the delay of each request.
const OWN_WORK: Duration = Duration::from_millis(2);
const SHORTEST_MS: u64 = 20;
const LONGEST_MS: u64 = 80;
const GOAL_SHARE: f64 = 95.0;
const WORST: f64 = 0.01;

/// The kinds of delay, each with the function in which it passes.
const KINDS: [(&str, TimeKind, &str); 5] = [
    ("compute", TimeKind::Cpu, "compute_a_lot"),
    ("lock", TimeKind::Lock, "wait_for_the_lock"),
    ("sleep", TimeKind::Sleep, "sleep_a_while"),
    ("pipe", TimeKind::Io, "read_the_pipe"),
    ("suspended", TimeKind::Await, "answer_later"),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, requests) = if effort.quick { (1, 250) } else { (3, 1000) };
    let mut ours = Arm::new("ours");
    let mut least = Arm::extra("least");
    let mut of_kinds = KINDS.map(|(name, ..)| Arm::extra(name));
    let mut notes = vec![format!(
        "{requests} requests in each round; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let arguments = [requests.to_string()];
        let (run, taken) = machine::watch(|| child::run("incident", &arguments));
        let run = run?;
        let figure = |name: &str| {
            run[name]
                .as_f64()
                .ok_or("the child's answer lacks a figure")
        };
        ours.runs.push(figure("mean")?);
        least.runs.push(figure("least")?);
        for (arm, (name, ..)) in of_kinds.iter_mut().zip(KINDS) {
            arm.runs.push(figure(name)?);
        }
        notes.push(format!(
            "round {round}: {:.1} % of the requests' time got no processor; CPUs used by other processes + the \
             hypervisor: {taken}; worst: {}",
            figure("queued")?,
            run["worst"].as_str().unwrap_or_default(),
        ));
    }
    let met = ours.figure() >= GOAL_SHARE;
    Ok(Report {
        unit: "% of a slow request's time that its explanation puts on the right place",
        ours,
        peers: [least].into_iter().chain(of_kinds).collect(),
        floor: None,
        better: f64::max,
        goal: "ours >= 95 %",
        met,
        notes,
    })
}

/// What a request did, as it measured it.
struct Truth {
    kind: usize,
    /// Time of the delay; CPU time if it computed.
    delay: Duration,
    /// CPU time before and after it.
    own_work: Duration,
    length: Duration,
}

impl Truth {
    /// Returns the time that the explanation puts on the right place, as a share of the request's.
    fn share_in(&self, explanation: &Explanation) -> f64 {
        let (_, kind, place) = KINDS[self.kind];
        let delay = match kind {
            // The stack of a suspended task is that of its last sample.
            TimeKind::Await => explanation.time(kind),
            _ => explanation.time_in(kind, place),
        };
        let own = explanation.time_in(TimeKind::Cpu, "own_work");
        let queued = self
            .queued()
            .min(explanation.time(TimeKind::WaitForProcessor));
        let right = self.delay.min(delay) + self.own_work.min(own) + queued;
        100.0 * right.as_secs_f64() / self.length.as_secs_f64()
    }

    fn queued(&self) -> Duration {
        self.length.saturating_sub(self.delay + self.own_work)
    }
}

/// Runs one round in the child process. Argument: the number of requests.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [requests] = arguments else {
        return Err("expected the number of requests".into());
    };
    let requests: u64 = requests.parse()?;
    let features = Features::default_set() | Features::CONTEXT_SWITCHES;
    let params = StartParams::default().interval(INTERVAL).features(features);
    let session = ProfilerSession::start(params)?;
    let server = std::thread::spawn(move || {
        register_thread("server");
        let mut server = Server::new().map_err(|error| error.to_string())?;
        Ok::<_, String>(
            (0..requests)
                .map(|number| server.answer(number))
                .collect::<Vec<_>>(),
        )
    });
    let truths = server.join().map_err(|_| "the server panicked")??;
    let path = std::env::temp_dir().join(format!("incident-{}.json", std::process::id()));
    let saved = session.finish()?.save(&path);
    let profile = Profile::read(&path);
    // A run that failed has left none.
    let _ = std::fs::remove_file(&path);
    saved?;
    let profile = profile?;
    let mut shares = Vec::new();
    let mut worst = (f64::MAX, String::new());
    let (mut queued, mut all) = (Duration::ZERO, Duration::ZERO);
    for (number, truth) in truths.iter().enumerate() {
        // A request without a sample is explained not at all.
        let explained = profile.explain(&SlowRequest::of_trace(trace_id(number as u64)));
        let share = explained
            .as_ref()
            .map_or(0.0, |explained| truth.share_in(explained));
        let explanation = explained.map_or_else(|error| error.to_string(), |text| text.to_string());
        if share < worst.0 {
            let text = format!(
                "{} {:?} of {:?}",
                KINDS[truth.kind].0, truth.delay, truth.length
            );
            worst = (
                share,
                format!("{share:.1} %: {text}; {explanation}").replace('\n', " / "),
            );
        }
        shares.push((truth.kind, share));
        queued += truth.queued();
        all += truth.length;
    }
    let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let mut of_all: Vec<f64> = shares.iter().map(|(_, share)| *share).collect();
    of_all.sort_by(f64::total_cmp);
    let mut answer = json!({
        "mean": mean(&of_all),
        "least": of_all[(of_all.len() as f64 * WORST) as usize],
        "queued": 100.0 * queued.as_secs_f64() / all.as_secs_f64(),
        "worst": worst.1,
    });
    for (kind, (name, ..)) in KINDS.into_iter().enumerate() {
        let of_kind = shares.iter().filter(|(of, _)| *of == kind);
        let of_kind: Vec<f64> = of_kind.map(|(_, share)| *share).collect();
        answer[name] = json!(mean(&of_kind));
    }
    Ok(answer)
}

fn trace_id(number: u64) -> u128 {
    u128::from(number) + 1
}

/// What the threads that delay a request need: the delay's kind and its length.
type Order = (Delay, Duration);

enum Delay {
    Lock,
    Pipe,
    Wake(Waker),
}

/// Answers one request after another.
struct Server {
    orders: Sender<Order>,
    /// Says that the other thread holds the lock.
    is_locked: Receiver<()>,
    lock: Arc<Mutex<()>>,
    pipe: std::io::PipeReader,
    random: u64,
}

impl Server {
    fn new() -> std::io::Result<Self> {
        let (pipe, mut writer) = std::io::pipe()?;
        let (orders, ordered) = channel::<Order>();
        let (locks, is_locked) = channel();
        let lock = Arc::new(Mutex::new(()));
        let held = Arc::clone(&lock);
        std::thread::spawn(move || {
            for (delay, length) in ordered {
                match delay {
                    Delay::Lock => {
                        let _held = held.lock().unwrap_or_else(PoisonError::into_inner);
                        let _ = locks.send(());
                        std::thread::sleep(length);
                    }
                    Delay::Pipe => {
                        std::thread::sleep(length);
                        let _ = writer.write_all(&[1]);
                    }
                    Delay::Wake(waker) => {
                        std::thread::sleep(length);
                        waker.wake();
                    }
                }
            }
        });
        Ok(Self {
            orders,
            is_locked,
            lock,
            pipe,
            random: 0x9e37_79b9_7f4a_7c15,
        })
    }

    fn next_length(&mut self) -> Duration {
        // Xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Duration::from_millis(SHORTEST_MS + self.random % (LONGEST_MS - SHORTEST_MS + 1))
    }

    fn answer(&mut self, number: u64) -> Truth {
        let kind = (number % KINDS.len() as u64) as usize;
        let length = self.next_length();
        let context = ProfilerContext::new().with_trace_id(trace_id(number));
        if KINDS[kind].1 == TimeKind::Await {
            return block_on(in_context(
                context,
                answer_later(kind, &self.orders, length),
            ));
        }
        if KINDS[kind].1 == TimeKind::Lock {
            // Before the request begins: the other thread holds the lock.
            let _ = self.orders.send((Delay::Lock, length));
            let _ = self.is_locked.recv();
        }
        let _context = context.enter();
        let start = Instant::now();
        let mut work = own_work();
        let delay = match KINDS[kind].1 {
            TimeKind::Lock => timed(|| wait_for_the_lock(&self.lock)),
            TimeKind::Sleep => timed(|| sleep_a_while(length)),
            TimeKind::Io => {
                let _ = self.orders.send((Delay::Pipe, length));
                timed(|| read_the_pipe(&mut self.pipe))
            }
            _ => compute_a_lot(length),
        };
        work += own_work();
        Truth {
            kind,
            delay,
            own_work: work,
            length: start.elapsed(),
        }
    }
}

fn timed(wait: impl FnOnce()) -> Duration {
    let start = Instant::now();
    wait();
    start.elapsed()
}

/// Computes for this CPU time, and returns the CPU time that it took.
#[inline(always)]
fn compute(least: Duration) -> Duration {
    let start = thread_cpu_ns();
    let mut number = 1u64;
    loop {
        for _ in 0..2_000 {
            number = black_box(number.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ 1);
        }
        let taken = Duration::from_nanos(thread_cpu_ns().saturating_sub(start));
        if taken >= least {
            return taken;
        }
    }
}

#[inline(never)]
fn own_work() -> Duration {
    compute(OWN_WORK)
}

#[inline(never)]
fn compute_a_lot(least: Duration) -> Duration {
    compute(least)
}

#[inline(never)]
fn wait_for_the_lock(lock: &Mutex<()>) {
    drop(black_box(
        lock.lock().unwrap_or_else(PoisonError::into_inner),
    ));
}

#[inline(never)]
fn sleep_a_while(length: Duration) {
    std::thread::sleep(length);
    black_box(());
}

#[inline(never)]
fn read_the_pipe(pipe: &mut std::io::PipeReader) {
    let _ = black_box(pipe.read(&mut [0; 1]));
}

/// A request whose task is suspended.
async fn answer_later(kind: usize, orders: &Sender<Order>, length: Duration) -> Truth {
    let start = Instant::now();
    let mut work = own_work();
    let suspended = Instant::now();
    let mut orders = Some(orders);
    std::future::poll_fn(|context| match orders.take() {
        Some(orders) => {
            let _ = orders.send((Delay::Wake(context.waker().clone()), length));
            Poll::Pending
        }
        None => Poll::Ready(()),
    })
    .await;
    let delay = suspended.elapsed();
    work += own_work();
    Truth {
        kind,
        delay,
        own_work: work,
        length: start.elapsed(),
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on the calling thread. Each wake-up is one of the future's: nothing else unparks
/// the thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future: Pin<_> = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
