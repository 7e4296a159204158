//! A connection, from the first byte of a request to the last one of its answer.

use std::io;
use std::time::{Duration, Instant};

use crate::http::request::{Access, Asked, HttpAnswer, MAX_HEAD_BYTES, read_head};
use crate::platform::{Interest, Socket};

/// Time in which the head of a request must arrive.
const MAX_UNTIL_HEAD: Duration = Duration::from_secs(10);
/// A client that reads is disconnected if it is this much later than at the rate below.
const MAX_UNTIL_SENT: Duration = Duration::from_secs(30);
const MIN_BYTES_A_SECOND: usize = 64 << 10;
/// Time in which a client must close its end after its answer.
const MAX_UNTIL_CLOSED: Duration = Duration::from_secs(1);
/// Maximum size of what is read and ignored, in bytes: a body, for example.
const MAX_IGNORED_BYTES: usize = 256 << 10;

#[derive(Debug)]
enum Stage {
    /// The head arrives.
    Reading {
        head: Vec<u8>,
        until: Instant,
    },
    /// The answer is prepared.
    Waiting {
        is_head: bool,
    },
    /// Head and body are sent; so many bytes of both have been.
    Sending {
        head: Vec<u8>,
        body: Vec<u8>,
        sent: usize,
        since: Instant,
    },
    /// All was sent. If a socket with unread bytes were closed now, the kernel would drop the
    /// answer.
    Ending {
        until: Instant,
    },
    Over,
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: u64,
    socket: Socket,
    stage: Stage,
    ignored_bytes: usize,
}

impl Connection {
    pub(super) fn new(id: u64, socket: Socket, now: Instant) -> Self {
        let stage = Stage::Reading {
            head: Vec::new(),
            until: now + MAX_UNTIL_HEAD,
        };
        Self {
            id,
            socket,
            stage,
            ignored_bytes: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Returns what to wait for.
    pub(super) fn interest(&self) -> Interest<'_> {
        match self.stage {
            Stage::Sending { .. } => Interest::Space(&self.socket),
            _ => Interest::Bytes(&self.socket),
        }
    }

    /// Returns when the client must have done its next step.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.stage {
            Stage::Reading { until, .. } | Stage::Ending { until } => Some(until),
            Stage::Sending { sent, since, .. } => {
                let at_rate = Duration::from_secs((sent / MIN_BYTES_A_SECOND) as u64);
                Some(since + at_rate + MAX_UNTIL_SENT)
            }
            Stage::Waiting { .. } | Stage::Over => None,
        }
    }

    /// Ends the connection if the client is too slow.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.until().is_some_and(|until| until <= now) {
            self.stage = Stage::Over;
        }
    }

    /// Continues, because the socket is ready. Returns what the client asks for, once.
    pub(super) fn go_on(&mut self, access: &Access, now: Instant) -> Option<Asked> {
        match self.stage {
            Stage::Reading { .. } => return self.read(access, now),
            Stage::Sending { .. } => self.send(now),
            Stage::Waiting { .. } | Stage::Ending { .. } => self.ignore(),
            Stage::Over => {}
        }
        None
    }

    fn read(&mut self, access: &Access, now: Instant) -> Option<Asked> {
        let Stage::Reading { head, .. } = &mut self.stage else {
            return None;
        };
        let mut part = [0; 2048];
        let room = part.len().min(MAX_HEAD_BYTES.saturating_sub(head.len()));
        match self.socket.receive(&mut part[..room]) {
            Ok(count) if count > 0 => head.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Ok(_) | Err(_) => {
                self.stage = Stage::Over;
                return None;
            }
        }
        match read_head(head, access) {
            Ok(asked) => {
                let is_head = asked.as_ref()?.is_head;
                self.stage = Stage::Waiting { is_head };
                asked
            }
            Err(refusal) => {
                self.answer(refusal, now);
                None
            }
        }
    }

    /// Reads what is not needed. The end of it means that the client has left.
    fn ignore(&mut self) {
        match self.socket.receive(&mut [0; 4096]) {
            Ok(count) if count > 0 && self.ignored_bytes < MAX_IGNORED_BYTES => {
                self.ignored_bytes += count;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => self.stage = Stage::Over,
        }
    }

    /// Begins to send an answer.
    pub(super) fn answer(&mut self, answer: HttpAnswer, now: Instant) {
        let is_head = match &self.stage {
            Stage::Waiting { is_head } => *is_head,
            Stage::Reading { head, .. } => head.starts_with(b"HEAD "),
            _ => return,
        };
        let head = answer.head(is_head).into_bytes();
        let body = match is_head {
            true => Vec::new(),
            false => answer.body,
        };
        self.stage = Stage::Sending {
            head,
            body,
            sent: 0,
            since: now,
        };
        self.send(now);
    }

    fn send(&mut self, now: Instant) {
        let Stage::Sending {
            head, body, sent, ..
        } = &mut self.stage
        else {
            return;
        };
        loop {
            let rest = match head.get(*sent..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => &body[*sent - head.len()..],
            };
            if rest.is_empty() {
                self.socket.end_sending();
                let until = now + MAX_UNTIL_CLOSED;
                self.stage = Stage::Ending { until };
                return;
            }
            match self.socket.send(rest) {
                Ok(count) => *sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.stage = Stage::Over;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::socket_pair;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a connection, the client's end, and the time.
    fn connected() -> (Connection, Socket, Instant) {
        let (own, client) = socket_pair().expect("a pair");
        let now = Instant::now();
        (Connection::new(1, own, now), client, now)
    }

    fn is_over_at(connection: &mut Connection, time: Instant) -> bool {
        connection.expire(time);
        connection.is_over()
    }

    #[test]
    fn head_must_arrive_in_time() {
        let (mut connection, client, now) = connected();
        assert!(client.send(b"GET / HT").is_ok());
        let access = Access::new("1", None).expect("valid");
        assert!(connection.go_on(&access, now + SECOND).is_none());
        let end = now + MAX_UNTIL_HEAD;
        assert!(!is_over_at(&mut connection, end - SECOND));
        assert!(is_over_at(&mut connection, end));
    }

    #[test]
    fn client_that_stops_reading_is_disconnected_however_long_the_answer_is() {
        let (mut connection, client, now) = connected();
        let mut answer = HttpAnswer::of_words(200, "");
        answer.body = vec![0; 64 << 20];
        connection.answer(answer, now);
        assert!(!is_over_at(&mut connection, now + MAX_UNTIL_SENT - SECOND));
        // It reads what the kernel holds, and gets as long again as that takes at the lowest rate.
        let mut read = 0;
        while let Ok(count) = client.receive(&mut [0; 64 << 10]) {
            read += count;
        }
        let access = Access::new("1", None).expect("valid");
        assert!(connection.go_on(&access, now).is_none());
        let at_rate = SECOND * u32::try_from(read / MIN_BYTES_A_SECOND).expect("a small number");
        assert!(!is_over_at(
            &mut connection,
            now + MAX_UNTIL_SENT + at_rate - SECOND
        ));
        // The kernel holds less than this.
        let held = SECOND * (16 << 20) / MIN_BYTES_A_SECOND as u32;
        assert!(is_over_at(
            &mut connection,
            now + MAX_UNTIL_SENT + at_rate + held
        ));
    }
}
