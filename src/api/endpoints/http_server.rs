//! A small HTTP server for programs without one.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tiny_http::{Header, Method, Request, Response, Server};

use crate::api::backend;
use crate::api::endpoints::answer::{EndpointAnswer, TEXT};
use crate::api::endpoints::ask::answer;

/// Maximum number of requests whose answers are in progress, beyond the limit of clients: answers of
/// a few words.
const MAX_REQUESTS: usize = 64;

/// A server for the endpoints, for programs without one of their own. Dropping it ends it; requests
/// whose answers are in progress are still answered.
///
/// Needs the cargo feature `http`. With the variable `MOZ_PROFILER_HTTP`,
/// [`profiler_init`](crate::api::life_cycle::profiler_init) starts one for the rest of the program.
///
/// ```no_run
/// let address = "127.0.0.1:6060".parse().expect("an address");
/// let server = gekkota::endpoints::HttpServer::start(address, None)?;
/// println!("curl {}/summary?seconds=5", server.address());
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "dropping it ends the server"]
pub struct HttpServer {
    server: Arc<Server>,
    address: SocketAddr,
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpServer").field(&self.address).finish()
    }
}

impl HttpServer {
    /// Starts a server at this address; port 0 means any free port.
    ///
    /// With a token, a request needs the parameter `token`, or the header `Authorization: Bearer TOKEN`.
    /// Without one, the address must be a loopback address, and a request must name such an address,
    /// so that no page in a browser can read the profile through a name of its own.
    ///
    /// May be called from any thread. Cost: a thread of the profiler, those of `tiny_http`, and one for
    /// each request that is answered. They block all signals.
    ///
    /// # Errors
    /// `InvalidInput` for an address that other machines reach, without a token; otherwise that of the
    /// operating system, if another program uses the address for example.
    pub fn start(address: SocketAddr, token: Option<&str>) -> io::Result<Self> {
        let token = token.filter(|token| !token.is_empty());
        if token.is_none() && !address.ip().is_loopback() {
            let message = format!(
                "cannot serve profiles at {address}: got an address that other machines reach and no \
                 token, expected a loopback address or a token"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let guard = Guard {
            token: token.map(str::to_owned),
        };
        backend::start_quietly(move || {
            let server = Server::http(address).map_err(|error| match error.downcast() {
                Ok(error) => *error,
                Err(error) => io::Error::other(error),
            })?;
            let server = Arc::new(server);
            let address = server.server_addr().to_ip().unwrap_or(address);
            let of_thread = Arc::clone(&server);
            backend::spawn_task(move || serve(&of_thread, guard))?;
            Ok(Self { server, address })
        })
    }

    /// Returns the address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.server.unblock();
    }
}

/// Answers each request on a thread of its own, until the server is dropped.
fn serve(server: &Server, guard: Guard) {
    let guard = Arc::new(guard);
    let in_progress = Arc::new(());
    // An error means that the server was dropped.
    while let Ok(request) = server.recv() {
        if Arc::strong_count(&in_progress) > MAX_REQUESTS {
            // Closes the connection.
            continue;
        }
        let (guard, place) = (Arc::clone(&guard), Arc::clone(&in_progress));
        // Without a thread, the connection is closed.
        let _ = backend::spawn_task(move || {
            let answer = guard.answer(&request);
            respond(request, answer);
            drop(place);
        });
    }
}

fn respond(request: Request, answer: EndpointAnswer) {
    let mut response = Response::from_data(answer.body.as_slice()).with_status_code(answer.status);
    for (name, value) in answer.headers() {
        if let Ok(header) = Header::from_bytes(name.as_bytes(), value.as_bytes()) {
            response.add_header(header);
        }
    }
    // The client may have closed the connection.
    let _ = request.respond(response);
}

/// Decides which requests are answered.
struct Guard {
    token: Option<String>,
}

impl Guard {
    fn answer(&self, request: &Request) -> EndpointAnswer {
        let refuse = |status, text: &str| EndpointAnswer {
            status,
            body: format!("cannot answer: {text}\n").into_bytes(),
            ..EndpointAnswer::new(TEXT, None)
        };
        if !matches!(request.method(), Method::Get | Method::Head) {
            return refuse(405, "got another method, expected GET");
        }
        let header = |name: &'static str| {
            let mut headers = request.headers().iter();
            let found = headers.find(|header| header.field.equiv(name));
            found.map(|header| header.value.as_str())
        };
        let (target, given) = without_token(request.url());
        match &self.token {
            Some(token) => {
                let bearer =
                    header("Authorization").and_then(|value| value.strip_prefix("Bearer "));
                if !bearer.or(given).is_some_and(|given| is_same(given, token)) {
                    return refuse(401, "got no token or a wrong one, expected the server's");
                }
            }
            None if !header("Host").is_none_or(names_loopback) => {
                return refuse(403, "got another host's name, expected a loopback address");
            }
            None => {}
        }
        answer(&target)
    }
}

/// Returns whether two texts are the same, in a time that depends on their lengths only.
fn is_same(one: &str, other: &str) -> bool {
    let differences = one
        .bytes()
        .zip(other.bytes())
        .map(|(one, other)| one ^ other);
    one.len() == other.len() && differences.fold(0, |all, difference| all | difference) == 0
}

/// Returns the target without the parameter `token`, and the value of that.
fn without_token(target: &str) -> (String, Option<&str>) {
    let Some((path, query)) = target.split_once('?') else {
        return (target.to_owned(), None);
    };
    let mut token = None;
    let others = query.split('&').filter(|pair| {
        let value = pair.strip_prefix("token=");
        token = token.or(value);
        value.is_none()
    });
    let others: Vec<_> = others.collect();
    (format!("{path}?{}", others.join("&")), token)
}

/// Returns whether a `Host` header names a loopback address.
fn names_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Reads an address: `localhost` stands for 127.0.0.1, and a port alone for that port there.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let of_port = |port: &str| {
        let port = port.parse().ok()?;
        Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    };
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    let port = port.strip_prefix(':').unwrap_or(port);
    of_port(port).or_else(|| text.parse().ok())
}

/// Starts the server that the variables ask for. It lasts until the process ends.
pub(super) fn serve_for_variables(
    address: &str,
    token: Option<&str>,
) -> Result<SocketAddr, String> {
    let accepted = "an address and a port, such as 127.0.0.1:6060";
    let parsed = parse_address(address)
        .ok_or_else(|| format!("cannot serve profiles: got {address:?}, expected {accepted}"))?;
    let server = HttpServer::start(parsed, token).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => error.to_string(),
        _ => format!("cannot serve profiles at {parsed}: {error}"),
    })?;
    let address = server.address();
    std::mem::forget(server);
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_short_forms() {
        for (text, expected) in [
            ("127.0.0.1:6060", Some("127.0.0.1:6060")),
            ("localhost:6060", Some("127.0.0.1:6060")),
            (":6060", Some("127.0.0.1:6060")),
            ("6060", Some("127.0.0.1:6060")),
            ("[::1]:80", Some("[::1]:80")),
            ("0.0.0.0:80", Some("0.0.0.0:80")),
            ("", None),
            ("127.0.0.1", None),
            ("example.org:80", None),
            ("70000", None),
        ] {
            let address = parse_address(text).map(|address| address.to_string());
            assert_eq!(address.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn only_loopback_hosts_are_accepted() {
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:6060",
            "[::1]:6060",
            "[::1]",
            "127.9.9.9",
        ] {
            assert!(names_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example:6060",
            "10.0.0.1",
            "127.0.0.1.evil",
        ] {
            assert!(!names_loopback(host), "{host}");
        }
    }

    #[test]
    fn token_is_taken_out_of_the_target() {
        assert_eq!(
            without_token("/summary?seconds=1&token=a=b&hz=2"),
            ("/summary?seconds=1&hz=2".to_owned(), Some("a=b"))
        );
        assert_eq!(without_token("/summary"), ("/summary".to_owned(), None));
        assert!(is_same("abc", "abc"));
        assert!(!is_same("abc", "abd") && !is_same("abc", "ab") && !is_same("", "a"));
    }

    #[test]
    fn address_for_other_machines_needs_a_token() {
        let any = "0.0.0.0:0".parse().expect("an address");
        for token in [None, Some("")] {
            let error = HttpServer::start(any, token).expect_err("no token");
            assert!(
                error
                    .to_string()
                    .contains("expected a loopback address or a token")
            );
        }
        assert!(HttpServer::start(any, Some("secret")).is_ok());
    }
}
