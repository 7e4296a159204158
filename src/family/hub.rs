//! The parent's thread: it listens, and talks to all children.
//!
//! It never waits for a child, and a mistake of a child ends only the connection to it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::family::event_log::log_event;
use crate::family::hub_state::HubState;
use crate::family::jobs::GatherEvent;
use crate::family::member::{CLOSED, Ending, Member, Stage};
use crate::family::orders::GatherOrder;
use crate::family::reports::Report;
use crate::family::rescues::SENT;
use crate::family::sampling_waits::SamplingWait;
use crate::platform::{Interest, ListeningSocket, Mailbox, Sender, wait_for_sockets};
use crate::session::SessionEvent;
use crate::types::TimeStamp;

/// What the process asks of the hub.
#[derive(Debug)]
pub(super) enum HubCommand {
    Event(SessionEvent),
    /// Asks each child for a snapshot, under this number. The parent took its own just before `at`.
    Freeze {
        id: u64,
        at: TimeStamp,
    },
    /// Gathers the profiles of the snapshots.
    Gather {
        order: GatherOrder,
        events: Sender<GatherEvent>,
        proportion: Arc<AtomicU32>,
    },
    /// Drops the snapshots with this number.
    Release {
        id: u64,
    },
    /// Asks each child to answer once its sampler has run.
    AwaitSampling(Arc<SamplingWait>),
    /// Destroys the chunks of the children that were complete at this time.
    DestroyChunks(TimeStamp),
    /// Closes all connections, and ends the thread.
    End,
}

/// What threads of the application read of the hub.
#[derive(Debug, Default)]
pub(super) struct HubCounts {
    /// Number of commands that the hub was given.
    given: AtomicU64,
    /// Number of commands whose effects `children` shows.
    handled: AtomicU64,
    /// Upper 32 bits: the number of children that have not answered the newest start. Lower 32 bits: the
    /// number of those that run.
    children: AtomicU64,
}

impl HubCounts {
    /// Counts a command that is about to be given.
    pub(super) fn give(&self) {
        self.given.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how many commands were given.
    pub(super) fn given(&self) -> u64 {
        self.given.load(Ordering::Acquire)
    }

    /// Publishes the numbers of children after so many commands.
    fn publish(&self, handled: u64, starting: u32, running: u32) {
        let children = u64::from(starting) << 32 | u64::from(running);
        self.children.store(children, Ordering::Relaxed);
        self.handled.store(handled, Ordering::Release);
    }

    /// Returns how many children run, if the hub has handled so many commands, and every child has
    /// answered the newest start.
    ///
    /// # Errors
    /// [`Pending`] otherwise.
    pub(super) fn running_after(&self, commands: u64) -> Result<u32, Pending> {
        // Read first, so that the numbers of children are at least as new.
        let handled = self.handled.load(Ordering::Acquire);
        let children = self.children.load(Ordering::Relaxed);
        let (starting, running) = (children >> 32, children as u32);
        match handled < commands || starting > 0 {
            true => Err(Pending { running }),
            false => Ok(running),
        }
    }
}

/// Some children may not have answered yet.
pub(super) struct Pending {
    /// Number of the children that run so far.
    pub(super) running: u32,
}

/// Maximum number of connections. Further ones are closed at once.
const MAX_CONNECTIONS: usize = 320;
/// Time in which a process that has connected must say hello.
const MAX_UNTIL_HELLO: Duration = Duration::from_secs(10);
/// Time without new connections after the system has refused one, for example because no descriptor
/// is free.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(1);
/// Size of a read, in bytes, and maximum number of reads before the other children get their turn.
const READ_BYTES: usize = 64 << 10;
const READS: usize = 16;

pub(super) struct Hub {
    listener: ListeningSocket,
    mailbox: Mailbox<HubCommand>,
    counts: Arc<HubCounts>,
    /// Number of handled commands.
    handled: u64,
    members: Vec<Member>,
    shared: HubState,
    buffer: Vec<u8>,
    /// No connection is accepted before.
    accepts_from: Option<Instant>,
}

impl Hub {
    pub(super) fn new(
        listener: ListeningSocket,
        mailbox: Mailbox<HubCommand>,
        counts: Arc<HubCounts>,
        token: String,
    ) -> Self {
        Self {
            listener,
            mailbox,
            counts,
            handled: 0,
            members: Vec::new(),
            shared: HubState::new(token),
            buffer: vec![0; READ_BYTES],
            accepts_from: None,
        }
    }

    /// Runs until a command ends it, or until the application has closed its descriptors.
    pub(super) fn run(mut self) {
        self.serve();
        // `wait_for_children` does not wait for a hub that has ended.
        self.counts.publish(u64::MAX, 0, 0);
    }

    fn serve(&mut self) {
        loop {
            let Ok(ready) = self.wait() else {
                log_event(
                    "child processes cannot join any more: the program closed the connections",
                );
                return;
            };
            let [has_mail, has_connection, ready @ ..] = &ready[..] else {
                return;
            };
            for (at, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
                self.read(at);
            }
            if *has_connection {
                self.accept();
            }
            if *has_mail && !self.handle_mail() {
                return;
            }
            self.tick();
            self.send_and_remove();
            self.count();
        }
    }

    fn wait(&self) -> io::Result<Vec<bool>> {
        let now = Instant::now();
        let strangers = self
            .members
            .iter()
            .filter_map(|member| match member.state.stage {
                Stage::Stranger { until } => Some(until),
                Stage::Child { .. } => None,
            });
        let times = strangers
            .chain(self.shared.next_tick())
            .chain(self.accepts_from);
        let limit = times.min().map(|time| time.saturating_duration_since(now));
        let mut interests = vec![Interest::Bytes(self.mailbox.socket())];
        interests.push(match self.accepts_from {
            None => Interest::Connection(&self.listener),
            // Nothing to learn from it now.
            Some(_) => Interest::Bytes(self.mailbox.socket()),
        });
        for Member { connection, state } in &self.members {
            interests.push(match state.outbox.waiting_bytes() {
                0 => Interest::Bytes(&connection.socket),
                _ => Interest::BytesAndSpace(&connection.socket),
            });
        }
        let mut ready = wait_for_sockets(&interests, limit)?;
        ready[1] &= self.accepts_from.is_none();
        Ok(ready)
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok(_) if self.members.len() >= MAX_CONNECTIONS => {
                    log_event("a connection was refused: there are too many");
                }
                Ok(socket) => {
                    let until = Instant::now() + MAX_UNTIL_HELLO;
                    self.members.push(Member::new(socket, until));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    log_event("a connection was refused: it came from another user");
                }
                Err(_) => {
                    log_event("a connection was refused by the system");
                    self.accepts_from = Some(Instant::now() + PAUSE_AFTER_REFUSAL);
                    return;
                }
            }
        }
    }

    /// Reads what a child has sent.
    fn read(&mut self, at: usize) {
        for _ in 0..READS {
            let member = &mut self.members[at];
            if member.state.broken.is_some() {
                return;
            }
            let received = member.receive(&mut self.buffer);
            // First what has arrived before the end.
            if let Err(ending) = handle_reports(member, &mut self.shared) {
                member.state.broken = Some(ending);
            }
            match received {
                Ok(true) => {}
                Ok(false) => return,
                Err(ending) => {
                    member.state.broken.get_or_insert(ending);
                }
            }
        }
    }

    /// Returns false if the hub is to end.
    fn handle_mail(&mut self) -> bool {
        let Some(commands) = self.mailbox.take() else {
            return false;
        };
        for command in commands {
            let states = &mut self.members.iter_mut().map(|member| &mut member.state);
            match command {
                HubCommand::Event(event) => self.shared.follow(event, states),
                HubCommand::Freeze { id, at } => self.shared.freeze(id, at, states),
                HubCommand::Gather {
                    order,
                    events,
                    proportion,
                } => self.shared.gather(order, events, proportion, states),
                HubCommand::Release { id } => self.shared.release(id, states),
                HubCommand::AwaitSampling(wait) => self.shared.await_sampling(&wait, states),
                HubCommand::DestroyChunks(until) => self.shared.destroy_chunks(until, states),
                HubCommand::End => {
                    self.members.iter_mut().for_each(Member::send);
                    return false;
                }
            }
            self.handled += 1;
        }
        true
    }

    fn tick(&mut self) {
        let now = Instant::now();
        self.accepts_from.take_if(|from| *from <= now);
        for member in &mut self.members {
            if let Stage::Stranger { until } = member.state.stage
                && until <= now
            {
                let late = "a connection has ended: the process did not say hello in time";
                member.state.broken.get_or_insert(late);
            }
        }
        let states = &mut self.members.iter_mut().map(|member| &mut member.state);
        self.shared.tick(now, states);
    }

    /// Sends the pending messages, and removes the connections that have ended.
    fn send_and_remove(&mut self) {
        self.members.iter_mut().for_each(Member::send);
        let is_broken = |member: &mut Member| member.state.broken.is_some();
        let removed: Vec<Member> = self.members.extract_if(.., is_broken).collect();
        for Member { state, .. } in removed {
            if let Some(ending) = state.broken {
                let is_expected = ending == CLOSED;
                let is_read = is_expected && state.reading.is_pending();
                let is_rescued = is_expected && state.takes_part() && state.last_profile.is_none();
                if is_read || is_rescued && state.crash_file.is_some() {
                    self.shared.begin_departure(state);
                    continue;
                }
                match state.is_child() {
                    true if is_expected && state.last_profile.is_some() => {
                        state.log(SENT);
                    }
                    true if is_expected && state.takes_part() => {
                        state.log("a child process has ended without sending its profile");
                    }
                    _ => state.log(ending),
                }
            }
            self.shared.remember(&state);
            self.shared.forget(state.id);
        }
    }

    fn count(&self) {
        let (starting, running) = self.shared.counts(self.members.iter().map(|m| &m.state));
        self.counts.publish(self.handled, starting, running);
    }
}

/// Handles the messages that have arrived whole.
fn handle_reports(member: &mut Member, shared: &mut HubState) -> Result<(), Ending> {
    const MALFORMED: Ending = "a connection has ended: it sent a malformed message";
    let Member { connection, state } = member;
    loop {
        let Some(frame) = connection.decoder.next_frame().map_err(|_| MALFORMED)? else {
            return Ok(());
        };
        let report = Report::decode(frame).map_err(|_| MALFORMED)?;
        shared.handle(state, report)?;
    }
}
