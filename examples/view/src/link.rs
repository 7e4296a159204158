//! Where this server and the Firefox Profiler are, and the link that brings them together.

use std::error::Error;

use hyper::header::HeaderValue;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// The path of the profile below the token.
pub(crate) const PROFILE: &str = "profile.json";

/// A secret part of a path.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Token(String);

impl Token {
    /// Returns 128 random bits of the system, in hexadecimal digits.
    pub(crate) fn random() -> Result<Self, Box<dyn Error>> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| format!("cannot make a token: {error}"))?;
        Ok(Self(format!("{:032x}", u128::from_ne_bytes(bytes))))
    }

    pub(crate) fn is(&self, text: &str) -> bool {
        self.0 == text
    }
}

/// The scheme, host and port of the Firefox Profiler, which every browser names in its requests.
#[derive(Clone, Debug)]
pub(crate) struct Origin(HeaderValue);

impl Default for Origin {
    fn default() -> Self {
        Self(HeaderValue::from_static("https://profiler.firefox.com"))
    }
}

impl Origin {
    pub(crate) fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let origin = text.trim_end_matches('/');
        let host = origin.strip_prefix("https://");
        let host = host.or_else(|| origin.strip_prefix("http://"));
        let is_in_host = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
        match host {
            Some(host) if !host.is_empty() && host.chars().all(is_in_host) => {
                Ok(Self(HeaderValue::from_str(origin)?))
            }
            _ => Err(
                format!("--profiler: got {text:?}, expected https://HOST or http://HOST").into(),
            ),
        }
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("an origin is ASCII")
    }
}

/// A time of the profile as the Firefox Profiler's address has it: `4920123u81000` is from 4,920,123 µs
/// on, for 81,000 µs. The unit may also be `m` for ms, or `n` for ns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range(String);

impl Range {
    pub(crate) fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        // The text next to a dump has this prefix.
        let text = text.strip_prefix("range=").unwrap_or(text);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match text.split_once(['m', 'u', 'n']) {
            Some((start, length)) if is_number(start) && is_number(length) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(format!(
                "--range: got {text:?}, expected a start and a length such as 4920123u81000"
            )
            .into()),
        }
    }
}

/// The first version of the viewer's address that has ranges of this form.
const ADDRESS_VERSION: &str = "&v=5";

/// The port of this server and the token that all its paths begin with.
#[derive(Debug)]
pub(crate) struct Address {
    port: u16,
    token: Token,
}

impl Address {
    pub(crate) fn new(port: u16, token: Token) -> Self {
        Self { port, token }
    }

    /// Returns whether a `Host` header names this server.
    pub(crate) fn is_host(&self, host: &str) -> bool {
        let name = host.strip_suffix(&format!(":{}", self.port));
        name.is_some_and(|name| name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost"))
    }

    /// Returns the part of a path below the token, or `None` if the path lacks the token.
    pub(crate) fn below_token<'path>(&self, path: &'path str) -> Option<&'path str> {
        let (token, rest) = path.strip_prefix('/')?.split_once('/')?;
        self.token.is(token).then_some(rest)
    }

    pub(crate) fn url_of(&self, token: &Token) -> String {
        format!("http://127.0.0.1:{}/{}", self.port, token.0)
    }

    /// Returns the link that opens the profile in the Firefox Profiler, with this server's symbols.
    /// The viewer first shows the range, or all.
    pub(crate) fn link(&self, profiler: &Origin, range: Option<&Range>) -> String {
        let base = self.url_of(&self.token);
        let profile = format!("{base}/{PROFILE}");
        let encode = |url| utf8_percent_encode(url, NON_ALPHANUMERIC).to_string();
        let (profile, base) = (encode(&profile), encode(&base));
        let range = range.map(|Range(range)| format!("&range={range}{ADDRESS_VERSION}"));
        format!(
            "{}/from-url/{profile}/?symbolServer={base}{}",
            profiler.text(),
            range.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        Address::new(4321, Token("5ec7e7".to_owned()))
    }

    #[test]
    fn link_names_profile_and_symbol_server() {
        assert_eq!(
            address().link(&Origin::default(), None),
            "https://profiler.firefox.com/from-url/http%3A%2F%2F127%2E0%2E0%2E1%3A4321%2F5ec7e7%2F\
             profile%2Ejson/?symbolServer=http%3A%2F%2F127%2E0%2E0%2E1%3A4321%2F5ec7e7"
        );
    }

    #[test]
    fn link_has_the_range_and_its_version() {
        for text in ["4920123u81000", "range=4920123u81000"] {
            let range = Range::parse(text).expect(text);
            let link = address().link(&Origin::default(), Some(&range));
            assert!(link.ends_with("5ec7e7&range=4920123u81000&v=5"), "{link}");
        }
        for text in [
            "",
            "u",
            "12",
            "12s3",
            "12u",
            "u3",
            "1.5m2",
            "-1m2",
            "1m2&thread=3",
        ] {
            let error = Range::parse(text).expect_err(text).to_string();
            assert!(error.starts_with("--range: got "), "{error}");
        }
    }

    #[test]
    fn host_is_this_machine_with_the_port() {
        for host in ["127.0.0.1:4321", "localhost:4321", "LOCALHOST:4321"] {
            assert!(address().is_host(host), "{host}");
        }
        for host in [
            "",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1:4321:4321",
            "127.0.0.1.evil.example:4321",
            "evil.example:4321",
            "evil.example",
            "localhost.:4321",
        ] {
            assert!(!address().is_host(host), "{host}");
        }
    }

    #[test]
    fn path_without_the_token_is_unknown() {
        let address = address();
        assert_eq!(
            address.below_token("/5ec7e7/profile.json"),
            Some("profile.json")
        );
        for path in [
            "",
            "/",
            "/profile.json",
            "/5ec7e7",
            "/5ec7e/profile.json",
            "/5ec7e7a/profile.json",
            "//5ec7e7/profile.json",
            "/a/5ec7e7/profile.json",
            "5ec7e7/profile.json",
            "*",
        ] {
            assert_eq!(address.below_token(path), None, "{path}");
        }
    }

    #[test]
    fn tokens_are_long_and_differ() {
        let [one, other] = [(); 2].map(|()| Token::random().expect("a token"));
        assert_ne!(one, other);
        assert_eq!(one.0.len(), 32);
    }

    #[test]
    fn origin_has_no_path() {
        for text in ["http://localhost:4242", "https://profiler.example/"] {
            let origin = Origin::parse(text).expect(text);
            assert_eq!(origin.text(), text.trim_end_matches('/'));
        }
        for text in [
            "",
            "localhost:4242",
            "https://",
            "https://a/b",
            "https://a b",
            "file:///a",
        ] {
            assert!(Origin::parse(text).is_err(), "{text}");
        }
    }
}
