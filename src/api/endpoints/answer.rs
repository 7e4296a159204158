//! What a client gets.

use std::{fmt, io};

use crate::types::StartError;

/// An answer for a client, with the headers of its content.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EndpointAnswer {
    /// The HTTP status: 200, or the one that [`EndpointError::status`] returns.
    pub status: u16,
    /// The media type.
    pub content_type: &'static str,
    /// The file name under which a browser saves the content. `None` for what a browser shows.
    pub file_name: Option<&'static str>,
    /// The content.
    pub body: Vec<u8>,
}

impl EndpointAnswer {
    pub(super) fn new(content_type: &'static str, file_name: Option<&'static str>) -> Self {
        Self {
            status: 200,
            content_type,
            file_name,
            body: Vec::new(),
        }
    }

    /// Returns all headers that the answer needs, by name: the media type, the file name, and that
    /// nothing may be stored or guessed.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("Content-Type", self.content_type.to_owned()),
            ("X-Content-Type-Options", "nosniff".to_owned()),
            ("Cache-Control", "no-store".to_owned()),
        ];
        if self.status != 200 {
            // Without it, `go tool pprof` does not print the words of an error.
            headers.push(("X-Go-Pprof", "1".to_owned()));
        }
        if let Some(name) = self.file_name {
            let value = format!("attachment; filename=\"{name}\"");
            headers.push(("Content-Disposition", value));
        }
        headers
    }
}

impl From<EndpointError> for EndpointAnswer {
    fn from(error: EndpointError) -> Self {
        Self {
            status: error.status(),
            body: format!("{error}\n").into_bytes(),
            ..Self::new(TEXT, None)
        }
    }
}

/// The media type of plain text.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// The reason why a client gets no profile.
#[derive(Debug)]
#[non_exhaustive]
pub enum EndpointError {
    /// No endpoint has this name.
    Unknown {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A parameter has a value that is not accepted.
    BadParameter {
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
        /// What is accepted.
        accepted: String,
    },
    /// As many clients as the limit allows are being answered.
    Busy {
        /// The limit.
        max_clients: usize,
    },
    /// No session could be started.
    Start(StartError),
    /// The session ended before the time was over, because the application stopped or replaced it.
    Ended,
    /// No samples of allocations exist.
    NoHeap,
    /// This build cannot write the format of the endpoint.
    MissingFeature {
        /// The crate's feature that the format needs.
        feature: &'static str,
    },
    /// The profile could not be written.
    Write(io::Error),
}

impl EndpointError {
    /// Returns the HTTP status for the error.
    pub fn status(&self) -> u16 {
        match self {
            Self::Unknown { .. } => 404,
            Self::BadParameter { .. } => 400,
            Self::Busy { .. } => 503,
            Self::Start(StartError::Unsupported) | Self::NoHeap | Self::MissingFeature { .. } => {
                501
            }
            Self::Ended => 409,
            Self::Write(error) if error.kind() == io::ErrorKind::OutOfMemory => 503,
            Self::Start(_) | Self::Write(_) => 500,
        }
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } => write!(
                f,
                "cannot answer: got the endpoint {name:?}, expected one of {known}"
            ),
            Self::BadParameter {
                name,
                value,
                accepted,
            } => write!(
                f,
                "cannot answer: got {value:?} for {name:?}, expected {accepted}"
            ),
            Self::Busy { max_clients } => write!(
                f,
                "cannot answer: got {max_clients} other clients at the same time, expected fewer"
            ),
            Self::Start(error) => write!(f, "{error}"),
            Self::Ended => f.write_str(
                "cannot answer: the application stopped or replaced the session, expected one until \
                 the end of the time",
            ),
            Self::NoHeap => f.write_str(
                "cannot answer: got no samples of allocations, expected a running session with the \
                 feature `nativeallocations` and a ProfilerAllocator as the global allocator",
            ),
            Self::MissingFeature { feature } => write!(
                f,
                "cannot answer: got an endpoint that this build lacks, expected the crate's feature \
                 `{feature}`"
            ),
            Self::Write(error) => write!(f, "cannot write the profile: {error}"),
        }
    }
}

impl std::error::Error for EndpointError {}
