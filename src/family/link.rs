//! The child's connection to its parent, and the threads that use it.
//!
//! - The *reader* waits for orders. It answers those itself that the executor must not hold up.
//! - The *sender* sends what the other threads have to say, and waits while the parent does not read.
//!   Both have a descriptor table of their own, where that is possible.
//! - The *executor* shares the application's table, because it runs the application's callbacks.
//! - A thread for each profile, which runs code of the application, too: that of its marker types.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::family::messages::MAX_DATA_BYTES;
use crate::family::reports::{Report, TextPart};
use crate::platform::{Interest, Receiver, Sender, Socket, channel, wait_for_sockets};

/// Time between two looks at whether a thread is to give up.
const LOOK: Duration = Duration::from_millis(50);

/// What the threads of the child share.
#[derive(Debug, Default)]
pub(super) struct ChildControl {
    /// Maximum size of the last profile, in bytes; 0 without a session of the parent.
    pub(super) max_exit_bytes: AtomicU64,
    /// Whether the last profile is being sent, so that no other one is.
    pub(super) is_exiting: AtomicBool,
    /// Whether this process leaves the family on its own.
    pub(super) is_leaving: AtomicBool,
    /// Whether no thread is to wait for the parent any more.
    pub(super) gives_up: AtomicBool,
    /// Number of orders whose answers were not sent.
    pub(super) unanswered: AtomicUsize,
    /// Number of bytes of profiles that the kernel has taken.
    pub(super) sent_bytes: AtomicU64,
}

/// The connection, in the table of the reader and of the sender.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Socket,
    pub(super) control: Arc<ChildControl>,
}

impl Link {
    /// Sends a whole frame. Waits while the parent does not read. Ends the connection if it cannot.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let sent = self.send_all(frame);
        if sent.is_err() {
            self.socket.shut_down();
        }
        sent
    }

    fn send_all(&self, mut rest: &[u8]) -> io::Result<()> {
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
    /// Sends a step of a profile, and tells whether it has.
    Step(Vec<u8>, Arc<Sender<bool>>),
    /// Sends the answer to an order.
    Answer(Vec<u8>),
    /// Sends a frame that no thread waits for.
    Message(Vec<u8>),
    /// Ends the connection.
    Leave,
}

/// Runs the sender, until no thread can give it work.
pub(super) fn run_sender(link: &Link, jobs: &Receiver<SendJob>) {
    let control = &link.control;
    while let Some(job) = jobs.receive() {
        match job {
            SendJob::Step(frame, answer) => {
                let is_sent = link.send(&frame).is_ok();
                if is_sent {
                    let bytes = frame.len() as u64;
                    control.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                answer.send(is_sent);
            }
            SendJob::Answer(frame) => {
                drop(link.send(&frame));
                control.unanswered.fetch_sub(1, Ordering::AcqRel);
            }
            SendJob::Message(frame) => drop(link.send(&frame)),
            SendJob::Leave => link.socket.shut_down(),
        }
    }
}

/// Writes the text of a profile as reports.
pub(super) struct PartWriter<'a> {
    jobs: &'a Sender<SendJob>,
    /// The order to gather that asks for the profile, or `LAST_PROFILE`.
    id: u64,
    answers: (Arc<Sender<bool>>, Receiver<bool>),
    part: Vec<u8>,
    left_bytes: u64,
    gives_up: &'a dyn Fn() -> bool,
}

impl<'a> PartWriter<'a> {
    /// Creates a writer of at most `max_bytes`. It fails once `gives_up` returns true.
    pub(super) fn new(
        jobs: &'a Sender<SendJob>,
        id: u64,
        max_bytes: u64,
        gives_up: &'a dyn Fn() -> bool,
    ) -> Self {
        let (send, receive) = channel();
        Self {
            jobs,
            id,
            answers: (Arc::new(send), receive),
            part: Vec::with_capacity(MAX_DATA_BYTES),
            left_bytes: max_bytes,
            gives_up,
        }
    }

    /// Sends a step, and waits until the kernel has it.
    pub(super) fn send(&self, part: TextPart<'_>) -> io::Result<()> {
        let (answer, answers) = &self.answers;
        let report = Report::Text { id: self.id, part };
        if !self
            .jobs
            .send(SendJob::Step(report.encode(), Arc::clone(answer)))
        {
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

    fn send_data(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        if (self.gives_up)() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.send(TextPart::Data(&self.part))?;
        self.part.clear();
        Ok(())
    }

    /// Sends the last part, and ends the text.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.send_data()?;
        self.send(TextPart::Ends)
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
            self.send_data()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
