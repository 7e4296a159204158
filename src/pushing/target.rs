//! The server: its address, and the requests that it takes.
//!
//! Pyroscope's `/ingest` takes the service and its labels in the query, the profile and the units of
//! its values in a form. A collector of OpenTelemetry takes a message.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::pushing::queue::Item;
#[cfg(feature = "otlp-unstable")]
use crate::pushing::rejection::{Rejection, read_rejection};
use crate::session::{WindowFormat, WrittenWindow, service_name};
use crate::types::{PushError, PushProtocol, PushSecret, PushSettings};

/// The description of a profile's values for the store: their names, and their units.
const VALUES: &str = concat!(
    r#"{"samples":{"units":"samples","aggregation":"sum","display-name":"samples"},"#,
    r#""wall":{"units":"nanoseconds","aggregation":"sum","display-name":"wall"},"#,
    r#""cpu":{"units":"nanoseconds","aggregation":"sum","display-name":"cpu"}}"#,
);

/// The bytes that a query's value has only with an escape.
const NOT_IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A server, and what each request to it says.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: Address,
    /// Headers with the secret and the tenant.
    private_headers: String,
    service: String,
    labels: Vec<(String, String)>,
    protocol: PushProtocol,
}

impl Target {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`PushError::BadUrl`] or [`PushError::BadValue`]
    pub(super) fn new(settings: &PushSettings) -> Result<Self, PushError> {
        let mut private_headers = String::new();
        if let Some(secret) = &settings.secret {
            let value = authorization(secret).ok_or_else(|| PushError::BadValue {
                field: "the secret",
                value: "a character that is not allowed".to_owned(),
                accepted: "printable ASCII characters, and no colon in the user",
            })?;
            private_headers += &format!("Authorization: {value}\r\n");
        }
        if let Some(tenant) = &settings.tenant {
            if tenant.is_empty() || !tenant.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(bad_value("tenant", tenant, "printable ASCII characters"));
            }
            private_headers += &format!("X-Scope-OrgID: {tenant}\r\n");
        }
        Ok(Self {
            address: Address::parse(&settings.url)?,
            private_headers,
            service: checked_service(settings)?,
            labels: checked_labels(settings)?,
            protocol: settings.protocol,
        })
    }

    /// Returns how a window with this id is written.
    #[cfg_attr(
        not(feature = "otlp-unstable"),
        expect(unused_variables, reason = "pprof has no id")
    )]
    pub(super) fn format(&self, id: &str) -> WindowFormat {
        match self.protocol {
            PushProtocol::Pyroscope => WindowFormat::Pprof,
            #[cfg(feature = "otlp-unstable")]
            PushProtocol::Otlp => {
                let service = ("service.name".to_owned(), self.service.clone());
                let labels = self.labels.iter().cloned();
                WindowFormat::Otlp(crate::export::OtlpResource {
                    attributes: std::iter::once(service).chain(labels).collect(),
                    id: u128::from_str_radix(id, 16).unwrap_or(1),
                })
            }
        }
    }

    /// Returns whether the body of an answer says more than its status.
    pub(super) fn reads_answers(&self) -> bool {
        match self.protocol {
            PushProtocol::Pyroscope => false,
            #[cfg(feature = "otlp-unstable")]
            PushProtocol::Otlp => true,
        }
    }

    /// Returns how many profiles a collector has rejected in an answer with this body, and why.
    #[cfg(feature = "otlp-unstable")]
    pub(super) fn rejection(&self, body: &[u8]) -> Option<Rejection> {
        match self.protocol {
            PushProtocol::Pyroscope => None,
            PushProtocol::Otlp => read_rejection(body),
        }
    }

    /// Returns the request for a window.
    pub(super) fn item(&self, id: String, window: WrittenWindow) -> Item {
        match self.protocol {
            PushProtocol::Pyroscope => self.pyroscope_item(id, window),
            #[cfg(feature = "otlp-unstable")]
            PushProtocol::Otlp => Item {
                from_ns: window.from_ns,
                id,
                target: "/v1development/profiles".to_owned(),
                content_type: "application/x-protobuf".to_owned(),
                body: window.content,
            },
        }
    }

    fn pyroscope_item(&self, id: String, window: WrittenWindow) -> Item {
        let hz = (1.0 / window.interval.as_secs_f64()).round().max(1.0) as u64;
        let full_name = self.full_name();
        let name = utf8_percent_encode(&full_name, NOT_IN_QUERY);
        let (from, until) = (window.from_ns, window.until_ns);
        let target = format!(
            "/ingest?name={name}&from={from}&until={until}&format=pprof&sampleRate={hz}&spyName=gekkota"
        );
        let boundary = format!("gekkota-{id}");
        let mut body = Vec::with_capacity(window.content.len() + 1024);
        for (field, file, kind, content) in [
            (
                "profile",
                "profile.pprof",
                "application/octet-stream",
                &*window.content,
            ),
            (
                "sample_type_config",
                "sample_type_config.json",
                "application/json",
                VALUES.as_bytes(),
            ),
        ] {
            let head = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{field}\"; \
                 filename=\"{file}\"\r\nContent-Type: {kind}\r\n\r\n"
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        Item {
            from_ns: window.from_ns,
            id,
            target,
            content_type: format!("multipart/form-data; boundary={boundary}"),
            body,
        }
    }

    /// Returns `SERVICE{LABEL=VALUE,…}`.
    fn full_name(&self) -> String {
        let labels = self
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let labels: Vec<_> = labels.collect();
        match labels.is_empty() {
            true => self.service.clone(),
            false => format!("{}{{{}}}", self.service, labels.join(",")),
        }
    }

    /// Returns the bytes of a request.
    pub(super) fn request(&self, item: &Item) -> Vec<u8> {
        let Address {
            authority, path, ..
        } = &self.address;
        let (target, id, kind) = (&item.target, &item.id, &item.content_type);
        let (version, length) = (env!("CARGO_PKG_VERSION"), item.body.len());
        let head = format!(
            "POST {path}{target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: gekkota/{version}\r\n\
             {}Content-Type: {kind}\r\nContent-Length: {length}\r\nIdempotency-Key: {id}\r\n\
             Connection: close\r\n\r\n",
            self.private_headers
        );
        [head.as_bytes(), &item.body].concat()
    }
}

fn bad_value(field: &'static str, value: &str, accepted: &'static str) -> PushError {
    PushError::BadValue {
        field,
        value: format!("{value:?}"),
        accepted,
    }
}

fn authorization(secret: &PushSecret) -> Option<String> {
    let is_printable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    match secret {
        PushSecret::Bearer(token) => {
            (!token.is_empty() && is_printable(token)).then(|| format!("Bearer {token}"))
        }
        PushSecret::Basic { user, password } => {
            let pair = format!("{user}:{password}");
            let is_good = !user.contains(':') && !pair.chars().any(char::is_control);
            is_good.then(|| format!("Basic {}", STANDARD.encode(pair)))
        }
    }
}

fn checked_service(settings: &PushSettings) -> Result<String, PushError> {
    const SERVICE: &str = "letters, digits and characters of ._-/";
    let is_of_service = |character: char| character.is_alphanumeric() || "._-/".contains(character);
    match &settings.service {
        Some(name) if !name.is_empty() && name.chars().all(is_of_service) => Ok(name.clone()),
        Some(name) => Err(bad_value("service", name, SERVICE)),
        // The variables and the file's name may have any characters.
        None => {
            let name = service_name();
            let known = |character| match is_of_service(character) {
                true => character,
                false => '_',
            };
            Ok(name.chars().map(known).collect())
        }
    }
}

fn checked_labels(settings: &PushSettings) -> Result<Vec<(String, String)>, PushError> {
    const LABEL: &str = "a name of letters, digits and _ that does not begin with a digit, and a value \
                         without control characters, commas, equals signs, quotes and braces";
    for (name, value) in &settings.labels {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_name = !name.is_empty()
            && name.bytes().all(is_word)
            && !name.starts_with(|first: char| first.is_ascii_digit());
        let is_separator = |character: char| character.is_control() || ",={}\"".contains(character);
        if !is_name || value.is_empty() || value.contains(is_separator) {
            return Err(bad_value("label", &format!("{name}={value}"), LABEL));
        }
    }
    Ok(settings.labels.clone())
}

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
    use std::time::Duration;

    use super::*;
    use crate::pushing::queue::new_id;

    fn settings() -> PushSettings {
        PushSettings::pyroscope("http://host:4040/base/").service("shop/api")
    }

    fn window() -> WrittenWindow {
        WrittenWindow {
            from_ns: 1_700_000_000_000_000_001,
            until_ns: 1_700_000_010_000_000_002,
            interval: Duration::from_millis(10),
            is_complete: true,
            content: b"content".to_vec(),
        }
    }

    #[test]
    fn request_has_the_profile_and_its_times() {
        let settings = settings()
            .label("region", "eu 1")
            .basic_auth("me", "secret")
            .tenant("t1");
        let target = Target::new(&settings).expect("valid");
        let item = target.item(new_id(), window());
        let request = String::from_utf8(target.request(&item)).expect("UTF-8");
        let (head, body) = request.split_once("\r\n\r\n").expect("a head");
        let mut lines = head.lines();
        assert_eq!(
            lines.next(),
            Some(
                "POST /base/ingest?name=shop%2Fapi%7Bregion%3Deu%201%7D&from=1700000000000000001\
                 &until=1700000010000000002&format=pprof&sampleRate=100&spyName=gekkota HTTP/1.1"
            )
        );
        let headers: Vec<_> = lines.collect();
        let length = format!("Content-Length: {}", body.len());
        let key = format!("Idempotency-Key: {}", item.id);
        for header in [
            "Host: host:4040",
            "Authorization: Basic bWU6c2VjcmV0",
            "X-Scope-OrgID: t1",
            &length,
            &key,
        ] {
            assert!(headers.contains(&header), "{header}: {head}");
        }
        assert!(body.contains("\r\n\r\ncontent\r\n--gekkota-"), "{body}");
        assert!(
            !format!("{item:?}").contains("secret"),
            "the item is stored"
        );
        let again = target.item(new_id(), window());
        assert_ne!(again.id, item.id);
    }

    #[test]
    fn bad_settings_are_refused_with_words() {
        for settings in [
            settings().service(""),
            settings().service("a{b}"),
            settings().label("1x", "a"),
            settings().label("", "a"),
            settings().label("x", "a,b=c"),
            settings().label("x", ""),
            settings().tenant("a\r\nb: c"),
            settings().bearer_token("hidden\r\nb: c"),
            settings().bearer_token(""),
            settings().basic_auth("hid:den", "hidden"),
        ] {
            let error = Target::new(&settings).err().expect("refused").to_string();
            assert!(
                error.contains(", expected ") && !error.contains("hidden"),
                "{error}"
            );
        }
    }

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
