//! What the parent's thread knows of the session and of its children, and what it answers them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use crate::family::followed_session::FollowedSession;
use crate::family::jobs::{ChildSnapshot, Freeze, FrozenChild, GatherEvent, Job, Tick};
use crate::family::ledger::MemoryLedger;
use crate::family::member::{ChildStart, Ended, Ending, MemberState, Rescue, Stage, next_id};
use crate::family::orders::{GatherOrder, Order};
use crate::family::readers::Readers;
use crate::family::reports::Report;
use crate::family::sampling_waits::{SamplingWait, SamplingWaits};
use crate::platform::Sender;
use crate::session::max_exit_profile_bytes;
use crate::types::TimeStamp;

/// Maximum number of profiles of this process whose children's snapshots are known at the same
/// time.
const MAX_FREEZES: usize = 64;

/// Time between two looks at the profiles that are being read.
const READING_LOOK: Duration = Duration::from_millis(20);

pub(super) const OUT_OF_ORDER: Ending = "a connection has ended: it sent a message out of order";

/// The children's states, one after the other.
pub(super) type States<'a, 'b> = &'a mut dyn Iterator<Item = &'b mut MemberState>;

/// The hub without its sockets.
#[derive(Debug)]
pub(super) struct HubState {
    pub(super) token: String,
    pub(super) session: Option<FollowedSession>,
    pub(super) freezes: Vec<Freeze>,
    pub(super) jobs: Vec<Job>,
    pub(super) ledger: MemoryLedger,
    /// When to compare the memory of all processes with the limit, if a child runs.
    pub(super) balances_at: Option<Instant>,
    /// Whether the ledger has changed since the last comparison.
    pub(super) has_changed_chunks: bool,
    /// Whether this process reports the chunks of its children to its own parent.
    pub(super) folds_chunks: bool,
    pub(super) readers: Readers,
    pub(super) sampling_waits: SamplingWaits,
    /// Children that have ended, whose last profiles are being read or rescued, and when to look at
    /// them.
    pub(super) rescues: Vec<Rescue>,
    /// Children that have ended, the newest first. A profile that was taken before may want their
    /// last ones.
    pub(super) ended: VecDeque<Ended>,
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
            has_changed_chunks: false,
            folds_chunks: false,
            readers: Readers::default(),
            sampling_waits: SamplingWaits::default(),
            rescues: Vec::new(),
            ended: VecDeque::new(),
            rescues_at: None,
        }
    }

    /// Asks each child that takes part for a snapshot. The parent took its own at `at`, with the
    /// profiles that it had kept by then.
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
        self.has_changed_chunks = true;
        self.sampling_waits.forget(member);
        self.remove_finished_jobs();
    }

    /// Asks each child that records the session to answer once its sampler has run.
    pub(super) fn await_sampling(&mut self, wait: &Arc<SamplingWait>, states: States<'_, '_>) {
        let running = states.filter(|state| state.start == ChildStart::Running);
        let orders = running.map(|state| (state.id, state.order(Order::WaitForSampling)));
        self.sampling_waits.begin(wait, orders.collect());
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
            if self.look_at_reading(state) {
                self.rescues_at.get_or_insert(now + READING_LOOK);
            }
            let member = state.id;
            for (_, id, order) in orders.iter().filter(|(of, ..)| *of == member) {
                state.order_with(*id, order.clone());
            }
        }
        // The parent of this process knows only what this process reports.
        let balances = self.session.is_some() && (has_running || self.folds_chunks);
        match (balances, self.balances_at) {
            (false, _) => self.balances_at = None,
            (true, None) => self.balances_at = Some(now),
            (true, Some(_)) => {}
        }
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
                check(state.has_order(id) && self.is_plausible(&chunks))?;
                self.ledger.note(state.id, &chunks);
                self.has_changed_chunks = true;
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
        self.sampling_waits.note(state.id, id, failure.is_none());
        if state.start == ChildStart::Asked(id) {
            if failure.is_none() {
                state.start = ChildStart::Running;
                state.order(Order::AwaitChunkUpdate);
            } else {
                state.start = ChildStart::Failed;
                let reason = failure.as_deref().unwrap_or_default();
                state.log(&format!(
                    "a child process could not start, because {reason}"
                ));
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
