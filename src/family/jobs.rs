//! The profiles of running children that the parent gathers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::family::member::{MemberState, Stage, describe_process};
use crate::family::messages::WHOLE;
use crate::family::orders::GatherOrder;
use crate::platform::{FileMapping, Sender, monotonic_now};
use crate::state::ChildProfile;
use crate::types::TimeStamp;

/// The snapshot of one child, as the parent knows it.
#[derive(Clone, Debug)]
pub(super) enum ChildSnapshot {
    Asked,
    Taken {
        started_at: TimeStamp,
        taken_at: TimeStamp,
    },
    /// The child has no snapshot, for this reason.
    Missing(String),
    /// The child has ended, and has sent this profile.
    Exited(ChildProfile),
    /// The child has ended without sending its profile, for example by a kill, and this one was
    /// rescued.
    Rescued(ChildProfile),
}

/// A child of which a snapshot was asked.
#[derive(Clone, Debug)]
pub(super) struct FrozenChild {
    /// Number of the connection.
    pub(super) member: u64,
    process: i32,
    name: String,
    pub(super) snapshot: ChildSnapshot,
}

impl FrozenChild {
    /// Returns `None` for a process that has not said hello.
    pub(super) fn of(state: &MemberState, snapshot: ChildSnapshot) -> Option<Self> {
        let Stage::Child { process, name } = &state.stage else {
            return None;
        };
        Some(Self {
            member: state.id,
            process: *process,
            name: name.clone(),
            snapshot,
        })
    }

    fn is_asked(&self) -> bool {
        matches!(self.snapshot, ChildSnapshot::Asked)
    }

    /// Names the process for the log.
    fn describe(&self) -> String {
        describe_process(self.process, &self.name)
    }
}

/// The snapshots of all children for one profile of the parent.
#[derive(Debug)]
pub(super) struct Freeze {
    pub(super) id: u64,
    pub(super) children: Vec<FrozenChild>,
}

/// What a thread that gathers learns.
#[derive(Debug)]
pub(super) enum GatherEvent {
    /// All children have told when their sessions started and when their snapshots were taken, as
    /// far as they will.
    Times(Option<(TimeStamp, TimeStamp)>),
    Profile(ChildProfile),
    /// The profile has arrived, and was not read yet.
    Text(String, FileMapping),
    Happened(TimeStamp, String),
}

/// A child whose profile a job wants.
#[derive(Debug)]
struct JobChild {
    frozen: FrozenChild,
    is_pending: bool,
    /// How far the child is, in millionths, and what it works on.
    done: u32,
    location: String,
    has_changed: bool,
    has_been_asked: bool,
    tick_at: Instant,
}

/// Where the profile of a child that has ended comes from.
const SENT: &str = "has ended, and sent its profile before";
const RESCUED: &str = "has ended without sending its profile, which was rescued";

/// One gathering.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) frozen: u64,
    timeout: Duration,
    children: Vec<JobChild>,
    events: Sender<GatherEvent>,
    proportion: Arc<AtomicU32>,
    has_times: bool,
    /// Whether the thread that gathers still waits.
    is_wanted: bool,
}

/// What a job does next with a child that has been silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tick {
    /// Asks the connection how far its child is.
    Ask(u64),
    /// Gives the child up.
    GiveUp(u64),
}

impl Job {
    pub(super) fn new(
        id: u64,
        order: &GatherOrder,
        children: Vec<FrozenChild>,
        events: Sender<GatherEvent>,
        proportion: Arc<AtomicU32>,
        now: Instant,
    ) -> Self {
        let timeout = order.request.child_timeout.max(Duration::from_millis(1));
        let children = children.into_iter().map(|frozen| JobChild {
            frozen,
            is_pending: true,
            done: 0,
            location: String::new(),
            has_changed: false,
            has_been_asked: false,
            tick_at: now + timeout,
        });
        let mut job = Self {
            id,
            frozen: order.frozen,
            timeout,
            children: children.collect(),
            events,
            proportion,
            has_times: false,
            is_wanted: true,
        };
        // What is already known of children that have ended or failed.
        for at in 0..job.children.len() {
            job.settle(at);
        }
        job.settle_times();
        job
    }

    /// Returns the connections of the children whose profiles are pending.
    pub(super) fn pending(&self) -> Vec<u64> {
        let pending = self.children.iter().filter(|child| child.is_pending);
        pending.map(|child| child.frozen.member).collect()
    }

    /// Returns whether the job is done, or no thread waits for it.
    pub(super) fn is_over(&self) -> bool {
        !self.is_wanted || !self.children.iter().any(|child| child.is_pending)
    }

    fn send(&mut self, event: GatherEvent) {
        self.is_wanted &= self.events.send(event);
    }

    fn place_of(&self, member: u64) -> Option<usize> {
        let is_it = |child: &JobChild| child.frozen.member == member && child.is_pending;
        self.children.iter().position(is_it)
    }

    /// Notes what became of a child's snapshot.
    pub(super) fn set_snapshot(&mut self, member: u64, snapshot: &ChildSnapshot) {
        let Some(at) = self.place_of(member) else {
            return;
        };
        self.children[at].frozen.snapshot = snapshot.clone();
        self.children[at].has_changed = true;
        self.settle(at);
        self.settle_times();
    }

    /// Delivers the profile of a child that has ended, or gives up one that has none.
    fn settle(&mut self, at: usize) {
        match self.children[at].frozen.snapshot.clone() {
            ChildSnapshot::Exited(profile) => {
                self.end(at, SENT, Some(GatherEvent::Profile(profile)));
            }
            ChildSnapshot::Rescued(profile) => {
                self.end(at, RESCUED, Some(GatherEvent::Profile(profile)));
            }
            ChildSnapshot::Missing(reason) => self.give_up(at, &reason),
            ChildSnapshot::Asked | ChildSnapshot::Taken { .. } => {}
        }
    }

    /// Tells the times once no child that is pending has still to tell its own.
    fn settle_times(&mut self) {
        let waits = |child: &JobChild| child.is_pending && child.frozen.is_asked();
        if self.has_times || self.children.iter().any(waits) {
            return;
        }
        self.has_times = true;
        let known = self.children.iter().filter_map(|child| {
            let ChildSnapshot::Taken {
                started_at,
                taken_at,
            } = child.frozen.snapshot
            else {
                return None;
            };
            Some((started_at, taken_at))
        });
        let times = known.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
        self.send(GatherEvent::Times(times));
    }

    /// Notes that a part of the profile has arrived.
    pub(super) fn note_part(&mut self, member: u64) {
        if let Some(at) = self.place_of(member) {
            self.children[at].has_changed = true;
        }
    }

    /// Notes how far the child is.
    pub(super) fn note_progress(&mut self, member: u64, done: u32, location: &str) {
        if let Some(at) = self.place_of(member) {
            let child = &mut self.children[at];
            child.has_changed |= child.done != done || child.location != location;
            (child.done, child.location) = (done, location.to_owned());
            self.note_proportion();
        }
    }

    fn note_proportion(&self) {
        let of_child = |child: &JobChild| match child.is_pending {
            true => u64::from(child.done),
            false => u64::from(WHOLE),
        };
        let sum: u64 = self.children.iter().map(of_child).sum();
        let mean = sum / (self.children.len() as u64).max(1);
        self.proportion.store(mean as u32, Ordering::Relaxed);
    }

    /// Passes on the text of a profile that has arrived.
    pub(super) fn deliver_text(&mut self, member: u64, text: FileMapping) {
        if let Some(at) = self.place_of(member) {
            let how = format!("received a profile of {} bytes", text.len());
            let of = self.children[at].frozen.describe();
            self.end(at, &how, Some(GatherEvent::Text(of, text)));
            self.settle_times();
        }
    }

    fn give_up(&mut self, at: usize, reason: &str) {
        self.end(at, &format!("left out, because {reason}"), None);
    }

    /// Ends the waiting for a child, with its profile if there is one.
    fn end(&mut self, at: usize, how: &str, profile: Option<GatherEvent>) {
        let child = &mut self.children[at];
        child.is_pending = false;
        let event = format!("{}: {how}", child.frozen.describe());
        self.send(GatherEvent::Happened(monotonic_now(), event));
        if let Some(profile) = profile {
            self.send(profile);
        }
        self.note_proportion();
    }

    /// Leaves out the child of this connection.
    pub(super) fn leave_out(&mut self, member: u64, reason: &str) {
        if let Some(at) = self.place_of(member) {
            self.give_up(at, reason);
            self.settle_times();
        }
    }

    /// Returns when the job has to look at its children again.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let pending = self.children.iter().filter(|child| child.is_pending);
        pending.map(|child| child.tick_at).min()
    }

    /// Looks at the children that have been silent for the time-out. The first time, that counts as
    /// progress, as in Gecko.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Tick> {
        let mut ticks = Vec::new();
        for at in 0..self.children.len() {
            let timeout = self.timeout;
            let child = &mut self.children[at];
            let member = child.frozen.member;
            if !child.is_pending || now < child.tick_at {
                continue;
            }
            if child.has_changed || !child.has_been_asked {
                child.has_changed = false;
                child.has_been_asked = true;
                child.tick_at = now + timeout;
                ticks.push(Tick::Ask(member));
                continue;
            }
            let reason = match child.location.is_empty() {
                true => format!("it has not answered for {timeout:?}"),
                false => format!(
                    "it has made no progress for {timeout:?} at {} %, {}",
                    child.done / (WHOLE / 100),
                    child.location
                ),
            };
            self.give_up(at, &reason);
            ticks.push(Tick::GiveUp(member));
        }
        self.settle_times();
        ticks
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::platform::{ProcessStart, Receiver, channel};
    use crate::stream::GatherRequest;
    use crate::types::Symbolicate;

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn child(member: u64, snapshot: ChildSnapshot) -> FrozenChild {
        FrozenChild {
            member,
            process: 100 + member as i32,
            name: "worker".to_owned(),
            snapshot,
        }
    }

    fn job(children: Vec<FrozenChild>, now: Instant) -> (Job, Receiver<GatherEvent>) {
        let (events, receiver) = channel();
        let order = GatherOrder {
            frozen: 1,
            request: GatherRequest {
                since: None,
                max_rows: 1,
                symbolicate: Symbolicate::No,
                child_timeout: TIMEOUT,
                merges_alike: true,
                clock: ProcessStart {
                    monotonic: TimeStamp(0),
                    epoch_ms: 0.0,
                    is_known: true,
                },
            },
        };
        let job = Job::new(2, &order, children, events, Arc::default(), now);
        (job, receiver)
    }

    fn taken(started_at: u64, taken_at: u64) -> ChildSnapshot {
        ChildSnapshot::Taken {
            started_at: TimeStamp(started_at),
            taken_at: TimeStamp(taken_at),
        }
    }

    #[test]
    fn child_that_makes_progress_is_kept_and_a_silent_one_is_left_out() {
        let begin = Instant::now();
        let (mut job, events) = job(vec![child(1, taken(1, 2)), child(2, taken(3, 4))], begin);
        assert!(job.tick(begin).is_empty());
        let at = |number: u32| begin + TIMEOUT * number;
        // The first question counts as progress.
        assert_eq!(job.tick(at(1)), [Tick::Ask(1), Tick::Ask(2)]);
        job.note_progress(2, 10, "meta");
        assert_eq!(job.tick(at(2)), [Tick::GiveUp(1), Tick::Ask(2)]);
        job.note_progress(2, 20, "meta");
        assert_eq!(job.tick(at(3)), [Tick::Ask(2)]);
        // The answer is the same.
        job.note_progress(2, 20, "meta");
        assert!(!job.is_over());
        assert_eq!(job.tick(at(4)), [Tick::GiveUp(2)]);
        assert!(job.is_over());
        drop(job);
        let mut texts = Vec::new();
        while let Some(event) = events.receive() {
            match event {
                GatherEvent::Times(times) => {
                    assert_eq!(times, Some((TimeStamp(1), TimeStamp(4))));
                }
                GatherEvent::Happened(_, text) => texts.push(text),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            texts,
            [
                "process 101 (worker): left out, because it has not answered for 1s",
                "process 102 (worker): left out, because it has made no progress for 1s at 0 %, meta"
            ]
        );
    }

    #[test]
    fn times_are_told_once_every_child_has_answered_or_failed() {
        let now = Instant::now();
        let (mut job, events) = job(
            vec![
                child(1, ChildSnapshot::Asked),
                child(2, ChildSnapshot::Asked),
            ],
            now,
        );
        job.set_snapshot(1, &taken(5, 6));
        assert!(events.receive_within(Duration::ZERO).is_none());
        job.set_snapshot(2, &ChildSnapshot::Missing("it runs no session".to_owned()));
        let mut received = Vec::new();
        while let Some(event) = events.receive_within(Duration::ZERO) {
            received.push(event);
        }
        let times = Some((TimeStamp(5), TimeStamp(6)));
        assert!(
            matches!(&received[..], [GatherEvent::Happened(..), GatherEvent::Times(told)] if *told == times)
        );
        assert_eq!(job.pending(), [1]);
        job.leave_out(1, "it has ended");
        assert!(job.is_over());
    }
}
