//! A connection of the parent to a child process.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::buffer::AreaOwner;
use crate::family::event_log::{describe_process, log_event};
use crate::family::frames::FrameDecoder;
use crate::family::orders::{NumberedOrder, Order};
use crate::family::outbox::Outbox;
use crate::family::readers::Reading;
use crate::family::reports::report_limits;
use crate::platform::{Receiver, SharedFile, Socket, SpoolFile, process_start_ticks};
use crate::state::ChildProfile;
use crate::types::{ProcessId, TimeStamp};
use crate::util::SharedProgress;

/// Why a connection ends, for the session's log.
pub(super) type Ending = &'static str;

/// The other end has closed the connection.
pub(super) const CLOSED: Ending = "a child process has left";
const SLOW: Ending = "a connection has ended: the child process does not read its messages";

/// Returns a number that no other order of this process has.
pub(super) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// How well the process at the other end is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It has not said hello, and must do so until this time.
    Stranger {
        until: Instant,
    },
    Child {
        process: i32,
        name: String,
    },
}

/// The start of a session in the child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChildStart {
    /// The child does not take part in the session.
    NotAsked,
    /// The child has not answered the order with this number.
    Asked(u64),
    Failed,
    Running,
}

/// A profile that arrives in parts.
#[derive(Debug)]
pub(super) enum Arriving {
    None,
    /// A profile that no thread waits for any more, or that is too long. Its parts are dropped.
    Dropped,
    Spooled(SpoolFile),
}

/// The state of the child, as far as the parent knows it, and the bytes for it.
#[derive(Debug)]
pub(super) struct MemberState {
    /// Number of the connection.
    pub(super) id: u64,
    pub(super) stage: Stage,
    /// The process as the kernel knows it, if it is visible from here: it may be in another
    /// namespace, where its id is another one.
    pub(super) peer: Option<AreaOwner>,
    pub(super) start: ChildStart,
    /// Whether the child has joined before the hub has handled the start of the session, so that it
    /// waits for its first order.
    pub(super) waits_for_session: bool,
    pub(super) outbox: Outbox,
    /// Set once the connection cannot be used any more.
    pub(super) broken: Option<Ending>,
    last_order: u64,
    /// The orders to gather that the child has not begun to answer.
    pub(super) unanswered_jobs: Vec<u64>,
    /// The orders to gather whose answers arrive, and what has arrived.
    pub(super) profiles: Vec<(u64, Arriving)>,
    pub(super) exit: Arriving,
    /// The last profile after it has arrived, until it was read.
    pub(super) reading: Reading,
    /// The child's last profile, and when the session got it.
    pub(super) last_profile: Option<(TimeStamp, ChildProfile)>,
    /// The file from which the profile is rescued if the child is killed.
    pub(super) crash_file: Option<SharedFile>,
}

/// A child that has ended after it sent its profile.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) process: i32,
    pub(super) name: String,
    pub(super) id: u64,
    pub(super) kept_at: TimeStamp,
    pub(super) profile: ChildProfile,
}

/// A child that has ended, whose last profile a separate thread still reads, or rescues because the
/// child has not sent it.
#[derive(Debug)]
pub(super) struct Rescue {
    pub(super) state: MemberState,
    /// The file to rescue it from, until a thread has begun to read it.
    pub(super) file: Option<SharedFile>,
    pub(super) progress: SharedProgress,
    pub(super) rescued: Option<Receiver<Option<ChildProfile>>>,
}

impl MemberState {
    pub(super) fn new(id: u64, peer: Option<AreaOwner>, until: Instant) -> Self {
        Self {
            id,
            stage: Stage::Stranger { until },
            peer,
            start: ChildStart::NotAsked,
            waits_for_session: false,
            outbox: Outbox::default(),
            broken: None,
            last_order: 0,
            unanswered_jobs: Vec::new(),
            profiles: Vec::new(),
            exit: Arriving::None,
            reading: Reading::None,
            last_profile: None,
            crash_file: None,
        }
    }

    /// Adds an event about this process to the log of the running session.
    pub(super) fn log(&self, event: &str) {
        match &self.stage {
            Stage::Stranger { .. } => log_event(event.to_owned()),
            Stage::Child { process, name } => {
                log_event(format!("{event}: {}", describe_process(*process, name)));
            }
        }
    }

    pub(super) fn is_child(&self) -> bool {
        matches!(self.stage, Stage::Child { .. })
    }

    /// Returns whether the child takes part in the session.
    pub(super) fn takes_part(&self) -> bool {
        self.start != ChildStart::NotAsked
    }

    /// Returns the order to a child that is not to record the parent's session any more. A session
    /// that the child has started itself is its own, unless the parent has started one in its
    /// place.
    pub(super) fn order_to_end(&self) -> Order {
        match self.takes_part() {
            true => Order::Stop,
            false => Order::StopInherited,
        }
    }

    /// Gives the child an order with a number of its own. Returns the number.
    pub(super) fn order(&mut self, order: Order) -> u64 {
        let id = next_id();
        self.order_with(id, order);
        id
    }

    /// Gives the child an order with this number.
    pub(super) fn order_with(&mut self, id: u64, order: Order) {
        if self.broken.is_some() {
            return;
        }
        self.last_order = self.last_order.max(id);
        match (NumberedOrder { id, order }).encode() {
            None => {
                self.broken = Some("a connection has ended: the session's filters are too long")
            }
            Some(frame) if self.outbox.push(&frame).is_err() => self.broken = Some(SLOW),
            Some(_) => {}
        }
    }

    /// Removes the answer to an order to gather.
    pub(super) fn take_profile(&mut self, id: u64) -> Option<Arriving> {
        let place = self.profiles.iter().position(|(known, _)| *known == id)?;
        Some(self.profiles.swap_remove(place).1)
    }

    /// Returns whether the child may answer an order with this number.
    pub(super) fn has_order(&self, id: u64) -> bool {
        id <= self.last_order
    }
}

/// The socket, and the part of a message that has arrived.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) decoder: FrameDecoder,
}

/// A connection to a process that has connected.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) connection: Connection,
    pub(super) state: MemberState,
}

impl Member {
    pub(super) fn new(socket: Socket, until: Instant) -> Self {
        let peer = socket.peer_process().map(|process| AreaOwner {
            process: process.unsigned_abs().into(),
            ticks: process_start_ticks(ProcessId::from_number(process)).unwrap_or(0),
        });
        let state = MemberState::new(next_id(), peer, until);
        Self {
            connection: Connection {
                socket,
                decoder: FrameDecoder::new(report_limits),
            },
            state,
        }
    }

    /// Sends what the child takes now.
    pub(super) fn send(&mut self) {
        let Self { connection, state } = self;
        let sent = state.outbox.send_by(|bytes| connection.socket.send(bytes));
        if sent.is_err() && state.broken.is_none() {
            state.broken = Some(CLOSED);
        }
    }

    /// Receives bytes. Returns false if none have arrived.
    ///
    /// # Errors
    /// [`CLOSED`]
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<bool, Ending> {
        match self.connection.socket.receive(buffer) {
            Ok(0) => Err(CLOSED),
            Ok(count) => {
                self.connection.decoder.push(&buffer[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(_) => Err(CLOSED),
        }
    }
}
