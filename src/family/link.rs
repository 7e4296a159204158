//! The child's connection to its parent, and the threads that use it.
//!
//! - The *reader* waits for orders. It answers questions about progress itself.
//! - The *sender* sends the parts of profiles, and waits while the parent does not read. Both have a
//!   descriptor table of their own, where that is possible.
//! - The *executor* shares the application's table, because it runs the application's callbacks.
//! - A thread for each profile, which runs code of the application, too: that of its marker types.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::family::messages::MAX_DATA_BYTES;
use crate::family::reports::Report;
use crate::platform::{Interest, Receiver, Sender, Socket, channel, wait_for_sockets};

/// Time between two looks at whether a thread is to give up.
const LOOK: Duration = Duration::from_millis(50);

/// What the threads of the child share.
#[derive(Debug, Default)]
pub(super) struct ChildControl {
    /// Maximum size of the last profile, in bytes; 0 without a session of the parent.
    pub(super) max_exit_bytes: AtomicU64,
    /// The session that the parent has started; 0 for none.
    pub(super) started: AtomicU64,
    /// Whether the last profile is being sent, so that no other one is.
    pub(super) is_exiting: AtomicBool,
    /// Whether this process leaves the family on its own.
    pub(super) is_leaving: AtomicBool,
    /// Whether no thread is to wait for the parent any more.
    pub(super) gives_up: AtomicBool,
    /// Number of threads that write a profile.
    pub(super) writers: AtomicU32,
}

/// The connection, in the table of the reader and of the sender.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Socket,
    /// Held while a frame is sent.
    sending: Mutex<()>,
    control: Arc<ChildControl>,
}

impl Link {
    pub(super) fn new(socket: Socket, control: Arc<ChildControl>) -> Self {
        Self {
            socket,
            sending: Mutex::new(()),
            control,
        }
    }

    /// Sends a whole frame. Waits while the parent does not read. Ends the connection if it cannot.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = self.send_alone(frame);
        if sent.is_err() {
            self.socket.shut_down();
        }
        sent
    }

    fn send_alone(&self, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            match self.socket.send(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.control.gives_up.load(Ordering::Acquire) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    wait_for_sockets(&[Interest::Space(&self.socket)], Some(LOOK))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What the sender does next.
#[derive(Debug)]
pub(super) enum SendJob {
    /// Sends a frame, and tells whether it has.
    Frame(Vec<u8>, Arc<Sender<bool>>),
    /// Sends a frame that no thread waits for.
    Message(Vec<u8>),
    /// Ends the connection.
    Leave,
}

/// Runs the sender, until no thread can give it work.
pub(super) fn run_sender(link: &Link, jobs: &Receiver<SendJob>) {
    while let Some(job) = jobs.receive() {
        match job {
            SendJob::Frame(frame, answer) => {
                answer.send(link.send(&frame).is_ok());
            }
            SendJob::Message(frame) => drop(link.send(&frame)),
            SendJob::Leave => link.socket.shut_down(),
        }
    }
}

/// The profile that a text belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextOf {
    /// One that the parent gathers, by the order with this number.
    Profile(u64),
    LastProfile,
}

/// Writes the text of a profile as frames.
pub(super) struct PartWriter<'a> {
    jobs: &'a Sender<SendJob>,
    text: TextOf,
    answers: (Arc<Sender<bool>>, Receiver<bool>),
    part: Vec<u8>,
    left_bytes: u64,
    /// Counts the bytes that the kernel has taken.
    sent_bytes: &'a AtomicU64,
    gives_up: &'a dyn Fn() -> bool,
}

impl<'a> PartWriter<'a> {
    /// Creates a writer of at most `max_bytes`. It fails once `gives_up` returns true.
    pub(super) fn new(
        jobs: &'a Sender<SendJob>,
        text: TextOf,
        max_bytes: u64,
        sent_bytes: &'a AtomicU64,
        gives_up: &'a dyn Fn() -> bool,
    ) -> Self {
        let (send, receive) = channel();
        Self {
            jobs,
            text,
            answers: (Arc::new(send), receive),
            part: Vec::with_capacity(MAX_DATA_BYTES),
            left_bytes: max_bytes,
            sent_bytes,
            gives_up,
        }
    }

    /// Sends a report, and waits until the kernel has it.
    pub(super) fn report(&self, report: &Report<'_>) -> io::Result<()> {
        let (answer, answers) = &self.answers;
        let job = SendJob::Frame(report.encode(), Arc::clone(answer));
        if !self.jobs.send(job) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        loop {
            match answers.receive_within(LOOK) {
                Some(true) => return Ok(()),
                Some(false) => return Err(io::ErrorKind::BrokenPipe.into()),
                None if (self.gives_up)() => return Err(io::ErrorKind::TimedOut.into()),
                None => {}
            }
        }
    }

    fn send_part(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        if (self.gives_up)() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.report(&match self.text {
            TextOf::Profile(id) => Report::ProfileData {
                id,
                part: &self.part,
            },
            TextOf::LastProfile => Report::ExitData(&self.part),
        })?;
        let bytes = self.part.len() as u64;
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.part.clear();
        Ok(())
    }
}

impl Write for PartWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let space = MAX_DATA_BYTES - self.part.len();
        let taken = bytes.len().min(space);
        self.part.extend_from_slice(&bytes[..taken]);
        self.left_bytes -= taken as u64;
        if self.part.len() == MAX_DATA_BYTES {
            self.send_part()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PartWriter<'_> {
    /// Sends the last part.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.send_part()
    }
}
