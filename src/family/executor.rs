//! Carries out the parent's orders, on a thread that shares the application's descriptor table.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::family::link::{ChildControl, PartWriter, SendJob};
use crate::family::messages::WHOLE;
use crate::family::orders::{ChildSession, GatherOrder, NumberedOrder, Order};
use crate::family::reports::{Report, TextPart};
use crate::platform::{Receiver, Sender, spawn_profiler_thread, with_signals_blocked};
use crate::session::{
    FrozenProfile, WriteOptions, clear_all_pages, default_options, ensure_started_for_parent,
    environment, freeze_unnoticed, open_crash_file, pause, pause_sampling, resume, resume_sampling,
    running_generation, start, stop, stop_generation,
};
use crate::stream::{GatherRequest, StreamOptions};
use crate::types::{Generation, StartError, StartParams};
use crate::util::{ProgressLogger, SharedProgress};

/// Maximum number of snapshots that are held for the parent.
const MAX_SNAPSHOTS: usize = 4;
/// Maximum number of profiles that are written at the same time.
const MAX_WRITERS: usize = 4;
/// Shares of the parent's time-out for the children of this process, so that this process gives up
/// one of them before its parent gives up this process.
const TIMEOUT_SHARES: (u32, u32) = (3, 4);

/// A profile that is being written for an order to gather.
#[derive(Debug)]
pub(super) struct GatherState {
    pub(super) id: u64,
    pub(super) progress: SharedProgress,
    pub(super) is_cancelled: AtomicBool,
}

impl GatherState {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            progress: SharedProgress::new(),
            is_cancelled: AtomicBool::new(false),
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

/// The executor's state.
pub(super) struct Executor {
    control: Arc<ChildControl>,
    jobs: Arc<Sender<SendJob>>,
    snapshots: VecDeque<(u64, FrozenProfile)>,
    /// The session that the parent has started.
    started: Option<Generation>,
    /// Each thread that writes a profile has this, too.
    writers: Arc<()>,
}

impl Executor {
    pub(super) fn new(control: Arc<ChildControl>, jobs: Arc<Sender<SendJob>>) -> Self {
        Self {
            control,
            jobs,
            snapshots: VecDeque::new(),
            started: None,
            writers: Arc::new(()),
        }
    }

    /// Carries out orders until the connection has ended.
    pub(super) fn run(mut self, tasks: &Receiver<Task>) {
        while let Some(Task { order, gather }) = tasks.receive() {
            let id = order.id;
            let carried_out = catch_unwind(AssertUnwindSafe(|| self.carry_out(order, gather)));
            let answer = carried_out.unwrap_or_else(|_| {
                let failure = Some("the profiler panicked".to_owned());
                Some(Report::Done { id, failure })
            });
            match answer {
                Some(answer) => _ = self.jobs.send(SendJob::Answer(answer.encode())),
                None => _ = self.control.unanswered.fetch_sub(1, Ordering::AcqRel),
            }
        }
        self.end();
    }

    /// Stops the session that the parent has started, because the parent is gone. Keeps the
    /// session if a variable asks for a profile at exit.
    fn end(&self) {
        let is_lost = !self.control.is_leaving.load(Ordering::Acquire);
        if let Some(started) = self.started
            && is_lost
            && !environment::uses_profile_at_shutdown()
        {
            stop_generation(started);
        }
    }

    fn carry_out(
        &mut self,
        NumberedOrder { id, order }: NumberedOrder,
        gather: Option<Arc<GatherState>>,
    ) -> Option<Report<'static>> {
        let mut failure = None;
        match order {
            Order::Start(session) => failure = self.start(&session, start),
            Order::EnsureStarted(session) => {
                failure = self.start(&session, ensure_started_for_parent);
            }
            Order::Stop | Order::StopInherited => {
                self.control.max_exit_bytes.store(0, Ordering::Release);
                if matches!(order, Order::Stop) || environment::is_configured_by_parent() {
                    stop();
                }
            }
            Order::Pause => pause(),
            Order::Resume => resume(),
            Order::PauseSampling => _ = pause_sampling(),
            Order::ResumeSampling => resume_sampling(),
            Order::ClearPages => clear_all_pages(),
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
        }
        Some(Report::Done { id, failure })
    }

    fn start(
        &mut self,
        session: &ChildSession,
        start: fn(&StartParams) -> Result<Generation, StartError>,
    ) -> Option<String> {
        let before = running_generation();
        match start(&session.params) {
            Ok(generation) => {
                let max_exit_bytes = &self.control.max_exit_bytes;
                max_exit_bytes.store(session.max_exit_bytes, Ordering::Release);
                // Before the answer: once the parent has that, it can rescue this process.
                if let Some(file) = open_crash_file() {
                    let report = Report::CrashFile(file).encode();
                    self.jobs.send(SendJob::Message(report));
                }
                // The process's own session stays its own.
                if before != Some(generation) || environment::is_configured_by_parent() {
                    self.started = Some(generation);
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
            let part = TextPart::Failed(reason.to_owned());
            Some(Report::Text { id, part })
        };
        let known = self
            .snapshots
            .iter()
            .find(|(frozen, _)| *frozen == order.frozen);
        let Some((_, profile)) = known else {
            return failed("it has dropped the snapshot for newer ones");
        };
        if Arc::strong_count(&self.writers) > MAX_WRITERS {
            return failed("it is writing too many profiles");
        }
        let profile = profile.clone().on_clock_of(order.request.clock);
        let (jobs, control) = (Arc::clone(&self.jobs), Arc::clone(&self.control));
        let writer = Arc::clone(&self.writers);
        let write = move || {
            write_for_parent(profile, &order.request, &state, &jobs, &control);
            drop(writer);
        };
        match with_signals_blocked(|| spawn_profiler_thread(c"ProfilerGather", write)) {
            Ok(_) => None,
            Err(_) => failed("the system refused a thread"),
        }
    }
}

fn write_for_parent(
    profile: FrozenProfile,
    request: &GatherRequest,
    state: &GatherState,
    jobs: &Sender<SendJob>,
    control: &ChildControl,
) {
    let id = state.id;
    let is_exiting = || control.is_exiting.load(Ordering::Acquire);
    let gives_up = || is_exiting() || state.is_cancelled.load(Ordering::Acquire);
    let (share, of) = TIMEOUT_SHARES;
    let stream = StreamOptions {
        since: request.since,
        max_rows: request.max_rows,
        child_timeout: request.child_timeout * share / of,
        merges_alike: request.merges_alike,
        progress: ProgressLogger::for_job(Some(&state.progress)),
        ..StreamOptions::whole(request.symbolicate)
    };
    let options = WriteOptions {
        stream,
        ..default_options()
    };
    let mut out = PartWriter::new(jobs, id, u64::MAX, &gives_up);
    let begun = out.send(TextPart::Begins);
    let written = begun.and_then(|()| {
        let written = catch_unwind(AssertUnwindSafe(|| profile.write_once(&options, &mut out)));
        written.unwrap_or_else(|_| Err(io::Error::other("the profiler panicked")))
    });
    // Its last profile takes the place of this one.
    if let Err(error) = written.and_then(|()| out.finish())
        && !is_exiting()
    {
        let reason = format!("it cannot write its profile: {error}");
        let last = PartWriter::new(jobs, id, 0, &is_exiting);
        let _ = last.send(TextPart::Failed(reason));
    }
}
