//! TLS over a socket that never blocks.
//!
//! The certificates that the system trusts are read from a file of the system, and kept for an hour
//! at most, or until a server's certificate is refused. A failed read keeps those of before.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, InvalidMessage, RootCertStore};

use crate::platform::{Interest, Socket, read_root_certificates};
use crate::pushing::target::Address;
use crate::session::certificate_file_of_variables;
use crate::types::{PushError, PushSettings};

/// Maximum age of the trusted certificates, which a system may exchange while a program runs.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// Maximum size of all that a server sends on one connection, in bytes: its certificates may have
/// 64 KiB, as may its answer.
const MAX_BYTES: usize = 256 << 10;
/// Maximum number of servers and names whose tickets are kept.
const MAX_TICKETS: usize = 16;
/// Maximum number of names that an error shows of a certificate.
const MAX_NAMES: usize = 4;

/// Connects to one server by TLS.
pub(super) struct TlsClient {
    name: ServerName<'static>,
    /// The file with the trusted certificates, if it is not the system's.
    file: Option<PathBuf>,
    /// With the trusted certificates and tickets of earlier connections, by which the next one is
    /// cheaper.
    config: Option<Arc<ClientConfig>>,
    /// Until then, the certificates need not be read again.
    fresh_until: Option<Instant>,
}

impl TlsClient {
    /// Returns a client for this address. Reads the variables, and no file.
    ///
    /// # Errors
    /// [`PushError::BadUrl`]
    pub(super) fn new(address: &Address, settings: &PushSettings) -> Result<Self, PushError> {
        let name = ServerName::try_from(address.host.clone()).map_err(|_| PushError::BadUrl {
            url: format!("https://{}", address.authority),
            accepted: "a host that is a DNS name or an IP address",
        })?;
        let file = settings.root_certificates.clone();
        Ok(Self {
            name,
            file: file.or_else(certificate_file_of_variables),
            config: None,
            fresh_until: None,
        })
    }

    /// Returns whether the certificates need not be read.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.fresh_until.is_some_and(|until| now < until)
    }

    /// Reads the certificates, unless they are fresh.
    ///
    /// # Errors
    /// The certificates cannot be read, and earlier ones are missing.
    pub(super) fn renew(&mut self, now: Instant) -> io::Result<()> {
        if self.is_ready(now) {
            return Ok(());
        }
        let config = match (read_config(self.file.as_deref()), self.config.as_deref()) {
            (Ok(config), _) => config,
            (Err(error), None) => return Err(error),
            // The program may have given up the right to read the file. The server's certificate is
            // checked again, instead of a ticket.
            (Err(_), Some(before)) => {
                let mut config = before.clone();
                config.resumption = Resumption::in_memory_sessions(MAX_TICKETS);
                config
            }
        };
        self.config = Some(Arc::new(config));
        self.fresh_until = Some(now + MAX_AGE);
        Ok(())
    }

    /// Lets the certificates be read again if TLS has refused the server. Returns whether it has.
    pub(super) fn note_failure(&mut self, error: &io::Error) -> bool {
        let source = error.get_ref();
        let is_refused = source.is_some_and(|source| source.is::<Refusal>());
        if is_refused {
            self.fresh_until = None;
        }
        is_refused
    }

    pub(super) fn begin(&self, socket: Socket) -> io::Result<TlsConnection> {
        let missing = || io::Error::other("no trusted certificates");
        let config = Arc::clone(self.config.as_ref().ok_or_else(missing)?);
        let session = ClientConnection::new(config, self.name.clone()).map_err(refusal)?;
        Ok(TlsConnection {
            socket,
            session,
            received_bytes: 0,
        })
    }
}

fn read_config(file: Option<&Path>) -> io::Result<ClientConfig> {
    let bad = |reason: String| {
        let words = format!("no trusted certificates: {reason}");
        io::Error::new(io::ErrorKind::InvalidData, words)
    };
    let (path, text) = read_root_certificates(file).map_err(|error| bad(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    // A certificate that cannot be read is left out: a system has some that are old and odd.
    for certificate in CertificateDer::pem_slice_iter(&text).flatten() {
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(bad(format!(
            "{} has none in the form of PEM",
            path.display()
        )));
    }
    // Not the process's default provider, which belongs to the application.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(error.to_string()))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// A connection whose bytes are encrypted. No call waits.
#[derive(Debug)]
pub(super) struct TlsConnection {
    socket: Socket,
    session: ClientConnection,
    /// Number of encrypted bytes that were received so far.
    received_bytes: usize,
}

impl TlsConnection {
    /// Encrypts bytes, and returns how many. [`TlsConnection::flush`] sends them.
    ///
    /// # Errors
    /// `WouldBlock` before the handshake has ended, and while earlier bytes cannot be sent;
    /// otherwise the error of the operating system.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        if self.session.is_handshaking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.session.writer().write(bytes)
    }

    /// Sends the bytes that are encrypted.
    ///
    /// # Errors
    /// `WouldBlock` if some are left; otherwise the error of the operating system.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut OnSocket(&self.socket))?;
        }
        Ok(())
    }

    /// Receives bytes and decrypts them. Returns 0 if the server has said that these were all.
    ///
    /// # Errors
    /// `WouldBlock` if none have arrived, `UnexpectedEof` if the server has closed the connection
    /// without a word, `InvalidData` with a [`Refusal`] if it is not trusted or speaks no TLS;
    /// otherwise the error of the operating system.
    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            let received = self.session.read_tls(&mut OnSocket(&self.socket))?;
            self.received_bytes += received;
            if self.received_bytes > MAX_BYTES {
                let words = "an answer that is too long";
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
            if received == 0 && self.session.is_handshaking() {
                let words = "the end of the connection during the TLS handshake";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
            }
            if let Err(error) = self.session.process_new_packets() {
                // The alert, which says to the server what is wrong.
                let _ = self.flush();
                return Err(refusal(error));
            }
        }
    }

    pub(super) fn interest(&self, has_more: bool) -> Interest<'_> {
        let has_more = has_more && !self.session.is_handshaking();
        match has_more || self.session.wants_write() {
            true => Interest::BytesAndSpace(&self.socket),
            false => Interest::Bytes(&self.socket),
        }
    }
}

impl Drop for TlsConnection {
    /// Says to the server that nothing more is sent, if the kernel takes that now.
    fn drop(&mut self) {
        if !self.session.is_handshaking() {
            self.session.send_close_notify();
            let _ = self.flush();
        }
    }
}

/// A socket, as rustls reads and writes it.
struct OnSocket<'a>(&'a Socket);

impl Read for OnSocket<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.receive(bytes)
    }
}

impl Write for OnSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why TLS has failed.
#[derive(Debug)]
struct Refusal(rustls::Error);

impl std::error::Error for Refusal {}

fn refusal(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Refusal(error))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = match &self.0 {
            rustls::Error::InvalidCertificate(error) => error,
            rustls::Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => return f.write_str("an answer that is not TLS"),
            rustls::Error::AlertReceived(alert) => return write!(f, "the TLS alert {alert:?}"),
            error => return write!(f, "the TLS error \"{error}\""),
        };
        match error {
            CertificateError::NotValidForNameContext { presented, .. } => {
                f.write_str("a certificate that is not valid for that name")?;
                for (index, name) in presented.iter().take(MAX_NAMES).enumerate() {
                    let before = if index == 0 { ", but for" } else { "," };
                    // `DnsName("a")` or `IpAddress(1.2.3.4)`.
                    let inside = name.split_once('(').map_or(&**name, |(_, inside)| inside);
                    let name = inside.trim_matches(['(', ')', '"']);
                    write!(f, "{before} {}", name.escape_debug())?;
                }
                match presented.len() > MAX_NAMES {
                    true => f.write_str(", …"),
                    false => Ok(()),
                }
            }
            CertificateError::ExpiredContext { time, not_after } => {
                let seconds = time.as_secs().saturating_sub(not_after.as_secs());
                let days = seconds / (24 * 60 * 60);
                write!(f, "a certificate that expired {days} days ago")
            }
            CertificateError::NotValidYetContext { .. } => {
                f.write_str("a certificate that is not valid yet")
            }
            // The second one comes of an issuer with a trusted name and another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                f.write_str("a certificate that no trusted issuer has signed")
            }
            error => write!(f, "a certificate that is not valid: {error}"),
        }
    }
}
