//! Profiles that are pushed to addresses that begin with `https://`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::common::{isolated, wait_until};
use crate::push::receiver::{ALWAYS_OK, Receiver, assert_joined};
use crate::push::{Folder, profiles_in, role, settings, wait_for_parent};
use gekkota::push::profiler_push;
use gekkota::{profiler_init, profiler_shutdown};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("a certificate")
}

/// A server with TLS, which passes each request on to one without.
struct Proxy {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    /// Serves `localhost` with a certificate of this authority. It ends with the process.
    fn start(authority: &Authority, receiver: SocketAddr) -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, authority).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key);
        let config = Arc::new(config.expect("a certificate and its key"));
        Self::listen(move |client| {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            let mut client = StreamOwned::new(session, client);
            let mut bytes = vec![0; 8192];
            // The client may refuse the certificate.
            let Ok(mut length) = client.read(&mut bytes) else {
                return;
            };
            let server = TcpStream::connect(receiver).expect("the receiver");
            let (mut to_server, mut from_server) = (server.try_clone().expect("a copy"), server);
            from_server.set_nonblocking(true).expect("set");
            client.sock.set_nonblocking(true).expect("set");
            loop {
                if length > 0 {
                    from_server.set_nonblocking(false).expect("set");
                    to_server.write_all(&bytes[..length]).expect("sent");
                    from_server.set_nonblocking(true).expect("set");
                }
                if let Ok(length) = from_server.read(&mut bytes)
                    && length > 0
                {
                    client.sock.set_nonblocking(false).expect("set");
                    // Without a word that these were all.
                    return client.write_all(&bytes[..length]).expect("sent");
                }
                length = match client.read(&mut bytes) {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        std::thread::sleep(Duration::from_millis(1));
                        0
                    }
                    // The client has left.
                    Ok(0) => return,
                    read => read.expect("a request"),
                };
            }
        })
    }

    fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::<AtomicUsize>::default();
        let (serve, counted) = (Arc::new(serve), Arc::clone(&connections));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, serve) = (client.expect("a connection"), Arc::clone(&serve));
                counted.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || serve(client));
            }
        });
        Self { port, connections }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }
}

#[test]
fn profiles_arrive_by_tls() {
    isolated(|| {
        let authority = authority();
        let receiver = Receiver::start(ALWAYS_OK);
        let proxy = Proxy::start(&authority, receiver.address());
        let folder = Folder::new("push-tls");
        let roots = folder.0.join("roots.pem");
        fs::write(&roots, authority.pem()).expect("written");
        let settings = settings(&proxy.url())
            .root_certificates(&roots)
            .basic_auth("me", "secret");
        let pusher = profiler_push(settings).expect("pushing");
        wait_until("profiles arrive", || receiver.pushed().len() >= 3);
        let counts = pusher.stop();
        assert_eq!(counts.refused, 0);
        let pushed = receiver.pushed();
        assert_joined(&pushed);
        let headers = &pushed[0].headers;
        assert_eq!(headers["authorization"], "Basic bWU6c2VjcmV0");
        assert_eq!(headers["host"], format!("localhost:{}", proxy.port));
    });
}

#[test]
fn certificates_of_the_variable_are_trusted_and_read_again() {
    isolated(|| {
        if role().is_some() {
            profiler_init();
            wait_for_parent();
            return profiler_shutdown();
        }
        let (right, wrong) = (authority(), authority());
        let receiver = Receiver::start(ALWAYS_OK);
        let proxy = Proxy::start(&right, receiver.address());
        let folder = Folder::new("push-tls-variable");
        let roots = folder.0.join("roots.pem");
        fs::write(&roots, wrong.pem()).expect("written");
        let mut child = Command::new(std::env::current_exe().expect("the path of this program"))
            .args(std::env::args().skip(1))
            .env("GEKKOTA_PUSH_ROLE", "child")
            .env("MOZ_PROFILER_PUSH", proxy.url())
            .env("MOZ_PROFILER_PUSH_INTERVAL", "0.1")
            .env("SSL_CERT_FILE", &roots)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        wait_until("the child has refused the certificate twice", || {
            proxy.connections.load(Ordering::SeqCst) >= 2
        });
        assert!(receiver.pushed().is_empty());
        fs::write(&roots, [wrong.pem(), right.pem()].concat()).expect("written");
        wait_until("profiles arrive", || receiver.pushed().len() >= 2);
        drop(child.stdin.take());
        let output = child.wait_with_output().expect("it is a child");
        assert!(output.status.success());
        assert_joined(&receiver.pushed());
        let notices = String::from_utf8(output.stderr).expect("UTF-8");
        let refused = format!(
            "cannot push profiles to {}: got a certificate that no trusted issuer has signed, expected",
            proxy.url()
        );
        assert_eq!(notices.matches(&refused).count(), 1, "{notices}");
        let again = format!("profiles are pushed to {} again", proxy.url());
        assert!(notices.contains(&again), "{notices}");
    });
}

#[test]
fn handshake_that_stalls_does_not_delay_the_end() {
    isolated(|| {
        // It keeps the connection, and never answers.
        let proxy =
            Proxy::listen(|mut client| while matches!(client.read(&mut [0; 64]), Ok(1..)) {});
        let folder = Folder::new("push-tls-stall");
        let (queue, roots) = (folder.0.join("queue"), folder.0.join("roots.pem"));
        fs::write(&roots, authority().pem()).expect("written");
        let settings = settings(&proxy.url()).root_certificates(&roots);
        let pusher = profiler_push(settings.queue_folder(&queue)).expect("pushing");
        wait_until("the server has a connection", || {
            proxy.connections.load(Ordering::SeqCst) > 0
        });
        // The server never ends the handshake, so this would wait for the limit of the connection.
        let begun = Instant::now();
        let counts = pusher.stop();
        println!("ended after {:?}", begun.elapsed());
        assert_eq!(counts.sent, 0);
        wait_until("the profiles wait in the folder", || {
            profiles_in(&queue) >= 1
        });
    });
}
