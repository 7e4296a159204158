//! Error types. Messages follow `cannot X: got Y, expected Z`.

use std::error::Error;
use std::fmt;
use std::io;
use std::panic::Location;
use std::path::PathBuf;
use std::time::Duration;

use crate::types::newtypes::ThreadId;
use crate::types::signal_name::signal_name;

/// The end of messages about a build without the profiler.
pub(crate) const NO_PROFILER: &str = "this build contains no profiler, expected Linux on x86_64 or \
                                      aarch64 and the crate's feature `enabled`";
/// The end of messages about calls that need a running session.
pub(crate) const NOT_RUNNING: &str =
    "the profiler is not running, expected a session that `profiler_start` started";

/// The reason why the profiler did not start, or why control by signals was not set up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// This build contains no profiler: the target is not supported, or the crate's feature
    /// `enabled` is off.
    Unsupported,
    /// A setting has a value that is not accepted.
    BadValue {
        /// The setting's name in [`StartParams`](crate::types::settings::StartParams).
        field: &'static str,
        /// The rejected value, in words.
        value: String,
        /// The accepted values, in words.
        accepted: String,
    },
    /// The operating system refused a call that sampling needs.
    System {
        /// The action that failed, as a verb phrase.
        action: &'static str,
        /// The reason.
        answer: String,
    },
    /// The operating system refused a call that control by signals needs.
    ControlSystem {
        /// The action that failed, as a verb phrase.
        action: &'static str,
        /// The reason.
        answer: String,
    },
    /// The session of another [`ProfilerSession`](crate::ProfilerSession) runs.
    SessionRuns {
        /// The call that started that session, in the source code of the application.
        started_at: &'static Location<'static>,
        /// Whether the calling thread started it, so that a wait for its end would never end.
        is_same_thread: bool,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str(
                "cannot start the profiler: this build contains none, expected Linux on x86_64 or \
                 aarch64 and the crate's feature `enabled`",
            ),
            Self::BadValue {
                field,
                value,
                accepted,
            } => {
                let goal = match *field {
                    "start_signal" | "stop_signal" => "control the profiler by signals",
                    _ => "start the profiler",
                };
                write!(f, "cannot {goal}: {field} is {value}, expected {accepted}")
            }
            Self::ControlSystem { action, answer } => write!(
                f,
                "cannot control the profiler by signals: cannot {action}: {answer}"
            ),
            Self::System { action, answer } => {
                write!(f, "cannot start the profiler: cannot {action}: {answer}")
            }
            Self::SessionRuns {
                started_at,
                is_same_thread,
            } => {
                let remedy = match is_same_thread {
                    true => "this thread started it, so finish or drop it first",
                    false => "ProfilerSession::start_in_turn waits for its end",
                };
                write!(
                    f,
                    "cannot start the profiler: the ProfilerSession of {started_at} runs, expected \
                     none; {remedy}"
                )
            }
        }
    }
}

impl Error for StartError {}

/// The reason why no profile was written.
#[derive(Debug)]
#[non_exhaustive]
#[doc(alias = "FailureLatch")]
pub enum StreamError {
    /// The profiler is not running, so there is nothing to write.
    Inactive,
    /// The writer failed with this error. The output up to that point is an incomplete profile.
    Io(io::Error),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inactive => write!(f, "cannot write a profile: {NOT_RUNNING}"),
            Self::Io(error) => write!(f, "cannot write the profile: {error}"),
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

/// Maximum number of levels of processes in the profile of a child process, including the child
/// itself. The profile of its parent has one more level. Each level takes a few nested calls of the
/// caller's stack; a browser has two levels.
pub(crate) const MAX_PROCESS_LEVELS: usize = 16;

/// The reason why the profile of a child process was not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExitProfileError {
    /// The profiler is not running, so the child's profile cannot be added to any profile.
    Inactive,
    /// The text is not JSON. The string gives the reason and the position. A compressed profile is
    /// not JSON.
    NotJson(String),
    /// The text is JSON, but not a profile in Gecko's format.
    NotAProfile {
        /// The missing part, which every profile has.
        lacks: &'static str,
    },
    /// The profile is larger than 1 GiB, which the viewer cannot open, or larger than all exit
    /// profiles of the session may be: a quarter of
    /// [`StartParams::capacity_bytes`](crate::StartParams::capacity_bytes).
    TooLarge {
        /// Size of the profile, in bytes.
        bytes: u64,
        /// Maximum size, in bytes.
        max_bytes: u64,
    },
    /// There is not enough memory to read the profile.
    OutOfMemory {
        /// Size of the profile, in bytes.
        bytes: u64,
    },
    /// The profile contains processes within processes, too many levels deep.
    TooDeep {
        /// Maximum number of levels, including the child itself.
        max_levels: usize,
    },
    /// This build contains no profiler.
    Unsupported,
}

impl fmt::Display for ExitProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot add the child's profile: ")?;
        match self {
            Self::Inactive => f.write_str(NOT_RUNNING),
            Self::NotJson(error) => {
                write!(
                    f,
                    "got text that is not JSON ({error}), expected a profile in Gecko's format, \
                     uncompressed"
                )
            }
            Self::NotAProfile { lacks } => {
                write!(
                    f,
                    "got JSON with no {lacks:?}, expected a profile in Gecko's format"
                )
            }
            Self::TooLarge { bytes, max_bytes } => {
                write!(
                    f,
                    "got {bytes} bytes, expected at most {max_bytes} bytes, which is a quarter of the \
                     session's capacity or 1 GiB"
                )
            }
            Self::OutOfMemory { bytes } => {
                write!(
                    f,
                    "got a profile of {bytes} bytes, expected free memory of that size"
                )
            }
            Self::TooDeep { max_levels } => {
                write!(
                    f,
                    "got processes within processes, more than {max_levels} levels deep, expected at \
                     most {max_levels}"
                )
            }
            Self::Unsupported => f.write_str(NO_PROFILER),
        }
    }
}

impl Error for ExitProfileError {}

/// The reason why no profile was saved. An existing file at the path is unchanged. The exception is
/// an error of the disk while a file is overwritten, which empties the file; see
/// [`profiler_save_profile_to_file`](crate::profiler_save_profile_to_file).
#[derive(Debug)]
#[non_exhaustive]
pub enum SaveError {
    /// The profiler is not running, so there is nothing to save.
    Inactive,
    /// A folder of the path does not exist.
    NoFolder {
        /// The requested file, expanded.
        path: PathBuf,
        /// The outermost folder that does not exist.
        folder: PathBuf,
    },
    /// No format has the ending of the file's name.
    UnknownEnding {
        /// The requested file, expanded.
        path: PathBuf,
        /// The endings that have a format, as text.
        known: String,
    },
    /// This build cannot write the format that the ending of the file's name selects.
    MissingFeature {
        /// The requested file, expanded.
        path: PathBuf,
        /// The crate's feature that the format needs.
        feature: &'static str,
    },
    /// The file could not be created or written.
    Io {
        /// The requested file, expanded.
        path: PathBuf,
        /// The action that failed, as a verb phrase.
        action: &'static str,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inactive => write!(f, "cannot save a profile: {NOT_RUNNING}"),
            Self::NoFolder { path, folder } => {
                write!(
                    f,
                    "cannot save the profile as {}: the folder {} does not exist",
                    path.display(),
                    folder.display()
                )
            }
            Self::MissingFeature { path, feature } => {
                write!(
                    f,
                    "cannot save the profile as {}: got a format that this build lacks, expected \
                     the crate's feature `{feature}`",
                    path.display()
                )
            }
            Self::UnknownEnding { path, known } => {
                write!(
                    f,
                    "cannot save the profile as {}: got a name with an unknown ending, expected \
                     one of {known}, maybe with .gz, or no ending",
                    path.display()
                )
            }
            Self::Io {
                path,
                action,
                error,
            } => {
                write!(
                    f,
                    "cannot save the profile: cannot {action} {}: {error}",
                    path.display()
                )
            }
        }
    }
}

impl Error for SaveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// The reason why no profile was read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The file or the stream could not be read.
    Io {
        /// The file; `None` for a profile from a stream.
        path: Option<PathBuf>,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The data is compressed with gzip, but damaged. The string gives the reason.
    DamagedGzip(String),
    /// The data is compressed with gzip, which this build cannot read: the crate's feature `gzip` is
    /// off.
    NoGzip,
    /// The text is not JSON. The string gives the reason and the position.
    NotJson(String),
    /// The text is JSON, but no profile of gekkota or Firefox.
    NotAProfile {
        /// The missing part, which every profile has.
        lacks: &'static str,
    },
    /// A part of the profile is missing or has an unexpected value.
    Json {
        /// The place of the value, such as `threads[3].samples.data[17][0]`.
        path: String,
        /// The value, in words or as JSON.
        got: String,
        /// The accepted values, in words.
        expected: String,
    },
    /// The profile contains processes within processes, too many levels deep.
    TooDeep {
        /// The place of the innermost process that was found.
        path: String,
        /// Maximum number of levels, including the outermost process.
        max_levels: usize,
    },
    /// The text is longer than the reader accepts.
    TooLarge {
        /// Maximum length of the text, without compression, in bytes.
        max_bytes: u64,
    },
    /// This build contains no profiler.
    Unsupported,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot read the profile")?;
        match self {
            Self::Io {
                path: Some(path),
                error,
            } => write!(f, " {}: {error}", path.display()),
            Self::Io { path: None, error } => write!(f, ": {error}"),
            Self::DamagedGzip(error) => {
                write!(
                    f,
                    ": got damaged gzip data ({error}), expected a whole file"
                )
            }
            Self::NoGzip => f.write_str(
                ": got gzip data, expected JSON, or a build with the crate's feature `gzip`",
            ),
            Self::NotJson(error) => write!(
                f,
                ": got text that is not JSON ({error}), expected a profile of gekkota or Firefox"
            ),
            Self::NotAProfile { lacks } => write!(
                f,
                ": got JSON without {lacks:?}, expected a profile of gekkota or Firefox"
            ),
            Self::Json {
                path,
                got,
                expected,
            } => write!(f, ": {path}: got {got}, expected {expected}"),
            Self::TooDeep { path, max_levels } => write!(
                f,
                ": {path}: got processes within processes, more than {max_levels} levels deep, \
                 expected at most {max_levels}"
            ),
            Self::Unsupported => write!(f, ": {NO_PROFILER}"),
            Self::TooLarge { max_bytes } => write!(
                f,
                ": got more than {max_bytes} bytes of text, expected at most {max_bytes}"
            ),
        }
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// The reason why no profile was made of a crash file.
#[derive(Debug)]
#[non_exhaustive]
pub enum RescueError {
    /// The file could not be read.
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file is not a crash file that this version of gekkota can read, or its head is damaged.
    NotACrashFile {
        /// The file.
        path: PathBuf,
        /// What was found, and what was expected, in words.
        reason: String,
    },
    /// There is not enough memory for the file's contents.
    OutOfMemory {
        /// The file.
        path: PathBuf,
    },
    /// This build contains no profiler.
    Unsupported,
}

impl fmt::Display for RescueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(
                f,
                "cannot rescue {}: got \"{error}\", expected a readable crash file",
                path.display()
            ),
            Self::NotACrashFile { path, reason } => {
                write!(f, "cannot rescue {}: {reason}", path.display())
            }
            Self::OutOfMemory { path } => write!(
                f,
                "cannot rescue {}: got no memory for its contents, expected some more than its size",
                path.display()
            ),
            Self::Unsupported => write!(f, "cannot rescue a crash file: {NO_PROFILER}"),
        }
    }
}

impl Error for RescueError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// The reason why another thread's stack was not sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SuspendError {
    /// This build contains no profiler: the target is not supported, or the crate's feature
    /// `enabled` is off.
    Unsupported,
    /// The thread exists, but is not registered.
    NotRegistered {
        /// The target thread.
        thread: ThreadId,
    },
    /// The process has no such thread: it never existed, or it has exited.
    Gone {
        /// The target thread.
        thread: ThreadId,
    },
    /// The thread is registered, but its stack bounds are unknown, or there was not enough memory
    /// for a copy of its stack.
    NoStack {
        /// The target thread.
        thread: ThreadId,
    },
    /// The thread did not answer within the timeout. It continues undisturbed.
    TimedOut {
        /// The target thread.
        thread: ThreadId,
        /// The signal that was sent to the thread.
        signal: i32,
        /// The timeout.
        timeout: Duration,
    },
    /// The operating system refused a call that sampling needs.
    System {
        /// The action that failed, as a verb phrase.
        action: &'static str,
        /// The reason.
        answer: String,
    },
}

impl fmt::Display for SuspendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => write!(f, "cannot sample the thread: {NO_PROFILER}"),
            Self::NotRegistered { thread } => write!(
                f,
                "cannot sample thread {}: it is not registered, expected a thread that called \
                 `register_thread`, or the calling thread",
                thread.to_number()
            ),
            Self::Gone { thread } => {
                write!(
                    f,
                    "cannot sample thread {}: it does not exist or has exited",
                    thread.to_number()
                )
            }
            Self::NoStack { thread } => write!(
                f,
                "cannot sample thread {}: its stack bounds are unknown, or there is no memory for \
                 a copy of its stack",
                thread.to_number()
            ),
            Self::TimedOut {
                thread,
                signal,
                timeout,
            } => write!(
                f,
                "cannot sample thread {}: got no answer to {} within {timeout:?}; the thread \
                 blocks the signal, gets no processor or is in an uninterruptible call, or the \
                 process was forking",
                thread.to_number(),
                signal_name(*signal)
            ),
            Self::System { action, answer } => {
                write!(f, "cannot sample the thread: cannot {action}: {answer}")
            }
        }
    }
}

impl Error for SuspendError {}

/// The error for an unknown feature name.
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
            "cannot find a feature: got the name {:?}, expected one of {}",
            self.name, self.known
        )
    }
}

impl Error for UnknownFeature {}
