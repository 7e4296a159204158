//! A connection of the parent to a child process: what the parent knows of the child, what it has to
//! send to it, and what arrives.

use std::borrow::Cow;
use std::ffi::CStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::buffer::AreaOwner;
use crate::family::messages::FrameDecoder;
use crate::family::orders::{NumberedOrder, Order};
use crate::family::reports::{LAST_PROFILE, report_limits};
use crate::platform::{
    Receiver, SharedFile, Socket, SpoolFile, channel, process_start_ticks, spawn_profiler_thread,
    with_signals_blocked,
};
use crate::session::running_session;
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
pub(super) enum Arriving {
    /// The child has not begun to send it.
    None,
    /// A profile that no thread waits for any more, or that is too long. Its parts are dropped.
    Dropped,
    Spooled(SpoolFile),
}

/// The state of the child, as far as the parent knows it, and the bytes for it.
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
    /// The profiles that the child may send, by the order to gather, or [`LAST_PROFILE`].
    pub(super) texts: Vec<(u64, Arriving)>,
    /// The orders to wait for the sampler, and the calls that count the samplers which have run. A call
    /// waits until no other thread has its number.
    pub(super) awaited_samplings: Vec<(u64, Arc<AtomicUsize>)>,
    /// The last profile after it has arrived, until it was read.
    pub(super) reading: Reading,
    /// The child's last profile, and when the session got it.
    pub(super) last_profile: Option<(TimeStamp, ChildProfile)>,
    /// The file from which the profile is rescued if the child is killed.
    pub(super) crash_file: Option<SharedFile>,
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
            texts: vec![(LAST_PROFILE, Arriving::None)],
            awaited_samplings: Vec::new(),
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

    /// Lets the child record the parent's session no more. A session that the child has started itself
    /// is its own, unless the parent has started one in its place.
    pub(super) fn end_session(&mut self) {
        self.order(match self.takes_part() {
            true => Order::Stop,
            false => Order::StopInherited,
        });
        self.start = ChildStart::NotAsked;
        self.crash_file = None;
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

    /// Removes what has arrived of a profile that the child may send.
    pub(super) fn take_text(&mut self, at: usize) -> Arriving {
        match &mut self.texts[at] {
            (LAST_PROFILE, arriving) => std::mem::replace(arriving, Arriving::None),
            _ => self.texts.swap_remove(at).1,
        }
    }

    /// Returns whether the child may answer an order with this number.
    pub(super) fn has_order(&self, id: u64) -> bool {
        id <= self.last_order
    }
}

/// A child that has ended, whose last profile a separate thread still reads, or rescues because the
/// child has not sent it.
pub(super) struct Departed {
    pub(super) state: MemberState,
    /// How far the rescue is; `None` if the child has sent its profile.
    pub(super) rescue: Option<SharedProgress>,
}

/// A connection to a process that has connected.
pub(super) struct Member {
    pub(super) socket: Socket,
    /// The part of a message that has arrived.
    pub(super) decoder: FrameDecoder,
    pub(super) state: MemberState,
}

impl Member {
    pub(super) fn new(socket: Socket, until: Instant) -> Self {
        let peer = socket.peer_process().map(|process| AreaOwner {
            process: process.unsigned_abs().into(),
            ticks: process_start_ticks(ProcessId::from_number(process)).unwrap_or(0),
        });
        Self {
            socket,
            decoder: FrameDecoder::new(report_limits),
            state: MemberState::new(next_id(), peer, until),
        }
    }

    /// Sends what the child takes now.
    pub(super) fn send(&mut self) {
        let Self { socket, state, .. } = self;
        let sent = state.outbox.send_by(|bytes| socket.send(bytes));
        if sent.is_err() && state.broken.is_none() {
            state.broken = Some(CLOSED);
        }
    }

    /// Receives bytes. Returns false if none have arrived.
    ///
    /// # Errors
    /// [`CLOSED`]
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<bool, Ending> {
        match self.socket.receive(buffer) {
            Ok(0) => Err(CLOSED),
            Ok(count) => {
                self.decoder.push(&buffer[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(_) => Err(CLOSED),
        }
    }
}

/// Bytes that the kernel has not taken yet: they wait until the socket has space. Their number is
/// bounded, because the receiver may be stopped.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

/// The receiver reads too slowly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full;

impl Outbox {
    /// Maximum number of bytes that wait.
    pub(super) const MAX_BYTES: usize = 1 << 20;

    /// Adds a whole frame, or nothing.
    pub(super) fn push(&mut self, frame: &[u8]) -> Result<(), Full> {
        if self.waiting_bytes() + frame.len() > Self::MAX_BYTES {
            return Err(Full);
        }
        self.bytes.drain(..self.sent);
        self.sent = 0;
        self.bytes.extend_from_slice(frame);
        Ok(())
    }

    /// Sends as much as `send` takes.
    ///
    /// # Errors
    /// The error of `send`, except for `WouldBlock`, with which it takes nothing now.
    pub(super) fn send_by(
        &mut self,
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        while self.waiting_bytes() > 0 {
            match send(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => self.sent += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }
}

/// What makes a profile: reads it, or rescues it.
type Work = Box<dyn FnOnce() -> Option<ChildProfile> + Send>;

/// A last profile that has arrived, or is rescued. That may take long, so threads of their own do it:
/// the hub's thread is never slow, so it does not charge one child's slowness to another.
pub(super) enum Reading {
    None,
    /// It waits for its turn.
    Waiting(Work),
    /// A thread reads it.
    Running(Receiver<Option<ChildProfile>>),
    /// It was read, or cannot be read.
    Done(Option<ChildProfile>),
}

impl Reading {
    pub(super) fn is_pending(&self) -> bool {
        !matches!(self, Self::None)
    }
}

/// The threads that read profiles.
pub(super) struct Readers {
    name: &'static CStr,
    /// Each of them has this.
    running: Arc<()>,
}

impl Readers {
    /// Maximum number of profiles that are read at the same time. A rescue may need the debug
    /// information of a large program, and many children may be killed at once when memory is short.
    const MAX: usize = 2;

    pub(super) fn new(name: &'static CStr) -> Self {
        let running = Arc::new(());
        Self { name, running }
    }

    /// Returns what has become of the profile since the last look.
    pub(super) fn look(&self, reading: Reading) -> Reading {
        match reading {
            Reading::Waiting(work) if Arc::strong_count(&self.running) <= Self::MAX => {
                self.begin(work)
            }
            Reading::Running(result) => match result.receive_within(Duration::ZERO) {
                Some(profile) => Reading::Done(profile),
                None => Reading::Running(result),
            },
            other => other,
        }
    }

    fn begin(&self, work: Work) -> Reading {
        let (send, result) = channel();
        let running = Arc::clone(&self.running);
        let read = move || {
            let profile = catch_unwind(AssertUnwindSafe(work)).unwrap_or(None);
            drop(running);
            send.send(profile);
        };
        match with_signals_blocked(|| spawn_profiler_thread(self.name, read)) {
            Ok(_) => Reading::Running(result),
            Err(_) => Reading::Done(None),
        }
    }
}

/// Adds an event to the log of the running session.
pub(super) fn log_event(event: impl Into<Cow<'static, str>>) {
    if let Some((_, session)) = running_session() {
        session.log.add(event);
    }
}

/// Names a process for the log.
pub(super) fn describe_process(process: i32, name: &str) -> String {
    match name.is_empty() {
        true => format!("process {process}"),
        false => format!("process {process} ({name})"),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_sent_in_order_as_far_as_there_is_space() {
        let mut outbox = Outbox::default();
        let (mut received, mut space) = (Vec::new(), 0);
        let mut send = |outbox: &mut Outbox, more: usize| {
            space += more;
            outbox
                .send_by(|bytes| {
                    let taken = bytes.len().min(space).min(2);
                    if taken == 0 {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    space -= taken;
                    received.extend_from_slice(&bytes[..taken]);
                    Ok(taken)
                })
                .expect("no error");
            received.clone()
        };
        outbox.push(b"abc").expect("space");
        assert_eq!(send(&mut outbox, 2), b"ab");
        outbox.push(b"defg").expect("space");
        assert_eq!(send(&mut outbox, 3), b"abcde");
        assert_eq!(outbox.waiting_bytes(), 2);
        assert_eq!(send(&mut outbox, 9), b"abcdefg");
        assert_eq!(outbox.waiting_bytes(), 0);
    }

    #[test]
    fn full_outbox_takes_no_part_of_a_frame() {
        let mut outbox = Outbox::default();
        let frame = vec![1; Outbox::MAX_BYTES - 1];
        assert_eq!(outbox.push(&frame), Ok(()));
        assert_eq!(outbox.push(&[1, 2]), Err(Full));
        assert_eq!(outbox.waiting_bytes(), frame.len());
        assert_eq!(outbox.push(&[1]), Ok(()));
        let error = outbox.send_by(|_| Err(io::ErrorKind::BrokenPipe.into()));
        assert!(error.is_err());
    }
}
