use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{
    HandshakeKind, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion, version,
};

use super::exchange::{Answer, Exchange, Transport};
use super::target::Address;
use crate::platform::wait_for_sockets;
use crate::types::PushSettings;

type Authority = CertifiedIssuer<'static, KeyPair>;
type ServerStream = StreamOwned<ServerConnection, TcpStream>;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("a certificate")
}

fn params(name: &str) -> CertificateParams {
    CertificateParams::new([name.to_owned()]).expect("a name")
}

/// Returns the settings of a server with a certificate of this authority, or one that it has signed
/// itself.
fn server_config(
    params: CertificateParams,
    authority: Option<&Authority>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let key = KeyPair::generate().expect("a key");
    let certificate = match authority {
        Some(authority) => params.signed_by(&key, authority),
        None => params.self_signed(&key),
    };
    let chain = vec![certificate.expect("a certificate").der().clone()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions");
    let config = config.with_no_client_auth().with_single_cert(chain, key);
    Arc::new(config.expect("a certificate and its key"))
}

fn tls(config: &Arc<ServerConfig>, client: TcpStream) -> ServerStream {
    let session = ServerConnection::new(Arc::clone(config)).expect("a session");
    StreamOwned::new(session, client)
}

/// A file with trusted certificates, which is removed at the end.
struct Roots(PathBuf);

impl Roots {
    fn new(name: &str) -> Self {
        let file = format!("gekkota-tls-{name}-{}.pem", std::process::id());
        Self(std::env::temp_dir().join(file))
    }

    fn of(name: &str, authority: &Authority) -> Self {
        let roots = Self::new(name);
        roots.write(&authority.pem());
        roots
    }

    fn write(&self, text: &str) {
        fs::write(&self.0, text).expect("written");
    }

    /// Returns a transport to `https://localhost` that has read its certificates.
    fn transport(&self) -> Transport {
        let mut transport = self.unread_transport();
        assert!(!is_ready(&transport, Instant::now()));
        transport.renew().expect("certificates");
        transport
    }

    fn unread_transport(&self) -> Transport {
        let url = "https://localhost";
        let settings = PushSettings::pyroscope(url).root_certificates(&self.0);
        Transport::new(&Address::parse(url).expect("an address"), &settings).expect("a name")
    }
}

impl Drop for Roots {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn is_ready(transport: &Transport, now: Instant) -> bool {
    match transport {
        Transport::Tls(client) => client.is_ready(now),
        Transport::Plain => panic!("the address begins with https://"),
    }
}

fn goes_on(exchange: &mut Exchange<'_>) -> io::Result<Answer> {
    // However long it takes on a busy machine.
    let now = Instant::now();
    loop {
        wait_for_sockets(&[exchange.interest()], None).expect("ready");
        if let Some(answer) = exchange.go_on(true, now).transpose() {
            return answer;
        }
    }
}

/// Sends a request to a server that does this with the connection. Returns the answer, whether the
/// request could go to another address after an error, and what the server returns.
fn exchanged<R: Send + 'static>(
    transport: &Transport,
    request: &[u8],
    serve: impl FnOnce(TcpStream) -> R + Send + 'static,
) -> (io::Result<Answer>, bool, R) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || serve(listener.accept().expect("a client").0));
    let mut exchange = begin(transport, address, request);
    let answer = goes_on(&mut exchange);
    let is_connecting = exchange.is_connecting();
    drop(exchange);
    (answer, is_connecting, server.join().expect("no panic"))
}

fn begin<'a>(transport: &Transport, address: SocketAddr, request: &'a [u8]) -> Exchange<'a> {
    Exchange::begin(transport, address, request, true, Instant::now()).expect("a socket")
}

/// Reads a request of this length, answers it, and returns it with the rest that the client sends,
/// and how the handshake was.
fn serve(mut stream: ServerStream, length: usize) -> (Vec<u8>, Option<HandshakeKind>) {
    let mut request = vec![0; length];
    stream.read_exact(&mut request).expect("a request");
    stream.write_all(ANSWER).expect("sent");
    let end = stream.read_to_end(&mut request);
    end.expect("the client says that these were all bytes");
    (request, stream.conn.handshake_kind())
}

#[test]
fn answer_arrives_by_each_version_and_the_next_handshake_is_shorter() {
    let authority = authority();
    let roots = Roots::of("versions", &authority);
    let request: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    for version in [&version::TLS13, &version::TLS12] {
        let config = server_config(params("localhost"), Some(&authority), &[version]);
        let transport = roots.transport();
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let (config, length) = (Arc::clone(&config), request.len());
            let serve = move |client| serve(tls(&config, client), length);
            let (answer, _, (got, was)) = exchanged(&transport, &request, serve);
            assert_eq!(answer.expect("an answer").body, b"body");
            assert!(got == request, "all bytes, and no others");
            assert_eq!(was, Some(kind));
        }
    }
}

#[test]
fn certificate_that_is_not_valid_is_refused_with_words() {
    let (trusted, other) = (authority(), authority());
    let roots = Roots::of("refused", &trusted);
    let mut expired = params("localhost");
    expired.not_after = date_time_ymd(2020, 1, 1);
    let mut early = params("localhost");
    early.not_before = date_time_ymd(4000, 1, 1);
    for (params, authority, words) in [
        (
            params("other.example"),
            Some(&trusted),
            "not valid for that name, but for other.example",
        ),
        (
            params("127.0.0.1"),
            Some(&trusted),
            "not valid for that name",
        ),
        (
            params("localhost"),
            None,
            "that no trusted issuer has signed",
        ),
        (
            params("localhost"),
            Some(&other),
            "that no trusted issuer has signed",
        ),
        (expired, Some(&trusted), "a certificate that expired "),
        (early, Some(&trusted), "a certificate that is not valid yet"),
    ] {
        let config = server_config(params, authority, rustls::ALL_VERSIONS);
        let serve = move |client| {
            let mut got = Vec::new();
            let end = tls(&config, client).read_to_end(&mut got);
            (got, end.expect_err("an alert"))
        };
        let mut transport = roots.transport();
        let (answer, is_connecting, (got, alert)) = exchanged(&transport, b"secret", serve);
        let error = answer.expect_err("refused");
        assert!(error.to_string().contains(words), "{error}");
        assert!(is_connecting, "another address may be tried");
        assert!(got.is_empty(), "no byte of the request");
        // The kernel resets the connection if the client has not read all that the server sent.
        let is_reset = alert.kind() == io::ErrorKind::ConnectionReset;
        assert!(is_reset || alert.to_string().contains("alert"), "{alert}");
        assert!(!transport.note_failure(&io::ErrorKind::TimedOut.into()));
        assert!(is_ready(&transport, Instant::now()));
        assert!(transport.note_failure(&error));
        assert!(!is_ready(&transport, Instant::now()), "it is read again");
    }
}

#[test]
fn server_without_tls_is_refused_with_words() {
    let roots = Roots::of("plain", &authority());
    for (bytes, words) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "an answer that is not TLS",
        ),
        (b"220 mail ready\r\n", "an answer that is not TLS"),
        (b"", "the end of the connection during the TLS handshake"),
        (
            b"\x15\x03\x03\x00\x02\x02\x28",
            "the TLS alert HandshakeFailure",
        ),
    ] {
        let serve = |mut client: TcpStream| {
            let _ = client.read(&mut [0; 8192]).expect("a greeting");
            client.write_all(bytes).expect("sent");
        };
        let (answer, is_connecting, ()) = exchanged(&roots.transport(), b"request", serve);
        let error = answer.expect_err("no answer");
        assert!(error.to_string().contains(words), "{error}");
        assert!(is_connecting);
    }
}

#[test]
fn end_without_notice_loses_no_whole_answer() {
    let authority = authority();
    let roots = Roots::of("end", &authority);
    let config = server_config(params("localhost"), Some(&authority), rustls::ALL_VERSIONS);
    for (bytes, body) in [
        (ANSWER, Some(&b"body"[..])),
        (&ANSWER[..ANSWER.len() - 1], Some(b"")),
        (&ANSWER[..20], None),
    ] {
        let config = Arc::clone(&config);
        let serve = move |client| {
            let mut stream = tls(&config, client);
            stream.read_exact(&mut [0; 7]).expect("a request");
            stream.write_all(bytes).expect("sent");
        };
        let (answer, is_connecting, ()) = exchanged(&roots.transport(), b"request", serve);
        assert!(!is_connecting);
        match (answer, body) {
            (Ok(answer), Some(body)) => assert_eq!(answer.body, body),
            (Err(error), None) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof),
            (answer, _) => panic!("{answer:?}"),
        }
    }
}

/// A connection that passes on its bytes one by one.
struct BytesAlone(TcpStream);

impl Read for BytesAlone {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for BytesAlone {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn bytes_that_arrive_alone_are_an_answer_too() {
    let authority = authority();
    let roots = Roots::of("alone", &authority);
    let config = server_config(params("localhost"), Some(&authority), rustls::ALL_VERSIONS);
    let serve = move |client: TcpStream| {
        client.set_nodelay(true).expect("set");
        let session = ServerConnection::new(config).expect("a session");
        let mut stream = StreamOwned::new(session, BytesAlone(client));
        stream.read_exact(&mut [0; 7]).expect("a request");
        stream.write_all(ANSWER).expect("sent");
    };
    let (answer, ..) = exchanged(&roots.transport(), b"request", serve);
    assert_eq!(answer.expect("an answer").body, b"body");
}

#[test]
fn endless_answer_is_an_error() {
    let authority = authority();
    let roots = Roots::of("endless", &authority);
    let config = server_config(params("localhost"), Some(&authority), rustls::ALL_VERSIONS);
    for head in [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], b"x"] {
        let config = Arc::clone(&config);
        let serve = move |client| {
            let mut stream = tls(&config, client);
            stream.read_exact(&mut [0; 7]).expect("a request");
            while stream.write_all(head).is_ok() {}
        };
        let (answer, ..) = exchanged(&roots.transport(), b"request", serve);
        let error = answer.expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}

#[test]
fn stalled_handshake_ends_like_a_stalled_connection() {
    let roots = Roots::of("stalled", &authority());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let mut exchange = begin(&roots.transport(), address, b"request");
    let (mut client, _) = listener.accept().expect("a client");
    wait_for_sockets(&[exchange.interest()], None).expect("ready");
    let answer = exchange.go_on(true, Instant::now()).expect("no error yet");
    assert_eq!(answer, None);
    assert!(client.read(&mut [0; 8192]).expect("a greeting") > 0);
    let limit = Some(Duration::ZERO);
    let ready = wait_for_sockets(&[exchange.interest()], limit).expect("no error");
    assert_eq!(ready, [false], "it sleeps until the server answers");
    let left = exchange.until().saturating_duration_since(Instant::now());
    assert!(left <= Duration::from_secs(5), "{left:?}");
    let error = exchange
        .go_on(false, exchange.until())
        .expect_err("stalled");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(exchange.is_connecting());
}

#[test]
fn certificates_are_read_once_an_hour_and_kept_if_that_fails() {
    let authority = authority();
    let roots = Roots::new("hour");
    let missing = roots.unread_transport().renew().expect_err("no file");
    let path = roots.0.to_str().expect("UTF-8");
    assert!(missing.to_string().contains(path), "{missing}");
    for text in [
        "",
        "text",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ] {
        roots.write(text);
        let error = roots.unread_transport().renew();
        let error = error.expect_err("no certificate");
        assert!(
            error.to_string().contains("has none in the form of PEM"),
            "{error}"
        );
    }
    // Other things than certificates, and damaged ones, are left out.
    let (key, pem) = (authority.key().serialize_pem(), authority.pem());
    let damaged = pem.replacen("MII", "!!!", 1).replacen("MI", "!!", 1);
    roots.write(&format!("# words\n{key}{damaged}{pem}"));
    let mut transport = roots.transport();
    let (now, hour) = (Instant::now(), Duration::from_secs(3600));
    assert!(is_ready(&transport, now) && !is_ready(&transport, now + hour));
    fs::remove_file(&roots.0).expect("removed");
    let Transport::Tls(client) = &mut transport else {
        panic!("the address begins with https://");
    };
    client.renew(now + hour).expect("those of before");
    assert!(is_ready(&transport, now + hour));
    let config = server_config(params("localhost"), Some(&authority), rustls::ALL_VERSIONS);
    let serve = move |client| serve(tls(&config, client), 7);
    let (answer, ..) = exchanged(&transport, b"request", serve);
    assert_eq!(answer.expect("an answer").status, 200);
}
