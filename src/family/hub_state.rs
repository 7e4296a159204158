//! What the parent's thread knows of the session and of its children, and what it answers them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use crate::buffer::{Update, UpdateReader};
use crate::family::invitation::is_same_token;
use crate::family::jobs::{ChildSnapshot, Freeze, FrozenChild, GatherEvent, Job, Tick};
use crate::family::ledger::{MemoryLedger, OWN};
use crate::family::member::{ChildStart, Ended, Ending, MemberState, Rescue, Stage, next_id};
use crate::family::messages::VERSION;
use crate::family::orders::{ChildSession, GatherOrder, Order};
use crate::family::reports::{ChunkReport, Hello, Report};
use crate::platform::Sender;
use crate::session::{SessionEvent, max_exit_profile_bytes, running_session};
use crate::state::{PauseKind, SessionSettings, core_buffer};
use crate::types::{ProcessId, ThreadFilter, TimeStamp};

/// Maximum number of profiles of this process whose children's snapshots are known at the same time.
const MAX_FREEZES: usize = 64;

/// Time between two comparisons of the memory of all processes with the limit, and while it is far
/// below the limit.
const BALANCE: Duration = Duration::from_millis(50);
const CALM_BALANCE: Duration = Duration::from_millis(500);

pub(super) const OUT_OF_ORDER: Ending = "a connection has ended: it sent a message out of order";

/// Returns whether a session with children runs. If the hub does not know it, an event is on its way.
fn is_session_about_to_be_known() -> bool {
    running_session().is_some_and(|(_, session)| session.settings.has_children)
}

/// Adds an event to the log of the running session.
pub(super) fn log_event(event: impl Into<Cow<'static, str>>) {
    if let Some((_, session)) = running_session() {
        session.log.add(event);
    }
}

/// The session as the children are to follow it.
#[derive(Debug)]
struct FollowedSession {
    settings: SessionSettings,
    is_paused: bool,
    is_sampling_paused: bool,
}

impl FollowedSession {
    /// Returns whether a child process takes part.
    fn selects(&self, process: i32) -> bool {
        let filter = ThreadFilter::new(&self.settings.filters);
        let process = ProcessId::from_number(process);
        self.settings.has_children && !filter.excludes_process(process)
    }

    fn of_child(&self) -> ChildSession {
        ChildSession::of_parent(&self.settings, max_exit_profile_bytes().unwrap_or(0))
    }
}

/// The children's states, one after the other.
pub(super) type States<'a, 'b> = &'a mut dyn Iterator<Item = &'b mut MemberState>;

/// The hub without its sockets.
#[derive(Debug)]
pub(super) struct HubState {
    token: String,
    session: Option<FollowedSession>,
    pub(super) freezes: Vec<Freeze>,
    pub(super) jobs: Vec<Job>,
    pub(super) ledger: MemoryLedger,
    /// When to compare the memory of all processes with the limit, if a child runs.
    balances_at: Option<Instant>,
    /// Children that have ended, whose profiles are being rescued, and when to look at them.
    pub(super) rescues: Vec<Rescue>,
    /// Children that have ended, the newest first. A profile that was taken before may want their last
    /// ones.
    ended: VecDeque<Ended>,
    pub(super) rescues_at: Option<Instant>,
}

impl HubState {
    pub(super) fn new(token: String) -> Self {
        Self {
            token,
            session: None,
            freezes: Vec::new(),
            jobs: Vec::new(),
            ledger: MemoryLedger::default(),
            balances_at: None,
            rescues: Vec::new(),
            ended: VecDeque::new(),
            rescues_at: None,
        }
    }

    /// Lets the children follow a change of the session.
    pub(super) fn follow(&mut self, event: SessionEvent, states: States<'_, '_>) {
        match event {
            SessionEvent::Started(settings) => {
                let session = FollowedSession {
                    settings,
                    is_paused: false,
                    is_sampling_paused: false,
                };
                for state in states {
                    if let Stage::Child { process, .. } = state.stage {
                        // A child that has just joined keeps what it has recorded.
                        let is_new = std::mem::take(&mut state.waits_for_session);
                        if session.selects(process) {
                            let of_child = session.of_child();
                            if !is_new {
                                state.crash_file = None;
                            }
                            state.start = ChildStart::Asked(state.order(match is_new {
                                true => Order::EnsureStarted(of_child),
                                false => Order::Start(of_child),
                            }));
                        } else {
                            state.order(Order::Stop);
                            state.start = ChildStart::NotAsked;
                            state.crash_file = None;
                        }
                    }
                }
                self.ended.clear();
                self.session = Some(session);
                self.ledger.clear();
                self.rescues.clear();
            }
            SessionEvent::Stopped => {
                self.session = None;
                for state in states {
                    let is_new = std::mem::take(&mut state.waits_for_session);
                    if state.takes_part() || is_new {
                        state.order(Order::Stop);
                        state.start = ChildStart::NotAsked;
                        state.crash_file = None;
                    }
                }
            }
            SessionEvent::Paused(kind, pauses) => {
                if let Some(session) = &mut self.session {
                    match kind {
                        PauseKind::All => session.is_paused = pauses,
                        PauseKind::Sampling => session.is_sampling_paused = pauses,
                    }
                }
                order_all(
                    states,
                    &match (kind, pauses) {
                        (PauseKind::All, true) => Order::Pause,
                        (PauseKind::All, false) => Order::Resume,
                        (PauseKind::Sampling, true) => Order::PauseSampling,
                        (PauseKind::Sampling, false) => Order::ResumeSampling,
                    },
                );
            }
            SessionEvent::PagesCleared => order_all(states, &Order::ClearPages),
        }
    }

    /// Asks each child that takes part for a snapshot. The parent took its own at `at`, with the profiles
    /// that it had kept by then.
    pub(super) fn freeze(&mut self, id: u64, at: TimeStamp, states: States<'_, '_>) {
        let mut children = Vec::new();
        for state in states.filter(|state| state.takes_part()) {
            let Stage::Child { process, name } = &state.stage else {
                continue;
            };
            let snapshot = match &state.last_profile {
                Some((kept_at, _)) if *kept_at <= at => continue,
                Some((_, profile)) => ChildSnapshot::Exited(profile.clone()),
                None => ChildSnapshot::Asked,
            };
            children.push(FrozenChild {
                member: state.id,
                process: *process,
                name: name.clone(),
                snapshot,
            });
            state.order_with(id, Order::Freeze);
        }
        let later = self.ended.iter().filter(|ended| ended.kept_at > at);
        children.extend(later.map(|ended| FrozenChild {
            member: ended.id,
            process: ended.process,
            name: ended.name.clone(),
            snapshot: ChildSnapshot::Exited(ended.profile.clone()),
        }));
        children.extend(self.rescues.iter().filter_map(|rescue| {
            let Stage::Child { process, name } = &rescue.state.stage else {
                return None;
            };
            Some(FrozenChild {
                member: rescue.state.id,
                process: *process,
                name: name.clone(),
                snapshot: ChildSnapshot::Taken {
                    started_at: at,
                    taken_at: at,
                },
            })
        }));
        if self.freezes.len() >= MAX_FREEZES {
            self.freezes.remove(0);
        }
        self.freezes.push(Freeze { id, children });
    }

    /// Remembers the last profile of a child whose connection has ended.
    pub(super) fn remember(&mut self, state: &MemberState) {
        /// Maximum number of children that are remembered: those that end while a profile is taken.
        const MAX_ENDED: usize = 64;
        let Stage::Child { process, name } = &state.stage else {
            return;
        };
        if let Some((kept_at, profile)) = &state.last_profile {
            self.ended.truncate(MAX_ENDED - 1);
            // Their files are in addition to what the session keeps.
            let max_bytes = max_exit_profile_bytes().unwrap_or(0);
            let bytes = |ended: &VecDeque<Ended>| {
                let sizes = ended.iter().map(|ended| ended.profile.bytes());
                sizes.fold(profile.bytes(), u64::saturating_add)
            };
            while bytes(&self.ended) > max_bytes && self.ended.pop_back().is_some() {}
            self.ended.push_front(Ended {
                process: *process,
                name: name.clone(),
                id: state.id,
                kept_at: *kept_at,
                profile: profile.clone(),
            });
        }
    }

    /// Begins to gather the profiles of the snapshots.
    pub(super) fn gather(
        &mut self,
        order: GatherOrder,
        events: Sender<GatherEvent>,
        proportion: Arc<AtomicU32>,
        states: States<'_, '_>,
    ) {
        let frozen = self.freezes.iter().find(|freeze| freeze.id == order.frozen);
        let children = frozen.map_or_else(Vec::new, |freeze| freeze.children.clone());
        let id = next_id();
        let job = Job::new(id, &order, children, events, proportion, Instant::now());
        let pending = job.pending();
        for state in states.filter(|state| pending.contains(&state.id)) {
            state.order_with(id, Order::Gather(order));
            state.unanswered_jobs.push(id);
        }
        if !job.is_over() {
            self.jobs.push(job);
        }
    }

    /// Drops the snapshots with this number.
    pub(super) fn release(&mut self, id: u64, states: States<'_, '_>) {
        self.freezes.retain(|freeze| freeze.id != id);
        for state in states.filter(|state| state.has_order(id)) {
            state.order_with(id, Order::Release);
        }
    }

    /// Forgets a child whose connection has ended.
    pub(super) fn forget(&mut self, member: u64) {
        const ENDED: &str = "it has ended";
        for child in self
            .freezes
            .iter_mut()
            .flat_map(|freeze| &mut freeze.children)
        {
            let has_profile = matches!(
                child.snapshot,
                ChildSnapshot::Exited(_) | ChildSnapshot::Rescued(_)
            );
            if child.member == member && !has_profile {
                child.snapshot = ChildSnapshot::Missing(ENDED.to_owned());
            }
        }
        for job in &mut self.jobs {
            job.leave_out(member, ENDED);
        }
        self.ledger.remove(member);
        self.remove_finished_jobs();
    }

    pub(super) fn remove_finished_jobs(&mut self) {
        self.jobs.retain(|job| !job.is_over());
    }

    /// Returns when [`Self::tick`] has work to do.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let jobs = self.jobs.iter().filter_map(Job::next_tick);
        jobs.chain(self.balances_at).chain(self.rescues_at).min()
    }

    /// Asks for progress, gives up children that make none, and limits the memory of all processes.
    pub(super) fn tick(&mut self, now: Instant, states: States<'_, '_>) {
        self.look_at_rescues(now);
        let mut orders = self.balance(now);
        for job in &mut self.jobs {
            orders.extend(job.tick(now).into_iter().map(|tick| match tick {
                Tick::Ask(member) => (member, job.id, Order::AskProgress),
                Tick::GiveUp(member) => (member, job.id, Order::Cancel),
            }));
        }
        let mut has_running = false;
        for state in states {
            has_running |= state.start == ChildStart::Running;
            let member = state.id;
            for (_, id, order) in orders.iter().filter(|(of, ..)| *of == member) {
                state.order_with(*id, order.clone());
            }
        }
        match (has_running, self.balances_at) {
            (false, _) => self.balances_at = None,
            (true, None) => self.balances_at = Some(now),
            (true, Some(_)) => {}
        }
        self.remove_finished_jobs();
    }

    /// If it is time, compares the memory of all processes with the limit. Returns the orders by which
    /// children are to destroy chunks, and destroys those of this process.
    fn balance(&mut self, now: Instant) -> Vec<(u64, u64, Order)> {
        let Some(session) = &self.session else {
            return Vec::new();
        };
        if self.balances_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let max_bytes = session.settings.capacity_bytes;
        let (update, kept_bytes) = core_buffer().read_update(UpdateReader::Family);
        match update {
            Update::None => {}
            Update::Final => self.ledger.remove(OWN),
            update => {
                let mut report = ChunkReport::of(update);
                report.unreleased_bytes += kept_bytes;
                self.ledger.note(OWN, &report);
            }
        }
        let pause = match self.ledger.bytes() < max_bytes / 2 {
            true => CALM_BALANCE,
            false => BALANCE,
        };
        self.balances_at = Some(now + pause);
        let mut orders = Vec::new();
        for (process, time) in self.ledger.take_excess(max_bytes) {
            match process {
                OWN => core_buffer().destroy_chunks_at_or_before(time),
                member => orders.push((member, next_id(), Order::DestroyChunks(time))),
            }
        }
        orders
    }

    /// Returns how many children have not answered the newest start, and how many run.
    pub(super) fn counts<'a>(&self, states: impl Iterator<Item = &'a MemberState>) -> (u32, u32) {
        let (mut starting, mut running) = (0, 0);
        for state in states {
            match state.start {
                ChildStart::Asked(_) => starting += 1,
                ChildStart::Running => running += 1,
                ChildStart::NotAsked | ChildStart::Failed => {}
            }
        }
        (starting, running)
    }

    /// Handles a message of a child.
    ///
    /// # Errors
    /// The reason to end the connection: the message is out of order.
    pub(super) fn handle(
        &mut self,
        state: &mut MemberState,
        report: Report<'_>,
    ) -> Result<(), Ending> {
        let is_hello = matches!(report, Report::Hello(_));
        if is_hello == state.is_child() {
            return Err(OUT_OF_ORDER);
        }
        match report {
            Report::Hello(hello) => return self.welcome(state, hello),
            Report::Named { name: renamed, .. } => {
                if let Stage::Child { name, .. } = &mut state.stage {
                    *name = renamed;
                }
            }
            Report::Done { id, failure } => self.note_done(state, id, failure)?,
            Report::Frozen {
                id,
                started_at,
                taken_at,
            } => {
                check(state.has_order(id) && started_at <= taken_at)?;
                self.set_snapshot(
                    state.id,
                    id,
                    &ChildSnapshot::Taken {
                        started_at,
                        taken_at,
                    },
                );
            }
            Report::Progress { id, done, location } => {
                check(state.has_order(id))?;
                for job in self.jobs.iter_mut().filter(|job| job.id == id) {
                    job.note_progress(state.id, done, &location);
                }
            }
            Report::ProfileBegins { .. }
            | Report::ProfileData { .. }
            | Report::ProfileEnds { .. }
            | Report::ProfileFailed { .. } => self.receive_profile(state, report)?,
            Report::ExitBegins
            | Report::ExitData(_)
            | Report::ExitEnds
            | Report::ExitFailed { .. } => self.receive_exit(state, report)?,
            Report::CrashFile(file) => {
                if let Stage::Child { process, .. } = state.stage
                    && state.takes_part()
                {
                    state.crash_file = file.open_of(process).ok();
                    if state.crash_file.is_none() {
                        log_event("the memory of a child process cannot be read if it is killed");
                    }
                }
            }
            Report::Chunks { id, chunks } => {
                check(state.has_order(id) && self.is_plausible(&chunks))?;
                self.ledger.note(state.id, &chunks);
                state.order(Order::AwaitChunkUpdate);
            }
        }
        Ok(())
    }

    /// Returns whether a child may have chunks of these sizes.
    fn is_plausible(&self, chunks: &ChunkReport) -> bool {
        /// What the chunks of a process may take beside the capacity: each writer reserves two.
        const SPARE_BYTES: u64 = 1 << 30;
        /// Maximum number of released chunks of all processes.
        const MAX_CHUNKS: usize = 1 << 20;
        let Some(session) = &self.session else {
            return true;
        };
        let max_bytes = session.settings.capacity_bytes.saturating_add(SPARE_BYTES);
        let newly = chunks.newly_released.iter().map(|(_, bytes)| *bytes);
        chunks.unreleased_bytes <= max_bytes
            && newly.fold(0, u64::saturating_add) <= max_bytes
            && self.ledger.chunks() + chunks.newly_released.len() <= MAX_CHUNKS
    }

    /// Accepts a child, and lets it follow the session.
    fn welcome(&mut self, state: &mut MemberState, hello: Hello) -> Result<(), Ending> {
        if !is_same_token(&hello.token, &self.token) {
            return Err("a connection was refused: the process does not know the family's token");
        }
        if hello.version != VERSION {
            return Err("a connection was refused: the process has another version of gekkota");
        }
        let process = hello.process;
        state.stage = Stage::Child {
            process,
            name: hello.name,
        };
        state.order(Order::Welcome);
        // Whether it takes part may be decided by an event that the hub has not handled yet.
        log_event("a child process has joined");
        match &self.session {
            Some(session) if session.selects(process) => {
                let order = Order::EnsureStarted(session.of_child());
                state.start = ChildStart::Asked(state.order(order));
                if session.is_paused {
                    state.order(Order::Pause);
                }
                if session.is_sampling_paused {
                    state.order(Order::PauseSampling);
                }
            }
            None if is_session_about_to_be_known() => state.waits_for_session = true,
            _ => {
                state.order(Order::Stop);
            }
        }
        Ok(())
    }

    fn note_done(
        &mut self,
        state: &mut MemberState,
        id: u64,
        failure: Option<String>,
    ) -> Result<(), Ending> {
        check(state.has_order(id))?;
        if state.start == ChildStart::Asked(id) {
            if failure.is_none() {
                state.start = ChildStart::Running;
                state.order(Order::AwaitChunkUpdate);
            } else {
                state.start = ChildStart::Failed;
                log_event("a child process could not start");
            }
        }
        if let Some(reason) = failure {
            self.set_snapshot(state.id, id, &ChildSnapshot::Missing(reason));
        }
        Ok(())
    }

    /// Notes what became of a child's snapshot with this number.
    fn set_snapshot(&mut self, member: u64, frozen: u64, snapshot: &ChildSnapshot) {
        for freeze in self.freezes.iter_mut().filter(|freeze| freeze.id == frozen) {
            for child in &mut freeze.children {
                if child.member == member {
                    child.snapshot = snapshot.clone();
                }
            }
        }
        for job in self.jobs.iter_mut().filter(|job| job.frozen == frozen) {
            job.set_snapshot(member, snapshot);
        }
        self.remove_finished_jobs();
    }
}

fn check(is_in_order: bool) -> Result<(), Ending> {
    is_in_order.then_some(()).ok_or(OUT_OF_ORDER)
}

/// Removes an order to gather that the child now answers.
pub(super) fn take_answered(state: &mut MemberState, id: u64) -> Result<(), Ending> {
    let place = state.unanswered_jobs.iter().position(|&known| known == id);
    state.unanswered_jobs.remove(place.ok_or(OUT_OF_ORDER)?);
    Ok(())
}

/// Gives an order to each child that takes part in the session.
fn order_all(states: States<'_, '_>, order: &Order) {
    for state in states.filter(|state| state.takes_part()) {
        state.order(order.clone());
    }
}

/// A hub with one connection, for messages from a fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) struct ScriptedHub {
    hub: HubState,
    child: MemberState,
}

#[cfg(any(test, fuzzing))]
impl ScriptedHub {
    /// Creates a hub whose children know this token, and a process that has connected.
    pub(crate) fn new(token: &str) -> Self {
        Self {
            hub: HubState::new(token.to_owned()),
            child: MemberState::new(next_id(), Instant::now()),
        }
    }

    /// Handles a message of the process. Returns false if the connection has ended.
    pub(crate) fn hear(&mut self, report: Report<'_>) -> bool {
        let is_in_order = self.hub.handle(&mut self.child, report).is_ok();
        self.hub
            .tick(Instant::now(), &mut std::iter::once(&mut self.child));
        is_in_order && self.child.broken.is_none()
    }
}
