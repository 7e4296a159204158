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

use std::future::Future;
use std::hint::black_box;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use gekkota::context::{ProfilerContext, in_context};
use gekkota::profile::{Explanation, SlowRequest, TimeKind};
use gekkota::{Features, Profile, ProfilerLayer, ProfilingCategoryPair, labeled_future};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};
use tracing::Instrument;
use tracing_subscriber::prelude::*;

use crate::numbers::percentile;
use crate::prelude::*;
use crate::random::Random;
use crate::raw::thread_cpu_ns;

const CATEGORY: ProfilingCategoryPair = ProfilingCategoryPair::Other(None);
/// Work before and after the delay of each request.
const OWN_WORK: Duration = Duration::from_millis(2);
const SHORTEST_MS: u64 = 20;
const LONGEST_MS: u64 = 80;
const WORST: f64 = 0.01;

/// Number of requests that need one of the two connections at the same time.
const POOLED: usize = 4;
const CONNECTIONS: usize = 2;
/// CPU time after which a request that computes lets the other request of its thread run.
const SLICE: Duration = Duration::from_millis(1);

/// Answers one request, or several ones at the same time, with a delay of this length.
type Answer = fn(&mut Server, Duration) -> Vec<Truth>;

/// The kinds of delay.
const KINDS: [(&str, Answer); 8] = [
    ("compute", |server, length| {
        server.answer(|_| (TimeKind::Cpu, "compute_a_lot", compute_a_lot(length)))
    }),
    ("lock", |server, length| {
        server.hold_the_lock(length);
        server.answer(|server| {
            let delay = timed(|| wait_for_the_lock(&server.lock));
            (TimeKind::Lock, "wait_for_the_lock", delay)
        })
    }),
    ("sleep", |server, length| {
        server.answer(|_| {
            (
                TimeKind::Sleep,
                "sleep_a_while",
                timed(|| sleep_a_while(length)),
            )
        })
    }),
    ("pipe", |server, length| {
        server.answer(|server| {
            let writer = Arc::clone(&server.pipe.1);
            send_later(&server.orders, length, move || {
                _ = (&*writer).write_all(&[1])
            });
            let delay = timed(|| read_the_pipe(&mut server.pipe.0));
            (TimeKind::Io, "read_the_pipe", delay)
        })
    }),
    ("suspended", |server, length| {
        let context = server.next_context();
        let answer = answer_later(context.trace_id(), server.orders.clone(), length);
        server.run([in_context(context, answer)])
    }),
    ("pool", |server, _| {
        let requests = [(); POOLED].map(|()| {
            let (trace_id, hold) = (server.next_trace_id(), server.next_length() / 2);
            let span = tracing::info_span!("request", trace_id = %format_args!("{trace_id:032x}"));
            answer_from_pool(trace_id, Arc::clone(&server.pool), hold).instrument(span)
        });
        server.run(requests)
    }),
    ("nested", |server, length| {
        let context = server.next_context();
        let request = answer_in_orders(context.trace_id(), length);
        let request = labeled_future("request", CATEGORY, request);
        server.run([in_context(context, request)])
    }),
    ("beside", |server, length| {
        let [waits, computes] = [(); 2].map(|()| server.next_context());
        let waiting = answer_after_timer(waits.trace_id(), length);
        let computing = answer_in_slices(computes.trace_id(), length);
        let waiting = server.tasks.spawn(in_context(waits, waiting));
        let computing = server.tasks.spawn(in_context(computes, computing));
        server.finish([waiting, computing])
    }),
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "incident",
    unit: "% of a slow request's time that its explanation puts on the right place",
    goal: "ours >= 98 %",
    better: f64::max,
    is_met: |study| study.figure("ours") >= 98.0,
    rounds: [1, 3],
    sizes: [&[250], &[1000]],
    size_names: &["requests"],
    part: run,
    ..Measurement::LONG
};

/// A time of a request: what it did, and the function or the future in which it did it.
type Spent = (TimeKind, &'static str, Duration);

/// What a request did, as it measured it.
struct Truth {
    trace_id: u128,
    spent: Vec<Spent>,
    start: Instant,
    length: Duration,
}

impl Truth {
    fn start(trace_id: u128) -> Self {
        Self {
            trace_id,
            spent: Vec::new(),
            start: Instant::now(),
            length: Duration::ZERO,
        }
    }

    fn own_work(&mut self) {
        self.add(TimeKind::Cpu, "own_work", own_work());
    }

    fn add(&mut self, kind: TimeKind, place: &'static str, time: Duration) {
        let mut known = self.spent.iter_mut();
        match known.find(|known| (known.0, known.1) == (kind, place)) {
            Some(known) => known.2 += time,
            None => self.spent.push((kind, place, time)),
        }
    }

    /// Awaits a future, all of whose time is a wait.
    async fn wait<T>(&mut self, place: &'static str, future: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let value = future.await;
        self.add(TimeKind::Await, place, start.elapsed());
        value
    }

    fn end(mut self) -> Self {
        self.length = self.start.elapsed();
        self
    }

    /// Returns the time that the explanation puts on the right place, as a share of the request's.
    fn share_in(&self, explanation: &Explanation) -> f64 {
        let spent: Duration = self.spent.iter().map(|(_, _, time)| *time).sum();
        let queued = self.length.saturating_sub(spent);
        let places = self.spent.iter();
        let right = places.map(|&(kind, place, time)| time.min(explanation.time_in(kind, place)));
        let right =
            right.sum::<Duration>() + queued.min(explanation.time(TimeKind::WaitForProcessor));
        100.0 * right.as_secs_f64() / self.length.as_secs_f64()
    }
}

/// Runs one round. Arguments: the arm, which is all, and the number of requests.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let requests: usize = arguments.get(1)?;
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
        for (kind, answer) in KINDS.into_iter().cycle() {
            if truths.len() >= requests {
                break;
            }
            let length = server.next_length();
            truths.extend(
                answer(&mut server, length)
                    .into_iter()
                    .map(|truth| (kind, truth)),
            );
        }
        Ok::<_, String>(truths)
    });
    let truths = server.join().map_err(|_| "the server panicked")??;
    let path = Temporary::new(".json");
    session.finish()?.save(&*path)?;
    let profile = Profile::read(&*path)?;
    let mut shares = Vec::new();
    let mut worst = (f64::MAX, String::new());
    for (kind, truth) in &truths {
        // A request that left no trace in the profile is not explained at all.
        let explained = profile.explain(&SlowRequest::of_trace(truth.trace_id));
        let share = explained
            .as_ref()
            .map_or(0.0, |explained| truth.share_in(explained));
        if share < worst.0 {
            let text = explained.map_or_else(|error| error.to_string(), |text| text.to_string());
            let truth = format!("{kind} {:?} of {:?}", truth.spent, truth.length);
            worst = (
                share,
                format!("worst: {share:.1} %: {truth}; {text}").replace('\n', " / "),
            );
        }
        shares.push((*kind, share));
    }
    let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let of_all: Vec<f64> = shares.iter().map(|(_, share)| *share).collect();
    let mut answer = json!({
        "ours": mean(&of_all),
        "least": percentile(&of_all, WORST),
        "note": worst.1,
    });
    for (name, _) in KINDS {
        let of_kind = shares.iter().filter(|(of, _)| *of == name);
        answer[name] = json!(mean(&of_kind.map(|(_, share)| *share).collect::<Vec<_>>()));
    }
    Ok(answer)
}

/// What the thread that delays requests does.
type Order = Box<dyn FnOnce() + Send>;

/// Answers one request after another.
struct Server {
    orders: Sender<Order>,
    lock: Arc<Mutex<()>>,
    pipe: (PipeReader, Arc<PipeWriter>),
    random: Random,
    last_trace_id: u128,
    tasks: Runtime,
    pool: Arc<Semaphore>,
}

impl Server {
    fn new() -> std::io::Result<Self> {
        let (orders, ordered) = channel::<Order>();
        std::thread::spawn(move || ordered.iter().for_each(|order| order()));
        let (reader, writer) = std::io::pipe()?;
        Ok(Self {
            orders,
            lock: Arc::default(),
            pipe: (reader, Arc::new(writer)),
            random: Random::new(0x9e37_79b9_7f4a_7c15),
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
        Duration::from_millis(SHORTEST_MS + self.random.next() % (LONGEST_MS - SHORTEST_MS + 1))
    }

    fn next_trace_id(&mut self) -> u128 {
        self.last_trace_id += 1;
        self.last_trace_id
    }

    fn next_context(&mut self) -> ProfilerContext {
        ProfilerContext::new().with_trace_id(self.next_trace_id())
    }

    /// Lets the other thread hold the lock for this long, and returns when it does.
    fn hold_the_lock(&self, length: Duration) {
        let lock = Arc::clone(&self.lock);
        let (locks, is_locked) = channel();
        // The other thread ends after this one.
        let _ = self.orders.send(Box::new(move || {
            let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = locks.send(());
            std::thread::sleep(length);
        }));
        let _ = is_locked.recv();
    }

    /// Answers a request that does not leave the thread.
    fn answer(&mut self, delay: impl FnOnce(&mut Self) -> Spent) -> Vec<Truth> {
        let context = self.next_context();
        let _context = context.enter();
        let mut truth = Truth::start(context.trace_id());
        truth.own_work();
        let (kind, place, time) = delay(self);
        truth.add(kind, place, time);
        truth.own_work();
        vec![truth.end()]
    }

    /// Answers requests on this thread at the same time.
    fn run<const N: usize>(
        &self,
        requests: [impl Future<Output = Truth> + Send + 'static; N],
    ) -> Vec<Truth> {
        self.finish(requests.map(|request| self.tasks.spawn(request)))
    }

    fn finish<const N: usize>(&self, tasks: [JoinHandle<Truth>; N]) -> Vec<Truth> {
        // A request that panicked has said so.
        let truths = tasks.into_iter().map(|task| self.tasks.block_on(task));
        truths.filter_map(Result::ok).collect()
    }
}

/// Lets the other thread do something later.
fn send_later(orders: &Sender<Order>, length: Duration, then: impl FnOnce() + Send + 'static) {
    // The other thread ends after this one.
    let _ = orders.send(Box::new(move || {
        std::thread::sleep(length);
        then();
    }));
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
fn read_the_pipe(pipe: &mut PipeReader) {
    let _ = black_box(pipe.read(&mut [0; 1]));
}

/// A request whose task is suspended until the other thread wakes it.
async fn answer_later(trace_id: u128, orders: Sender<Order>, length: Duration) -> Truth {
    let mut truth = Truth::start(trace_id);
    truth.own_work();
    let mut orders = Some(orders);
    let is_woken = std::future::poll_fn(|context| match orders.take() {
        Some(orders) => {
            let waker = context.waker().clone();
            send_later(&orders, length, || waker.wake());
            Poll::Pending
        }
        None => Poll::Ready(()),
    });
    truth.wait("answer_later", is_woken).await;
    truth.own_work();
    truth.end()
}

/// A request that needs one of few connections.
async fn answer_from_pool(trace_id: u128, pool: Arc<Semaphore>, hold: Duration) -> Truth {
    let mut truth = Truth::start(trace_id);
    truth.own_work();
    let orders = async {
        let get = pool.acquire().instrument(tracing::info_span!("get"));
        let connection = truth.wait("get", get).await;
        let query = tokio::time::sleep(hold).instrument(tracing::info_span!("query"));
        truth.wait("query", query).await;
        drop(connection);
    };
    orders.instrument(tracing::info_span!("orders")).await;
    truth.own_work();
    truth.end()
}

/// A request whose innermost future waits.
async fn answer_in_orders(trace_id: u128, length: Duration) -> Truth {
    let mut truth = Truth::start(trace_id);
    truth.own_work();
    let look_up = labeled_future("look_up", CATEGORY, tokio::time::sleep(length));
    let orders = labeled_future("orders", CATEGORY, truth.wait("look_up", look_up));
    orders.await;
    truth.own_work();
    truth.end()
}

/// A request that is suspended while another one computes.
async fn answer_after_timer(trace_id: u128, length: Duration) -> Truth {
    let mut truth = Truth::start(trace_id);
    truth.own_work();
    let timer = tokio::time::sleep(length);
    truth.wait("answer_after_timer", timer).await;
    truth.own_work();
    truth.end()
}

/// A request that computes, and lets others run now and then.
async fn answer_in_slices(trace_id: u128, length: Duration) -> Truth {
    let mut truth = Truth::start(trace_id);
    let mut computed = Duration::ZERO;
    while computed < length {
        let slice = compute_a_lot(SLICE);
        truth.add(TimeKind::Cpu, "compute_a_lot", slice);
        // The name of a wait that is too short for an interval is unknown.
        truth.wait("", yield_now()).await;
        computed += slice;
    }
    truth.end()
}
