//! `incident`: share of a slow request's time that its explanation puts on the right place.
//!
//! Each request does a little work, then has a delay of a known kind and place, and works again: it
//! computes, waits for a lock that another thread holds, sleeps, reads from a pipe that another
//! thread writes to later, or is suspended at an `.await`. The delays have 20 to 80 ms. What a delay
//! took is measured around it: by the thread's CPU clock for work, and by the monotonic clock for
//! waits. The rest of a request is time in which it got no processor.
//!
//! Some requests share their thread, as tasks of Tokio. In `pool`, four requests with spans of
//! `tracing` wait for one of two connections, and then for the answer to a query. In `nested`, the
//! innermost of three labeled futures waits. In `beside`, one request is suspended while another one
//! computes on the same thread.
//!
//! `ours` is the share of a request's time that [`Profile::explain`] names with the right kind and,
//! except for waits for a processor, in the right function or future; the mean over all requests. The
//! profile is that of the whole session, not of a dump. `least` is that of the worst request in a
//! hundred. The other figures are the means of the requests with one kind of delay.

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
use gekkota::{
    Features, Profile, ProfilerLayer, ProfilerSession, ProfilingCategoryPair, StartParams,
    labeled_future, register_thread,
};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};
use tracing::Instrument;
use tracing_subscriber::prelude::*;

use crate::machine::{self, load_note};
use crate::raw::thread_cpu_ns;
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const CATEGORY: ProfilingCategoryPair = ProfilingCategoryPair::Other(None);
const INTERVAL: Duration = Duration::from_millis(1);
/// Work before and after the delay of each request.
const OWN_WORK: Duration = Duration::from_millis(2);
const SHORTEST_MS: u64 = 20;
const LONGEST_MS: u64 = 80;
const GOAL_SHARE: f64 = 98.0;
const WORST: f64 = 0.01;

/// Number of requests that need one of the two connections at the same time.
const POOLED: usize = 4;
const CONNECTIONS: usize = 2;
/// CPU time after which the request that computes beside another one lets that one run.
const SLICE: Duration = Duration::from_millis(1);

/// The kinds of delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Compute,
    Lock,
    Sleep,
    Pipe,
    Suspended,
    Pool,
    Nested,
    Beside,
}

const KINDS: [(Kind, &str); 8] = [
    (Kind::Compute, "compute"),
    (Kind::Lock, "lock"),
    (Kind::Sleep, "sleep"),
    (Kind::Pipe, "pipe"),
    (Kind::Suspended, "suspended"),
    (Kind::Pool, "pool"),
    (Kind::Nested, "nested"),
    (Kind::Beside, "beside"),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, requests) = if effort.quick { (1, 250) } else { (3, 1000) };
    let mut ours = Arm::new("ours");
    let mut least = Arm::extra("least");
    let mut of_kinds = KINDS.map(|(_, name)| Arm::extra(name));
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
        for (arm, (_, name)) in of_kinds.iter_mut().zip(KINDS) {
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
        goal: "ours >= 98 %",
        met,
        notes,
    })
}

/// A time of a request: what it did, and the function or the future in which it did it.
type Spent = (TimeKind, &'static str, Duration);

/// What a request did, as it measured it.
struct Truth {
    kind: Kind,
    trace_id: u128,
    spent: Vec<Spent>,
    length: Duration,
}

impl Truth {
    /// Returns the time that the explanation puts on the right place, as a share of the request's.
    fn share_in(&self, explanation: &Explanation) -> f64 {
        let queued = explanation.time(TimeKind::WaitForProcessor);
        let right = self
            .places()
            .into_iter()
            .map(|(kind, place, time)| time.min(explanation.time_in(kind, place)));
        let right = right.sum::<Duration>() + self.queued().min(queued);
        100.0 * right.as_secs_f64() / self.length.as_secs_f64()
    }

    /// Returns each place once.
    fn places(&self) -> Vec<Spent> {
        let mut places: Vec<Spent> = Vec::new();
        for &(kind, place, time) in &self.spent {
            match places
                .iter_mut()
                .find(|known| (known.0, known.1) == (kind, place))
            {
                Some(known) => known.2 += time,
                None => places.push((kind, place, time)),
            }
        }
        places
    }

    fn queued(&self) -> Duration {
        let spent = self.spent.iter().map(|(_, _, time)| *time);
        self.length.saturating_sub(spent.sum())
    }
}

/// A request in progress.
struct Measuring {
    truth: Truth,
    start: Instant,
}

impl Measuring {
    fn start(kind: Kind, trace_id: u128) -> Self {
        Self {
            truth: Truth {
                kind,
                trace_id,
                spent: Vec::new(),
                length: Duration::ZERO,
            },
            start: Instant::now(),
        }
    }

    fn own_work(&mut self) {
        self.add(TimeKind::Cpu, "own_work", own_work());
    }

    fn add(&mut self, kind: TimeKind, place: &'static str, time: Duration) {
        self.truth.spent.push((kind, place, time));
    }

    /// Awaits a future, all of whose time is a wait.
    async fn wait<T>(&mut self, place: &'static str, future: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let value = future.await;
        self.add(TimeKind::Await, place, start.elapsed());
        value
    }

    fn end(mut self) -> Truth {
        self.truth.length = self.start.elapsed();
        self.truth
    }
}

/// Runs one round in the child process. Argument: the number of requests.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [requests] = arguments else {
        return Err("expected the number of requests".into());
    };
    let requests: u64 = requests.parse()?;
    let layer = tracing_subscriber::registry().with(ProfilerLayer::new());
    tracing::subscriber::set_global_default(layer)?;
    let measured = Features::CONTEXT_SWITCHES | Features::WAITING_TASKS;
    let features = Features::default_set() | measured;
    let params = StartParams::default().interval(INTERVAL).features(features);
    let session = ProfilerSession::start(params)?;
    let server = std::thread::spawn(move || {
        register_thread("server");
        let mut server = Server::new().map_err(|error| error.to_string())?;
        let mut truths = Vec::new();
        for (kind, _) in KINDS.into_iter().cycle() {
            if truths.len() as u64 >= requests {
                break;
            }
            server.answer(kind, &mut truths);
        }
        Ok::<_, String>(truths)
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
    for truth in &truths {
        // A request that left no trace in the profile is not explained at all.
        let explained = profile.explain(&SlowRequest::of_trace(truth.trace_id));
        let share = explained
            .as_ref()
            .map_or(0.0, |explained| truth.share_in(explained));
        let explanation = explained.map_or_else(|error| error.to_string(), |text| text.to_string());
        if share < worst.0 {
            let text = format!(
                "{:?} {:?} of {:?}",
                truth.kind,
                truth.places(),
                truth.length
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
    for (kind, name) in KINDS {
        let of_kind = shares.iter().filter(|(of, _)| *of == kind);
        let of_kind: Vec<f64> = of_kind.map(|(_, share)| *share).collect();
        answer[name] = json!(mean(&of_kind));
    }
    Ok(answer)
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
    last_trace_id: u128,
    tasks: Runtime,
    pool: Arc<Semaphore>,
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
            last_trace_id: 0,
            // Looks for timers after each poll.
            tasks: Builder::new_current_thread()
                .enable_time()
                .event_interval(1)
                .build()?,
            pool: Arc::new(Semaphore::new(CONNECTIONS)),
        })
    }

    fn next_length(&mut self) -> Duration {
        // Xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Duration::from_millis(SHORTEST_MS + self.random % (LONGEST_MS - SHORTEST_MS + 1))
    }

    fn next_trace_id(&mut self) -> u128 {
        self.last_trace_id += 1;
        self.last_trace_id
    }

    /// Answers one request, or several ones at the same time.
    fn answer(&mut self, kind: Kind, truths: &mut Vec<Truth>) {
        let length = self.next_length();
        match kind {
            Kind::Suspended => {
                let context = self.next_context();
                let answer = answer_later(kind, context.trace_id(), &self.orders, length);
                truths.push(block_on(in_context(context, answer)));
            }
            Kind::Pool => {
                let requests = [(); POOLED].map(|()| {
                    let (trace_id, hold) = (self.next_trace_id(), self.next_length() / 2);
                    let span =
                        tracing::info_span!("request", trace_id = %format_args!("{trace_id:032x}"));
                    answer_from_pool(trace_id, Arc::clone(&self.pool), hold).instrument(span)
                });
                self.run(requests, truths);
            }
            Kind::Nested => {
                let context = self.next_context();
                let request = answer_in_orders(context.trace_id(), length);
                let request = labeled_future("request", CATEGORY, request);
                self.run([in_context(context, request)], truths);
            }
            Kind::Beside => {
                let [waits, computes] = [(); 2].map(|()| self.next_context());
                let waiting = answer_after_timer(waits.trace_id(), length);
                let computing = answer_in_slices(computes.trace_id(), length);
                let waiting = self.tasks.spawn(in_context(waits, waiting));
                let computing = self.tasks.spawn(in_context(computes, computing));
                self.finish([waiting, computing], truths);
            }
            Kind::Compute | Kind::Lock | Kind::Sleep | Kind::Pipe => {
                truths.push(self.answer_alone(kind, length));
            }
        }
    }

    fn next_context(&mut self) -> ProfilerContext {
        ProfilerContext::new().with_trace_id(self.next_trace_id())
    }

    /// Answers requests on this thread at the same time.
    fn run<const N: usize>(
        &self,
        requests: [impl Future<Output = Truth> + Send + 'static; N],
        truths: &mut Vec<Truth>,
    ) {
        self.finish(requests.map(|request| self.tasks.spawn(request)), truths);
    }

    fn finish<const N: usize>(&self, tasks: [JoinHandle<Truth>; N], truths: &mut Vec<Truth>) {
        // A request that panicked has said so.
        let tasks = tasks.into_iter();
        truths.extend(tasks.filter_map(|task| self.tasks.block_on(task).ok()));
    }

    /// Answers a request that does not leave the thread.
    fn answer_alone(&mut self, kind: Kind, length: Duration) -> Truth {
        if kind == Kind::Lock {
            // Before the request begins: the other thread holds the lock.
            let _ = self.orders.send((Delay::Lock, length));
            let _ = self.is_locked.recv();
        }
        let context = self.next_context();
        let _context = context.enter();
        let mut measuring = Measuring::start(kind, context.trace_id());
        measuring.own_work();
        let (kind, place, delay) = match kind {
            Kind::Lock => {
                let delay = timed(|| wait_for_the_lock(&self.lock));
                (TimeKind::Lock, "wait_for_the_lock", delay)
            }
            Kind::Sleep => {
                let delay = timed(|| sleep_a_while(length));
                (TimeKind::Sleep, "sleep_a_while", delay)
            }
            Kind::Pipe => {
                let _ = self.orders.send((Delay::Pipe, length));
                let delay = timed(|| read_the_pipe(&mut self.pipe));
                (TimeKind::Io, "read_the_pipe", delay)
            }
            _ => (TimeKind::Cpu, "compute_a_lot", compute_a_lot(length)),
        };
        measuring.add(kind, place, delay);
        measuring.own_work();
        measuring.end()
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
async fn answer_later(
    kind: Kind,
    trace_id: u128,
    orders: &Sender<Order>,
    length: Duration,
) -> Truth {
    let mut measuring = Measuring::start(kind, trace_id);
    measuring.own_work();
    let mut orders = Some(orders);
    let is_sent = std::future::poll_fn(|context| match orders.take() {
        Some(orders) => {
            let _ = orders.send((Delay::Wake(context.waker().clone()), length));
            Poll::Pending
        }
        None => Poll::Ready(()),
    });
    measuring.wait("answer_later", is_sent).await;
    measuring.own_work();
    measuring.end()
}

/// A request that needs one of few connections.
async fn answer_from_pool(trace_id: u128, pool: Arc<Semaphore>, hold: Duration) -> Truth {
    let mut measuring = Measuring::start(Kind::Pool, trace_id);
    measuring.own_work();
    let orders = async {
        let get = pool.acquire().instrument(tracing::info_span!("get"));
        let connection = measuring.wait("get", get).await;
        let query = tokio::time::sleep(hold).instrument(tracing::info_span!("query"));
        measuring.wait("query", query).await;
        drop(connection);
    };
    orders.instrument(tracing::info_span!("orders")).await;
    measuring.own_work();
    measuring.end()
}

/// A request whose innermost future waits.
async fn answer_in_orders(trace_id: u128, length: Duration) -> Truth {
    let mut measuring = Measuring::start(Kind::Nested, trace_id);
    measuring.own_work();
    let look_up = labeled_future("look_up", CATEGORY, tokio::time::sleep(length));
    let orders = labeled_future("orders", CATEGORY, measuring.wait("look_up", look_up));
    orders.await;
    measuring.own_work();
    measuring.end()
}

/// A request that is suspended while another one computes.
async fn answer_after_timer(trace_id: u128, length: Duration) -> Truth {
    let mut measuring = Measuring::start(Kind::Beside, trace_id);
    measuring.own_work();
    let timer = tokio::time::sleep(length);
    measuring.wait("answer_after_timer", timer).await;
    measuring.own_work();
    measuring.end()
}

/// A request that computes, and lets others run now and then.
async fn answer_in_slices(trace_id: u128, length: Duration) -> Truth {
    let mut measuring = Measuring::start(Kind::Beside, trace_id);
    let mut computed = Duration::ZERO;
    while computed < length {
        let slice = compute_a_lot(SLICE);
        measuring.add(TimeKind::Cpu, "compute_a_lot", slice);
        // The name of a wait that is too short for an interval is unknown.
        measuring.wait("", yield_now()).await;
        computed += slice;
    }
    measuring.end()
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
