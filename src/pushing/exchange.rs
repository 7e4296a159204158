//! One request and its answer, and how their bytes reach the server and come back: as they are, or by
//! TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::platform::{Interest, Socket, wait_for_sockets};
use crate::pushing::target::Address;
#[cfg(feature = "push-tls")]
use crate::pushing::tls::{TlsClient, TlsConnection};
use crate::types::{PushError, PushSettings};

/// Maximum size of the head of an answer, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Maximum size of an answer with those before it, in bytes.
const MAX_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 64;
/// Maximum time until the connection is there, with TLS until the server has proved its name.
const MAX_UNTIL_CONNECTED: Duration = Duration::from_secs(5);
/// Maximum time until the answer is there.
const MAX_UNTIL_ANSWERED: Duration = Duration::from_secs(30);
/// Time between two looks at whether the answer is still wanted.
const STEP: Duration = Duration::from_millis(50);

/// A request that is being sent.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    connection: Connection,
    request: &'a [u8],
    /// Number of bytes of the request that the connection has taken.
    sent: usize,
    /// Whether the kernel has the whole request.
    is_sent: bool,
    received: Vec<u8>,
    begun: Instant,
    /// Whether the body of an answer that accepts the request is read.
    reads_body: bool,
}

/// The answer of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The time that the server has asked to wait.
    pub(super) retry_after: Option<Duration>,
    /// Empty if it is not read, if the server has refused the request, has not said how long the body
    /// is, or has not sent all of it.
    pub(super) body: Vec<u8>,
}

impl<'a> Exchange<'a> {
    /// Begins to connect. With `reads_body`, the answer has its body.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn begin(
        transport: &Transport,
        address: SocketAddr,
        request: &'a [u8],
        reads_body: bool,
        now: Instant,
    ) -> io::Result<Self> {
        Ok(Self {
            reads_body,
            connection: transport.begin(address)?,
            request,
            sent: 0,
            is_sent: false,
            received: Vec::new(),
            begun: now,
        })
    }

    /// Returns whether no byte was sent yet, so that another address can be tried.
    pub(super) fn is_connecting(&self) -> bool {
        self.sent == 0
    }

    /// Returns what to wait for.
    pub(super) fn interest(&self) -> Interest<'_> {
        self.connection.interest(!self.is_sent)
    }

    /// Returns when the exchange has failed.
    pub(super) fn until(&self) -> Instant {
        self.begun
            + match self.is_connecting() {
                true => MAX_UNTIL_CONNECTED,
                false => MAX_UNTIL_ANSWERED,
            }
    }

    /// Waits for the answer, and gives up once `is_over`.
    ///
    /// # Errors
    /// Those of [`Exchange::go_on`], and `TimedOut` if it gave up.
    pub(super) fn finish(&mut self, is_over: &AtomicBool) -> io::Result<Answer> {
        while !is_over.load(Ordering::Acquire) {
            let rest = self.until().saturating_duration_since(Instant::now());
            let ready = wait_for_sockets(&[self.interest()], Some(rest.min(STEP)))?;
            if let Some(answer) = self.go_on(ready == [true], Instant::now())? {
                return Ok(answer);
            }
        }
        let answer = self.without_body();
        answer.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// Sends and receives as far as the socket is ready. Returns `None` until the answer is there.
    ///
    /// # Errors
    /// The server did not answer in time, or not as HTTP says; otherwise the error of the operating
    /// system.
    pub(super) fn go_on(&mut self, is_ready: bool, now: Instant) -> io::Result<Option<Answer>> {
        if is_ready {
            let sent = self.send();
            // The server may have answered before it has closed the connection.
            let received = self.receive();
            if received.is_err()
                && let Some(answer) = self.without_body()
            {
                return Ok(Some(answer));
            }
            match received {
                // Before the end of the request, a server can only refuse it.
                Ok(Some(answer)) if answer.status >= 300 || self.is_sent => {
                    return Ok(Some(answer));
                }
                Ok(Some(_)) => {
                    let words = "an answer before the end of the request";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, words));
                }
                // What TLS refuses says more than that the connection is closed.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
                received => {
                    sent?;
                    received?;
                }
            }
        }
        if now < self.until() {
            return Ok(None);
        }
        let answer = self.without_body().map(Some);
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))
    }

    /// Returns the answer of a server that has accepted the request, and whose body has not arrived.
    fn without_body(&self) -> Option<Answer> {
        let answer = read_answer(&self.received, self.reads_body, true);
        answer.ok().flatten().filter(|_| self.is_sent)
    }

    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.request.len() {
            match self.connection.send(&self.request[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        match self.connection.flush() {
            Ok(()) => self.is_sent = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        let mut part = [0; 4096];
        loop {
            match self.connection.receive(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) if self.received.len() + bytes <= MAX_BYTES => {
                    self.received.extend_from_slice(&part[..bytes]);
                }
                Ok(_) => {
                    let words = "an answer that is too long";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, words));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            let answer = read_answer(&self.received, self.reads_body, false)?;
            if answer.is_some() {
                return Ok(answer);
            }
        }
    }
}

/// Reads an answer. Returns `None` if it is not whole; with `is_end`, only its head must be. With
/// `reads_body`, an answer that accepts the request has its body.
fn read_answer(received: &[u8], reads_body: bool, is_end: bool) -> io::Result<Option<Answer>> {
    let mut rest = received;
    loop {
        let Some(Head {
            mut answer,
            head_bytes,
            body_bytes,
        }) = read_head(rest)?
        else {
            return Ok(None);
        };
        rest = &rest[head_bytes..];
        // Otherwise, an answer before the real one.
        if answer.status >= 200 {
            let is_read = reads_body && answer.status < 300;
            let max_bytes = MAX_BYTES - (received.len() - rest.len());
            let body_bytes = body_bytes.filter(|bytes| is_read && *bytes <= max_bytes);
            match rest.get(..body_bytes.unwrap_or(0)) {
                Some(body) => answer.body = body.to_vec(),
                None if is_end => {}
                None => return Ok(None),
            }
            return Ok(Some(answer));
        }
    }
}

/// The head of an answer.
#[derive(PartialEq, Debug)]
struct Head {
    answer: Answer,
    head_bytes: usize,
    body_bytes: Option<usize>,
}

/// Reads the head of an answer. Returns `None` if it is not whole yet.
fn read_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let bad = |_| io::Error::new(io::ErrorKind::InvalidData, "an answer that is not HTTP");
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let status = head.parse(bytes).map_err(bad)?;
    let head_bytes = match status {
        httparse::Status::Complete(head_bytes) => head_bytes,
        httparse::Status::Partial if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
        httparse::Status::Partial => return Err(bad(httparse::Error::TooManyHeaders)),
    };
    let number = |name: &str| {
        let mut named = head.headers.iter();
        let header = named.find(|header| header.name.eq_ignore_ascii_case(name));
        let text = header.and_then(|header| std::str::from_utf8(header.value).ok());
        text.and_then(|text| text.trim().parse::<u64>().ok())
    };
    let body_bytes = number("content-length");
    Ok(Some(Head {
        answer: Answer {
            status: head.code.unwrap_or(0),
            retry_after: number("retry-after").map(Duration::from_secs),
            body: Vec::new(),
        },
        head_bytes,
        body_bytes: body_bytes.and_then(|bytes| usize::try_from(bytes).ok()),
    }))
}

/// Makes connections to a server.
pub(super) enum Transport {
    Plain,
    #[cfg(feature = "push-tls")]
    Tls(TlsClient),
}

#[cfg_attr(
    not(feature = "push-tls"),
    expect(unused_variables, reason = "only TLS has a state")
)]
impl Transport {
    /// Returns how to connect to this address. Reads the variables, and no file.
    ///
    /// # Errors
    /// [`PushError::BadUrl`] if a certificate cannot have the name of the server.
    pub(super) fn new(address: &Address, settings: &PushSettings) -> Result<Self, PushError> {
        #[cfg(feature = "push-tls")]
        if address.is_encrypted {
            return TlsClient::new(address, settings).map(Self::Tls);
        }
        Ok(Self::Plain)
    }

    /// Reads what it needs from files, unless that was done not long ago. May wait for a disk.
    ///
    /// # Errors
    /// The trusted certificates cannot be read, and were not read before.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        match self {
            Self::Plain => Ok(()),
            #[cfg(feature = "push-tls")]
            Self::Tls(client) => client.renew(Instant::now()),
        }
    }

    /// Notes that a connection has failed. Returns whether TLS has refused the server.
    pub(super) fn note_failure(&mut self, error: &io::Error) -> bool {
        match self {
            Self::Plain => false,
            #[cfg(feature = "push-tls")]
            Self::Tls(client) => client.note_failure(error),
        }
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn begin(&self, address: SocketAddr) -> io::Result<Connection> {
        let socket = Socket::begin_tcp(address)?;
        match self {
            Self::Plain => Ok(Connection::Plain(socket)),
            #[cfg(feature = "push-tls")]
            Self::Tls(client) => {
                let connection = client.begin(socket)?;
                Ok(Connection::Tls(Box::new(connection)))
            }
        }
    }
}

/// A connection to the server. No call waits.
#[derive(Debug)]
pub(super) enum Connection {
    Plain(Socket),
    #[cfg(feature = "push-tls")]
    Tls(Box<TlsConnection>),
}

impl Connection {
    /// Takes bytes of the request, and returns how many.
    ///
    /// # Errors
    /// `WouldBlock` if it takes none now; otherwise the error of the operating system.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.send(bytes),
            #[cfg(feature = "push-tls")]
            Self::Tls(connection) => connection.send(bytes),
        }
    }

    /// Passes the bytes that it has taken on to the kernel.
    ///
    /// # Errors
    /// `WouldBlock` if the kernel does not take them all now; otherwise the error of the operating
    /// system.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            #[cfg(feature = "push-tls")]
            Self::Tls(connection) => connection.flush(),
        }
    }

    /// Receives bytes of the answer, and returns how many. Returns 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` if none have arrived, `InvalidData` if TLS has failed; otherwise the error of
    /// the operating system.
    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.receive(bytes),
            #[cfg(feature = "push-tls")]
            Self::Tls(connection) => connection.receive(bytes),
        }
    }

    /// Returns what to wait for while the caller has more to send, or has sent all.
    pub(super) fn interest(&self, has_more: bool) -> Interest<'_> {
        match (self, has_more) {
            (Self::Plain(socket), true) => Interest::BytesAndSpace(socket),
            (Self::Plain(socket), false) => Interest::Bytes(socket),
            #[cfg(feature = "push-tls")]
            (Self::Tls(connection), has_more) => connection.interest(has_more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(u16, Option<u64>)> {
        let head = read_head(text.as_bytes()).expect("HTTP")?;
        assert!(head.head_bytes <= text.len());
        let answer = head.answer;
        let seconds = answer.retry_after.map(|time| time.as_secs());
        Some((answer.status, seconds))
    }

    /// Returns the answer of a server that sends these bytes and closes the connection, once the
    /// request has been sent.
    fn answered(bytes: &'static str, reads_body: bool) -> io::Result<Answer> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            io::Read::read_exact(&mut client, &mut [0; 7]).expect("a request");
            io::Write::write_all(&mut client, bytes.as_bytes()).expect("sent");
        });
        let now = Instant::now();
        let exchange = Exchange::begin(&Transport::Plain, address, b"request", reads_body, now);
        let answer = exchange.expect("a socket").finish(&AtomicBool::new(false));
        server.join().expect("no panic");
        answer
    }

    #[test]
    fn body_is_in_the_answer_if_all_of_it_arrives() {
        for (bytes, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", "body"),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody+",
                "body",
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody", ""),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nbody", ""),
            ("HTTP/1.1 200 OK\r\n\r\nbody", ""),
        ] {
            for (reads_body, body) in [(true, body), (false, "")] {
                let answer = answered(bytes, reads_body).expect("an answer");
                let text = String::from_utf8(answer.body).expect("UTF-8");
                assert_eq!((answer.status, &*text), (200, body), "{bytes}");
            }
        }
        for bytes in ["", "HTTP/1.1 200 OK\r\n"] {
            let error = answered(bytes, true).expect_err("no whole head");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{bytes}");
        }
    }

    #[test]
    fn answer_is_read_once_it_is_whole() {
        let text = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(read(&text[..end]), None, "{end}");
        }
        assert_eq!(read(&format!("{text}body")), Some((503, Some(7))));
        let dated = "HTTP/1.0 200 OK\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n\r\n";
        assert_eq!(read(dated), Some((200, None)));
    }

    #[test]
    fn other_answers_are_errors() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD_BYTES));
        let many = format!(
            "HTTP/1.1 200 OK\r\n{}\r\n",
            "a: b\r\n".repeat(MAX_HEADERS + 1)
        );
        for text in [
            "SSH-2.0-x\r\n",
            "HTTP/1.1 abc\r\n\r\n",
            "\u{16}\u{3}",
            &long,
            &many,
        ] {
            assert!(read_head(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
