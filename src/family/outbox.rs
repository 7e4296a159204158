//! What a process has to send and the kernel has not taken yet.

use std::io;

/// Bytes that wait until the socket has space. Their number is bounded: the receiver may be stopped.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

/// The receiver reads too slowly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

impl Outbox {
    /// Maximum number of bytes that wait.
    pub(crate) const MAX_BYTES: usize = 1 << 20;

    /// Adds a whole frame, or nothing.
    pub(crate) fn push(&mut self, frame: &[u8]) -> Result<(), Full> {
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
    pub(crate) fn send_by(
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

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.sent
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
