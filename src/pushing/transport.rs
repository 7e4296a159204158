//! How the bytes of a request reach the server: as they are, or by TLS.

use std::io;
use std::net::SocketAddr;
#[cfg(feature = "push-tls")]
use std::time::Instant;

use crate::platform::{Interest, Socket};
use crate::pushing::address::Address;
#[cfg(feature = "push-tls")]
use crate::pushing::tls::{TlsClient, TlsConnection};
use crate::types::{PushError, PushSettings};

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
