//! Answers clients: on the calling thread, or as a future.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::api::backend;
use crate::api::endpoints::answer::{EndpointAnswer, EndpointError};
use crate::api::endpoints::question::{Endpoint, Place, Question, index};
use crate::api::profile::SnapshotOptions;
use crate::types::{Features, ProfilerTime, SampleWeight, StartError, StartParams};

/// Answers the target of an HTTP request, and blocks while it does so. The host puts this behind a
/// route of its own, such as `/debug/pprof/{endpoint}`. See [`Question::from_target`] for the
/// targets.
///
/// An error becomes an answer with a status and a text, so that the host can pass on each answer. A
/// target without an endpoint gets a page that lists them.
///
/// A session that runs is used as it is. Without one, the first client starts a session at its
/// rate, which later clients share. The last client that leaves stops it.
///
/// May be called from any thread, also concurrently. Cost: the samples, and at the end the writing
/// of the profile, on the calling thread; one client writes at a time. Idea: Go's `net/http/pprof`.
///
/// ```no_run
/// let answer = gekkota::endpoints::answer("/debug/pprof/profile?seconds=5");
/// println!("{} {:?}", answer.status, answer.headers());
/// ```
pub fn answer(target: &str) -> EndpointAnswer {
    if let Some(index) = index_for(target) {
        return index;
    }
    let answer = Question::from_target(target).and_then(|question| question.ask());
    answer.unwrap_or_else(EndpointAnswer::from)
}

/// Answers the target of an HTTP request like [`answer`], without blocking the thread that polls
/// the future. If the future is dropped, the client leaves. Works with any executor.
///
/// Cost: a thread of the profiler for each client.
///
/// ```no_run
/// # async fn handle(target: &str) {
/// let answer = gekkota::endpoints::answer_async("/debug/pprof/profile?seconds=5").await;
/// # }
/// ```
pub async fn answer_async(target: &str) -> EndpointAnswer {
    if let Some(index) = index_for(target) {
        return index;
    }
    let question = match Question::from_target(target) {
        Ok(question) => question,
        Err(error) => return error.into(),
    };
    question
        .ask_async()
        .await
        .unwrap_or_else(EndpointAnswer::from)
}

/// Returns the page for a path that ends in a slash and names no endpoint.
fn index_for(target: &str) -> Option<EndpointAnswer> {
    let path = target.split('?').next().unwrap_or("");
    let is_index = path.is_empty() || path.ends_with('/') && Question::from_target(path).is_err();
    is_index.then(|| index(None))
}

macro_rules! shorthands {
    ($($(#[$doc:meta])+ $name:ident($endpoint:ident);)+) => {
        $($(#[$doc])+
        ///
        /// Blocks the calling thread for that time. See [`answer`] for the session and the cost.
        ///
        /// # Errors
        /// [`EndpointError`]
        pub fn $name(duration: Duration, hz: u32) -> Result<Vec<u8>, EndpointError> {
            let question = Question::new(Endpoint::$endpoint).duration(duration).hz(hz);
            question.ask().map(|answer| answer.body)
        })+
    };
}

shorthands! {
    /// Returns the CPU time by stack, in Google's pprof format, compressed. Needs the cargo feature
    /// `protobuf`.
    pprof_cpu(Cpu);
    /// Returns the time by stack, whether threads run or wait, in Google's pprof format,
    /// compressed. Needs the cargo feature `protobuf`.
    pprof_wall(Wall);
    /// Returns the profile for the Firefox Profiler.
    gecko(Gecko);
    /// Returns an interactive flame graph of the CPU time, for browsers.
    flamegraph_svg(FlameGraph);
    /// Returns a text: where each thread spent its time.
    summary_text(Summary);
}

/// Returns the memory that is allocated now, by stack, in Google's pprof format, compressed. Needs
/// the cargo feature `protobuf`, and what
/// [`profiler_heap_snapshot`](crate::api::profile::profiler_heap_snapshot) needs.
///
/// # Errors
/// [`EndpointError`]
pub fn pprof_heap() -> Result<Vec<u8>, EndpointError> {
    let answer = Question::new(Endpoint::Heap).ask();
    answer.map(|answer| answer.body)
}

/// Returns a text: the stacks of all threads now. Takes about 50 ms.
///
/// # Errors
/// [`EndpointError`]
pub fn threads_text() -> Result<Vec<u8>, EndpointError> {
    let answer = Question::new(Endpoint::Threads).ask();
    answer.map(|answer| answer.body)
}

impl Question {
    /// Records for the time that was asked for, and returns the answer. Blocks the calling thread.
    /// See [`answer`] for the session and the cost.
    ///
    /// # Errors
    /// [`EndpointError`]
    pub fn ask(&self) -> Result<EndpointAnswer, EndpointError> {
        self.check()?;
        let place = Place::take()?;
        let answered = self.record(&Shared::default());
        drop(place);
        // A client that blocks does not leave before its answer.
        answered.unwrap_or(Err(EndpointError::Ended))
    }

    /// Records for the time that was asked for, on a thread of the profiler. Nothing happens until
    /// the future is polled. If it is dropped, the client leaves.
    pub fn ask_async(self) -> AskFuture {
        AskFuture {
            question: self,
            shared: None,
        }
    }

    /// Records until the time is over, and writes the answer. Returns `None` if the client has
    /// left.
    fn record(&self, shared: &Shared) -> Option<Result<EndpointAnswer, EndpointError>> {
        if self.endpoint == Endpoint::Heap {
            let frozen = backend::heap_snapshot().ok_or(EndpointError::NoHeap);
            return match frozen {
                Ok(frozen) => self.write(&frozen, None, shared),
                Err(error) => Some(Err(error)),
            };
        }
        let params = StartParams::default()
            .interval(Duration::from_secs(1) / self.hz.max(1))
            .features(Features::default());
        let client = match backend::join_session(&params) {
            Ok(client) => client,
            Err(error) => return Some(Err(EndpointError::Start(error))),
        };
        if !shared.wait(self.duration, &client) {
            return None;
        }
        if self.endpoint == Endpoint::Threads
            && let Some(interval) = client.interval()
        {
            // A session with a long interval takes its next sample later.
            let rest = (2 * interval).saturating_sub(self.duration);
            if !shared.wait(rest.min(Duration::from_secs(2)), &client) {
                return None;
            }
        }
        let since = Some(client.since());
        match client.leave_with_profile() {
            Some(frozen) => self.write(&frozen, since, shared),
            None => Some(Err(EndpointError::Ended)),
        }
    }

    /// Writes the answer. Returns `None` if the client has left before its turn.
    fn write(
        &self,
        frozen: &backend::FrozenProfile,
        since: Option<ProfilerTime>,
        shared: &Shared,
    ) -> Option<Result<EndpointAnswer, EndpointError>> {
        let format = self.endpoint.format();
        let mut options = SnapshotOptions::usual_for(Some(format));
        options.since = since;
        if matches!(self.endpoint, Endpoint::Cpu | Endpoint::FlameGraph) {
            options.weight = SampleWeight::Cpu;
        }
        let mut options = options.to_write_options(format);
        // Go's clients expect one kind of profile from one address.
        options.export.is_without_allocations = self.endpoint != Endpoint::Heap;
        if self.endpoint == Endpoint::Wall {
            options.export.first_value = Some("wall");
        }
        let mut answer = self.endpoint.empty_answer();
        // The debug information of a large program takes much memory.
        let _turn = WriterTurn::take(shared)?;
        let written = frozen.write(&options, &mut answer.body);
        Some(written.map(|()| answer).map_err(EndpointError::Write))
    }
}

/// The right to write a profile, which one client has at a time.
struct WriterTurn {
    _guard: Option<MutexGuard<'static, ()>>,
}

/// The process of the client that has the turn.
static WRITING_PROCESS: AtomicU32 = AtomicU32::new(0);

impl WriterTurn {
    /// Waits for the turn. Does without it in the child of a fork, where the thread that had it
    /// does not exist. Returns `None` if the client leaves before that.
    fn take(shared: &Shared) -> Option<Self> {
        static WRITER: Mutex<()> = Mutex::new(());
        const STEP: Duration = Duration::from_millis(10);
        let own = std::process::id();
        let take = |guard| {
            WRITING_PROCESS.store(own, Ordering::Relaxed);
            let _guard = Some(guard);
            Some(Self { _guard })
        };
        while !shared.state().has_left {
            match WRITER.try_lock() {
                Ok(turn) => return take(turn),
                Err(std::sync::TryLockError::Poisoned(poisoned)) => {
                    return take(poisoned.into_inner());
                }
                Err(std::sync::TryLockError::WouldBlock)
                    if WRITING_PROCESS.load(Ordering::Relaxed) != own =>
                {
                    return Some(Self { _guard: None });
                }
                Err(std::sync::TryLockError::WouldBlock) => std::thread::sleep(STEP),
            }
        }
        None
    }
}

/// What the future and its thread share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    has_left: bool,
    waker: Option<Waker>,
    answer: Option<Result<EndpointAnswer, EndpointError>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits for this long, or until the session has ended. Returns false as soon as the client has
    /// left.
    fn wait(&self, duration: Duration, client: &backend::SessionClient) -> bool {
        /// Time between two looks at the session.
        const STEP: Duration = Duration::from_millis(250);
        let end = Instant::now() + duration;
        let mut state = self.state();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.has_left || left.is_zero() || !client.is_running() {
                return !state.has_left;
            }
            state = match self.changed.wait_timeout(state, left.min(STEP)) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Hands the answer to the future.
    fn finish(&self, answer: Result<EndpointAnswer, EndpointError>) {
        let waker = {
            let mut state = self.state();
            state.answer = Some(answer);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The answer to a [`Question`], which a thread of the profiler prepares. Dropping it lets the
/// client leave.
#[must_use = "nothing happens until it is polled"]
pub struct AskFuture {
    question: Question,
    /// `None` until the first poll.
    shared: Option<Arc<Shared>>,
}

impl fmt::Debug for AskFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AskFuture").field(&self.question).finish()
    }
}

impl AskFuture {
    /// Starts the thread that answers.
    fn begin(&self) -> Result<Arc<Shared>, EndpointError> {
        self.question.check()?;
        let place = Place::take()?;
        let shared = Arc::new(Shared::default());
        let (question, of_thread) = (self.question, Arc::clone(&shared));
        let body = move || {
            let record = AssertUnwindSafe(|| question.record(&of_thread));
            // A panic of the application's allocator or memory must not leave the future pending.
            let answer = catch_unwind(record).unwrap_or(Some(Err(EndpointError::Ended)));
            drop(place);
            if let Some(answer) = answer {
                of_thread.finish(answer);
            }
        };
        backend::spawn_task(body).map_err(EndpointError::Write)?;
        Ok(shared)
    }
}

impl Future for AskFuture {
    type Output = Result<EndpointAnswer, EndpointError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = match &self.shared {
            Some(shared) => Arc::clone(shared),
            None => match self.begin() {
                Ok(shared) => {
                    self.shared = Some(Arc::clone(&shared));
                    shared
                }
                Err(error) => return Poll::Ready(Err(error)),
            },
        };
        let mut state = shared.state();
        match state.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for AskFuture {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.state().has_left = true;
            shared.changed.notify_all();
        }
    }
}

impl From<StartError> for EndpointError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}
