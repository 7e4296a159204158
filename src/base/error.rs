//! Errors for people: what was asked, what was found, what is accepted.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::ThreadId;

/// Why the profiler did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The profiler is not in this build: the target has no way to sample a thread, or the feature `enabled` is off.
    Unsupported,
    /// A setting is outside of what is accepted.
    BadValue {
        /// The setting's name in [`StartParams`](crate::StartParams).
        field: &'static str,
        /// What was asked for, in words.
        value: String,
        /// What is accepted, in words.
        accepted: String,
    },
    /// The operating system refused something that sampling needs.
    System {
        /// What was asked of it.
        action: &'static str,
        /// Its answer.
        answer: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str(
                "the profiler is not in this build: it needs Linux on x86_64 or aarch64, and the crate's feature \
                 `enabled`",
            ),
            Self::BadValue { field, value, accepted } => {
                write!(f, "the profiler did not start: {field} is {value}; accepted is {accepted}")
            }
            Self::System { action, answer } => {
                write!(f, "the profiler did not start: it tried to {action}, and the system answered: {answer}")
            }
        }
    }
}

impl Error for StartError {}

/// Why no profile was written.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamError {
    /// The profiler is not running, so there is nothing to write.
    Inactive,
    /// The writer failed; this is its error. What was written before is not a whole profile.
    Io(io::Error),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inactive => {
                f.write_str("no profile: the profiler is not running; `profiler_start` starts it")
            }
            Self::Io(error) => write!(f, "the profile could not be written: {error}"),
        }
    }
}

impl Error for StreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Inactive => None,
            Self::Io(error) => Some(error),
        }
    }
}

/// Why a child's profile was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExitProfileError {
    /// The profiler is not running, so there is no profile that it would stand in.
    Inactive,
    /// The text is not JSON; this is where and why. A profile that is compressed is not.
    NotJson(String),
    /// The text is JSON, and no profile in Gecko's format: it lacks this.
    NotAProfile {
        /// The part that every profile has.
        lacks: &'static str,
    },
    /// This build, or this system, has no profiler.
    Unsupported,
}

impl fmt::Display for ExitProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the child's profile was not taken: ")?;
        match self {
            Self::Inactive => {
                f.write_str("the profiler is not running; `profiler_start` starts it")
            }
            Self::NotJson(error) => {
                write!(
                    f,
                    "it is not JSON ({error}); accepted is a profile in Gecko's format, uncompressed"
                )
            }
            Self::NotAProfile { lacks } => {
                write!(
                    f,
                    "it has no {lacks:?}; accepted is a profile in Gecko's format"
                )
            }
            Self::Unsupported => f.write_str("the profiler is not in this build"),
        }
    }
}

impl Error for ExitProfileError {}

/// Why no profile was saved. The file that was there before, if any, is untouched.
#[derive(Debug)]
#[non_exhaustive]
pub enum SaveError {
    /// The profiler is not running, so there is nothing to save.
    Inactive,
    /// The file could not be made or written.
    Io {
        /// The file that was asked for, with `%p` replaced.
        path: PathBuf,
        /// What was being done to it.
        action: &'static str,
        /// The system's answer.
        error: io::Error,
    },
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inactive => {
                f.write_str("no profile: the profiler is not running; `profiler_start` starts it")
            }
            Self::Io {
                path,
                action,
                error,
            } => {
                write!(
                    f,
                    "the profile was not saved: could not {action} {}: {error}",
                    path.display()
                )
            }
        }
    }
}

impl Error for SaveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Inactive => None,
            Self::Io { error, .. } => Some(error),
        }
    }
}

/// Why another thread's stack was not sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SuspendError {
    /// The profiler is not in this build: the target has no way to sample a thread, or the feature `enabled` is off.
    Unsupported,
    /// The process has such a thread, and it is not registered.
    NotRegistered {
        /// The thread that was asked for.
        thread: ThreadId,
    },
    /// The process has no such thread, or has none any more.
    Gone {
        /// The thread that was asked for.
        thread: ThreadId,
    },
    /// The thread is registered, and the system could not tell where its stack is, or had no memory to copy it to.
    NoStack {
        /// The thread that was asked for.
        thread: ThreadId,
    },
    /// The thread did not answer in time. It goes on as if it had not been asked.
    TimedOut {
        /// The thread that was asked for.
        thread: ThreadId,
        /// The signal that it was to answer.
        signal: i32,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// The operating system refused something that sampling needs.
    System {
        /// What was asked of it.
        action: &'static str,
        /// Its answer.
        answer: String,
    },
}

impl fmt::Display for SuspendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str(
                "no stack: the profiler is not in this build: it needs Linux on x86_64 or aarch64, and the crate's \
                 feature `enabled`",
            ),
            Self::NotRegistered { thread } => write!(
                f,
                "no stack: thread {} is not registered; accepted are threads that called `register_thread`, and the \
                 calling thread",
                thread.to_number()
            ),
            Self::Gone { thread } => {
                write!(f, "no stack: this process has no thread {}, or has it no more", thread.to_number())
            }
            Self::NoStack { thread } => write!(
                f,
                "no stack: the system could not tell where the stack of thread {} is, or had no memory for a copy",
                thread.to_number()
            ),
            Self::TimedOut { thread, signal, timeout } => write!(
                f,
                "no stack: thread {} did not answer signal {signal} within {timeout:?}; it blocks the signal, gets no \
                 processor, sits in a call that cannot be interrupted, or the process was forking",
                thread.to_number()
            ),
            Self::System { action, answer } => {
                write!(f, "no stack: the profiler tried to {action}, and the system answered: {answer}")
            }
        }
    }
}

impl Error for SuspendError {}

/// A feature's name that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFeature {
    name: String,
    known: String,
}

impl UnknownFeature {
    pub(crate) fn new<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        Self {
            name: name.to_owned(),
            known: known.collect::<Vec<_>>().join(", "),
        }
    }
}

impl fmt::Display for UnknownFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unrecognized feature {:?}; accepted are: {}",
            self.name, self.known
        )
    }
}

impl Error for UnknownFeature {}
