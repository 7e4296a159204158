//! Where the server listens, and who may ask.

use std::net::{IpAddr, SocketAddr};

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
    pub(super) fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Returns whether this is the token. Takes as long for a wrong one as for the right one.
    pub(super) fn is_token(&self, given: &str) -> bool {
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
pub(super) fn is_local_host(host: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

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
