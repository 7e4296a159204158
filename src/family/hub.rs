//! The parent's thread: it listens, and talks to all children.
//!
//! It never waits for a child, and a mistake of a child ends only the connection to it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::family::arrivals::{NOT_SENT, SENT};
use crate::family::hub_state::{HubState, States};
use crate::family::member::{CLOSED, Ending, Member, Stage, log_event};
use crate::family::reports::Report;
use crate::platform::{Interest, ListeningSocket, Mailbox, wait_for_sockets};

/// What the process asks of the hub: a call on the hub's thread.
pub(super) type HubCommand = Box<dyn FnOnce(&mut HubState, States<'_, '_>) + Send>;

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

    /// Returns how many children run, and whether that is all: the hub has handled so many commands,
    /// and every child has answered the newest start.
    pub(super) fn running_after(&self, commands: u64) -> (u32, bool) {
        // Read first, so that the numbers of children are at least as new.
        let handled = self.handled.load(Ordering::Acquire);
        let children = self.children.load(Ordering::Relaxed);
        let (starting, running) = (children >> 32, children as u32);
        (running, handled >= commands && starting == 0)
    }
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

    /// Runs until no thread can give it a command, or until the application has closed its descriptors.
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
        for Member { socket, state, .. } in &self.members {
            interests.push(match state.outbox.waiting_bytes() {
                0 => Interest::Bytes(socket),
                _ => Interest::BytesAndSpace(socket),
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
            self.members.iter_mut().for_each(Member::send);
            return false;
        };
        for command in commands {
            let states = &mut self.members.iter_mut().map(|member| &mut member.state);
            command(&mut self.shared, states);
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
            let is_expected = state.broken == Some(CLOSED);
            let is_read = is_expected && state.reading.is_pending();
            let is_rescued = is_expected && state.takes_part() && state.last_profile.is_none();
            if is_read || is_rescued && state.crash_file.is_some() {
                self.shared.begin_departure(state);
                continue;
            }
            state.log(match state.is_child() && is_expected {
                true if state.last_profile.is_some() => SENT,
                true if state.takes_part() => NOT_SENT,
                _ => state.broken.unwrap_or(CLOSED),
            });
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
    let Member { decoder, state, .. } = member;
    loop {
        let Some(frame) = decoder.next_frame().map_err(|_| MALFORMED)? else {
            return Ok(());
        };
        let report = Report::decode(frame).ok_or(MALFORMED)?;
        shared.handle(state, report)?;
    }
}
