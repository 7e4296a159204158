//! Settings of pushing profiles to a store, and the reasons for a refusal.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::types::StartError;
use crate::types::error::NO_PROFILER;

/// How a request proves that it may store profiles.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum PushSecret {
    Bearer(String),
    Basic { user: String, password: String },
}

/// What the server takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PushProtocol {
    Pyroscope,
    #[cfg(feature = "otlp-unstable")]
    Otlp,
}

/// Where profiles are pushed, and how often. See [`profiler_push`](crate::push::profiler_push).
///
/// [`profiler_push`](crate::push::profiler_push) checks them.
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct PushSettings {
    pub(crate) protocol: PushProtocol,
    pub(crate) url: String,
    pub(crate) interval: Duration,
    pub(crate) hz: u32,
    pub(crate) service: Option<String>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) secret: Option<PushSecret>,
    pub(crate) tenant: Option<String>,
    pub(crate) queue_folder: Option<PathBuf>,
    pub(crate) queue_bytes: u64,
    pub(crate) root_certificates: Option<PathBuf>,
}

/// Secrets are left out.
impl fmt::Debug for PushSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("PushSettings");
        #[cfg(feature = "push-tls")]
        text.field("root_certificates", &self.root_certificates);
        text.field("protocol", &self.protocol)
            .field("interval", &self.interval)
            .field("hz", &self.hz)
            .field("service", &self.service)
            .field("labels", &self.labels)
            .field("has_secret", &self.secret.is_some())
            .field("tenant", &self.tenant)
            .field("queue_folder", &self.queue_folder)
            .field("queue_bytes", &self.queue_bytes)
            .finish_non_exhaustive()
    }
}

impl PushSettings {
    /// Returns the settings for a Pyroscope server, or an agent that takes its profiles, at this
    /// address, such as `http://pyroscope:4040`. `/ingest` is added to it, after a path if it has one.
    /// It has no user and no password: see [`Self::basic_auth`].
    ///
    /// An address that begins with `https://` needs the cargo feature `push-tls`. Without it, send
    /// `http://` to an agent on the same machine, and let it encrypt.
    pub fn pyroscope(url: impl Into<String>) -> Self {
        Self {
            protocol: PushProtocol::Pyroscope,
            url: url.into(),
            interval: Duration::from_secs(10),
            hz: 100,
            service: None,
            labels: Vec::new(),
            secret: None,
            tenant: None,
            queue_folder: None,
            queue_bytes: 16 << 20,
            root_certificates: None,
        }
    }

    /// Returns the settings for a collector of OpenTelemetry at this address, such as
    /// `http://localhost:4318`. `/v1development/profiles` is added to it. An address that begins with `https://` needs the cargo feature `push-tls`.
    ///
    /// The format is that of `opentelemetry-proto` 1.11. It is not stable: a collector of another
    /// version may accept a request and keep nothing of it. Labels become attributes of the
    /// resource, and a sample of a span has a link with the ids of trace and span.
    #[cfg(feature = "otlp-unstable")]
    pub fn otlp(url: impl Into<String>) -> Self {
        Self {
            protocol: PushProtocol::Otlp,
            ..Self::pyroscope(url)
        }
    }

    /// Sets the time between two profiles, from 100 ms to 1 hour. Default: 10 seconds.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets the number of samples a second of each thread in a session that the pusher begins itself.
    /// Default: 100; 0 counts as 1. There are fewer while more would take above 1 % of a processor: see
    /// [`StartParams::max_cpu_percent`](crate::StartParams::max_cpu_percent()).
    pub fn hz(mut self, hz: u32) -> Self {
        self.hz = hz;
        self
    }

    /// Sets the name under which the store files the profiles. Default: `OTEL_SERVICE_NAME`, or
    /// `service.name` in `OTEL_RESOURCE_ATTRIBUTES`, or the name of the program.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = Some(name.into());
        self
    }

    /// Adds a label of all profiles, such as `region` or `version`.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Sends this token with each profile, as `Authorization: Bearer`. It is never printed or
    /// stored. Over `http://` it is not encrypted. Replaces an earlier secret.
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.secret = Some(PushSecret::Bearer(token.into()));
        self
    }

    /// Sends this user and password with each profile, as `Authorization: Basic`. They are never
    /// printed or stored. Over `http://` they are not encrypted. Replaces an earlier secret.
    pub fn basic_auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.secret = Some(PushSecret::Basic {
            user: user.into(),
            password: password.into(),
        });
        self
    }

    /// Sets the tenant, which a Pyroscope server for several of them expects (`X-Scope-OrgID`).
    pub fn tenant(mut self, id: impl Into<String>) -> Self {
        self.tenant = Some(id.into());
        self
    }

    /// Keeps profiles that wait to be sent in this folder, so that they survive the program.
    /// Default: in memory.
    ///
    /// The folder is created, with mode 0700, if its parent exists. An existing one must belong to
    /// this user and have that mode. One process uses it at a time. A relative path is relative to
    /// the current folder at this call.
    pub fn queue_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        self.queue_folder = Some(std::path::absolute(&folder).unwrap_or(folder));
        self
    }

    /// Trusts the certificates in this file, in the form of PEM, and no others, not even public ones.
    /// Default: those in the file that the variable `SSL_CERT_FILE` names, or the system's.
    ///
    /// The file is read on a thread of the profiler before the first profile is pushed, after a
    /// server's certificate was refused, and once per hour. It may have 4 MiB. If it cannot be read
    /// again, what was read before counts. A relative path is relative to the current folder at this
    /// call. A set-user-id program ignores the variable.
    #[cfg(feature = "push-tls")]
    pub fn root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        let file = file.into();
        self.root_certificates = Some(std::path::absolute(&file).unwrap_or(file));
        self
    }

    /// Sets the maximum size of all profiles that wait, in bytes. Beyond it, the oldest are
    /// dropped, and counted, but not the one that is being sent. Default: 16 MiB.
    pub fn queue_bytes(mut self, max_bytes: u64) -> Self {
        self.queue_bytes = max_bytes;
        self
    }
}

/// What has become of the profiles so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct PushCounts {
    /// Profiles that the store has accepted, with a status of 2xx.
    pub sent: u64,
    /// Size of the requests with these profiles, without their heads, in bytes.
    pub sent_bytes: u64,
    /// Attempts to send a profile that failed. Each is made again, unless pushing has ended.
    pub retried: u64,
    /// Profiles that were dropped because the queue was full, or because they were in memory or not
    /// written when pushing ended.
    pub dropped: u64,
    /// Profiles that were dropped because the store refused them.
    pub refused: u64,
    /// Profiles that a collector of OpenTelemetry has rejected in an answer of 2xx, if the answer
    /// says its length. A request has one profile for each kind of value, so this may be more than
    /// `sent`.
    pub rejected: u64,
    /// Profiles that lack samples, because the session's buffer had no space for its whole time, or the
    /// process no memory to write all of it.
    pub incomplete: u64,
    /// Profiles that wait to be sent.
    pub waiting: u64,
}

/// The reason why profiles are not pushed.
#[derive(Debug)]
#[non_exhaustive]
pub enum PushError {
    /// The address is not accepted.
    BadUrl {
        /// The address or a part of the address, without secrets.
        url: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// A setting has a value that is not accepted.
    BadValue {
        /// The setting's name in [`PushSettings`].
        field: &'static str,
        /// The value, without secrets.
        value: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// The folder of the queue cannot be used.
    Queue {
        /// The folder.
        path: PathBuf,
        /// The answer of the operating system.
        error: io::Error,
    },
    /// The process pushes profiles already.
    AlreadyPushing,
    /// No session could be started.
    Start(StartError),
    /// The operating system refused a thread or a socket.
    System(io::Error),
    /// The call came from code that the profiler runs itself, such as the application's allocator.
    Reentrant,
    /// This build contains no profiler.
    Unsupported,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUrl { url, accepted } => {
                write!(f, "cannot push profiles: got the address {url:?}, expected {accepted}")
            }
            Self::BadValue {
                field,
                value,
                accepted,
            } => write!(f, "cannot push profiles: got {value} for {field}, expected {accepted}"),
            Self::Queue { path, error } => {
                let path = path.display();
                match error.kind() {
                    io::ErrorKind::WouldBlock => write!(
                        f,
                        "cannot push profiles: got the folder {path}, which this or another process uses, \
                         expected one for this pusher alone"
                    ),
                    io::ErrorKind::PermissionDenied => write!(
                        f,
                        "cannot push profiles: got the folder {path}, expected one that this user may write, \
                         and that no other user can open (mode 0700)"
                    ),
                    io::ErrorKind::NotFound => write!(
                        f,
                        "cannot push profiles: got \"{error}\" for the folder {path}, expected one in a \
                         folder that exists"
                    ),
                    _ => write!(
                        f,
                        "cannot push profiles: got \"{error}\" for the folder {path}, expected one in which \
                         this user can create files"
                    ),
                }
            }
            Self::AlreadyPushing => f.write_str(
                "cannot push profiles: this process pushes profiles already, expected one pusher at a time",
            ),
            Self::Start(error) => write!(f, "{error}"),
            Self::System(error) => write!(
                f,
                "cannot push profiles: got \"{error}\", expected a thread and a socket"
            ),
            Self::Reentrant => f.write_str(
                "cannot push profiles: got a call from inside the profiler's own work, expected one from \
                 the application's code",
            ),
            Self::Unsupported => write!(f, "cannot push profiles: {NO_PROFILER}"),
        }
    }
}

impl Error for PushError {}

impl From<StartError> for PushError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_text_has_no_secret() {
        let url = "http://user:hidden@host/";
        for settings in [
            PushSettings::pyroscope(url).bearer_token("hidden"),
            PushSettings::pyroscope(url).basic_auth("hidden", "hidden"),
        ] {
            let text = format!("{settings:?}");
            assert!(
                !text.contains("hidden") && text.contains("has_secret: true"),
                "{text}"
            );
        }
    }
}
