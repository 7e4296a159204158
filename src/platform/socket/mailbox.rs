//! Values for a thread that waits for sockets.
//!
//! That thread usually has a descriptor table of its own, in which no other thread can wake it. So
//! a second thread in that table waits for values, and wakes it by a socket.

use std::io;

use crate::platform::identity::with_signals_blocked;
use crate::platform::socket::unix_socket::{Socket, socket_pair};
use crate::platform::thread::{Receiver, Sender, channel, spawn_profiler_thread};

/// The receiving end of a mailbox, in the table of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    values: Receiver<T>,
    woken: Socket,
}

impl<T: Send + 'static> Mailbox<T> {
    /// Passes on the values of a channel, until its sender is gone.
    ///
    /// # Errors
    /// The error of the operating system, which refused a socket or a thread.
    pub(crate) fn open(values: Receiver<T>) -> io::Result<Self> {
        let (woken, wakes) = socket_pair()?;
        let (send, passed_on) = channel();
        let run = move || pass_on(&values, &send, &wakes);
        drop(with_signals_blocked(|| {
            spawn_profiler_thread(c"ProfilerMailbox", run)
        })?);
        Ok(Self {
            values: passed_on,
            woken,
        })
    }

    /// Returns the socket that has bytes once there are values, and is at its end once the sender
    /// is gone.
    pub(crate) fn socket(&self) -> &Socket {
        &self.woken
    }

    /// Takes the values that have arrived. Returns `None` once the sender is gone and all were
    /// taken.
    pub(crate) fn take(&self) -> Option<Vec<T>> {
        let is_at_end = loop {
            match self.woken.receive(&mut [0; 64]) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != io::ErrorKind::WouldBlock,
            }
        };
        let mut taken = Vec::new();
        while let Some(value) = self.values.receive_within(std::time::Duration::ZERO) {
            taken.push(value);
        }
        (!is_at_end || !taken.is_empty()).then_some(taken)
    }
}

fn pass_on<T>(values: &Receiver<T>, send: &Sender<T>, wakes: &Socket) {
    while let Some(value) = values.receive() {
        if !send.send(value) {
            return;
        }
        // A full socket wakes the other thread, too.
        let _ = wakes.send(&[0]);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::platform::socket::unix_socket::{Interest, wait_for_sockets};

    #[test]
    fn values_wake_the_thread_and_the_end_does_too() {
        let (send, values) = channel();
        let mailbox = Mailbox::open(values).expect("a mailbox");
        assert_eq!(mailbox.take(), Some(Vec::new()));
        let wait = || wait_for_sockets(&[Interest::Bytes(mailbox.socket())], None).expect("ready");
        for number in 1..=3 {
            assert!(send.send(number));
        }
        let mut taken = Vec::new();
        while taken.len() < 3 {
            assert_eq!(wait(), [true]);
            taken.extend(mailbox.take().expect("the sender is there"));
        }
        assert_eq!(taken, [1, 2, 3]);
        drop(send);
        while mailbox.take().is_some() {
            assert_eq!(wait(), [true]);
        }
    }
}
