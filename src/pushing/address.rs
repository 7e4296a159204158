//! The address of a server.

use crate::types::PushError;

const ACCEPTED: &str =
    "http://HOST, http://HOST:PORT or http://HOST:PORT/PATH, without a user, a query or spaces";
const NO_TLS: &str =
    "the cargo feature `push-tls` of gekkota, or an address that begins with http://";

/// Where to connect, and what a request says about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    /// A name, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The value of `Host`.
    pub(super) authority: String,
    /// The path to which the path of a request is appended: empty, or with a slash at its beginning
    /// but not at its end.
    pub(super) path: String,
    /// Whether the address begins with `https://`.
    pub(super) is_encrypted: bool,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// [`PushError::BadUrl`]
    pub(super) fn parse(url: &str) -> Result<Self, PushError> {
        let url = url.trim();
        let after = |scheme: &str| {
            let start = url.get(..scheme.len())?;
            let is_it = start.eq_ignore_ascii_case(scheme);
            is_it.then_some(&url[scheme.len()..])
        };
        let (scheme, rest, default_port) = match (after("https://"), after("http://")) {
            (Some(_), _) if !cfg!(feature = "push-tls") => return Err(bad("https://…", NO_TLS)),
            (Some(rest), _) => ("https", rest, 443),
            (None, Some(rest)) => ("http", rest, 80),
            (None, None) => return Err(bad(&without_scheme(url), ACCEPTED)),
        };
        let shown = &*format!("{scheme}://{}", without_secrets(rest));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"@?#\"<>\\^`{|}".contains(&byte);
        if !rest.bytes().all(is_plain) {
            return Err(bad(shown, ACCEPTED));
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) =
            split_port(authority, default_port).ok_or_else(|| bad(shown, ACCEPTED))?;
        Ok(Self {
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            path: path.trim_end_matches('/').to_owned(),
            is_encrypted: scheme == "https",
        })
    }

    /// Returns the address without its path, as errors show it.
    pub(super) fn server(&self) -> String {
        match self.is_encrypted {
            true => format!("https://{}", self.authority),
            false => self.authority.clone(),
        }
    }
}

/// Returns what an error may show: a user, a password, a path or a query may be secret.
fn without_secrets(url: &str) -> String {
    let is_shown = |byte: char| byte.is_ascii_alphanumeric() || "-._:[]".contains(byte);
    match url.find(|byte| !is_shown(byte)) {
        _ if url.contains('@') => "…@…".to_owned(),
        Some(at) => format!("{}…", &url[..at]),
        None => url.to_owned(),
    }
}

/// Returns what an error may show of a text without a scheme. It is shown whole only if it is a name
/// and a port: the text may be a secret that was meant for another variable.
fn without_scheme(text: &str) -> String {
    const MAX_NAME: usize = 40;
    const SHOWN: usize = 3;
    let parts = text.rsplit_once(':');
    let is_server = parts.is_some_and(|(name, port)| {
        name.len() <= MAX_NAME
            && !name.contains(':')
            && name.bytes().any(|byte| byte.is_ascii_alphabetic())
            && port.parse::<u16>().is_ok()
    });
    match is_server {
        true => without_secrets(text),
        false if text.is_empty() => String::new(),
        false => format!("{}…", text.chars().take(SHOWN).collect::<String>()),
    }
}

fn bad(url: &str, accepted: &'static str) -> PushError {
    PushError::BadUrl {
        url: url.to_owned(),
        accepted,
    }
}

fn split_port(authority: &str, default_port: u16) -> Option<(&str, u16)> {
    let (host, after) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => match authority.find(':') {
            Some(at) => authority.split_at(at),
            None => (authority, ""),
        },
    };
    let is_named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_named) {
        return None;
    }
    let port = match after.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        Some(_) => return None,
        None if after.is_empty() => default_port,
        None => return None,
    };
    (port != 0).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_host_port_and_path() {
        for (url, host, port, authority, path) in [
            ("http://a", "a", 80, "a", ""),
            (" HTTP://a:4040/ ", "a", 4040, "a:4040", ""),
            ("http://a.b:1/x/y//", "a.b", 1, "a.b:1", "/x/y"),
            ("http://[::1]:80/x", "::1", 80, "[::1]:80", "/x"),
        ] {
            let expected = Address {
                host: host.to_owned(),
                port,
                authority: authority.to_owned(),
                path: path.to_owned(),
                is_encrypted: false,
            };
            assert_eq!(Address::parse(url).expect(url), expected);
        }
    }

    #[test]
    #[cfg(feature = "push-tls")]
    fn encrypted_address_has_another_default_port() {
        for (url, port) in [("https://a/x", 443), ("HTTPS://a:80/x", 80)] {
            let address = Address::parse(url).expect(url);
            assert!(address.is_encrypted && address.path == "/x", "{url}");
            assert_eq!((&*address.host, address.port), ("a", port));
        }
    }

    #[test]
    #[cfg(not(feature = "push-tls"))]
    fn encrypted_address_needs_a_feature() {
        let error = Address::parse("HTTPS://a/hidden").expect_err("no TLS");
        let words = error.to_string();
        assert!(
            words.contains("`push-tls`") && !words.contains("hidden"),
            "{words}"
        );
    }

    #[test]
    fn other_addresses_are_refused_with_words() {
        for url in [
            "",
            "a:4040",
            "ftp://a",
            "http://",
            "http:///x",
            "http://:80",
            "http://a:",
            "http://a:x",
            "http://a:+1",
            "http://a:0",
            "http://a:65536",
            "http://a b",
            "http://a/\r\nx: y",
            "http://a/?x=hidden",
            "http://a/hidden x",
            "http://[fe80::1%25lo]",
            "http://a/#x",
            "http://[::1",
            "http://[::1]x",
            "http://a:1:2",
            "http://ä",
            "http://user:hidden@a",
            "https://a:hidden@b",
            "hidden@x",
            "12345:hidden",
            "abc.hidden.abc",
            "abchidden",
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(
                error.starts_with("cannot push profiles: got the address"),
                "{error}"
            );
            assert!(
                error.contains(", expected ") && !error.contains("hidden"),
                "{error}"
            );
        }
    }
}
