//! Requests and answers: who may ask at which address, the head of a request, and what the server
//! sends.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// Maximum size of a request's head, in bytes.
pub(super) const MAX_HEAD_BYTES: usize = 8 << 10;
/// Maximum number of headers.
const MAX_HEADERS: usize = 64;

/// What a client asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    /// Path and query, without the token.
    pub(crate) target: String,
    /// Whether the client wants the headers only.
    pub(crate) is_head: bool,
    /// The token, if it was in the query: a page with links repeats it there.
    pub(crate) token_in_query: Option<String>,
}

fn refuse<T>(status: u16, words: impl AsRef<str>) -> Result<T, HttpAnswer> {
    Err(HttpAnswer::of_words(status, words.as_ref()))
}

/// Reads the head of a request. Returns `None` if its end is missing.
///
/// # Errors
/// The answer for a client that is refused.
pub(super) fn read_head(bytes: &[u8], access: &Access) -> Result<Option<Asked>, HttpAnswer> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return refuse(
                431,
                format!(
                    "cannot answer: got a longer head, expected {MAX_HEAD_BYTES} bytes and \
                     {MAX_HEADERS} headers at most"
                ),
            );
        }
        Err(error) => {
            return refuse(
                400,
                format!("cannot answer: got {error}, expected a request of HTTP/1.1"),
            );
        }
    }
    let method = request.method.unwrap_or("");
    if !matches!(method, "GET" | "HEAD") {
        return refuse(
            405,
            format!("cannot answer: got {method}, expected GET or HEAD"),
        );
    }
    let headers = Headers(request.headers);
    check_origin(&headers, access, request.version == Some(1))?;
    let (target, token_in_query) = without_token(request.path.unwrap_or(""));
    if access.needs_token() {
        let given = headers.one("authorization")?.and_then(bearer);
        let given = given.or(token_in_query.as_deref()).unwrap_or("");
        if !access.is_token(given) {
            return refuse(
                401,
                "cannot answer: got no valid token, expected `Authorization: Bearer TOKEN` or the \
                 parameter `token`",
            );
        }
    }
    let length = headers.one("content-length")?.unwrap_or("0");
    if length.trim() != "0" || headers.one("transfer-encoding")?.is_some() {
        return refuse(413, "cannot answer: got a body, expected none");
    }
    if !target.starts_with('/') {
        return refuse(
            400,
            format!("cannot answer: got the target {target:?}, expected a path"),
        );
    }
    Ok(Some(Asked {
        target,
        is_head: method == "HEAD",
        token_in_query,
    }))
}

/// Refuses what a browser sends for a page of another site. Such a page cannot read an answer, but
/// its request would cost the program a session; and by a name of its own that leads to this
/// machine, it could read it.
fn check_origin(headers: &Headers<'_>, access: &Access, is_new: bool) -> Result<(), HttpAnswer> {
    let host = headers.one("host")?;
    if is_new && host.is_none() {
        return refuse(400, "cannot answer: got no `Host`, expected one");
    }
    if !access.needs_token() && host.is_some_and(|host| !is_local_host(host)) {
        return refuse(
            403,
            "cannot answer: got another `Host`, expected localhost or a loopback address, unless \
             MOZ_PROFILER_HTTP_TOKEN is set",
        );
    }
    let site = headers.one("sec-fetch-site")?.unwrap_or("none");
    let mut is_foreign = !matches!(site, "none" | "same-origin");
    let own = host.map(|host| format!("http://{host}"));
    // The address of a page, or only its origin.
    let is_own = |page: &str| {
        let rest = own.as_deref().and_then(|own| page.strip_prefix(own));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    for name in ["origin", "referer"] {
        is_foreign |= headers.one(name)?.is_some_and(|page| !is_own(page));
    }
    if is_foreign {
        return refuse(
            403,
            "cannot answer: got a request of another site's page, expected one that the user has \
             typed, or that a page of this server makes",
        );
    }
    Ok(())
}

/// The headers of a request.
struct Headers<'a>(&'a [httparse::Header<'a>]);

impl<'a> Headers<'a> {
    /// Returns the value of a header that may occur once.
    fn one(&self, name: &str) -> Result<Option<&'a str>, HttpAnswer> {
        let mut named = self
            .0
            .iter()
            .filter(|header| header.name.eq_ignore_ascii_case(name));
        let first = named.next();
        let value = first.map(|header| std::str::from_utf8(header.value));
        match (value.transpose(), named.next()) {
            (Ok(value), None) => Ok(value.map(str::trim)),
            _ => refuse(
                400,
                format!("cannot answer: got a bad `{name}`, expected one value"),
            ),
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// Splits the parameter `token` from a target.
fn without_token(target: &str) -> (String, Option<String>) {
    let Some((path, query)) = target.split_once('?') else {
        return (target.to_owned(), None);
    };
    let (mut rest, mut token) = (Vec::new(), None);
    for pair in query.split('&') {
        match pair.strip_prefix("token=") {
            Some(value) => token = Some(value.to_owned()),
            None => rest.push(pair),
        }
    }
    let rest = rest.join("&");
    let target = match rest.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{rest}"),
    };
    (target, token)
}

/// Minimum length of a token, so that it cannot be guessed.
const MIN_TOKEN_CHARS: usize = 16;

/// The address of the server, and the secret that a request must carry.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(super) address: SocketAddr,
    token: Option<String>,
}

impl Access {
    /// Reads the values of the variables.
    ///
    /// # Errors
    /// A description of the bad value. An address that other machines can reach needs a token.
    pub(super) fn new(address: &str, token: Option<&str>) -> Result<Self, String> {
        let parsed = parse_address(address.trim()).ok_or_else(|| {
            format!(
                "got {address:?} for MOZ_PROFILER_HTTP, expected an address with a port, such as \
                 127.0.0.1:6060, or a port"
            )
        })?;
        // The value is a secret, so the message does not repeat it.
        if token.is_some_and(|token| !is_good_token(token)) {
            return Err(format!(
                "got another value for MOZ_PROFILER_HTTP_TOKEN, expected {MIN_TOKEN_CHARS} or more \
                 letters, digits or characters of -._~"
            ));
        }
        if token.is_none() && !parsed.ip().is_loopback() {
            return Err(format!(
                "got the address {parsed} without a token, expected MOZ_PROFILER_HTTP_TOKEN, or a \
                 loopback address such as 127.0.0.1"
            ));
        }
        Ok(Self {
            address: parsed,
            token: token.map(str::to_owned),
        })
    }

    /// Returns whether a request must carry a token.
    fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Returns whether this is the token. Takes as long for a wrong one as for the right one.
    fn is_token(&self, given: &str) -> bool {
        let Some(token) = &self.token else {
            return false;
        };
        let (token, given) = (token.as_bytes(), given.as_bytes());
        let mut difference = token.len() ^ given.len();
        for (at, byte) in token.iter().enumerate() {
            let other = given.get(at).copied().unwrap_or(0);
            difference = std::hint::black_box(difference | usize::from(byte ^ other));
        }
        difference == 0
    }
}

fn parse_address(text: &str) -> Option<SocketAddr> {
    if let Ok(port) = text.parse::<u16>() {
        return Some((IpAddr::from([127, 0, 0, 1]), port).into());
    }
    match text.strip_prefix("localhost:") {
        Some(port) => parse_address(port),
        None => text.parse().ok(),
    }
}

fn is_good_token(token: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    token.len() >= MIN_TOKEN_CHARS && token.bytes().all(is_good)
}

/// Returns whether a browser sends this `Host` only for an address that the user has typed as a
/// number or as `localhost`. A page of a stranger can let its own name lead to this machine, but
/// not these.
fn is_local_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        // An address of version 6 without brackets.
        _ if host.parse::<IpAddr>().is_ok() => host,
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let inside = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    // Linux connects 0.0.0.0 to loopback, and some browsers let any page do so.
    let is_loopback = |address: IpAddr| address.is_loopback();
    inside.eq_ignore_ascii_case("localhost") || inside.parse().is_ok_and(is_loopback)
}

/// An answer for a client.
#[derive(Clone, Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpAnswer {
    /// Creates an answer in plain text, usually the reason why a request is refused.
    pub(crate) fn of_words(status: u16, words: &str) -> Self {
        let mut headers = vec![
            ("Content-Type", "text/plain; charset=utf-8".to_owned()),
            ("X-Content-Type-Options", "nosniff".to_owned()),
            ("Cache-Control", "no-store".to_owned()),
            // Without it, `go tool pprof` does not print the words.
            ("X-Go-Pprof", "1".to_owned()),
        ];
        match status {
            401 => headers.push(("WWW-Authenticate", "Bearer".to_owned())),
            405 => headers.push(("Allow", "GET, HEAD".to_owned())),
            _ => {}
        }
        Self {
            status,
            headers,
            body: format!("{words}\n").into_bytes(),
        }
    }

    /// Returns the status line and the headers. `is_head`: no body follows.
    pub(super) fn head(&self, is_head: bool) -> String {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if self.status == 503 {
            head += "Retry-After: 1\r\n";
        }
        if !is_head {
            let _ = write!(head, "Content-Length: {}\r\n", self.body.len());
        }
        // The address may hold the token, and pages have links to other sites.
        head + "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn local() -> Access {
        Access::new("127.0.0.1:6060", None).expect("valid")
    }

    fn with_token() -> Access {
        Access::new("0.0.0.0:6060", Some(TOKEN)).expect("valid")
    }

    fn asked(target: &str) -> Asked {
        Asked {
            target: target.to_owned(),
            is_head: false,
            token_in_query: None,
        }
    }

    fn read(head: &str, access: &Access) -> Option<Asked> {
        read_head(head.as_bytes(), access).expect("no refusal")
    }

    fn status(head: &str, access: &Access) -> u16 {
        match read_head(head.as_bytes(), access) {
            Ok(None) => 0,
            Err(refusal) => {
                let words = String::from_utf8(refusal.body).expect("UTF-8");
                assert!(words.contains(", expected "), "{words}");
                refusal.status
            }
            Ok(Some(_)) => 200,
        }
    }

    #[test]
    fn request_is_read_once_it_is_whole() {
        let text = "GET /debug/pprof/?seconds=1 HTTP/1.1\r\nHost: localhost:6060\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(read(&text[..end], &local()), None, "{end}");
        }
        let expected = asked("/debug/pprof/?seconds=1");
        assert_eq!(read(text, &local()), Some(expected));
        let head = read(&text.replace("GET", "HEAD"), &local());
        assert!(head.expect("whole").is_head);
    }

    #[test]
    fn other_requests_are_refused_with_words() {
        let host = "Host: 127.0.0.1\r\n";
        for (head, expected) in [
            ("GET / HTTP/1.0\r\n\r\n".to_owned(), 200),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
            (format!("GET / HTTP/1.1\r\n{host}{host}\r\n"), 400),
            (format!("GET x HTTP/1.1\r\n{host}\r\n"), 400),
            ("\u{16}\u{3}\u{1}\0\u{1}".to_owned(), 400),
            (format!("POST / HTTP/1.1\r\n{host}\r\n"), 405),
            (
                format!("GET / HTTP/1.1\r\n{host}Content-Length: 9999999999\r\n\r\n"),
                413,
            ),
            (
                format!("GET / HTTP/1.1\r\n{host}Content-Length: 0\r\n\r\n"),
                200,
            ),
            (
                format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"),
                413,
            ),
            (
                format!(
                    "GET / HTTP/1.1\r\n{host}{}\r\n",
                    "a: b\r\n".repeat(MAX_HEADERS)
                ),
                431,
            ),
            (format!("GET /{}", "x".repeat(MAX_HEAD_BYTES)), 431),
        ] {
            assert_eq!(status(&head, &local()), expected, "{head:?}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        for (headers, expected) in [
            ("Host: evil.example:6060", 403),
            ("Host: localhost:6060\r\nSec-Fetch-Site: none", 200),
            ("Host: localhost:6060\r\nSec-Fetch-Site: same-origin", 200),
            (
                "Host: localhost:6060\r\nReferer: http://localhost:6060/debug/",
                200,
            ),
            (
                "Host: localhost:6060\r\nReferer: http://localhost:6060",
                200,
            ),
            ("Host: localhost:6060\r\nReferer: http://example.com/", 403),
            (
                "Host: localhost:6060\r\nReferer: http://localhost:60601/",
                403,
            ),
            ("Host: 0.0.0.0:6060", 403),
            ("Host: localhost:6060\r\nSec-Fetch-Site: same-site", 403),
            ("Host: localhost:6060\r\nSec-Fetch-Site: cross-site", 403),
            ("Host: localhost:6060\r\nOrigin: http://localhost:6060", 200),
            ("Host: localhost:6060\r\nOrigin: https://evil.example", 403),
            ("Host: localhost:6060\r\nOrigin: null", 403),
        ] {
            let head = format!("GET / HTTP/1.1\r\n{headers}\r\n\r\n");
            assert_eq!(status(&head, &local()), expected, "{headers}");
        }
    }

    #[test]
    fn token_is_taken_from_the_header_or_the_query() {
        let access = with_token();
        let get = |target: &str, headers: &str| {
            format!("GET {target} HTTP/1.1\r\nHost: name.example\r\n{headers}\r\n")
        };
        assert_eq!(status(&get("/", ""), &access), 401);
        assert_eq!(status(&get("/?token=wrong", ""), &access), 401);
        assert_eq!(
            status(
                &get("/", "Authorization: Basic 0123456789abcdef\r\n"),
                &access
            ),
            401
        );
        let header = format!("authorization: bearer {TOKEN}\r\n");
        assert_eq!(
            read(&get("/a?b=c", &header), &access),
            Some(asked("/a?b=c"))
        );
        for (target, rest) in [
            (format!("/a?token={TOKEN}"), "/a"),
            (
                format!("/a?seconds=1&token={TOKEN}&hz=2"),
                "/a?seconds=1&hz=2",
            ),
        ] {
            let expected = Asked {
                token_in_query: Some(TOKEN.to_owned()),
                ..asked(rest)
            };
            assert_eq!(read(&get(&target, ""), &access), Some(expected));
        }
    }

    #[test]
    fn address_is_loopback_unless_there_is_a_token() {
        for (text, expected) in [
            ("127.0.0.1:6060", "127.0.0.1:6060"),
            ("6060", "127.0.0.1:6060"),
            (" localhost:0 ", "127.0.0.1:0"),
            ("[::1]:80", "[::1]:80"),
            ("127.9.9.9:1", "127.9.9.9:1"),
        ] {
            let access = Access::new(text, None).expect(text);
            assert_eq!(access.address.to_string(), expected);
            assert!(!access.needs_token() && !access.is_token(""));
        }
        for text in [
            "0.0.0.0:6060",
            "[::]:6060",
            "10.0.0.1:80",
            "[::ffff:127.0.0.1]:1",
        ] {
            let error = Access::new(text, None).expect_err(text);
            assert!(error.contains("without a token"), "{error}");
            assert!(Access::new(text, Some(TOKEN)).expect(text).needs_token());
        }
        for text in [
            "",
            ":6060",
            "127.0.0.1",
            "example.com:80",
            "65536",
            "1",
            "1.2.3.4:x",
        ] {
            let read = Access::new(text, None);
            assert_eq!(read.is_ok(), text == "1", "{text}");
        }
    }

    #[test]
    fn token_is_long_and_needs_no_escape() {
        for bad in [
            "",
            "short",
            "0123456789abcde",
            "0123456789abcdef&",
            "0123456789 abcdef",
        ] {
            let error = Access::new("1", Some(bad)).expect_err(bad);
            assert!(error.contains("16 or more"), "{error}");
        }
        let access = Access::new("1", Some(TOKEN)).expect("good");
        assert!(access.is_token(TOKEN));
        for wrong in [
            "",
            "0123456789abcdee",
            "0123456789abcde",
            "0123456789abcdef0",
        ] {
            assert!(!access.is_token(wrong), "{wrong}");
        }
    }

    #[test]
    fn names_that_a_stranger_can_own_are_not_local() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "LOCALHOST:6060",
            "[::1]:6060",
            "[::1]",
            "::1",
        ] {
            assert!(is_local_host(host), "{host}");
        }
        for host in [
            "",
            "example.com",
            "example.com:80",
            "localhost.example.com",
            "127.0.0.1.example.com:1",
            "0.0.0.0:6060",
            "[::]:6060",
            "10.0.0.1",
            "[x]",
        ] {
            assert!(!is_local_host(host), "{host}");
        }
    }
}
