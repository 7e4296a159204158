//! What the parent's thread knows of the session and of its children, how the children follow the
//! session, and what the parent answers them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::family::jobs::{ChildSnapshot, Freeze, FrozenChild, GatherEvent, Job, Tick};
use crate::family::ledger::FamilyMemory;
use crate::family::member::{
    Arriving, ChildStart, Departed, Ending, MemberState, Readers, Stage, next_id,
};
use crate::family::messages::{VERSION, is_same_token};
use crate::family::orders::{ChildSession, GatherOrder, Order};
use crate::family::reports::{Hello, Report};
use crate::platform::Sender;
use crate::session::{SessionEvent, max_exit_profile_bytes, running_session};
use crate::state::{PauseKind, SessionSettings};
use crate::types::{ProcessId, ThreadFilter, TimeStamp};

/// Maximum number of profiles of this process whose children's snapshots are known at the same
/// time.
const MAX_FREEZES: usize = 64;

/// Time between two looks at the profiles that are being read or rescued.
pub(super) const READING_LOOK: Duration = Duration::from_millis(20);

pub(super) const OUT_OF_ORDER: Ending = "a connection has ended: it sent a message out of order";

/// The children's states, one after the other.
pub(super) type States<'a, 'b> = &'a mut dyn Iterator<Item = &'b mut MemberState>;

/// The session as the children are to follow it.
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

/// A child that has ended after it sent its profile.
struct Ended {
    kept_at: TimeStamp,
    /// Size of the profile, in bytes.
    bytes: u64,
    child: FrozenChild,
}

/// The hub without its sockets.
pub(super) struct HubState {
    token: String,
    session: Option<FollowedSession>,
    freezes: Vec<Freeze>,
    pub(super) jobs: Vec<Job>,
    pub(super) memory: FamilyMemory,
    pub(super) readers: Readers,
    pub(super) rescuers: Readers,
    /// Children that have ended, whose last profiles are being read or rescued, and when to look at
    /// them.
    pub(super) departed: Vec<Departed>,
    /// Children that have ended, the newest first. A profile that was taken before may want their
    /// last ones.
    ended: VecDeque<Ended>,
    pub(super) readings_at: Option<Instant>,
}

impl HubState {
    pub(super) fn new(token: String) -> Self {
        Self {
            token,
            session: None,
            freezes: Vec::new(),
            jobs: Vec::new(),
            memory: FamilyMemory::default(),
            readers: Readers::new(c"ProfilerReader"),
            rescuers: Readers::new(c"ProfilerRescue"),
            departed: Vec::new(),
            ended: VecDeque::new(),
            readings_at: None,
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
                        // A child that has just joined keeps its recording.
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
                            state.end_session();
                        }
                    }
                }
                self.ended.clear();
                self.session = Some(session);
                self.memory.reset();
                self.departed.clear();
            }
            SessionEvent::Stopped => {
                self.session = None;
                self.memory.reset();
                for state in states {
                    let is_new = std::mem::take(&mut state.waits_for_session);
                    if state.takes_part() || is_new {
                        state.end_session();
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

    /// Accepts a child, and lets it follow the session.
    pub(super) fn welcome(&mut self, state: &mut MemberState, hello: Hello) -> Result<(), Ending> {
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
        state.log("a child process has joined");
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
            _ => state.end_session(),
        }
        Ok(())
    }

    /// Asks each child that takes part for a snapshot. The parent took its own at `at`, with the
    /// profiles that it had kept by then.
    pub(super) fn freeze(&mut self, id: u64, at: TimeStamp, states: States<'_, '_>) {
        let mut children = Vec::new();
        for state in states.filter(|state| state.takes_part()) {
            let snapshot = match &state.last_profile {
                Some((kept_at, _)) if *kept_at <= at => continue,
                Some((_, profile)) => ChildSnapshot::Exited(profile.clone()),
                None => ChildSnapshot::Asked,
            };
            children.extend(FrozenChild::of(state, snapshot));
            state.order_with(id, Order::Freeze);
        }
        let later = self.ended.iter().filter(|ended| ended.kept_at > at);
        children.extend(later.map(|ended| ended.child.clone()));
        let snapshot = ChildSnapshot::Taken {
            started_at: at,
            taken_at: at,
        };
        let departed = self.departed.iter();
        let departed = departed.filter_map(|one| FrozenChild::of(&one.state, snapshot.clone()));
        children.extend(departed);
        if self.freezes.len() >= MAX_FREEZES {
            self.freezes.remove(0);
        }
        self.freezes.push(Freeze { id, children });
    }

    /// Remembers the last profile of a child whose connection has ended.
    pub(super) fn remember(&mut self, state: &MemberState) {
        /// Maximum number of children that are remembered: those that end while a profile is taken.
        const MAX_ENDED: usize = 64;
        let Some((kept_at, profile)) = &state.last_profile else {
            return;
        };
        let Some(child) = FrozenChild::of(state, ChildSnapshot::Exited(profile.clone())) else {
            return;
        };
        self.ended.truncate(MAX_ENDED - 1);
        // Their files are in addition to what the session keeps.
        let max_bytes = max_exit_profile_bytes().unwrap_or(0);
        let bytes = |ended: &VecDeque<Ended>| {
            let sizes = ended.iter().map(|ended| ended.bytes);
            sizes.fold(profile.bytes(), u64::saturating_add)
        };
        while bytes(&self.ended) > max_bytes && self.ended.pop_back().is_some() {}
        self.ended.push_front(Ended {
            kept_at: *kept_at,
            bytes: profile.bytes(),
            child,
        });
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
            state.texts.push((id, Arriving::None));
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
        self.memory.remove(member);
        self.remove_finished_jobs();
    }

    /// Asks each child that records the session to answer once its sampler has run. Counts those that
    /// have.
    pub(super) fn await_sampling(&mut self, sampled: Arc<AtomicUsize>, states: States<'_, '_>) {
        for state in states.filter(|state| state.start == ChildStart::Running) {
            let order = state.order(Order::WaitForSampling);
            state.awaited_samplings.push((order, Arc::clone(&sampled)));
        }
    }

    /// Destroys the chunks of all children that were complete at this time: the parent of this
    /// process needs the memory.
    pub(super) fn destroy_chunks(&mut self, until: TimeStamp, states: States<'_, '_>) {
        self.memory.destroy(until);
        for state in states.filter(|state| state.takes_part()) {
            state.order(Order::DestroyChunks(until));
        }
    }

    /// Returns the capacity of the session for all processes, in bytes.
    fn capacity_bytes(&self) -> Option<u64> {
        let session = self.session.as_ref();
        session.map(|session| session.settings.capacity_bytes)
    }

    pub(super) fn remove_finished_jobs(&mut self) {
        self.jobs.retain(|job| !job.is_over());
    }

    /// Returns when [`Self::tick`] has work to do.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let jobs = self.jobs.iter().filter_map(Job::next_tick);
        jobs.chain(self.memory.balances_at)
            .chain(self.readings_at)
            .min()
    }

    /// Asks for progress, gives up children that make none, and limits the memory of all processes.
    pub(super) fn tick(&mut self, now: Instant, states: States<'_, '_>) {
        self.look_at_departed(now);
        let max_bytes = self.capacity_bytes();
        let excess = max_bytes.map_or_else(Vec::new, |bytes| self.memory.balance(bytes, now));
        let destroys = |(member, until)| (member, next_id(), Order::DestroyChunks(until));
        let mut orders: Vec<_> = excess.into_iter().map(destroys).collect();
        for job in &mut self.jobs {
            orders.extend(job.tick(now).into_iter().map(|tick| match tick {
                Tick::Ask(member) => (member, job.id, Order::AskProgress),
                Tick::GiveUp(member) => (member, job.id, Order::Cancel),
            }));
        }
        let mut has_running = false;
        for state in states {
            has_running |= state.start == ChildStart::Running;
            if self.look_at_reading(state, None) {
                self.readings_at.get_or_insert(now + READING_LOOK);
            }
            let member = state.id;
            for (_, id, order) in orders.iter().filter(|(of, ..)| *of == member) {
                state.order_with(*id, order.clone());
            }
        }
        self.memory.plan(self.session.is_some(), has_running, now);
        self.remove_finished_jobs();
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
            Report::Named { name: renamed } => {
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
                let snapshot = ChildSnapshot::Taken {
                    started_at,
                    taken_at,
                };
                self.set_snapshot(state.id, Some(id), &snapshot);
            }
            Report::Progress { id, done, location } => {
                check(state.has_order(id))?;
                for job in self.jobs.iter_mut().filter(|job| job.id == id) {
                    job.note_progress(state.id, done, &location);
                }
            }
            Report::Text { id, part } => self.receive_text(state, id, part)?,
            Report::CrashFile(file) => {
                if state.takes_part() {
                    // By the id that the kernel tells: that in the message is the child's own idea.
                    let peer = state.peer.and_then(|peer| i32::try_from(peer.process).ok());
                    state.crash_file = peer.and_then(|peer| file.open_of(peer).ok());
                    if state.crash_file.is_none() {
                        state.log("the memory of a child process cannot be read if it is killed");
                    }
                }
            }
            Report::Chunks { id, chunks } => {
                let max_bytes = self.capacity_bytes();
                let is_plausible =
                    max_bytes.is_none_or(|bytes| self.memory.is_plausible(&chunks, bytes));
                check(state.has_order(id) && is_plausible)?;
                self.memory.note(state.id, &chunks);
                state.order(Order::AwaitChunkUpdate);
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
        let mut awaited = state.awaited_samplings.iter();
        if let Some(at) = awaited.position(|(order, _)| *order == id) {
            let (_, sampled) = state.awaited_samplings.swap_remove(at);
            sampled.fetch_add(failure.is_none().into(), Ordering::Relaxed);
        }
        let Some(reason) = failure else {
            if state.start == ChildStart::Asked(id) {
                state.start = ChildStart::Running;
                state.order(Order::AwaitChunkUpdate);
            }
            return Ok(());
        };
        if state.start == ChildStart::Asked(id) {
            state.start = ChildStart::Failed;
            state.log(&format!(
                "a child process could not start, because {reason}"
            ));
        }
        self.set_snapshot(state.id, Some(id), &ChildSnapshot::Missing(reason));
        Ok(())
    }

    /// Notes what became of a child's snapshots, or of the one with this number.
    pub(super) fn set_snapshot(
        &mut self,
        member: u64,
        only: Option<u64>,
        snapshot: &ChildSnapshot,
    ) {
        let is_meant = |frozen| only.is_none_or(|only| only == frozen);
        let freezes = self.freezes.iter_mut();
        let freezes = freezes.filter(|freeze| is_meant(freeze.id));
        for child in freezes.flat_map(|freeze| &mut freeze.children) {
            if child.member == member {
                child.snapshot = snapshot.clone();
            }
        }
        for job in self.jobs.iter_mut().filter(|job| is_meant(job.frozen)) {
            job.set_snapshot(member, snapshot);
        }
        self.remove_finished_jobs();
    }
}

pub(super) fn check(is_in_order: bool) -> Result<(), Ending> {
    is_in_order.then_some(()).ok_or(OUT_OF_ORDER)
}

/// Returns whether a session with children runs. If the hub does not know it, an event is on its
/// way.
fn is_session_about_to_be_known() -> bool {
    running_session().is_some_and(|(_, session)| session.settings.has_children)
}

/// Gives an order to each child that takes part in the session.
fn order_all(states: States<'_, '_>, order: &Order) {
    for state in states.filter(|state| state.takes_part()) {
        state.order(order.clone());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn wait_is_over_once_each_child_has_answered_or_ended() {
        let mut hub = HubState::new(String::new());
        let mut children = Vec::new();
        for id in 1..=3 {
            let mut child = MemberState::new(id, None, Instant::now());
            child.stage = Stage::Child {
                process: id as i32,
                name: String::new(),
            };
            child.start = ChildStart::Running;
            children.push(child);
        }
        let mut wait = Arc::new(AtomicUsize::new(0));
        let is_over = |wait: &mut Arc<AtomicUsize>| Arc::get_mut(wait).is_some();
        let asked = Arc::clone(&wait);
        assert!(!is_over(&mut wait), "the hub has not asked");
        hub.await_sampling(asked, &mut children.iter_mut());
        let order = |child: &MemberState| child.awaited_samplings[0].0;
        let mut answer = |child: &mut MemberState, id, failure| {
            hub.handle(child, Report::Done { id, failure })
                .expect("in order");
        };
        let id = order(&children[0]);
        answer(&mut children[0], id, None);
        let other = id - 1;
        answer(&mut children[1], other, None);
        assert!(!is_over(&mut wait));
        let id = order(&children[1]);
        answer(
            &mut children[1],
            id,
            Some("its sampler has not run".to_owned()),
        );
        assert!(!is_over(&mut wait));
        children.pop();
        assert!(is_over(&mut wait));
        assert_eq!(wait.load(Ordering::Relaxed), 1);
        children.clear();
        hub.await_sampling(Arc::clone(&wait), &mut children.iter_mut());
        assert!(is_over(&mut wait), "there is no child");
    }
}
