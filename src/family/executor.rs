//! Carries out the parent's orders, on a thread that shares the application's descriptor table.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::family::link::{ChildControl, PartWriter, SendJob, TextOf};
use crate::family::messages::WHOLE;
use crate::family::orders::{ChildSession, GatherOrder, NumberedOrder, Order};
use crate::family::reports::Report;
use crate::platform::{
    FileDescriptor, Receiver, Sender, spawn_profiler_thread, with_signals_blocked,
};
use crate::session::{
    FrozenProfile, WriteOptions, clear_all_pages, ensure_started_for_parent, environment,
    freeze_unnoticed, open_crash_file, pause, pause_sampling, resume, resume_sampling,
    running_generation, start, stop, stop_generation,
};
use crate::stream::StreamOptions;
use crate::types::{
    DEFAULT_NAME_CACHE_BYTES, ExportOptions, Format, Generation, NameOptions, ProfilerTime,
    StartError,
};
use crate::util::SharedProgress;

/// Maximum number of snapshots that are held for the parent.
const MAX_SNAPSHOTS: usize = 4;
/// Maximum number of profiles that are written at the same time.
const MAX_WRITERS: u32 = 4;
/// Shares of the parent's time-out for the children of this process, so that this process gives up
/// one of them before its parent gives up this process.
const TIMEOUT_SHARES: (u32, u32) = (3, 4);

/// A profile that is being written for an order to gather.
#[derive(Debug)]
pub(super) struct GatherState {
    pub(super) id: u64,
    pub(super) progress: SharedProgress,
    pub(super) is_cancelled: AtomicBool,
    pub(super) is_done: AtomicBool,
    sent_bytes: AtomicU64,
}

impl GatherState {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            progress: SharedProgress::new(),
            is_cancelled: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
            sent_bytes: AtomicU64::new(0),
        }
    }

    /// Returns how far the profile is.
    pub(super) fn report(&self) -> Report<'static> {
        let done = (self.progress.proportion() * f64::from(WHOLE)) as u32;
        Report::Progress {
            id: self.id,
            done: done.min(WHOLE),
            location: self.progress.last_location().to_owned(),
        }
    }
}

/// An order for the executor.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) order: NumberedOrder,
    /// The state of an order to gather; `None` for other orders.
    pub(super) gather: Option<Arc<GatherState>>,
}

/// The answer to one order. Other reports may precede it.
pub(super) type Answer = Vec<Report<'static>>;

/// The executor's state.
pub(super) struct Executor {
    control: Arc<ChildControl>,
    jobs: Arc<Sender<SendJob>>,
    snapshots: VecDeque<(u64, FrozenProfile)>,
    /// The file of a session that has just begun, which the parent does not know.
    new_crash_file: Option<FileDescriptor>,
}

impl Executor {
    pub(super) fn new(control: Arc<ChildControl>, jobs: Arc<Sender<SendJob>>) -> Self {
        Self {
            control,
            jobs,
            snapshots: VecDeque::new(),
            new_crash_file: None,
        }
    }

    /// Carries out orders until the connection has ended. Answers each of them, even if there is
    /// nothing to report.
    pub(super) fn run(mut self, tasks: &Receiver<Task>, answers: &Sender<Answer>) {
        while let Some(Task { order, gather }) = tasks.receive() {
            let id = order.id;
            let carried_out = catch_unwind(AssertUnwindSafe(|| self.carry_out(order, gather)));
            let answer = carried_out.unwrap_or_else(|_| {
                let failure = Some("the profiler panicked".to_owned());
                Some(Report::Done { id, failure })
            });
            // Before the answer: once the parent has that, it can rescue this process.
            let crash_file = self.new_crash_file.take().map(Report::CrashFile);
            answers.send(crash_file.into_iter().chain(answer).collect());
        }
        self.end();
    }

    /// Stops the session that the parent has started, because the parent is gone. Keeps the
    /// session if a variable asks for a profile at exit.
    fn end(&self) {
        let started = self.control.started.load(Ordering::Acquire);
        let is_lost = !self.control.is_leaving.load(Ordering::Acquire);
        if is_lost && started != 0 && !environment::uses_profile_at_shutdown() {
            stop_generation(Generation::from_number(started));
        }
    }

    fn carry_out(
        &mut self,
        NumberedOrder { id, order }: NumberedOrder,
        gather: Option<Arc<GatherState>>,
    ) -> Option<Report<'static>> {
        let failure = match order {
            Order::Start(session) => self.start(&session, start),
            Order::EnsureStarted(session) => self.start(&session, ensure_started_for_parent),
            Order::Stop => {
                self.control.max_exit_bytes.store(0, Ordering::Release);
                stop();
                None
            }
            Order::StopInherited => {
                self.control.max_exit_bytes.store(0, Ordering::Release);
                if environment::is_configured_by_parent() {
                    stop();
                }
                None
            }
            Order::Pause => {
                pause();
                None
            }
            Order::Resume => {
                resume();
                None
            }
            Order::PauseSampling => {
                pause_sampling();
                None
            }
            Order::ResumeSampling => {
                resume_sampling();
                None
            }
            Order::ClearPages => {
                clear_all_pages();
                None
            }
            Order::Freeze => return Some(self.freeze(id)),
            Order::Gather(order) => return self.gather(id, order, gather?),
            Order::Release => {
                self.snapshots.retain(|(frozen, _)| *frozen != id);
                return None;
            }
            // The reader answers these.
            Order::Welcome
            | Order::AskProgress
            | Order::Cancel
            | Order::WaitForSampling
            | Order::AwaitChunkUpdate
            | Order::DestroyChunks(_) => return None,
        };
        Some(Report::Done { id, failure })
    }

    fn start(
        &mut self,
        session: &ChildSession,
        start: fn(&crate::types::StartParams) -> Result<Generation, StartError>,
    ) -> Option<String> {
        let before = running_generation();
        match start(&session.params) {
            Ok(generation) => {
                let max_bytes = session.max_exit_bytes;
                self.control
                    .max_exit_bytes
                    .store(max_bytes, Ordering::Release);
                self.new_crash_file = open_crash_file();
                // The process's own session stays its own.
                if before != Some(generation) || environment::is_configured_by_parent() {
                    let number = generation.to_number();
                    self.control.started.store(number, Ordering::Release);
                }
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }

    fn freeze(&mut self, id: u64) -> Report<'static> {
        let Some(profile) = freeze_unnoticed(None) else {
            let failure = Some("it runs no session".to_owned());
            return Report::Done { id, failure };
        };
        let (started_at, taken_at) = profile.times();
        if self.snapshots.len() == MAX_SNAPSHOTS {
            self.snapshots.pop_front();
        }
        self.snapshots.push_back((id, profile));
        Report::Frozen {
            id,
            started_at,
            taken_at,
        }
    }

    /// Begins to write a profile, on a new thread.
    fn gather(
        &self,
        id: u64,
        order: GatherOrder,
        state: Arc<GatherState>,
    ) -> Option<Report<'static>> {
        let failed = |reason: &str| {
            let reason = reason.to_owned();
            Some(Report::ProfileFailed { id, reason })
        };
        let known = self
            .snapshots
            .iter()
            .find(|(frozen, _)| *frozen == order.frozen);
        let Some((_, profile)) = known else {
            return failed("it has dropped the snapshot for newer ones");
        };
        if self.control.writers.load(Ordering::Acquire) >= MAX_WRITERS {
            return failed("it is writing too many profiles");
        }
        let profile = profile.clone().on_clock_of(order.clock);
        let (jobs, control) = (Arc::clone(&self.jobs), Arc::clone(&self.control));
        control.writers.fetch_add(1, Ordering::AcqRel);
        let write = move || {
            write_for_parent(profile, &order, &state, &jobs, &control);
            state.is_done.store(true, Ordering::Release);
            control.writers.fetch_sub(1, Ordering::AcqRel);
        };
        let spawned = with_signals_blocked(|| spawn_profiler_thread(c"ProfilerGather", write));
        match spawned {
            Ok(_) => None,
            Err(_) => {
                self.control.writers.fetch_sub(1, Ordering::AcqRel);
                failed("the system refused a thread")
            }
        }
    }
}

fn write_for_parent(
    profile: FrozenProfile,
    order: &GatherOrder,
    state: &GatherState,
    jobs: &Sender<SendJob>,
    control: &ChildControl,
) {
    let id = state.id;
    let is_exiting = || control.is_exiting.load(Ordering::Acquire);
    let gives_up = || is_exiting() || state.is_cancelled.load(Ordering::Acquire);
    let names = NameOptions {
        symbolicate: order.symbolicate,
        max_cache_bytes: DEFAULT_NAME_CACHE_BYTES,
        max_threads: None,
    };
    let since = order
        .since
        .map(|since| ProfilerTime::from_monotonic_ns(since.0));
    let (share, of) = TIMEOUT_SHARES;
    let stream = StreamOptions::new(names, since, order.max_rows, Some(&state.progress))
        .child_timeout(order.child_timeout * share / of)
        .merges_alike(order.merges_alike);
    let options = gecko_options(stream);
    let mut out = PartWriter::new(
        jobs,
        TextOf::Profile(id),
        u64::MAX,
        &state.sent_bytes,
        &gives_up,
    );
    let begun = out.report(&Report::ProfileBegins { id });
    let written = begun.and_then(|()| {
        let written = catch_unwind(AssertUnwindSafe(|| profile.write_once(&options, &mut out)));
        written.unwrap_or_else(|_| Err(io::Error::other("the profiler panicked")))
    });
    let ended = written.and_then(|()| {
        out.finish()?;
        out.report(&Report::ProfileEnds { id })
    });
    // Its last profile takes the place of this one.
    if let Err(error) = ended
        && !is_exiting()
    {
        let reason = format!("it cannot write its profile: {error}");
        let last = PartWriter::new(jobs, TextOf::Profile(id), 0, &state.sent_bytes, &is_exiting);
        let _ = last.report(&Report::ProfileFailed { id, reason });
    }
}

/// Returns options for a profile in Gecko's format.
pub(super) fn gecko_options(stream: StreamOptions) -> WriteOptions {
    WriteOptions {
        format: Format::Gecko,
        stream,
        export: ExportOptions::default(),
    }
}
